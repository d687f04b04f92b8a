"""Operators' commands by what they are about; each loads what it needs when it runs, so that `--help` stays quick."""
