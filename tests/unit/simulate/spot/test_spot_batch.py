"""The controller itself with work that has a deadline: it waits for spot, and it is never late."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.ledger import Ledger
from gpuwatch.policies.spot.mix import MixRules
from gpuwatch.simulate.spot.job import RULES, JobTerms, play
from gpuwatch.simulate.spot.live_batch import play_batch
from gpuwatch.simulate.spot.recording import Recording
from gpuwatch.simulate.spot.sums import Terms
from tests.support.nightly import examples

TERMS = Terms()
MIX = MixRules(give_back_notice=60.0)
WORK = JobTerms(work_minutes=240, allowed_minutes=600, move_minutes=14)
STRETCHES = st.lists(st.tuples(st.integers(20, 120), st.integers(0, 2)), min_size=2, max_size=6)


def a_recording(*rooms: int) -> Recording:
    """One offer with so many nodes, minute by minute."""
    return Recording(minutes=len(rooms), nodes={"a": list(rooms)})


def test_with_spot_all_of_it_runs_on_spot() -> None:
    """Four hours of work and a boot of both nodes at 0.4."""
    found = play_batch(a_recording(*[2] * 300), 2, WORK, TERMS, MIX)

    assert found.cost_hours == pytest.approx(2 * 0.4 * 244 / 60)
    assert (found.minutes, found.moves, found.missed) == (244, 2, False)


def test_without_spot_it_waits_for_half_of_its_slack() -> None:
    """Of 346 minutes of slack 173 pass without a node; then both come on demand and stay."""
    found = play_batch(a_recording(*[0] * 500), 2, WORK, TERMS, MIX)

    assert found.cost_hours == pytest.approx(2 * 244 / 60)
    assert (found.minutes, found.moves, found.missed) == (173 + 244, 2, False)


def test_spot_that_comes_late_takes_the_place_of_on_demand() -> None:
    """The nodes on demand have both consents and go once spot works."""
    found = play_batch(a_recording(*[0] * 240, *[2] * 400), 2, WORK, TERMS, MIX)

    assert found.moves == 4
    assert found.cost_hours < 0.7 * 2 * 244 / 60
    assert not found.missed


def test_one_node_does_what_the_rule_of_one_job_does() -> None:
    """The same function decides: it costs the same within a tenth, and none is late. Refused offers rest."""
    live = alone = 0.0
    for up, down in ((90, 90), (150, 60), (60, 150)):
        rooms = ([0] * down + [1] * up) * (900 // (up + down))
        alone += play([[bool(each) for each in rooms]], WORK, RULES["wait for spot"]).cost_hours
        found = play_batch(a_recording(*rooms), 1, WORK, TERMS, MIX)
        live += found.cost_hours
        assert not found.missed

    assert live == pytest.approx(alone, rel=0.1)


def test_what_the_ledger_metered_decides_in_the_same_way() -> None:
    """With an interruption in the second hour: by hours' rows it costs the same within a tenth, and is in time."""
    recording, work = a_recording(*[1] * 70, *[0] * 10, *[1] * 200), JobTerms(work_minutes=90, allowed_minutes=240)
    ledger = Ledger.in_memory()
    metered = play_batch(recording, 1, work, TERMS, MIX, ledger=ledger)
    ledger.close()

    assert metered.cost_hours == pytest.approx(play_batch(recording, 1, work, TERMS, MIX).cost_hours, rel=0.1)
    assert (metered.interruptions, metered.missed) == (1, False)


@settings(max_examples=examples(5), deadline=None)
@given(stretches=STRETCHES, nodes=st.integers(1, 2), share=st.sampled_from((0.5, 0.65, 0.8, 0.9)))
def test_no_deadline_is_missed(stretches: list[tuple[int, int]], nodes: int, share: float) -> None:
    """Where on demand is always to be had; it costs no more than on demand alone, but for what losses take back."""
    rooms = [room for length, room in stretches for _ in range(length)]
    allowed = int(120 / share) + 14
    work = JobTerms(work_minutes=120, allowed_minutes=allowed)
    found = play_batch(a_recording(*(rooms * (1 + 2 * allowed // len(rooms)))), nodes, work, TERMS, MIX)

    again = found.interruptions * (TERMS.boot_minutes + TERMS.lost_minutes) / 60 * nodes
    twice = found.moves * (TERMS.boot_minutes + MIX.give_back_notice / 60 + 1) / 60  # a node on demand until spot works
    assert not found.missed
    assert found.cost_hours <= nodes * 124 / 60 + again + twice
