"""Amounts in another currency: `36000 CNY` at a key in US dollars, by the rate in prices.rates of the same file."""

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from gpuwatch.config.keys import NUMERIC, Path
from gpuwatch.config.yaml_file import Origin

_AMOUNT = re.compile(
    r"(?P<before>[A-Z]{3})? ?(?P<number>\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?) ?(?P<after>[A-Z]{3})?"
)


def in_dollars(values: dict[str, Any], origin: Origin) -> None:
    """Put US dollars in the place of every amount in another currency; one without a rate is noted in `origin`."""
    prices = values.get("prices")
    written = prices.get("rates") if isinstance(prices, Mapping) else None
    rates = written if isinstance(written, Mapping) else {}
    for group, path in list(groups(values, ())):
        for name, value in list(group.items()):
            key = origin.key((*path, name))
            if key is None or key.kind not in NUMERIC or "usd" not in name or not isinstance(value, str):
                continue
            found = _AMOUNT.fullmatch(value.strip())
            codes = [] if found is None else [code for code in (found["before"], found["after"]) if code]
            if found is None or len(codes) != 1:
                continue
            rate = Decimal(1) if codes[0] == "USD" else _rate(rates.get(codes[0]))
            if rate is None:
                right = f'prices.rates: {{{codes[0]}: "what one is worth in US dollars"}}, or US dollars'
                origin.add((*path, name), f"{value!r}: prices.rates has no rate for {codes[0]}", right)
                group[name] = "1"  # a sound value, so that this is the only problem of the key
                continue
            group[name] = str(Decimal(found["number"].replace(",", "")) * rate)


def groups(values: Any, path: Path) -> Iterator[tuple[dict[str, Any], Path]]:  # noqa: ANN401  a file holds anything
    """Every mapping of the file, with its path."""
    if isinstance(values, dict):
        yield values, path
        for name, value in values.items():
            yield from groups(value, (*path, str(name)))


def _rate(value: object) -> Decimal | None:
    """A rate as written; what is wrong with it is noted where the rates are checked."""
    try:
        rate = Decimal(str(value))
    except InvalidOperation:
        return None
    return rate if rate.is_finite() and rate > 0 else None
