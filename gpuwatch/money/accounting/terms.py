"""The labels and prices that spending is billed under, each set under a number that it keeps."""

import hashlib
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from decimal import Decimal

import msgspec
from sqlalchemy import Connection, select

from gpuwatch.ledger.records import LedgerError
from gpuwatch.ledger.tables import SPEND_TERMS
from gpuwatch.model.usage import Terms

_LATER = ("cloud", "provider")  # columns that schema 6 did not have


@dataclass(slots=True)
class Numbers:
    """The number of each set of terms: known ones, and what this transaction adds.

    A price that is reported again with a later date is the same one; the first date is kept.
    """

    known: dict[Terms, int]
    first: int
    added: dict[int, Terms] = field(default_factory=dict)

    def of(self, terms: Terms) -> int:
        """The number of these terms; it never changes."""
        undated = replace(terms, price_as_of=None)
        found = self.known.get(undated)
        if found is None:
            found = self.known[undated] = self.first + len(self.added)
            self.added[found] = terms
        return found


def insert_terms(db: Connection, added: dict[int, Terms]) -> None:
    """Write new sets of terms."""
    if added:
        rows = [
            {"id": number, "digest": hashlib.sha256(_canonical(terms)).hexdigest(), **_columns(terms)}
            for number, terms in added.items()
        ]
        db.execute(SPEND_TERMS.insert(), rows)


def terms_texts(db: Connection) -> dict[int, str]:
    """All terms by number, as one text each."""
    return {number: _canonical(each).decode() for number, each in all_terms(db).items()}


def _columns(terms: Terms) -> dict[str, str | int | None]:
    """As texts, which both databases give back as they are."""
    usd, as_of = terms.usd_per_hour, terms.price_as_of
    return {
        **asdict(terms),
        "usd_per_hour": None if usd is None else str(usd),
        "price_as_of": None if as_of is None else as_of.isoformat(),
        "tags": msgspec.json.encode(dict(terms.tags), order="sorted").decode(),
    }


def _canonical(terms: Terms) -> bytes:
    """What is hashed. What a schema did not have is left out while it is not known: the seals of old days hold."""
    columns = _columns(terms)
    unknown = [name for name in _LATER if columns[name] is None]
    return msgspec.json.encode({name: columns[name] for name in columns.keys() - unknown}, order="sorted")


class _Known(dict[int, Terms]):
    """By number; a number without its terms is an error that says so."""

    def __missing__(self, number: int) -> Terms:
        """Raise: somebody deleted them."""
        raise LedgerError(f"the terms {number}, under which spending was billed, are gone; restore the ledger")


def all_terms(db: Connection) -> dict[int, Terms]:
    """By number.

    Raises:
        LedgerError: at a number without its terms.

    """
    return _Known(
        (
            row.id,
            Terms(
                pool=row.pool,
                owner=row.owner,
                account=row.account,
                region=row.region,
                instance_type=row.instance_type,
                capacity_type=row.capacity_type,
                gpus=row.gpus,
                usd_per_hour=None if row.usd_per_hour is None else Decimal(row.usd_per_hour),
                price_as_of=None if row.price_as_of is None else date.fromisoformat(row.price_as_of),
                price_source=row.price_source,
                tags=tuple(sorted(msgspec.json.decode(row.tags, type=dict[str, str]).items())),
                cloud=row.cloud,
                provider=row.provider,
            ),
        )
        for row in db.execute(select(SPEND_TERMS))
    )
