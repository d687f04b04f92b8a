"""Every setting of prices. `gpuwatch.config.settings` puts them into the configuration file."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Annotated, ClassVar

from annotated_types import Ge, Gt, MinLen

from gpuwatch.model.currency import DOLLARS, Currency
from gpuwatch.model.duration import Seconds
from gpuwatch.model.setting import STRICT, Contradiction, Setting
from gpuwatch.runtime.http import address

LIVE = ("aws", "azure", "gcp", "alibaba", "tencent")
_CURRENCY = re.compile(r"[A-Z]{3}")
_Text = Annotated[str, MinLen(1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LivePriceSettings:
    """Prices asked of the clouds themselves, in the background; an answer that fails takes no price away."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    aws: Annotated[
        bool,
        Setting("Ask EC2 for list and spot prices; wants pricing:GetProducts and ec2:DescribeSpotPriceHistory."),
    ] = False
    azure: Annotated[bool, Setting("Ask Azure's Retail Prices API, which wants no login.")] = False
    gcp: Annotated[bool, Setting("Ask GCP's Cloud Billing catalogue, with the cloud's extra.")] = False
    gcp_key_file: Annotated[
        _Text | None, Setting("The file with a service account's key. None: the cloud's own credentials.")
    ] = None
    alibaba: Annotated[
        bool, Setting("Ask Alibaba Cloud for what this account pays on demand and spot, with the cloud's extra.")
    ] = False
    alibaba_key_file: Annotated[
        _Text | None,
        Setting("The file with ID:SECRET of an access key that may ecs:DescribePrice. None: the cloud's own."),
    ] = None
    tencent: Annotated[bool, Setting("Ask Tencent Cloud for what this account pays; wants tencent_currency.")] = False
    tencent_key_file: Annotated[
        _Text | None,
        Setting(
            "The file with ID:SECRET of a key that may cvm:DescribeZoneInstanceConfigInfos. None: the cloud's own."
        ),
    ] = None
    tencent_currency: Annotated[
        _Text | None, Setting("What the account is billed in, which Tencent's answers do not say.")
    ] = None
    every: Annotated[Seconds, Ge(3600), Setting("A price is asked for again when it is that old.")] = 21600.0
    directory: Annotated[_Text, Setting("Where the answers are kept over a restart, with the time of each.")] = (
        "/var/lib/gpuwatch/prices"
    )
    endpoints: Annotated[
        dict[str, _Text], Setting("Base URLs in the place of a cloud's own, by its name: for proxies and tests.")
    ] = field(default_factory=dict)

    @property
    def providers(self) -> tuple[str, ...]:
        """The clouds to ask."""
        return tuple(name for name in LIVE if getattr(self, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceSettings:
    """What machines cost, where the built-in list prices are not what is paid."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    file: Annotated[
        _Text | None,
        Setting("Own prices and discounts, YAML or CSV (docs/money.md); read again when it changes."),
    ] = None
    currency: Annotated[_Text, Setting("The currency of those of the file's prices that name none.")] = "USD"
    rates: Annotated[
        dict[str, Annotated[Decimal, Gt(0)]],
        Setting("US dollars for one unit of another currency; without its rate, a price in it is unknown."),
    ] = field(default_factory=dict)
    rates_as_of: Annotated[
        _Text | None, Setting("The day of these rates, such as 2026-11-20; it is shown wherever a rate is used.")
    ] = None
    warn_older_than: Annotated[
        Seconds,
        Ge(86400),
        Setting("`config check` and `prices` warn of built-in prices older than this, of clouds not in `live`."),
    ] = 15_552_000.0
    live: LivePriceSettings = field(default_factory=LivePriceSettings)


def currency_of(prices: PriceSettings, code: str) -> Currency:
    """The currency of texts, by its rate; US dollars where the rate is missing."""
    rate = prices.rates.get(code)
    if code == "USD" or rate is None:
        return DOLLARS
    return Currency(code=code, usd=rate, as_of=_day(prices.rates_as_of))


def _day(text: str | None) -> date | None:
    try:
        return None if text is None else date.fromisoformat(text)
    except ValueError:
        return None


def of_shown(prices: PriceSettings, code: str) -> Iterator[Contradiction]:
    """What is wrong with the currency of texts."""
    if code not in {"USD", *prices.rates}:
        yield Contradiction(
            keys=(("currency",), ("prices", "rates")),
            wrong=f"prices.rates has no rate for {code}",
            right=f'prices.rates: {{{code}: "what one is worth in US dollars"}}',
        )


def contradictions(prices: PriceSettings) -> Iterator[Contradiction]:
    """What no single key's bounds can check."""
    codes = {("currency",): prices.currency, ("live", "tencent_currency"): prices.live.tencent_currency or "CNY"}
    for path, code in (codes | {("rates", code): code for code in prices.rates}).items():
        if not _CURRENCY.fullmatch(code):
            yield Contradiction(
                keys=(("prices", *path),), wrong=f"{code!r} is no currency", right="a code such as USD or CNY"
            )
    if prices.rates_as_of is not None and _day(prices.rates_as_of) is None:
        yield Contradiction(
            keys=(("prices", "rates_as_of"),),
            wrong=f"{prices.rates_as_of!r} is no day",
            right="a day such as 2026-11-20",
        )
    if prices.rates.get("USD", 1) != 1:
        yield Contradiction(
            keys=(("prices", "rates", "USD"),), wrong="a US dollar is not worth that", right="no rate for USD"
        )
    if prices.currency not in {"USD", *prices.rates}:
        yield Contradiction(
            keys=(("prices", "currency"),),
            wrong=f"prices.rates has no rate for {prices.currency}: no price of the file would be known",
            right=f'prices.rates: {{{prices.currency}: "what one is worth in US dollars"}}',
        )
    for name, key in (("tencent", "tencent_currency"),):
        if name in prices.live.providers and getattr(prices.live, key) is None:
            yield Contradiction(
                keys=(("prices", "live", name),),
                wrong=f"prices.live.{name} is set, but prices.live.{key} is not",
                right=f"prices.live.{key} as well",
            )
    for name, url in prices.live.endpoints.items():
        path = ("prices", "live", "endpoints", name)
        if name not in LIVE:
            yield Contradiction(
                keys=(path,), wrong=f"{name!r} is asked for no price", right=f"one of {', '.join(LIVE)}"
            )
        else:
            yield from address.contradictions(path, url, right="a URL such as http://127.0.0.1:8080")
