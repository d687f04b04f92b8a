"""What people read is plain English: pages, alerts, dashboards, messages, docstrings and the text of every setting."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.paths import ROOT
from tools.docs.__main__ import PAGES as GENERATED

LONGEST_SENTENCE_WORDS = 45
OUTLAWED = {
    "write 'there is no …', or name what is missing": r"\b(?:[Ii]s|[Aa]re|was|were|has|have|be) none\b(?! of)",
    "write 'none of … has'": r"\b[Tt]here (?:is|are) none of\b",
    "write 'says', 'reports', 'shows' or 'was notified'": r"\b(?:tells|told|telling)\b|\btell of\b",
    "name the person or the thing": r"\b(?:whom|whose|whoever|whomever|who(?:so)?ever)\b",
    "write 'again' or 'new'": r"\banew\b",
    "write 'next to', 'besides' or 'with'": r"\bbeside\b",
    "write 'stop' or 'release'": r"\blet(?:s|ting)?\b[^.;:]{0,40}\bgo\b|\b(?:node|machine)s? (?:may|must|can) go\b",
    "write 'what … says', 'message' or 'text'": r"\b(?:the|its|their|his|'s) word (?:of|that|for)\b",
    "write 'Warning:'": r"\bMind:",
    "write 'without notice' or 'not notified'": r"\b(?:untold|unheard)\b",
    "say what is shown and where": r"\baloud\b",
    "say who cannot do what": r"\bso that nobody\b|\blest\b|\bnobody(?:'s)? that\b|\bnothing that nobody\b",
}
# Lists of names, which are no sentences.
WORD_LISTS = {"gpuwatch/agent/processes/known_programs.py", "gpuwatch/clouds/pseudonyms.py"}
FRAGMENTS = r"(?:It|Its|This|That|Them|They|Likewise|The same|The others?|See there|Ditto|As above|So)\."


def problems(text: str) -> Iterator[str]:
    """What is wrong with a text in plain words: `code`, links' addresses and templates do not count."""
    text = re.sub(r"`[^`]*`|\{\{.*?\}\}|\]\([^)]*\)|https?://\S+", "x", text, flags=re.DOTALL)
    text = " ".join(text.split())
    if re.fullmatch(FRAGMENTS, text):
        yield f"say what it is: {text}"
    for remedy, pattern in OUTLAWED.items():
        for found in re.finditer(pattern, text, 0 if "none" in pattern else re.IGNORECASE):
            yield f"{remedy}: …{text[max(0, found.start() - 60) : found.end() + 40]}…"
    for sentence in re.split(r"(?<=[.?!])[)\"”*_]*\s+", text):
        if len(sentence.split()) > LONGEST_SENTENCE_WORDS and "{" not in sentence:
            yield f"{len(sentence.split())} words in one sentence: {sentence[:90]}…"


def paragraphs(page: str) -> Iterator[tuple[int, str]]:
    """The first line and the text of each paragraph, list item and table cell of a page; not of its code blocks."""
    blank = re.sub(r"^```.*?^```", lambda block: "\n" * block[0].count("\n"), page, flags=re.MULTILINE | re.DOTALL)
    start, lines = 1, list[str]()
    for number, line in enumerate([*blank.splitlines(), ""], 1):
        if line.lstrip().startswith("|"):
            yield from ((number, cell) for cell in re.split(r"(?<!\\)\|", line))
        elif not line.strip() or re.match(r"\s*(?:[-*]|\d+\.|#+) ", line):
            yield start, "\n".join(lines)
            start, lines = number, [line]
        else:
            lines.append(line)
    yield start, "\n".join(lines)


def annotations(file: str) -> Iterator[tuple[int, str]]:
    """Every value of a YAML file that is a sentence, and its comments."""
    key = ""
    for token in yaml.scan(file):
        if isinstance(token, yaml.ScalarToken):
            if " " in token.value and key != "expr":
                yield token.start_mark.line + 1, token.value
            key = token.value
    for number, line in enumerate(file.splitlines(), 1):
        if comment := re.search(r"(?:^|\s)# ?(.*)", line):
            yield number, comment[1]


def strings(code: str) -> Iterator[tuple[int, str]]:
    """Every paragraph of a module's docstrings and literals."""
    for node in ast.walk(ast.parse(code)):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and re.search(rf" |^{FRAGMENTS}$", node.value)
        ):
            yield from ((node.lineno + line - 1, text) for line, text in paragraphs(node.value))


def faults(path: Path) -> list[str]:
    """`file:line: what is wrong` for each fault of a page, a file of annotations or a module."""
    read = {".md": paragraphs, ".py": strings}.get(path.suffix, annotations)
    texts = read(path.read_text(encoding="utf-8"))
    return [f"{path.relative_to(ROOT)}:{line}: {problem}" for line, text in texts for problem in problems(text)]


BY_HAND = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "docs/**/*.yaml", "alerts/*.yml", "dashboards/source/*.py")
    for path in ROOT.glob(pattern)
    if str(path.relative_to(ROOT)) not in GENERATED and not path.name.endswith("_test.yml")
)
ROOMS = sorted(path.name for path in (ROOT / "gpuwatch").iterdir() if path.is_dir() and path.name != "__pycache__")


def test_what_is_written_by_hand_is_plain() -> None:
    """Pages, annotations of alerts, texts of dashboards, comments of the examples."""
    found = [fault for path in BY_HAND for fault in faults(path)]

    assert found == [], "\n" + "\n".join(found)


@pytest.mark.parametrize("room", ROOMS)
def test_what_the_code_says_is_plain(room: str) -> None:
    """Messages, settings, help and docstrings."""
    files = sorted((ROOT / "gpuwatch" / room).rglob("*.py"))
    found = [fault for path in files if str(path.relative_to(ROOT)) not in WORD_LISTS for fault in faults(path)]

    assert found == [], "\n" + "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "If there is none, the node stays.",
        "The owner is told of it.",
        "Whoever needs it says so.",
        "The agent lets the GPUs go.",
        "Mind: no backtest.",
        "word " * 50,
    ],
)
def test_what_is_not_plain_is_found(text: str) -> None:
    """One example of several rules each."""
    assert list(problems(text)) != []


@pytest.mark.parametrize("text", ["None of them has a GPU.", "Set `told` or `is none`.", "It cannot tell why."])
def test_what_is_plain_passes(text: str) -> None:
    """False alarms would teach people to ignore this test."""
    assert list(problems(text)) == []
