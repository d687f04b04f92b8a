"""The report as one HTML page that mail clients show as browsers do.

Tables, styles in the elements, no script, nothing that is loaded. Bars are coloured cells, which every client draws;
a chart as SVG, which most clients drop, is in the page for browsers only. It is well-formed XML, too.
"""

from collections.abc import Iterator, Sequence
from html import escape

from gpuwatch.model.usage import HOUR_MS, Use
from gpuwatch.money.report import charts
from gpuwatch.money.report.blocks import Bar, Bars, Figure, Figures, Part, Table, Words
from gpuwatch.money.report.charts import Axis, Band
from gpuwatch.money.report.report import Report, Step
from gpuwatch.money.report.sections import OVER_TIME, WASTE, figures, headline, sections, title
from gpuwatch.runtime.printable import legible

_FONT = "font-family:system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif"
# What stands in the elements is for light; clients that know `prefers-color-scheme` take the others by class.
_LIGHT = {
    "page": "background-color:#f6f8fa",
    "card": "background-color:#ffffff",
    "ink": "color:#1b1f24",
    "faint": "color:#59636e",
    "line": "border-color:#d0d7de",
    "useful": "background-color:#0b62a8",
    "wasted": "background-color:#d4661f",
}
_DARK = {
    "page": "background-color:#010409",
    "card": "background-color:#0d1117",
    "ink": "color:#e6edf3",
    "faint": "color:#9aa5b1",
    "line": "border-color:#30363d",
    "useful": "background-color:#3f8fd2",
    "wasted": "background-color:#f0965a",
}
_RULES = """
:root { color-scheme: light dark; supported-color-schemes: light dark; }
@media (max-width: 480px) {
  .pad { padding: 12px !important; } .extra { display: none !important; }
  .data { font-size: 11px !important; }
}
.data [align=left] { overflow-wrap: anywhere; min-width: 60px; } .data td[align=right] { white-space: nowrap; }
@media print { .page { background-color: #ffffff !important; } tr { break-inside: avoid; } }
"""
_DARK_RULES = " ".join(f".{name} {{ {style} !important; }}" for name, style in _DARK.items())
_STYLE = f"{_RULES}@media screen and (prefers-color-scheme: dark) {{ {_DARK_RULES} }}\n"
_FIXED = "table-layout:fixed;border-collapse:collapse"  # else a wide table within would widen the page
_THINNEST = 0.1  # percent; what is thinner is not seen
_RULE = "border-bottom-width:1px;border-bottom-style:solid"
_PLAIN_TABLE = {"role": "presentation", "width": "100%", "cellpadding": "0", "cellspacing": "0", "border": "0"}
_DATA_TABLE = {"width": "100%", "cellpadding": "3", "cellspacing": "0", "border": "0"}
_BANDS = (
    ("useful", (Use.USEFUL,), 0),
    ("idle", (Use.IDLE, Use.PARKED, Use.STALLED), 1),
    ("down, not known", (Use.DOWN, Use.UNKNOWN, Use.SILENT), 7),
)


def as_html(report: Report, *, mail: bool = False) -> str:
    """The page; for `mail` without what mail clients drop."""
    name = _said(title(report))
    body = [
        _tag("h1", name, "ink", "font-size:22px;line-height:1.3;margin:0 0 8px"),
        _paragraph(headline(report), size=16),
        *_part(figures(report)),
    ]
    above = "font-size:16px;line-height:1.3;margin:28px 0 8px;padding:12px 0 0;border-top:1px solid"
    for section in sections(report):
        body.append(_tag("h2", _said(section.title), "ink line", above))
        for part in section.parts:
            body += _part(part)
        if section.title == OVER_TIME and not mail:
            body.append(_chart(report))
    body.append(_paragraph(f"{WASTE}.", kind="faint"))
    within = _tag("td", "\n".join(body), "pad ink", f"{_FONT};font-size:14px;line-height:1.5;padding:24px")
    card = _tag("table", f"<tr>{within}</tr>", "card", f"{_FIXED};max-width:680px", **_PLAIN_TABLE)
    around = f'<tr><td align="center" style="padding:16px 8px">{card}</td></tr>'
    page = _tag("table", around, "page", _FIXED, **_PLAIN_TABLE)
    head = [
        '<meta charset="utf-8" />',
        f"<title>{name}</title>",
        '<meta name="viewport" content="width=device-width, initial-scale=1" />',
        '<meta name="color-scheme" content="light dark" />',
        f"<style>{_STYLE if mail else charts.STYLE + _STYLE}</style>",
    ]
    whole = _tag("body", page, "page", "margin:0;padding:0")
    return f'<!DOCTYPE html>\n<html lang="en"><head>{"".join(head)}</head>\n{whole}</html>\n'


def _tag(name: str, inner: str, kinds: str = "", style: str = "", **attributes: str) -> str:
    """An element; what its kinds look like in light is in its style, the rest follows by class."""
    told = ";".join(filter(None, [style, *(_LIGHT[kind] for kind in kinds.split() if kind in _LIGHT)]))
    every = {**attributes, "class": kinds, "style": told}
    said = "".join(f' {key}="{value}"' for key, value in every.items() if value)
    return f"<{name}{said}>{inner}</{name}>"


def _part(part: Part) -> Iterator[str]:
    match part:
        case Words(sentences):
            yield from map(_paragraph, sentences)
        case Figures(told):
            yield _tiles(told)
        case Bars(caption, bars):
            yield _bars(caption, bars, part.most)
        case Table():
            yield _table(part)


def _paragraph(words: str, *, size: int = 14, kind: str = "ink") -> str:
    return _tag("p", _said(words), kind, f"font-size:{size}px;line-height:1.5;margin:0 0 8px")


def _tiles(told: Sequence[Figure]) -> str:
    """Two in a row, which fits a phone as well."""
    cells = []
    for each in told:
        lines = [
            _tag("span", _said(each.name), "faint", "font-size:12px"),
            _tag("strong", _said(each.value), "ink", "font-size:20px"),
            _tag("span", _said(each.beside), "faint", "font-size:12px"),
        ]
        style = "padding:8px 8px 8px 0;border-top:1px solid"
        cells.append(_tag("td", "<br />".join(lines), "line", style, width="50%", valign="top"))
    cells += ["<td></td>"] * (len(cells) % 2)
    rows = "".join(f"<tr>{left}{right}</tr>" for left, right in zip(cells[::2], cells[1::2], strict=True))
    return _tag("table", rows, "", "border-collapse:collapse;margin:8px 0", **_PLAIN_TABLE)


def _bars(caption: str, bars: Sequence[Bar], most: int) -> str:
    """A row for each bar; its parts are cells with a colour."""
    legend = "".join(f" {_tag('span', '&#160;' * 3, kind)} {kind}" for kind in ("wasted", "useful"))
    rows = []
    for bar in bars:
        label = _tag("th", _said(bar.label), "faint", "font-weight:400;white-space:nowrap", scope="row")
        rows.append(f'<tr>{label}{_bar(bar, most)}<td align="right" nowrap="nowrap">{_said(bar.written)}</td></tr>')
    return _framed(f"{_said(caption)}:{legend}", "", rows)


def _bar(bar: Bar, most: int) -> str:
    wasted, useful = (100 * part / most if most > 0 else 0.0 for part in (bar.wasted, bar.useful))
    cells = "".join(
        _tag("td", "&#160;", kind, width=f"{width:.1f}%")
        for kind, width in (("wasted", wasted), ("useful", useful), ("", max(0.0, 100 - wasted - useful)))
        if width >= _THINNEST
    )
    drawn = _tag("table", f"<tr>{cells}</tr>", "", f"{_FIXED};font-size:0;line-height:12px", **_PLAIN_TABLE)
    return f'<td width="99%" aria-hidden="true">{drawn}</td>'


def _table(table: Table) -> str:
    """Sentences stand under their row; a rule is under each row and what belongs to it."""
    shown = len(table.heads) - table.beneath
    side = ["left" if place in table.left else "right" for place in range(shown)]
    extra = ["extra" if place in table.extra else "" for place in range(shown)]
    heads = [
        _tag("th", _said(head), more, scope="col", align=align)
        for head, align, more in zip(table.heads, side, extra, strict=False)
    ]
    rows = [_tag("tr", "".join(heads), "faint line", _RULE, valign="bottom")]
    for number, row in enumerate(table.rows):
        weight = "font-weight:600" if table.summed and number == len(table.rows) - 1 else ""
        first = _tag("th", _said(row[0]), extra[0], weight or "font-weight:400", scope="row", align=side[0])
        cells = [
            _tag("td", _said(cell), more, align=align)
            for cell, align, more in zip(row[1:], side[1:], extra[1:], strict=False)
        ]
        above = ("", weight) if table.beneath else ("line", f"{weight};{_RULE}" if weight else _RULE)
        rows.append(_tag("tr", first + "".join(cells), *above, valign="top"))
        if table.beneath:
            rows.append(_tag("tr", f'<td colspan="{shown}">{_said(row[-1])}</td>', "faint line", _RULE))
    return _framed(_said(table.caption), f"<thead>{rows[0]}</thead>", rows[1:])


def _framed(caption: str, head: str, rows: Sequence[str]) -> str:
    """A table with its caption; one that is too wide for its place is moved by itself."""
    above = _tag("caption", caption, "ink", "font-size:13px;font-weight:600;text-align:left;padding:4px 0")
    style = (
        "border-collapse:collapse;margin:8px 0 16px;font-size:12px;line-height:1.4;font-variant-numeric:tabular-nums"
    )
    inner = f"{above}{head}<tbody>{''.join(rows)}</tbody>"
    return f'<div style="overflow-x:auto">{_tag("table", inner, "data", style, **_DATA_TABLE)}</div>'


def _chart(report: Report) -> str:
    """What the GPUs did, step by step."""
    steps = report.steps
    if len(steps) < 2:  # noqa: PLR2004  one step is no course
        return ""
    bands = [
        Band(label=label, values=[_hours(step, uses) for step in steps], colour=colour)
        for label, uses, colour in _BANDS
    ]
    every = max(1, len(steps) // 6)
    moments = [(place / len(steps), steps[place].label) for place in range(0, len(steps), every)]
    words = ", ".join(f"{band.label} {sum(band.values):,.1f} GPU-hours" for band in bands)
    drawn = charts.areas(
        f"What GPUs did, by {report.unit}",
        words,
        bands,
        Axis(name="GPU-hours", write=lambda each: f"{each:,.0f}"),
        moments,
    )
    return f'<div style="margin:8px 0">{drawn}</div>'


def _hours(step: Step, uses: Sequence[Use]) -> float:
    return sum(step.total.gpu_ms_by_use[use] for use in uses) / HOUR_MS


def _said(words: str) -> str:
    """Names come from others: neither markup nor what no page may hold."""
    return escape(legible(words))
