"""P2, P9: a Prometheus may show two machines by turns as one; idle time from before the last work is not believed."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.controller.observe.exporters import STRETCH, stretches
from gpuwatch.controller.observe.prometheus_api import Answer, PromApi
from gpuwatch.controller.observe.promql import PromqlSource
from gpuwatch.controller.observe.scrape import ScrapeSource
from gpuwatch.controller.observe.settings import ObserveSettings, PromqlSettings
from gpuwatch.model.activity import Activity, State
from gpuwatch.model.fleet import NodeReport
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import NOW, a_node
from tests.support.nightly import examples

LOOKBACK = 3600.0
MACHINE = replace(a_node("i-1", signal=NodeReport()), address="10.0.0.5", gpu_count=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown(PromApi):
    """A Prometheus with one target: `idle` is for how long it has been idle, None is busy; `work` when it worked."""

    idle: list[float | None] = field(default_factory=list)
    worked: list[float] = field(default_factory=list)

    def instant(self, expressions: Mapping[str, str], at: datetime, *, at_a_time: int = 4) -> dict[str, Answer]:
        """A row of each query that has one."""
        del at_a_time
        rows = self._of_agent(at) if "who" in expressions else self._of_exporter(at)
        return {query: Answer(rows=tuple(rows.get(query, ()))) for query in expressions}

    def _of_agent(self, at: datetime) -> dict[str, list[tuple[dict[str, str], float]]]:
        target = {"job": "gpuwatch", "instance": "10.0.0.5:9460"}
        held, scraped = self.idle[-1], at.timestamp() - 3.0
        state = {**target, "state": "busy" if held is None else "idle"}
        return {
            "who": [({**target, "node_id": "i-1"}, 1.0)],
            "state": [(state, scraped)],
            "idle": [(target, held or 0.0)],
            "idle_at": [(target, scraped)],
            "cycle_age": [(target, 0.5)],
            "samples": [(target, 20.0)],
            "gpus": [(state, 1.0)],
        }

    def _of_exporter(self, at: datetime) -> dict[str, list[tuple[dict[str, str], float]]]:
        begin = at.timestamp() - stretches(LOOKBACK) * STRETCH
        busy = 50.0 * any(begin <= each <= at.timestamp() for each in self.worked)
        found = {"at": at.timestamp() - 3.0, "samples": 20.0, "gpus": 1.0, "covered": float(stretches(LOOKBACK))}
        of = {"job": "dcgm", "instance": "10.0.0.5:9400"}
        signs = ("utilization", "memory_used")
        rows = {f"{part}:{sign}": [(of, value)] for part, value in found.items() for sign in signs}
        return rows | {"max:utilization": [(of, busy)], "max:memory_used": [(of, 0.0)]}


def a_source(
    dialect: Literal["gpuwatch", "dcgm"], *, act_without_confirm: bool = False
) -> tuple[PromqlSource, Shown, ManualClock]:
    """A source over it."""
    clock = ManualClock(wall=NOW)
    promql = PromqlSettings(url="http://127.0.0.1:1", dialect=dialect, lookback=LOOKBACK)
    setting = ObserveSettings(source="promql", promql=promql, act_without_confirm=act_without_confirm)
    shown = Shown(settings=promql, clock=clock)
    agents = ScrapeSource(settings=setting, clock=clock, max_age_seconds=30.0)
    return PromqlSource(settings=setting, clock=clock, max_age_seconds=30.0, api=shown, agents=agents), shown, clock


def seen(source: PromqlSource) -> Activity:
    """What it says of the machine now."""
    return source.observe([MACHINE]).nodes[0].activity


def test_two_agents_of_one_id_behind_a_prometheus_are_no_idle_machine() -> None:
    """One works, the other has counted two hours; what is idle since after the work is believed."""
    source, shown, clock = a_source("gpuwatch")
    found = []
    for held in (7200.0, None, 7320.0, None, 7440.0):
        shown.idle.append(held)
        found.append(seen(source))
        clock.advance(60.0)
    clock.advance(3600.0)
    shown.idle.append(3600.0)

    assert [each.state for each in found] == [State.IDLE, State.BUSY, State.UNKNOWN, State.BUSY, State.UNKNOWN]
    assert "it was seen at work 1m" in (found[2].doubt or "")
    assert seen(source).state is State.IDLE


def test_two_prometheus_by_turns_are_no_idle_machine() -> None:
    """Each sees another exporter at the address: neither window has a gap, and one has work of now."""
    source, shown, clock = a_source("dcgm", act_without_confirm=True)
    found = []
    for at_work in (False, True, False, True, False):
        shown.worked[:] = [clock.now().timestamp() - 3.0] * at_work
        found.append(seen(source).state)
        clock.advance(300.0)
    shown.worked.clear()

    assert found == [State.IDLE, State.BUSY, State.UNKNOWN, State.BUSY, State.UNKNOWN]
    assert a_node("i-1", signal=source.confirm(MACHINE)).activity.state is State.UNKNOWN


@settings(max_examples=examples(50), deadline=None)
@given(works=st.lists(st.tuples(st.floats(0.0, 9000.0), st.floats(1.0, 4000.0)), max_size=4))
def test_one_machine_that_works_and_rests_is_never_in_doubt(works: list[tuple[float, float]]) -> None:
    """However its work lies in the windows."""
    source, shown, clock = a_source("dcgm")
    at = NOW.timestamp()
    for pause, lasts in works:
        shown.worked.extend(at + pause + step * 15.0 for step in range(int(lasts / 15.0) + 1))
        at += pause + lasts
    for _ in range(400):
        assert seen(source).state is not State.UNKNOWN
        clock.advance(60.0)
