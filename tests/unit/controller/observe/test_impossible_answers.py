"""One agent's impossible words cost its own node alone: they reach no round, for rounds count and show all nodes."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from math import isfinite
from typing import Any

import msgspec
import pytest

from gpuwatch.controller.observe.scrape import read_answer
from gpuwatch.controller.observe.settings import PromqlSettings
from gpuwatch.controller.observe.verdicts import Moment, Target, agents_signal
from gpuwatch.model.activity import State
from gpuwatch.model.cloud_notice import CloudNotice
from gpuwatch.model.fleet import Node, NodeReport, NodeVerdict, PodVerdict
from gpuwatch.model.health import GpuHealth, Health
from tests.support.builders.fleet import NOW, Desk, a_node, a_verdict
from tests.support.builders.last_busy import busy_last, cpu_evidence
from tests.support.fakes.scraped_agent import encoded

IMPOSSIBLE_TIMES = ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2026-03-02T10:00:00")
# Beyond 53, 63 and 64 bits, beyond a double's whole numbers, endless, and of other types.
NASTY: tuple[Any, ...] = (
    2**53 + 1,
    2**63,
    2**64,
    -(2**63) - 1,
    10**400,
    1e300,
    -1e300,
    "\x00",
    "x" * 100_000,
    [],
    {},
    True,
    None,
)
Path = tuple[str | int, ...]


def a_full_verdict() -> NodeVerdict:
    """A verdict that has every time and every duration that there is."""
    verdict = busy_last(a_verdict(), (cpu_evidence(), 9000.0))
    health = GpuHealth(state=Health.FAILING, since=NOW)
    notice = CloudNotice(kind="maintenance", action="reboot", deadline=NOW, seen_at=NOW, checkpoint_at=NOW)
    return replace(
        verdict,
        gpus=tuple(replace(gpu, health=health) for gpu in verdict.gpus),
        cloud_notices=(notice,),
        pods=(PodVerdict(uid="u-1", name="team-a/notebook-0", activity=verdict.activity),),
    )


def leaves(value: Any, path: Path = ()) -> Iterator[Path]:  # noqa: ANN401  JSON
    """The places of a document's texts and numbers."""
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(each, (*path, key))
    else:
        yield path


def dataclasses_in(kind: Any) -> Iterator[msgspec.inspect.DataclassType]:  # noqa: ANN401  msgspec's types of types
    """A type's own dataclasses, however deep; each once for each way to it."""
    if isinstance(kind, msgspec.inspect.DataclassType):
        yield kind
        kind = tuple(field.type for field in kind.fields)
    for name in () if isinstance(kind, tuple) else ("types", "item_types", "item_type", "value_type"):
        inner = getattr(kind, name, ())
        yield from dataclasses_in(inner if isinstance(inner, tuple) else (inner,))
    for each in kind if isinstance(kind, tuple) else ():
        yield from dataclasses_in(each)


def numbers(value: Any) -> Iterator[float]:  # noqa: ANN401  JSON
    """The numbers of a document."""
    if isinstance(value, dict | list | tuple):
        for each in value.values() if isinstance(value, dict) else value:
            yield from numbers(each)
    elif isinstance(value, int | float):
        yield value


def spoiled(path: Path, value: object) -> bytes:
    """The full verdict with another value in one place."""
    document = json.loads(encoded(a_full_verdict()))
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return json.dumps(document).encode()


PLACES = tuple(leaves(json.loads(encoded(a_full_verdict()))))
TIME_NAMES = {"at", "since", "deadline", "seen_at", "checkpoint_at"}
TIMES = [path for path in PLACES if path[-1] in TIME_NAMES]
DURATIONS = [path for path in PLACES if path[-1] in {"age_seconds", "interval_seconds", "held_seconds", "ago_seconds"}]


def test_every_time_of_a_verdict_is_among_those_that_are_tried() -> None:
    """A time that a later version adds is found here, and is to be judged in `scrape._times`."""
    fields = [field for kind in dataclasses_in(msgspec.inspect.type_info(NodeVerdict)) for field in kind.fields]
    told = {field.name for field in fields if "DateTimeType" in str(field.type).partition("DataclassType")[0]}

    assert told == TIME_NAMES


@pytest.mark.parametrize("time", IMPOSSIBLE_TIMES)
@pytest.mark.parametrize("path", TIMES, ids=str)
def test_a_time_that_cannot_be_shown_in_utc_is_no_answer(path: Path, time: str) -> None:
    """It has no zone, or leaves the calendar: `OverflowError` in a round would be for all nodes."""
    failure = read_answer(spoiled(path, time), a_node(), NOW, 30.0).failure

    assert failure is not None
    assert "time of the answer" in failure


@pytest.mark.parametrize("seconds", [1e20, 1e308, -1.0])
@pytest.mark.parametrize("path", DURATIONS, ids=str)
def test_a_duration_that_no_machine_can_know_is_no_answer(path: Path, seconds: float) -> None:
    """Longer than a century, or below zero, of the node, its GPUs, its pods, or what was busy last."""
    failure = read_answer(spoiled(path, seconds), a_node(), NOW, 30.0).failure or ""

    assert "duration" in failure or f"{path[-1]}`" in failure  # the field's name, where no number is that large


def test_a_lying_agent_stops_no_round_for_the_others() -> None:
    """P19: with whatever its machine says, an idle neighbour gets its notice and is stopped."""
    desk = Desk()
    desk.fleet.put(a_node("i-liar"))
    desk.fleet.put(a_node("i-idle"))
    desk.fleet.put(a_node("i-busy", State.BUSY))
    desk.fleet.put(a_node("i-at-work", State.BUSY))
    path, time = ("gpus", 0, "health", "since"), IMPOSSIBLE_TIMES[0]
    lie = spoiled(path, time).replace(b'"i-1"', b'"i-liar"')

    def answer(node: Node) -> NodeReport:
        now, verdict = desk.clock.now(), node.signal.verdict
        if node.id == "i-liar" or verdict is None:
            return read_answer(lie, node, now, 1e9)
        return NodeReport(verdict=replace(verdict, at=now, age_seconds=0.5))

    desk.fleet.answer = answer
    for _ in range(20):
        desk.round()

    assert desk.fleet.stops() == ["i-idle"]


@pytest.mark.parametrize("path", PLACES, ids=str)
def test_what_is_believed_of_an_answer_can_be_written_down(path: Path) -> None:
    """P22: in each place of it stands what no machine says; the node is unknown, or the ledger takes it."""
    for value in NASTY:
        node = a_node()
        report = read_answer(spoiled(path, value), node, NOW, 30.0)
        seen = replace(node, signal=report)

        assert msgspec.msgpack.decode(msgspec.msgpack.encode(seen), type=Node) == seen
        assert all(isfinite(each) and abs(each) < 2**63 for each in numbers(msgspec.to_builtins(report)))


@pytest.mark.parametrize("seconds", [1e11, 1e20])
def test_an_idle_time_in_prometheus_that_no_machine_can_have_is_a_doubt(seconds: float) -> None:
    """A clock that was set back, or somebody who writes into Prometheus, makes the node unknown and ends no round."""
    at = (NOW - timedelta(seconds=5)).timestamp()
    values = {"cycle_age": 1.0, "samples": 10.0, "idle": seconds, "idle_at": at, "gpu_idle": seconds}
    target = Target(labels=("x",), values=values, states={"state": {"idle": at}, "gpus": {"idle": 1.0}})
    moment = Moment(at=NOW, settings=PromqlSettings(), max_age_seconds=30.0)

    assert a_node("i-1", signal=agents_signal(a_node("i-1"), target, moment)).activity.state is State.UNKNOWN
