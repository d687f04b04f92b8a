"""How budgets look to people and to `--json`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from gpuwatch.model.budget import BudgetState
from gpuwatch.model.currency import Currency, display_currency
from gpuwatch.model.duration import format_duration, format_time
from gpuwatch.model.money import format_usd
from gpuwatch.runtime.printable import legible
from gpuwatch.runtime.table import align_rows

_HEADS = (
    "budget",
    "a month",
    "spent",
    "part",
    "now/h",
    "this rate",
    "as usual",
    "80 % interval",
    "part",
    "over",
    "all spent on",
)
_SPARE = {7: 4, 10: 3, 9: 2, 5: 1}  # of a narrow terminal: the interval goes first
_OLD_SECONDS = 900.0
TOO_EARLY = "too early"


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetDocument:
    """The budgets as the round at that time saw them."""

    at: datetime
    currency: Currency | None
    budgets: Sequence[BudgetState]


def as_text(states: Sequence[BudgetState], at: datetime, now: datetime) -> str:
    """A table, and for each budget what it has crossed, what follows and what is to be known about it."""
    lines = [f"Budgets of {states[0].month}, as of the round of {format_time(at)}.", ""]
    lines += align_rows([_HEADS, *(_row(each) for each in states)], spare=_SPARE)
    for each in states:
        lines += ["", f"{each.name}: {each.scope}", *(f"    {line}" for line in _budget_lines(each, at))]
    if display_currency().note is not None:
        lines += ["", display_currency().note or ""]
    age = (now - at).total_seconds()
    if age > _OLD_SECONDS:
        lines += ["", f"Warning: that round is {format_duration(age)} old; what was billed since is not known."]
    return "\n".join(map(legible, lines))


def _row(each: BudgetState) -> list[str]:
    least = "+?" if each.unpriced_hours else ""
    bounds = "-" if each.lower_usd is None else f"{format_usd(each.lower_usd)} - {format_usd(each.upper_usd)}"
    return [
        each.name,
        format_usd(each.usd_per_month),
        format_usd(each.spent_usd) + least,
        _part(each.spent_usd, each.usd_per_month),
        format_usd(each.usd_per_hour) + ("+?" if each.unpriced_now else ""),
        _unless_unknown(each.present_rate_usd, least, each.unpriced_now),
        _forecast(each, least),
        bounds,
        _part(each.forecast_usd, each.usd_per_month),
        "-" if each.probability_over is None else f"{each.probability_over:.0%}",
        "-" if each.reaches_at is None else f"{each.reaches_at:%Y-%m-%d}",
    ]


def _forecast(each: BudgetState, least: str) -> str:
    """The month's end; in the first day of history it is too early to tell, which is not the same as unknown."""
    if each.forecast_usd is None and each.doubt is None:
        return TOO_EARLY
    return format_usd(each.forecast_usd) + least


def _unless_unknown(usd: Decimal | None, least: str, unpriced_now: int) -> str:
    return "-" if usd is None else format_usd(usd) + (least or "+?" * bool(unpriced_now))


def _budget_lines(each: BudgetState, at: datetime) -> list[str]:
    if each.doubt is not None:
        return [f"Not known: {each.doubt}."]
    lines = list(_crossed_lines(each))
    if each.reaches_at is not None:
        lines.append(
            f"at the forecast's pace all is spent in {format_duration((each.reaches_at - at).total_seconds())}"
        )
    if each.blocked is not None:
        lines.append("in force: no machine is added to it")
    if each.hastening is not None:
        lines.append(f"in force: idle machines wait {format_duration(each.hastening.wait_seconds)} at most")
    if each.unpriced_hours:
        hours = f"{each.unpriced_hours:.1f} machine-hours have no known price"
        lines.append(f"{hours}: the sums are the least it can be; set prices.live, or their prices in prices.file")
    if each.unpriced_now:
        left = each.unpriced_now * max(0.0, (each.ends_at - at).total_seconds()) / 3600
        machines = f"{each.unpriced_now} machine{'s' * (each.unpriced_now != 1)}"
        lines.append(f"{machines} without a price: {left:,.1f} more machine-hours until the month ends, in no forecast")
    if each.change is not None:
        lines.append(f"the fleet has changed: {each.change}")
    if each.foreign_hours:
        cost = "without a known price" if each.foreign_usd is None else format_usd(each.foreign_usd)
        hours = f"{each.foreign_hours:.1f} machine-hours ({cost}) of machines that are not enrolled"
        lines.append(f"not in it: {hours}; `cost.scope: account` counts them")
    by = [f"as usual: by {each.method}, and how long such machines usually run"] if each.method else []
    return [*lines, *by, *each.notes]


def _crossed_lines(each: BudgetState) -> Iterator[str]:
    """The highest threshold that is spent, and the highest by each forecast."""
    for on, word in (("actual", "spent"), ("forecast", "as usual"), ("rate", "at the present rate")):
        found = max((one for one in each.crossings if one.on == on), key=lambda one: one.ratio, default=None)
        if found is not None:
            yield f"past {found.ratio:.0%} {word} since the round of {format_time(found.at)}"


def _part(usd: Decimal | None, whole: Decimal) -> str:
    return "-" if usd is None else f"{usd / whole:.0%}"
