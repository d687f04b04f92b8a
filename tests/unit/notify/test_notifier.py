"""People are told by a job of its own: once, over failures, crashes and restarts, by the leader, out of the ledger."""

import json
from dataclasses import replace
from datetime import UTC, timedelta
from pathlib import Path
from typing import Literal

import pytest
from apscheduler.schedulers.background import BackgroundScheduler

from gpuwatch.cli.controller import schedule_deliveries
from gpuwatch.controller.metrics import ControllerMetrics
from gpuwatch.controller.web.serve import Discovery, Observers
from gpuwatch.controller.web.snooze_link import read_claim
from gpuwatch.guard import Limits
from gpuwatch.ledger import Ledger, LedgerError, LedgerSettings
from gpuwatch.ledger.sent_messages import SentMessages
from gpuwatch.model.decision import Verb
from gpuwatch.model.fleet import Fleet
from gpuwatch.notify.settings import NotifySettings, OwnerSettings, Receiver
from gpuwatch.notify.transports.web import WebhookSettings
from tests.support.builders.fleet import NOW
from tests.support.builders.notices import GRACE, Office, a_machine, post
from tests.support.fakes.http_sink import Answer, PriceServer, serving

SECRET = b"0123456789abcdef0123456789abcdef"


def hook(server: PriceServer, **other: object) -> NotifySettings:
    """One webhook."""
    return NotifySettings(receivers={"hook": Receiver(webhook=WebhookSettings(url=server.url))}, **other)  # type: ignore[arg-type]  # settings


def heard(server: PriceServer) -> list[tuple[str, list[str]]]:
    """The events that a webhook was told of, with their nodes."""
    rows = [json.loads(asked.body) for asked in server.asked]
    return [(each["event"], [node["node"] for node in each["nodes"]]) for each in rows]


def test_a_notice_its_withdrawal_and_a_stop_are_told_once_each(tmp_path: Path) -> None:
    """Over restarts; the ledger says since when somebody knows, and its chain stays whole."""
    with serving(lambda _: Answer(body="", status=204)) as server:
        office = Office(tmp_path, hook(server))
        job = office.job()
        for verb in (Verb.NOTICE, Verb.WITHDRAW, Verb.NOTICE, Verb.STOP):
            office.does(verb)
            job.tick()
            job.tick()
            office.clock.advance(10)
            if verb is Verb.NOTICE:
                told_at = office.told_at()
        office.job().tick()
        rows, audit = heard(server), office.ledger.audit()
        office.close()

    assert [event for event, _ in rows] == ["notice", "withdrawn", "notice", "done"]
    assert told_at == NOW + timedelta(seconds=20)
    assert audit.broken is None
    assert office.counts == [("hook", event, "reached") for event, _ in rows]


def test_what_fails_is_tried_again_later_each_time(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """After 15, 30, 60, … seconds with the same key; nobody is told until it arrived, and a restart loses nothing."""
    broken = True
    with serving(lambda _: Answer(body="", status=503 if broken else 200)) as server:
        office = Office(tmp_path, hook(server))
        office.does(Verb.NOTICE)
        job = office.job()
        for _ in range(30):  # 5 minutes
            job.tick()
            office.clock.advance(10)
        tries, before = len(server.asked), office.told_at()
        broken = False
        office.job().tick()
        keys = {asked.headers["idempotency-key"] for asked in server.asked}
        after = office.told_at()
        office.close()

    assert tries == 5  # after 0, 20, 50, 110, 230 seconds: the first looks after 15, 30, 60, 120 more
    assert (before, after) == (None, NOW + timedelta(minutes=5))
    assert len(keys) == 1
    assert "The notice of i-1 did not reach hook: the server answered HTTP 503. Next try in 15s." in caplog.text


def test_between_two_rounds_it_looks_again_only_where_something_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is done between them; a ledger opened every few seconds for weeks would be."""
    broken = True
    opened: list[LedgerSettings] = []
    connect = Ledger.connect

    def watched(settings: LedgerSettings, *, controls_only: bool = False) -> Ledger:
        opened.append(settings)
        return connect(settings, controls_only=controls_only)

    monkeypatch.setattr(Ledger, "connect", watched)
    with serving(lambda _: Answer(body="", status=503 if broken else 200)) as server:
        office = Office(tmp_path, hook(server))
        office.does(Verb.NOTICE)
        notifier, fleet = office.notifier(), Fleet(observed_at=NOW, nodes=tuple(office.nodes))
        notifier.fleet = lambda: fleet
        job = office.job(notifier)
        counts = []
        for tick in range(6):  # tries after 0, 20 and 60 seconds; after 40 it is too early
            broken = tick < 2
            opened.clear()
            job.tick()
            counts.append(len(opened))
            office.clock.advance(20)
        notifier.fleet = lambda: replace(fleet)
        opened.clear()
        job.tick()
        office.close()

    assert counts == [1, 1, 1, 1, 0, 0]
    assert len(opened) == 1
    assert len(server.asked) == 3


def test_a_notice_withdrawn_before_it_was_told_is_silence(tmp_path: Path) -> None:
    """A server that was down meanwhile hears of neither; the ledger has both as superseded."""
    broken = True
    with serving(lambda _: Answer(body="", status=503 if broken else 200)) as server:
        office = Office(tmp_path, hook(server))
        notice = office.does(Verb.NOTICE)
        job = office.job()
        job.tick()
        broken = False
        withdrawal = office.does(Verb.WITHDRAW)
        office.clock.advance(60)
        job.tick()
        job.tick()
        names = office.ledger.messages.recorded_messages([notice.key, withdrawal.key])
        office.close()

    assert heard(server) == [("notice", ["i-1"])]  # the try that failed
    assert names == {(notice.key, "hook"), (withdrawal.key, "hook")}
    assert [result for _, _, result in office.counts] == ["failed", "superseded", "superseded"]


def test_a_crash_between_sending_and_recording_repeats_the_same_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second mail has the first one's Message-ID; in the same process nothing is sent twice even then."""
    with post() as (settings, mails):
        office = Office(
            tmp_path, NotifySettings(receivers={"mail": Receiver(mail=replace(settings, to=("ops@example.com",)))})
        )
        office.does(Verb.NOTICE)
        job = office.job()
        with monkeypatch.context() as patched:
            patched.setattr(SentMessages, "keep", _power_cut)
            job.tick()
            job.tick()
        once = len(mails.messages)
        office.job().tick()  # another process, which knows the ledger alone
        job.tick()
        told_at = office.told_at()
        office.close()

    assert once == 1
    assert len(mails.messages) == 2
    assert mails.messages[0]["Message-ID"] == mails.messages[1]["Message-ID"]
    assert told_at == NOW


def _power_cut(*_: object, **__: object) -> None:
    raise LedgerError("the disk is full")


def test_each_owner_has_a_mail_with_links_of_their_own(tmp_path: Path) -> None:
    """One mail an owner, whatever the number of nodes; a link is made out to the owner and good for that notice."""
    key_file = tmp_path / "key"
    key_file.write_bytes(SECRET)
    nodes = [a_machine(f"i-{number}", owner=owner) for number, owner in enumerate(["ann", "ann", "bob"])]
    with post() as (mail, mails):
        settings = NotifySettings(
            url="http://127.0.0.1:9461",
            link_key_file=str(key_file),
            owner_mail="{owner}@example.com",
            receivers={"owners": Receiver(mail=mail, owners=True)},
        )
        office = Office(tmp_path, settings, nodes=nodes)
        intents = [office.does(Verb.NOTICE, node.id, owner=node.owner) for node in nodes]
        office.job().tick()
        office.close()
    bob = mails.to("bob@example.com")[0].get_body(("plain",))
    assert bob is not None
    token = bob.get_content().partition("/snooze/")[2].split()[0]
    claim = read_claim(SECRET, token, NOW)

    assert sorted(mail["To"] for mail in mails.messages) == ["ann@example.com", "bob@example.com"]
    assert (claim.node_id, claim.key, claim.whom) == ("i-2", intents[2].key, "bob")
    assert claim.until == NOW + GRACE + timedelta(days=1)


def test_one_address_that_is_refused_keeps_nobody_elses_mail_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor does an owner without an address; both stay untold, and are told once the settings are mended."""
    with post() as (mail, mails):
        settings = NotifySettings(
            owner_mail="{owner}@example.com", receivers={"owners": Receiver(mail=mail, owners=True)}
        )
        office = Office(tmp_path, settings)
        for number, owner in enumerate(["mallory", None, "Team Vision", "ann"]):
            office.does(Verb.NOTICE, f"i-{number}", owner=owner)
        job = office.job()
        job.tick()
        job.tick()
        first = [mail["To"] for mail in mails.messages]
        listed = {
            "mallory": OwnerSettings(mail="m@example.com"),
            "Team Vision": OwnerSettings(mail="vision@example.com"),
        }
        office.settings = replace(office.settings, notify=replace(settings, owners=listed))
        office.job().tick()
        office.close()

    assert first == ["ann@example.com"]
    assert sorted(mail["To"] for mail in mails.messages[1:]) == ["m@example.com", "vision@example.com"]
    assert "the mail server does not accept mail for mallory@example.com" in caplog.text
    assert caplog.text.count("no mail address for the owner 'Team Vision' (i-2)") == 1
    assert caplog.text.count("no mail address for nodes without an owner (i-1)") == 2  # once a process


def test_one_listener_that_fails_keeps_nobody_else_waiting(tmp_path: Path) -> None:
    """Each has its own tries."""
    with serving(lambda asked: Answer(body="", status=500 if asked.path == "/bad" else 200)) as server:
        ways = {name: Receiver(webhook=WebhookSettings(url=f"{server.url}/{name}")) for name in ("bad", "good")}
        office = Office(tmp_path, NotifySettings(receivers=ways))
        for number in range(3):
            office.does(Verb.NOTICE, f"i-{number}")
            office.job().tick()
        good = [asked for asked in server.asked if asked.path == "/good"]
        office.close()

    assert [len(json.loads(asked.body)["nodes"]) for asked in good] == [1, 1, 1]


def test_a_link_key_that_cannot_be_read_costs_the_links_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A message without a link is better than none."""
    with serving(lambda _: Answer(body="")) as server:
        short = tmp_path / "short"
        short.write_text("too short")
        office = Office(tmp_path, hook(server, url="http://127.0.0.1:9461", link_key_file=str(short)))
        office.does(Verb.NOTICE)
        office.job().tick()
        office.close()
        (node,) = json.loads(server.asked[0].body)["nodes"]

    assert node["snooze_url"] is None
    assert "Messages are sent without snooze links: notify.link_key_file: 9 bytes are no secret" in caplog.text


def test_only_the_leader_tells_and_only_of_a_fleet_that_it_has_seen(tmp_path: Path) -> None:
    """A controller that waits, or has not had a round, says nothing, and a ledger that is gone is a line in the log."""
    with serving(lambda _: Answer(body="")) as server:
        office = Office(tmp_path, hook(server))
        office.does(Verb.NOTICE)
        office.leads = False
        job = office.job()
        job.tick()
        office.leads = True
        blind = office.notifier()
        blind.fleet = lambda: None
        office.job(blind).tick()
        silent = len(server.asked)
        job.tick()
        office.close()
        (tmp_path / "ledger.db").unlink()
        job.tick()

        assert silent == 0
        assert len(server.asked) == 1


def test_a_withdrawal_of_a_notice_of_last_week_is_told(tmp_path: Path) -> None:
    """Its notice is no longer among the recent events; that it was told is found by the node's history."""
    with serving(lambda _: Answer(body="")) as server:
        office = Office(tmp_path, hook(server))
        office.does(Verb.NOTICE)
        office.job().tick()
        office.clock.advance(7 * 86400)
        office.does(Verb.WITHDRAW)
        office.job().tick()
        office.close()

        assert [event for event, _ in heard(server)] == ["notice", "withdrawn"]


@pytest.mark.parametrize("mode", ["observe", "enforce"])
def test_the_controller_looks_every_few_seconds_where_it_acts(
    tmp_path: Path, mode: Literal["observe", "enforce"]
) -> None:
    """In observe there is no job: nothing is going to happen, also to nodes with a notice of before."""
    with serving(lambda _: Answer(body="")) as server:
        office = Office(tmp_path, hook(server))
        settings = replace(office.settings, mode=mode, limits=Limits())
        seen = Observers(
            discovery=Discovery(signals=settings.signals), metrics=ControllerMetrics(mode, "lab", office.clock)
        )
        scheduler = BackgroundScheduler(timezone=UTC)
        schedule_deliveries(scheduler, settings, office.clock, seen)
        jobs = [job.max_instances for job in scheduler.get_jobs()]
        seen.metrics.message("hook", "notice", "reached")
        page = seen.metrics.page().body.decode()
        office.close()

    assert jobs == [1] * (mode == "enforce")
    assert (
        'gpuwatch_controller_notifications_total{destination="hook",event="notice",fleet="lab",result="reached"} 1.0'
        in page
    )
