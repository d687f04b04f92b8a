"""A job with a deadline on recordings: never late where it can be done, and dearer than an omniscient one."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.simulate.spot.job import RULES, JobTerms, optimum_hours, play
from tests.support.nightly import examples

STRETCHES = st.lists(st.tuples(st.integers(1, 60), st.booleans()), min_size=1, max_size=12)


def stretched(stretches: list[tuple[int, bool]], minutes: int) -> list[bool]:
    """So many minutes with or without spot, one stretch after the other."""
    flat = [there for length, there in stretches for _ in range(length)]
    return (flat * (1 + minutes // len(flat)))[:minutes]


@settings(max_examples=examples(60), deadline=None)
@given(
    first=STRETCHES,
    second=STRETCHES,
    work=st.integers(10, 200),
    slack=st.integers(0, 200),
    move=st.integers(1, 20),
    rule=st.sampled_from(sorted(RULES)),
)
def test_no_deadline_is_missed_that_on_demand_would_hold(
    first: list[tuple[int, bool]], second: list[tuple[int, bool]], work: int, slack: int, move: int, rule: str
) -> None:
    """Whatever spot does, at any minute."""
    terms = JobTerms(work_minutes=work, allowed_minutes=work + move + slack, move_minutes=move)
    rooms = [stretched(each, terms.allowed_minutes) for each in (first, second)]

    assert not play(rooms, terms, RULES[rule]).missed


@settings(max_examples=examples(20), deadline=None)
@given(stretches=STRETCHES, work=st.integers(2, 20), slack=st.integers(0, 30))
def test_nobody_pays_less_than_the_omniscient(stretches: list[tuple[int, bool]], work: int, slack: int) -> None:
    """In steps of one minute its figure is exact."""
    terms = JobTerms(work_minutes=5 * work, allowed_minutes=5 * (work + slack) + 10)
    spot = stretched(stretches, terms.allowed_minutes)
    least = optimum_hours(spot, terms, step_minutes=1)

    assert all(play([spot], terms, rule).cost_hours >= least - 1e-9 for rule in RULES.values())


def test_by_hand() -> None:
    """An hour of work with spot throughout: 70 minutes at 40 %; without any: 70 minutes on demand, at the end."""
    terms = JobTerms(work_minutes=60, allowed_minutes=180)
    waits = RULES["wait for spot"]

    assert play([[True] * 180], terms, waits).cost_hours == pytest.approx(0.4 * 70 / 60)
    alone = play([[False] * 180], terms, waits)
    assert alone.cost_hours == pytest.approx(70 / 60)
    assert not alone.missed
    assert optimum_hours([True] * 180, terms) == pytest.approx(0.4 * 70 / 60)
