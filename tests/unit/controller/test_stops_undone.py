"""A stop that somebody undoes twice within a day, without any use in between, is a disagreement.

| who | what happens | what should | who is hurt otherwise |
| --- | --- | --- | --- |
| an instance scheduler | starts it at once, or hours later | left alone after two | its owner: 30 mails a day |
| the same | minutes of work at each boot | the same | the same |
| a person | works in the morning, and again from two o'clock | stopped each time | whoever pays for idle hours |
| the same | comes back within an hour of the stop | kept over lunch from the next day on | the person, each noon |
| a schedule | starts it once a day; nobody works | stopped once a day | whoever pays |
| gpuwatch itself | starts it for a window | nothing is undone | whoever pays |
| the cloud, or its owner | had stopped it before gpuwatch | nothing is undone | nobody |
| a group's policy, Terraform | sets the size again; new members idle | left alone after two | 71 ends a day |
| the same under a real load | new members work | ended once they are idle | whoever pays |
| the owner, at last | uses it in its rest | stopped once it is idle | whoever pays |
| a new process, a clock set back | in the midst of a rest | the rest goes on | its owner: all begins again |
"""

from dataclasses import replace

import pytest

from gpuwatch.controller.context import Memory
from gpuwatch.controller.node_row import node_rows
from gpuwatch.controller.round import Round, decide, explain_step
from gpuwatch.guard import Limits
from gpuwatch.guard.obstacles import Obstacle
from gpuwatch.model.activity import State
from gpuwatch.model.decision import reason_with_refusals
from gpuwatch.model.fleet import NodeGroup
from gpuwatch.money.blocked.sorting import held_back
from gpuwatch.policies import PoolRules
from gpuwatch.policies.schedule import Window
from tests.support.builders.fleet import RULES, Desk, a_node
from tests.support.builders.light_desk import LightDesk
from tests.support.fakes.neighbours import Days, Neighbour, count_days
from tests.support.nightly import by_night

MINUTES = 10  # from one round to the next
A_DAY = 24 * 60 // MINUTES
ENDS_MEMBERS = replace(RULES, idle=replace(RULES.idle, action="terminate"))


def a_desk(rules: PoolRules = RULES, **neighbour: object) -> tuple[LightDesk, Neighbour]:
    """One machine that has been idle for hours, the default limits, and a neighbour."""
    desk = LightDesk(limits=Limits(), rules=rules, interval=60.0 * MINUTES)
    cloud = desk.fleet = Neighbour(clock=desk.clock, **neighbour)  # type: ignore[arg-type]
    cloud.put(a_node("i-1"))
    return desk, cloud


def a_group_desk(size: int = 3, **neighbour: object) -> tuple[LightDesk, Neighbour]:
    """A group of idle members whose size somebody sets again, in a pool that ends idle members."""
    desk, cloud = a_desk(ENDS_MEMBERS, **neighbour)
    del cloud.nodes_["i-1"]
    ids = tuple(f"m-{number}" for number in range(size))
    for each in ids:
        cloud.put(a_node(each, group="asg"))
    cloud.groups_["asg"] = NodeGroup(
        id="asg",
        name="asg",
        pool="default",
        min_size=0,
        max_size=9,
        desired=size,
        region="us-east-1",
        zones=("us-east-1a",),
        enrolled=True,
        node_ids=ids,
    )
    cloud.sizes["asg"] = size
    return desk, cloud


def play(desk: LightDesk, days: int) -> Days:
    """What was done on each day."""

    def rounds() -> tuple[str, ...]:
        done = desk.round(60.0 * MINUTES)
        return (*(each.review.step.verb for each in done.acts), *(each.verb for each in done.records))

    return count_days(rounds, days, A_DAY)


def said(done: Round) -> str:
    """What the round says of its nodes."""
    steps = [step.reason.sentence for each in done.decisions for step in each.steps]
    return " ".join([*steps, *(answer.sentence for each in done.reviews for answer in each.refusals)])


@pytest.mark.parametrize(
    ("minutes", "works", "tells"),
    [(120.0, 0.0, True), (5.0, 10.0, False), *by_night((5.0, 0.0, True), (0.0, 0.0, False))],
)
def test_a_machine_that_somebody_always_starts_again_is_left_alone_for_a_growing_time(
    minutes: float, works: float, *, tells: bool
) -> None:
    """Twice on the first day; then once after a day, two, four: its owner is told at each rest."""
    desk, _ = a_desk(minutes=minutes, works=works, tells_launches=tells)
    days = play(desk, 9)

    assert days.stops[0] == 2
    assert max(days.stops[1:]) <= 1
    assert sum(days.stops) <= 5
    assert sum(days.notices) <= 5
    assert sum(days.told) == sum(days.stops) - 1


LUNCH = ((8.0, 4.0), (13.0, 4.0))
LONG_LUNCH = ((8.0, 4.0), (14.0, 4.0))


@pytest.mark.parametrize("restarts", [True, *by_night((False,))])
def test_a_machine_that_is_used_in_between_is_stopped_each_time(*, restarts: bool) -> None:
    """Two weeks of work until noon and from two: stopped at noon and in the evening, with a new process each day."""
    desk, _ = a_desk(shifts={"i-1": LONG_LUNCH})
    stops = list[int]()
    for _ in range(14):
        stops += play(desk, 1).stops
        if restarts:
            desk.memory = Memory()
    assert stops[1:] == [2] * 13


@pytest.mark.parametrize("restarts", [True, *by_night((False,))])
def test_who_takes_a_stop_back_after_lunch_keeps_the_machine_over_lunch(*, restarts: bool) -> None:
    """Started again 20 minutes after the stop, each day: that was wrong, and is not done again for two weeks."""
    desk, _ = a_desk(shifts={"i-1": LUNCH})
    stops = list[int]()
    for _ in range(17):
        stops += play(desk, 1).stops
        if restarts:
            desk.memory = Memory()
    assert stops[0] == 2
    assert stops[1:14] == [1] * 13
    assert 2 in stops[14:], "what is two weeks old is forgotten"


def test_a_short_visit_each_hour_is_use_once_it_is_a_quarter_of_an_hour_in_all() -> None:
    """Whoever comes back for that long each time finds it stopped after each visit."""
    desk, _ = a_desk(minutes=70.0, works=30.0)
    assert play(desk, 2).stops[1] >= 9


def test_a_machine_that_a_schedule_starts_once_a_day_is_stopped_once_a_day() -> None:
    """Nobody works on it: its owner has one notice a day, and no bill for the other 23 hours."""
    desk, _ = a_desk(shifts={"i-1": ((9.0, 0.01),)})
    assert play(desk, 10).stops[1:] == (1,) * 9


@pytest.mark.parametrize("tells", [False, *by_night((True,))])
def test_a_new_process_goes_on_leaving_a_machine_alone(*, tells: bool) -> None:
    """The ledger is all that it knows; a restart each hour makes no stop more."""
    desk, _ = a_desk(minutes=5.0, tells_launches=tells)
    stops, told = 0, 0
    for _ in range(10 * 24):
        for _ in range(60 // MINUTES):
            done = desk.round(60.0 * MINUTES)
            stops += sum(each.review.step.verb == "stop" for each in done.acts)
            told += sum(each.verb == "left_alone" for each in done.records)
        desk.memory = Memory()
    assert stops <= 5
    assert told == stops - 1


def test_what_it_says_is_one_sentence_with_both_times() -> None:
    """In plan, status and page it is the reason for holding."""
    desk, _ = a_desk(minutes=5.0)
    play(desk, 1)
    words = said(desk.round())
    assert "Somebody started it again twice after gpuwatch had stopped it, at 2026-03-02 1" in words
    assert "leaves it alone until 2026-03-03 1" in words


def test_whoever_uses_it_in_its_rest_finds_it_stopped_after_that() -> None:
    """The disagreement is over: somebody needed it."""
    desk, cloud = a_desk(minutes=5.0)
    play(desk, 1)
    cloud.minutes = None
    cloud.show("i-1", State.BUSY)
    for _ in range(6):
        desk.round(60.0 * MINUTES)
    cloud.show("i-1", State.IDLE)
    assert sum(play(desk, 1).stops) == 1


def test_a_resumed_pool_is_tried_at_once() -> None:
    """Whoever has turned the scheduler off says so; also a process of later knows it."""
    desk, cloud = a_desk(minutes=5.0)
    play(desk, 1)
    cloud.minutes = None
    desk.light.resume("default", "somebody", desk.clock.now())
    desk.round(60.0 * MINUTES)
    desk.memory = Memory()
    assert sum(play(desk, 1).stops) == 1


def test_quiet_for_as_long_as_it_was_left_alone_begins_at_the_beginning() -> None:
    """The scheduler was off for three days: two stops again, and one day again."""
    desk, cloud = a_desk(minutes=5.0)
    assert play(desk, 1).stops == (2,)
    cloud.minutes = None
    assert sum(play(desk, 3).stops) == 1
    cloud.minutes = 5.0
    days = play(desk, 3)
    assert days.stops[0] == 2
    assert sum(days.stops) <= 4


def test_a_machine_in_disagreement_is_not_terminated() -> None:
    """It was stopped once more after its rest, and stays stopped: whoever started it twice wants its disks."""
    rules = replace(RULES, idle=replace(RULES.idle, terminate_after=7200.0))
    desk, cloud = a_desk(rules, minutes=5.0)
    play(desk, 1)
    cloud.minutes = None
    days = play(desk, 14)
    assert (sum(days.stops), sum(days.ends)) == (1, 0)
    assert "does not end it" in said(desk.round())
    assert sum(play(desk, 2).ends) == 1  # nobody has undone that stop for two weeks


def test_gpuwatchs_own_start_undoes_nothing() -> None:
    """A floor of a window starts what was stopped, twice a day, and nobody works."""
    windows = {name: Window(hours=hours, min_nodes=1) for name, hours in (("a", "01:00-02:00"), ("b", "05:00-06:00"))}
    desk, cloud = a_desk(replace(RULES, schedule=windows))
    days = play(desk, 4)
    assert days.stops[1:] == (2, 2, 2)
    assert sum(days.told) == 0
    assert cloud.started == []


@pytest.mark.parametrize(("size", "works"), [(1, 10.0), *by_night((3, 0.0))])
def test_a_group_that_somebody_always_enlarges_again_is_left_alone_for_a_growing_time(size: int, works: float) -> None:
    """Its members are ended twice on the first day, and then once after a day, two, four."""
    desk, _ = a_group_desk(size, works=works)
    days = play(desk, 9)
    assert days.ends[0] <= 2 * size
    assert sum(days.ends) <= 5 * size
    assert 2 <= sum(days.told) <= 4


def test_a_group_whose_new_members_work_loses_them_each_time_that_they_are_idle() -> None:
    """Its own policy follows a real load."""
    desk, _ = a_group_desk(1, works=60.0)
    days = play(desk, 3)
    assert min(days.ends[1:]) >= 8
    assert sum(days.told) == 0


def test_gpuwatchs_own_growth_of_a_group_undoes_nothing() -> None:
    """Its schedule wants two members twice a day."""
    windows = {name: Window(hours=hours, min_nodes=2) for name, hours in (("a", "01:00-02:00"), ("b", "05:00-06:00"))}
    desk, cloud = a_group_desk(2)
    desk.rules = replace(ENDS_MEMBERS, schedule=windows)
    cloud.sizes.clear()
    days = play(desk, 3)
    assert min(days.ends[1:]) == 4
    assert sum(days.told) == 0


def test_a_group_that_is_left_alone_says_so() -> None:
    """On each of its members."""
    desk, _ = a_group_desk(2)
    play(desk, 1)
    assert "made its group larger again twice after gpuwatch had ended members of it" in said(desk.round())


def test_a_clock_that_is_set_back_makes_no_stop_more() -> None:
    """It may be left alone for longer."""
    desk, _ = a_desk(minutes=5.0)
    play(desk, 1)
    desk.clock.jump(-30 * 3600.0)
    assert sum(play(desk, 1).stops) == 0


def test_a_recorded_round_is_judged_again_as_it_was() -> None:
    """All that left a machine alone is in the round; explain, blocked and status say the same of it."""
    desk = Desk(limits=Limits(), interval=60.0 * MINUTES)
    cloud = desk.fleet = Neighbour(clock=desk.clock, minutes=5.0)
    cloud.put(a_node("i-1"))
    for _ in range(3 * 60 // MINUTES):
        done = desk.round(60.0 * MINUTES)
    desk.memory = Memory()
    done = desk.round(60.0 * MINUTES)
    ((number, _),) = desk.ledger.whole_rounds(done.observation.now, done.observation.now)
    past = desk.ledger.round(number)
    step, review = explain_step(past.observation, past.decisions, past.observation.fleet.nodes[0], desk.rulebook)
    (row,) = node_rows(done, desk.rulebook)
    (held,) = held_back(done.observation, done.decisions, done.reviews, desk.rulebook)

    assert past.observation.undone == done.observation.undone != ()
    assert decide(past.observation, desk.rulebook)[1] == done.decisions
    assert step.reason.sentence.startswith("Somebody started it again twice")
    assert [answer.rule for answer in review.refusals if "Somebody" in answer.sentence] == ["left_alone"]
    assert (row.why, row.next) == (reason_with_refusals(step, ()), None)
    assert Obstacle.LEFT_ALONE in held.obstacles


def test_a_machine_that_is_started_once_a_day_for_nobody_is_stopped_each_time_and_told_on_the_third_day() -> None:
    """Whoever pays saves a day of idleness each time; its owner hears it once a week."""
    desk, cloud = a_desk()
    cloud.shifts["i-1"] = ((8.0, 0.0),)
    days = play(desk, 6)

    assert max(days.stops[1:]) == min(days.stops[1:]) == 1
    assert sum(days.told) == 1
