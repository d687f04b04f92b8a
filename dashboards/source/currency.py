"""Money on the boards: metrics are in US dollars, and panels divide them by the rate that the controller exports.

Grafana fills no variable into a unit (packages/grafana-data, unitOverrideProcessor), but into a title: it has the
currency, and values are plain numbers.
"""

MONEY = "locale"  # the unit of money: numbers with separators; nothing else has it
_CHOSEN = 'job=~"$job", cluster=~"$cluster", fleet=~"$fleet", currency=~"$currency"'
# The newest rate for all of a graph, also for what was before the rate or the setting changed. 1: an older controller.
_RATE = f"scalar(max(gpuwatch_currency_usd{{{_CHOSEN}}} @ end()) or vector(1))"


def titled(title: str, unit: str) -> str:
    """The title of a panel; that of money names the currency."""
    return f"{title} ($currency)" if unit == MONEY else title


def converted(expr: str, unit: str) -> str:
    """The query of a value; that of money is US dollars in the chosen currency."""
    return f"({expr}) / {_RATE}" if unit == MONEY else expr
