"""docs/guard.md is what the guard's rules say of themselves."""

import inspect
import re
from dataclasses import fields

from gpuwatch.config.settings import Settings
from gpuwatch.guard import RULES, Limits
from gpuwatch.guard.settings import WorkloadLimits
from gpuwatch.model.decision import Verb
from gpuwatch.policies import PoolRules
from gpuwatch.policies.health_settings import HealthRules
from gpuwatch.policies.idle import IdleRules
from gpuwatch.policies.kubernetes.idle_pods_settings import IdlePodRules
from gpuwatch.policies.kubernetes.settings import KubernetesRules
from gpuwatch.policies.spot.mix import MixRules
from tests.support.each import for_each
from tests.support.paths import ROOT
from tools.docs.guard import render_guard_md

PAGE = (ROOT / "docs/guard.md").read_text(encoding="utf-8")
PARTS = {
    "": Settings,
    "limits.": Limits,
    "limits.workloads.": WorkloadLimits,
    "pools.<name>.": PoolRules,
    "pools.<name>.idle.": IdleRules,
    "pools.<name>.kubernetes.": KubernetesRules,
    "pools.<name>.kubernetes.pods.": IdlePodRules,
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


FUNCTIONS = {
    f"{each.ask.__module__}.{each.ask.__name__}": each.ask
    for rule in RULES.values()
    for each in (rule.machines, rule.workloads)
    if each is not None
}


@for_each(FUNCTIONS)
def test_every_rule_says_what_it_refuses_and_why(name: str) -> None:
    """Its docstring has a first line, and at least one full sentence after it."""
    first, *more = inspect.cleandoc(FUNCTIONS[name].__doc__ or "").split("\n\n")

    assert first.startswith("Refuses ")
    assert first.endswith(".")
    assert more, f"the docstring of {name} says no more than {first!r}"
    assert all(text.endswith(".") and len(text.split()) > 2 for text in more)
    assert len(" ".join(more).split()) > 7


@for_each(RULES)
def test_the_page_names_the_actions_that_a_rule_applies_to(name: str) -> None:
    """Each by its name, or all of them but some; those of workloads after those of machines."""
    lines = re.findall(r"^Applies to (.+)\.$", section(name), re.MULTILINE)
    found = [part.removesuffix(" of workloads") for line in lines for part in line.split(", and for workloads to ")]
    asked = [each.verbs for each in (RULES[name].machines, RULES[name].workloads) if each is not None]
    every = frozenset(Verb) - {Verb.HOLD}

    assert len(found) == len(asked)
    for text, verbs in zip(found, asked, strict=True):
        named = {Verb(each) for each in re.findall(r"`(\w+)`", text)}
        assert verbs == (every - named if text.startswith("every action") else named)


@for_each(RULES)
def test_a_rule_names_settings_that_exist(name: str) -> None:
    """Each is a key of the configuration."""
    named = re.findall(r"`((?:limits|pools\.<name>)\.[\w.]+)", section(name))

    assert set(named) <= SETTINGS
