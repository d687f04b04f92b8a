"""What we ship works on an agent with the default groups of metrics; what needs another group says so."""

import re
from collections.abc import Iterator

import pytest
import yaml

from gpuwatch.agent.exporter.catalogue import FAMILIES
from gpuwatch.controller.observe import exporters
from gpuwatch.model.metric import DEFAULT_GROUPS, GROUP_NAMES, GROUPS, chosen_groups
from gpuwatch.simulate.backtest.sources import questions
from tests.support.dashboards import NAMES as BOARDS
from tests.support.dashboards import load, panels
from tests.support.paths import ROOT
from tools.docs.metrics import render_metrics_md
from tools.docs.sizing import render_sizing_md

METRIC = re.compile(r"\b(?:gpuwatch|process)_\w+")


def groups_of(expression: str) -> set[str]:
    """The groups of the agent's metrics that a query asks for."""
    return {FAMILIES[name].group for name in METRIC.findall(expression) if name in FAMILIES}


def rules(name: str) -> Iterator[tuple[str, str]]:
    """Each rule's name and expression."""
    for group in yaml.safe_load((ROOT / "alerts" / name).read_text(encoding="utf-8"))["groups"]:
        for rule in group["rules"]:
            yield rule.get("alert") or rule["record"], rule["expr"]


@pytest.mark.parametrize("name", ["gpuwatch.yml", "recording.yml"])
def test_alerts_and_recording_rules_need_the_default_groups_alone(name: str) -> None:
    """An alert that could never fire would be worse than none."""
    assert {rule: found for rule, expr in rules(name) if (found := groups_of(expr) - DEFAULT_GROUPS)} == {}


@pytest.mark.parametrize("name", BOARDS)
def test_a_panel_needs_the_default_groups_or_names_the_other_one(name: str) -> None:
    """Its description ends with the setting, and it is in a folded row."""
    board = load(name)
    for panel in panels(board):
        needed = {group for target in panel["targets"] for group in groups_of(target["expr"])} - DEFAULT_GROUPS
        said = re.search(r"Needs agent\.metrics: \[default, (.+)\]\.$", panel["description"])

        assert needed == (set(said[1].split(", ")) if said else set()), panel["title"]
        assert not needed or panel not in board["panels"], panel["title"]


def test_the_controller_and_backtests_ask_for_core_alone() -> None:
    """A node's verdict is there whatever its agent exports; SM activity is a measure that may be missing."""
    asked = (
        exporters._AGENT_QUERIES,
        exporters._AGENT_RECORDED,
        questions._AGENT_QUERIES,
        questions._AGENT_FACTS,
    )

    assert {group for queries in asked for query in queries.values() for group in groups_of(query)} == chosen_groups([])
    assert {name: groups_of(query) for name, query in exporters._AGENT_MEASURES.items()} == {
        "gpu_utilization": {"core"},
        "gpu_memory": {"core"},
        "cpu_utilization": {"core"},
        "sm_activity": {"profiling"},
    }


def test_the_page_of_metrics_lists_each_group_with_its_cost() -> None:
    """A row in the table, and a section with its metrics."""
    page = render_metrics_md()
    for name in GROUP_NAMES:
        section = re.search(rf"^## {name}\n(.+)\n\n\| name ", page, re.MULTILINE)

        assert section is not None, name
        assert section[1] == GROUPS[name].about
        assert re.search(rf"^\| \[`{name}`\]\(#{name}\) \| (yes)? \| \d+ \| \d+ \|", page, re.MULTILINE), name


def test_the_page_of_sizes_is_up_to_date() -> None:
    """docs/sizing.md is what `make docs` writes."""
    assert (ROOT / "docs" / "sizing.md").read_text(encoding="utf-8") == render_sizing_md()
