"""`gpuwatch audit log`: who did what, when and why, for whoever audits."""

import json
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event

from gpuwatch.cli.main import commands
from gpuwatch.guard import Rulebook
from gpuwatch.ledger import Ledger, LedgerSettings
from gpuwatch.ledger.audit_log import DEEDS, Asked
from gpuwatch.ledger.tables import RECORDS
from gpuwatch.model.decision import Reason, Status, Verb
from gpuwatch.model.orders import BacktestRecord
from gpuwatch.policies.lives import NEVER_RAN
from tests.support.builders.fleet import NOW, a_node, an_observation
from tests.support.nightly import examples
from tests.support.real.postgresql import postgresql

REASON = Reason(code="candidate", sentence="It has been idle for 2h.")
HOUR = timedelta(hours=1)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.component("pg_ctl"))])
def ledger(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ledger]:
    """A running controller's ledger, to which the configuration points."""
    settings = LedgerSettings(path=str(tmp_path / "ledger.db"))
    if request.param == "postgresql":
        settings = LedgerSettings(url=postgresql().database())
    file = tmp_path / "gpuwatch.yaml"
    file.write_text(
        json.dumps({"ledger": {"path": settings.path} if settings.url is None else {"url": settings.url}}),
        encoding="utf-8",
    )
    monkeypatch.setenv("GPUWATCH_CONFIG", str(file))
    ledger = Ledger.connect(settings)
    assert ledger.lead()
    yield ledger
    ledger.close()


def listed(*arguments: str) -> list[dict[str, Any]]:
    """What the command says, as a program reads it."""
    result = gpuwatch(*arguments, "--json")
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = json.loads(result.output)["records"]
    return found


def gpuwatch(*arguments: str) -> Result:
    """One `gpuwatch audit log`."""
    return CliRunner().invoke(commands, ["audit", "log", *arguments])


def noticed(ledger: Ledger, node_id: str, at: datetime, pool: str = "training") -> str:
    """A node with a notice in force; gives the notice's key."""
    round_id = ledger.record_round(an_observation(a_node(node_id)))
    intent = ledger.intend(Verb.NOTICE, node_id, pool, at, REASON, round_id)
    ledger.settle(intent, Status.ACCEPTED, "asked", at)
    ledger.settle(intent, Status.SETTLED, "the tags are there", at)
    return intent.key


def a_backtest(at: datetime, failure: str | None = None) -> BacktestRecord:
    """One on record."""
    return BacktestRecord(
        pool="training",
        at=at,
        who="ann@desk",
        rules="abc",
        source="load.csv",
        node_hours=48.0,
        stops=3,
        suspected_wrong_stops=0,
        checked_node_hours=48.0,
        checked_stops=3,
        wrongly_stopped=0,
        violations=0,
        saved_ratio=0.5,
        failure=failure,
    )


def a_day(ledger: Ledger) -> None:
    """One of each deed that people and controllers do, minutes apart."""
    times = (NOW + timedelta(minutes=minute) for minute in range(20))
    key = noticed(ledger, "i-1", next(times))
    ledger.messages.keep(key, "team", next(times), reached=True, detail="250 accepted")
    ledger.messages.keep(key, "chat", next(times), reached=False, detail="404 from hooks.example.com")
    ledger.approve("i-1", "ann@desk", "she is on leave", next(times))
    ledger.pause("training", "bob@desk", "racks move", at := next(times), at + HOUR)
    ledger.pause(None, "bob@desk", "looking first", next(times))
    ledger.resume(None, "cy@page", next(times))
    ledger.snooze("i-1", "link:dee@example.com", "paper deadline", at := next(times), at + HOUR)
    ledger.snooze("i-1", "dee@page", "", at := next(times), at)
    ledger.keep_backtest(a_backtest(next(times)))
    ledger.keep_backtest(a_backtest(next(times), "2 stops were wrong"))
    ledger.intend(Verb.STOP, "i-1", "training", next(times), REASON, 1)


def test_each_record_says_who_what_why_and_what_came_of_it(ledger: Ledger) -> None:
    """Orders of people and steps of controllers, the newest first."""
    a_day(ledger)
    controller = ledger.leader()
    found = listed()

    assert [(each["what"], each["node_id"], each["pool"], each["who"], each["why"]) for each in found] == [
        ("stop", "i-1", "training", controller, REASON.sentence),
        ("backtest", None, "training", "ann@desk", "on load.csv"),
        ("backtest", None, "training", "ann@desk", "on load.csv"),
        ("snooze", "i-1", None, "dee@page", ""),
        ("snooze", "i-1", None, "link:dee@example.com", "paper deadline"),
        ("resume", None, None, "cy@page", ""),
        ("pause", None, None, "bob@desk", "looking first"),
        ("pause", None, "training", "bob@desk", "racks move"),
        ("approve", "i-1", "training", "ann@desk", "she is on leave"),
        ("message", "i-1", "training", "controller", "notice sent to chat"),
        ("message", "i-1", "training", "controller", "notice sent to team"),
        ("notice", "i-1", "training", controller, REASON.sentence),
    ]
    results = [each["result"] for each in found]
    assert results[:4] == ["open", "failed: 2 stops were wrong", "passed", "taken back"]
    assert results[4] == f"until {NOW + timedelta(hours=1, minutes=7):%Y-%m-%d %H:%M:%S} UTC"
    assert results[-3:] == [
        "reached nobody for certain: 404 from hooks.example.com",
        "250 accepted",
        "settled: the tags are there",
    ]
    assert found[-1]["at"] == f"{NOW:%Y-%m-%dT%H:%M:%SZ}"


def test_people_read_a_line_a_record_with_its_reason_under_it(ledger: Ledger) -> None:
    """Without --json; a ledger in which nothing was done says so."""
    empty = gpuwatch()
    noticed(ledger, "i-1", NOW)
    ledger.pause(None, "bob@desk", "looking first", NOW)
    lines = gpuwatch().output.splitlines()

    assert empty.output == "Nothing of that is on record.\n"
    assert lines == [
        f"{NOW:%Y-%m-%d %H:%M:%S} UTC  pause      all pools, by bob@desk",
        "    looking first",
        f"{NOW:%Y-%m-%d %H:%M:%S} UTC  notice     i-1 of pool training, by {ledger.leader()}",
        "    It has been idle for 2h.",
        "    settled: the tags are there",
    ]


def test_an_auditor_asks_for_a_machine_a_pool_a_time_a_deed_or_a_number(ledger: Ledger) -> None:
    """What holds for all pools holds for each; a keep is of the pool in which its machine had a step."""
    noticed(ledger, "i-2", NOW - HOUR, "serving")
    a_day(ledger)
    of_serving = [(each["what"], each["pool"]) for each in listed("--pool", "serving")]

    assert {each["node_id"] for each in listed("--node", "i-1")} == {"i-1"}
    assert len(listed("--node", "i-1")) == 7
    assert of_serving == [("resume", None), ("pause", None), ("notice", "serving")]
    assert "snooze" in {each["what"] for each in listed("--pool", "training")}
    assert [each["what"] for each in listed("--limit", "2")] == ["stop", "backtest"]
    assert [each["what"] for each in listed("--only", "pause", "--only", "snooze")] == [
        "snooze",
        "snooze",
        "pause",
        "pause",
    ]
    assert [each["what"] for each in listed("--since", (NOW + timedelta(minutes=10)).isoformat())] == [
        "stop",
        "backtest",
    ]
    assert listed("--since", "1s") == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [(["--only", "stpo"], "'stpo' is not one of pause, resume,"), (["--since", "soon"], "'soon' is not a time")],
    ids=["deed", "time"],
)
def test_a_wrong_question_is_told(arguments: list[str], sentence: str) -> None:
    """With what would be right, and before any ledger is looked for."""
    result = gpuwatch(*arguments)

    assert result.exit_code == 2
    assert sentence in " ".join(result.output.split())


def test_a_misspelt_pool_is_refused_though_all_pools_have_records(ledger: Ledger) -> None:
    """A pool that was taken out of the settings is still answered."""
    noticed(ledger, "i-2", NOW - HOUR, "serving")
    a_day(ledger)
    wrong = gpuwatch("--pool", "sreving")

    assert (wrong.exit_code, "--pool 'sreving': the settings have no such pool." in wrong.output) == (2, True)
    assert listed("--pool", "serving", "--limit", "1")


_WRITTEN = ["notice", "pause", "resume", "acknowledge", "snooze", "approve", "message", "backtest"]
_DEEDS = st.lists(st.sampled_from(_WRITTEN), max_size=12)


@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(deeds=_DEEDS)
def test_no_order_and_no_step_is_left_out(deeds: list[str]) -> None:
    """Whatever was written, each record but rounds, outcomes and the ledger's housekeeping is told exactly once."""
    ledger = Ledger.in_memory()
    key = noticed(ledger, "i-1", NOW)
    written: dict[str, Callable[[], object]] = {
        "notice": lambda: noticed(ledger, "i-1", NOW),
        "pause": lambda: ledger.pause(None, "a", "b", NOW),
        "resume": lambda: ledger.resume(None, "a", NOW),
        "acknowledge": lambda: ledger.acknowledge("training", "a", "b", NOW),
        "snooze": lambda: ledger.snooze("i-1", "a", "b", NOW, NOW + HOUR),
        "approve": lambda: ledger.approve("i-1", "a", "b", NOW),
        "message": lambda: ledger.messages.keep(key, "a", NOW, reached=True, detail=""),
        "backtest": lambda: ledger.keep_backtest(a_backtest(NOW)),
    }
    for each in deeds:
        written[each]()
    found = ledger.trail.traces(Asked(limit=1000))

    assert [trace.what for trace in reversed(found)] == ["notice", *deeds]
    assert all(set(ledger.trail.traces(Asked(limit=1000, whats=[each.what]))) >= {each} for each in found)


def test_modes_and_absences_are_told() -> None:
    """When the controller only observed, and when it made no rounds: notices rest on it."""
    ledger = Ledger.in_memory()
    for minutes, enforce in ((0, True), (1, False), (2, True), (62, True)):
        seen = an_observation(now=NOW + timedelta(minutes=minutes))
        ledger.record_round(seen, rulebook=Rulebook(enforce=enforce))
    found = ledger.trail.traces(Asked(limit=9))

    assert [trace.what for trace in reversed(found)] == ["observe", "enforce", "away"]
    assert found[0].why == f"no round since {NOW + timedelta(minutes=2):%Y-%m-%d %H:%M:%S} UTC"
    assert ledger.audit().broken is None


def test_every_kind_of_record_is_told_or_is_no_deed() -> None:
    """A new kind of record must be put into the trail, or be named here."""
    no_deeds = {"round", "outcome", "spend_day"}

    assert set(RECORDS) - no_deeds == {"intent", "control", "backtest", "keep", "approval", "message"}
    assert {verb.value for verb in Verb if verb is not Verb.HOLD} <= set(DEEDS)


def test_nobody_s_words_forge_a_record(ledger: Ledger) -> None:
    """Whom a snooze link was made out to is a tag, and a reason may be anything: each record has its own lines."""
    forged = "\n2026-03-02 15:00:00 UTC  approve    i-1 of pool training, by root@desk\x1b[1A"
    ledger.snooze("i-1", f"link:ann{forged}", f"because{forged}", NOW, NOW + HOUR)
    lines = gpuwatch().output.splitlines()

    assert [line for line in lines if not line.startswith("    ")] == lines[:1]
    assert r"by link:ann\n2026-03-02" in lines[0]
    assert "\x1b" not in "".join(lines)


@pytest.mark.parametrize(
    "detail",
    [
        "the cloud launches i-7",
        "the cloud shows i-7",
        "the cloud launched i-7, and after 10m why",
        f"i-7 {NEVER_RAN}: x",
    ],
)
def test_a_machines_records_begin_with_the_launch_that_brought_it(ledger: Ledger, detail: str) -> None:
    """Its target was a new node of the pool; another machine whose id begins the same is not meant."""
    at = ledger.record_round(an_observation())
    for name in (detail, detail.replace("i-7", "i-70")):
        launch = ledger.intend(Verb.LAUNCH, "new:default:1", "default", NOW, REASON, at)
        ledger.settle(launch, Status.UNSEEN, name, NOW)
    stop = ledger.intend(Verb.STOP, "i-7", "default", NOW, REASON, at)

    found = ledger.trail.traces(Asked(limit=9, node_id="i-7"))
    assert [(each.what, each.node_id) for each in found] == [("stop", stop.node_id), ("launch", "new:default:1")]
    about = ledger.trail.entries_about("i-7")
    assert [(each.intent.verb, each.intent.node_id) for each in about] == [
        (Verb.STOP, "i-7"),
        (Verb.LAUNCH, "new:default:1"),
    ]


def test_what_was_done_to_one_machine_is_found_by_the_index(tmp_path: Path) -> None:
    """However long the ledger's past is, no record of another machine is read but launches."""
    ledger = Ledger.connect(LedgerSettings(path=str(tmp_path / "ledger.db")))
    asked: list[tuple[str, Any]] = []
    with ledger.store.reading() as db:
        engine = db.engine
    event.listen(engine, "before_cursor_execute", lambda _db, _cursor, sql, values, *_: asked.append((sql, values)))
    ledger.trail.entries_about("i-7")
    sql, values = next(each for each in asked if "intents" in each[0])
    with ledger.store.reading() as db:
        plan = [row[3] for row in db.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", values)]
    ledger.close()

    assert [each for each in plan if each.startswith("SCAN")] == [], plan
    assert sum("intents_by_node" in each for each in plan) == 2, plan
