"""Lives in use are not stopped: the first two hours of some of those that `make lives` plays."""

from dataclasses import fields
from pathlib import Path

import pytest

from gpuwatch.policies import PoolRules
from tests.lives.play import play
from tests.lives.story import all_paths

_HOURS = 2.0
# One of each way in which work can be quiet; `make lives` plays them all.
_QUIET = ("B01", "B03", "B07", "B10", "B11", "B12", "B18", "B19", "B20", "B22", "B27", "B28", "B36", "B41")
_HAS_PROFILES = "profile" in {each.name for each in fields(PoolRules)}
_BY_CODE = {path.stem.partition("-")[0]: path for path in all_paths()}


@pytest.mark.skipif(not _HAS_PROFILES, reason="pools have no profiles in this tree")
@pytest.mark.parametrize("code", _QUIET)
def test_a_machine_that_somebody_needs_is_not_stopped(code: str) -> None:
    """Neither the cautious nor the balanced profile stops a life in use, however quiet its work is."""
    played = play(_BY_CODE[code], hours=_HOURS, profiles=("cautious", "balanced"))
    stopped = {profile: judged.stopped_after for profile, judged in played.by_profile.items()}
    assert stopped == {"cautious": None, "balanced": None}, f"{played.life.title}: {played.life.who}"


def test_an_empty_machine_is_found() -> None:
    """The harness lets machines be stopped at all: nobody's machine goes within four hours."""
    played = play(_BY_CODE["F01"], hours=4.0, profiles=("eager",))
    assert played.by_profile["eager"].stopped_after is not None


@pytest.mark.parametrize("path", all_paths(), ids=lambda path: path.stem)
def test_a_life_says_its_truth(path: Path) -> None:
    """Its code says what its truth says: B is in use, F is forgotten."""
    first = "B" if "truth: busy" in path.read_text(encoding="utf-8") else "F"
    assert path.stem.startswith(first)
