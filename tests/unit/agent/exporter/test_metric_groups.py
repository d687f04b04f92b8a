"""agent.metrics and collect[]: which metrics a page has, and how many series that is."""

import re
from collections.abc import Callable, Collection, Iterable

import msgspec
import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import parser as openmetrics

from gpuwatch.agent.activity import ActivityRules
from gpuwatch.agent.exporter.catalogue import FAMILIES
from gpuwatch.agent.exporter.compat import DIALECTS, load
from gpuwatch.agent.exporter.exporter import _MOST_PARTS, Exporter
from gpuwatch.agent.exporter.groups import exported_groups, groups_in, groups_to_read
from gpuwatch.agent.probe.command import probe_command
from gpuwatch.agent.probe.main import flags
from gpuwatch.agent.settings import AgentSettings
from gpuwatch.agent.state import AgentCore
from gpuwatch.model.metric import DEFAULT_GROUPS, GROUP_NAMES, GROUPS, GroupName, chosen_groups
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.gpu import a_busy_reading, a_cycle, a_process, a_reading
from tools.docs.reference_host import GPUS, page, total
from tools.docs.sizing import FLEETS, SAMPLE_BYTES, SCRAPE_SECONDS, SERIES_BYTES, fleet_series, render_sizing_md

parse_openmetrics: Callable[[str], Iterable[Metric]] = openmetrics.text_string_to_metric_families
PLAIN = "text/plain; version=0.0.4"
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
DOTS = "text/plain; version=1.0.0; escaping=dots"


class Page:
    """An exporter of some groups, one cycle after its start."""

    def __init__(self, groups: Collection[GroupName] = GROUP_NAMES) -> None:
        """One GPU at work, one at rest."""
        self.clock = ManualClock()
        core = AgentCore(
            node_id="n", clock=self.clock, rules=ActivityRules(), interval_seconds=1.0, stale_after_seconds=8.0
        )
        self.clock.advance(1.0)
        busy = a_busy_reading(0, processes=(a_process(42),), nvlink_errors_total={"crc": 1.0})
        core.ingest_messages(a_cycle(1, self.clock.monotonic(), busy, a_reading(1)))
        self.core = core
        self.exporter = Exporter(core, self.clock, node_id="n", top_processes=4, own_process=False, groups=groups)

    def text(self, accept: str = PLAIN, *groups: str) -> str:
        """The page, or the part of it that has these groups."""
        return self.exporter.page(accept, frozenset(groups) if groups else None).body.decode()


def families(text: str) -> set[str]:
    """The names that have a TYPE on a page of plain text."""
    return set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))


def of(groups: Collection[str]) -> set[str]:
    """The families of the catalogue that belong to these groups."""
    return {name for name, family in FAMILIES.items() if family.group in groups}


# What there is.


def test_every_metric_is_in_one_group_that_is_described() -> None:
    """So METRICS.md has a section for each."""
    assert {family.group for family in FAMILIES.values()} == set(GROUPS) == set(GROUP_NAMES)


def test_the_default_page_has_at_most_60_series_a_gpu() -> None:
    """On an H100 with 18 NVLinks and one process; counted on the page itself."""
    of_gpu, of_host = total(DEFAULT_GROUPS)
    samples = [line for line in page(frozenset(DEFAULT_GROUPS)).splitlines() if not line.startswith("#")]

    assert of_gpu <= 60
    assert len(samples) == of_gpu * GPUS + of_host
    assert total(GROUP_NAMES)[0] > 3 * of_gpu


def test_the_sizing_table_is_the_arithmetic_that_it_states() -> None:
    """Series of the page, each scrape, bytes a series and a sample; docs/sizing.md is written by the same code."""
    gpus, written = FLEETS[-1], render_sizing_md()
    series = fleet_series(gpus, DEFAULT_GROUPS)
    of_gpu, of_host = total(DEFAULT_GROUPS)
    row = next(line for line in written.splitlines() if line.startswith(f"| {gpus:,} | default"))

    assert series == gpus * of_gpu + gpus // GPUS * of_host
    assert f"| {series:,} | {series / SCRAPE_SECONDS:,.0f} | {series * SERIES_BYTES / 1e9:.2g} GB |" in row
    assert row.endswith(f"{series * 86_400 / SCRAPE_SECONDS * SAMPLE_BYTES / 1e9:.2g} GB |")


# agent.metrics.


def test_core_is_always_there() -> None:
    """What the controller asks a Prometheus for is there whatever is switched off."""
    assert chosen_groups([]) == {"core"}
    assert chosen_groups(["pcie"]) == {"core", "pcie"}
    assert chosen_groups(["default"]) == DEFAULT_GROUPS
    assert chosen_groups(["default", "nvlink_links"]) == DEFAULT_GROUPS | {"nvlink_links"}
    assert chosen_groups(["all"]) == set(GROUP_NAMES)


@pytest.mark.parametrize("group", GROUP_NAMES)
def test_a_page_has_the_families_of_its_groups_and_no_other(group: GroupName) -> None:
    """Each group alone is what it is on the page of all; families whose group is off are not there."""
    alone, everything = Page({group}).text(), Page().text()

    assert families(alone) == families(everything) & of({group})
    assert alone == "".join(
        block for block in re.split(r"(?=^# HELP )", everything, flags=re.MULTILINE) if families(block) & of({group})
    )


# collect[].


@pytest.mark.parametrize("accept", [PLAIN, OPENMETRICS, DOTS])
def test_a_scrape_may_ask_for_some_groups(accept: str) -> None:
    """In each format, with what ends a page; together the parts are the whole."""
    served = Page()
    parts = [served.text(accept, group).removesuffix("# EOF\n") for group in GROUP_NAMES]
    whole = served.text(accept)
    lines = {line for part in parts for line in part.splitlines()}

    assert lines == set(whole.removesuffix("# EOF\n").splitlines())
    assert whole.endswith("# EOF\n") == (accept == OPENMETRICS)
    if accept == OPENMETRICS:
        assert list(parse_openmetrics(served.text(accept, "core", "health")))


def test_a_part_is_cut_out_of_the_page_that_others_get() -> None:
    """Same snapshot, same ages; and it is made once."""
    served = Page()
    served.clock.advance(0.5)
    whole = served.exporter.page(PLAIN)
    served.clock.advance(0.4)
    part = served.exporter.page(PLAIN, frozenset({"core"}))

    assert set(part.body.splitlines()) <= set(whole.body.splitlines())
    assert served.exporter.page(PLAIN, frozenset({"core"})) is part
    served.clock.advance(1.0)
    assert served.exporter.page(PLAIN, frozenset({"core"})) is not part


def test_parts_that_are_kept_are_bounded() -> None:
    """Whatever combinations a client thinks of."""
    served = Page()
    for first in GROUP_NAMES:
        for second in GROUP_NAMES:
            served.exporter.page(PLAIN, frozenset({first, second}))

    (cached,) = served.exporter._cache.values()
    assert len(cached.parts) <= _MOST_PARTS


def test_other_exporters_names_are_on_the_whole_page_only() -> None:
    """A part has what was asked for."""
    served = Page()
    exporter = Exporter(
        served.core,
        served.clock,
        node_id="n",
        top_processes=4,
        own_process=False,
        foreign=lambda _, text: text + b"foreign 1\n",
    )

    assert b"foreign" in exporter.page(PLAIN).body
    assert b"foreign" not in exporter.page(PLAIN, frozenset({"core"})).body


def test_what_a_query_asks_for() -> None:
    """collect[] as often as one likes, escaped or not; nothing else is looked at."""
    assert groups_in("collect[]=core&collect%5B%5D=pcie", GROUP_NAMES) == frozenset({"core", "pcie"})
    assert groups_in("target=x", GROUP_NAMES) is None
    assert groups_in("", GROUP_NAMES) is None


@pytest.mark.parametrize(
    ("query", "served", "words"),
    [
        ("collect[]=dcgm", GROUP_NAMES, "'dcgm' is no group of metrics; groups here are core, profiling,"),
        ("collect[]=", GROUP_NAMES, "'' is no group of metrics"),
        ("collect[]=nvlink_links", ("core",), "'nvlink_links' is not on this agent's page (agent.metrics)"),
        ("collect[]=core", (), "groups here are none: agent.compat_only is set"),
    ],
)
def test_a_group_that_is_not_there_is_refused_with_those_that_are(
    query: str, served: Collection[str], words: str
) -> None:
    """Rather than an empty page, which would look like a host without GPUs."""
    with pytest.raises(ValueError, match=re.escape(words)):
        groups_in(query, served)


# What is read for it.


def settings(**changed: object) -> AgentSettings:
    """An agent's settings."""
    return msgspec.convert(changed, AgentSettings)


def test_the_probe_is_told_what_to_read() -> None:
    """The flag that the supervisor gives is one that the probe understands."""
    asked = settings(metrics=["default", "clocks"])
    command = probe_command(asked)
    arguments = flags().parse_args(command[command.index("probe") + 1 :])

    assert arguments.metrics == groups_to_read(asked) == DEFAULT_GROUPS | {"clocks"}


def test_an_unknown_group_is_refused_by_the_probe(capsys: pytest.CaptureFixture[str]) -> None:
    """With the names that there are."""
    with pytest.raises(SystemExit):
        flags().parse_args(["--metrics", "core,nonsense"])

    assert "'nonsense' is not a group of metrics; groups are core, profiling" in capsys.readouterr().err


@pytest.mark.parametrize("name", DIALECTS)
def test_what_other_exporters_names_need_is_read_though_it_is_not_shown(name: str) -> None:
    """They add to what is read; compat_only takes all of ours off the page."""
    both, only = settings(compat=[name]), settings(compat=[name], compat_only=True)

    assert exported_groups(both) == DEFAULT_GROUPS
    assert groups_to_read(both) == DEFAULT_GROUPS | load(name).groups
    assert exported_groups(only) == frozenset()
    assert groups_to_read(only) == load(name).groups


def test_with_other_exporters_names_alone_nothing_of_ours_is_on_the_page() -> None:
    """As many series as that exporter has."""
    assert Page(exported_groups(settings(compat=["dcgm"], compat_only=True))).text() == ""
