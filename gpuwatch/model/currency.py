"""The currency in which people read money. All reckoning and the ledger stay in US dollars.

One process shows one currency: a shell chooses it once it has read the settings (`show_in`). Whatever is written for
people goes through `format_usd` and the like (`model/money.py`), so that no text can forget it. Sums are converted
exactly, and rounded once, to the cent of that currency.
"""

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from fractions import Fraction

_SIGNS = {"USD": "$", "CNY": "¥", "EUR": "€", "GBP": "£", "INR": "₹", "KRW": "₩"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Currency:
    """The currency of texts: `usd` is US dollars for one unit, `as_of` the day of that rate; null: nobody said."""

    code: str = "USD"
    usd: Decimal = Decimal(1)
    as_of: date | None = None

    @property
    def sign(self) -> str:
        """`$`, `¥`, or the code and a blank."""
        return _SIGNS.get(self.code, f"{self.code} ")

    @property
    def head(self) -> str:
        """The sign as a column's title has it."""
        return self.sign.strip()

    @property
    def cent(self) -> Fraction:
        """What the hundredth part of one unit is worth, in US dollars."""
        return Fraction(self.usd) / 100

    @property
    def note(self) -> str | None:
        """The rate and its day as a sentence; None in US dollars."""
        if self.code == "USD":
            return None
        day = "of a day that prices.rates_as_of does not give" if self.as_of is None else f"of {self.as_of}"
        return f"Money in {self.code}: one is {self.usd.normalize():f} US dollars, the rate {day}."

    @property
    def unless_usd(self) -> "Currency | None":
        """For JSON, where every sum stays in US dollars; None: texts are in US dollars, too."""
        return None if self.code == "USD" else self


DOLLARS = Currency()
_chosen = [DOLLARS]


def show_in(currency: Currency) -> None:
    """From now on texts of this process are in that currency."""
    _chosen[:] = [currency]


def display_currency() -> Currency:
    """The currency of texts."""
    return _chosen[0]
