"""Worlds in which one part is not well: everything else is to be decided about as if that part had said nothing."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from gpuwatch.controller.round import Round
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import Node, NodeReport
from tests.support.builders.fleet import RULES, Desk, a_node

SICK, ROUNDS, SECONDS = "i-sick", 4, 300.0
NEIGHBOURS = {
    **{f"i-idle-{number}": State.IDLE for number in range(3)},
    **{f"i-busy-{number}": State.BUSY for number in range(3)},
    "i-parked": State.PARKED,
}
DEEP: list[Any] = []
for _ in range(10_000):
    DEEP = [DEEP]
ENDS_OF_TIME = (datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))), datetime(9999, 12, 31, 23, 59, tzinfo=UTC))
NASTY: tuple[Any, ...] = (
    *(2**53 + 1, 2**63, 2**64, -(2**63) - 1, 10**30, float("nan"), float("inf"), -1e308, -1, True, None),
    *("\x00", "\ud800", "x" * 1_000_000, "\u202e\x1b[2J", "", b"\xff", [], {}, DEEP, *ENDS_OF_TIME),
    *(datetime(2026, 3, 2, 10), timedelta(days=10**6), object()),  # noqa: DTZ001  without a zone, on purpose
)


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

    def rounds(self, is_other: Callable[[str], bool] = lambda node_id: node_id != SICK) -> list[object]:
        """What is decided and done about the neighbours, round by round."""
        return [others(self.desk.round(SECONDS), is_other) for _ in range(ROUNDS)]


def others(done: Round, is_other: Callable[[str], bool]) -> object:
    """The steps, the guard's answers and what was done, of all but the sick part, in the words that people read."""
    steps = [step for each in done.decisions for step in each.steps]
    told = [(step.node_id, step.verb, step.reason.sentence) for step in steps]
    told += [(each.use.id, each.verb, each.reason.sentence) for each in done.workloads]
    acts = [(act.review.step.node_id, act.review.step.verb, act.outcome.status) for act in done.acts]
    reviews = [(each.step.node_id, each.step.verb, each.allowed) for each in done.reviews]
    return (
        sorted(each for each in told if is_other(each[0])),
        sorted(review for review in reviews if is_other(review[0])),
        sorted(act for act in acts if is_other(act[0])),
        done.trouble,
    )
