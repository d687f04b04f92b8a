"""Names and types of every metric of agent and controller: promtool and Prometheus' own conventions.

https://prometheus.io/docs/practices/naming/; tests/support/builders/full_pages.py has every feature on.
"""

import re
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import parser as openmetrics

from gpuwatch.agent.exporter.catalogue import FAMILIES as OF_AGENT
from gpuwatch.controller.metrics import BY_NAME as OF_CONTROLLER
from gpuwatch.runtime.metrics.family import HISTOGRAM, INFO, UNITS, Family
from tests.support.builders.full_pages import agent_pages, controller_pages, families_of
from tests.support.components import require
from tests.support.each import for_each

parse_openmetrics: Callable[[str], Iterable[Metric]] = openmetrics.text_string_to_metric_families
PLAIN = "text/plain; version=0.0.4"
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
PAGES: dict[str, tuple[Callable[[str], list[str]], dict[str, Family]]] = {
    "agent": (agent_pages, OF_AGENT),
    "controller": (controller_pages, OF_CONTROLLER),
}
_MOST_BUCKETS = 12
# Words that a unit other than the base unit would be, or that a type adds by itself.
_NO_UNITS = {
    *("hours", "hour", "minutes", "minute", "days", "milliseconds", "ms", "microseconds"),
    *("percent", "kilobytes", "megabytes", "gigabytes", "mib", "gib", "mhz", "khz", "milliwatts", "fahrenheit"),
    *("dollars", "gauge", "counter", "histogram"),
}


def promtool(*arguments: str | Path, page: str = "") -> tuple[int, str]:
    """How it ended, and everything that it said."""
    command: list[str | Path] = [require("promtool"), *arguments]
    done = subprocess.run(command, input=page, text=True, capture_output=True, check=False, timeout=60)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.component("promtool")
@pytest.mark.parametrize("of", PAGES)
def test_promtool_has_nothing_to_say_of_any_family(of: str) -> None:
    """`promtool check metrics` accepts each page without a remark, and no family is missing on all of them."""
    pages, catalogue = PAGES[of]
    made = pages(PLAIN)

    assert {promtool("check", "metrics", page=page) for page in made} == {(0, "")}
    assert families_of(made) == {*catalogue}


@pytest.mark.component("promtool")
@pytest.mark.parametrize("of", PAGES)
def test_prometheus_reads_the_openmetrics_of_any_family(of: str, tmp_path: Path) -> None:
    """Promtool checks the text format alone; but it makes blocks of OpenMetrics, and so do strict parsers read it."""
    pages, catalogue = PAGES[of]
    made = pages(OPENMETRICS)[-1]
    (tmp_path / "page.txt").write_text(re.sub(r"^([^#].*)$", r"\1 1780000000", made, flags=re.MULTILINE))

    code, said = promtool("tsdb", "create-blocks-from", "openmetrics", tmp_path / "page.txt", tmp_path / "data")
    assert code == 0, said
    read = {family.name: family.type for page in pages(OPENMETRICS) for family in parse_openmetrics(page)}
    assert read == {_bare(family): family.kind for family in catalogue.values()}


def _bare(family: Family) -> str:
    """OpenMetrics leaves out what the type adds to the name."""
    return family.name.removesuffix({"counter": "_total", INFO: "_info"}.get(family.kind, ""))


@for_each(sorted({**OF_AGENT, **OF_CONTROLLER}.items()), lambda named: named[0])
def test_a_name_says_what_it_is(named: tuple[str, Family]) -> None:
    """A type's suffix is on names of that type and on no other; units are base units, and stand last."""
    name, family = named
    parts = name.split("_")

    assert re.fullmatch(r"(gpuwatch|process)(_[a-z][a-z0-9]*)+", name), "snake case behind the program's name"
    assert name.endswith("_total") == (family.kind == "counter")
    assert name.endswith("_info") == (family.kind == INFO)
    assert parts[-1] not in {"count", "sum", "bucket"}, "these are parts of histograms"
    assert not {*parts} & (_NO_UNITS - ({"hour"} if family.unit == "usd_per_hour" else set()))
    assert family.unit or not {*parts} & {unit for unit in UNITS if "_" not in unit}, "its unit does not stand last"
    assert family.kind != INFO or family.labels, "an info metric says something by its labels"
    assert family.help.endswith(".")


@pytest.mark.parametrize("of", PAGES)
def test_what_is_named_info_is_always_one(of: str) -> None:
    """Its labels say something, its value does not."""
    pages, catalogue = PAGES[of]
    values = {
        sample.value
        for page in pages(OPENMETRICS)
        for family in parse_openmetrics(page)
        if family.type == INFO
        for sample in family.samples
    }

    assert values == {1.0}
    assert any(family.kind == INFO for family in catalogue.values())


@pytest.mark.parametrize("of", PAGES)
def test_histograms_are_few_and_small(of: str) -> None:
    """Twelve buckets at most, and none by GPU, node or pool: their number does not grow with the number of nodes."""
    pages, catalogue = PAGES[of]
    page = pages(PLAIN)[-1]
    for name in [name for name, family in catalogue.items() if family.kind == HISTOGRAM]:
        labels = re.findall(rf"^{name}_bucket\{{(.*)\}} ", page, re.MULTILINE)
        series = {re.sub(r',?le="[^"]*"', "", each) for each in labels}

        assert 1 < len(labels) / len(series) <= _MOST_BUCKETS, name
        assert {*catalogue[name].labels} <= {"fleet", "cloud", "operation", "question"}, name


@pytest.mark.parametrize("of", PAGES)
def test_agent_and_controller_say_which_build_they_are_and_what_they_use(of: str) -> None:
    """Under the names that Prometheus' own programs have."""
    _, catalogue = PAGES[of]

    assert {f"gpuwatch_{of}_build_info", "process_cpu_seconds_total", "process_resident_memory_bytes"} <= {*catalogue}
    assert {"process_open_fds", "process_max_fds", "process_start_time_seconds"} <= {*catalogue}
    labels = catalogue[f"gpuwatch_{of}_build_info"].labels
    assert {*labels} - {"fleet"} == {"version", "revision", "python_version"}
