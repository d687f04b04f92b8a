"""Questions of every day: from the list of all pages their answer is two clicks away at most."""

import re
from pathlib import Path

import pytest

from tests.support.paths import ROOT

CONTENTS = ROOT / "docs/README.md"
# The question, the words of each link from docs/README.md on, the heading of the answer ("": the page's top), and what
# the answer says.
QUESTIONS = {
    "How do I try it without a GPU?": (["the demo"], "", "gpuwatch demo"),
    "Can it stop my work?": (["Questions"], "Can it stop my work?", "P1"),
    "Why is this machine not stopped?": (["Questions"], "Why …", "gpuwatch explain"),
    "How do I keep my machine for four hours?": (["your own commands"], "Is it in use", "gpuwatch snooze"),
    "How does a person hear of a stop, by mail or Slack?": (["notifications"], "Send the first mail", "mail"),
    "How long must a machine be idle, and where do I set it?": (
        ["Settings", "`pools`"],
        "`pools.<name>.idle`",
        "timeout",
    ),
    "Which rights does it need on AWS?": (["AWS"], "From zero", "gpuwatch export iam"),
    "How do I pause everything at once?": (["operations"], "Pausing", "gpuwatch pause"),
    "How do I back up the ledger?": (["operations"], "Backup and restore", ".backup"),
    "This alert woke me: what do I do?": (["alerts", "GpuNodeIdle"], "GpuNodeIdle", "Check"),
    "What did my team spend this month?": (["money"], "Cost", "gpuwatch cost"),
    "How do I limit what a team spends?": (["budgets, bills, exports"], "Budgets", "block_growth"),
}


def followed(page: Path, words: str) -> Path:
    """The page that the first link with these words leads to."""
    found = re.search(rf"\[{re.escape(words)}\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
    assert found is not None, f"{page.name} has no link {words}"
    return (page.parent / found[1]).resolve()


def section(page: Path, heading: str) -> str:
    """What stands under a heading, with what is below it."""
    text = page.read_text(encoding="utf-8")
    if not heading:
        return text
    level, rest = re.split(rf"^(#+) {re.escape(heading)}\n", text, maxsplit=1, flags=re.MULTILINE)[1:]
    return re.split(rf"^#{{1,{len(level)}}} ", rest, maxsplit=1, flags=re.MULTILINE)[0]


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_answer_is_two_clicks_away(question: str) -> None:
    """Each link is on the page before, and the answer under its heading."""
    clicks, heading, answer = QUESTIONS[question]
    page = CONTENTS
    for words in clicks:
        page = followed(page, words)

    assert len(clicks) <= 2
    assert answer in section(page, heading)
