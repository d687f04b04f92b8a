"""Metrics of money: what was billed since the process began, and the budgets as the last round saw them."""

from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal

from gpuwatch.controller.metrics import kubernetes as of_kubernetes
from gpuwatch.controller.metrics.state import ROUND, MetricsState, Series, Value, counter, gauge, info
from gpuwatch.model.budget import BudgetState
from gpuwatch.model.currency import shown_in
from gpuwatch.money.accounting.totals import Row, by_use, totals


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
    yield (shown_in().code,), float(shown_in().usd)


def _effects(state: MetricsState) -> Iterator[Value]:
    for each in () if state.observation is None else state.observation.budgets:
        if each.blocked is not None:
            yield (each.name, "block_growth"), 1.0
        if each.hastening is not None:
            yield (each.name, "shorten_idle_timeout"), 1.0


def _thresholds(state: MetricsState) -> Iterator[Value]:
    for each in () if state.observation is None else state.observation.budgets:
        yield from (((each.name, f"{100 * ratio:.2f}".rstrip("0").rstrip(".")), ratio) for ratio in each.thresholds)


_BUDGET = ("budget",)
FAMILIES = (
    counter(
        "billed_gpu_seconds_total",
        ("pool", "use", "cloud"),
        "Time for which GPUs were billed, by what they did (`gpuwatch cost`); counted when a round has billed it.",
        "ledger",
    ),
    counter("billed_usd_total", ("pool", "use", "cloud"), "What that cost, where the price is known.", "ledger"),
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
        "What the month is forecast to end at; none with less than a day of history.",
        ROUND,
        _of_budgets(lambda each: each.forecast_usd),
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
)
