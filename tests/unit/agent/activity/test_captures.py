"""What the agent makes of recordings of real GPUs; tests/captures/README.md says how they were made."""

from pathlib import Path

import pytest

from gpuwatch.model.activity import State
from tests.support.paths import CAPTURES
from tests.support.played import TRUTH, states_of

RECORDED = {
    (path, pattern): truth
    for pattern, truth in TRUTH.items()
    for path in sorted(CAPTURES.glob(f"nvidia_*_{pattern}.jsonl"))
}


@pytest.mark.parametrize(("path", "pattern"), RECORDED, ids=lambda value: getattr(value, "stem", ""))
def test_a_recorded_gpu_is_what_it_was(path: Path, pattern: str) -> None:
    """After the time in which a deadlock would be called one; a GPU that somebody held is idle at no moment."""
    seen = states_of(path)

    assert seen[-1] in RECORDED[path, pattern]
    assert State.IDLE in RECORDED[path, pattern] or State.IDLE not in seen


@pytest.mark.parametrize("path", sorted(CAPTURES.glob("nvidia_*_blip.jsonl")), ids=lambda path: path.stem)
def test_a_warp_for_a_microsecond_was_seen(path: Path) -> None:
    """The driver counts the cycles of multiprocessors, and none while no kernel runs."""
    assert State.BUSY in states_of(path)
