"""What was saved by stopping machines: from the stop to the next run, at the price of then, and never more."""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.decision import Verb
from gpuwatch.money.accounting.savings import Off, Ran, Turn, Waits, offs, savings_within

HOUR = 3_600_000
SLACK = 60_000
ALWAYS = (0, 10**15, 10**15)


def turn(verb: Verb, hour: float, *, node: str = "i-1", usd: str | None = "10") -> Turn:
    """At an hour."""
    return Turn(
        key=f"{node}-{hour}",
        node_id=node,
        verb=verb,
        at=int(hour * HOUR),
        pool="training",
        owner="ann",
        usd_per_hour=None if usd is None else Decimal(usd),
    )


def ran(begin: float, end: float, billed: float) -> Ran:
    """So many of these hours were billed."""
    return Ran(begin=int(begin * HOUR), end=int(end * HOUR), billed=int(billed * HOUR))


def ends(turns: Sequence[Turn], *rows: Ran, stopped: Sequence[Turn] = ()) -> list[float | None]:
    """The hours at which the stops of i-1 ended; None: it still stands."""
    result = offs(turns, {"i-1": rows}, frozenset(each.key for each in stopped), SLACK)
    return [None if off.end is None else off.end / HOUR for off in result.known]


@pytest.mark.parametrize("verb", [Verb.START, Verb.TERMINATE])
def test_our_own_start_or_termination_ends_a_stop(verb: Verb) -> None:
    """Known to the second, and what was billed before the stop and after the start says nothing."""
    turns = [turn(Verb.STOP, 2.5), turn(verb, 5.25)]

    assert ends(turns, ran(2, 3, 0.5), ran(5, 6, 0.75 if verb is Verb.START else 0.0)) == [5.25]


@pytest.mark.parametrize(
    ("rows", "end"),
    [
        ((ran(2, 3, 0.5), ran(4, 5, 0.25), ran(5, 6, 1.0)), 4.75),  # by the hour, late within it
        ((ran(2, 3, 0.75),), 2.75),  # in the hour of the stop itself
        ((ran(0, 24, 10.5),), 16.0),  # by the day, once it is summed up
        ((ran(0, 24, 2.5), ran(24, 48, 6.0)), 42.0),  # on the day after
    ],
)
def test_somebody_elses_start_is_seen_in_what_was_billed(rows: Sequence[Ran], end: float) -> None:
    """The machine stood until the latest moment at which what was billed can have begun."""
    assert ends([turn(Verb.STOP, 2.5)], *rows) == [end]


def test_half_an_interval_that_is_billed_after_a_stop_is_no_start() -> None:
    """Two rounds see a stop at different moments: a little more than its time does not end it."""
    stop = turn(Verb.STOP, 2.5)

    assert ends([stop], Ran(begin=2 * HOUR, end=3 * HOUR, billed=HOUR // 2 + SLACK), stopped=[stop]) == [None]


def test_a_machine_that_was_used_between_two_stops_saved_only_up_to_that() -> None:
    """Stopped at 20:00, started by somebody at 8:00, stopped again at 20:00: twelve hours, on rows by the day."""
    first, second = turn(Verb.STOP, 20), turn(Verb.STOP, 44)

    assert ends([first, second], ran(0, 24, 20.0), ran(24, 48, 12.0), stopped=[second]) == [32.0, None]


def test_a_machine_that_was_stopped_again_on_the_day_of_its_start_saved_until_that_start() -> None:
    """Stopped at 12:30, started by somebody at 13:30, stopped again at 18:00: an hour, also by a row of the day."""
    first, second = turn(Verb.STOP, 12.5), replace(turn(Verb.STOP, 18), launched=int(13.5 * HOUR))

    assert ends([first, second], ran(0, 24, 8.0), stopped=[second]) == [13.5, None]
    earlier = replace(second, launched=9 * HOUR)  # as a cloud says that does not know the last start
    assert ends([first, earlier], ran(0, 24, 8.0), stopped=[earlier]) == [18.0, None]


def test_a_stop_without_a_known_end_saves_nothing() -> None:
    """A machine that is neither stopped any more nor was seen running was ended by somebody, nobody knows when."""
    result = offs([turn(Verb.STOP, 2)], {}, frozenset(), SLACK)

    assert (result.known, result.endless) == ((), 1)
    assert savings_within(result, *ALWAYS).whole.usd == 0


def test_a_termination_saves_until_its_pool_launches_the_next_machine() -> None:
    """Two of them, and one launch after 100 hours: it takes the place that has been empty for the longest."""
    turns = [turn(Verb.TERMINATE, 0), turn(Verb.TERMINATE, 10, node="i-2"), turn(Verb.LAUNCH, 100, node="")]
    found = offs(turns, {}, frozenset(), SLACK)
    saved = savings_within(found, 0, 200 * HOUR, 200 * HOUR)

    assert {off.turn.node_id: off.end for off in found.known} == {"i-1": 100 * HOUR, "i-2": None}
    assert (saved.terminations, saved.whole.ms) == (2, 290 * HOUR)


def test_the_termination_of_a_stopped_machine_saves_nothing_more() -> None:
    """It did not run: its stop has ended, and its disks are in no sum."""
    turns = [turn(Verb.STOP, 0), turn(Verb.TERMINATE, 50)]
    saved = savings_within(offs(turns, {}, frozenset(), SLACK), *ALWAYS)

    assert (saved.stops, saved.terminations, saved.whole.ms) == (1, 0, 50 * HOUR)


def test_hours_without_a_price_and_what_still_costs_are_told_apart() -> None:
    """A stop without a price saves hours and no money; disks were paid while it ran, and are not taken off."""
    result = offs(
        [turn(Verb.STOP, 0), turn(Verb.STOP, 0, node="i-2", usd=None)], {}, frozenset({"i-1-0", "i-2-0"}), SLACK
    )
    alone = savings_within(result, 0, 10 * HOUR, 10 * HOUR).whole
    disks = savings_within(result, 0, 10 * HOUR, 10 * HOUR, {"i-1": Decimal("0.5")}).whole

    assert (alone.ms, alone.unpriced_ms, float(alone.usd)) == (20 * HOUR, 10 * HOUR, 100.0)
    assert (float(disks.gross_usd), float(disks.still_usd), float(disks.usd)) == (100.0, 5.0, 100.0)


def a_pool_with_a_habit(hours: float = 14.0) -> list[Turn]:
    """Six stops, a day apart, after each of which somebody wanted the machine so many hours later."""
    days = range(6)
    return [turn(verb, 24 * day + after) for day in days for verb, after in ((Verb.STOP, 0), (Verb.START, hours))]


def test_a_machine_that_nobody_needs_saves_for_as_long_as_its_pools_usually_stay_off() -> None:
    """$98.32 an hour, off for 89 days, in a pool with a habit of 14 hours: $1,376.48, all of it in the first month."""
    last = turn(Verb.STOP, 200, node="i-2", usd="98.32")
    found = offs([*a_pool_with_a_habit(), last], {}, frozenset({last.key}), SLACK)
    month = 720
    savings = [savings_within(found, begin * HOUR, (begin + month) * HOUR, 2400 * HOUR) for begin in (200, 920, 1640)]

    assert [float(each.whole.usd) for each in savings] == [1376.48, 0.0, 0.0]
    assert [each.whole.off_ms // HOUR for each in savings] == [month - 14, month, month]
    assert [each.still_off for each in savings] == [1, 1, 1]


def test_without_a_habit_a_stop_saves_for_thirty_days_at_most_however_months_are_cut() -> None:
    """$10 an hour, stopped 288 hours before the month's end: $2,880, $4,320 and nothing."""
    stop = turn(Verb.STOP, 0)
    found = offs([stop], {}, frozenset({stop.key}), SLACK)
    edges = [0, 288, 288 + 720, 288 + 720 + 744]
    savings = [savings_within(found, a * HOUR, b * HOUR, 9000 * HOUR).whole.usd for a, b in pairwise(edges)]

    assert list(map(float, savings)) == [2880.0, 4320.0, 0.0]


def test_a_need_that_is_known_ends_a_saving_later_than_the_habit() -> None:
    """Over a weekend nobody needed it, and on Monday somebody did: it would have idled until then."""
    turns = [*a_pool_with_a_habit(), turn(Verb.STOP, 200, node="i-2"), turn(Verb.START, 262, node="i-2")]
    saved = savings_within(offs(turns, {}, frozenset(), SLACK), 200 * HOUR, 300 * HOUR, 300 * HOUR)

    assert saved.whole.ms == 62 * HOUR


PEOPLE = Waits(restart_ms=600_000, usd_per_hour=Decimal(60))


def test_a_regretted_stop_costs_the_wait_of_whoever_needed_the_machine() -> None:
    """Stopped, wanted ten minutes later, ready after ten more: $1.67 saved, $10 waited, so $8.33 were lost."""
    turns = [turn(Verb.STOP, 14), turn(Verb.START, 14 + 1 / 6)]
    saved = savings_within(offs(turns, {}, frozenset(), SLACK), *ALWAYS, None, lambda _: PEOPLE)

    assert (saved.regretted, round(float(saved.whole.usd), 2)) == (1, -8.33)
    assert float(saved.by_owner["ann"].waiting_usd) == 10.0
    assert savings_within(offs(turns, {}, frozenset(), SLACK), *ALWAYS).whole.waiting_usd == 0


def test_time_in_which_a_cloud_has_no_place_for_the_start_is_a_wait_and_no_saving() -> None:
    """Stopped at 10, wanted at 12, capacity at 21: two hours saved, and a working day of eight hours waited."""
    turns = [turn(Verb.STOP, 10, usd="55.04"), replace(turn(Verb.START, 21), wanted=12 * HOUR)]
    saved = savings_within(offs(turns, {}, frozenset(), SLACK), *ALWAYS, None, lambda _: PEOPLE).whole

    assert (float(saved.gross_usd), float(saved.waiting_usd)) == (110.08, 480.0)


@given(
    begins=st.lists(st.integers(0, 100), min_size=1, max_size=8),
    lengths=st.lists(st.none() | st.integers(0, 50), min_size=8, max_size=8),
    cuts=st.sets(st.integers(1, 119), max_size=6),
    now=st.integers(0, 150),
)
def test_slices_of_time_add_up_and_none_is_beyond_now(
    begins: list[int], lengths: list[int | None], cuts: set[int], now: int
) -> None:
    """Savings of any slices of a stretch are those of the stretch, exactly, and by owner and pool as well."""
    result = offs([], {}, frozenset(), SLACK)
    known = tuple(
        Off(
            turn=turn(Verb.STOP, begin, node=f"i-{n}", usd="3.3333"),
            end=None if length is None else (begin + length) * HOUR,
        )
        for n, (begin, length) in enumerate(zip(begins, lengths, strict=False))
    )
    result = type(result)(known=known, endless=0)
    edges = [0, *sorted(cuts), 120]
    parts = [savings_within(result, a * HOUR, b * HOUR, now * HOUR) for a, b in pairwise(edges)]
    together = savings_within(result, 0, 120 * HOUR, now * HOUR)

    assert sum((part.whole.usd for part in parts), Fraction(0)) == together.whole.usd
    assert sum(part.whole.ms for part in parts) == together.whole.ms
    assert sum((each.usd for each in together.by_owner.values()), Fraction(0)) == together.whole.usd
    assert together.whole.ms <= len(known) * now * HOUR


@given(
    proved=st.lists(st.booleans(), min_size=1, max_size=8),
    until=st.integers(0, 60),
)
def test_a_stop_that_may_be_somebody_elses_is_told_apart_and_in_no_sum(proved: list[bool], until: int) -> None:
    """Its owner shut the machine down, or its cloud took it, a moment before gpuwatch's call."""
    turns = [replace(turn(Verb.STOP, n, node=f"i-{n}"), proved=each) for n, each in enumerate(proved)]
    found = offs(turns, {}, frozenset(each.key for each in turns), SLACK)
    saved = savings_within(found, 0, until * HOUR, 60 * HOUR)
    hours = [max(0, until - n) for n in range(len(proved))]

    assert saved.whole.ms == sum(each for each, ours in zip(hours, proved, strict=True) if ours) * HOUR
    assert saved.unproved_ms == sum(each for each, ours in zip(hours, proved, strict=True) if not ours) * HOUR
    assert saved.stops + saved.unproved == sum(each > 0 for each in hours)


def test_what_is_turned_off_after_an_unproved_stop_is_counted_from_then_on() -> None:
    """Somebody starts the machine, and gpuwatch stops it: the second stop is gpuwatch's."""
    first, second = replace(turn(Verb.STOP, 2), proved=False), turn(Verb.STOP, 8)
    found = offs([first, second], {"i-1": (ran(4, 8, 4.0),)}, frozenset({second.key}), SLACK)
    saved = savings_within(found, 0, 10 * HOUR, 10 * HOUR)

    assert (saved.whole.ms, saved.unproved_ms) == (2 * HOUR, 2 * HOUR)
