"""Where the repository, its tests and their data lie."""

from pathlib import Path

TESTS = Path(__file__).parent.parent
ROOT = TESTS.parent
GOLDEN = TESTS / "golden"
CAPTURES = TESTS / "captures"
