"""The table of docs/money.md that says how old the built-in prices are."""

import re
from collections.abc import Iterable, Sequence

from gpuwatch.money.prices.catalogue import currency_of
from tools.prices.table import Row

PAGE = "docs/money.md"
_TITLES = {"aws": "AWS", "azure": "Azure", "gcp": "GCP", "alibaba": "Alibaba Cloud"}
_HEAD = "| cloud | prices of | in | regions | machines |\n| --- | --- | --- | --- | --- |\n"


def with_table(page: str, rows: Iterable[Row]) -> str:
    """The page with the table of these rows.

    Raises:
        ValueError: the page has no such table.

    """
    changed, times = re.subn(re.escape(_HEAD) + r"(?:\|.*\n)+", lambda _: table(rows), page)
    if times != 1:
        raise ValueError(f"{PAGE} has {times} tables that begin with {_HEAD.splitlines()[0]!r}, expected 1")
    return changed


def table(rows: Iterable[Row]) -> str:
    """A line for each cloud: the days of its prices, their currency, and how many regions and machines they cover."""
    clouds: dict[str, list[Row]] = {}
    for row in rows:
        clouds.setdefault(row.provider, []).append(row)
    return _HEAD + "".join(_line(name, of_cloud) for name, of_cloud in clouds.items())


def _line(name: str, rows: Sequence[Row]) -> str:
    days = sorted({row.as_of for row in rows})
    span = f"{days[0]}" if len(days) == 1 else f"{days[0]} to {days[-1]}"
    money = " and ".join(sorted({currency_of(name, row.region) for row in rows}, reverse=True))
    regions, kinds = len({row.region for row in rows}), len({row.type for row in rows})
    spot = " (also spot)" if any(row.spot for row in rows) else ""
    return f"| {_TITLES[name]} | {span}{spot} | {money} | {regions} | {kinds} |\n"
