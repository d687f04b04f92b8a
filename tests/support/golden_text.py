"""Expected texts in tests/golden: compared word by word, or written anew."""

import os

from tests.support.paths import GOLDEN


def check(name: str, text: str) -> None:
    """Compare with the golden file; GPUWATCH_UPDATE_GOLDEN=1 writes it anew, and the diff is the review."""
    path = GOLDEN / name
    if os.environ.get("GPUWATCH_UPDATE_GOLDEN") == "1":
        path.write_text(text + "\n", encoding="utf-8")

    assert text + "\n" == path.read_text(encoding="utf-8")
