"""dashboards/*.json on a real Prometheus: every query finds what the demo fleet's pages hold.

The fleet's day has what a healthy one has not: lost GPUs, XIDs, notices of the cloud, a pause, budgets in danger
(dashboard_story.py, dashboard_agent.py). So no query may be empty, whatever its dashboard is for.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.builders.dashboard_story import RULES_CHANGE, Story
from tests.support.dashboards import LOOKBACK, NAMES, Asked, Rows, load, panels, variables
from tests.support.real.tsdb import prometheus

pytestmark = pytest.mark.component("prometheus")


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    """Asked by all tests of this file."""
    story = Story().played()
    with prometheus(tmp_path_factory.mktemp("prometheus") / "story", story.history, lookback=LOOKBACK) as url:
        yield Asked(url, story)


def values(rows: Rows) -> list[float]:
    """The newest of each row."""
    return sorted(float((row["values"][-1] if "values" in row else row["value"])[1]) for row in rows)


def _panel(name: str, title: str) -> dict[str, Any]:
    (found,) = (each for each in panels(load(name)) if each["title"] == title)
    return found


def test_no_query_of_any_panel_is_empty_or_refused(asked: Asked) -> None:
    """Each as its panel asks it, for the machine that is unwell and for all pools."""
    empty = [
        f"{name}: {panel['title']}: {target['expr']}"
        for name in NAMES
        for panel in panels(load(name))
        for target in panel["targets"]
        if not asked.of(target)
    ]

    assert empty == [], "\n".join(empty)


def test_each_choice_of_pool_narrows_what_is_shown(asked: Asked) -> None:
    """A pool that nobody has shows nothing of any pool's machines, and one that is there shows only its own."""
    (target,) = _panel("fleet", "GPUs on")["targets"]
    by_pool = {pool: values(asked.of(target, pool=pool)) for pool in ("training", "research", "none", ".*")}

    assert by_pool["none"] == []
    assert 0 < by_pool["training"][0] + by_pool["research"][0] < by_pool[".*"][0]


def test_a_fleet_or_a_cluster_that_is_not_chosen_is_not_shown(asked: Asked) -> None:
    """The demo is fleet `demo` of cluster `lab`: chosen by name it is all there, and of another one nothing is."""
    (target,) = _panel("fleet", "GPUs on")["targets"]
    shown = values(asked.of(target))

    assert values(asked.of(target, fleet="demo", cluster="lab")) == shown > []
    assert values(asked.of(target, fleet="other")) == values(asked.of(target, cluster="other")) == []


def test_columns_of_tables_are_labels_or_values_that_their_queries_give(asked: Asked) -> None:
    """A column that no row has would be missing in the table without a word."""
    missing = []
    for name in NAMES:
        for panel in (each for each in panels(load(name)) if each["type"] == "table"):
            rows = [row for target in panel["targets"] for row in asked.of(target)]
            several = len(panel["targets"]) > 1
            found = {label for row in rows for label in row["metric"]}
            found |= {f"Value #{target['refId']}" if several else "Value" for target in panel["targets"]}
            (columns,) = (way["options"] for way in panel["transformations"] if way["id"] == "organize")
            missing += [f"{name}: {panel['title']}: {each}" for each in set(columns["indexByName"]) - found]

    assert missing == []


def test_variables_offer_something_to_choose(asked: Asked) -> None:
    """Each variable's label is on its series."""
    for name in NAMES:
        for key, each in variables(load(name)).items():
            if each["type"] == "query":
                selector, _, label = each["query"]["query"].removeprefix("label_values(").rstrip(")").rpartition(", ")
                offered = {row["metric"].get(label) for row in asked.over_time(selector, **asked.chosen)}

                assert offered - {None, ""}, f"{name}: {key}"


def test_the_five_questions_are_answered_by_what_the_round_said(asked: Asked) -> None:
    """On, busy, wasted, unknown add up; what is saved is the price of what gpuwatch stopped."""
    document = {
        title: values(asked.of(_panel("fleet", title)["targets"][0]))
        for title in (
            "GPUs on",
            "Busy GPUs",
            "Wasted GPUs",
            "Unknown GPUs",
            "Machines at risk",
            "Saved per hour ($currency)",
        )
    }
    parts = document["Busy GPUs"][0] + document["Wasted GPUs"][0] + document["Unknown GPUs"][0]

    assert all(len(found) == 1 for found in document.values()), document
    assert document["GPUs on"][0] == parts > 0
    assert document["Machines at risk"][0] >= 1
    assert document["Saved per hour ($currency)"][0] > 0


def test_a_controller_that_waits_is_not_counted(asked: Asked) -> None:
    """Of two controllers one leads; each machine is there once."""
    running = values(asked.of(_panel("fleet", "Machines on")["targets"][0]))
    rows = asked.now(f"sum(gpuwatch_fleet_nodes{{state={json.dumps('running')}}})")

    assert values(asked.now("count(gpuwatch_controller_leader)")) == [2]
    assert values(asked.of(_panel("controller", "Leaders")["targets"][0])) == [1]
    assert running == values(rows)


def test_a_stat_shows_one_series(asked: Asked) -> None:
    """More would be squeezed beside each other into a panel that was made for one."""
    several = {
        f"{name}: {panel['title']}": len(rows)
        for name in NAMES
        for panel in panels(load(name))
        if panel["type"] == "stat" and len(rows := asked.of(panel["targets"][0])) != 1
    }

    assert several == {}


def test_the_first_weeks_stand_against_the_last_ones(asked: Asked) -> None:
    """Hand arithmetic: of 280 hours at ten dollars in four weeks 200 are left, with more useful work; by owner, too."""
    shown = {
        title: values(asked.of(_panel("cost", title)["targets"][0]))
        for title in (
            "Wasted a week at first ($currency)",
            "Wasted a week now ($currency)",
            "Difference a week ($currency)",
            "Avoided a week ($currency)",
            "GPU-hours wasted a week at first",
            "GPU-hours wasted a week now",
        )
    }
    table = _panel("cost", "Then and now by owner, money in $currency")["targets"]
    differences = {
        (row["metric"]["pool"], row["metric"]["owner"]): values([row])[0] for row in asked.of(table[4], pool=".*")
    }

    assert [each for (each,) in shown.values()] == pytest.approx([700, 500, -200, 354, 70, 50])
    assert differences == {("training", "ana"): -250, ("research", "ben"): 0, ("research", "nobody"): 50}


def test_a_change_of_rules_is_marked_when_it_was_and_only_for_its_pool(asked: Asked) -> None:
    """In the middle of the story the pool research got other rules."""
    (rules,) = (each for each in _panel("cost", "What changed")["targets"] if "rules" in each["legendFormat"])
    marked = {
        row["metric"]["pool"]: [float(at) for at, value in row["values"] if float(value) > 0] for row in asked.of(rules)
    }
    at = marked.pop("research")

    assert not any(marked.values())
    assert marked
    assert RULES_CHANGE.timestamp() <= at[0] <= at[-1] <= RULES_CHANGE.timestamp() + 300
