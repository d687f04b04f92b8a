"""PURE: what of a month's budget is spent, where the month will end, how sure that is, and what follows.

Rules, all of them:

1. Spent is what was metered this month, at the prices of then: the same rows and the same sum as `gpuwatch cost`.
2. There are two forecasts. As usual: spent, and the rest of the month from the machines that exist and how long such
   machines usually run (`forecast.machines`), on days that end at the last full hour. It needs a day on record, since
   minutes say nothing of a habit. At the present rate: spent, and what runs now until the month ends.
3. Thresholds are crossed once a month each, by what is spent, as usual, and at the present rate: by the least rate of
   the last three days and of now, since a busy day is no month. One that is past as usual does not count again.
4. A budget blocks growth, or hastens idle machines, from 100 % on. A forecast does so only where the past shows how far
   it may be off; both do, and the sentence says which. What is expected of machines of which none of their kind has
   run for a day is left out there: they may be gone, and what comes in their place is no growth.
5. Hours without a known price are counted and reported: figures are then lower bounds. What they would cost at the
   last known prices blocks growth where a budget does so, and does nothing else (`unpriced`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType
from zoneinfo import ZoneInfo

from gpuwatch.model.budget import Basis, BudgetState, Crossing, Scope, ShorterWaits
from gpuwatch.model.decision import Observation
from gpuwatch.model.duration import format_time
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.model.money import Price, elsewhere_note, format_usd
from gpuwatch.model.usage import HOUR_MS, Terms
from gpuwatch.money.accounting.scope import Foreign, counted_nodes, counted_scope
from gpuwatch.money.accounting.totals import Billed
from gpuwatch.money.budgets.settings import Budget
from gpuwatch.money.budgets.unpriced import Kind, LastPrice, Unpriced, kind_of, without_price
from gpuwatch.money.forecast.machines import fleet_days
from gpuwatch.money.forecast.month_end import MonthEnd, month_end

DAY_SECONDS = 86_400
HISTORY_DAYS = 91  # thirteen weeks: enough to try a month ahead, little enough to be read every hour
_CENT = Decimal("0.01")
_HOUR_S = 3600
Priced = Sequence[tuple[Node, Price | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Month:
    """The month of a moment at a place, and when metering began; the hours before `edge` are whole."""

    now: datetime
    edge: datetime
    zone: ZoneInfo
    began: datetime | None

    @property
    def begin(self) -> datetime:
        """When the month begins, UTC."""
        local = self.now.astimezone(self.zone)
        return datetime(local.year, local.month, 1, tzinfo=self.zone).astimezone(UTC)

    @property
    def end(self) -> datetime:
        """When the next month begins, UTC."""
        local = self.now.astimezone(self.zone)
        year, month = divmod(local.year * 12 + local.month, 12)
        return datetime(year, month + 1, 1, tzinfo=self.zone).astimezone(UTC)

    @property
    def name(self) -> str:
        """Return the month's name, such as 2026-03."""
        return f"{self.now.astimezone(self.zone):%Y-%m}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What a budget's scope has cost until the last full hour, and the forecast from there.

    `unnamed_ms` is time of machines that the scope might hold, if the names of their clouds were known.
    """

    usd: Fraction
    unpriced_ms: Mapping[Kind, int | Fraction]
    ahead: MonthEnd | None  # its sums are of the whole month; None: less than a day is on record
    unnamed_ms: int = 0


def rows_in_scope(budget: Budget, rows: Iterable[Billed]) -> list[Billed]:
    """The rows in a budget's scope; what foreign machines were billed is in none."""
    scope = budget.scope
    return [row for row in rows if row.terms.foreign is None and is_in_scope(scope, row.terms, row.namespace)]


def foreign_in_scope(budget: Budget, rows: Iterable[Billed], month: Month) -> Foreign:
    """What of this month foreign machines were billed that the scope would hold if they were ours."""
    begin, scope, found = int(month.begin.timestamp()), budget.scope, Foreign()
    for row in rows:
        if row.begin >= begin and row.terms.foreign is not None and is_in_scope(scope, row.terms, row.namespace):
            found.add(row.terms, (round(row.node_ms),), frozenset())
    return found


def with_foreign(state: BudgetState, *found: Foreign) -> BudgetState:
    """The state with what foreign machines were billed, which is in none of its sums."""
    hours = sum(each.node_ms for each in found) / HOUR_MS
    if not hours:
        return state
    return replace(state, foreign_usd=_cents(sum((each.usd for each in found), Fraction(0))), foreign_hours=hours)


def is_in_scope(scope: Scope, terms: Terms, namespace: str | None) -> bool:
    """Whether what was billed under these terms is in a budget's scope."""
    tags = dict(terms.tags) if scope.tag else {}
    return scope.takes(terms.pool, terms.owner, terms.account, tags, terms.cloud, namespace)


def unnamed_time(budget: Budget, rows: Iterable[Billed], month: Month) -> int:
    """This month's time (ms) in a cloud's scope but for the cloud, which had no name in the ledger then."""
    begin, scope = int(month.begin.timestamp()), replace(budget.scope, cloud=None)
    if budget.cloud is None:
        return 0
    return sum(
        round(row.node_ms)
        for row in rows
        if row.begin >= begin
        and not row.terms.cloud
        and row.terms.foreign is None
        and is_in_scope(scope, row.terms, row.namespace)
    )


def past(rows: Iterable[Billed], month: Month, ahead: MonthEnd | None, unnamed_ms: int = 0) -> Past:
    """A budget's past, of the rows in its scope that begin before the edge, with a forecast made of such."""
    usd, unpriced_ms = _sums(rows, month)
    return Past(usd=usd, unpriced_ms=unpriced_ms, ahead=ahead, unnamed_ms=unnamed_ms)


def price_running(observation: Observation) -> Priced:
    """What counts and is billed now, or ran when its cloud last showed it, each with its price where that is known."""
    nodes = counted_nodes(observation.fleet)
    billed = [
        node for node in nodes if NodeState.RUNNING in {node.state, node.last_shown} or node.billed_though_stopped
    ]
    return [(node, observation.price(node)) for node in billed]


def state(
    name: str,
    budget: Budget,
    month: Month,
    known: Past,
    lately: Sequence[Billed],
    running: Priced,
    last: Mapping[Kind, LastPrice] = MappingProxyType({}),
) -> BudgetState:
    """The budget now, without crossings. `lately` are the rows in its scope from the edge on, `last` last prices."""
    usd, recent_ms = _sums(lately, month)
    unpriced_ms = {
        kind: known.unpriced_ms.get(kind, 0) + recent_ms.get(kind, 0) for kind in {**known.unpriced_ms, **recent_ms}
    }
    spent, scope = _cents(known.usd + usd), budget.scope
    parts = [(part, node, price) for node, price in running if (part := _part(scope, node))]
    rate = sum((part * price.usd_per_hour for part, _, price in parts if price is not None), Decimal(0))
    lacking = without_price(unpriced_ms, parts, last)
    made = BudgetState(
        name=name,
        scope=scope,
        usd_per_month=budget.usd_per_month,
        month=month.name,
        ends_at=month.end,
        block_growth=budget.block_growth,
        thresholds=tuple(map(float, budget.ratios)),
        spent_usd=spent,
        usd_per_hour=rate,
        unpriced_now=sum(price is None for _, _, price in parts),
        unpriced_hours=float(sum(unpriced_ms.values())) / HOUR_MS,
        assumed_usd=_cents(lacking.usd) if lacking.day is not None else None,
        assumed_types=lacking.types,
        notes=(
            *_notes(month, known),
            *filter(None, [lacking.words(), elsewhere_note(price.source for _, _, price in parts if price)]),
        ),
    )
    made = _with_forecast(_with_rates(made, month, known.ahead), known.ahead)
    dark = Decimal(0) if known.ahead is None else known.ahead.dark_usd
    made = _with_effects(replace(made, reaches_at=_reaches(made, month)), budget, dark)
    return made if made.blocked else replace(made, blocked=_blocked_by_unpriced(made, budget, lacking, month))


def _part(scope: Scope, node: Node) -> Decimal:
    """What of a machine is in a scope: all or nothing, or what pods of a namespace request."""
    whole = replace(scope, namespace=None).covers(node)
    if scope.namespace is None or not whole or node.kubernetes is None:
        return Decimal(whole and scope.namespace is None)
    shared = node.kubernetes.shared_gpus(node.gpu_count)
    gpus = sum(pod.gpus for pod in node.kubernetes.pods if pod.namespace == scope.namespace)
    return Decimal(str(gpus)) / Decimal(str(shared)) if shared else Decimal(0)


def with_crossings(state: BudgetState, budget: Budget, before: BudgetState | None, now: datetime) -> BudgetState:
    """The state with the thresholds it has reached; those of this month that were known before stay as they were.

    With another sum, all its thresholds are open again: what was reached of the old one does not count. What is
    spent becomes less only where other machines count than before (`cost.scope`): what it no longer reaches is open
    again, too.
    """
    same = before is not None and (before.month, before.usd_per_month) == (state.month, state.usd_per_month)
    crossings = before.crossings if before is not None and same else ()
    least = {float(ratio): ratio * state.usd_per_month for ratio in budget.ratios}
    known = {
        (each.ratio, each.on): each
        for each in crossings
        if each.on != "actual" or state.spent_usd is None or state.spent_usd >= least.get(each.ratio, 0)
    }
    levels: dict[Basis, Decimal | None] = {
        "actual": state.spent_usd,
        "forecast": state.forecast_usd,
        "rate": state.lasting_rate_usd,
    }
    for ratio in budget.ratios:
        for on, usd in levels.items():
            told = on == "rate" and (float(ratio), "forecast") in known
            if usd is not None and usd >= ratio * state.usd_per_month and not told:
                known.setdefault((float(ratio), on), Crossing(ratio=float(ratio), on=on, at=now))
    return replace(state, crossings=tuple(known.values()))


def unknown(name: str, budget: Budget, month: Month, before: BudgetState | None, doubt: str) -> BudgetState:
    """The state when spending could not be read: waits are not shortened, and crossed thresholds stay crossed."""
    return BudgetState(
        name=name,
        scope=budget.scope,
        usd_per_month=budget.usd_per_month,
        month=month.name,
        ends_at=month.end,
        block_growth=budget.block_growth,
        thresholds=tuple(map(float, budget.ratios)),
        crossings=before.crossings if before is not None and before.month == month.name else (),
        doubt=doubt,
    )


def forecast(
    budget: Budget, rows: Sequence[Billed], month: Month, unseen: frozenset[int] = frozenset()
) -> MonthEnd | None:
    """Rule 2, of the rows in a budget's scope that begin before the edge; None: less than a day is on record.

    `unseen` are days before the edge, 1 is the last, of which nobody knows what ran.
    """
    if month.began is None:
        return None
    edge = int(month.edge.timestamp())
    days = min(HISTORY_DAYS, (edge - int(month.began.timestamp())) // DAY_SECONDS)
    if days < 1:
        return None
    fleet = fleet_days(rows, edge, days, frozenset(days - each for each in unseen))
    return month_end(fleet, past(rows, month, None).usd, month.now.astimezone(month.zone), budget.usd_per_month)


def _with_rates(made: BudgetState, month: Month, ahead: MonthEnd | None) -> BudgetState:
    """Return the state with what the month ends at if what runs now runs on."""
    if made.usd_per_hour is None:
        return made
    spent, rate = made.spent_usd or Decimal(0), made.usd_per_hour
    hours = Decimal(str((month.end - month.now).total_seconds() / _HOUR_S))
    least = None if ahead is None or ahead.lasting_usd_per_hour is None else min(rate, ahead.lasting_usd_per_hour)
    return replace(
        made,
        present_rate_usd=(spent + rate * hours).quantize(_CENT),
        lasting_rate_usd=None if least is None else (spent + least * hours).quantize(_CENT),
        change=None if ahead is None else ahead.change,
    )


def _with_forecast(made: BudgetState, ahead: MonthEnd | None) -> BudgetState:
    """What is spent stays spent: no part of a forecast is below it."""
    spent = made.spent_usd or Decimal(0)
    if ahead is None:
        return made
    over = ahead.probability_over
    return replace(
        made,
        forecast_usd=max(spent, ahead.expected.quantize(_CENT)),
        lower_usd=None if ahead.lower is None else max(spent, ahead.lower.quantize(_CENT)),
        upper_usd=None if ahead.upper is None else max(spent, ahead.upper.quantize(_CENT)),
        probability_over=over if over is None or spent <= made.usd_per_month else 1.0,
        method=ahead.method,
    )


def _with_effects(made: BudgetState, budget: Budget, dark: Decimal) -> BudgetState:
    """Return the state with the budget's effects; `dark` is what of the forecast may be gone (rule 4)."""
    spent, limit = made.spent_usd or Decimal(0), made.usd_per_month
    sure = made.forecast_usd is not None and made.probability_over is not None
    reached: dict[str, bool] = {"actual": spent >= limit}
    usual, rate = made.forecast_usd or spent, made.lasting_rate_usd or spent
    reached["forecast"] = reached["actual"] or (sure and max(usual - dark, rate) > limit)
    used = f"{format_usd(spent)} of the {format_usd(limit)} of the budget {made.name} are spent in {made.month}"
    if reached["actual"]:
        coming, word, usd = "", "spent", spent
    elif usual - dark > limit:
        coming = f", and the month is forecast to end at {format_usd(usual)} as usual"
        word, usd = "forecast as usual", usual
    else:
        coming = f", and at the rate of the last three days the month ends at {format_usd(rate)}"
        coming += f" (as usual at {format_usd(usual)})"
        word, usd = "forecast at the present rate", rate
    coming += f" ({made.change})" if coming and made.change else ""
    on = f"{word} at {usd / limit:.0%}"
    return replace(
        made,
        blocked=used + coming if reached.get(budget.block_growth) else None,
        hastening=ShorterWaits(wait_seconds=budget.shortened_idle_timeout, why=f"the budget {made.name} is {on}")
        if reached.get(budget.shorten_idle_timeout)
        else None,
    )


def _blocked_by_unpriced(made: BudgetState, budget: Budget, lacking: Unpriced, month: Month) -> str | None:
    """What has no price may be all that is left: growth needs to know, and nothing else follows from it."""
    if budget.block_growth == "never":
        return None
    level = Fraction(made.spent_usd or 0) + lacking.usd
    if budget.block_growth == "forecast":
        hours = (month.end - month.now).total_seconds() / _HOUR_S
        level = max(
            level, Fraction(made.forecast_usd or 0) + lacking.usd + Fraction(lacking.usd_per_hour) * Fraction(hours)
        )
    if not lacking.unknown and (lacking.day is None or level < made.usd_per_month):
        return None
    spent = f"{format_usd(made.spent_usd)} of the {format_usd(made.usd_per_month)} of the budget {made.name}"
    also = lacking.words() or f"machines without a price run at about {format_usd(lacking.usd_per_hour)} an hour"
    return f"{spent} are spent in {made.month}, and {also}"


def _reaches(made: BudgetState, month: Month) -> datetime | None:
    """When all will be spent at the forecast's pace."""
    if made.spent_usd is None or made.forecast_usd is None:
        return None
    left, coming = made.usd_per_month - made.spent_usd, made.forecast_usd - made.spent_usd
    if left <= 0 or coming < left or coming <= 0:
        return None
    return month.now + (month.end - month.now) * float(left / coming)


def _notes(month: Month, known: Past) -> list[str]:
    notes = [] if known.ahead is None else list(known.ahead.warnings)
    if month.began is None:
        return ["nothing has been metered yet"]
    if counted_scope() == "account":
        notes.append("it counts all machines that the clouds show, whosever they are (cost.scope: account)")
    if month.began > month.begin:
        notes.append(f"metered from {format_time(month.began)} on: what was spent earlier this month is not in it")
    if known.unnamed_ms:
        hours = known.unnamed_ms / HOUR_MS
        notes.append(f"{hours:.1f} machine-hours are not in it: their cloud had no name when they were metered")
    if known.ahead is None:
        began = format_time(month.began)
        notes.append(f"too early for a forecast: it needs a day of history, and metering began at {began}")
    return notes


def spent_exactly(known: Past, lately: Iterable[Billed], month: Month) -> Fraction:
    """What is spent this month, not rounded."""
    return known.usd + _sums(lately, month)[0]


def _sums(rows: Iterable[Billed], month: Month) -> tuple[Fraction, dict[Kind, int | Fraction]]:
    """The cost of this month's rows with a known price, and the time of machines without one by kind."""
    begin, by_price = int(month.begin.timestamp()), dict[Decimal, int | Fraction]()
    unpriced_ms = dict[Kind, int | Fraction]()
    for row in rows:
        if row.begin < begin:
            continue
        if row.terms.usd_per_hour is None:
            kind = kind_of(row.terms)
            unpriced_ms[kind] = unpriced_ms.get(kind, 0) + row.node_ms
        else:
            by_price[row.terms.usd_per_hour] = by_price.get(row.terms.usd_per_hour, 0) + row.node_ms
    return sum((Fraction(usd) * ms / HOUR_MS for usd, ms in by_price.items() if usd), Fraction(0)), unpriced_ms


def _cents(usd: Fraction) -> Decimal:
    """To the nearest cent, halves to even, as `gpuwatch cost` shows sums."""
    return Decimal(round(usd * 100)).scaleb(-2)
