"""P22: whatever one exporter, one Slurm node or one job says, all other machines are decided about as without it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.controller.context import LiveParts
from gpuwatch.controller.observe import NodeReportSource
from gpuwatch.controller.observe.exporters import DIALECTS, STRETCH, stretches
from gpuwatch.controller.observe.prometheus_api import Answer, PromApi, read_answer
from gpuwatch.controller.observe.promql import PromqlSource
from gpuwatch.controller.observe.scrape import ScrapeSource
from gpuwatch.controller.observe.settings import ObserveSettings, PromqlSettings
from gpuwatch.controller.slurm import SlurmCluster
from gpuwatch.controller.slurm.scontrol import parse_nodes
from gpuwatch.controller.slurm.squeue import parse_jobs
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import Fleet, Node, NodeReport
from gpuwatch.model.measurement import MetricQuery, MetricValue
from gpuwatch.model.slurm import SlurmJob
from tests.support.builders.fleet import LIVES, NOW, RULES, Desk, FakeFleet, a_node
from tests.support.builders.sick_parts import NEIGHBOURS, ROUNDS, SECONDS, SICK, others
from tests.support.fakes.slurm import FakeSlurm

FLOATS = ("NaN", "+Inf", "-Inf", "1e+308", "-1e+308", "5e-324", "-0", "1.8446744073709552e+19", "9007199254740993")
NUMBERS = st.sampled_from(FLOATS) | st.floats().map(str)
TEXTS = st.sampled_from(("", "\x00", "\u202e\x1b[2J", "x" * 100_000, "i-idle-0", "busy", "idle")) | st.text(max_size=9)
PARTS = ("max", "samples", "gpus", "at", "covered")
LABELS = st.sampled_from(("state", "node_id", "gpu", "__name__", "", "\x00", "le"))
Row = tuple[dict[str, str], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scraped(PromApi):
    """A Prometheus that has scraped the neighbours, who are well, and whatever `sick` gives for a query."""

    dialect: str
    sick: Mapping[str, Sequence[Row]] = field(default_factory=dict)

    def instant(self, expressions: Mapping[str, str], at: datetime, *, at_a_time: int = 4) -> dict[str, Answer]:
        """Each answer as its API has it, read by gpuwatch's own reader."""
        del at_a_time
        return {query: read_answer(200, self._body(query, at), at) for query in expressions}

    def _body(self, query: str, at: datetime) -> bytes:
        rows = [({"job": self.dialect, "instance": f"{name}:9400"}, name) for name in NEIGHBOURS]
        told = [row for labels, name in rows for row in self._well(query, labels, name, at)]
        made = [
            {"metric": labels, "value": [at.timestamp(), value]} for labels, value in [*told, *self._of_sick(query)]
        ]
        return msgspec.json.encode({"status": "success", "data": {"resultType": "vector", "result": made}})

    def _of_sick(self, query: str) -> list[Row]:
        own = {"job": self.dialect, "instance": f"{SICK}:9400"}  # which Prometheus writes, and no exporter can change
        return [({**labels, **own}, value) for labels, value in self.sick.get(query, ())]

    def _well(self, query: str, labels: dict[str, str], name: str, at: datetime) -> list[Row]:
        state = NEIGHBOURS[name]
        if self.dialect == "gpuwatch":
            held = 7200.0 + (at - NOW).total_seconds() if state is State.IDLE else None
            own = {"node_id": name} if query == "who" else {"state": state.value} if query in {"state", "gpus"} else {}
            known = {"who": 1.0, "state": at.timestamp(), "idle": held, "cycle_age": 0.5, "samples": 20.0, "gpus": 1.0}
            known |= {"idle_at": None if held is None else at.timestamp(), "gpu_idle": held}
            value = known.get(query)
            return [] if value is None else [({**labels, **own}, str(value))]
        part, _, sign = query.partition(":")
        if sign not in {each.name for each in DIALECTS[self.dialect].signs if each.required}:
            return []
        need = stretches(self.settings.lookback)
        known = {"at": at.timestamp() - 3.0, "samples": float(STRETCH / 15), "gpus": 1.0, "covered": float(need)}
        known["max"] = 100.0 if state is State.BUSY and sign == "utilization" else 0.0
        return [(labels, str(known[part]))] if part in known else []


@dataclass(slots=True)
class ReadDesk(Desk):
    """A controller with another source of signals, or with a Slurm cluster, than the simulated ones."""

    source: NodeReportSource | None = None
    slurm: SlurmCluster | None = None

    @property
    def parts(self) -> LiveParts:
        """What step() takes."""
        made = super(ReadDesk, self).parts
        return replace(made, signals=self.source or made.signals, slurm=self.slurm)

    def rounds(self) -> list[object]:
        """What is decided and done about the neighbours, round by round."""
        return [others(self.round(SECONDS), NEIGHBOURS.__contains__) for _ in range(ROUNDS)]


@dataclass(slots=True)
class OfPrometheus:
    """What Prometheus shows; the last question goes to it, or to agents of ours."""

    shown: PromqlSource
    fleet: FakeFleet

    def observe(self, nodes: Sequence[Node]) -> Fleet:
        """As the product reads it."""
        return self.shown.observe(nodes)

    def measure(self, fleet: Fleet, queries: Sequence[MetricQuery]) -> tuple[MetricValue, ...]:
        """Likewise."""
        return self.shown.measure(fleet, queries)

    def confirm(self, node: Node) -> NodeReport:
        """An agent's own word, where there is one."""
        ours = self.shown.settings.promql.dialect == "gpuwatch"
        return self.fleet.confirm(node) if ours else self.shown.confirm(node)


def scraped(dialect: str, sick: Mapping[str, Sequence[Row]]) -> list[object]:
    """What a controller decides whose signals are in a Prometheus."""
    return a_scraped_desk(dialect, sick).rounds()


def a_scraped_desk(dialect: str, sick: Mapping[str, Sequence[Row]]) -> ReadDesk:
    """That controller."""
    desk = ReadDesk(pools={"default": RULES, "training": RULES})
    for number, name in enumerate((*NEIGHBOURS, SICK)):
        state = NEIGHBOURS.get(name, State.IDLE)
        desk.fleet.put(a_node(name, state, pool="default" if number % 2 else "training"))
    promql = PromqlSettings(url="http://127.0.0.1:1", dialect=dialect, scrape_interval=15, lookback=3600.0)  # type: ignore[arg-type]
    setting = ObserveSettings(source="promql", promql=promql, act_without_confirm=True)
    shown = PromqlSource(
        settings=setting,
        clock=desk.clock,
        max_age_seconds=30.0,
        api=Scraped(settings=promql, clock=desk.clock, dialect=dialect, sick=sick),
        agents=ScrapeSource(settings=setting, clock=desk.clock, max_age_seconds=30.0),
    )
    desk.source = OfPrometheus(shown, desk.fleet)
    return desk


QUERIES = {
    "dcgm": ["future", "split", *(f"{part}:{sign}" for part in PARTS for sign in ("utilization", "memory_used", "sm"))],
    "gpuwatch": ["who", "state", "idle", "idle_at", "cycle_age", "samples", "future", "gpus", "gpu_idle"],
}
ROWS = st.lists(st.tuples(st.dictionaries(LABELS, TEXTS, max_size=2), NUMBERS), max_size=3)


@cache
def without(dialect: str) -> list[object]:
    """The same where Prometheus has nothing of the sick one."""
    return scraped(dialect, {})


@pytest.mark.parametrize("dialect", QUERIES)
def test_neighbours_in_prometheus_are_stopped(dialect: str) -> None:
    """Or the comparisons below would compare nothing."""
    assert "('i-idle-0', <Verb.STOP: 'stop'>, <Status.ACCEPTED: 'accepted'>)" in str(without(dialect))


@settings(max_examples=LIVES * 4)
@given(data=st.data(), dialect=st.sampled_from(sorted(QUERIES)))
def test_anything_that_one_exporter_shows_changes_nothing_about_the_others(data: st.DataObject, dialect: str) -> None:
    """Numbers that are none, times that are far away, labels of any text, a series twice."""
    shown = data.draw(st.dictionaries(st.sampled_from(QUERIES[dialect]), ROWS))

    assert scraped(dialect, shown) == without(dialect)


@pytest.mark.parametrize("victim", ["i-busy-0", "i-idle-0"])
def test_an_agent_that_calls_itself_another_machine_speaks_for_none(victim: str) -> None:
    """An image with another machine's identity in it: neither that machine nor its own is known by such a word."""
    now = str(NOW.timestamp())
    told: dict[str, list[Row]] = {"who": [({"node_id": victim}, "1")], "state": [({"state": "idle"}, now)]}
    told |= {query: [({}, value)] for query, value in (("idle", "7200"), ("idle_at", now), ("cycle_age", "0.5"))}
    desk = a_scraped_desk("gpuwatch", {**told, "samples": [({}, "20")], "gpus": [({"state": "idle"}, "1")]})
    seen = {node.id: node.activity for node in desk.round(SECONDS).observation.fleet.nodes}

    assert seen[victim].state is NEIGHBOURS[victim]
    assert seen[SICK].state is State.UNKNOWN
    assert victim in (seen[SICK].doubt or "")


@dataclass(slots=True)
class ReadSlurm(FakeSlurm):
    """A Slurm cluster whose programs print this, read by gpuwatch's own readers; then it lives on from there."""

    printed_jobs: str = ""

    @classmethod
    def showing(cls, nodes: str, jobs: str) -> "ReadSlurm":
        """What scontrol and squeue print."""
        known = {each.name: each for each in parse_nodes(nodes)}
        return cls(pools=("default", "training"), known=known, printed_jobs=jobs)

    def jobs(self) -> Mapping[str, tuple[SlurmJob, ...]] | None:
        """As squeue lists them."""
        return parse_jobs(self.printed_jobs)


BLOCK = "NodeName={name} Arch=x86_64\n   NodeAddr={name} NodeHostName={name}\n   State={state} Weight=1\n   {more}\n\n"
WELL_NODES = "".join(BLOCK.format(name=name, state="IDLE", more="Gres=gpu:1") for name in NEIGHBOURS)
JOB = {
    "job_id": 7,
    "job_state": ["RUNNING"],
    "nodes": SICK,
    "gres_detail": ["gpu:1(IDX:0)"],
    "user_name": "ann",
    "start_time": {"number": 1_772_000_000},
}
BAD_WORDS = (
    *(
        "",
        "x" * 100_000,
        "\x00",
        "\u202e\x1b[2J",
        "Reason=a\n\nb c [root@2026-03-02T10:00:00]",
        "State=IDLE\n   State=BUSY",
    ),
    *(
        "Gres=gpu:" + "9" * 5000,
        "Gres=gpu:1(S:" + "9" * 5000 + ")",
        "Reason=" + "y" * 20_000,
        "NodeAddr=a\n   NodeAddr=b",
    ),
)
BAD_JSON: tuple[object, ...] = (
    *(10**400, 2**64, -(2**63) - 1, -1, 0.5, True, None, "", "x" * 20_000, "\x00", [], {}, [None], {"number": 10**30}),
    *("gpu:" + "9" * 5000, ["gpu:1(IDX:" + "9" * 5000 + ")"], "9999-12-31T23:59:59-14:00", {"number": "soon"}),
)


def in_slurm(node: str, *jobs: object) -> list[object]:
    """What is decided with that block of the sick node and these jobs, beside one that is well."""
    desk = ReadDesk(pools={"default": RULES, "training": RULES})
    for number, (name, state) in enumerate(NEIGHBOURS.items()):
        desk.fleet.put(a_node(name, state, pool="default" if number % 2 else "training"))
    desk.fleet.put(a_node(SICK, State.BUSY, 0.0))
    told = [{**JOB, "job_id": 8, "nodes": "i-busy-0"}, *jobs]
    desk.slurm = ReadSlurm.showing(WELL_NODES + node, json.dumps({"jobs": told}))
    done = [desk.round(SECONDS) for _ in range(ROUNDS)]
    held = {each.id: each.slurm for each in done[0].observation.fleet.nodes}
    return [*(others(each, NEIGHBOURS.__contains__) for each in done), *(repr(held[name]) for name in NEIGHBOURS)]


@cache
def without_node() -> list[object]:
    """The same where Slurm has no such node."""
    return in_slurm("")


def test_neighbours_in_slurm_are_stopped_and_their_jobs_are_known() -> None:
    """Or the comparisons below would compare nothing."""
    assert "('i-idle-0', <Verb.STOP: 'stop'>, <Status.ACCEPTED: 'accepted'>)" in str(without_node())
    assert "SlurmJob(id='8'" in str(without_node())


@settings(max_examples=LIVES)
@given(state=st.sampled_from(("IDLE", "IDLE*", "", "lower", "A" * 9000, "UNKNOWN+")), more=st.sampled_from(BAD_WORDS))
def test_anything_that_slurm_shows_of_one_node_changes_nothing_about_the_others(state: str, more: str) -> None:
    """A reason of several paragraphs, a number of 5,000 digits, a field twice."""
    assert in_slurm(BLOCK.format(name=SICK, state=state, more=more)) == without_node()


@settings(max_examples=LIVES * 2)
@given(field=st.sampled_from([name for name in JOB if name != "nodes"]), by=st.sampled_from(BAD_JSON))
def test_anything_that_slurm_says_of_one_job_changes_nothing_about_the_others(field: str, by: object) -> None:
    """Only on which nodes it is has to be known: otherwise it may be on any."""
    node = BLOCK.format(name=SICK, state="MIXED", more="Gres=gpu:1")

    assert in_slurm(node, {**JOB, field: by}) == without_node()
