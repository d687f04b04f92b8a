"""The table of docs/money.md that says how old the built-in prices are."""

import re
from collections.abc import Iterable

from tools.prices.table import Row

PAGE = "docs/money.md"
_TITLES = {"aws": "AWS", "azure": "Azure", "gcp": "GCP", "alibaba": "Alibaba Cloud"}
_CURRENCIES = {"alibaba": ", CNY"}
_HEAD = "| cloud | as of | on demand in |\n| --- | --- | --- |\n"


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
    """A line for each cloud: the day of its oldest price, its currency if it is not the US dollar, its regions."""
    clouds: dict[str, list[Row]] = {}
    for row in rows:
        clouds.setdefault(row.provider, []).append(row)
    return _HEAD + "".join(
        f"| {_TITLES[name]} | {min(row.as_of for row in of_cloud)}{_CURRENCIES.get(name, '')} "
        f"| {', '.join(dict.fromkeys(row.region for row in of_cloud))}"
        f"{' (also spot)' if any(row.spot for row in of_cloud) else ''} |\n"
        for name, of_cloud in clouds.items()
    )
