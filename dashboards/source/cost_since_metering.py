"""The row of money "Since metering began": the first weeks against the last ones, and what changed."""

from dashboards.source.currency import MONEY
from dashboards.source.parts import GREEN, ORANGE, Column, Query, Row, series, stat, steps, table
from dashboards.source.queries import IN_POOL, eq, led, of, told


def _weekly(name: str, weeks: str) -> str:
    """Of a week on average, over the first or the last weeks of metering."""
    return led(f"waste_{name}_per_week", IN_POOL, eq("weeks", weeks))


def _by_owner(weekly: str) -> str:
    return f'sum by (pool, owner) (label_replace({weekly}, "owner", "nobody", "owner", ""))'


def _kinds(name: str, *by: str) -> str:
    """How many other label sets an info metric had than one, within moments, by controller: 0 while nothing changes."""
    of_each = ", ".join(("cluster", "fleet", "job", "instance", *by))
    return f"count by ({of_each}) (max_over_time({told(name)}[$__rate_interval])) - 1"


_FIRST, _LAST = (_weekly("usd", weeks) for weeks in ("first", "last"))
_FIRST_HOURS, _LAST_HOURS = (f"{_weekly('gpu_seconds', weeks)} / 3600" for weeks in ("first", "last"))
_FIRST_USEFUL, _LAST_USEFUL = (
    f"(sum({_weekly('billed_usd', weeks)}) - sum({_weekly('usd', weeks)}) - (sum({_weekly('unproven_usd', weeks)})"
    f" or sum({_weekly('usd', weeks)}) * 0))"
    for weeks in ("first", "last")
)
_UNPRICED = led("waste_unpriced_node_seconds_per_week", IN_POOL)
_ACTED = told("controller_actions_total", IN_POOL, of("verb", "stop|terminate|start"), of("status", "accepted|settled"))

SINCE = Row(
    title="Since metering began",
    panels=[
        stat(
            "Wasted a week at first",
            "What was billed for time seen and of no use in the first four weeks of metering (or fewer), "
            "a week on average; read from the ledger once a day. Nothing until two weeks are metered, or without a "
            "price.",
            f"sum({_FIRST})",
            MONEY,
            width=4,
            decimals=2,
            trend=False,
        ),
        stat(
            "Wasted a week now",
            "The same of the last four whole weeks.",
            f"sum({_LAST})",
            MONEY,
            width=4,
            decimals=2,
            trend=False,
        ),
        stat(
            "Difference a week",
            "The last weeks less the first ones: below zero, less is wasted than at first.",
            f"sum({_LAST}) - sum({_FIRST})",
            MONEY,
            limits=steps((None, GREEN), (0.01, ORANGE)),
            width=4,
            decimals=2,
            trend=False,
        ),
        stat(
            "Avoided a week",
            "What the last weeks would have wasted for each dollar of useful time as the first ones did, less what "
            "they wasted. An estimate: other work may waste more or less by itself.",
            f"sum({_FIRST}) / ({_FIRST_USEFUL} > 0) * {_LAST_USEFUL} - sum({_LAST})",
            MONEY,
            limits=steps((None, ORANGE), (0, GREEN)),
            width=4,
            decimals=2,
            trend=False,
        ),
        stat(
            "GPU-hours wasted a week at first",
            "Billed GPU-hours seen and of no use, with and without a price.",
            f"sum({_FIRST_HOURS})",
            "none",
            width=4,
            decimals=1,
            trend=False,
        ),
        stat(
            "GPU-hours wasted a week now",
            "The same of the last weeks.",
            f"sum({_LAST_HOURS})",
            "none",
            width=4,
            decimals=1,
            trend=False,
        ),
        table(
            "Then and now by owner",
            "A week on average. Owners beyond the hundred with the most waste are one row (others) in each pool. With "
            "machine-hours without a price, sums of money are lower bounds. The report has the same week by week.",
            [
                _by_owner(_FIRST_HOURS),
                _by_owner(_LAST_HOURS),
                _by_owner(_FIRST),
                _by_owner(_LAST),
                f"{_by_owner(_LAST)} - {_by_owner(_FIRST)}",
                f"{_by_owner(_UNPRICED)} / 3600",
            ],
            [
                Column(source="pool", title="Pool"),
                Column(source="owner", title="Owner"),
                Column(source="Value #A", title="GPU-hours first", properties={"decimals": 1}),
                Column(source="Value #B", title="GPU-hours now", properties={"decimals": 1}),
                Column(source="Value #C", title="Wasted first", unit=MONEY),
                Column(source="Value #D", title="Wasted now", unit=MONEY),
                Column(source="Value #E", title="Difference", unit=MONEY),
                Column(source="Value #F", title="Hours without price", properties={"decimals": 1}),
            ],
            width=24,
            sort="Wasted first",
        ),
        series(
            "Wasted a week by pool",
            "The last four weeks at each day of the time range, and the first ones together.",
            [
                Query(expr=f"sum by (pool) ({_LAST})", legend="{{pool}}"),
                Query(expr=f"sum({_FIRST})", legend="at first, all pools"),
            ],
            MONEY,
        ),
        series(
            "What changed",
            "Stops and starts that were carried out, and when rules for removals, the mode, or the controller itself "
            "changed (a restart or a reload of the settings); pools that are paused. Only within the time range and "
            "what Prometheus keeps: the report has all changes by week.",
            [
                Query(expr=f"sum by (verb) (increase({_ACTED}[$__rate_interval]))", legend="{{verb}}"),
                Query(
                    expr=f"max by (pool) ({_kinds('controller_pool_rules_info', 'pool')})",
                    legend="other rules: {{pool}}",
                ),
                Query(expr=f"max({_kinds('controller_info')})", legend="other mode"),
                Query(
                    expr=f"max(resets({told('controller_rounds_total')}[$__rate_interval]))",
                    legend="restart or reload",
                ),
                Query(expr=f"sum({led('controller_paused')})", legend="paused"),
            ],
            "none",
            decimals=0,
        ),
    ],
)
