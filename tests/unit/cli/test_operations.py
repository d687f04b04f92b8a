"""What people say to the ledger on the command line, and what its settings refuse."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import update

from gpuwatch.cli.main import commands
from gpuwatch.controller.operations import operator_name
from gpuwatch.ledger import Ledger, LedgerSettings
from gpuwatch.ledger.settings import contradictions
from gpuwatch.ledger.tables import BODIES
from gpuwatch.model.decision import Reason, Verb
from gpuwatch.model.proposal import Answer, Review, Step
from gpuwatch.runtime.clock import SystemClock
from tests.support.builders.fleet import NOW, a_node, an_observation
from tests.support.real.postgresql import postgresql

REASON = Reason(code="candidate", sentence="It has been idle for 2h.")
URL = "postgresql://gpuwatch@db.internal/gpuwatch"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.component("pg_ctl"))])
def ledger(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ledger]:
    """A running controller's ledger, to which the configuration points."""
    settings = LedgerSettings(path=str(tmp_path / "ledger.db"))
    if request.param == "postgresql":
        settings = LedgerSettings(url=postgresql().database())
    file = tmp_path / "gpuwatch.yaml"
    section = {"path": settings.path} if settings.url is None else {"url": settings.url}
    file.write_text(json.dumps({"ledger": section, "pools": {"training": {}}}), encoding="utf-8")
    monkeypatch.setenv("GPUWATCH_CONFIG", str(file))
    ledger = Ledger.connect(settings)
    assert ledger.lead()
    yield ledger
    ledger.close()


def a_freeze(pool: str) -> Review:
    """What the guard says of a pool that became idle at once."""
    step = Step(node_id="i-1", verb=Verb.NOTICE, reason=REASON, change="")
    frozen = Answer(rule="mass_idleness", refused=True, sentence="9 of 9 working nodes turned idle at once.")
    return Review(pool=pool, step=step, answers=(frozen,))


def gpuwatch(*arguments: str) -> Result:
    """One command."""
    return CliRunner().invoke(commands, arguments)


def test_pause_and_resume_work_beside_the_running_controller(ledger: Ledger) -> None:
    """The next view has the order, with who gave it, why and until when."""
    result = gpuwatch("pause", "--pool", "training", "--for", "2h", "--reason", "moving the racks")
    everything = gpuwatch("pause", "--reason", "audit")
    held = ledger.view(NOW).pauses

    assert result.exit_code == 0, result.output
    assert re.match(
        r"Paused: pool training until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC, by .+@.+: moving the racks\.", result.output
    )
    assert everything.output.startswith(f"Paused: all pools until somebody resumes it, by {operator_name()}: audit.")
    assert [(pause.pool, pause.who, pause.reason) for pause in held] == [
        ("training", operator_name(), "moving the racks"),
        (None, operator_name(), "audit"),
    ]
    resumed = gpuwatch("resume", "--pool", "training")
    assert resumed.output.startswith("Resumed: pool training.\nStill paused: all pools until somebody resumes it")
    assert gpuwatch("resume").output == "Resumed: all pools.\n"
    assert gpuwatch("resume").output == "Nothing to resume: there was no pause of all pools.\n"
    assert ledger.view(NOW).pauses == ()


def test_a_pool_that_is_misspelt_is_neither_paused_nor_resumed(ledger: Ledger) -> None:
    """Whoever believes that a pool is paused works on its machines; the nearest name is told."""
    result = gpuwatch("pause", "--pool", "Training", "--reason", "x")

    assert result.exit_code == 2
    assert "--pool 'Training': the settings have no such pool. The nearest is 'training'." in result.output
    assert gpuwatch("resume", "--pool", "trainng").exit_code == 2
    assert ledger.view(NOW).pauses == ()
    ledger.pause("gone", "ann", "its rules were removed", NOW, None)
    assert gpuwatch("resume", "--pool", "gone").exit_code == 0
    assert ledger.view(NOW).pauses == ()


def test_an_acknowledgement_is_on_record_and_ends_no_pause(ledger: Ledger) -> None:
    """Who, of which pool, when; `resume` is none."""
    ledger.record_round(an_observation(a_node()), reviews=[a_freeze("training")])
    gpuwatch("pause", "--reason", "audit")
    one = gpuwatch("acknowledge", "--pool", "training", "--reason", "the course is over")
    everything = gpuwatch("acknowledge")
    view = ledger.view(SystemClock().now())

    assert one.output == "Acknowledged: the idleness of pool training up to now. Pauses stay as they are.\n"
    assert everything.output == "Acknowledged: the idleness of all pools up to now. Pauses stay as they are.\n"
    assert [pool for pool, _ in view.acknowledged] == ["training", None]
    assert len(view.pauses) == 1
    gpuwatch("resume")
    assert len(ledger.view(SystemClock().now()).acknowledged) == 2
    assert ledger.audit().broken is None


def test_an_acknowledgement_of_what_is_not_frozen_says_so(ledger: Ledger) -> None:
    """It is kept, since the next round may have begun; but whoever named another pool learns it at once."""
    before = gpuwatch("acknowledge").output
    ledger.record_round(an_observation(a_node()), reviews=[a_freeze("default")])
    other = gpuwatch("acknowledge", "--pool", "training").output

    given = "Acknowledged: the idleness of all pools up to now. Pauses stay as they are.\n"
    warning = "Warning: the newest round froze no pool. A freeze that comes later is not ended by this.\n"
    assert before == given + warning
    assert other.endswith("Warning: the newest round froze no node of pool training. Frozen: default.\n")


def test_an_acknowledgement_stands_where_the_newest_round_cannot_be_read(ledger: Ledger) -> None:
    """A controller of a later version wrote it: it is not told as failed, and nobody claims that nothing was frozen."""
    ledger.record_round(an_observation(a_node()), reviews=[a_freeze("training")])
    with ledger.store.writing() as writer:
        writer.db.execute(update(BODIES).values(codec=99))
    done = gpuwatch("acknowledge", "--pool", "training")

    assert done.exit_code == 0
    assert done.output.startswith("Acknowledged: the idleness of pool training up to now.")
    assert "froze no" not in done.output
    assert "the newest round cannot be read" in done.output
    assert [pool for pool, _ in ledger.view(SystemClock().now()).acknowledged] == ["training"]


def test_a_pause_needs_a_reason_and_a_real_duration(ledger: Ledger) -> None:
    """Others must be able to judge whether it may end."""
    without = gpuwatch("pause")
    wrong = gpuwatch("pause", "--for", "soon", "--reason", "x")

    assert (without.exit_code, wrong.exit_code) == (2, 2)
    assert "--reason" in without.output
    assert "'soon' is not a duration" in wrong.output
    assert ledger.view(NOW).pauses == ()


def test_audit_verify_prints_a_head_to_keep_and_fails_where_records_were_changed(ledger: Ledger) -> None:
    """Exit status 0 and the head; an anchor from a later or another chain: 1 and where; nonsense: 2."""
    round_id = ledger.record_round(an_observation(a_node()))
    ledger.intend(Verb.STOP, "i-1", "default", NOW, REASON, round_id)
    good = gpuwatch("audit", "verify")
    result = json.loads(gpuwatch("audit", "verify", "--json").output)
    head = re.search(r"^Head (2:[0-9a-f]{64})$", good.output, re.MULTILINE)

    assert (good.exit_code, head is not None) == (0, True), good.output
    assert head is not None
    assert result.pop("schema") == "gpuwatch.audit.verify/1"
    assert result == {"links": 2, "whole_rounds": 1, "head": head[1], "broken": None}
    assert gpuwatch("audit", "verify", "--anchor", head[1]).exit_code == 0
    other = gpuwatch("audit", "verify", "--anchor", "2:" + "0" * 64)
    assert (other.exit_code, "Broken: link 2" in other.output) == (1, True)
    assert gpuwatch("audit", "verify", "--anchor", "yesterday").exit_code == 2


def test_rounds_lists_what_can_be_explained(ledger: Ledger) -> None:
    """Newest first, for people and as JSON."""
    assert gpuwatch("rounds").output == "No round is on record yet.\n"
    ledger.record_round(an_observation(a_node()))
    last = ledger.record_round(an_observation(a_node(), a_node("i-2")))
    heads, line, _ = gpuwatch("rounds").output.splitlines()
    (row,) = json.loads(gpuwatch("rounds", "--json", "--limit", "1").output)["rounds"]

    assert heads.split() == ["ROUND", "AT", "NODES", "STEPS", "INTENTS", "KEPT", "CONTROLLER"]
    assert re.match(rf" +{last}  2026-03-02 12:00:00 UTC +2 +0 +0  whole +.+:\d+$", line), line
    assert (row["id"], row["nodes"], row["whole"]) == (last, 2, True)


def test_without_a_ledger_orders_say_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pause that nobody would read is an error, and makes no file."""
    file = tmp_path / "gpuwatch.yaml"
    file.write_text(f"ledger:\n  path: {tmp_path}/none.db\n", encoding="utf-8")
    monkeypatch.setenv("GPUWATCH_CONFIG", str(file))
    result = gpuwatch("pause", "--reason", "x")

    assert result.exit_code == 2
    assert "none.db does not exist yet; start `gpuwatch controller`" in result.output
    assert sorted(each.name for each in tmp_path.iterdir()) == ["gpuwatch.yaml"]


@pytest.mark.parametrize(
    ("settings", "key", "says"),
    [
        (LedgerSettings(url=URL, url_file="/etc/gpuwatch/url"), "url", "both given"),
        (LedgerSettings(url=URL, path="/data/ledger.db"), "url", "an SQLite file"),
        (LedgerSettings(url_file="/etc/gpuwatch/url", path="/data/ledger.db"), "url_file", "an SQLite file"),
        (LedgerSettings(url="sqlite:///ledger.db"), "url", "no PostgreSQL URL"),
        (LedgerSettings(url="postgresql://gpuwatch:zebra-77@db/gpuwatch"), "url", "holds a password"),
        (LedgerSettings(url="postgresql://db/gpuwatch?password=zebra-77"), "url", "holds a password"),
        (LedgerSettings(url="postgresql://[zebra-77"), "url", "holds a password"),
        (LedgerSettings(url=URL, leader_timeout=120.0), "leader_timeout", "two intervals"),
        (LedgerSettings(retention=86400.0), "retention", "shorter than ledger.quiet_round_retention"),
    ],
)
def test_contradictions_are_told_by_their_key_and_never_with_a_password(
    settings: LedgerSettings, key: str, says: str
) -> None:
    """What is wrong, what would be right, and nothing that must not be read."""
    (found,) = contradictions(settings, 60.0)

    assert found.keys[0] == ("ledger", key)
    assert says in found.wrong
    assert "zebra" not in f"{found.wrong}{found.right}"


def test_good_settings_contradict_nothing() -> None:
    """The defaults, a URL, a file with a URL; what is in force is told without a user's name."""
    good = [
        LedgerSettings(),
        LedgerSettings(url=URL),
        LedgerSettings(url_file="/etc/gpuwatch/url"),
        LedgerSettings(path="/x.db"),
    ]

    assert [list(contradictions(settings, 60.0)) for settings in good] == [[], [], [], []]
    assert replace(good[0], url=URL).place == "postgresql://db.internal/gpuwatch"


@contextmanager
def nobody() -> Iterator[None]:
    """A user without rights, where the tests run as root."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)


@pytest.mark.parametrize("command", [["rounds"], ["audit", "verify"], ["pause", "--reason", "x"]], ids=" ".join)
@pytest.mark.parametrize(("folder", "file"), [(0o000, 0o644), (0o755, 0o000), (0o555, 0o444)], ids=oct)
def test_who_may_not_open_the_ledger_is_told_who_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], folder: int, file: int
) -> None:
    """As an operator with an account of his own on the controller's host: a sentence, and no trace back."""
    place = tmp_path / "state"
    place.mkdir()
    Ledger.open(place / "ledger.db").close()
    monkeypatch.setenv("GPUWATCH_LEDGER__PATH", str(place / "ledger.db"))
    assert gpuwatch(*command).exit_code == 0  # it loads all that the command needs
    for left in place.glob("*-*"):
        left.unlink()  # with what SQLite leaves beside it others may well read it
    for each in (*place.iterdir(), tmp_path, *tmp_path.parents[:-2]):
        each.chmod(0o755 if each.is_dir() else file)
    place.chmod(folder)
    with nobody():
        refused = gpuwatch(*command)
    place.chmod(0o755)

    if file == 0o444 and command[0] != "pause":  # to read it is enough, and leaves nothing beside it
        assert refused.exit_code == 0, refused.output
        return
    assert refused.exit_code == 2
    assert "ledger.db cannot be opened" in refused.output
    assert refused.output.endswith("run this as root or as the controller's user\n")


def test_orders_to_resume_are_told_with_their_pool(ledger: Ledger) -> None:
    """That of one pool also goes on without launches that brought no node. The end of a pause's time is no order."""
    gpuwatch("resume")
    gpuwatch("pause", "--pool", "training", "--for", "1m")
    assert [pool for pool, _ in ledger.view(SystemClock().now()).resume_orders] == [None]
    gpuwatch("resume", "--pool", "training")

    _, (pool, at) = ledger.view(SystemClock().now()).resume_orders

    assert pool == "training"
    assert ledger.view(at + timedelta(minutes=61)).resume_orders == ()
