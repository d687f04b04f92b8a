"""cli/console: the states have the same colours on the fleet page, on terminals and in Grafana."""

import json
import re
from typing import Any

import pytest

from dashboards.source import parts
from gpuwatch.cli.console import STATE_COLOURS
from gpuwatch.model.activity import State
from tests.support.paths import ROOT

CSS = (ROOT / "gpuwatch/controller/web/page.css").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", STATE_COLOURS)
def test_the_page_has_these_colours(name: str) -> None:
    """As `light-dark(…)` of a variable with the state's name."""
    colour = STATE_COLOURS[name]

    assert re.search(rf"--{name}: light-dark\((\S+), (\S+)\);", CSS) is not None, name
    assert f"--{name}: light-dark({colour.light}, {colour.dark});" in CSS


def test_every_state_has_a_colour_of_its_own() -> None:
    """No two are alike, whatever the terminal shows."""
    of_states = [STATE_COLOURS[state.value] for state in State]

    assert len({colour.light for colour in of_states}) == len({colour.ansi for colour in of_states}) == len(State)


@pytest.mark.parametrize("state", [state.value for state in State])
def test_grafana_has_these_colours(state: str) -> None:
    """In what the dashboards are made of, and wherever one of them names a state."""
    colour = STATE_COLOURS[state].light
    shown = {
        each
        for board in (ROOT / "dashboards").glob("*.json")
        for each in _colours(json.loads(board.read_text()), state)
    }

    assert parts.COLOURS[state] == colour
    assert shown == {colour}


def _colours(found: Any, state: str) -> set[str]:  # noqa: ANN401  JSON
    """The colours that anything within gives to a state: to its series, or to the value that it stands for."""
    if isinstance(found, list):
        return set().union(*(_colours(each, state) for each in found))
    if not isinstance(found, dict):
        return set()
    here = set()
    if found.get("text") == state and "color" in found:
        here.add(found["color"])
    if isinstance(found.get("matcher"), dict) and found["matcher"].get("options") == state:
        here |= {each["value"]["fixedColor"] for each in found["properties"] if each["id"] == "color"}
    return here.union(*(_colours(each, state) for each in found.values()))
