"""The report as one HTML page that mail clients show as browsers do.

Tables, styles in the elements, no script, nothing that is loaded. A chart as SVG, which most mail clients drop, is in
the page for browsers only. The page is well-formed XML.
"""

from collections.abc import Sequence

from gpuwatch.model.usage import HOUR_MS, Use
from gpuwatch.money.report import charts
from gpuwatch.money.report.charts import Axis, Band
from gpuwatch.money.report.report import Report, Step
from gpuwatch.money.report.sections import OVER_TIME, WASTE, figures, headline, sections, title
from gpuwatch.runtime.html import render

_BANDS = (
    ("useful", (Use.USEFUL,), 0),
    ("idle", (Use.IDLE, Use.PARKED, Use.STALLED), 1),
    ("down, not known", (Use.DOWN, Use.UNKNOWN, Use.SILENT), 7),
)


def as_html(report: Report, *, mail: bool = False) -> str:
    """The page; for `mail` without what mail clients drop."""
    return render(
        "money/report/report.html",
        title=title(report),
        headline=headline(report),
        figures=figures(report),
        sections=list(sections(report)),
        charts={} if mail or len(report.steps) <= 1 else {OVER_TIME: _chart(report)},
        chart_style="" if mail else charts.STYLE,
        footnote=f"{WASTE}.",
    )


def _chart(report: Report) -> str:
    """What the GPUs did, step by step."""
    steps = report.steps
    bands = [
        Band(label=label, values=[_hours(step, uses) for step in steps], colour=colour)
        for label, uses, colour in _BANDS
    ]
    moments = [(place / len(steps), step.label) for place, step in enumerate(steps)]
    words = ", ".join(f"{band.label} {sum(band.values):,.1f} GPU-hours" for band in bands)
    y_axis = Axis(name="GPU-hours", write=lambda each: f"{each:,.0f}")
    return charts.areas(f"What GPUs did, by {report.unit}", words, bands, y_axis, moments)


def _hours(step: Step, uses: Sequence[Use]) -> float:
    return sum(step.total.gpu_ms_by_use[use] for use in uses) / HOUR_MS
