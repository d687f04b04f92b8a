"""docs/slurm.md has the rules on waiting jobs from the modules that keep them."""

import pytest

from gpuwatch.model import slurm_queue, slurm_wake
from gpuwatch.model.duration import format_duration
from tests.support.paths import ROOT
from tools.docs.slurm_rules import with_rules

PAGE = (ROOT / "docs/slurm.md").read_text(encoding="utf-8")


def test_the_rules_are_those_of_the_code() -> None:
    """All of both modules, in order, with each constant as the time that it is."""
    rules = [line[0] for line in PAGE.partition("<!-- rules of slurm_queue -->")[2].splitlines() if line[1:3] == ". "]
    docstrings = f"{slurm_queue.__doc__}{slurm_wake.__doc__}".splitlines()

    assert with_rules(PAGE) == PAGE, "run `make docs`"
    assert rules == [line[0] for line in docstrings if line[1:3] == ". "]
    assert f"has waited for resources for {format_duration(slurm_queue.LOOK_SECONDS)}" in PAGE
    assert "LOOK_SECONDS" not in PAGE


def test_a_page_without_its_places_is_a_mistake() -> None:
    """Else a moved marker would leave old rules on the page."""
    with pytest.raises(ValueError, match=r"for the rules of \[\], expected \['slurm_queue', 'slurm_wake'\]"):
        with_rules("# Slurm\n")
