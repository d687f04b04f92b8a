"""A budget tells its receivers of each threshold once a month, in both modes, out of the round and the ledger alone."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
import yaml

from gpuwatch.cli.deliveries import make_budget_notices
from gpuwatch.config.settings import Settings
from gpuwatch.ledger import Ledger, LedgerSettings
from gpuwatch.ledger.audit_log import Asked
from gpuwatch.model.budget import BudgetState, Crossing, Scope
from gpuwatch.money.accounting.scope import CostScope, count_in
from gpuwatch.money.budgets.settings import Budget
from gpuwatch.notify.budget_message import BudgetMessage
from gpuwatch.notify.budget_notices import BudgetNotices
from gpuwatch.notify.delivery import DeliveryJob
from gpuwatch.notify.settings import NotifySettings, OwnerSettings, Receiver
from gpuwatch.notify.transports.alertmanager import alerts_of
from gpuwatch.notify.transports.web import WebhookSettings
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.configurations import mistakes, read
from tests.support.builders.fleet import NOW
from tests.support.builders.money import a_state
from tests.support.builders.notices import post
from tests.support.fakes.http_sink import Answer, PriceServer, serving
from tests.support.real.alerting import text_of


def a_budget(*passed: tuple[float, str], spent: str = "4012.34", **changes: object) -> BudgetState:
    """Of $5,000, with the thresholds 80 % and 100 %, of which these are passed by what is spent or forecast."""
    crossings = tuple(Crossing(ratio=ratio, on=on, at=NOW) for ratio, on in passed)  # type: ignore[arg-type]
    facts: dict[str, object] = {"thresholds": (0.8, 1.0), "forecast_usd": Decimal("5610.5"), "blocked": None}
    return a_state(spent_usd=Decimal(spent), crossings=crossings, **facts | changes)


class Desk:
    """A controller's ledger, and the budgets of its last round."""

    def __init__(self, folder: Path, notify: NotifySettings, **budget: object) -> None:
        """The budget `ml` has all receivers."""
        self.ledger = LedgerSettings(path=str(folder / "ledger.db"))
        named = Budget(notify=tuple(notify.receivers), thresholds=("80%", "100%"), **budget)  # type: ignore[arg-type]
        self.settings = Settings(fleet="lab", ledger=self.ledger, notify=notify, budgets={"ml": named})
        self.clock = ManualClock(wall=NOW)
        self.states: tuple[BudgetState, ...] = ()
        self.counts: list[tuple[str, ...]] = []
        Ledger.connect(self.ledger).close()

    def source(self) -> BudgetNotices:
        """After a start."""
        return make_budget_notices(self.settings, self.clock, lambda: self.states, lambda *it: self.counts.append(it))

    def job(self) -> DeliveryJob:
        """Its deliveries, after a start."""
        return DeliveryJob(ledger=self.ledger, leads=lambda: True, sources=[self.source()])


def hook(server: PriceServer) -> NotifySettings:
    """One webhook."""
    return NotifySettings(receivers={"hook": Receiver(webhook=WebhookSettings(url=server.url))})


def heard(server: PriceServer) -> list[list[tuple[float, str]]]:
    """The thresholds of each message to a webhook."""
    documents = [json.loads(asked.body) for asked in server.asked]
    return [[(each["ratio"], each["on"]) for each in document["budget"]["thresholds"]] for document in documents]


def test_mail_past_80_percent_of_5000_dollars_is_three_lines_of_yaml(tmp_path: Path) -> None:
    """A mail server gets one mail as soon as a round has seen it; no Prometheus, and no mode enforce."""
    lines = "budgets:\n  everything: {usd_per_month: 5000, thresholds: [80%], notify: [ops]}\n"
    with post() as (mail, mails):
        receiver = f"mail: {{host: {mail.host}, port: {mail.port}, security: none, to: [ops@example.com]}}"
        settings = read(tmp_path / "g.yaml", f"{lines}notify: {{receivers: {{ops: {{{receiver}}}}}}}\n")
        ledger = LedgerSettings(path=str(tmp_path / "ledger.db"))
        Ledger.connect(ledger).close()
        clock = ManualClock(wall=NOW)
        state = a_budget((0.8, "actual"), name="everything", thresholds=(0.8,))
        source = make_budget_notices(settings, clock, lambda: (state,), lambda *_: None)
        DeliveryJob(ledger=ledger, leads=lambda: True, sources=[source]).tick()
        (message,) = mails.messages

    assert settings.mode == "observe"
    assert message["To"] == "ops@example.com"
    assert message["Subject"] == "gpuwatch: budget everything past 80 %: $4,012.34 of $5,000.00 spent"
    assert "Spent: $4,012.34 of $5,000.00 (80.2 %) in 2026-03" in text_of(message)
    assert text_of(message, "html").startswith("<!DOCTYPE html>")


def test_each_threshold_is_told_once_of_spend_and_of_forecast_also_over_restarts(tmp_path: Path) -> None:
    """Crossed together they are one message; the next month they are told again."""
    with serving(lambda _: Answer(body="", status=204)) as server:
        desk = Desk(tmp_path, hook(server))
        stories = [
            a_budget((0.8, "forecast")),
            a_budget((0.8, "forecast"), (0.8, "actual"), (1.0, "forecast")),
            a_budget((0.8, "forecast"), (0.8, "actual"), (1.0, "forecast"), (1.0, "actual")),
            a_budget((0.8, "actual"), month="2026-04"),
        ]
        for state in stories:
            desk.states = (state,)
            job = desk.job()
            job.tick()
            job.tick()
        asked = heard(server)

    assert asked == [
        [(0.8, "forecast")],
        [(0.8, "actual"), (1.0, "forecast")],
        [(1.0, "actual")],
        [(0.8, "actual")],
    ]
    assert desk.counts == [("hook", "budget", "reached")] * 4


def test_a_threshold_that_another_scope_has_reached_is_told_again_in_its_own(tmp_path: Path) -> None:
    """Told of the whole account, the team must still hear of its own machines; each once."""
    with serving(lambda _: Answer(body="", status=204)) as server:
        desk = Desk(tmp_path, hook(server))
        stories: list[tuple[CostScope, BudgetState]] = [
            ("account", a_budget((0.8, "actual"))),
            ("fleet", a_budget()),
            ("fleet", a_budget((0.8, "actual"))),
        ]
        for scope, state in stories:
            count_in(scope)
            desk.states = (state,)
            desk.job().tick()
            desk.job().tick()
        count_in("fleet")
        asked = heard(server)

    assert asked == [[(0.8, "actual")]] * 2


def test_what_did_not_arrive_is_tried_again_and_arrives_once(tmp_path: Path) -> None:
    """With the same key, after 15 seconds; the ledger is not even opened while nothing may be sent."""
    broken = True
    with serving(lambda _: Answer(body="", status=503 if broken else 200)) as server:
        desk = Desk(tmp_path, hook(server))
        desk.states = (a_budget((0.8, "actual")),)
        source = desk.source()
        job = DeliveryJob(ledger=desk.ledger, leads=lambda: True, sources=[source])
        job.tick()
        early = source.pending()
        broken = False
        desk.clock.advance(20)
        late = source.pending()
        job.tick()
        over = source.pending()
        keys = {asked.headers["idempotency-key"] for asked in server.asked}

    assert (early, late, over) == (False, True, False)
    assert len(server.asked) == 2
    assert len(keys) == 1
    assert [result for _, _, result in desk.counts] == ["failed", "reached"]


def test_a_threshold_that_is_no_longer_wanted_and_a_sum_that_is_not_known_tell_nobody(tmp_path: Path) -> None:
    """What the ledger could not read may have changed: it is told when it is known again."""
    with serving(lambda _: Answer(body="", status=204)) as server:
        desk = Desk(tmp_path, hook(server))
        desk.states = (a_budget((0.5, "actual")), a_budget((0.8, "actual"), doubt="the ledger could not be asked"))
        desk.job().tick()
        silent = len(server.asked)
        desk.states = (a_budget((0.8, "actual")),)
        desk.job().tick()

    assert (silent, heard(server)) == (0, [[(0.8, "actual")]])


def test_a_budget_of_an_owner_is_mailed_to_the_owner_with_a_copy(tmp_path: Path) -> None:
    """Where the receiver mails owners; the others get it at their addresses."""
    with post() as (mail, mails):
        boss = Receiver(mail=replace(mail, to=("boss@example.com",)), owners=True)
        notify = NotifySettings(receivers={"owners": boss}, owners={"ann": OwnerSettings(mail="ann@example.com")})
        desk = Desk(tmp_path, notify, owner="ann")
        desk.states = (a_budget((1.0, "forecast"), scope=Scope(owner="ann")),)
        desk.job().tick()
        (message,) = mails.messages

    assert (message["To"], message["Cc"]) == ("ann@example.com", "boss@example.com")
    assert message["Subject"] == "gpuwatch: budget ml forecast past 100 %: $5,610.50 of $5,000.00"
    assert "ml: owner ann" in text_of(message)


def test_the_audit_log_says_who_was_told_of_which_threshold(tmp_path: Path) -> None:
    """In words, without a node."""
    with serving(lambda _: Answer(body="", status=204)) as server:
        desk = Desk(tmp_path, hook(server))
        desk.states = (a_budget((0.8, "actual")),)
        desk.job().tick()
        ledger = Ledger.connect(desk.ledger)
        (record,) = ledger.trail.traces(Asked(whats=("message",), limit=10))
        sound = ledger.audit().broken
        ledger.close()

    assert record.why == "budget ml: 80 % of $5,000.00 actual in 2026-03 sent to hook"
    assert (record.node_id, sound) == (None, None)


def test_alertmanager_gets_one_alert_of_an_hour_with_the_budgets_name() -> None:
    """Routes choose by `budget` and `severity`; it resolves by itself."""
    message = BudgetMessage(
        state=a_budget((0.8, "actual"), scope=Scope(owner="ann")),
        crossings=(Crossing(ratio=0.8, on="actual", at=NOW),),
        fleet="lab",
        made_at=NOW,
        zone=ZoneInfo("UTC"),
    )
    (alert,) = alerts_of(message.document("k"), message.parts(), NOW, ())

    assert alert["labels"] == {
        "alertname": "GpuwatchBudget",
        "severity": "warning",
        "kind": "budget",
        "fleet": "lab",
        "owner": "ann",
        "budget": "ml",
    }
    assert datetime.fromisoformat(alert["endsAt"]) == NOW + timedelta(hours=1)


def test_a_message_says_what_is_known_and_nothing_else() -> None:
    """Spent, forecast with its interval, when all is spent, what is in force, what has no price."""
    state = a_budget(
        (0.8, "actual"),
        (1.0, "forecast"),
        usd_per_hour=Decimal("6.5"),
        lower_usd=Decimal(5100),
        upper_usd=Decimal(6000),
        reaches_at=datetime(2026, 3, 26, tzinfo=UTC),
        blocked="so it is",
        unpriced_hours=3.0,
        present_rate_usd=Decimal(4800),
        change="2 machines fewer in pool ml since Tuesday",
    )
    message = BudgetMessage(state=state, crossings=state.crossings, fleet="lab", made_at=NOW, zone=ZoneInfo("UTC"))
    bare = replace(message, state=replace(state, forecast_usd=None, unpriced_hours=0.0, reaches_at=None, blocked=None))

    for line in (
        "Spent: at least $4,012.34 of $5,000.00 (80.2 %) in 2026-03",
        "Now: $6.50 an hour",
        "As usual: $5,610.50 (112.2 %) at the end of 2026-03, with 80 % between $5,100.00 and $6,000.00",
        "Present rate: $4,800.00 (96.0 %), if what runs now runs on",
        "Changed: 2 machines fewer in pool ml since Tuesday",
        "All spent: at the forecast's pace Thu 2026-03-26 00:00 UTC",
        "In force: no machine is added to it",
        "Not known: 3.0 machine-hours have no price",
        "Passed: 80 % spent; 100 % forecast as usual",
    ):
        assert line in message.text()
    assert "As usual:" not in bare.text()


def test_a_message_says_that_the_present_rate_crossed_and_not_the_usual_forecast() -> None:
    """Which of the two, in the title and in the first sentence."""
    state = a_budget((1.0, "rate"), spent="3000", forecast_usd=Decimal(4700), lasting_rate_usd=Decimal(5200))
    message = BudgetMessage(state=state, crossings=state.crossings, fleet="lab", made_at=NOW, zone=ZoneInfo("UTC"))

    assert message.title == "gpuwatch: budget ml at the present rate past 100 %: $5,200.00 of $5,000.00"
    assert "At the rate of the last three days 2026-03 ends at $5,200.00, which is past 100 %" in message.text()


@pytest.mark.parametrize(
    ("notify", "says"),
    [
        ({"receivers": {}}, "'ops' is not a receiver"),
        (
            {"receivers": {"ops": {"mail": {"host": "m"}, "owners": True}}, "mail_domains": ["example.com"]},
            "'ops' has no mail address for this budget",
        ),
    ],
)
def test_a_receiver_that_reaches_nobody_is_refused(tmp_path: Path, notify: object, says: str) -> None:
    """At the start, not at the first threshold."""
    text = yaml.safe_dump({"budgets": {"ml": {"notify": ["ops"]}}, "notify": notify})

    assert says in mistakes(tmp_path / "g.yaml", text)


def test_a_receiver_of_budgets_alone_needs_no_events(tmp_path: Path) -> None:
    """`events: []` is a mistake only where no budget names the receiver."""
    receiver = {"receivers": {"ops": {"webhook": {"url": "https://example.com"}, "events": []}}}

    read(tmp_path / "g.yaml", yaml.safe_dump({"budgets": {"ml": {"notify": ["ops"]}}, "notify": receiver}))
    assert "no budget names it" in mistakes(tmp_path / "g.yaml", yaml.safe_dump({"notify": receiver}))
