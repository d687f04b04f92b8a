"""docs/guard.md is what the guard's rules say of themselves."""

import inspect
import re
from dataclasses import fields

from gpuwatch.config.settings import Settings
from gpuwatch.guard import RULES, Limits
from gpuwatch.model.decision import Verb
from gpuwatch.policies import PoolRules
from gpuwatch.policies.health_settings import HealthRules
from gpuwatch.policies.idle import IdleRules
from gpuwatch.policies.kubernetes.settings import KubernetesRules
from gpuwatch.policies.spot.mix import MixRules
from tests.support.each import for_each
from tests.support.paths import ROOT
from tools.docs.guard import render_guard_md

PAGE = (ROOT / "docs/guard.md").read_text(encoding="utf-8")
PARTS = {
    "": Settings,
    "limits.": Limits,
    "pools.<name>.": PoolRules,
    "pools.<name>.idle.": IdleRules,
    "pools.<name>.kubernetes.": KubernetesRules,
    "pools.<name>.health.": HealthRules,
    "pools.<name>.capacity.": MixRules,
}
SETTINGS = {f"{path}{each.name}" for path, settings in PARTS.items() for each in fields(settings)}


def section(name: str) -> str:
    """A rule's part of the page."""
    return PAGE.split(f"\n## {name}\n")[1].split("\n## ")[0]


def test_the_page_is_up_to_date() -> None:
    """docs/guard.md is what `make docs` writes."""
    assert render_guard_md() == PAGE, "run `make docs`"


def test_every_rule_has_its_place_in_the_page() -> None:
    """In the order in which they run."""
    assert re.findall(r"^## (.+)$", PAGE, re.MULTILINE) == [*RULES]


@for_each(RULES)
def test_every_rule_says_what_it_refuses_and_why(name: str) -> None:
    """Its docstring has a first line, and at least one full sentence after it."""
    _, rule = RULES[name]
    first, *more = inspect.cleandoc(rule.__doc__ or "").split("\n\n")

    assert first.startswith("Refuses ")
    assert first.endswith(".")
    assert more, f"the docstring of {name} says no more than {first!r}"
    assert all(text.endswith(".") and len(text.split()) > 2 for text in more)
    assert len(" ".join(more).split()) > 7


@for_each(RULES)
def test_the_page_names_the_actions_that_a_rule_applies_to(name: str) -> None:
    """Each by its name, or all of them."""
    verbs, _ = RULES[name]
    line = re.search(r"^Applies to (.+)\.$", section(name), re.MULTILINE)

    assert line is not None
    assert re.findall(r"`(\w+)`", line[1]) == [verb.value for verb in Verb if verb in verbs] or (
        line[1] == "every action" and verbs == frozenset(Verb) - {Verb.HOLD}
    )


@for_each(RULES)
def test_a_rule_names_settings_that_exist(name: str) -> None:
    """Each is a key of the configuration."""
    named = re.findall(r"`((?:limits|pools\.<name>)\.[\w.]+)", section(name))

    assert set(named) <= SETTINGS
