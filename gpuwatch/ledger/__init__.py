"""What was intended, what came of it, and the rounds that decisions rested on: SQLite by default, or PostgreSQL.

`Ledger` is loaded when it is asked for: an agent's host reads the settings, `gpuwatch.ledger.settings` among them,
without SQLAlchemy.
"""

from typing import TYPE_CHECKING

from gpuwatch.ledger.records import (
    Audit,
    Broken,
    Entry,
    LeadLostError,
    LedgerError,
    LedgerValueError,
    OtherLedgerError,
    PastRound,
    RoundLine,
)
from gpuwatch.ledger.settings import LedgerSettings

if TYPE_CHECKING:
    from gpuwatch.ledger.ledger import Ledger

__all__ = [
    "Audit",
    "Broken",
    "Entry",
    "LeadLostError",
    "Ledger",
    "LedgerError",
    "LedgerSettings",
    "LedgerValueError",
    "OtherLedgerError",
    "PastRound",
    "RoundLine",
]


def __getattr__(name: str) -> object:
    """The ledger itself, with its database library."""
    if name != "Ledger":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from gpuwatch.ledger.ledger import Ledger  # noqa: PLC0415  as the module says

    return Ledger
