"""What people read is plain English: pages, alerts, dashboards, messages, docstrings and the text of every setting."""

import ast
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tools.docs.prose import faults, literals, modules, pages, problems

ROOMS = sorted(path.name for path in (ROOT / "gpuwatch").iterdir() if path.is_dir() and path.name != "__pycache__")


def test_pages_are_plain() -> None:
    """Those by hand, those generated, annotations of alerts, texts of dashboards, comments of the examples."""
    found = [fault for path in pages() for fault in faults(path)]

    assert found == [], "\n" + "\n".join(found)


@pytest.mark.parametrize("room", ROOMS)
def test_what_the_code_says_is_plain(room: str) -> None:
    """Messages, settings, help and docstrings."""
    found = [fault for path in modules(room) for fault in faults(path)]

    assert found == [], "\n" + "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "If there is none, the node stays.",
        "The owner is told of it.",
        "Whoever needs it says so.",
        "The agent lets the GPUs go.",
        "Mind: no backtest.",
        "Note: no backtest.",
        "WARNING: no backtest.",
        "word " * 36,
        "The node is held, and said so.",
        "The agent says what it knows of it.",
        "Pods likewise.",
        "A node with such a one stays.",
        "It stops none that somebody needs.",
        "Not without a notice.",
        "Use a tag, e.g. one of these.",
        "Tags, labels, etc. are kept.",
        "Pods shall wait.",
        "The pool \0 keeps the node, and nothing is known of it.",
    ],
)
def test_what_is_not_plain_is_found(text: str) -> None:
    """One example of several rules each."""
    assert list(problems(text)) != []


@pytest.mark.parametrize(
    "text",
    [
        "None of them has a GPU.",
        "Set `told` or `is none`.",
        "It cannot tell why.",
        "It stops 12 of them, or all of it.",
        "Warning: read /etc/gpuwatch, and VS Code's docs.",
        "The rules are " + "busy, " * 40 + "idle.",
    ],
)
def test_what_is_plain_passes(text: str) -> None:
    """False alarms would teach people to ignore this test."""
    assert list(problems(text)) == []


def test_a_fault_has_its_file_its_line_its_rule_and_its_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a page, in a file of alerts, and in code, where an f-string is one sentence."""
    monkeypatch.setattr("tools.docs.prose.ROOT", tmp_path)
    (tmp_path / "page.md").write_text("# Page\n\nAll is well.\nThe owner is told.\n", encoding="utf-8")
    (tmp_path / "alerts.yml").write_text("summary: The owner is told.\n", encoding="utf-8")
    (tmp_path / "code.py").write_text('"""One module."""\n\nX = f"The {owner} {\'is\'} told."\n', encoding="utf-8")
    rule = "write 'says', 'reports', 'shows' or 'was notified'"

    assert [faults(tmp_path / name) for name in ("page.md", "alerts.yml", "code.py")] == [
        [f"page.md:3: {rule}: …All is well. The owner is told.…"],
        [f"alerts.yml:1: {rule}: …The owner is told.…"],
        [f"code.py:3: {rule}: …The x x told.…"],
    ]


def test_an_f_string_is_read_as_one_text() -> None:
    """Else a long sentence with a name in its middle counts as two short ones."""
    tree = ast.parse('def f(a):\n    """Give it."""\n    return f"a {a} b" "c"\n')

    assert list(literals(tree)) == [(3, "a \0 bc")]
