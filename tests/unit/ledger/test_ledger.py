"""The ledger: what is written is there after any death of the process, and nobody shares it by mistake."""

import re
import sqlite3
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Connection, event

from gpuwatch.ledger import Ledger, LedgerError
from gpuwatch.model.decision import Status, Verb
from gpuwatch.model.evidence_text import reset_text
from gpuwatch.model.fleet import NodeReport
from gpuwatch.policies.lives import ENDED, NEVER_RAN
from tests.support.builders.desk import REASON, an_intent
from tests.support.builders.fleet import NOW, a_node, a_verdict, an_observation
from tests.support.builders.last_busy import busy_last, cpu_evidence


def test_an_intent_stays_open_until_its_final_outcome() -> None:
    """Accepted is not done; settled is."""
    ledger = Ledger.in_memory()
    intent = ledger.intend(Verb.STOP, "i-1", "default", NOW, REASON, ledger.record_round(an_observation()))
    ledger.settle(intent, Status.ACCEPTED, "yes", NOW)
    (entry,) = ledger.view(NOW).open_intents
    ledger.settle(intent, Status.SETTLED, "stopped", NOW)

    assert (entry.intent, entry.attempts) == (intent, 1)
    assert ledger.view(NOW).open_intents == ()
    assert [done.status for done in ledger.view(NOW).recent] == [Status.SETTLED]


def test_keys_are_unique_ascii_and_short_enough_for_a_client_token() -> None:
    """EC2 takes 64 ASCII characters."""
    ledger = Ledger.in_memory("f" * 12)
    keys = {an_intent(ledger).key for _ in range(50)}  # type: ignore[attr-defined]

    assert len(keys) == 50
    assert all(key.isascii() and len(key) <= 64 for key in keys)


def test_a_notice_lasts_until_it_is_withdrawn_or_its_node_is_stopped() -> None:
    """Notices are what settled notices left, minus what ended them."""
    ledger = Ledger.in_memory()
    for ending in (Verb.WITHDRAW, Verb.STOP):
        notice = an_intent(ledger, Verb.NOTICE)
        ledger.settle(notice, Status.SETTLED, "tags set", NOW)  # type: ignore[arg-type]
        assert [each.node_id for each in ledger.view(NOW).notices] == ["i-1"]
        ledger.settle(an_intent(ledger, ending), Status.SETTLED, "done", NOW)  # type: ignore[arg-type]
        assert ledger.view(NOW).notices == ()


def test_an_observation_comes_back_as_it_was() -> None:
    """What a decision rested on is stored whole."""
    ledger, observation = Ledger.in_memory(), an_observation(a_node("i-1"), a_node("i-2"))

    assert ledger.round(ledger.record_round(observation)).observation == observation


def test_of_what_was_busy_last_a_round_stores_the_newest() -> None:
    """That is what `explain --round` names; all of it would make rounds two and a half times as large."""
    last = [(cpu_evidence(name=name), ago) for name, ago in (("disk", 900.0), ("cpu", 60.0), ("network", 4000.0))]
    verdict = busy_last(a_verdict(), *last)
    ledger, observation = Ledger.in_memory(), an_observation(a_node(signal=NodeReport(verdict=verdict)))
    stored = ledger.round(ledger.record_round(observation)).observation.fleet.nodes[0].verdict

    assert stored is not None
    assert [each.evidence.name for each in stored.last_busy] == ["cpu"]
    assert replace(stored, last_busy=()) == replace(verdict, last_busy=())
    assert reset_text(stored) == reset_text(verdict)


def test_stops_and_failures_weigh_as_long_as_limits_and_cooldowns_look_back() -> None:
    """An hour for the limits, longer where a cooldown is; notices that went well weigh nothing."""
    ledger = Ledger.in_memory()
    ledger.settle(an_intent(ledger), Status.SETTLED, "done", NOW)  # type: ignore[arg-type]
    ledger.settle(an_intent(ledger, Verb.NOTICE), Status.SETTLED, "done", NOW)  # type: ignore[arg-type]
    ledger.settle(an_intent(ledger, Verb.NOTICE), Status.FAILED, "given up", NOW)  # type: ignore[arg-type]

    later = NOW + timedelta(minutes=61)
    assert [(d.verb, d.status) for d in ledger.view(NOW).recent] == [
        (Verb.STOP, Status.SETTLED),
        (Verb.NOTICE, Status.FAILED),
    ]
    assert ledger.view(later).recent == ()
    assert len(ledger.view(later, recent=timedelta(hours=2)).recent) == 2


def test_what_every_round_asks_never_walks_a_table_of_records() -> None:
    """It goes by an index, however old the ledger is."""
    ledger = Ledger.in_memory()
    an_intent(ledger)
    plans: list[str] = []

    def explain(db: Connection, cursor: object, statement: str, values: tuple[object, ...], *_: object) -> None:
        del cursor
        asked = db.connection.driver_connection
        if statement.startswith("SELECT") and asked is not None:
            plans.extend(row[3] for row in asked.execute(f"EXPLAIN QUERY PLAN {statement}", values))

    event.listen(ledger.store._db(), "before_cursor_execute", explain)
    ledger.view(NOW)
    ledger.history("i-1")
    ledger.compact(NOW)
    ledger.round_at(NOW)
    ledger.messages.events(NOW)
    ledger.messages.recorded_messages(["key"])

    tables = "intents|outcomes|rounds|controls|bodies|chain|messages|approvals|keeps"
    assert len(plans) > 10
    assert [plan for plan in plans if re.match(rf"SCAN ({tables})", plan)] == []


def test_a_clock_set_back_before_the_settlement_does_not_age_a_stop() -> None:
    """Called at noon, settled by a clock that then says ten: it weighs until one o'clock."""
    ledger = Ledger.in_memory()
    intent = an_intent(ledger)
    ledger.settle(intent, Status.ACCEPTED, "yes", NOW)  # type: ignore[arg-type]
    ledger.settle(intent, Status.SETTLED, "stopped", NOW - timedelta(hours=2))  # type: ignore[arg-type]

    assert [(done.status, done.at) for done in ledger.view(NOW).recent] == [(Status.SETTLED, NOW)]


def test_a_second_controller_is_refused(tmp_path: Path) -> None:
    """One writer per file: the second is told who holds it and what to do."""
    path = tmp_path / "ledger.db"
    first = Ledger.open(path)
    with pytest.raises(LedgerError, match="held by another controller"):
        Ledger.open(path)
    first.close()
    Ledger.open(path).close()


def test_reading_needs_no_lock_and_creates_nothing(tmp_path: Path) -> None:
    """`plan` and `explain` read beside a running controller; without a ledger they are told so."""
    path = tmp_path / "ledger.db"
    with pytest.raises(LedgerError, match="does not exist"):
        Ledger.open(path, read_only=True)
    writer = Ledger.open(path)
    an_intent(writer)
    reader = Ledger.open(path, read_only=True)

    assert len(reader.view(NOW).open_intents) == 1
    reader.close()
    writer.close()


def test_a_file_that_is_no_ledger_is_refused_by_name(tmp_path: Path) -> None:
    """Garbage, and a ledger of another version, are told apart and left as they are."""
    garbage = tmp_path / "notes.txt"
    garbage.write_text("these are my notes, they are not a database at all\n" * 100)
    with pytest.raises(LedgerError, match=r"notes\.txt"):
        Ledger.open(garbage)
    assert garbage.read_text().startswith("these are my notes")

    other = tmp_path / "ledger.db"
    Ledger.open(other).close()
    db = sqlite3.connect(other)
    db.execute("UPDATE meta SET value = '99' WHERE name = 'schema_version'")
    db.commit()
    db.close()
    with pytest.raises(LedgerError, match="schema version 99"):
        Ledger.open(other)


def test_an_acknowledged_intent_survives_kill_minus_nine(tmp_path: Path) -> None:
    """A process that is killed right after `intend` returned has lost nothing, and holds no lock."""
    path = tmp_path / "ledger.db"
    script = (
        "import os, signal, sys, pathlib\n"
        "from gpuwatch.ledger import Ledger\n"
        "from tests.support.builders.desk import an_intent\n"
        "ledger = Ledger.open(pathlib.Path(sys.argv[1]))\n"
        "for _ in range(3): an_intent(ledger)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    died = subprocess.run([sys.executable, "-c", script, str(path)], check=False)
    ledger = Ledger.open(path)

    assert died.returncode == -9
    assert len(ledger.view(NOW).open_intents) == 3
    ledger.close()


def test_a_ledger_knows_for_good_which_machines_it_launched() -> None:
    """Whatever its launch came to, and however much was written since; others' machines it does not know."""
    ledger = Ledger.in_memory()
    said = {
        "i-1": [(Status.ACCEPTED, "the cloud launches i-1"), (Status.SETTLED, "the cloud shows i-1")],
        "i-2": [(Status.UNSEEN, "the cloud launched i-2, and after 10m it does not appear as a node of pool a: why")],
        "i-3": [(Status.FAILED, f"i-3 {NEVER_RAN}: no room")],
        "i-4": [(Status.FAILED, f"i-4 (a key that it may not use) {ENDED}")],
    }
    for outcomes in said.values():
        launch = an_intent(ledger, Verb.LAUNCH)
        for status, detail in outcomes:
            ledger.settle(launch, status, detail, NOW)  # type: ignore[arg-type]
    ledger.settle(an_intent(ledger, Verb.NOTICE), Status.SETTLED, "the cloud shows i-5", NOW)  # type: ignore[arg-type]

    assert ledger.identity.launched_machines([*said, "i-5", "i-6"]) == tuple(said)
    assert ledger.identity.launched_machines(["i-6", "i-2"]) == ("i-2",)
