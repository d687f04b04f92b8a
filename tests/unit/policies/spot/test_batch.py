"""Work with a deadline: what counts as done, and what is bought for the rest of it."""

from dataclasses import replace
from datetime import timedelta
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.measurement import BatchPast
from gpuwatch.policies.spot.batch import (
    BatchRules,
    Mode,
    Useful,
    job,
    left_seconds,
    mix_of,
    mode,
    moment,
    past,
    past_of,
    spare_seconds,
    wants_nodes,
    work_of_rows,
)
from gpuwatch.policies.spot.deadline import place
from gpuwatch.policies.spot.mix import Goal, Has, MixRules, goal
from tests.support.builders.fleet import NOW

HOUR = 3600.0
# Ten hours of work of two nodes in twenty: 9 h 45 min of slack.
RULES = BatchRules(work=10 * HOUR, since=NOW.isoformat(), by=(NOW + timedelta(hours=20)).isoformat(), nodes=2)


def row(hour: float, node_id: str = "i-1", *, seconds: float = HOUR) -> Useful:
    """One hour's row of a node."""
    begin = NOW + timedelta(hours=hour)
    return Useful(begin=begin, until=begin + timedelta(hours=1), node_id=node_id, seconds=seconds)


def found(hours: float, *, done: float = 0.0, spot: int = 0, firm: int = 0, young: bool = False) -> Mode:
    """What is bought after so many hours, with so many hours of the work done."""
    known = BatchPast(done_seconds=done * HOUR)
    return mode(job(RULES, known, NOW + timedelta(hours=hours), spot=spot, firm=firm, young=young))


@pytest.mark.parametrize(
    ("expected", "hours", "done", "spot", "firm"),
    [
        ("spot_only", 0.0, 0.0, 0, 0),
        ("spot_only", 4.8, 0.0, 0, 0),
        ("spot_first", 4.9, 0.0, 0, 0),
        ("spot_only", 4.9, 0.1, 1, 0),
        ("spot_first", 5.0, 1.0, 1, 1),
        ("on_demand", 9.6, 0.0, 0, 0),
        ("spot_first", 9.6, 0.0, 2, 0),
        ("on_demand", 9.8, 0.0, 2, 0),
        ("on_demand", 9.6, 0.0, 0, 2),
    ],
    ids=["begins", "waits", "half", "one is missing", "mixed", "no risk", "all spot", "a move left", "to the end"],
)
def test_what_is_bought(expected: Mode, hours: float, done: float, spot: int, firm: int) -> None:
    """By what is left of the slack, and by where the nodes are."""
    assert found(hours, done=done, spot=spot, firm=firm) == expected


def test_a_node_that_has_just_come_does_not_work_yet() -> None:
    """Its first minutes count as work that is left: on demand stays on demand sooner."""
    assert found(9.3, firm=2) == "spot_first"
    assert found(9.3, firm=2, young=True) == "on_demand"


@given(
    hours=st.floats(0, 19.9),
    done=st.floats(0, 9.9),
    spot=st.integers(0, 2),
    firm=st.integers(0, 2),
    young=st.booleans(),
)
def test_it_is_the_rule_of_one_job(hours: float, done: float, spot: int, firm: int, young: bool) -> None:
    """A pool buys on demand where `recommend spot` moves a job there, and spot wherever that takes it."""
    known = BatchPast(done_seconds=done * HOUR)
    one = job(RULES, known, NOW + timedelta(hours=hours), spot=spot, firm=firm, young=young)

    assert (mode(one) == "on_demand") == (place(one, spot=True) == "on_demand")
    assert (mode(one) == "spot_only") == (place(one, spot=False) == "nowhere")


@given(hours=st.floats(0, 19), known=st.floats(0, 9), less=st.floats(0, 9), spot=st.integers(0, 2))
def test_a_doubt_never_brings_on_demand_later(hours: float, known: float, less: float, spot: int) -> None:
    """Whoever knows of less that is done buys as surely as one who knows more, or more so."""
    order: list[Mode] = ["spot_only", "spot_first", "on_demand"]

    doubtful = found(hours, done=max(0.0, known - less), spot=spot)

    assert order.index(doubtful) >= order.index(found(hours, done=known, spot=spot))


@given(
    hours=st.floats(0, 19.9),
    done=st.floats(0, 9.7),
    to_come=st.floats(0, 900),
    spot=st.integers(0, 2),
    firm=st.integers(0, 2),
    young=st.booleans(),
)
def test_without_time_for_another_start_on_demand_is_bought(
    hours: float, done: float, to_come: float, spot: int, firm: int, young: bool
) -> None:
    """Wherever its nodes are: who is warned of the deadline has nothing to switch on."""
    known, at = BatchPast(done_seconds=done * HOUR, start_seconds=to_come), NOW + timedelta(hours=hours)
    spare = spare_seconds(RULES, known, at)

    assert spare is not None
    assert spare >= 0 or mode(job(RULES, known, at, spot=spot, firm=firm, young=young)) == "on_demand"


@pytest.mark.parametrize(
    ("hours", "done", "expected"),
    [(-1, 0, None), (0, 0, 9.75 * HOUR), (5, 4, 8.75 * HOUR), (12, 2, -900.0), (21, 9, -2.25 * HOUR), (5, 10, None)],
    ids=["not begun", "begins", "on its way", "just late", "over", "done"],
)
def test_the_time_to_spare_is_without_another_start(hours: float, done: float, expected: float | None) -> None:
    """The time until the deadline, less the work that is left and `restart`; none without work that is left."""
    assert spare_seconds(RULES, BatchPast(done_seconds=done * HOUR), NOW + timedelta(hours=hours)) == expected


@pytest.mark.parametrize(
    ("mix", "has", "expected"),
    [
        ("spot_only", Has(spot_working=1, spot_coming=0, on_demand=0), Goal(spot_missing=1, on_demand=0)),
        (
            "spot_only",
            Has(spot_working=0, spot_coming=0, on_demand=0, missing_seconds=inf),
            Goal(spot_missing=2, on_demand=0),
        ),
        ("spot_first", Has(spot_working=1, spot_coming=0, on_demand=0), Goal(spot_missing=1, on_demand=1)),
        ("on_demand", Has(spot_working=1, spot_coming=0, on_demand=0), Goal(spot_missing=0, on_demand=2)),
    ],
    ids=["waits", "waits however long", "falls back", "no more spot"],
)
def test_what_a_mode_makes_of_two_nodes(mix: Mode, has: Has, expected: Goal) -> None:
    """Without spot nothing comes, or on demand at once; to the end only on demand."""
    assert goal(2, has, mix_of(MixRules(fallback_after=600.0), mix)) == expected


def test_done_is_useful_time_by_the_work_of_all_nodes() -> None:
    """An hour of one of two nodes is half an hour of the work; nothing counts from before the begin."""
    rows = [row(-1), row(0), row(1), row(1, "i-2", seconds=HOUR / 2)]

    assert past(rows, RULES, {"i-1", "i-2"}, NOW).done_seconds == 1.25 * HOUR


def test_a_node_that_is_gone_takes_work_back() -> None:
    """From all nodes, or from its own share alone; never more than there was."""
    rows = [row(0), row(1), row(0, "i-2")]

    assert past(rows, RULES, {"i-2"}, NOW) == BatchPast(done_seconds=1.5 * HOUR - 900, losses=1)
    assert past(rows, replace(RULES, together=False), {"i-2"}, NOW).done_seconds == 1.5 * HOUR - 450
    assert past(rows, RULES, set(), NOW).done_seconds == 1.5 * HOUR - 1800
    assert past([row(0, seconds=60.0)], RULES, set(), NOW).done_seconds == 0


def test_nodes_that_go_at_once_take_the_same_work_back() -> None:
    """Sixteen losses of an hour are no more than that hour and one restart."""
    many, rules = [f"i-{each}" for each in range(16)], replace(RULES, nodes=16)
    rows = [row(hour, name) for hour in (0, 1, 2) for name in many]

    assert past(rows, rules, set(), NOW) == BatchPast(done_seconds=2 * HOUR - 900, losses=16, start_seconds=900.0)
    assert past(rows, replace(rules, together=False), set(), NOW).done_seconds == 3 * HOUR - 900


def test_what_is_done_stays_done() -> None:
    """Nodes that are removed afterwards, or end themselves with their work, bring none back."""
    rows = [row(hour, name) for hour in range(10) for name in ("i-1", "i-2")]

    assert past(rows, RULES, set(), NOW) == BatchPast(done_seconds=10 * HOUR, line_seconds=None)


def test_a_node_that_went_before_the_end_takes_work_back_all_the_same() -> None:
    """In the last hour the others worked for longer than it: it was lost, and did not end with its work."""
    rows = [row(hour, name) for hour in range(9) for name in ("i-1", "i-2")]
    rows += [row(9, "i-1"), row(9, "i-2", seconds=600.0), row(9, "i-3", seconds=HOUR - 600.0)]

    assert past(rows, RULES, {"i-1", "i-3"}, NOW) == BatchPast(done_seconds=10 * HOUR - 900, losses=1)


@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 4), st.floats(0, HOUR)), max_size=30),
    st.sets(st.integers(0, 4)),
    st.integers(0, 4),
)
def test_losses_and_gaps_never_add_work(rows: list[tuple[int, int, float]], here: set[int], lost: int) -> None:
    """Less is done with a node fewer there, and with an hour fewer metered."""
    all_ = [row(hour, f"i-{name}", seconds=seconds) for hour, name, seconds in rows]
    names = {f"i-{each}" for each in here}
    done = past(all_, RULES, names, NOW).done_seconds

    assert 0 <= done <= RULES.work
    assert past(all_, RULES, names - {f"i-{lost}"}, NOW).done_seconds <= done
    assert past(
        [each for each in all_ if each.begin != NOW], RULES, {row.node_id for row in all_}, NOW
    ).done_seconds <= (past(all_, RULES, {row.node_id for row in all_}, NOW).done_seconds)


@given(
    seconds=st.lists(st.tuples(st.integers(0, 12), st.sampled_from(["i-1", "i-2", "i-3"]), st.floats(0, HOUR))),
    cut=st.integers(0, 13),
    here=st.sets(st.sampled_from(["i-1", "i-2", "i-3"])),
    together=st.booleans(),
)
def test_rows_that_end_later_may_be_added_later(
    seconds: list[tuple[int, str, float]], cut: int, here: set[str], together: bool
) -> None:
    """What rows say up to an hour and from then on is what all of them say, to the last digit."""
    rules = replace(RULES, together=together)
    rows = [row(hour, name, seconds=each) for hour, name, each in seconds]
    first = work_of_rows([each for each in rows if each.until <= NOW + timedelta(hours=cut)], rules)
    then = work_of_rows([each for each in rows if each.until > NOW + timedelta(hours=cut)], rules)

    assert past_of(first.then(then), rules, here, NOW) == past(rows, rules, here, NOW)


def test_a_start_that_is_still_to_come_counts_once() -> None:
    """What the last loss took back holds it; once a node works that came since, it is work again."""
    lost = past([row(0), row(0, "i-2")], RULES, set(), NOW)
    works = past([row(0), row(0, "i-2"), row(1, "i-3")], RULES, {"i-3"}, NOW)

    assert (lost.done_seconds, lost.start_seconds) == (HOUR - 1800, 900.0)
    assert (works.done_seconds, works.start_seconds) == (1.5 * HOUR - 1800, 0.0)
    for nodes, young in ((0, False), (2, True)):
        one = job(RULES, lost, NOW + timedelta(hours=1), spot=nodes, firm=0, young=young)
        assert one.slack == 19 * HOUR - (9 * HOUR + 1800)  # two starts, one of them after each loss
    assert job(RULES, works, NOW, spot=2, firm=0, young=False).work == 8.5 * HOUR + 1800


@given(
    rows=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 4), st.floats(0, HOUR)), max_size=30),
    together=st.booleans(),
)
def test_no_more_of_a_loss_is_a_start_to_come_than_one_start(
    rows: list[tuple[int, int, float]], together: bool
) -> None:
    """And only while no node is there that has worked; so nothing counts as done that was never worked."""
    rules = replace(RULES, together=together)
    all_ = [row(hour, f"i-{name}", seconds=seconds) for hour, name, seconds in rows]
    names = {each.node_id for each in all_}
    gone = past(all_, rules, set(), NOW)

    assert 0 <= gone.start_seconds <= rules.restart
    assert gone.done_seconds + gone.start_seconds <= sum(each.seconds for each in all_) / rules.nodes + 1e-6
    assert all(past(all_, rules, {name}, NOW).start_seconds == 0 for name in names)


def test_the_line_begins_where_half_of_the_slack_was_spent() -> None:
    """By the hours' rows, so that a restart changes nothing; in a wait it was spent before the next hour of work."""
    rows = [row(hour, name) for hour in (0, 1, 9) for name in ("i-1", "i-2")]

    assert past(rows[:4], RULES, {"i-1", "i-2"}, NOW + timedelta(hours=2)).line_seconds is None
    assert past(rows, RULES, {"i-1", "i-2"}, NOW + timedelta(hours=10)).line_seconds == 8 * HOUR


def test_what_losses_take_back_begins_the_line_as_well() -> None:
    """Half of the slack may be spent by losses: who keeps to the line from there on waits for spot again."""
    many = [row(hour, f"i-{hour}", seconds=2 * HOUR) for hour in range(8)]
    lost = past(many, RULES, {"i-7"}, NOW + timedelta(hours=8))

    assert lost.line_seconds is None
    slow = replace(RULES, restart=2400.0)
    line = past(many, slow, {"i-7"}, NOW + timedelta(hours=8)).line_seconds
    assert line is not None
    ahead = BatchPast(done_seconds=slow.work - line / 4, line_seconds=line)
    still = job(
        slow, ahead, moment(slow.by) - timedelta(seconds=line / 4 + slow.slack / 2), spot=0, firm=0, young=False
    )
    assert mode(still) == "spot_only"
    assert mode(replace(still, line_work=None)) == "spot_first"


def test_nodes_are_wanted_until_the_work_is_done_or_its_time_is_over() -> None:
    """And not before it begins."""
    none, all_ = BatchPast(), BatchPast(done_seconds=11 * HOUR)

    assert left_seconds(RULES, all_) == 0
    assert [wants_nodes(RULES, none, NOW + timedelta(hours=each)) for each in (-1, 0, 19, 20)] == [
        False,
        True,
        True,
        False,
    ]
    assert not wants_nodes(RULES, all_, NOW)


@pytest.mark.parametrize("text", ["", None, "tomorrow", "2026-11-04T08:00:00"])
def test_a_time_names_its_offset(text: str | None) -> None:
    """The controller's own zone is not guessed."""
    with pytest.raises(ValueError, match=r"isoformat|offset"):
        moment(text)
