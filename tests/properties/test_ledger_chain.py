"""Whoever changes the past is found out: the audit names the first record that is not what was written."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from gpuwatch.ledger import Broken, LedgerSettings
from gpuwatch.ledger.tables import RECORDS
from gpuwatch.model.decision import Proposal, Reason, Status, Verb
from gpuwatch.model.fleet import NodeState
from gpuwatch.money.accounting.metering import Metering
from gpuwatch.money.accounting.store import SpendBook
from gpuwatch.policies.idle_timeout.gap_history import GapHistory
from tests.support.builders.backtests import a_backtest
from tests.support.builders.fleet import NOW, a_node, an_observation
from tests.support.real.postgresql import Place, postgresql

REASON = Reason(code="candidate", sentence="It has been idle for 2h.")


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.component("pg_ctl"))])
def once(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Each kind: round 1, intent 2, outcome 3, control 4, backtest 8, spend_day 9, keep 10, approval 13, message 14."""
    settings = LedgerSettings(path=str(tmp_path_factory.mktemp("written") / "ledger.db"))
    place = Place(settings if request.param == "sqlite" else LedgerSettings(url=postgresql().database()))
    ledger = place.open()
    for at in (NOW, NOW + timedelta(minutes=1)):
        wish = Proposal(policy="promql", pool="default", reason=REASON, raw_desired_nodes=3 if at == NOW else 4)
        known = {"default": GapHistory(saved=1.0 if at == NOW else 2.0)}
        round_id = ledger.record_round(an_observation(a_node(), now=at), [wish], gaps=known)
        intent = ledger.intend(Verb.STOP, "i-1", "default", at, REASON, round_id)
        ledger.settle(intent, Status.ACCEPTED, "the cloud accepted the stop", at)
        if at == NOW:
            ledger.pause("training", "ann@host", "maintenance", at)
    ledger.keep_backtest(a_backtest(at=NOW))
    for days in (4, 3, 0):  # of spending: the day of the first is sealed at the last
        SpendBook(ledger).meter(
            an_observation(a_node(), now=NOW - timedelta(days=days)), Metering(zone=ZoneInfo("UTC"))
        )
    ledger.snooze("i-1", "ann@host", "a demo", NOW, NOW + timedelta(hours=1))
    notice = ledger.intend(Verb.NOTICE, "i-2", "default", NOW, REASON, round_id)
    ledger.settle(notice, Status.SETTLED, "its tags are set", NOW)
    ledger.approve("i-2", "ann@host", "it is over", NOW)
    ledger.messages.keep(notice.key, "ops", NOW, reached=True, detail="1 by smtp")
    assert ledger.audit().broken is None
    place.close()
    return place


@pytest.fixture
def written(once: Place, tmp_path: Path) -> Iterator[Place]:
    """The same for each test, closed."""
    place = once.copied(tmp_path)
    yield place
    place.close()


def found(place: Place, anchor: tuple[int, str] | None = None) -> Broken:
    """What the audit says; it must say something."""
    reader = place.beside()
    broken = reader.audit(anchor).broken
    reader.close()
    assert broken is not None, "the audit found nothing"
    return broken


def test_a_changed_value_is_found(written: Place) -> None:
    """Any column of any record, by as little as one character."""
    loosen(written)
    for kind, table in RECORDS.items():
        (row,) = written.execute(f"SELECT MIN(id) FROM {table.name}")[0]  # noqa: S608  fixed names
        here = f"{table.name} WHERE id = {row}"
        written.execute(f"CREATE TABLE kept AS SELECT * FROM {here}")  # noqa: S608  likewise
        for column in [each.name for each in table.columns if each.name != "id"]:
            old = written.execute(f"SELECT {column} FROM {here}")[0][0]  # noqa: S608  likewise
            changed = {int: 5, str: f"{old}0", type(None): 1 if column in {"nodes", "steps"} else "x"}[type(old)]
            change = f"UPDATE {table.name} SET {column} = {{}} WHERE id = {row}"  # noqa: S608  likewise
            written.execute(change.format(f"'{changed}'"))
            broken = found(written)
            written.execute(change.format(f"(SELECT {column} FROM kept)"))  # noqa: S608  likewise

            assert (broken.kind, broken.id) == (kind, row), f"{kind}.{column}"
            assert broken.wrong.startswith("changed"), f"{kind}.{column}"
        written.execute("DROP TABLE kept")
    assert written.beside().audit().broken is None


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        *[("round", 1), ("intent", 2), ("outcome", 3), ("control", 4), ("backtest", 8), ("spend_day", 9), ("keep", 10)],
        *[("approval", 13), ("message", 14)],
    ],
)
def test_a_deleted_record_is_found(written: Place, kind: str, number: int) -> None:
    """By its kind and its time, which its link still tells."""
    loosen(written)
    written.execute(f"DELETE FROM {RECORDS[kind].name} WHERE id = {number}")  # noqa: S608  fixed names
    broken = found(written)

    assert (broken.kind, broken.id, broken.wrong[:7]) == (kind, number, "missing")
    assert broken.at == NOW.isoformat(timespec="microseconds")


@pytest.mark.parametrize("number", [1, 4, 14])
def test_a_record_deleted_with_its_link_is_found(written: Place, number: int) -> None:
    """The gap shows in the middle, and the head shows it at the end."""
    loosen(written)
    for table in ("chain", *(table.name for table in RECORDS.values())):
        written.execute(f"DELETE FROM {table} WHERE id = {number}")  # noqa: S608  fixed names
    broken = found(written)

    assert (broken.kind, broken.id) == ("link", number)
    assert ("cut off" if number == 14 else "missing; the next one is") in broken.wrong


@pytest.mark.parametrize("number", [0, 15])
def test_an_inserted_record_is_found(written: Place, number: int) -> None:
    """No link leads to it, at the beginning or at the end."""
    written.execute(f"INSERT INTO controls VALUES ({number}, 'then', 'resume', NULL, 'mallory', '', NULL)")  # noqa: S608
    broken = found(written)

    assert (broken.kind, broken.id, broken.at) == ("control", number, "then")
    assert broken.wrong.startswith("inserted")


def test_a_changed_or_dropped_body_is_found(written: Place) -> None:
    """What a round saw is bound to its record; only a recorded compaction may drop it."""
    written.execute(
        "UPDATE bodies SET codec = codec, body = (SELECT body FROM bodies WHERE round_id = 5) WHERE round_id = 1"
    )
    assert str(found(written)).startswith("round 1 of 2026-03-02T12:00:00.000000+00:00: what it saw was changed")
    written.execute("DELETE FROM bodies WHERE round_id = 1")
    assert found(written).wrong == "1 are gone, but the 0 compactions on record dropped 0"


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("INSERT INTO notices SELECT 'i-1', key, at FROM notices", "notices"),
        ("INSERT INTO notices VALUES ('i-7', 'gpuwatch-x-1-y', '2026-03-01')", "notices"),
        ("UPDATE notices SET at = '2026-03-01T12:00:00.000000+00:00'", "notices"),
        ("UPDATE notices SET key = (SELECT MIN(key) FROM intents WHERE verb = 'stop')", "notices"),
        ("INSERT INTO stopped SELECT 'i-1', MIN(key), '2026-03-01' FROM intents", "stopped"),
        ("INSERT INTO stopped SELECT node_id, key, at FROM notices", "stopped"),
        ("UPDATE gaps SET body = (SELECT body FROM bodies WHERE round_id = 1)", "gaps"),
        ("DELETE FROM gaps", "gaps"),
        ("INSERT INTO gaps SELECT 'other', body FROM gaps", "gaps"),
        ("DELETE FROM wishes WHERE want = 3", "wishes"),
        ("UPDATE wishes SET want = 99 WHERE want = 4", "wishes"),
        ("INSERT INTO wishes SELECT at, 'other', policy, want FROM wishes WHERE want = 3", "wishes"),
        ("INSERT INTO wishes VALUES ('2026-03-02T12:00:30.000000+00:00', 'default', 'promql', 5)", "wishes"),
        ("UPDATE head SET hash = '00'", "head"),
        ("UPDATE head SET links = 15", "link"),
        ("UPDATE chain SET hash = '00' WHERE id = 6", "intent"),
        ("UPDATE chain SET at = 'then' WHERE id = 6", "intent"),
        ("UPDATE chain SET kind = 'round' WHERE id = 6", "round"),
        ("DELETE FROM open_intents", "intent"),
        ("DELETE FROM pauses", "control"),
    ],
)
def test_changed_links_heads_and_indexes_are_found(written: Place, statement: str, kind: str) -> None:
    """What leads to the records must say what they say."""
    written.execute(statement)

    assert found(written).kind == kind


def test_a_chain_made_anew_is_found_by_a_head_kept_elsewhere(written: Place, tmp_path: Path) -> None:
    """Without one it cannot be: the forger's chain is whole. That is what `--anchor` is for."""
    reader = written.beside()
    first = reader.audit()
    forged = Place(LedgerSettings(path=str(tmp_path / "forged.db")))
    forger = forged.open()
    for _ in range(first.links):
        forger.record_round(an_observation())

    assert reader.audit((first.links, first.head)).broken is None
    assert forger.audit().broken is None
    assert found(forged, (first.links, first.head)).wrong.endswith("not the anchor's: rewritten")
    assert found(written, (99, first.head)).wrong == "missing"
    forged.close()


def loosen(place: Place) -> None:
    """A forger with all rights also drops what refers to the record."""
    if place.settings.url is not None:
        for table, name in place.execute(
            "SELECT conrelid::regclass::text, conname FROM pg_constraint WHERE contype = 'f'"
        ):
            place.execute(f"ALTER TABLE {table} DROP CONSTRAINT {name}")


def test_an_old_notice_or_stop_is_not_brought_back(written: Place) -> None:
    """What ended it is on record; decisions do not believe the row, and the audit names it."""
    ledger = written.open()
    node = replace(a_node("i-3"), state=NodeState.STOPPED)
    stop = ledger.intend(Verb.STOP, "i-3", "default", NOW, REASON, 1)
    ledger.settle(stop, Status.SETTLED, "the cloud shows it stopped", NOW)
    assert [each.node_id for each in ledger.view(NOW).stopped] == ["i-3"]
    start = ledger.intend(Verb.START, "i-3", "default", NOW, REASON, 1)
    ledger.settle(start, Status.SETTLED, "the cloud shows it running", NOW)
    assert ledger.audit().broken is None
    at = NOW.isoformat(timespec="microseconds")
    written.execute(f"INSERT INTO stopped VALUES ('i-3', '{stop.key}', '{at}')")  # noqa: S608  a key of ours
    ledger.record_round(an_observation(node))

    assert ledger.view(NOW).stopped == ()
    assert found(written).kind == "stopped"


@pytest.mark.parametrize("key", ["its own, unsettled", "of another node", "of no intent"])
def test_a_forged_stop_makes_nothing_ours(written: Place, key: str) -> None:
    """Only what gpuwatch itself stopped, by the records, may ever be terminated for it."""
    ledger = written.open()
    other = ledger.intend(Verb.STOP, "i-4", "default", NOW, REASON, 1)
    ledger.settle(other, Status.SETTLED, "the cloud shows it stopped", NOW)
    own = ledger.intend(Verb.STOP, "i-5", "default", NOW, REASON, 1)
    forged = {"its own, unsettled": own.key, "of another node": other.key, "of no intent": "k"}[key]
    at = NOW.isoformat(timespec="microseconds")
    written.execute(f"INSERT INTO stopped VALUES ('i-5', '{forged}', '{at}')")  # noqa: S608  likewise

    assert [each.node_id for each in ledger.view(NOW).stopped] == ["i-4"]
    assert found(written).kind == "stopped"
    assert "i-5" in found(written).wrong
