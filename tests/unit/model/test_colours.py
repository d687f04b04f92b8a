"""model/colours: the states have the same colours on the fleet page and on terminals."""

import re

import pytest

from gpuwatch.model.colours import STATE_COLOURS
from gpuwatch.model.fleet import State
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
