"""`python -m tools.docs.prose`: what people read is plain English; each fault is named with its file, line and rule.

It reads the pages, those by hand and those that are generated (so also help, settings, guard rules, types of JSON),
alerts, dashboards and examples. In the code it reads each docstring and each message; an f-string is one text.
"""

import ast
import re
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
LONGEST_SENTENCE_WORDS = 35
# In docstrings that no page shows.
LONGEST_WORDS_ELSEWHERE = 45
_COUNTED = (
    r"(?:[kMG]i?B|all|any|both|each|few|four|half|many|more|most|much|none|one|parts?|rest|some|third|three|two|\d+)"
)
RULES = {
    "write 'there is no …', or name what is missing": r"\b(?:[Ii]s|[Aa]re|was|were|has|have|be) none\b(?! of)",
    "write 'none of … has'": r"\b[Tt]here (?:is|are) none of\b",
    "write 'says', 'reports', 'shows' or 'was notified'": r"\b(?:tells|told|telling)\b|\btell of\b",
    "name the person or the thing": r"\b(?:whom|whose|whoever|whomever|who(?:so)?ever)\b",
    "write 'again' or 'new'": r"\banew\b",
    "write 'next to', 'besides' or 'with'": r"\bbeside\b",
    "write 'stop' or 'release'": r"\blet(?:s|ting)?\b[^.;:]{0,40}\bgo\b|\b(?:node|machine)s? (?:may|must|can) go\b",
    "write 'what … says', 'message' or 'text'": r"\b(?:the|its|their|his|'s) word (?:of|that|for)\b",
    "write 'Warning:'": r"\bMind:|\b(?:WARNING|Caution|CAUTION|Attention|Beware|NB|N\.B\.|Note|NOTE)[:!]",
    "write 'without notice' or 'not notified'": r"\b(?:untold|unheard)\b",
    "say what is shown and where": r"\baloud\b|\band said so\b|\bis said so\b",
    "say who cannot do what": r"\bso that nobody\b|\blest\b|\b(?:nobody(?:'s)?|none) that\b|\bnothing that nobody\b",
    "say what it is 'of', or leave it out": rf"\b(?!{_COUNTED} )[\w']+ of (?:it|them)[.;:!?](?!\w)",
    "say it again, or write 'also'": r"\blikewise\b",
    "say which": r"\bsuch an? one\b",
    "say it without the second 'not'": r"\b(?:not|never) without\b|\bnot un(?:common|known|like|likely|usual)\b",
    "write 'for example' or 'that is'": r"\b(?:e\.g|i\.e|cf|viz)\.|(?-i:\bvs\b)",
    "write 'and so on', or name all": r"(?<![/\w.-])etc\b(?![/\w])",
    "write the plain word": r"\b(?:hence|thus|thereof|therein|wherein|hereby|whilst|ought|shall|upon|nought)\b",
}
# Lists of names, which are no sentences.
LEN = 900
WORD_LISTS = {"gpuwatch/agent/processes/known_programs.py", "gpuwatch/clouds/pseudonyms.py"}
FRAGMENTS = r"(?:It|Its|This|That|Them|They|Likewise|The same|The others?|See there|Ditto|As above|So)\."
OPEN = "\0"  # in place of what an f-string computes


def problems(text: str, longest: int = LONGEST_SENTENCE_WORDS) -> Iterator[str]:
    """What is wrong with a text in plain words: `code`, links' addresses and templates do not count."""
    text = re.sub(r"`[^`]*`|\{\{.*?\}\}|https?://\S+", "x", re.sub(r"\[|\]\([^)]*\)", "", text), flags=re.DOTALL)
    text = " ".join(text.replace(OPEN, "x").split())
    if re.fullmatch(FRAGMENTS, text):
        yield f"say what it is: {text}"
    for remedy, pattern in RULES.items():
        for found in re.finditer(pattern, text, 0 if "none" in pattern or "NOTE" in pattern else re.IGNORECASE):
            yield f"{remedy}: …{text[max(0, found.start() - 60) : found.end() + 40]}…"
    for sentence in re.split(r"(?<=[.?!])[)\"”*_]*\s+", re.sub(r"(?:[\w-]+, ){5,}[\w-]+", "names", text)):
        if len(sentence.split()) > longest and "{" not in sentence:
            yield f"{len(sentence.split())} words in one sentence, at most {longest}: {sentence[:90]}…"


def paragraphs(page: str) -> Iterator[tuple[int, str]]:
    """The first line and the text of each paragraph, list item and table cell of a page; not of its code blocks."""
    blank = re.sub(r"^```.*?^```", lambda block: "\n" * block[0].count("\n"), page, flags=re.MULTILINE | re.DOTALL)
    start, lines = 1, list[str]()
    for number, line in enumerate([*blank.splitlines(), ""], 1):
        if line.lstrip().startswith("|"):
            yield from ((number, cell) for cell in re.split(r"(?<!\\)\|", line))
        elif not line.strip() or re.match(r"\s*(?:[-*]|\d+\.|#+) ", line) or (lines[:1] and lines[0].startswith("#")):
            yield start, "\n".join(lines)
            start, lines = (number, [line]) if line.strip() else (number + 1, [])
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


def literals(node: ast.AST, *, without: tuple[str, ...] = ()) -> Iterator[tuple[int, str]]:
    """Line and text of each string but docstrings, an f-string with its parts OPEN; not in calls of these names."""
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") in without:
        return
    if isinstance(node, ast.JoinedStr):
        yield node.lineno, "".join(str(part.value) if isinstance(part, ast.Constant) else OPEN for part in node.values)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.lineno, node.value
    for child in ast.iter_child_nodes(node):
        is_docstring = isinstance(node, ast.Expr) and isinstance(child, ast.Constant)
        is_part = isinstance(node, ast.JoinedStr) and isinstance(child, ast.Constant)
        if not is_docstring and not is_part:
            yield from literals(child, without=without)


def docstrings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and text of each paragraph of a module's docstrings, also those of a class's fields."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield from ((node.lineno + line - 1, text) for line, text in paragraphs(node.value.value))


def _faults(path: Path) -> Iterator[tuple[int, str]]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        tree = ast.parse(text)
        for line, each in docstrings(tree):
            yield from ((line, problem) for problem in problems(each, LONGEST_WORDS_ELSEWHERE))
        for line, each in literals(tree):
            if re.search(rf" |^{FRAGMENTS}$", each):
                yield from ((line + at - 1, problem) for at, part in paragraphs(each) for problem in problems(part))
    elif path.suffix == ".md":
        yield from ((line, problem) for line, each in paragraphs(text) for problem in problems(each))
    else:
        yield from ((line, problem) for line, each in annotations(text) for problem in problems(each))


def faults(path: Path) -> list[str]:
    """`file:line: what is wrong` for each fault of a page, a file of annotations or a module."""
    return [f"{path.relative_to(ROOT)}:{line}: {problem}" for line, problem in _faults(path)]


def pages() -> list[Path]:
    """Pages, alerts, dashboards and examples."""
    patterns = ("*.md", "docs/**/*.md", "docs/**/*.yaml", "alerts/*.yml", "dashboards/source/*.py")
    found = chain.from_iterable(map(ROOT.glob, patterns))
    return sorted(path for path in found if not path.name.endswith("_test.yml"))


def modules(room: str = "") -> list[Path]:
    """The modules of a room of the package, or of all rooms."""
    files = (ROOT / "gpuwatch" / room).rglob("*.py")
    return sorted(path for path in files if str(path.relative_to(ROOT)) not in WORD_LISTS)


if __name__ == "__main__":
    found = [fault for path in [*pages(), *modules()] for fault in faults(path)]
    sys.stderr.writelines(f"{fault}\n" for fault in found)
    sys.exit(1 if found else 0)
