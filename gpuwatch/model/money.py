"""What things cost. Money is Decimal, never float."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from fractions import Fraction

from gpuwatch.model.currency import display_currency

# What a price by the month is divided by, as the clouds do it themselves.
HOURS_A_MONTH = 730


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What an hour of one machine costs, with its date and its source.

    If the price is in another currency, `original_per_hour` is the original sum, and `rate` what one unit of `currency`
    was taken to be worth in US dollars. One that is not `exact` stands in for one that is not known; its source says
    why. `most_usd_per_hour` is then the most that the known one may be, where that is another sum.
    """

    usd_per_hour: Decimal
    as_of: date
    source: str
    currency: str = "USD"
    original_per_hour: Decimal | None = None
    rate: Decimal | None = None
    exact: bool = True
    most_usd_per_hour: Decimal | None = None

    @property
    def limit_usd_per_hour(self) -> Decimal:
        """What a limit counts it as: never less than it may be."""
        return self.usd_per_hour if self.most_usd_per_hour is None else self.most_usd_per_hour


def in_place_of_region(source: str, place: str, region: str | None) -> str:
    """The source of a price that is of another region; `place` says which, with a reason in a few words."""
    return f"{source}; {_ELSEWHERE} {place}, in place of {region}'s"


def place_of(source: str | None) -> str | None:
    """Which other region a price with that source is of; None: it is of the machine's own."""
    _, found, rest = (source or "").partition(f"; {_ELSEWHERE} ")
    return rest.partition(",")[0] if found else None


_ELSEWHERE = "the price of another region:"


def elsewhere_note(sources: Iterable[str | None]) -> str | None:
    """The sentence about prices that are of another region; None: none is."""
    places = sorted({place for place in map(place_of, sources) if place is not None})
    if not places:
        return None
    more = f" and {len(places) - _NAMED_PLACES} more" if len(places) > _NAMED_PLACES else ""
    return (
        f"Some prices are of another region ({', '.join(places[:_NAMED_PLACES])}{more}), because the machine's own has "
        "no known list price; prices.file and prices.live have the right ones."
    )


_NAMED_PLACES = 3


def price_note(sources: Iterable[str | None]) -> str | None:
    """What is to be known of these prices: which are of another region, and what commitments cover; None: nothing."""
    known = tuple(sources)
    return " ".join(filter(None, (elsewhere_note(known), committed_note(known)))) or None


# The argument of a removal by which it is kept what an hour of it saves, where that is not the price for limits.
SAVES = "saves_usd_per_hour"
EFFECTIVE = "effective rate of your bill"
_COMMITTED = re.compile(rf"{EFFECTIVE}, [^;]*?([0-9]+(?:\.[0-9]+)?) % committed")


def effective_source(first: date, last: date, committed: Decimal) -> str:
    """The source of a price that a bill of these days has; `committed` is the share of it that commitments cover."""
    month = f"{first:%Y-%m}"
    days = month if f"{last:%Y-%m}" == month else f"{month} to {last:%Y-%m}"
    percent = (committed * 100).quantize(Decimal("0.1"))
    covered = f", {percent.normalize():f} % committed" if percent else ""
    return f"{EFFECTIVE}, {days}{covered}"


def committed_ratio(source: str | None) -> Decimal:
    """The share of a price that commitments cover, by its source: it is paid whether the machine runs or not."""
    found = _COMMITTED.search(source or "")
    return min(Decimal(found[1]) / 100, Decimal(1)) if found else Decimal(0)


def avoidable_usd(usd_per_hour: Decimal, source: str | None) -> Decimal:
    """What of an hour's price a stop saves: an hour that a commitment covers is paid in any case."""
    return usd_per_hour * (1 - committed_ratio(source))


def committed_note(sources: Iterable[str | None]) -> str | None:
    """The sentence about machines that commitments cover; None: no commitment covers any."""
    shares = sorted({share for share in map(committed_ratio, sources) if share})
    if not shares:
        return None
    most = f"up to {shares[-1]:.0%}" if len(shares) > 1 else f"{shares[-1]:.0%}"
    return f"Commitments cover {most} of the price of some machines: that part is paid also while they are stopped."


def format_usd(amount: Decimal | Fraction | float | None, unknown: str = "-") -> str:
    """US dollars for people, in the currency that they read: `$1,234.50`, `-$5.00`, `¥8,945.65`."""
    return unknown if amount is None else format_cents(cents_of(amount))


def day_with_age(as_of: date, today: date) -> str:
    """The day of a price for people, with its age: `2026-01-19, 308 days old`; without an age on the day itself."""
    days = (today - as_of).days
    return f"{as_of}, {days} day{'s' if days != 1 else ''} old" if days > 0 else f"{as_of}"


def usd_to_the_cent(amount: Decimal | Fraction) -> Decimal:
    """US dollars for documents: exactly so many cents, rounded once."""
    return usd_of_cents(round(Fraction(amount) * 100))


def usd_of_cents(cents: int) -> Decimal:
    """So many hundredths of a US dollar, as documents have them: `12.50`."""
    return Decimal(cents).scaleb(-2)


def cents_of(amount: Decimal | Fraction | float) -> int:
    """US dollars as hundredths of the currency that people read, rounded once."""
    return round(Fraction(amount) / display_currency().cent)


def format_cents(cents: int) -> str:
    """Hundredths of the currency that people read, with its sign."""
    return f"{'-' if cents < 0 else ''}{display_currency().sign}{abs(cents) / 100:,.2f}"


def format_price(usd: Decimal | Fraction) -> str:
    """The price of something small, with four digits, in the currency that people read."""
    return f"{display_currency().sign}{float(Fraction(usd) / display_currency().cent / 100):,.4f}"


def whole_usd(amount: Decimal | Fraction | float) -> str:
    """US dollars for people without the cents, in the currency that they read: `$1,235`, `¥8,946`."""
    units = round(Fraction(amount) / display_currency().cent / 100)
    return f"{'-' if units < 0 else ''}{display_currency().sign}{abs(units):,}"


def money_head() -> str:
    """The currency that people read, for the heading of a column: `US$`, `CNY`."""
    return "US$" if display_currency().code == "USD" else display_currency().code


def column_usd(amount: Decimal | Fraction | float, digits: int = 2) -> str:
    """US dollars in the currency that people read, for a column under `money_head`: `1,234.50`."""
    return f"{float(Fraction(amount) / display_currency().cent / 100):,.{digits}f}"


def bare_usd(amount: Decimal | Fraction) -> str:
    """US dollars in the currency that people read, without its sign: a heading names it."""
    return f"{cents_of(amount) / 100:.2f}"
