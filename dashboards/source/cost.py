"""Money: spending, waste by owner, budgets with their forecasts, and savings."""

from dashboards.source.boards import CLUSTER, CURRENCY, FLEET, JOB, POOL, board, node_link, variable
from dashboards.source.cost_since_metering import SINCE
from dashboards.source.currency import MONEY
from dashboards.source.parts import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    RED,
    Column,
    Json,
    Query,
    Row,
    bars,
    coloured,
    filled,
    fixed,
    override,
    series,
    stat,
    steps,
    table,
)
from dashboards.source.queries import CONTROLLERS, IN_POOL, led, of, rate, told, wasted_by_node

_HOURS_A_DAY = 24
_EVERY = 6  # looks an hour: sums over the time range take one each ten minutes
_SUM = f"[$__range:10m]) / {_EVERY}"
_BILLED = f"increase({told('billed_usd_total', IN_POOL)}[$__range])"
WASTED = of("use", "idle|parked|stalled|down")
UNPROVEN = of("use", "unknown|silent")
_POOLS = f"sum by (pool) ({rate(told('billed_usd_total', IN_POOL))})"
_POOLS_WASTE = f"(sum by (pool) ({rate(told('billed_usd_total', IN_POOL, WASTED))}) or {_POOLS} * 0)"
_SHARES = steps((None, GREEN), (0.8, ORANGE), (1, RED))
_THIS = of("budget", "$budget")


def _gpu_seconds(*matchers: str) -> str:
    return f"sum(increase({told('billed_gpu_seconds_total', IN_POOL, *matchers)}[$__range]))"


def _range_usd(by_hour: str) -> str:
    """Money by the hour, summed over the time range."""
    return f"sum_over_time(({by_hour}){_SUM}"


_AT_A_GLANCE = Row(
    title="Over the time range",
    panels=[
        stat(
            "Spent",
            "What running machines cost within the time range, where their price is known; metered by gpuwatch, not "
            "the cloud's bill. What was billed while no controller ran is counted when the next one has billed it.",
            f"sum({_BILLED})",
            MONEY,
            width=4,
            decimals=2,
            trend=False,
        ),
        stat(
            "Wasted",
            "Proven: what of it was paid for GPUs that were seen idle, parked, stalled or down.",
            f"sum(increase({told('billed_usd_total', IN_POOL, WASTED)}[$__range])) or sum({_BILLED}) * 0",
            MONEY,
            limits=fixed(ORANGE),
            width=4,
            decimals=2,
            trend=False,
        ),
        stat(
            "Use not known",
            "What of it was paid for time of which nobody knows the use: no agent, doubt, or nobody looked. It is no "
            "proven waste.",
            f"sum(increase({told('billed_usd_total', IN_POOL, UNPROVEN)}[$__range])) or sum({_BILLED}) * 0",
            MONEY,
            width=4,
            decimals=2,
            trend=False,
        ),
        stat(
            "Not ours",
            "What machines cost that are not enrolled in this fleet, such as another fleet's: in no other figure here "
            "(`cost.scope`).",
            f"sum(increase({told('foreign_usd_total', IN_POOL)}[$__range])) or vector(0)",
            MONEY,
            width=4,
            decimals=2,
            trend=False,
        ),
        stat(
            "Hours without a price",
            "Machine-hours of which no price is known: they are in no dollars. Set `prices.live`, or their prices in "
            "`prices.file`.",
            f"sum(increase({told('billed_unpriced_node_seconds_total', IN_POOL)}[$__range])) / 3600 or vector(0)",
            "none",
            width=4,
            decimals=1,
            trend=False,
        ),
        stat(
            "GPU-hours wasted",
            "Billed GPU-hours seen and of no use, of all billed GPU-hours: a share of time, not of money.",
            f"({_gpu_seconds(WASTED)} or {_gpu_seconds()} * 0) / {_gpu_seconds()}",
            "percentunit",
            limits=steps((None, GREEN), (0.3, ORANGE), (0.6, RED)),
            width=3,
            decimals=1,
            trend=False,
        ),
        stat(
            "GPU-hours",
            "Billed within the time range.",
            f"{_gpu_seconds()} / 3600",
            "none",
            width=3,
            decimals=1,
            trend=False,
        ),
        stat(
            "Saved this month",
            "What machines would have cost that gpuwatch stopped or terminated, until somebody needed them, or for as "
            "long as their pool's usually stay off, 30 days at most. What people's waits cost is taken off. Of the "
            "month up to the end of the time range, as in the report.",
            f"sum({led('saved_usd', IN_POOL)})",
            MONEY,
            limits=fixed(GREEN),
            width=3,
            decimals=2,
            trend=False,
        ),
        stat(
            "Cost per hour now",
            "Of all running machines with a known price.",
            f"sum({led('fleet_usd_per_hour', IN_POOL)})",
            MONEY,
            width=3,
            decimals=2,
        ),
    ],
)

_SPEND = Row(
    title="Spending",
    panels=[
        series(
            "Spent per hour by use",
            "What billed GPU time was used for. Unknown and silent is neither useful nor proven waste.",
            [Query(expr=f"sum by (use) ({rate(told('billed_usd_total', IN_POOL))}) * 3600", legend="{{use}}")],
            MONEY,
            stacked=True,
            overrides=coloured(),
        ),
        series(
            "Spent per hour by pool",
            "By the pool that machines are in.",
            [Query(expr=f"sum by (pool) ({rate(told('billed_usd_total', IN_POOL))}) * 3600", legend="{{pool}}")],
            MONEY,
            stacked=True,
        ),
        series(
            "Saved per hour",
            "What machines would cost that gpuwatch stopped or terminated, as long as they save.",
            [Query(expr=f"sum by (pool) ({led('fleet_saved_usd_per_hour', IN_POOL)})", legend="{{pool}}")],
            MONEY,
            stacked=True,
        ),
        series(
            "Share wasted by pool",
            "The share of money for time seen and of no use. A long time range shows whether it falls; since metering "
            "began: the row below.",
            [Query(expr=f"{_POOLS_WASTE} / ({_POOLS} > 0)", legend="{{pool}}")],
            "percentunit",
        ),
        bars(
            "GPU-hours by use",
            "Billed within the time range, by what the GPUs did.",
            Query(
                expr=f"sum by (use) (increase({told('billed_gpu_seconds_total', IN_POOL)}[$__range])) / 3600 > 0",
                legend="{{use}}",
                now=True,
            ),
            "none",
            overrides=coloured(),
            decimals=1,
            colour="fixed",
        ),
    ],
)

_OWNERS = Row(
    title="Who wastes",
    panels=[
        table(
            "Waste by owner",
            "Money within the time range for GPUs that were idle, parked, stalled or down, also of busy machines, as "
            "in `gpuwatch cost`; one look each ten minutes, so it is rougher.",
            [f"sum by (owner, pool) ({_range_usd(wasted_by_node())}) > 0"],
            [
                Column(source="owner", title="Owner"),
                Column(source="pool", title="Pool"),
                Column(source="Value", title="Wasted", unit=MONEY, properties={"decimals": 2}),
            ],
            width=8,
            sort="Wasted",
        ),
        table(
            "Machines that waste most",
            "The twenty machines with the dearest of those GPUs.",
            [f"topk(20, {_range_usd(wasted_by_node())} > 0)"],
            [
                Column(source="name", title="Name"),
                Column(source="node", title="Machine", properties=node_link()),
                Column(source="pool", title="Pool"),
                Column(source="owner", title="Owner"),
                Column(source="instance_type", title="Type"),
                Column(source="Value", title="Wasted", unit=MONEY, properties={"decimals": 2}),
            ],
            width=16,
            sort="Wasted",
        ),
    ],
)


_HELD = Row(
    title="What holds savings back",
    panels=[
        series(
            "Held back a day",
            "What a day of machines without use costs because a rule forbids stopping them, by the first obstacle "
            "(docs/blocked.md has what would free each, and its risk). Machines of unknown use are not in it.",
            [
                Query(
                    expr=f"sum by (reason) ({led('fleet_blocked_usd_per_hour', IN_POOL)}) * {_HOURS_A_DAY}",
                    legend="{{reason}}",
                )
            ],
            MONEY,
            stacked=True,
        ),
        table(
            "Held back now",
            "The same by pool, with the number of machines; `gpuwatch blocked` names them, and what frees them.",
            [
                f"sum by (pool, reason) ({led('fleet_blocked_usd_per_hour', IN_POOL)}) * {_HOURS_A_DAY}",
                f"sum by (pool, reason) ({led('fleet_blocked_nodes', IN_POOL)})",
            ],
            [
                Column(source="pool", title="Pool"),
                Column(source="reason", title="Held by"),
                Column(source="Value #A", title="A day", unit=MONEY, properties={"decimals": 2}),
                Column(source="Value #B", title="Machines"),
            ],
            width=12,
            sort="A day",
        ),
    ],
)


def _of_budget(name: str) -> str:
    return f"max by (budget) ({led(name)})"


def _highest(name: str) -> str:
    """The highest of a budget's own thresholds that this part of it has passed."""
    thresholds = f"max by (budget, threshold) ({led('budget_threshold_ratio')})"
    return (
        f"max by (budget) ({thresholds} <= on (budget) group_left () ({_of_budget(name)} / {_of_budget('budget_usd')}))"
    )


_BUDGETS = Row(
    title="Budgets",
    panels=[
        table(
            "Budgets",
            "Every budget of this month: what is spent, the forecast for the month's end (with the 80 % interval), "
            "and how likely that is above the budget. Then the highest threshold that either has passed. With "
            "machine-hours without a price, the sums are lower bounds.",
            [
                _of_budget("budget_usd"),
                _of_budget("budget_spent_usd"),
                f"{_of_budget('budget_spent_usd')} / {_of_budget('budget_usd')}",
                _of_budget("budget_forecast_usd"),
                f"{_of_budget('budget_forecast_usd')} / {_of_budget('budget_usd')}",
                _of_budget("budget_forecast_lower_usd"),
                _of_budget("budget_forecast_upper_usd"),
                _of_budget("budget_overrun_probability_ratio"),
                f"{_of_budget('budget_unpriced_node_seconds')} / 3600",
                _highest("budget_spent_usd"),
                _highest("budget_forecast_usd"),
            ],
            [
                Column(source="budget", title="Budget"),
                Column(source="Value #A", title="A month", unit=MONEY),
                Column(source="Value #B", title="Spent", unit=MONEY),
                Column(
                    source="Value #C",
                    title="Part spent",
                    unit="percentunit",
                    properties=filled(_SHARES),
                ),
                Column(source="Value #D", title="Forecast", unit=MONEY),
                Column(
                    source="Value #E",
                    title="Part forecast",
                    unit="percentunit",
                    properties=filled(_SHARES),
                ),
                Column(source="Value #F", title="At least", unit=MONEY),
                Column(source="Value #G", title="At most", unit=MONEY),
                Column(
                    source="Value #H",
                    title="Likely over",
                    unit="percentunit",
                    properties={
                        "thresholds": steps((None, GREEN), (0.2, ORANGE), (0.5, RED)),
                        "custom__cellOptions": {"type": "color-text"},
                    },
                ),
                Column(source="Value #I", title="Hours without price", properties={"decimals": 1}),
                Column(source="Value #J", title="Threshold spent", unit="percentunit"),
                Column(source="Value #K", title="Threshold forecast", unit="percentunit"),
            ],
            key="budget",
            width=24,
            height=7,
            sort="Part forecast",
        ),
        series(
            "Budget $budget",
            "What is spent of the chosen budget, where the month is forecast to end with its 80 % interval, and the "
            "budget.",
            [
                Query(expr=f"max({led('budget_usd', _THIS)})", legend="budget"),
                Query(expr=f"max({led('budget_spent_usd', _THIS)})", legend="spent"),
                Query(expr=f"max({led('budget_forecast_usd', _THIS)})", legend="forecast"),
                Query(expr=f"max({led('budget_present_rate_usd', _THIS)})", legend="at the present rate"),
                Query(expr=f"max({led('budget_forecast_lower_usd', _THIS)})", legend="at least"),
                Query(expr=f"max({led('budget_forecast_upper_usd', _THIS)})", legend="at most"),
                Query(
                    expr=f"max by (threshold) ({led('budget_threshold_ratio', _THIS)})"
                    f" * on () group_left max({led('budget_usd', _THIS)})",
                    legend="{{threshold}} % of it",
                ),
            ],
            MONEY,
            overrides=[
                override("budget", color={"fixedColor": RED, "mode": "fixed"}, custom__fillOpacity=0),
                override("spent", color={"fixedColor": BLUE, "mode": "fixed"}, custom__fillOpacity=30),
                override("forecast", color={"fixedColor": ORANGE, "mode": "fixed"}, custom__fillOpacity=0),
                override("at least", color={"fixedColor": GREY, "mode": "fixed"}, custom__fillOpacity=0),
                override(
                    "at most",
                    color={"fixedColor": GREY, "mode": "fixed"},
                    custom__fillBelowTo="at least",
                    custom__fillOpacity=15,
                ),
            ],
            width=16,
            height=9,
        ),
        table(
            "What budgets do now",
            "block_growth: nothing is added that the budget covers. shorten_idle_timeout: idle machines stop sooner.",
            [f"max by (budget, effect) ({led('budget_effect_info')})"],
            [Column(source="budget", title="Budget"), Column(source="effect", title="Effect")],
            width=8,
            height=9,
        ),
    ],
)


def cost() -> Json:
    """dashboards/cost.json."""
    budget = variable(
        "budget",
        "Budget",
        f"label_values(gpuwatch_budget_usd{{{CONTROLLERS}}}, budget)",
        "The budget that is drawn",
        several=False,
    )
    return board(
        "cost",
        "Spending, waste by owner, budgets with their forecasts, and savings. Needs the controller's metrics.",
        [JOB, CLUSTER, FLEET, POOL, CURRENCY, budget],
        [_AT_A_GLANCE, _BUDGETS, _SPEND, SINCE, _HELD, _OWNERS],
        since="now-7d",
    )
