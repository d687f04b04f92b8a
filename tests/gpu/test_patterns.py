"""What the agent makes of a GPU that is used in one way or another; `make gpu-test` does it on the machine's own GPU.

Each pattern is recorded, and its capture is played until time enough has passed for a verdict. Captures of hardware are
in `tests/captures/`; tests/unit/agent/activity/test_captures.py plays them everywhere.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from gpuwatch.model.activity import State
from tests.gpu import machine
from tests.gpu.burn import PATTERNS
from tests.gpu.machine import REAL, record
from tests.support.components import require
from tests.support.played import TRUTH, states_of

# Patterns of a stand-in driver prove these tests; those of hardware are played each day as captures.
pytestmark = () if REAL else pytest.mark.nightly

_WORDS = ("context", "allocate", *PATTERNS)


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Mapping[str, Path]:
    """One of each pattern, recorded beside it."""
    require("cc")
    folder = tmp_path_factory.mktemp("patterns")
    host = machine.real() if REAL else machine.stub(folder, request.getfixturevalue("nvml_library"))
    kept = Path(os.environ.get("GPUWATCH_GPU_CAPTURES", folder / "captures"))
    kept.mkdir(parents=True, exist_ok=True)
    recorded = {"idle": record(host, kept, "idle")}
    with host.load() as load:
        for word in _WORDS:
            load.do(word)
            recorded[word] = record(host, kept, word)
    recorded["after"] = record(host, kept, "after")
    return recorded


@pytest.mark.parametrize("pattern", TRUTH)
def test_each_pattern_is_what_it_is(captures: Mapping[str, Path], pattern: str) -> None:
    """By its capture, until a deadlock would have been called one; a GPU that somebody holds is never idle."""
    seen = states_of(captures[pattern])

    assert seen[-1] in TRUTH[pattern]
    assert State.IDLE in TRUTH[pattern] or State.IDLE not in seen


def test_the_shortest_kernel_is_seen(captures: Mapping[str, Path]) -> None:
    """A warp for a microsecond every five seconds is busy while it is in the time that was looked at."""
    assert State.BUSY in states_of(captures["blip"])
