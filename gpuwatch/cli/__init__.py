"""The command line: a file for each group of commands, and what they share; `render` makes their text."""
