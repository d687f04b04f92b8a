"""Rounds of a large fleet: a machine that works as it did is one line, and every round reads back as it was."""

import zlib
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from gpuwatch.controller.round import decide
from gpuwatch.guard import Rulebook
from gpuwatch.ledger import Ledger, snapshots
from gpuwatch.ledger.records import PastRound
from gpuwatch.ledger.tables import BODIES
from gpuwatch.ledger.unchanged import Marks
from gpuwatch.model.activity import Activity, Evidence, GpuUse, LocalDisks, State
from gpuwatch.model.decision import Observation, Step, Verb
from gpuwatch.model.fleet import GpuVerdict, Node, NodeReport, NodeState
from gpuwatch.model.health import GpuHealth, Health
from gpuwatch.policies import PoolRules
from tests.support.builders.fleet import NOW, a_node, a_verdict, an_observation
from tests.support.builders.kubernetes_views import shown_cluster, shown_node
from tests.support.nightly import examples

MINUTE, BEGUN = timedelta(minutes=1), NOW - timedelta(hours=2)
START = NOW.replace(minute=0)
RULES = Rulebook(pools={"default": PoolRules(), "other": PoolRules()})


def evidence(minute: int, state: State) -> tuple[Evidence, ...]:
    """What differs in every round."""
    observed = 0.5 + minute / 1000
    return (Evidence(name="gpu0.utilization", says=state, observed=observed, limit=0.01, unit="ratio", source="NVML"),)


def an_activity(minute: int, state: State, began: int = -120, lost: float = 0.0) -> Activity:
    """An activity that began in that minute."""
    held = (minute - began) * 60.0 - lost
    return Activity(state=state, since=START + began * MINUTE, held_seconds=held, evidence=evidence(minute, state))


def a_machine(name: str, minute: int, deed: str, pool: str = "default") -> Node:
    """A machine of two GPUs that does something, as its agent tells in that minute."""
    state = {"idle": State.IDLE, "parked": State.PARKED, "unknown": State.UNKNOWN}.get(deed, State.BUSY)
    began = minute if deed == "anew" else -120
    node = an_activity(minute, state, began)
    first = node if deed != "half" else an_activity(minute, State.IDLE)
    second = node if deed != "resting" else an_activity(minute, State.IDLE, lost=minute * 30.0)
    use = GpuUse(over_seconds=300.0, utilization_ratio=0.91234, memory_used_ratio=0.25 + minute / 500)
    at = START + minute * MINUTE - timedelta(seconds=0.25)
    verdict = replace(
        a_verdict(name, state, at=at),
        at=at,
        age_seconds=0.25,
        activity=node,
        gpus=tuple(
            GpuVerdict(
                uuid=f"{name}-{number}",
                index=number,
                activity=activity,
                health=GpuHealth(state=Health.HEALTHY, since=BEGUN),
                use=None if deed == "half" else use,
            )
            for number, activity in enumerate((first, second))
        ),
        local_disks=LocalDisks.USED if deed == "writes" else None,
    )
    report = NodeReport(verdict=None if deed == "silent" else verdict, received_at=at)
    made = a_node(name, state, pool=pool, gpu_count=2, signal=report)
    if deed == "stopped":
        return replace(made, state=NodeState.STOPPED, signal=NodeReport())
    return replace(made, tags={"team": "b"} if deed == "retagged" else {"team": "a"})


def record(ledger: Ledger, observation: Observation) -> PastRound:
    """Record a round that decides; what was written down, as it was."""
    proposals, decisions = decide(observation, RULES)
    number = ledger.record_round(observation, proposals, decisions, (), RULES)
    return PastRound(
        id=number,
        at=observation.now,
        observation=observation,
        rulebook=RULES,
        proposals=proposals,
        decisions=decisions,
        reviews=(),
    )


def without_figures(past: PastRound) -> PastRound:
    """A round without what a line does not keep: figures of machines that work, of which nothing is decided."""
    holding = {step.node_id for each in past.decisions for step in each.steps if step.verb is Verb.HOLD}
    fleet = past.observation.fleet
    nodes = tuple(_without_figures(node) if node.id in holding else node for node in fleet.nodes)
    return replace(
        past,
        observation=replace(past.observation, fleet=replace(fleet, nodes=nodes)),
        proposals=tuple(replace(each, steps=tuple(map(_without_evidence, each.steps))) for each in past.proposals),
        decisions=tuple(replace(each, steps=tuple(map(_without_evidence, each.steps))) for each in past.decisions),
    )


def _without_evidence(step: Step) -> Step:
    return replace(step, reason=replace(step.reason, evidence=())) if step.reason.code == "busy" else step


def _without_figures(node: Node) -> Node:
    verdict = node.signal.verdict
    if verdict is None or verdict.activity.state is not State.BUSY:
        return node
    gpus = tuple(_rounded(gpu) for gpu in verdict.gpus)
    kept = replace(verdict, activity=replace(verdict.activity, evidence=()), gpus=gpus)
    return replace(node, signal=replace(node.signal, verdict=kept))


def _rounded(gpu: GpuVerdict) -> GpuVerdict:
    activity = replace(gpu.activity, evidence=(), held_seconds=float(round(gpu.activity.held_seconds)))
    if (use := gpu.use) is None:
        return replace(gpu, activity=activity)
    ratios = (use.utilization_ratio, use.memory_used_ratio, use.sm_active_ratio)
    rounded = [None if each is None else round(each, 3) for each in ratios]
    new = replace(use, utilization_ratio=rounded[0], memory_used_ratio=rounded[1], sm_active_ratio=rounded[2])
    return replace(gpu, activity=activity, use=new)


def test_a_machine_that_works_as_it_did_costs_a_line() -> None:
    """A body of the same hour is a small part of a whole one; the next hour begins with a whole one."""
    ledger, sizes = Ledger.in_memory(), []
    for minute in (57, 58, 59, 60):
        machines = [a_machine(f"i-{number}", minute, "same") for number in range(200)]
        past = record(ledger, an_observation(*machines, now=START + minute * MINUTE))
        with ledger.store.reading() as db:
            sizes.append(len(db.scalar(select(BODIES.c.body).where(BODIES.c.round_id == past.id)) or b""))

    assert max(sizes[1:3]) < min(sizes[0], sizes[3]) / 3
    ledger.close()


@pytest.mark.parametrize(
    "deed", ["anew", "idle", "parked", "unknown", "half", "silent", "stopped", "retagged", "writes", "resting"]
)
def test_a_machine_that_does_anything_else_is_kept_whole(deed: str) -> None:
    """Its evidence, to the last figure, is that of its own round."""
    ledger = Ledger.in_memory()
    workers = [a_machine(f"i-{number}", 1, "same") for number in range(8)]
    record(ledger, an_observation(a_machine("i-x", 1, "same"), *workers, now=START + MINUTE))
    workers = [a_machine(f"i-{number}", 2, "same") for number in range(8)]
    observation = an_observation(a_machine("i-x", 2, deed), *workers, now=START + 2 * MINUTE)
    told = record(ledger, observation)

    read = ledger.round(told.id)
    assert read.observation.fleet.find("i-x") == observation.fleet.find("i-x")
    other = read.observation.fleet.find("i-1")
    assert other is not None
    assert other.activity.evidence == evidence(1, State.BUSY)  # of the round that it rests on
    ledger.close()


@pytest.mark.parametrize("order", [(False, True), (True, False), (True, True)])
def test_a_machine_that_joins_or_leaves_a_cluster_reads_back_as_it_is(order: tuple[bool, bool]) -> None:
    """Also where all others work as they did, and it does, too."""
    ledger, told = Ledger.in_memory(), {}
    for minute, joined in enumerate(order, start=1):
        member = replace(a_machine("i-x", minute, "same"), kubernetes=shown_node("gpu-x") if joined else None)
        workers = [a_machine(f"i-{number}", minute, "same") for number in range(8)]
        objects = shown_cluster(shown_node("gpu-x")) if joined else shown_cluster()
        seen = an_observation(member, *workers, now=START + minute * MINUTE)
        seen = replace(seen, fleet=replace(seen.fleet, cluster=objects))
        told[record(ledger, seen).id] = member

    for number, member in told.items():
        read = ledger.round(number).observation.fleet.find("i-x")
        assert read is not None
        assert read.kubernetes == member.kubernetes
    ledger.close()


DEEDS = ["same"] * 8 + ["anew", "idle", "parked", "unknown", "half", "silent", "stopped", "retagged", "resting", "gone"]


@given(
    story=st.lists(
        st.tuples(st.sampled_from([1, 1, 2, 40]), st.lists(st.sampled_from(DEEDS), min_size=6, max_size=9)),
        min_size=2,
        max_size=6,
    ),
    pools=st.sampled_from([("default",), ("default", "other")]),
)
@settings(max_examples=examples(60), deadline=None)
def test_every_round_of_any_life_reads_back(story: list[tuple[int, list[str]]], pools: tuple[str, ...]) -> None:
    """States, times, sentences, GPUs and order are what they were; figures of a machine that works may be older."""
    ledger, minute, told = Ledger.in_memory(), 0, {}
    for wait, deeds in story:
        minute += wait
        machines = [
            a_machine(f"i-{number}", minute, deed, pools[number % len(pools)])
            for number, deed in enumerate(deeds)
            if deed != "gone"
        ]
        past = record(ledger, an_observation(*machines, now=START + minute * MINUTE))
        told[past.id] = past

    for number, past in reversed(told.items()):
        assert without_figures(ledger.round(number)) == without_figures(past)
    ledger.close()


def test_a_body_of_an_older_gpuwatch_that_rests_on_another_reads_as_before() -> None:
    """It has no lines, and its last piece names no machines but those with a node object of their own."""
    observation = an_observation(a_machine("i-1", 1, "same"), now=START + MINUTE)
    base = PastRound(id=1, at=START, observation=observation, rulebook=None, proposals=(), decisions=(), reviews=())
    last = msgspec.msgpack.encode({"base": 1, "own": [0]})
    whole = zlib.decompress(snapshots.encode(observation, None, (), (), ()))
    old = zlib.compress(whole + len(last).to_bytes(4, "big") + last)

    assert snapshots.decode(2, START, snapshots.ON_BASE, old, lambda _number: base).observation == observation


FIGURES = {"tally", "last_busy", "looked_seconds", "cpu_utilization_ratio", "at", "age_seconds", "held_seconds"}
FIGURES |= {"login_free_seconds"}
APART = {"signal", "verdict", "activity", "gpus", "use", "evidence", "received_at", "kubernetes"}
OTHERS = {"tags": {"team": "c"}, "health": GpuHealth(state=Health.DEGRADED, since=BEGUN)}


def _parts(node: Node) -> dict[str, tuple[object, Callable[[Any], Node]]]:
    """What a machine is made of, each part with what puts another one in its place."""
    verdict = node.verdict
    assert verdict is not None
    gpu = verdict.gpus[0]
    return {
        "machine": (node, lambda new: new),
        "report": (node.signal, lambda new: replace(node, signal=new)),
        "verdict": (verdict, lambda new: replace(node, signal=replace(node.signal, verdict=new))),
        "gpu": (gpu, lambda new: _with_gpu(node, new)),
        "activity": (gpu.activity, lambda new: _with_gpu(node, replace(gpu, activity=new))),
    }


def _with_gpu(node: Node, gpu: GpuVerdict) -> Node:
    assert node.verdict is not None
    verdict = replace(node.verdict, gpus=(gpu, *node.verdict.gpus[1:]))
    return replace(node, signal=replace(node.signal, verdict=verdict))


@pytest.mark.parametrize(
    ("part", "field"),
    [
        (part, each.name)
        for part, (value, _) in _parts(a_machine("i-1", 1, "same")).items()
        for each in fields(value)  # type: ignore[arg-type]
        if each.name not in FIGURES | APART
    ],
)
def test_every_fact_about_a_machine_but_its_figures_makes_it_whole(part: str, field: str) -> None:
    """Also a fact that is added later: whoever adds one decides whether it is a figure."""
    node = a_machine("i-1", 1, "same")
    _, (decision,) = decide(an_observation(node, now=START + MINUTE), RULES)
    decided = {step.node_id: step for step in decision.steps}
    before, _ = Marks.of_round([node], decided)
    value, put_back = _parts(node)[part]
    changed = put_back(replace(value, **{field: OTHERS.get(field, "another")}))  # type: ignore[type-var]

    assert Marks.of_round([node], decided, before)[1] != {}
    assert Marks.of_round([changed], decided, before)[1] == {}


def test_what_is_said_of_an_idle_machine_reads_back_whole() -> None:
    """Its evidence stands with its machine alone; whoever gives a step or a reason another field keeps that as well."""
    observation = an_observation(a_node("i-1"), now=NOW)
    proposals, decisions = decide(observation, RULES)
    said = replace(decisions[0].steps[0], arguments={"action": "stop"})
    assert said.reason.evidence
    assert {each.name for each in fields(Step)} == {"node_id", "verb", "reason", "change", "arguments"}
    assert {each.name for each in fields(said.reason)} == {"code", "sentence", "evidence"}

    many = [replace(each, steps=(said,)) for each in decisions * 20]
    body = snapshots.encode(observation, RULES, proposals, many, ())
    read = snapshots.decode(1, NOW, snapshots.PIECES, body)

    assert (read.proposals, read.decisions, read.reviews) == (proposals, tuple(many), ())
