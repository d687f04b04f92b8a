"""Lives in use are not stopped: the first 42 minutes of all with the rights that ship, two hours of some as root.

`make nightly` plays 45 minutes, and more of them; `make lives` their whole days with both.
"""

from dataclasses import fields
from pathlib import Path
from random import Random

import pytest

from gpuwatch.model.activity import State
from gpuwatch.policies import PoolRules
from tests.lives.judge import activities, asked_before, judge, knowing
from tests.lives.play import play, record, silent
from tests.lives.rights import Rights, least_rights, nobody, unit_rights
from tests.lives.story import all_paths, load
from tests.support.each import for_each
from tests.support.nightly import NIGHTLY, by_night

_HOURS, _SHIPPED_HOURS, _CLOSED_HOURS, _OWNER_HOURS = 2.0, 0.75 if NIGHTLY else 0.7, 0.5, 0.1
_RECURRING_HOURS = 0.75
# Of the ways in which work can be quiet, and in which a rule was wrong; `make lives` plays them all.
_QUIET = ["B01", "B80", *by_night("B12", "B20", "B71")]
_HAS_PROFILES = "profile" in {each.name for each in fields(PoolRules)}
_BY_CODE = {path.stem.partition("-")[0]: path for path in all_paths()}


_BUSY = sorted(code for code in _BY_CODE if code.startswith("B"))


@pytest.mark.parametrize("code", _BUSY)
def test_with_the_rights_that_ship_no_machine_in_use_is_stopped(code: str) -> None:
    """With those of the form that grants least: what it does not let the agent see is doubt, and never absence.

    Nor does the balanced profile where nobody answered its first notice, nor in a pool whose notices nobody answers,
    which knows its pauses and expects no node to be needed soon.
    """
    life = load(_BY_CODE[code])
    with silent("gpuwatch"):
        recording = record(life, rights=least_rights(), hours=_SHIPPED_HOURS)
        stopped = {profile: judge(recording, profile).stopped_after for profile in ("cautious", "balanced")}
        stopped["asked"] = judge(recording, "balanced", knows=asked_before()).stopped_after
        stopped["known"] = judge(recording, "balanced", knows=knowing(own=True, answered=True)).stopped_after
    assert set(stopped.values()) == {None}, f"{life.title}: {life.who} {stopped}"


def test_an_empty_machine_is_stopped_within_those_hours() -> None:
    """Or the test above could not fail."""
    with silent("gpuwatch"):
        recording = record(load(_BY_CODE["F01"]), rights=least_rights(), hours=_SHIPPED_HOURS)
    for knows in (asked_before(), knowing(own=True, answered=True)):
        assert judge(recording, "balanced", knows=knows).stopped_after is not None


_RESTARTED = Random(38).sample(_BUSY, 8)


@pytest.mark.parametrize("code", [*_RESTARTED[:2], *by_night(*_RESTARTED[2:]), "B280", "B281", "B283"])
def test_a_restart_of_agent_or_controller_stops_no_machine_in_use(code: str) -> None:
    """At any moment, of lives drawn by chance: the agent begins anew twice, the controller each seven minutes."""
    life, chance = load(_BY_CODE[code]), Random(code)
    restarts = [life.used + 10.0 * chance.randint(6, int(_SHIPPED_HOURS * 300)) for _ in range(2)]
    with silent("gpuwatch"):
        recording = record(life, rights=least_rights(), hours=_SHIPPED_HOURS, restarts=restarts)
        again = range(chance.randint(1, 7), len(recording.answers), 7)
        pools = (None, knowing(own=True), asked_before())
        stopped = {judge(recording, "balanced", knows=each, restarts=again).stopped_after for each in pools}
    assert stopped == {None}, f"{life.title}: {life.who} {restarts}"


@pytest.mark.parametrize("code", ["B12", "B80", *by_night("B04", "B40", "B83", "B96")])
def test_whatever_is_closed_no_machine_in_use_is_idle(code: str) -> None:
    """To an agent without any right: what was busy or occupied may be unknown or occupied, and is never idle."""
    life = load(_BY_CODE[code])
    with silent("gpuwatch"):
        seen = [state for state, _ in activities(record(life, hours=_CLOSED_HOURS))]
        for closed in (("exe", "cwd"), ("io", "fd", "ns", "root")):
            blind = [
                state for state, _ in activities(record(life, rights=nobody(), closed=closed, hours=_CLOSED_HOURS))
            ]
            assert not [each for each in zip(seen, blind, strict=True) if each[1] is State.IDLE is not each[0]], closed


@pytest.mark.parametrize("code", ["B120", "B121", "B122", "B123", "B124", "B125"])
def test_what_the_distribution_did_not_bring_is_somebodys(code: str) -> None:
    """An administrator's and a company's own, as root too: such a machine is never idle, as it would be by names."""
    with silent("gpuwatch"):
        seen = [state for state, _ in activities(record(load(_BY_CODE[code]), hours=_OWNER_HOURS))]
    assert seen[2:]
    assert State.IDLE not in seen


@pytest.mark.parametrize(
    ("code", "rights", "rests"),
    [
        ("F240", unit_rights(), State.IDLE),
        *by_night(("F241", unit_rights(), State.OCCUPIED)),
        ("F241", least_rights(), State.OCCUPIED),
    ],
)
def test_what_recurs_for_days_without_a_gpu_is_no_work(code: str, rights: Rights, rests: State) -> None:
    """A job of root's cron leaves its machine idle, and a Ray head at rest occupies its own, after four days.

    An agent in a container sees nobody's bytes: the Ray head is at rest by its cores.
    """
    with silent("gpuwatch"):
        seen = activities(record(load(_BY_CODE[code]), rights=rights, hours=_RECURRING_HOURS))
    assert State.BUSY not in {state for state, _ in seen}
    assert seen[-1][0] is rests


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


def test_a_pool_that_is_known_finds_an_empty_machine_after_half_an_hour_of_watching() -> None:
    """Its agent has just begun and has not seen who comes by. A fresh pool asks first, for another four hours."""
    with silent("gpuwatch"):
        recording = record(load(_BY_CODE["F01"]), hours=5.0)
        pools = [knowing(own=own, answered=True) for own in (True, False)]
        known, new = (judge(recording, "balanced", knows=each).stopped_after for each in pools)
        fresh = judge(recording, "balanced").stopped_after
    assert known is not None
    assert new is not None
    assert fresh is not None
    assert max(known, new) <= 1800.0 + 180.0
    assert 4.5 * 3600.0 <= fresh < 4.75 * 3600.0


@for_each(all_paths(), lambda path: path.stem)
def test_a_life_says_its_truth(path: Path) -> None:
    """Its code says what its truth says: B is in use, F is forgotten."""
    first = "B" if "truth: busy" in path.read_text(encoding="utf-8") else "F"
    assert path.stem.startswith(first)
