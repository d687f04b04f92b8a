"""`python -m gpuwatch.configuration.handover [FILE]`: the agent's settings as JSON for the lean process that asked."""

import os
import sys
from pathlib import Path

import msgspec

from gpuwatch.configuration import ConfigError, load_agent

_BAD_CONFIGURATION = 2


def main() -> int:
    """Print the settings, or every mistake on stderr; the result is the exit status."""
    try:
        knobs = load_agent(Path(sys.argv[1]) if len(sys.argv) > 1 else None, os.environ)
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return _BAD_CONFIGURATION
    sys.stdout.buffer.write(msgspec.json.encode(knobs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
