"""What things cost. Money is Decimal, never float."""

from dataclasses import dataclass
from datetime import date
from decimal import Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What an hour of one machine costs, as of when and on whose word."""

    usd_per_hour: Decimal
    as_of: date
    source: str
