"""P22: whatever one agent, machine, group, tag, pod or measure says, all others are decided about as without it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.controller.observe.scrape import read_answer
from gpuwatch.controller.round import Round
from gpuwatch.model.activity import State, WorkOwner
from gpuwatch.model.cloud_notice import CloudNotice
from gpuwatch.model.fleet import Node, NodeGroup, NodeReport, NodeState
from gpuwatch.model.health import GpuHealth, Health
from tests.support.builders.fleet import LIVES, NOW, RULES, Desk, a_node, a_verdict
from tests.support.builders.last_busy import busy_last, cpu_evidence
from tests.support.fakes.scraped_agent import encoded

SICK, ROUNDS, SECONDS = "i-sick", 4, 300.0
NEIGHBOURS = {
    **{f"i-idle-{number}": State.IDLE for number in range(3)},
    **{f"i-busy-{number}": State.BUSY for number in range(3)},
    "i-parked": State.PARKED,
}
DEEP: list[Any] = []
for _ in range(10_000):
    DEEP = [DEEP]
WORD = encoded(busy_last(a_verdict("i-sick"), (cpu_evidence(), 9000.0)))
BODIES = (
    *(WORD.replace(b'"index":0', b'"index":' + number) for number in (b"9" * 400, b"1e400", b"-18446744073709551616")),
    *(
        WORD.replace(b'"schema":1', b'"x":' + depth + b',"schema":1')
        for depth in (b"[" * 10_000, b"[" * 9000 + b"]" * 9000)
    ),
    *(
        WORD.replace(b'"schema":1', more + b'"schema":1')
        for more in (b'"schema":1,"node_id":"i-busy-0",', b'"schema":2,')
    ),
    *(
        WORD.replace(b'"i-sick"', name)
        for name in (b'"i-idle-0"', b'"\\u0000"', b'"\\ud800"', b'"' + b"x" * 1_000_000 + b'"')
    ),
    *(WORD + WORD, b"", b"null", b"[]", b"\xff\xfe" + WORD, b"{" * 100_000),
)
ENDS_OF_TIME = (datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))), datetime(9999, 12, 31, 23, 59, tzinfo=UTC))
NASTY: tuple[Any, ...] = (
    *(2**53 + 1, 2**63, 2**64, -(2**63) - 1, 10**30, float("nan"), float("inf"), -1e308, -1, True, None),
    *("\x00", "\ud800", "x" * 1_000_000, "\u202e\x1b[2J", "", b"\xff", [], {}, DEEP, *ENDS_OF_TIME),
    *(datetime(2026, 3, 2, 10), timedelta(days=10**6), object()),  # noqa: DTZ001  without a zone, on purpose
)


def a_full_verdict() -> NodeReport:
    """A word of an agent with all that there is in one."""
    verdict = busy_last(a_verdict(SICK), (replace(cpu_evidence(), owner=WorkOwner(user="ann", pid=1)), 9000.0))
    notice = CloudNotice(kind="maintenance", action="reboot", deadline=NOW, seen_at=NOW, checkpoint_at=NOW)
    health = GpuHealth(state=Health.FAILING, since=NOW)
    gpus = tuple(replace(gpu, health=health) for gpu in verdict.gpus)
    return NodeReport(verdict=replace(verdict, gpus=gpus, cloud_notices=(notice,)), received_at=NOW)


def places(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every place of a value of dataclasses and tuples, its parts' and its own."""
    if path:
        yield path
    if is_dataclass(value):
        for each in fields(value):
            yield from places(getattr(value, each.name), (*path, each.name))
    elif isinstance(value, tuple):
        for number, one in enumerate(value):
            yield from places(one, (*path, number))


def spoiled(value: Any, path: tuple[str | int, ...], by: object) -> Any:  # noqa: ANN401  of any type
    """The value with another one in that place."""
    if not path:
        return by
    first, *rest = path
    if isinstance(first, int):
        return (*value[:first], spoiled(value[first], tuple(rest), by), *value[first + 1 :])
    return replace(value, **{first: spoiled(getattr(value, first), tuple(rest), by)})


@dataclass(slots=True)
class World:
    """Neighbours in one pool and in another, over a real ledger, and one machine that is not well."""

    desk: Desk

    @classmethod
    def with_sick(cls, node: Node | None, report: Callable[[Node], NodeReport] | None = None) -> "World":
        """A fleet with that machine; `report` is its agent."""
        desk = Desk(pools={"default": RULES, "training": RULES})
        for number, (name, state) in enumerate(NEIGHBOURS.items()):
            desk.fleet.put(a_node(name, state, pool="default" if number % 2 else "training"))
        if node is not None:
            desk.fleet.put(node)

        def answer(asked: Node) -> NodeReport:
            if asked.id == SICK and report is not None:
                return report(asked)
            now, verdict = desk.clock.now(), asked.signal.verdict
            return asked.signal if verdict is None else NodeReport(verdict=replace(verdict, at=now, age_seconds=0.5))

        desk.fleet.answer = answer
        return cls(desk)

    def rounds(self) -> list[object]:
        """What is decided and done about the neighbours, round by round."""
        return [others(self.desk.round(SECONDS)) for _ in range(ROUNDS)]


def others(done: Round) -> object:
    """The steps, the guard's answers and what was done, of all but the sick machine, in the words that people read."""
    steps = [step for each in done.decisions for step in each.steps if step.node_id != SICK]
    acts = [(act.review.step.node_id, act.review.step.verb, act.outcome.status) for act in done.acts]
    return (
        sorted((step.node_id, step.verb, step.reason.sentence) for step in steps),
        sorted((each.step.node_id, each.step.verb, each.allowed) for each in done.reviews if each.step.node_id != SICK),
        sorted(act for act in acts if act[0] != SICK),
        done.trouble,
    )


SILENT = World.with_sick(a_node(SICK), lambda _: NodeReport(failure="its agent does not answer")).rounds()


ALONE = World.with_sick(None).rounds()


def test_the_neighbours_are_noticed_and_stopped() -> None:
    """Or the comparisons below would compare nothing."""
    assert "i-idle-0" in str(SILENT[0])
    assert "'stop'" in str(SILENT) or "STOP" in str(SILENT)


@settings(max_examples=LIVES * 2)
@given(path=st.sampled_from(sorted(places(a_full_verdict()), key=str)), by=st.sampled_from(NASTY))
def test_anything_in_any_place_of_an_agents_word_changes_nothing_about_the_others(
    path: tuple[str | int, ...], by: object
) -> None:
    """Also past the door, where it could stand only by a mistake of ours: the round finds it, and goes on."""
    sick = spoiled(a_full_verdict(), path, by)

    assert World.with_sick(a_node(SICK), lambda _: sick).rounds() == SILENT


@settings(max_examples=LIVES)
@given(
    field=st.sampled_from([each.name for each in fields(Node) if each.name not in {"id", "signal"}]),
    by=st.sampled_from(NASTY),
)
def test_anything_that_a_cloud_says_of_one_machine_changes_nothing_about_the_others(field: str, by: Any) -> None:  # noqa: ANN401  of any type
    """A tag of it, too: the pool, the owner and the protection are tags."""
    mute = replace(a_node(SICK), signal=NodeReport(failure="silent"))
    world = World.with_sick(replace(mute, **{field: by}), lambda node: node.signal)
    alone = World.with_sick(replace(mute, state=NodeState.UNKNOWN), lambda node: node.signal)

    assert world.rounds() in (SILENT, alone.rounds(), ALONE)


@settings(max_examples=LIVES // 2 + 1)
@given(
    field=st.sampled_from([each.name for each in fields(NodeGroup) if each.name not in {"id", "pool"}]),
    by=st.sampled_from(NASTY),
)
def test_anything_that_a_cloud_says_of_one_group_changes_nothing_about_the_others(field: str, by: Any) -> None:  # noqa: ANN401  of any type
    """Of a pool of its own: a group is a part of its pool's size."""
    world = World.with_sick(None)
    group = NodeGroup(id="asg-1", name="asg-1", pool="groups", min_size=0, max_size=4, desired=0, region="eu-1")
    odd = replace(group, **{field: by})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(world.desk.fleet), "groups", lambda _: (odd,))

        assert world.rounds() == ALONE


@settings(max_examples=LIVES)
@given(body=st.binary(max_size=60) | st.sampled_from(BODIES) | st.integers(0, len(WORD)).map(lambda end: WORD[:end]))
def test_any_bytes_of_one_agent_change_nothing_about_the_others(body: bytes) -> None:
    """Through the door: not JSON, half of it, nested 10,000 deep, with a key twice, or an integer of 400 digits."""
    said = World.with_sick(a_node(SICK), lambda node: read_answer(body, node, NOW, 1e9))

    assert said.rounds() == SILENT


def test_a_part_that_could_not_be_judged_is_named_once_and_judged_again_when_it_is_well(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A log that says it every minute is read by nobody; a machine that is left alone for ever is paid for."""
    well: list[bool] = []
    good = a_full_verdict()
    bad = spoiled(good, ("verdict", "gpus", 0, "index"), 2**64)
    world = World.with_sick(a_node(SICK), lambda _: good if well else bad)
    world.rounds()
    named = [each for each in caplog.messages if SICK in each and "cannot be judged" in each]
    well.append(True)
    world.desk.round()

    assert len(named) == 1
    assert "serialize" in named[0]
    assert [each for each in caplog.messages if "looked for" in each]
    assert not any(world.desk.memory.sick.values())
