"""Who held the GPUs of a cluster's nodes, in the ledger: next to the rows of spending, by workload and not by pod.

Rows have the hours, days and terms of `spend`, are written in its transaction, and are summed up and sealed with it. A
pod has none of its own: thousands come and go in a day, and their workloads stay.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from sqlalchemy import Connection, Row, Select, func, select

from gpuwatch.ledger.any_text import json_of
from gpuwatch.ledger.tables import SPEND_HELD, SPEND_HOLDERS
from gpuwatch.model.usage import AMOUNTS, GPU, JOULES, Holder, Terms
from gpuwatch.money.accounting.holders import Held
from gpuwatch.money.accounting.terms import upsert
from gpuwatch.money.accounting.totals import Billed
from gpuwatch.money.accounting.totals import Row as Spent

HELD = AMOUNTS[GPU:JOULES]
SUMS = tuple(func.sum(SPEND_HELD.c[name]).label(name) for name in HELD)
_GPU_MS = sum((SPEND_HELD.c[name] for name in HELD[1:]), SPEND_HELD.c[HELD[0]])


def all_holders(db: Connection) -> dict[int, Holder]:
    """Return all holders by their number."""
    return {
        row.id: Holder(row.cluster, row.namespace, row.kind, row.name, row.owner)
        for row in db.execute(select(SPEND_HOLDERS))
    }


def write(db: Connection, held: Held, known: dict[Holder, int]) -> None:
    """Add a round's rows; `known` has the numbers of all holders, and gets those of new ones."""
    first = max(known.values(), default=0) + 1
    new = dict.fromkeys(key.holder for key in held if key.holder not in known)
    added = {holder: first + place for place, holder in enumerate(new)}
    if added:
        db.execute(SPEND_HOLDERS.insert(), [_columns(number, holder) for holder, number in added.items()])
        known |= added
    rows = [(key.begin, known[key.holder], key.terms, key.span, *amounts) for key, amounts in held.items()]
    upsert(db, SPEND_HELD, rows)


def sum_up(db: Connection, begin: int, end: int) -> list[int]:
    """Replace the hours of a day by one row for each holder and terms; gives the sums of all."""
    keys = (SPEND_HELD.c.holder, SPEND_HELD.c.terms)
    sums = db.execute(rows_within(select(*keys, *SUMS), begin, end).group_by(*keys)).all()
    db.execute(SPEND_HELD.delete().where(SPEND_HELD.c.begin >= begin, SPEND_HELD.c.begin < end))
    rows = [(begin, row.holder, row.terms, end - begin, *map(int, row[2:])) for row in sums]
    upsert(db, SPEND_HELD, rows)
    return [sum(column) for column in zip(*(row[4:] for row in rows), strict=True)] or [0] * len(HELD)


def sealed_texts(db: Connection, begin: int, end: int, terms: Mapping[int, str]) -> Iterator[bytes]:
    """A day's rows with all that they refer to, in the order of their keys, as they are hashed."""
    rows = list(db.execute(rows_within(select(SPEND_HELD), begin, end)))
    holders = all_holders(db) if rows else {}
    for row in sorted(rows, key=lambda row: (row.holder, row.terms, row.begin, row.span)):
        holder = holders.get(row.holder)
        about = None if holder is None else _columns(row.holder, holder)["digest"]
        yield json_of([*row, about, terms.get(row.terms)])


def each(db: Connection, since: int, until: int) -> Iterator[tuple[int, Holder, list[int]]]:
    """The rows that begin in [since, until): the number of their terms, who held, GPU-milliseconds by use."""
    holders = all_holders(db)
    for row in db.execute(rows_within(select(SPEND_HELD), since, until).execution_options(yield_per=5_000)):
        yield row.terms, holders[row.holder], list(row[4:])


def sums_by_terms(db: Connection, since: int, until: int) -> dict[int, dict[Holder, list[int]]]:
    """GPU-milliseconds by use of rows that begin in [since, until), by terms and holder."""
    found: dict[int, dict[Holder, list[int]]] = {}
    holders = all_holders(db)
    keys = (SPEND_HELD.c.terms, SPEND_HELD.c.holder)
    for row in db.execute(rows_within(select(*keys, *SUMS), since, until).group_by(*keys)):
        found.setdefault(row.terms, {})[holders[row.holder]] = [int(each) for each in row[2:]]
    return found


def namespaces_billed(db: Connection, since: int, until: int, terms: Mapping[int, Terms]) -> list[Billed]:
    """The time of machines by namespace: that of their GPUs, over how many they have."""
    keys = (SPEND_HELD.c.begin, SPEND_HELD.c.span, SPEND_HELD.c.terms, SPEND_HOLDERS.c.namespace)
    joined = SPEND_HELD.join(SPEND_HOLDERS, SPEND_HELD.c.holder == SPEND_HOLDERS.c.id)
    query = rows_within(select(*keys, func.sum(_GPU_MS).label("ms")).select_from(joined), since, until).group_by(*keys)
    return [
        Billed(
            begin=row.begin,
            span=row.span,
            terms=terms[row.terms],
            node_ms=Fraction(int(row.ms), terms[row.terms].gpus),
            namespace=row.namespace,
        )
        for row in db.execute(query)
    ]


def added_rows(held: Held, terms: Mapping[int, Terms]) -> Iterator[Spent]:
    """A round's rows with their terms, by number: for what counts money as it comes."""
    for key, amounts in held.items():
        yield Spent(terms=terms[key.terms], amounts=[0] * GPU + amounts + [0, 0], holder=key.holder)


def rows_within(query: Select[Any], since: int, until: int | None) -> Select[Any]:
    """Rows that begin in [since, until)."""
    query = query.where(SPEND_HELD.c.begin >= since)
    return query if until is None else query.where(SPEND_HELD.c.begin < until)


def opening_sums(db: Connection, since: int) -> tuple[int, ...]:
    """The sums of all rows since then."""
    row: Row[Any] = db.execute(rows_within(select(*SUMS), since, None)).one()
    return tuple(int(each or 0) for each in row)


def more(sums: Iterable[int], held: Held) -> tuple[int, ...]:
    """Sums of rows with those of a round."""
    columns = [sum(column) for column in zip(*held.values(), strict=True)] or [0] * len(HELD)
    return tuple(mine + its for mine, its in zip(sums, columns, strict=True))


def _columns(number: int, holder: Holder) -> dict[str, str | int | None]:
    about = {
        "cluster": holder.cluster,
        "namespace": holder.namespace,
        "kind": holder.kind,
        "name": holder.name,
        "owner": holder.owner,
    }
    return {"id": number, "digest": hashlib.sha256(json_of(about)).hexdigest(), **about}
