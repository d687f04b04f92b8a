"""dashboards/*.json: what can be known of them without a Grafana. docs/dashboards.md says what cannot."""

import json
import re
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import promql_parser
import pytest
import yaml

from dashboards.source.__main__ import BOARDS, rendered
from dashboards.source.boards import UIDS
from gpuwatch.agent.exporter.catalogue import FAMILIES
from gpuwatch.controller import metrics
from tests.support.dashboards import CHOSEN, FOLDER, NAMES, Json, load, panels, substituted, variables
from tests.support.paths import ROOT

# https://grafana.com/docs/grafana/latest/panels-visualizations/configure-standard-options/#unit, by their ids.
UNITS = {
    "Bps",
    "bytes",
    "celsius",
    "cps",
    "dateTimeFromNow",
    "hertz",
    "locale",
    "none",
    "percentunit",
    "s",
    "watt",
}
MODERN = {"bargauge", "row", "stat", "state-timeline", "table", "timeseries"}
TARGET = {"job", "instance", "cluster"}  # labels that Prometheus gives
METRICS = {
    series: labels for family in (*FAMILIES.values(), *metrics.families()) for series, labels in family.series.items()
}


def expressions(board: Json) -> Iterator[tuple[str, str]]:
    """Every query with its panel's title."""
    for panel in panels(board):
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def selectors(expression: str) -> Iterator[Any]:
    """Every vector selector of a query."""
    todo = [promql_parser.parse(substituted(expression))]
    while todo:
        node = todo.pop()
        if isinstance(node, promql_parser.VectorSelector):
            yield node
        for part in ("expr", "lhs", "rhs", "vector_selector", "args", "param"):
            inner = getattr(node, part, None)
            todo += inner if isinstance(inner, list) else [] if inner is None else [inner]


@pytest.mark.parametrize("name", NAMES)
def test_the_file_is_what_its_source_makes(name: str) -> None:
    """`python -m dashboards.source` was run after the last change."""
    assert (FOLDER / f"{name}.json").read_text(encoding="utf-8") == rendered(name)


def test_no_file_is_there_without_a_source() -> None:
    """What is provisioned is what is tested."""
    assert {path.stem for path in FOLDER.glob("*.json")} == set(BOARDS) == set(UIDS)


@pytest.mark.parametrize("name", NAMES)
def test_every_query_asks_for_metrics_and_labels_that_exist(name: str) -> None:
    """Each parses, each name is in a catalogue, and so is each label that it matches."""
    wrong = []
    for title, expression in expressions(load(name)):
        found = list(selectors(expression))
        assert found, title
        for selector in found:
            known = METRICS.get(selector.name)
            if known is None:
                wrong.append(f"{title}: there is no metric {selector.name}")
                continue
            labels = {matcher.name for matcher in selector.matchers.matchers}
            wrong += [f"{title}: {selector.name} has no {label}" for label in labels - {*known, *TARGET}]

    assert wrong == []


@pytest.mark.parametrize("name", NAMES)
def test_every_query_says_whose_series_it_asks_for(name: str) -> None:
    """By the job of the controllers or of the agents, so that a second fleet in the same Prometheus is not mixed in."""
    without = {
        (title, selector.name)
        for title, expression in expressions(load(name))
        for selector in selectors(expression)
        if "job" not in {matcher.name for matcher in selector.matchers.matchers}
    }

    assert without == set()


@pytest.mark.parametrize("name", NAMES)
def test_rates_are_taken_over_what_grafana_says_is_enough(name: str) -> None:
    """Over $__rate_interval, or over the whole range that is shown."""
    windows = re.compile(r"\[([^]]+)\]")
    others = {
        (title, window)
        for title, expression in expressions(load(name))
        for window in windows.findall(expression)
        if window not in {"$__rate_interval", "$__range", "$__range:10m"}
    }

    assert others == set()


@pytest.mark.parametrize("name", NAMES)
def test_every_panel_has_a_title_a_description_a_unit_and_the_chosen_data_source(name: str) -> None:
    """Nothing is hard-coded, nothing is of a kind that Grafana has given up."""
    for panel in panels(load(name)):
        text = f"{panel['title']} ({panel['type']})"
        units = {
            each["value"]
            for override in panel["fieldConfig"]["overrides"]
            for each in override["properties"]
            if each["id"] == "unit"
        }

        assert panel["title"].strip(), panel["id"]
        assert panel["description"].endswith("."), text
        assert panel["type"] in MODERN, text
        assert panel["targets"], text
        assert {panel["fieldConfig"]["defaults"]["unit"], *units} <= UNITS, text
        for source in (panel["datasource"], *(target["datasource"] for target in panel["targets"])):
            assert source == {"type": "prometheus", "uid": "${datasource}"}, text


@pytest.mark.parametrize("name", NAMES)
def test_panels_lie_on_the_grid_and_not_on_each_other(name: str) -> None:
    """24 columns; ids are unique; a folded row's panels begin where it ends."""
    board = load(name)
    everything = [*board["panels"], *(inner for row in board["panels"] for inner in row.get("panels", []))]
    ids = [panel["id"] for panel in everything]

    assert len(ids) == len(set(ids))
    for shown in (board["panels"], *(row["panels"] for row in board["panels"] if row.get("panels"))):
        cells = [(panel["title"], panel["gridPos"]) for panel in shown]
        for title, place in cells:
            assert place["x"] + place["w"] <= 24, title
        for (title, one), (other_title, other) in combinations(cells, 2):
            apart = (
                one["x"] + one["w"] <= other["x"]
                or other["x"] + other["w"] <= one["x"]
                or one["y"] + one["h"] <= other["y"]
                or other["y"] + other["h"] <= one["y"]
            )
            assert apart, f"{title} lies on {other_title}"


@pytest.mark.parametrize("name", NAMES)
def test_every_variable_that_is_used_is_there_and_every_one_that_is_there_is_used(name: str) -> None:
    """In queries, titles and other variables; what a link brings along may be used by the dashboard that it opens."""
    board = load(name)
    own = variables(board)
    text = json.dumps([board["panels"], own])
    used = set(re.findall(r"\$\{?([a-z_]\w*)", text)) - {each for each in CHOSEN if each.startswith("__")}
    used -= {"__value", "__url_time_range", "__all"}

    assert used == set(own)
    assert {"datasource", "job"} <= set(own)


@pytest.mark.parametrize("name", NAMES)
def test_variables_ask_for_labels_that_metrics_have(name: str) -> None:
    """Each is `label_values(series, label)` of the chosen data source, and is asked again with the time range."""
    for key, each in variables(load(name)).items():
        if each["type"] == "datasource":
            assert each["query"] == "prometheus"
            continue
        found = re.fullmatch(r"label_values\((.+), (\w+)\)", each["query"]["query"])
        assert found is not None, key
        (selector,) = selectors(found[1])

        assert found[2] in {*METRICS[selector.name], *TARGET}, key
        assert each["datasource"]["uid"] == "${datasource}"
        assert each["refresh"] == 2


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_to_dashboards_that_are_there(name: str) -> None:
    """From each to all others with the time range, and from a machine's id to its own, whose variables it sets."""
    board = load(name)
    there = {load(each)["uid"]: variables(load(each)) for each in NAMES}
    assert {link["url"] for link in board["links"]} == {f"/d/{uid}" for uid in there if uid != board["uid"]}
    assert all(link["keepTime"] and link["includeVars"] for link in board["links"])
    for url in re.findall(r'"url": "(/d/[^"]+)"', json.dumps(board["panels"])):
        uid, _, query = url.removeprefix("/d/").partition("?")

        assert uid in there
        assert set(re.findall(r"var-(\w+)=", query)) <= set(there[uid])


def test_one_state_has_one_colour_on_all_dashboards() -> None:
    """Busy is blue wherever it is shown; so with all states and uses."""
    colours: dict[str, set[str]] = {}
    for name in NAMES:
        for panel in panels(load(name)):
            for override in panel["fieldConfig"]["overrides"]:
                for each in override["properties"]:
                    if each["id"] == "color" and override["matcher"]["options"] in {
                        "busy",
                        "idle",
                        "occupied",
                        "parked",
                        "stalled",
                    }:
                        colours.setdefault(override["matcher"]["options"], set()).add(each["value"]["fixedColor"])
            for text, colour in re.findall(r'"color": "([^"]+)", "index": \d+, "text": "(\w+)"', json.dumps(panel)):
                if colour in {"busy", "occupied", "parked", "stalled"}:
                    colours.setdefault(colour, set()).add(text)

    assert set(colours) == {"busy", "idle", "occupied", "parked", "stalled"}
    assert {state: len(found) for state, found in colours.items()} == dict.fromkeys(colours, 1)


def test_provisioning_names_one_data_source_and_the_folder_of_the_dashboards() -> None:
    """The provider's folder and the data source are what docs/dashboards.md says to put there."""
    result = yaml.safe_load((FOLDER / "provisioning/dashboards/gpuwatch.yaml").read_text(encoding="utf-8"))
    source = yaml.safe_load((FOLDER / "provisioning/datasources/gpuwatch.yaml").read_text(encoding="utf-8"))
    (provider,), (data,) = result["providers"], source["datasources"]

    assert (result["apiVersion"], source["apiVersion"]) == (1, 1)
    assert provider["type"] == "file"
    assert provider["options"]["path"] in (ROOT / "docs/dashboards.md").read_text(encoding="utf-8")
    assert (data["type"], data["access"]) == ("prometheus", "proxy")
    assert "timeInterval" in data["jsonData"]
