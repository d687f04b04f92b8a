"""A private address names a machine within one network only: in Prometheus it may be another network's machine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.controller.observe.exporters import stretches
from gpuwatch.controller.observe.prometheus_api import Answer, PromApi
from gpuwatch.controller.observe.promql import PromqlSource
from gpuwatch.controller.observe.scrape import ScrapeSource
from gpuwatch.controller.observe.settings import ObserveSettings, PromqlSettings
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import Node, NodeReport
from gpuwatch.model.measurement import MetricQuery
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import NOW, a_node

PROMQL = PromqlSettings(url="http://127.0.0.1:1", dialect="dcgm", lookback=3600.0)
IDLE = {
    "at": NOW.timestamp() - 3,
    "samples": 20.0,
    "gpus": 1.0,
    "max": 0.0,
    "covered": float(stretches(PROMQL.lookback)),
}
ENDED = {"max": 0.0, "covered": 3.0, "samples": 4.0, "gpus": 1.0}  # what remains of a machine that is gone


@dataclass(frozen=True, slots=True, kw_only=True)
class Told(PromApi):
    """A Prometheus that has an idle exporter at each of these instances; of those in `ended` only the past."""

    instances: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)

    def instant(self, expressions: Mapping[str, str], at: datetime, *, at_a_time: int = 4) -> dict[str, Answer]:
        """One row for each exporter."""
        del at, at_a_time
        return {query: Answer(rows=tuple(self._rows(query))) for query in expressions}

    def _rows(self, query: str) -> list[tuple[dict[str, str], float]]:
        part, _, sign = query.partition(":")
        if not sign:  # a measure
            return [(labels(each), 0.25) for each in self.instances] if query == "gpu_utilization" else []
        if sign not in {"utilization", "memory_used"}:
            return []
        rows = [(labels(each), IDLE[part]) for each in self.instances]
        return rows + [(labels(each), ENDED[part]) for each in self.ended if part in ENDED]


def labels(instance: str) -> dict[str, str]:
    """A target's."""
    return {"job": "dcgm", "instance": instance}


def a_source(instances: Sequence[str], *, ended: Sequence[str] = ()) -> PromqlSource:
    """A source over such a Prometheus."""
    clock = ManualClock(wall=NOW)
    setting = ObserveSettings(source="promql", promql=PROMQL)
    return PromqlSource(
        settings=setting,
        clock=clock,
        max_age_seconds=30.0,
        api=Told(settings=PROMQL, clock=clock, instances=list(instances), ended=list(ended)),
        agents=ScrapeSource(settings=setting, clock=clock, max_age_seconds=30.0),
    )


def machine(node_id: str, address: str | None, **other: object) -> Node:
    """A machine of the fleet that nobody has asked yet."""
    return replace(a_node(node_id, signal=NodeReport()), **{"name": f"name-of-{node_id}", "address": address, **other})  # type: ignore[arg-type]


def states(source: PromqlSource, *nodes: Node) -> list[State]:
    """What the source says of each."""
    return [node.activity.state for node in source.observe(nodes).nodes]


OURS = [machine("i-1", "10.0.0.5"), machine("i-2", "10.0.0.6")]


def test_an_address_is_believed_where_prometheus_sees_the_fleet_alone() -> None:
    """As documented: with or without a port, IPv4 and IPv6."""
    source = a_source(["10.0.0.5:9400", "[fd00::6]:9400"])

    assert states(source, OURS[0], machine("i-2", "fd00::6")) == [State.IDLE, State.IDLE]


def test_a_machine_of_another_network_makes_bare_addresses_unknown() -> None:
    """The exporter of i-2 is down, and another network's machine with its address answers: it is not idle."""
    source = a_source(["10.0.0.5:9400", "10.0.0.6:9400", "10.7.7.7:9400"])
    seen = source.observe(OURS)

    assert [node.activity.state for node in seen.nodes] == [State.UNKNOWN, State.UNKNOWN]
    assert "10.7.7.7:9400 is a machine outside of the fleet's list" in (seen.nodes[1].activity.doubt or "")
    assert "signals.promql.node_label" in (seen.nodes[1].activity.doubt or "")


def test_what_names_itself_counts_whatever_else_is_scraped() -> None:
    """An id or a name is one machine's alone."""
    source = a_source(["i-1", "name-of-i-2:9400", "10.7.7.7:9400"])

    assert states(source, *OURS) == [State.IDLE, State.IDLE]


@pytest.mark.parametrize("other", ["gpu-lab-3:9400", "8.8.8.8:9400", "i-9"])
def test_machines_with_names_or_public_addresses_are_no_other_private_network(other: str) -> None:
    """Nothing follows from them for private addresses."""
    assert states(a_source(["10.0.0.5:9400", other]), OURS[0]) == [State.IDLE]


def test_one_address_of_two_machines_of_the_fleet_is_nobodys() -> None:
    """Two networks in the fleet's own list: also where one of the two is stopped."""
    twins = [machine("i-1", "10.0.0.5", region="us"), machine("i-2", "10.0.0.5", region="eu")]

    assert states(a_source(["10.0.0.5:9400"]), *twins) == [State.UNKNOWN, State.UNKNOWN]


def test_a_machine_that_has_ended_is_not_foreign() -> None:
    """Neither by what remains of its samples, nor in the minutes in which its last one is still shown."""
    assert states(a_source(["10.0.0.5:9400"], ended=["10.0.0.6:9400"]), OURS[0]) == [State.IDLE]

    source = a_source(["10.0.0.5:9400", "10.0.0.6:9400"])
    assert states(source, *OURS) == [State.IDLE, State.IDLE]
    assert states(source, OURS[0]) == [State.IDLE]


def test_a_measure_of_a_pool_leaves_out_whose_target_is_not_known() -> None:
    """A pool is not scaled by another network's load either."""
    query = MetricQuery(pool="default", name="gpu_utilization", expression=None)
    values = {}
    for name, instances in {"ours": ["10.0.0.5:9400"], "foreign": ["10.0.0.5:9400", "10.7.7.7:9400"]}.items():
        source = a_source(instances)
        fleet = source.observe(OURS[:1])
        values[name] = source.measure(fleet, [query])[0].value

    assert values["ours"] == 0.25
    assert values["foreign"] is None


@given(
    st.sets(st.integers(1, 9), min_size=1),
    st.sets(st.integers(1, 9), min_size=1),
    st.sets(st.integers(10, 19), max_size=2),
)
def test_no_foreign_machine_ever_makes_a_node_idle(fleet: set[int], scraped: set[int], foreign: set[int]) -> None:
    """A node is idle by its address only where its own target is there, and all targets are the fleet's."""
    nodes = [machine(f"i-{number}", f"10.0.0.{number}") for number in sorted(fleet)]
    source = a_source([f"10.0.0.{number}:9400" for number in sorted(scraped | foreign)])
    idle = {node.id for node in source.observe(nodes).nodes if node.activity.state is State.IDLE}
    outside = (scraped | foreign) - fleet

    assert idle == (set() if outside else {f"i-{number}" for number in fleet & scraped})
