"""Metrics of money: what was billed since the process began, budgets as the last round saw them, weeks compared."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction

from gpuwatch.controller.metrics import kubernetes as of_kubernetes
from gpuwatch.controller.metrics.state import ROUND, Metric, MetricsState, Series, Value, counter, gauge, info
from gpuwatch.model.budget import BudgetState
from gpuwatch.model.currency import display_currency
from gpuwatch.money.accounting.totals import Row, Total, by_use, totals, whole
from gpuwatch.money.report.progress import ComparedEnds, Pair
from gpuwatch.money.report.saved import SavedByPool


def count(state: MetricsState, billed: Iterable[Row]) -> None:
    """Add what one round has billed; rows by holder are other divisions of the same money."""
    rows = tuple(billed)
    machines = [row for row in rows if row.holder is None]
    of_kubernetes.count_billed(state, (row for row in rows if row.holder is not None))
    for (pool, cloud), total in totals(machines, lambda row: (row.terms.pool, row.terms.cloud or "")).items():
        for use, seconds, usd in by_use(total):
            if seconds:
                state.count("billed_gpu_seconds", (pool, use, cloud), seconds)
            if usd:
                state.count("billed_usd", (pool, use, cloud), usd)
        apart = {
            "billed_unpriced_node_seconds": total.unpriced_ms / 1000,
            "foreign_node_seconds": total.foreign.node_ms / 1000,
            "foreign_usd": float(total.foreign.usd),
        }
        for name, amount in apart.items():
            if amount:
                state.count(name, (pool, cloud), amount)


def _of_budgets(value: Callable[[BudgetState], Decimal | float | None]) -> Series:
    """One series a budget, where there is a value."""

    def series(state: MetricsState) -> Iterator[Value]:
        for each in () if state.observation is None else state.observation.budgets:
            number = value(each)
            if number is not None:
                yield (each.name,), float(number)

    return series


def _currency(_: MetricsState) -> Iterator[Value]:
    """One series; of US dollars it is 1."""
    yield (display_currency().code,), float(display_currency().usd)


def _effects(state: MetricsState) -> Iterator[Value]:
    for each in () if state.observation is None else state.observation.budgets:
        if each.blocked is not None:
            yield (each.name, "block_growth"), 1.0
        if each.hastening is not None:
            yield (each.name, "shorten_idle_timeout"), 1.0


def _thresholds(state: MetricsState) -> Iterator[Value]:
    for each in () if state.observation is None else state.observation.budgets:
        yield from (((each.name, f"{100 * ratio:.2f}".rstrip("0").rstrip(".")), ratio) for ratio in each.thresholds)


def _of_savings(value: Callable[[SavedByPool], Mapping[str, Fraction]]) -> Series:
    """One series a pool, once the ledger was asked."""

    def series(state: MetricsState) -> Iterator[Value]:
        for pool, usd in {} if state.saved is None else value(state.saved).items():
            yield (pool,), float(usd)

    return series


def week_figures(found: ComparedEnds) -> Mapping[str, Sequence[Value]]:
    """The series of each family of the first and the last weeks; made once, for all scrapes of a day."""
    made: dict[str, list[Value]] = {name: [] for name in _OF_A_WEEK}
    for (pool, owner), pair in sorted(_few(found).items()):
        for weeks, total in (("first", pair.first), ("last", pair.last)):
            for name, value in _OF_A_WEEK.items():
                number = value(total)
                if number is not None:
                    made[name].append(((weeks, pool, owner), float(number / found.ends.count)))
    return {**made, _LENGTH: [((), found.ends.length.total_seconds())]}


def _few(found: ComparedEnds) -> dict[tuple[str, str], Pair]:
    """The pools and owners with the most waste by themselves, and for each pool one sum of its others."""
    named = sorted(name for name in found.pairs if name[1] != OTHERS)
    ranked = sorted(named, key=lambda name: _waste(found.pairs[name]), reverse=True)
    made = {name: found.pairs[name] for name in ranked[:MOST_OWNERS]}
    rest: dict[str, list[Pair]] = {}
    for name in found.pairs.keys() - made.keys():
        rest.setdefault(name[0], []).append(found.pairs[name])
    for pool, pairs in rest.items():
        first, last = whole(each.first for each in pairs), whole(each.last for each in pairs)
        made[pool, OTHERS] = Pair(first=first, last=last)
    return made


def _waste(pair: Pair) -> tuple[Fraction, int]:
    """By money, and where prices are not known by time."""
    return pair.first.usd_wasted + pair.last.usd_wasted, pair.first.wasted_ms + pair.last.wasted_ms


def _known_sum(total: Total, usd: Fraction) -> Fraction | None:
    """None where something was billed, and no price of it is known."""
    return None if total.unpriced_ms and total.unpriced_ms == total.node_ms else usd


def _of_weeks(name: str, labels: tuple[str, ...], text: str) -> Metric:
    """A family of `week_figures`."""
    return gauge(name, labels, text, _METERED, lambda state: state.compared.get(name, ()))


MOST_OWNERS = 100  # pools and owners with series of their own
OTHERS = "(others)"
_OF_A_WEEK: Mapping[str, Callable[[Total], Fraction | None]] = {
    "waste_usd_per_week": lambda total: _known_sum(total, total.usd_wasted),
    "waste_billed_usd_per_week": lambda total: _known_sum(total, total.usd),
    "waste_unproven_usd_per_week": lambda total: _known_sum(total, total.usd_unproven),
    "waste_gpu_seconds_per_week": lambda total: Fraction(total.wasted_ms, 1000),
    "waste_unpriced_node_seconds_per_week": lambda total: Fraction(total.unpriced_ms, 1000),
}
_LENGTH = "waste_compared_seconds"
_ENDS = ("weeks", "pool", "owner")
_METERED = "ledger, once a day; absent until two weeks are metered"
_BUDGET = ("budget",)
_SAVINGS = "ledger, every five minutes"
FAMILIES = (
    counter(
        "billed_gpu_seconds_total",
        ("pool", "use", "cloud"),
        "Time for which GPUs were billed, by what they did (`gpuwatch cost`); counted when a round has billed it.",
        "ledger",
    ),
    counter("billed_usd_total", ("pool", "use", "cloud"), "What that cost, where the price is known.", "ledger"),
    counter(
        "billed_unpriced_node_seconds_total",
        ("pool", "cloud"),
        "Time of machines without a known price: it is in no dollars.",
        "ledger",
    ),
    counter(
        "foreign_node_seconds_total",
        ("pool", "cloud"),
        "Time for which machines were billed that are not enrolled in this fleet (`cost.scope`); in no other sum.",
        "ledger",
    ),
    counter("foreign_usd_total", ("pool", "cloud"), "What that cost, where the price is known.", "ledger"),
    gauge(
        "fleet_saved_usd_per_hour",
        ("pool",),
        "What machines would cost that gpuwatch stopped or terminated, as long as they save, where their price is "
        "known. They save until somebody needs them, for as long as their pool's usually stay off, 30 days at most.",
        _SAVINGS,
        _of_savings(lambda found: found.usd_per_hour),
    ),
    gauge(
        "saved_usd",
        ("pool",),
        "What that came to since the month began (`cost.timezone`), less what people's waits cost: as in "
        "`gpuwatch report` and `/api/v1/savings`.",
        _SAVINGS,
        _of_savings(lambda found: found.month_usd),
    ),
    gauge(
        "currency_usd",
        ("currency",),
        "US dollars for one unit of the currency in which people read money; metrics of money are in US dollars.",
        "`currency`, `prices.rates`",
        _currency,
    ),
    gauge(
        "budget_usd",
        _BUDGET,
        "What a month may cost (budgets.<name>.usd_per_month).",
        ROUND,
        _of_budgets(lambda each: each.usd_per_month),
    ),
    gauge(
        "budget_threshold_ratio",
        ("budget", "threshold"),
        "Part of it that people want to hear of (budgets.<name>.thresholds); the label has it in percent.",
        ROUND,
        _thresholds,
    ),
    gauge(
        "budget_spent_usd",
        _BUDGET,
        "What of it is spent this month; none while the ledger cannot be asked.",
        ROUND,
        _of_budgets(lambda each: each.spent_usd),
    ),
    gauge(
        "budget_forecast_usd",
        _BUDGET,
        "What the month is forecast to end at as usual; none with less than a day of history.",
        ROUND,
        _of_budgets(lambda each: each.forecast_usd),
    ),
    gauge(
        "budget_present_rate_usd",
        _BUDGET,
        "What the month ends at if what runs now runs on; none while the ledger cannot be asked.",
        ROUND,
        _of_budgets(lambda each: each.present_rate_usd),
    ),
    gauge(
        "budget_forecast_lower_usd",
        _BUDGET,
        "Lower end of the forecast's 80 % interval; none while the history is too short to tell.",
        ROUND,
        _of_budgets(lambda each: each.lower_usd),
    ),
    gauge("budget_forecast_upper_usd", _BUDGET, "Its upper end.", ROUND, _of_budgets(lambda each: each.upper_usd)),
    gauge(
        "budget_overrun_probability_ratio",
        _BUDGET,
        "How likely the month ends above the budget; none while the history is too short to tell.",
        ROUND,
        _of_budgets(lambda each: each.probability_over),
    ),
    gauge(
        "budget_unpriced_node_seconds",
        _BUDGET,
        "Time of machines in this month without a known price: with any, the sums are lower bounds.",
        ROUND,
        _of_budgets(lambda each: None if each.spent_usd is None else each.unpriced_hours * 3600),
    ),
    info(
        "budget_effect_info",
        ("budget", "effect"),
        "What a budget does now: block_growth, shorten_idle_timeout.",
        ROUND,
        _effects,
    ),
    _of_weeks(
        "waste_usd_per_week",
        _ENDS,
        "What was billed in a week for time that was seen and of no use, on average over the first and the last weeks "
        "of metering; absent where no price is known.",
    ),
    _of_weeks("waste_billed_usd_per_week", _ENDS, "All that was billed in such a week; the waste is a part of it."),
    _of_weeks(
        "waste_unproven_usd_per_week",
        _ENDS,
        "What was billed in such a week for time of which nobody knows the use: it is no proven waste.",
    ),
    _of_weeks("waste_gpu_seconds_per_week", _ENDS, "Billed time of GPUs seen and of no use in such a week."),
    _of_weeks(
        "waste_unpriced_node_seconds_per_week",
        _ENDS,
        "Time of machines without a known price in such a week: with any, the sums of money are lower bounds.",
    ),
    _of_weeks(_LENGTH, (), "How long the first weeks are, and the last ones: four weeks each, or fewer at first."),
)
