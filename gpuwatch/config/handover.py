"""`gpuwatch handover [FILE]`: the agent's settings as JSON for the lean process that asked. No command for people."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gpuwatch.config.agent_alone import plainly

_BAD_CONFIGURATION = 2


def main(argv: Sequence[str]) -> int:
    """Print the settings, or every mistake on stderr; the result is the exit status."""
    path = Path(argv[0]) if argv else None
    handed = plainly(path, os.environ)
    if handed is None:
        from gpuwatch.config import ConfigError, load_handed  # noqa: PLC0415  loads all settings there are

        try:
            handed = load_handed(path, os.environ)
        except ConfigError as error:
            sys.stderr.write(f"{error}\n")
            return _BAD_CONFIGURATION
    sys.stdout.buffer.write(msgspec.json.encode(handed))
    return 0
