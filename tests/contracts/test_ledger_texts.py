"""Every text column of a ledger takes any text, in SQLite and in PostgreSQL, and gives it back as it was."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, LargeBinary, Table, select

from gpuwatch.ledger import Ledger, LedgerError, LedgerSettings, LedgerValueError
from gpuwatch.ledger.any_text import MARK, AnyText
from gpuwatch.ledger.tables import INTENTS, METADATA
from gpuwatch.model.decision import Reason, Status, Verb
from tests.support.builders.fleet import NOW, a_node, an_observation
from tests.support.nightly import examples
from tests.support.real.postgresql import Place, postgresql

ODD = st.sampled_from(["\x00", "\ud800", "\udfff", "\udc80", MARK, "\U00100000", "\uffff", "\u202e", "'", "\\", "\x1b"])
TEXTS = st.lists(st.text() | ODD).map("".join)
NASTY = f"al\x00ice \ud83d {MARK}{MARK}\U00100000 \udc00"
# A text in an index has a bound in PostgreSQL; who names a node, a pool or an owner is held to less at the door.
LONG = "x\x00" * 500_000


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.component("pg_ctl"))], scope="module")
def ledger(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    """A controller's ledger, once of each kind."""
    path: Path = tmp_path_factory.mktemp("ledger") / "ledger.db"
    sqlite = request.param == "sqlite"
    place = Place(LedgerSettings(path=str(path)) if sqlite else LedgerSettings(url=postgresql().database()))
    yield place.open()
    place.close()


def insert_everywhere(db: Connection, words: Iterator[str]) -> dict[Table, dict[str, Any]]:
    """A row in every table, with the next word in each of its text columns."""
    rows: dict[Table, dict[str, Any]] = {}
    for table in METADATA.sorted_tables:
        row = rows[table] = {}
        for column in table.columns:
            if column.foreign_keys:
                parent = next(iter(column.foreign_keys)).column
                row[column.name] = rows[parent.table][parent.name]
            elif isinstance(column.type, AnyText):
                row[column.name] = next(words)
            else:
                row[column.name] = b"1" if isinstance(column.type, LargeBinary) else 1
        db.execute(table.insert(), row)
    return rows


def test_every_text_column_takes_any_text() -> None:
    """A column that is added later is one of them: plain `Text` would end rounds over a NUL."""
    kinds = {(table.name, column.name): column.type for table in METADATA.sorted_tables for column in table.columns}

    assert not [name for name, kind in kinds.items() if "TEXT" in str(kind) and not isinstance(kind, AnyText)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(40))
@given(words=st.lists(TEXTS, min_size=3, max_size=8))
def test_a_text_comes_back_as_it_was_from_every_column_and_is_found_by_itself(ledger: Ledger, words: list[str]) -> None:
    """NUL, halves of surrogate pairs, and the characters that stand for them in the database."""
    endless = (f"{word}{number}" for number in range(10_000) for word in words)
    with ledger.store.reading() as db, db.begin_nested() as undone:
        for table, row in insert_everywhere(db, endless).items():
            texts = [column for column in table.columns if isinstance(column.type, AnyText)]
            found = [each._mapping for each in db.execute(select(*texts))] if texts else []
            assert not texts or {each.name: row[each.name] for each in texts} in found
            for column in texts:
                assert db.scalar(select(column).where(column == row[column.name])) == row[column.name]
        undone.rollback()


@pytest.mark.parametrize("words", [NASTY, "\x00", "\ud800", LONG], ids=["nasty", "nul", "half", "long"])
def test_what_people_write_is_kept_and_the_chain_stays_whole(ledger: Ledger, words: str) -> None:
    """Reasons, owners, details and arguments; the hash of a record is that of its text as it is read."""
    round_id = ledger.record_round(an_observation(a_node("i-1")))
    why = Reason(code="candidate", sentence=words)
    intent = ledger.intend(Verb.NOTICE, "i-1", "default", NOW, why, round_id, arguments={"owner": words}, owner=words)
    ledger.settle(intent, Status.FAILED, words, NOW)
    ledger.pause("default", words, words, NOW, NOW + timedelta(hours=1))
    ledger.resume("default", words, NOW)
    ledger.snooze("i-1", words, words, NOW, NOW)

    entry = ledger.history("i-1")[0]
    assert (entry.intent.owner, entry.outcomes[-1].detail) == (words, words)
    assert ledger.audit().broken is None


def test_what_no_column_can_hold_is_an_error_of_the_value_and_leaves_the_ledger_as_it_was(ledger: Ledger) -> None:
    """So that who writes can tell one sick value from a database that is gone."""
    before = ledger.audit().links
    with pytest.raises(LedgerValueError), ledger.store.writing() as writer:
        writer.append("round", {"at": "", "body_sha256": "", "epoch": 2**70, "controller": "", "nodes": 1, "steps": 1})
    with pytest.raises(LedgerValueError), ledger.store.writing() as writer:
        writer.db.execute(INTENTS.insert(), {"id": 1, "key": None})

    assert issubclass(LedgerValueError, LedgerError)
    assert ledger.audit().links == before
    assert ledger.lead()
