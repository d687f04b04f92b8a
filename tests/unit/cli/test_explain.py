"""`explain` of past rounds: from the ledger alone, under the rules that held then."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuwatch.cli import explain
from gpuwatch.cli.main import commands
from gpuwatch.config.settings import Settings
from gpuwatch.ledger import Ledger, LedgerError, LedgerSettings
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Reason, Status, Verb
from gpuwatch.model.fleet import NodeReport
from gpuwatch.policies.launches import LaunchRules
from gpuwatch.policies.schedule import Window
from tests.support.builders.fleet import RULES, Desk, a_node, a_verdict
from tests.support.builders.last_busy import busy_last, cpu_evidence

REASON = Reason(code="candidate", sentence="It has been idle for 2h.")


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """A controller that has stopped an idle machine and let a busy one be, each round a minute after the other."""
    desk = Desk(ledger=Ledger.open(tmp_path / "ledger.db"))
    desk.fleet.put(a_node("i-idle", held=1700.0))
    desk.fleet.put(a_node("i-busy", State.BUSY))
    for _ in range(16):
        desk.round()
    yield desk
    desk.ledger.close()


def settings(tmp_path: Path) -> Settings:
    """The settings of an operator's command today: other rules than those of then."""
    return Settings(ledger=LedgerSettings(path=str(tmp_path / "ledger.db")))


def test_every_past_round_can_be_explained_for_every_node(desk: Desk, tmp_path: Path) -> None:
    """Verdict, policy, all rules' answers: as they were, whether anything was done or not."""
    lines = desk.ledger.rounds(100)

    assert len(lines) == 16
    for line in lines:
        for name in ("i-idle", "i-busy"):
            text, page = explain.of_past(settings(tmp_path).ledger, name, number=line.id, when=None)
            assert f"Round {line.id} of " in text
            assert page.round == line.id
            assert {"unknown", "busy", "min_nodes"} <= {each.rule for each in page.if_stopped_now.answers}


def test_a_past_round_says_what_it_said_when_it_was_this_moment(desk: Desk, tmp_path: Path) -> None:
    """What explain said then is what it says now of then, the later past of the node left out."""
    desk.fleet.put(a_node("i-new", held=1200.0))
    done = desk.round(seconds=0.0)
    then_text, then = explain.of_now(desk.parts, done, "i-new")
    number = desk.ledger.rounds(1)[0].id
    for _ in range(20):
        desk.round()

    text, page = explain.of_past(settings(tmp_path).ledger, "i-new", number=number, when=None)
    assert text.endswith(then_text)
    assert replace(page, round=None) == then


def test_the_rules_are_those_of_then(desk: Desk, tmp_path: Path) -> None:
    """A floor that was set later does not turn up in an earlier round's explanation."""
    early = desk.ledger.rounds(1)[0].id
    desk.rules = replace(RULES, min_nodes=9)
    desk.round()
    late = desk.ledger.rounds(1)[0].id

    texts = [
        explain.of_past(settings(tmp_path).ledger, "i-busy", number=each, when=None, verbose=True)[0]
        for each in (early, late)
    ]
    assert ["min_nodes is 9" in text for text in texts] == [False, True]


def test_a_past_round_still_says_what_its_idle_time_began_after(desk: Desk, tmp_path: Path) -> None:
    """The newest of what was busy is stored with each round, and what the policy said of it stays as it was."""
    verdict = busy_last(
        a_verdict("i-new", held=720.0, at=desk.clock.now()),
        (cpu_evidence(), 720.0),
        (cpu_evidence(name="disk"), 9000.0),
    )
    desk.fleet.put(a_node("i-new", signal=NodeReport(verdict=verdict)))
    done = desk.round(seconds=0.0)
    _, then = explain.of_now(desk.parts, done, "i-new")
    text, page = explain.of_past(settings(tmp_path).ledger, "i-new", number=desk.ledger.rounds(1)[0].id, when=None)

    assert then.last_reset is not None
    assert "after cpu was busy: 1.4 cores, limit 0.8" in then.last_reset
    assert page.last_reset == then.last_reset
    assert page.step == then.step
    assert (len(then.last_busy), page.last_busy) == (2, then.last_busy[:1])
    assert then.last_reset in text


def test_a_time_stands_for_the_newest_round_until_then(desk: Desk, tmp_path: Path) -> None:
    """--at names a moment; a moment before the first round, or no time at all, is told."""
    middle = desk.ledger.rounds(100)[8]

    _, page = explain.of_past(settings(tmp_path).ledger, "i-idle", number=None, when=f"{middle.at:%Y-%m-%dT%H:%M:59}")
    assert page.round == middle.id
    with pytest.raises(LedgerError, match="yesterday"):
        explain.of_past(settings(tmp_path).ledger, "i-idle", number=None, when="yesterday")
    with pytest.raises(LedgerError):
        explain.of_past(settings(tmp_path).ledger, "i-idle", number=None, when="2001-01-01")


def test_the_command_needs_neither_cloud_nor_agents(desk: Desk, tmp_path: Path) -> None:
    """`gpuwatch explain NODE --round N` beside a running controller; a wrong name or number is told, status 2."""
    file = tmp_path / "gpuwatch.yaml"
    file.write_text(json.dumps({"ledger": {"path": str(tmp_path / "ledger.db")}}), encoding="utf-8")
    number = str(desk.ledger.rounds(1)[0].id)

    def run(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(commands, ["explain", *words, "--config", str(file)])
        return done.exit_code, done.output

    code, text = run("i-busy", "--round", number)
    assert (code, "Verdict: busy" in text) == (0, True), text
    code, text = run("i-busy", "--round", number, "--json")
    assert (code, json.loads(text)["round"]) == (0, int(number))
    for words, word in (
        (("i-none", "--round", number), "i-busy"),
        (("i-busy", "--round", "99999"), "99999"),
        (("i-busy", "--round", "1", "--at", "2026-01-01"), "not both"),
    ):
        code, text = run(*words)
        assert (code, word in text) == (2, True), text


def note(desk: Desk, count: int) -> None:
    """So many notices of i-idle that came to nothing, a minute after the other."""
    for number in range(count):
        desk.rest(60.0)
        intent = desk.ledger.intend(Verb.NOTICE, "i-idle", "default", desk.clock.now(), REASON, 1)
        desk.ledger.settle(intent, Status.CANCELLED, f"number {number}", desk.clock.now())


def test_the_short_text_has_the_newest_of_what_was_done(desk: Desk) -> None:
    """And says of how many, as far as it knows."""
    note(desk, 6)
    text = explain.of_now(desk.parts, desk.plan(), "i-idle")[0]

    said = text.partition("Ledger, the newest 3 of 8:")[2].split("\n\n", maxsplit=1)[0]
    assert [f"number {number}" in said for number in range(6)] == [False, False, False, True, True, True]


def test_a_past_round_knows_what_had_been_done_however_much_was_done_since(desk: Desk, tmp_path: Path) -> None:
    """The newest twenty of now are none of those of then."""
    early = desk.ledger.rounds(1)[0].id
    then = explain.of_past(settings(tmp_path).ledger, "i-idle", number=early, when=None)[0]
    assert "stop: " in then
    note(desk, 25)

    assert explain.of_past(settings(tmp_path).ledger, "i-idle", number=early, when=None)[0] == then
    newest = explain.of_now(desk.parts, desk.plan(), "i-idle")[0]
    assert "Ledger, the newest 3:" in newest  # of how many, the page does not know


def test_a_machine_that_gpuwatch_launched_says_so(desk: Desk) -> None:
    """The launch is about no machine yet: its outcome names what came."""
    desk.rules = replace(
        RULES, min_nodes=0, schedule={"always": Window(min_nodes=3)}, launch=LaunchRules(template="lt")
    )
    for _ in range(3):
        desk.round()
    (launched,) = [each for each in desk.fleet.nodes_ if each.startswith("i-gpuwatch")]
    text, page = explain.of_now(desk.parts, desk.plan(), launched)

    assert [entry.intent.verb for entry in page.history] == [Verb.LAUNCH]
    assert "gpuwatch has never acted on it" not in text
