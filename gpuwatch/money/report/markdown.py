"""The report as Markdown (CommonMark with tables), for wikis, tickets and chats."""

import re
from collections.abc import Iterable, Iterator

from gpuwatch.money.report.blocks import Bars, Figures, Part, Table, Words
from gpuwatch.money.report.report import Report
from gpuwatch.money.report.sections import WASTE, figures, headline, sections, title

_ACTIVE = re.compile(r"([\\`*_{}\[\]<>|#~&!@])")


def as_markdown(report: Report) -> str:
    """All sections."""
    lines = [f"# {_said(title(report))}", "", _said(headline(report)), "", *_part(figures(report))]
    for section in sections(report):
        lines += ["", f"## {section.title}"]
        for part in section.parts:
            lines += ["", *_part(part)]
    return "\n".join([*lines, "", _said(f"{WASTE}."), ""])


def _part(part: Part) -> Iterator[str]:
    match part:
        case Words(sentences):
            yield "\n\n".join(map(_said, sentences))
        case Figures(told):
            yield from _rows(
                ("", "", ""), [(each.name, f"{each.value}", each.beside) for each in told], frozenset({0, 2})
            )
        case Bars(caption, bars):
            rows = [(bar.label, bar.written) for bar in bars]
            yield from _rows((caption, "cost"), rows, frozenset({0}))
        case Table():
            yield f"**{_said(part.caption)}**"
            yield ""
            yield from _rows(part.heads, part.rows, part.left)


def _rows(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]], left: frozenset[int]) -> Iterator[str]:
    yield f"| {' | '.join(map(_said, heads))} |"
    yield f"| {' | '.join(':---' if place in left else '---:' for place in range(len(heads)))} |"
    for row in rows:
        yield f"| {' | '.join(map(_said, row))} |"


def _said(words: str) -> str:
    """Names come from others: nothing in them is markup, and a line stays a line."""
    return _ACTIVE.sub(r"\\\1", " ".join(words.split()))
