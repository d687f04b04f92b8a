"""agent/exporter: what a scrape shows. GPUWATCH_UPDATE_GOLDEN=1 rewrites tests/golden."""

import gzip
import os
import re
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_prometheus

from gpuwatch.agent.activity import ActivityRules
from gpuwatch.agent.devices.messages import Unavailable
from gpuwatch.agent.exporter.catalogue import FAMILIES
from gpuwatch.agent.exporter.exporter import Exporter
from gpuwatch.agent.state import AgentCore, Interruption
from gpuwatch.model.activity import Evidence, State
from gpuwatch.model.gpu import DownCause, GpuDown, GpuReading, metrics
from gpuwatch.model.mig import MigDevice, MigInstance
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.gpu import GIB, a_busy_reading, a_cycle, a_down, a_process, a_reading
from tests.support.components import require
from tests.support.golden_pages import without_versions
from tests.support.paths import GOLDEN, ROOT
from tools.docs.metrics import render_metrics_md

parse_openmetrics: Callable[[str], Iterable[Metric]] = openmetrics.text_string_to_metric_families
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
PLAIN = "text/plain; version=0.0.4"


class Scraped:
    """A node's exporter on a clock of its own."""

    def __init__(self, top_processes: int = 2, host: tuple[Evidence, ...] = ()) -> None:
        """An agent that has just begun, with this evidence of its host."""
        self.clock = ManualClock()
        self.core = AgentCore(
            node_id="i-0123456789abcdef0",
            clock=self.clock,
            rules=ActivityRules(),
            interval_seconds=1.0,
            stale_after_seconds=8.0,
            host=lambda _: host,
        )
        self.exporter = Exporter(
            self.core, self.clock, node_id="i-0123456789abcdef0", top_processes=top_processes, own_process=False
        )
        self.seq = 0

    def cycle(self, *entries: GpuReading | GpuDown, times: int = 1) -> "Scraped":
        """So many cycles, a second apart."""
        for _ in range(times):
            self.clock.advance(1.0)
            self.seq += 1
            self.core.ingest_messages(a_cycle(self.seq, self.clock.monotonic(), *entries))
        return self

    def text(self, accept: str = PLAIN) -> str:
        """The page."""
        return self.exporter.page(accept).body.decode()

    def values(self, name: str) -> dict[str, float]:
        """Samples of that name: their labels (without the uuid) to their values."""
        found = re.findall(rf"^{name}(?:\{{(.*)\}})? (\S+)$", self.text(), re.MULTILINE)
        return {re.sub(r',?\buuid="[^"]*"', "", labels): float(value) for labels, value in found}


# Any numbers will do for what no test looks at.
ANY: dict[str, Any] = {
    name: {"one": 1.5, "two": 0.0} if metric.label else 0
    for name, metric in metrics()
    if getattr(a_busy_reading(), name) is None
}
FULL = replace(
    a_busy_reading(**ANY),
    memory_free_bytes=59 * GIB,
    memory_used_bytes=20 * GIB,
    memory_reserved_bytes=GIB,
    temperature_celsius=61.0,
    memory_temperature_celsius=70.0,
    energy_joules_total=123456.789,
    sm_clock_hertz=1.98e9,
    memory_clock_hertz=2.619e9,
    ecc_uncorrected_volatile_errors_total=0,
    ecc_uncorrected_aggregate_errors_total=3,
    clock_events=("sw_power_cap",),
    processes=(a_process(4711, 12 * GIB), a_process(815, 6 * GIB), a_process(42, GIB), a_process(43, GIB)),
)


def _start() -> Scraped:
    return Scraped()


def _lost() -> Scraped:
    return Scraped().cycle(FULL, a_reading(1), times=10).cycle(FULL, a_down(1))


def _no_driver() -> Scraped:
    scraped = Scraped()
    scraped.clock.advance(1.0)
    scraped.core.ingest(
        Unavailable(seq=0, monotonic_seconds=1.0, cause="library_not_found", detail="not found", remedy="install it")
    )
    return scraped


def _stale() -> Scraped:
    scraped = Scraped().cycle(FULL, a_reading(1), times=10)
    scraped.clock.advance(5.0)
    scraped.core.interrupt(Interruption.HANG, "GPU 0 was not read within 5s")
    scraped.clock.advance(60.0)
    return scraped


STORIES: dict[str, Callable[[], Scraped]] = {
    "start": _start,
    "one_busy_one_lost": _lost,
    "no_driver": _no_driver,
    "stale": _stale,
}


@pytest.mark.parametrize("story", STORIES)
def test_the_page_is_the_golden_one(story: str) -> None:
    """Each story's page is exactly the recorded one; a change of names, labels or values shows in the diff."""
    golden = GOLDEN / f"{story}.prom"
    page = without_versions(STORIES[story]().text())
    if os.environ.get("GPUWATCH_UPDATE_GOLDEN") == "1":
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(page, encoding="utf-8")

    assert page == golden.read_text(encoding="utf-8")


@pytest.mark.component("promtool")
@pytest.mark.parametrize("story", STORIES)
def test_promtool_has_nothing_to_say(story: str) -> None:
    """`promtool check metrics` accepts each page without a remark."""
    checked = subprocess.run(
        [require("promtool"), "check", "metrics"],
        input=STORIES[story]().text(),
        text=True,
        capture_output=True,
        check=False,
    )

    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


@pytest.mark.parametrize("story", STORIES)
def test_both_formats_say_the_same(story: str) -> None:
    """The Accept header chooses the format; parsers of both find the same samples, and units in OpenMetrics."""
    scraped, again = STORIES[story](), STORIES[story]()  # each page is the first one: pages are counted
    plain = {str(sample) for family in parse_prometheus(again.text()) for sample in family.samples}
    open_ = {str(sample) for family in parse_openmetrics(scraped.text(OPENMETRICS)) for sample in family.samples}

    assert plain == open_
    assert scraped.exporter.page(OPENMETRICS).content_type.startswith("application/openmetrics-text")
    assert scraped.exporter.page("*/*").content_type.startswith("text/plain")


def test_units_follow_the_names() -> None:
    """OpenMetrics units are the base units that the names end in."""
    units = {family.name: family.unit for family in parse_openmetrics(_lost().text(OPENMETRICS)) if family.unit}

    assert units["gpuwatch_gpu_energy_joules"] == "joules"
    assert units["gpuwatch_agent_last_cycle_timestamp_seconds"] == "seconds"
    assert set(units.values()) == {
        *("ratio", "bytes", "celsius", "watts", "joules", "hertz", "seconds"),
        "bytes_per_second",
    }


def test_every_field_of_a_reading_is_exported() -> None:
    """Each row of the model's catalogue that was measured has its sample: nothing is forgotten on the way."""
    page = _lost().text()

    assert [field for field, _ in metrics() if f"\ngpuwatch_gpu_{field}{{" not in page] == []


def test_what_has_a_label_has_a_series_for_each_of_its_values() -> None:
    """The label's values come from the reading; one that is not there has no series."""
    scraped = Scraped().cycle(a_reading(clock_event_seconds_total={"sw_power_cap": 1.5, "sync_boost": 0.0}))

    assert scraped.values("gpuwatch_gpu_clock_event_seconds_total") == {
        'event="sw_power_cap",gpu="0"': 1.5,
        'event="sync_boost",gpu="0"': 0.0,
    }


def test_mig_instances_have_series_of_their_own() -> None:
    """Compute instances are named on an info metric; memory and activity are once for each GPU instance."""
    devices = (
        MigDevice(uuid="MIG-a", compute_instance=0, profile="3g.40gb"),
        MigDevice(uuid="MIG-b", compute_instance=1),
    )
    instance = MigInstance(id=2, devices=devices, memory_used_bytes=GIB, sm_activity_ratio=0.0)
    scraped = Scraped().cycle(a_reading(mig_instances=(instance,)))

    assert list(scraped.values("gpuwatch_mig_info")) == [
        'compute_instance="0",gpu="0",gpu_instance="2",mig_uuid="MIG-a",profile="3g.40gb"',
        'compute_instance="1",gpu="0",gpu_instance="2",mig_uuid="MIG-b"',
    ]
    assert scraped.values("gpuwatch_mig_memory_used_bytes") == {'gpu="0",gpu_instance="2"': GIB}
    assert scraped.values("gpuwatch_mig_sm_activity_ratio") == {'gpu="0",gpu_instance="2"': 0.0}
    assert scraped.values("gpuwatch_mig_tensor_activity_ratio") == {}


def test_what_is_not_known_has_no_series() -> None:
    """None is absent; a measured zero is there."""
    scraped = Scraped().cycle(a_reading(temperature_celsius=None, utilization_ratio=0.0, clock_events=None))

    assert scraped.values("gpuwatch_gpu_utilization_ratio") == {'gpu="0"': 0.0}
    assert scraped.values("gpuwatch_gpu_temperature_celsius") == {}
    assert scraped.values("gpuwatch_gpu_clock_event_active") == {}


def test_a_lost_gpu_is_down_with_its_cause_and_has_no_values() -> None:
    """The other keeps all of its own."""
    scraped = _lost()

    assert scraped.values("gpuwatch_gpu_up") == {'gpu="0"': 1.0, 'gpu="1"': 0.0}
    assert scraped.values("gpuwatch_gpu_down_info") == {'cause="lost",gpu="1"': 1.0}
    assert scraped.values("gpuwatch_gpu_utilization_ratio") == {'gpu="0"': 0.8}
    assert list(scraped.values("gpuwatch_gpu_active_seconds_total")) == ['gpu="0"']


def test_a_node_in_doubt_has_no_idle_time() -> None:
    """Idle time is absent while unknown, so that no alert and no query can take it for a fact."""
    idle = Scraped().cycle(a_reading(), times=5)
    doubtful = Scraped().cycle(a_reading(), times=5).cycle(a_down())

    assert idle.values("gpuwatch_node_idle_seconds") == {"": 4.0}
    assert doubtful.values("gpuwatch_node_idle_seconds") == {}
    assert doubtful.values("gpuwatch_node_activity")['state="unknown"'] == 1.0


def test_old_values_vanish_from_a_page_already_made() -> None:
    """No cached page outlives its values, and ages go on while no cycle comes."""
    scraped = Scraped().cycle(a_reading())
    assert scraped.values("gpuwatch_gpu_up") == {'gpu="0"': 1.0}

    scraped.clock.advance(8.5)

    assert scraped.values("gpuwatch_gpu_up") == {'gpu="0"': 0.0}
    assert scraped.values("gpuwatch_gpu_power_watts") == {}
    assert scraped.values("gpuwatch_agent_last_cycle_age_seconds") == {"": 8.5}
    assert scraped.values("gpuwatch_probe_down_info") == {'cause="silent"': 1.0}


def test_made_up_format_versions_do_not_take_memory_for_ever() -> None:
    """The content type repeats the version that a client names: pages kept for such names are bounded."""
    scraped = Scraped()
    for minor in range(50):
        scraped.exporter.page(f"text/plain; version=1.0.{minor}")
        scraped.exporter.page(f"application/openmetrics-text; version=1.{minor}.0")

    assert len(scraped.exporter._cache) <= 4


def test_a_page_is_made_once_per_cycle() -> None:
    """Two scrapes of one cycle share one page; the next cycle makes a new one."""
    scraped = Scraped().cycle(a_reading())
    first, second = scraped.exporter.page(PLAIN), scraped.exporter.page(PLAIN)
    scraped.cycle(a_busy_reading())
    third = scraped.exporter.page(PLAIN)

    assert first is second
    assert third is not first
    assert gzip.decompress(third.packed()) == third.body
    assert third.packed() is third.packed(), "packed once"


def test_process_series_are_bounded() -> None:
    """The largest have a series each, the rest one sum; who is listed twice is one process; unknown sizes count."""
    twice = (a_process(1, GIB), a_process(1, 3 * GIB), a_process(2, 2 * GIB), a_process(3, GIB), a_process(4, None))
    scraped = Scraped(top_processes=2).cycle(a_reading(processes=twice))

    assert scraped.values("gpuwatch_process_memory_bytes") == {
        'gpu="0",pid="1"': 3.0 * GIB,
        'gpu="0",pid="2"': 2.0 * GIB,
    }
    assert scraped.values("gpuwatch_process_memory_other_bytes") == {'gpu="0"': GIB}
    assert scraped.values("gpuwatch_gpu_processes") == {'gpu="0"': 4.0}


def test_restarts_are_counted_from_zero() -> None:
    """Each cause has its series before the first event, so that increase() sees it."""
    scraped = Scraped().cycle(a_reading())
    scraped.core.interrupt(Interruption.GARBAGE, "it said b'?'")
    scraped.clock.advance(1.0)

    assert scraped.values("gpuwatch_probe_restarts_total") == {
        'cause="hang"': 0.0,
        'cause="exit"': 0.0,
        'cause="garbage"': 1.0,
        'cause="renew"': 0.0,
    }


def test_words_of_the_driver_are_no_labels() -> None:
    """Causes are few and fixed; details, which may hold anything, stay in /healthz and the log."""
    scraped = Scraped().cycle(a_down(0, DownCause.ERROR, "secret-looking detail"))

    assert "secret-looking" not in scraped.text()


def test_an_agent_tells_its_own_cost() -> None:
    """A real agent's page has its CPU time and memory."""
    scraped = Scraped()
    exporter = Exporter(scraped.core, scraped.clock, node_id="n", top_processes=1)
    page = exporter.page(PLAIN).body.decode()

    assert re.search(r"^process_resident_memory_bytes \d", page, re.MULTILINE)
    assert re.search(r"^process_cpu_seconds_total \d", page, re.MULTILINE)


# The catalogue.


def test_metrics_md_is_the_catalogue() -> None:
    """docs/METRICS.md is what `make docs` writes."""
    written = ROOT / "docs" / "METRICS.md"

    assert written.read_text(encoding="utf-8") == render_metrics_md()


def test_every_name_follows_the_rules() -> None:
    """Counters end in _total, info metrics in _info, nothing else does; a name is used once and has its sentence."""
    for name, family in FAMILIES.items():
        assert name.endswith("_total") == (family.kind == "counter"), name
        assert name.endswith("_info") == (family.kind == "info"), name
        assert family.help.endswith("."), name
        assert f"| `{name}` |" in render_metrics_md()


def test_no_two_gpus_share_an_index() -> None:
    """A GPU that is gone is told by its uuid alone once another one has its index, in every family."""
    scraped = Scraped().cycle(a_reading(0, remapped_rows_pending=1), FULL)
    scraped.cycle(replace(a_reading(1), info=replace(a_reading(1).info, index=0)))
    samples = [sample for family in parse_prometheus(scraped.text()) for sample in family.samples]
    seen = {(sample.labels["uuid"], sample.labels.get("gpu")) for sample in samples if "uuid" in sample.labels}

    assert seen == {("GPU-0", None), ("GPU-1", "0")}
    assert scraped.values("gpuwatch_gpu_up") == {"": 0.0, 'gpu="0"': 1.0}


@pytest.mark.parametrize("says", [State.BUSY, State.UNKNOWN, State.OCCUPIED, State.IDLE])
def test_what_a_signal_of_the_host_says_has_a_series_and_nothing_else_has(says: State) -> None:
    """Somebody's program that does nothing, too; the page never fails for what is seen."""
    seen = Evidence(name="processes", says=says, observed=None, limit=None, unit="", source="/proc")
    values = Scraped(host=(seen,)).cycle(a_reading(0)).values("gpuwatch_node_evidence")

    assert values == {f'says="{says.value}",signal="processes"': 1.0}


def test_when_each_signal_was_busy_last_is_exported_by_kind() -> None:
    """The machine's GPUs share a series for each kind; it stays while nothing can be read, and while all is idle."""
    scraped = Scraped().cycle(a_busy_reading(0), a_busy_reading(1))
    began = scraped.values("gpuwatch_node_last_busy_timestamp_seconds")
    scraped.cycle(a_reading(0, memory_used_bytes=20 * GIB), a_reading(1), times=5)
    after = scraped.values("gpuwatch_node_last_busy_timestamp_seconds")
    scraped.clock.advance(60.0)

    assert set(began) == {'signal="gpu.power"', 'signal="gpu.utilization"'}
    assert after == began == scraped.values("gpuwatch_node_last_busy_timestamp_seconds")


def test_what_the_agent_cannot_see_is_exported() -> None:
    """One series for each, with the value 1; none of an agent that sees all."""
    scraped = Scraped()
    exporter = Exporter(
        scraped.core, scraped.clock, node_id="n", top_processes=1, own_process=False, blind=lambda: ("homes", "run")
    )
    page = exporter.page(PLAIN).body.decode()

    assert re.findall(r"^gpuwatch_agent_blind_info.*$", page, re.MULTILINE) == [
        'gpuwatch_agent_blind_info{what="homes"} 1.0',
        'gpuwatch_agent_blind_info{what="run"} 1.0',
    ]
    assert scraped.values("gpuwatch_agent_blind_info") == {}
