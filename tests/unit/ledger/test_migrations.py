"""Ledgers of earlier schemas are migrated in place, all at once or not at all."""

import sqlite3
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from gpuwatch.guard.settings import Limits, Rulebook
from gpuwatch.ledger import Ledger, LedgerError, LedgerSettings, indexes, migrations
from gpuwatch.ledger.tables import METADATA
from gpuwatch.model.decision import LedgerView, Proposal, Reason, Review, Status, Step, Verb
from gpuwatch.model.orders import Snooze
from gpuwatch.policies import PoolRules
from gpuwatch.policies.idle import IdleRules
from gpuwatch.policies.schedule import Window
from tests.support.builders.backtests import a_backtest
from tests.support.builders.fleet import NOW, a_node, an_observation
from tests.support.real.postgresql import Place, postgresql

# Schema 1, as gpuwatch 0.1 made it.
SCHEMA_1 = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE rounds (id INTEGER PRIMARY KEY, at TEXT NOT NULL, observation BLOB NOT NULL, reviews BLOB NOT NULL);
CREATE TABLE intents (
    seq INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, verb TEXT NOT NULL, node_id TEXT NOT NULL, pool TEXT NOT NULL,
    at TEXT NOT NULL, reason TEXT NOT NULL, round_id INTEGER REFERENCES rounds (id)
);
CREATE INDEX intents_by_node ON intents (node_id, seq);
CREATE TABLE outcomes (
    seq INTEGER PRIMARY KEY, key TEXT NOT NULL REFERENCES intents (key), at TEXT NOT NULL, status TEXT NOT NULL,
    detail TEXT NOT NULL
);
CREATE INDEX outcomes_by_key ON outcomes (key, seq);
CREATE INDEX outcomes_by_time ON outcomes (at);
CREATE TABLE open_intents (key TEXT PRIMARY KEY REFERENCES intents (key)) WITHOUT ROWID;
CREATE TABLE notices (node_id TEXT PRIMARY KEY, key TEXT NOT NULL, at TEXT NOT NULL) WITHOUT ROWID;
"""
# The tables of schema 2, which are as they were then.
SCHEMA_2 = {
    *("meta", "rounds", "intents", "outcomes", "controls", "chain", "head"),
    *("bodies", "open_intents", "notices", "stopped", "pauses", "gaps", "wishes"),
}
# What schema 3 had besides.
SCHEMA_3 = SCHEMA_2 | {"backtests", "keeps", "spend_days", "spend_terms", "spend", "spend_marks"}
REASON = Reason(code="candidate", sentence="It has been idle for 2h.")


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A file of schema 1: two rounds, a notice in force, a settled stop and an open one, of round 7."""
    path = tmp_path / "ledger.db"
    seen, said = (zlib.compress(msgspec.json.encode(part), 1) for part in (an_observation(a_node("i-1")), ()))
    at = NOW.isoformat(timespec="microseconds")
    reason = msgspec.json.encode(REASON).decode()
    db = sqlite3.connect(path, isolation_level=None)
    db.executescript("PRAGMA journal_mode = WAL; BEGIN; " + SCHEMA_1 + " COMMIT;")
    db.execute("INSERT INTO meta VALUES ('schema_version', '1'), ('ledger_id', '0123456789ab')")
    db.executemany("INSERT INTO rounds VALUES (?, ?, ?, ?)", [(3, at, seen, said), (7, at, seen, said)])
    db.executemany(
        "INSERT INTO intents VALUES (?, ?, ?, ?, 'default', ?, ?, ?)",
        [
            (1, "gpuwatch-0123456789ab-1", Verb.NOTICE, "i-1", at, reason, 3),
            (2, "gpuwatch-0123456789ab-2", Verb.STOP, "i-2", at, reason, 7),
            (3, "gpuwatch-0123456789ab-3", Verb.STOP, "i-1", at, reason, 7),
        ],
    )
    db.executemany(
        "INSERT INTO outcomes (key, at, status, detail) VALUES (?, ?, ?, ?)",
        [
            ("gpuwatch-0123456789ab-1", at, Status.SETTLED, "its tags are set"),
            ("gpuwatch-0123456789ab-2", at, Status.SETTLED, "stopped"),
            ("gpuwatch-0123456789ab-3", at, Status.ACCEPTED, "yes"),
        ],
    )
    db.execute("INSERT INTO open_intents VALUES ('gpuwatch-0123456789ab-3')")
    db.execute("INSERT INTO notices VALUES ('i-1', 'gpuwatch-0123456789ab-1', ?)", (at,))
    db.close()
    return path


def test_everything_of_schema_1_is_there_afterwards(old: Path) -> None:
    """Keys, outcomes, the open intent, the notice and what rounds saw; all of it in one whole chain."""
    ledger = Ledger.open(old)
    view = ledger.view(NOW)
    (entry,) = view.open_intents

    assert (entry.intent.key, entry.attempts, entry.reached) == ("gpuwatch-0123456789ab-3", 1, True)
    assert (entry.intent.reason, entry.intent.usd_per_hour) == (REASON, None)
    assert [(notice.node_id, notice.key) for notice in view.notices] == [("i-1", "gpuwatch-0123456789ab-1")]
    assert [(done.key, done.status) for done in view.recent] == [("gpuwatch-0123456789ab-2", Status.SETTLED)]
    assert view.stopped == ()
    assert [(line.intents, line.nodes, line.whole) for line in ledger.rounds()] == [(2, None, True), (1, None, True)]
    assert ledger.round_at(NOW).observation == an_observation(a_node("i-1"))
    assert (ledger.audit().links, ledger.audit().broken) == (8, None)
    ledger.close()


def test_a_migrated_ledger_goes_on_and_is_migrated_once(old: Path) -> None:
    """New keys beside the old ones, and the next start finds the present schema."""
    ledger = Ledger.open(old)
    key = ledger.intend(Verb.STOP, "i-9", "default", NOW, REASON, ledger.record_round(an_observation())).key
    ledger.close()
    ledger = Ledger.open(old)

    assert key.startswith("gpuwatch-0123456789ab-10-")
    assert len(ledger.view(NOW).open_intents) == 2
    assert ledger.compact(NOW + timedelta(days=500)) == 3
    assert ledger.audit().broken is None
    ledger.close()


def test_a_migration_that_dies_leaves_the_old_file(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut at its last step: the file is of schema 1 still, and the next start migrates it."""
    before = content(old)
    with monkeypatch.context() as patch:
        patch.setattr(migrations, "NOTICES", None)
        with pytest.raises(AttributeError):
            Ledger.open(old)
    assert content(old) == before

    Ledger.open(old).close()
    assert content(old)["meta"] == [("ledger_id", "0123456789ab"), ("schema_version", "8")]


@pytest.fixture(params=["2 sqlite", pytest.param("2 postgresql", marks=pytest.mark.component("pg_ctl")), "3 sqlite"])
def later(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A ledger of schema 2 or 3, which lacked later tables: a round, an open stop and a pause."""
    version, _, database = request.param.partition(" ")
    settings = LedgerSettings(path=str(tmp_path / "later.db"))
    place = Place(settings if database == "sqlite" else LedgerSettings(url=postgresql().database()))
    ledger = place.open()
    ledger.intend(Verb.STOP, "i-1", "default", NOW, REASON, ledger.record_round(an_observation(a_node("i-1"))))
    ledger.pause(None, "ann@host", "maintenance", NOW)
    place.close()
    for table in reversed(METADATA.sorted_tables):
        if table.name not in {"2": SCHEMA_2, "3": SCHEMA_3}[version]:
            place.execute(f"DROP TABLE {table.name}")
    of_then = f"UPDATE meta SET value = '{version}' WHERE name = 'schema_version'"  # noqa: S608  2 or 3
    place.execute(of_then)
    yield place
    place.close()


def test_everything_of_later_schemas_is_there_afterwards(later: Place) -> None:
    """The chain goes on, and what those schemas could not hold can be kept."""
    ledger = later.open()
    before = ledger.audit()
    ledger.keep_backtest(a_backtest())
    ledger.messages.keep("k", "ops", NOW, reached=True, detail="1 by smtp")
    view = ledger.view(NOW)

    assert (before.links, before.bodies, before.broken) == (3, 1, None)
    assert ([entry.intent.node_id for entry in view.open_intents], len(view.pauses)) == (["i-1"], 1)
    assert view.backtests == (a_backtest(),)
    assert (ledger.audit().links, ledger.audit().broken) == (5, None)
    assert later.execute("SELECT value FROM meta WHERE name = 'schema_version'") == [("8",)]


def test_only_a_controller_migrates(old: Path) -> None:
    """Readers and people's orders leave an old file alone and say what to do."""
    before = content(old)
    for how in ({"read_only": True}, {"controls_only": True}):
        with pytest.raises(LedgerError, match="schema version 1, this gpuwatch knows 8; start `gpuwatch controller`"):
            Ledger.connect(LedgerSettings(path=str(old)), **how)

    assert content(old) == before


def test_rounds_with_former_field_names_are_read_as_they_were(tmp_path: Path) -> None:
    """The rules, the snoozes and the proposals of a round that an earlier gpuwatch wrote."""
    ledger = Ledger.open(tmp_path / "ledger.db")
    snooze = Snooze(node_id="i-1", at=NOW, until=NOW + timedelta(hours=2), who="ann@host", reason="")
    seen = replace(an_observation(a_node("i-1")), ledger=LedgerView(snoozes=(snooze,)))
    idle = IdleRules(
        timeout=7200.0,
        fresh_timeout=None,
        action="report",
        grace_period=1800.0,
        unattended_grace_period=1800.0,
        required_evidence=("gpu",),
        max_snooze=36000.0,
        parked="report",
        parked_timeout=18000.0,
        stalled="report",
        stalled_timeout=21600.0,
        occupied="report",
        owner_grace_period=1800.0,
    )
    window = Window(min_nodes=2, max_nodes=5, idle_timeout=3600.0)
    pools = {"after": PoolRules(profile="cautious", idle=idle, schedule={"at_least": window}), "default": BEFORE}
    rulebook = Rulebook(pools=pools, limits=Limits(require_notification=True))
    proposal = Proposal(policy="scaling", pool="after", reason=REASON, desired_nodes=3, min_nodes=2, max_nodes=5)
    proposals = (replace(proposal, raw_desired_nodes=4),)
    number = ledger.record_round(seen, proposals, rulebook=rulebook)
    ledger.close()
    with_former_names(tmp_path / "ledger.db")
    ledger = Ledger.open(tmp_path / "ledger.db")
    past = ledger.round(number)

    assert (past.observation, past.rulebook, past.proposals) == (seen, rulebook, proposals)
    with ledger.store.reading() as db:
        assert list(indexes.untrue(db)) == []
    ledger.close()


# The pool `default` before there were profiles, written or not.
BEFORE = PoolRules(
    profile="cautious",
    idle=IdleRules(
        timeout=1800.0,
        fresh_timeout=None,
        unattended_grace_period=600.0,
        owner_grace_period=600.0,
        occupied="report",
        parked="report",
        parked_timeout=14400.0,
        stalled="report",
        stalled_timeout=14400.0,
    ),
)


@pytest.mark.parametrize("written", [True, False])
def test_rules_without_profiles_are_read_as_they_were_meant(tmp_path: Path, written: bool) -> None:
    """Nobody had said what becomes of occupied nodes, so they were left alone; so was the pool that nobody wrote."""
    pools = {"default": BEFORE} if written else {}
    rulebook = Rulebook(pools={**pools, "training": replace(BEFORE, min_nodes=2)}, enforce=True)
    ledger = Ledger.open(tmp_path / "ledger.db")
    number = ledger.record_round(an_observation(a_node("i-1")), (), rulebook=rulebook)
    ledger.close()
    rewrite(tmp_path / "ledger.db", without_profiles, codec=3)
    ledger = Ledger.open(tmp_path / "ledger.db")

    assert ledger.round(number).rulebook == replace(rulebook, pools={"default": BEFORE, **rulebook.pools})
    ledger.close()


@pytest.mark.parametrize(("former", "present"), [("ladder", "terminate_after"), ("floor", "min_nodes")])
def test_former_codes_of_reasons_are_read_as_the_present_ones(tmp_path: Path, former: str, present: str) -> None:
    """In rounds, intents and what messages are made from; records are hashed, so they keep the former ones."""
    now = Step(verb=Verb.NOTICE, node_id="i-1", reason=replace(REASON, code=present), change="Any use.")
    then = replace(now, reason=replace(REASON, code=former))
    ledger = Ledger.open(tmp_path / "ledger.db")
    proposal = Proposal(policy="idle", pool="default", reason=REASON, steps=(then,))
    review = Review(pool="default", step=then, answers=())
    number = ledger.record_round(an_observation(a_node("i-1")), (proposal,), reviews=(review,))
    ledger.settle(ledger.intend(Verb.NOTICE, "i-1", "default", NOW, then.reason, number), Status.SETTLED, "", NOW)
    past = ledger.round(number)

    assert (past.proposals[0].steps, past.reviews[0].step) == ((now,), now)
    assert [each.intent.reason for each in ledger.history("i-1")] == [now.reason]
    assert [each.reason for each in ledger.messages.events(NOW)] == [now.reason]
    assert ledger.audit().broken is None
    ledger.close()


def test_a_message_to_the_former_destination_terminals_went_to_the_wall(tmp_path: Path) -> None:
    """It is not written a second time."""
    ledger = Ledger.open(tmp_path / "ledger.db")
    ledger.messages.keep("key", "terminals", NOW, reached=False, detail="on the host's terminals")

    assert ledger.messages.recorded_messages(["key"]) == {("key", "wall")}
    ledger.close()


def test_a_learned_wait_of_the_time_before_fresh_pools_had_no_fixed_one_and_no_short_grace(tmp_path: Path) -> None:
    """As it was decided by then."""
    idle = IdleRules(timeout="learned", fresh_timeout=None, grace_period=300.0, unattended_grace_period=300.0)
    rulebook = Rulebook(pools={"default": PoolRules(idle=idle)})
    ledger = Ledger.open(tmp_path / "ledger.db")
    number = ledger.record_round(an_observation(a_node("i-1")), (), rulebook=rulebook)
    ledger.close()
    rewrite(tmp_path / "ledger.db", before_fresh_pools, codec=3)
    ledger = Ledger.open(tmp_path / "ledger.db")

    assert ledger.round(number).rulebook == rulebook
    ledger.close()


def test_present_rules_are_read_as_they_are(tmp_path: Path) -> None:
    """With their profile, and without a pool that nobody wrote."""
    rulebook = Rulebook(pools={"batch": PoolRules(profile="eager", idle=IdleRules(occupied="terminate"))})
    ledger = Ledger.open(tmp_path / "ledger.db")
    number = ledger.record_round(an_observation(a_node("i-1")), (), rulebook=rulebook)

    assert ledger.round(number).rulebook == rulebook
    assert ledger.round(ledger.record_round(an_observation(), ())).rulebook is None
    ledger.close()


NEWER = frozenset({"profiles", "profile", "occupied", "occupied_timeout", "owner_grace_period"})
NEWER |= {"fresh_timeout", "unattended_grace_period"}
FORMER_NAMES = {
    "snoozes": "keeps",
    "require_notification": "require_told",
    "timeout": "after",
    "action": "then",
    "grace_period": "notice",
    "required_evidence": "requires",
    "max_snooze": "snooze_max",
    "parked_timeout": "parked_after",
    "stalled_timeout": "stalled_after",
    "idle_timeout": "after",
    "min_nodes": "at_least",
    "max_nodes": "at_most",
    "desired_nodes": "want",
    "raw_desired_nodes": "wish",
}


def with_former_names(path: Path) -> None:
    """The bodies as an earlier gpuwatch wrote them: in codec 2."""
    rewrite(path, former, codec=2)


def rewrite(path: Path, change: Callable[[object], object], *, codec: int) -> None:
    """The bodies with each piece changed."""
    db = sqlite3.connect(path)
    for number, body in db.execute("SELECT round_id, body FROM bodies").fetchall():
        raw, pieces = zlib.decompress(body), []
        while raw:
            size = int.from_bytes(raw[:4], "big")
            content = change(msgspec.msgpack.decode(raw[4 : 4 + size])) if size else None
            piece = msgspec.msgpack.encode(content) if size else b""
            pieces.append(len(piece).to_bytes(4, "big") + piece)
            raw = raw[4 + size :]
        changed = (codec, zlib.compress(b"".join(pieces)), number)
        db.execute("UPDATE bodies SET codec = ?, body = ? WHERE round_id = ?", changed)
    db.commit()
    db.close()


def former(content: object) -> object:
    """The content with the former names and values."""
    if isinstance(content, dict):
        return {FORMER_NAMES.get(key, key): former(value) for key, value in content.items() if key not in NEWER}
    if isinstance(content, list):
        return [former(each) for each in content]
    return "tell" if content == "report" else content


def before_fresh_pools(content: object) -> object:
    """The content of the time before them; profiles were there."""
    if isinstance(content, dict):
        keys = content.keys() - {"fresh_timeout", "unattended_grace_period"}
        return {key: before_fresh_pools(content[key]) for key in content if key in keys}
    return [before_fresh_pools(each) for each in content] if isinstance(content, list) else content


def without_profiles(content: object) -> object:
    """The content of the time before them."""
    if isinstance(content, dict):
        return {key: without_profiles(value) for key, value in content.items() if key not in NEWER}
    return [without_profiles(each) for each in content] if isinstance(content, list) else content


def content(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """All rows of all tables."""
    db = sqlite3.connect(path)
    names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
    rows = {name: sorted(db.execute(f"SELECT * FROM {name}"), key=repr) for name in names}  # noqa: S608  its own names
    db.close()
    return rows
