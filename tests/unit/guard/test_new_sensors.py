"""P25, slowly: machines at work that read idle one after another, since what reads them is new."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.guard.sensors import count_machines, find_unproven, moved_record, with_round
from gpuwatch.model.activity import State
from gpuwatch.model.decision import LedgerView
from gpuwatch.model.fleet import Fleet, Node, NodeReport, NodeState
from gpuwatch.model.sensors import SensorRecord, Unproven
from tests.support.builders.fleet import NOW, a_node, a_verdict

DAY = timedelta(days=1)
BUSY, IDLE, UNKNOWN = State.BUSY, State.IDLE, State.UNKNOWN


def machine(name: str, state: State = BUSY, driver: str | None = "570", agent: str = "1.8", **other: object) -> Node:
    """A machine that was started before all that happens here."""
    verdict = replace(a_verdict(name, state), driver_version=driver, agent_version=agent)
    node = a_node(name, image="v41", launched_at=NOW - 30 * DAY, signal=NodeReport(verdict=verdict))
    return replace(node, **other)  # type: ignore[arg-type]


def machines(count: int, state: State = BUSY, first: int = 0, **other: object) -> list[Node]:
    """So many of them."""
    return [machine(f"i-{first + number}", state, **other) for number in range(count)]  # type: ignore[arg-type]


class Rounds:
    """The record of a controller that makes rounds; `look` says what is unproven then."""

    def __init__(self, ratio: float = 0.5) -> None:
        """Nothing was seen yet."""
        self.record: SensorRecord | None = None
        self.now, self.ratio = NOW, ratio

    def look(
        self, nodes: Sequence[Node], later: timedelta = timedelta(minutes=1), **ledger: object
    ) -> tuple[Unproven, ...]:
        """Make a round with these machines, so much later."""
        self.now += later
        fleet = Fleet(observed_at=self.now, nodes=tuple(nodes))
        counts = count_machines(fleet)
        self.record = with_round(self.record, counts, LedgerView(**ledger), self.now)  # type: ignore[arg-type]
        return find_unproven(self.record, fleet, counts, self.ratio)

    def frozen(self, nodes: Sequence[Node], later: timedelta = timedelta(minutes=1), **ledger: object) -> list[str]:
        """Which of these machines are suspected."""
        found = self.look(nodes, later, **ledger)
        return [node.id for node in nodes if any(node.pool in each.pools and each.is_about(node) for each in found)]


def worked(nodes: Sequence[Node], days: int = 3) -> Rounds:
    """Rounds that have seen these machines for days."""
    rounds = Rounds()
    for _ in range(days):
        rounds.look(nodes, DAY)
    return rounds


NEW = st.sampled_from(["driver", "agent", "image"])


def changed(node: Node, of: str, value: str = "new", state: State = IDLE) -> Node:
    """The same machine with something new."""
    verdict = a_verdict(node.id, state)
    before = node.verdict
    assert before is not None
    fields = {"driver": before.driver_version, "agent": before.agent_version} | {of: value}
    verdict = replace(verdict, driver_version=fields["driver"], agent_version=str(fields["agent"]))
    return replace(node, signal=NodeReport(verdict=verdict), image=value if of == "image" else node.image)


@given(
    of=NEW,
    order=st.permutations(range(8)),
    paces=st.lists(st.integers(1, 8 * 60), min_size=8, max_size=8),
    pools=st.lists(st.integers(0, 4), min_size=8, max_size=8),
)
def test_in_any_order_and_pace_machines_that_read_idle_since_something_is_new_stay(
    of: str, order: list[int], paces: list[int], pools: list[int]
) -> None:
    """P25: from one an hour to all at once, in any pools: none of those that changed may go, till the last has."""
    nodes = [replace(node, pool=f"p{pool}") for node, pool in zip(machines(8), pools, strict=True)]
    rounds = worked(nodes)
    for place, minutes in zip(order, paces, strict=True):
        nodes[place] = changed(nodes[place], of)
        frozen = rounds.frozen(nodes, timedelta(minutes=minutes))
        new = [node.id for node in nodes if node.activity.state is IDLE]
        assert frozen == new
    assert len(rounds.frozen(nodes, DAY - timedelta(minutes=1))) == 8


@given(of=NEW, count=st.integers(1, 8), hours=st.lists(st.integers(1, 23), min_size=6, max_size=20))
def test_an_honestly_idle_fleet_is_found_a_day_after_the_last_machine_got_what_is_new(
    of: str, count: int, hours: list[int]
) -> None:
    """Liveness: whoever rests at night and gets a driver then is stopped in the end."""
    nodes = machines(count)
    rounds = worked(nodes)
    new = [changed(node, of) for node in nodes]
    changed_at = rounds.now + timedelta(minutes=1)
    rounds.look(new)
    for each in hours:
        frozen = rounds.frozen(new, timedelta(hours=each))
        assert len(frozen) == (count if rounds.now < changed_at + DAY else 0)


@given(of=NEW, proved=st.integers(0, 10))
def test_half_as_many_at_work_as_before_prove_what_is_new(of: str, proved: int) -> None:
    """Eight of ten worked before: four of ten at one time show that the sensor works, and fewer do not."""
    before = [*machines(8), *machines(2, IDLE, first=8)]
    rounds = worked(before)
    after = [changed(node, of, state=BUSY if place < proved else IDLE) for place, node in enumerate(before)]
    assert len(rounds.look(after)) == 1  # one round may still show what they did before
    found = rounds.look(after)

    assert [(each.busy, each.needed, each.nodes) for each in found] == ([] if proved >= 4 else [(proved, 4, 10)])
    assert rounds.frozen([changed(node, of) for node in before]) == ([] if proved >= 4 else [n.id for n in before])


def test_sixty_machines_over_thirty_five_minutes_are_frozen_from_the_first() -> None:
    """Twelve pools of five, and one driver that reads zero comes to all; fifty of them work."""
    nodes = [replace(node, pool=f"p{place % 12}") for place, node in enumerate(machines(60))]
    rounds = worked(nodes)
    for place in range(60):
        nodes[place] = changed(nodes[place], "driver")
        assert len(rounds.frozen(nodes, timedelta(seconds=35))) == place + 1
    [found] = rounds.look(nodes)
    assert (found.words, found.before, found.nodes, len(found.pools)) == ("the driver new", "570", 60, 12)


def test_five_machines_an_hour_with_a_blind_agent_are_frozen_and_the_others_are_not() -> None:
    """Of the old ones a fifth is idle, and may go all the time."""
    nodes = [*machines(96), *machines(24, IDLE, first=96)]
    rounds = worked(nodes)
    for place in range(0, 120, 5):
        nodes[place : place + 5] = [changed(node, "agent") for node in nodes[place : place + 5]]
        assert rounds.frozen(nodes, timedelta(hours=1)) == [node.id for node in nodes[: place + 5]]


def test_a_blind_agent_that_still_sees_a_few_machines_is_no_proof() -> None:
    """It cannot see containers; one machine in five has none."""
    nodes = machines(50)
    rounds = worked(nodes)
    for place in range(0, 50, 5):
        nodes[place] = changed(nodes[place], "agent", state=BUSY)
        nodes[place + 1 : place + 5] = [changed(node, "agent") for node in nodes[place + 1 : place + 5]]
        assert set(rounds.frozen(nodes, timedelta(hours=1))) >= {f"i-{place + 1}", "i-1"}


def test_a_canary_at_work_frees_nobody_elsewhere_and_one_at_rest_is_not_believed() -> None:
    """One machine has the new driver for a day; then all get it."""
    nodes = machines(20)
    rounds = worked(nodes)
    nodes[0] = changed(nodes[0], "driver")
    assert rounds.frozen(nodes) == ["i-0"]
    nodes[0] = changed(nodes[0], "driver", state=BUSY)
    assert rounds.frozen(nodes, DAY) == []
    nodes = [changed(node, "driver") for node in nodes]
    assert len(rounds.frozen(nodes, DAY)) == 20


def test_one_type_that_a_driver_breaks_is_found_beside_others_that_work_with_it() -> None:
    """The same pool has both types."""
    old, new = machines(5), [replace(node, instance_type="p5.48xlarge") for node in machines(5, first=5)]
    rounds = worked([*old, *new])
    after = [*(changed(node, "driver", state=BUSY) for node in old), *(changed(node, "driver") for node in new)]

    assert len(rounds.frozen(after)) == 10
    assert rounds.frozen(after) == [node.id for node in new]


def test_machines_in_new_places_with_a_new_image_are_compared_with_those_of_their_pool() -> None:
    """Each has an id of its own, and nobody has seen it before."""
    rounds = worked(machines(6))
    fresh = [changed(node, "image") for node in machines(6, first=100)]

    assert len(rounds.frozen([*machines(3), *fresh[:3]])) == 3
    assert len(rounds.frozen(fresh)) == 6


def test_a_pool_whose_machines_are_new_each_day_is_not_suspected_for_that() -> None:
    """Spot: new machines, the same image, driver and agent."""
    rounds = worked(machines(6))
    for day in range(1, 9):
        fresh = [replace(node, launched_at=rounds.now + DAY) for node in machines(6, IDLE, first=day * 100)]
        assert rounds.frozen(fresh, DAY) == []


def test_what_worked_before_is_proven_after_a_way_back() -> None:
    """The new driver is taken off again, and nobody has to work to show that the old one is good."""
    nodes = machines(4)
    rounds = worked(nodes)
    rounds.look([changed(node, "driver") for node in nodes])

    assert rounds.frozen([changed(node, "driver", "570") for node in nodes], timedelta(hours=3)) == []


def test_two_changes_at_once_are_both_named() -> None:
    """Nobody knows which of them it is."""
    nodes = machines(4)
    rounds = worked(nodes)
    [found] = rounds.look([changed(changed(node, "driver"), "agent") for node in nodes])

    assert found.words == "the agent new, the driver new"


@pytest.mark.parametrize("before", [IDLE, State.PARKED, UNKNOWN])
def test_a_pool_that_never_worked_is_not_suspected(before: State) -> None:
    """An idle fleet stays what it is, whatever driver it gets."""
    nodes = machines(6, before)
    rounds = worked(nodes)

    assert rounds.frozen([changed(node, "driver") for node in nodes]) == []


def test_a_new_pool_is_compared_with_the_fleet() -> None:
    """Blue and green: the work moves to a pool with another name, and its image is new."""
    nodes = machines(6)
    rounds = worked(nodes)
    green = [replace(changed(node, "image"), pool="green") for node in machines(6, first=10)]
    same = [replace(node, pool="more") for node in machines(2, IDLE, first=20)]

    assert rounds.frozen([*nodes, *green, *same]) == [node.id for node in green]


def test_a_pool_that_rested_for_more_than_a_week_is_not_suspected() -> None:
    """What it did before says nothing of now."""
    nodes = machines(6)
    rounds = worked(nodes)
    for _ in range(9):
        rounds.look(machines(6, IDLE), DAY)

    assert rounds.frozen([changed(node, "driver") for node in nodes]) == []


def test_a_ledger_without_a_record_suspects_nobody_and_a_roll_out_that_has_begun_by_then_is_found() -> None:
    """A controller of this version finds a fleet in the midst of a roll-out."""
    nodes = [*machines(18), *(changed(node, "agent") for node in machines(2, first=18))]
    rounds = Rounds()
    assert rounds.frozen(nodes) == []
    assert rounds.frozen(nodes, 2 * DAY) == []
    nodes[17] = changed(nodes[17], "agent")
    assert rounds.frozen(nodes) == ["i-17", "i-18", "i-19"]


def test_unknown_machines_prove_nothing_and_a_driver_that_is_not_known_is_no_change() -> None:
    """After its reboot a machine is in doubt; and an older agent does not say its driver."""
    nodes = machines(4)
    rounds = worked(nodes)
    assert rounds.frozen([changed(node, "driver", state=UNKNOWN) for node in nodes]) == [node.id for node in nodes]
    assert rounds.frozen(machines(4, IDLE, driver=None)) == []


def test_somebody_at_a_terminal_does_not_prove_the_sensor_of_gpus() -> None:
    """Their GPUs worked before; a person who looks what is wrong makes a machine busy."""
    nodes = machines(4)
    rounds = worked(nodes)
    new = [changed(node, "driver", state=BUSY) for node in nodes]
    people = []
    for node in new:
        verdict = node.verdict
        assert verdict is not None
        gpus = tuple(replace(gpu, activity=replace(gpu.activity, state=IDLE)) for gpu in verdict.gpus)
        people.append(replace(node, signal=NodeReport(verdict=replace(verdict, gpus=gpus))))

    assert len(rounds.frozen(people)) == 4
    assert rounds.frozen(new) == []


def test_an_acknowledgement_covers_what_was_there_and_not_who_comes_later() -> None:
    """As of a sudden mass idleness."""
    nodes = [*machines(3), *(replace(node, pool="other") for node in machines(3, first=3))]
    rounds = worked(nodes)
    new = [changed(node, "driver") for node in nodes]
    rounds.look([*new[:2], nodes[2], *new[3:]])
    at = rounds.now
    assert rounds.frozen([*new[:2], nodes[2], *new[3:]], acknowledged=(("default", at),)) == ["i-3", "i-4", "i-5"]
    assert rounds.frozen(new, timedelta(hours=2)) == ["i-0", "i-1", "i-2", "i-3", "i-4", "i-5"]
    assert rounds.frozen(new, acknowledged=((None, rounds.now),)) == []
    assert rounds.frozen(new, timedelta(hours=2)) == []


def test_machines_that_are_started_on_the_next_working_day_are_suspected_for_another_day() -> None:
    """They rested over the weekend, and the day after their driver came was over."""
    nodes = machines(5)
    rounds = worked(nodes)
    rounds.look([changed(node, "driver") for node in nodes])
    stopped = [replace(changed(node, "driver"), state=NodeState.STOPPED) for node in nodes]
    rounds.look(stopped, 2 * DAY)
    monday = rounds.now + timedelta(hours=12)
    started = [replace(changed(node, "driver"), launched_at=monday) for node in nodes[:3]]
    here = [changed(node, "driver") for node in nodes[3:]]

    assert len(rounds.frozen([*started, *here], timedelta(hours=13))) == 5
    assert rounds.frozen([*started, *here], DAY) == []


def test_starts_day_after_day_keep_a_fleet_frozen_for_a_week_and_no_longer() -> None:
    """A schedule starts machines each morning, on which nobody works any more."""
    nodes = machines(2)
    rounds = worked(nodes)
    frozen = []
    for day in range(12):
        new = [replace(changed(node, "driver"), launched_at=rounds.now + timedelta(hours=23)) for node in nodes]
        frozen.append(bool(rounds.frozen([*new, *machines(1, first=9)], DAY if day else timedelta(hours=24))))

    assert frozen == [True] * 7 + [False] * 5


def test_machines_with_images_of_their_own_are_not_suspected_for_their_images() -> None:
    """Each is made from a snapshot of its owner's; the image is nothing that they have in common."""
    own = [replace(node, image=f"snapshot-{place}") for place, node in enumerate(machines(6))]
    rounds = worked(own)

    assert rounds.frozen([*own, machine("i-9", IDLE, image="snapshot-9")]) == []


@given(
    words=st.lists(
        st.tuples(st.sampled_from([BUSY, IDLE]), st.text(min_size=1, max_size=3), st.text(max_size=2)),
        min_size=1,
        max_size=60,
    )
)
def test_whatever_one_agent_says_of_itself_nobody_else_is_frozen_or_freed(
    words: list[tuple[State, str, str]],
) -> None:
    """P22: a liar names a new version in each round; the others' wave stays suspected, and no longer than without."""
    nodes = machines(12)
    rounds = worked(nodes)
    new = [changed(node, "driver") for node in nodes]
    for place, (state, driver, agent) in enumerate(words):
        liar = machine("i-liar", state, driver, agent)
        assert not set(rounds.frozen([*nodes, liar])) & {node.id for node in nodes}
        if place == len(words) - 1:
            assert set(rounds.frozen([*new, liar])) >= {node.id for node in new}
            for number in range(30):
                liar = machine("i-liar", IDLE, "new", f"1.{number}")
                frozen = set(rounds.frozen([*new, liar], timedelta(hours=1))) - {"i-liar"}
                assert number in range(22, 25) or len(frozen) == (12 if number < 22 else 0)
    assert rounds.record is not None
    assert len(rounds.record.uses) <= 50 + 6


def test_the_record_has_a_line_for_what_differs_and_not_for_each_machine() -> None:
    """A large fleet costs as much as a small one."""
    rounds = worked(machines(500))
    assert rounds.record is not None
    assert [use.of for use in rounds.record.uses] == ["agent", "driver", "image"]


def test_what_is_gone_for_a_week_is_forgotten() -> None:
    """So the record does not grow with the years."""
    rounds = Rounds()
    for number in range(40):
        rounds.look(machines(2, image=f"v{number}"), DAY)
    assert rounds.record is not None
    assert len(rounds.record.uses) <= 2 + 8


def test_moving_the_record_keeps_every_age() -> None:
    """A clock that was set changes no wait."""
    rounds = worked(machines(2))
    rounds.look([changed(node, "agent") for node in machines(2)])
    before = rounds.record
    assert before is not None
    for by in (DAY, -DAY):
        moved = moved_record(before, by)
        assert [moved.at - use.grown_at for use in moved.uses] == [before.at - use.grown_at for use in before.uses]
