"""The dashboards' files: names, panels, variables, and their queries asked of a Prometheus."""

import json
import re
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

from dashboards.source.__main__ import BOARDS
from tests.support.builders.dashboard_story import ENDS, Story
from tests.support.paths import ROOT

FOLDER = ROOT / "dashboards"
Json = dict[str, Any]
# Grafana's own variables, and ours, as one would choose them.
CHOSEN = {
    "__rate_interval": "4m",
    "__range": "3h",
    "__interval": "1m",
    "job": "gpuwatch-controller",
    "agents": "gpuwatch",
    "agent_job": "gpuwatch",
    "cluster": ".*",
    "fleet": ".*",
    "pool": ".*",
    "node": "i-1",
    "instance": "10.0.0.1:9460",
    "gpu": ".*",
    "budget": "research",
    "currency": "USD",
    "datasource": "prometheus",
}
NAMES = sorted(BOARDS)


def substituted(text: str, **chosen: str) -> str:
    """With its variables filled in; one that is not known stays, and fails to parse."""
    values = {**CHOSEN, **chosen}
    return re.sub(r"\$\{?(\w+)\}?", lambda found: values.get(found[1], found[0]), text)


def load(name: str) -> Json:
    """A dashboard as it is in the repository."""
    board: Json = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return board


def panels(board: Json) -> Iterator[Json]:
    """Every panel, those of folded rows too, without the rows."""
    for panel in board["panels"]:
        yield from panel.get("panels", [])
        if panel["type"] != "row":
            yield panel


def variables(board: Json) -> dict[str, Json]:
    """By name."""
    return {each["name"]: each for each in board["templating"]["list"]}


Rows = list[dict[str, Any]]
STEP = 60
LOOKBACK = "30s"  # queries fall on scrapes


class Asked:
    """A Prometheus that has the story, and how to ask it as Grafana does."""

    def __init__(self, url: str, story: Story) -> None:
        """It is up."""
        self.url = url
        self.story = story
        agent = self.now("gpuwatch_node_info", node="")
        instance = next(row["metric"]["instance"] for row in agent if row["metric"]["node_id"] == story.patient_id)
        self.chosen = {"node": story.patient_id, "instance": instance}

    def now(self, expression: str, **chosen: str) -> Rows:
        """At the story's end."""
        return self._ask("query", {"query": substituted(expression, **chosen), "time": f"{ENDS}"})

    def over_time(self, expression: str, **chosen: str) -> Rows:
        """Over its last three hours."""
        times = {"start": f"{ENDS - 3 * 3600}", "end": f"{ENDS}", "step": f"{STEP}"}
        return self._ask("query_range", {"query": substituted(expression, **chosen), **times})

    def of(self, target: dict[str, Any], **chosen: str) -> Rows:
        """What a panel's query gives."""
        return (self.now if target["instant"] else self.over_time)(target["expr"], **{**self.chosen, **chosen})

    def _ask(self, path: str, query: dict[str, str]) -> Rows:
        body = urllib.parse.urlencode(query).encode()
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}", data=body, timeout=60) as answer:  # noqa: S310  our own
            found: Rows = json.load(answer)["data"]["result"]
        return found
