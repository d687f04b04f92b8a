"""Lives in use are not stopped: the first two hours of some of those that `make lives` plays."""

from dataclasses import fields
from pathlib import Path

import pytest

from gpuwatch.policies import PoolRules
from tests.lives.judge import judge, knowing
from tests.lives.play import play, record, silent
from tests.lives.story import all_paths, load
from tests.support.each import for_each

_HOURS = 2.0
# One of each way in which work can be quiet; `make lives` plays them all.
_QUIET = ["B01", "B03", "B07", "B10", "B11", "B12", "B18", "B19", "B20", "B22", "B27", "B28", "B36", "B40", "B41"]
_QUIET += ["B71", "B74", "B80", "B85"]  # and of each way in which a rule was wrong
_HAS_PROFILES = "profile" in {each.name for each in fields(PoolRules)}
_BY_CODE = {path.stem.partition("-")[0]: path for path in all_paths()}


@pytest.mark.skipif(not _HAS_PROFILES, reason="pools have no profiles in this tree")
@pytest.mark.parametrize("code", _QUIET)
def test_a_machine_that_somebody_needs_is_not_stopped(code: str) -> None:
    """Neither the cautious nor the balanced profile stops a life in use, however quiet its work is.

    Nor does the balanced one in a pool that knows its pauses and expects no node to be needed soon.
    """
    life = load(_BY_CODE[code])
    with silent("gpuwatch"):
        recording = record(life, hours=_HOURS)
        stopped = {profile: judge(recording, profile).stopped_after for profile in ("cautious", "balanced")}
        stopped["known"] = judge(recording, "balanced", knows=knowing(own=True)).stopped_after
    assert stopped == {"cautious": None, "balanced": None, "known": None}, f"{life.title}: {life.who}"


def test_an_empty_machine_is_found() -> None:
    """The harness lets machines be stopped at all: nobody's machine goes within four hours."""
    played = play(_BY_CODE["F01"], hours=4.0, profiles=("eager",))
    assert played.by_profile["eager"].stopped_after is not None


def test_a_pool_that_is_known_finds_an_empty_machine_in_minutes_and_a_new_one_in_half_an_hour() -> None:
    """Whether its own pauses were long decides; a fresh pool takes 40 minutes."""
    with silent("gpuwatch"):
        recording = record(load(_BY_CODE["F01"]), hours=1.0)
        known, new = (judge(recording, "balanced", knows=knowing(own=own)).stopped_after for own in (True, False))
        fresh = judge(recording, "balanced").stopped_after
    assert known is not None
    assert new is not None
    assert fresh is not None
    assert known <= 300.0
    assert 1740.0 <= new < 2400.0 <= fresh


@for_each(all_paths(), lambda path: path.stem)
def test_a_life_says_its_truth(path: Path) -> None:
    """Its code says what its truth says: B is in use, F is forgotten."""
    first = "B" if "truth: busy" in path.read_text(encoding="utf-8") else "F"
    assert path.stem.startswith(first)
