"""`gpuwatch handover [FILE]`: the agent's settings as JSON for the lean process that asked. No command for people."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gpuwatch.config import ConfigError, load_handed

_BAD_CONFIGURATION = 2


def main(argv: Sequence[str]) -> int:
    """Print the settings, or every mistake on stderr; the result is the exit status."""
    try:
        handed = load_handed(Path(argv[0]) if argv else None, os.environ)
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return _BAD_CONFIGURATION
    sys.stdout.buffer.write(msgspec.json.encode(handed))
    return 0
