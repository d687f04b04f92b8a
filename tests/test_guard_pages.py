"""The guard's pages say what its rules do: verbs, knobs and sentences as the code has them."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from gpuwatch.config.settings import Settings
from gpuwatch.guard import RULES, Limits, judge
from gpuwatch.model.decision import Verb
from gpuwatch.policies import PoolRules
from gpuwatch.policies.idle import IdleRules
from tests.spoiled import SPOILED, a_case
from tests.spoiled_growth import SPOILED_GROWTH
from tests.spoiled_notices import SPOILED_NOTICES

ROOT = Path(__file__).parent.parent
PAGES = ROOT / "docs/guard"
PARTS = {"": Settings, "limits.": Limits, "pools.<name>.": PoolRules, "pools.<name>.idle.": IdleRules}
KNOBS = {f"{path}{each.name}" for path, knobs in PARTS.items() for each in fields(knobs)}


def told(name: str, word: str) -> set[str]:
    """What a rule's page lists after that word."""
    text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    found = re.search(rf"^{word}: (.*)$", text, re.MULTILINE)
    assert found is not None, f"{name}.md has no line of {word}"
    return set(re.findall(r"`([^`]+)`", found[1]))


def test_every_rule_has_its_page_and_every_page_its_rule() -> None:
    """The README lists them all, in the order in which they run."""
    listed = re.findall(r"^\| \[(\w+)\]\((\w+)\.md\)", (PAGES / "README.md").read_text(encoding="utf-8"), re.MULTILINE)

    assert listed == [(name, name) for name in RULES]
    assert {page.stem for page in PAGES.glob("*.md")} == {*RULES, "README"}


@pytest.mark.parametrize("name", RULES)
def test_a_page_names_the_verbs_that_its_rule_is_put_to(name: str) -> None:
    """Taking a verb from a rule, or giving it one, is a change of what people rely on."""
    verbs, _ = RULES[name]

    assert told(name, "Verbs") == {verb.value for verb in Verb if verb in verbs}


@pytest.mark.parametrize("name", RULES)
def test_a_page_names_knobs_that_there_are(name: str) -> None:
    """Each is a key of the configuration, as its own page has it."""
    assert told(name, "Knobs") <= KNOBS


@pytest.mark.parametrize("name", RULES)
def test_a_page_quotes_the_rule(name: str) -> None:
    """The sentence and its remedy are printed as the page shows them."""
    quoted = re.findall(r"^> (.*)$", (PAGES / f"{name}.md").read_text(encoding="utf-8"), re.MULTILINE)
    said = [
        f"{answer.sentence} {answer.remedy}"
        for _, rule, spoil, _ in [*SPOILED, *SPOILED_GROWTH, *SPOILED_NOTICES]
        if rule == name
        for answer in judge(spoil(a_case())).refusals
        if answer.rule == name
    ]

    assert quoted
    assert set(quoted) <= set(said)
