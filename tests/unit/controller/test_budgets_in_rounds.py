"""Budgets in live rounds: from the ledger, once an hour at most in full, told once, and never in a round's way."""

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families as parse

from gpuwatch.cli.controller import one_round
from gpuwatch.cli.main import commands
from gpuwatch.cli.parts import assemble_parts
from gpuwatch.controller.metrics import ControllerMetrics
from gpuwatch.controller.observe.settings import ObserveSettings
from gpuwatch.controller.round import ControllerContext, decide, step
from gpuwatch.controller.web.serve import Discovery, Observers
from gpuwatch.ledger import Ledger, LedgerSettings
from gpuwatch.model.activity import State
from gpuwatch.model.budget import BudgetState
from gpuwatch.model.decision import Verb
from gpuwatch.model.money import Price
from gpuwatch.money.accounting.metering import Metering
from gpuwatch.money.accounting.store import Meter, SpendBook
from gpuwatch.money.accounting.totals import Row, totals, whole
from gpuwatch.money.budgets import tracker
from gpuwatch.money.budgets.settings import Budget
from gpuwatch.money.budgets.tracker import Budgeting
from tests.support.builders.configurations import read
from tests.support.builders.fleet import NOW, Desk, a_node, an_observation
from tests.support.builders.money import a_busy_node, a_round
from tests.support.real.postgresql import postgresql

UTC_ZONE = ZoneInfo("UTC")
METERING = Metering(zone=UTC_ZONE)
PRICE = Price(usd_per_hour=Decimal(60), as_of=date(2026, 1, 19), source="a list")
TEN_DOLLARS = {"ml": Budget(usd_per_month=Decimal(10), block_growth="actual", shorten_idle_timeout="actual")}


def a_desk(ledger: Ledger | None = None) -> Desk:
    """One machine that works, at a dollar a minute."""
    desk = Desk(prices={"g6.xlarge": PRICE}, ledger=ledger or Ledger.in_memory())
    desk.fleet.put(a_node("i-1", State.BUSY, 60.0))
    return desk


def live(desk: Desk, budgets: Mapping[str, Budget] = TEN_DOLLARS, *, logs: bool = True) -> ControllerContext:
    """The parts of a controller with budgets, as it begins."""
    made = Budgeting(ledger=desk.ledger, budgets=budgets, zone=UTC_ZONE, logs_crossings=logs)
    return replace(desk.parts, meter=Meter(desk.ledger, METERING), budgets=made.states, with_billed=made.with_billed)


def rounds(desk: Desk, parts: ControllerContext, count: int, seen: Observers | None = None) -> BudgetState:
    """So many, a minute apart; gives the last one's first budget."""
    for _ in range(count):
        done = one_round(parts, seen)
        desk.rest(60.0)
    assert done is not None
    return done.observation.budgets[0]


def crossings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log says of thresholds."""
    return [each.message for each in caplog.records if each.name == tracker.__name__]


def test_what_a_round_shows_of_a_budget_is_what_the_ledger_has_then() -> None:
    """To the cent, in the figures and in the metrics, also where the hour turns: what the round has billed is in it."""
    desk = a_desk()
    parts = live(desk)
    metrics = ControllerMetrics("enforce", "test", desk.clock)
    seen = Observers(discovery=Discovery(signals=ObserveSettings()), metrics=metrics)
    for minutes in (1, 6, 58, 70):
        state = rounds(desk, parts, minutes, seen)
        rows = [row for row in SpendBook(desk.ledger).each(0, 2**40) if row[0].node_id == "i-1"]
        metered = sum(sum(amounts[:7]) for _, _, amounts in rows)

        assert state.spent_usd == Decimal(metered) / 60_000
        assert f'gpuwatch_budget_spent_usd{{budget="ml",fleet="test"}} {metered / 60_000}' in (
            metrics.page().body.decode()
        )


def test_what_an_outage_left_unbilled_is_counted_a_round_later() -> None:
    """Three hours without a controller: the machine ran, and the hours before the present one count."""
    desk = a_desk()
    parts = live(desk)
    rounds(desk, parts, 3)
    desk.rest(3 * 3600.0)
    state = rounds(desk, parts, 2)

    assert state.spent_usd == 184


@pytest.mark.parametrize("enforce", [True, False])
def test_each_threshold_is_logged_once_also_over_restarts(caplog: pytest.LogCaptureFixture, *, enforce: bool) -> None:
    """Half, four fifths and all of ten dollars, a restart after each; observing or not."""
    desk = a_desk()
    desk.enforce = enforce
    with caplog.at_level(logging.WARNING):
        for _ in range(4):
            rounds(desk, live(desk), 4)

    assert [each.split(",")[1] for each in crossings(caplog)] == [
        " past 50% of $10.00.",
        " past 80% of $10.00.",
        " past 100% of $10.00.",
    ]
    assert crossings(caplog)[0] == "Budget ml (everything): $5.00 are spent in 2026-03, past 50% of $10.00."


def test_a_plan_has_budgets_and_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """P5: it sees what the next round would."""
    desk = a_desk()
    rounds(desk, live(desk), 15)
    caplog.clear()
    done = step(live(desk, {"all": Budget(usd_per_month=Decimal(1))}, logs=False), act=False)

    assert done.observation.budgets[0].spent_usd == 14
    assert crossings(caplog) == []


def test_a_spent_budget_hastens_an_idle_machine_and_leaves_the_busy_one() -> None:
    """The idle one has its notice after ten minutes instead of thirty, and says why."""
    desk = a_desk()
    desk.fleet.put(a_node("i-2", State.IDLE, 0.0))
    parts = live(desk)
    rounds(desk, parts, 12)
    noticed = {each.node_id for each in desk.ledger.view(desk.clock.now()).notices}
    history = desk.ledger.history("i-2")

    past = desk.ledger.round(desk.ledger.rounds(limit=1)[0].id)
    assert past.rulebook is not None

    assert decide(past.observation, past.rulebook)[1] == past.decisions
    assert noticed == {"i-2"}
    assert "instead of 30m (the budget ml is spent at" in history[0].intent.reason.sentence
    assert desk.ledger.history("i-1") == ()
    assert history[0].intent.verb is Verb.NOTICE


def test_a_ledger_that_cannot_be_asked_makes_budgets_unknown_and_stops_no_round(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is hastened, the round goes on, and the next one knows again."""
    desk = a_desk()
    parts = live(desk)
    rounds(desk, parts, 12)
    with monkeypatch.context() as patch, caplog.at_level(logging.ERROR):
        patch.setattr(SpendBook, "billed_time", None)
        state = rounds(desk, parts, 1)

    assert state.doubt == "the ledger could not be asked, the log says why"
    assert (state.spent_usd, state.hastening, state.block_growth) == (None, None, "actual")
    assert [each.ratio for each in state.crossings if each.on == "actual"] == [0.5, 0.8, 1.0]
    assert rounds(desk, parts, 1).spent_usd == 13


def test_budgets_are_on_record_with_the_round_and_rounds_without_them_load() -> None:
    """What was blocked can be explained later; a body of an earlier gpuwatch has none."""
    desk = a_desk()
    rounds(desk, live(desk), 12)
    newest = desk.ledger.observation(desk.ledger.rounds(limit=1)[0].id)
    without = desk.ledger.record_round(an_observation(a_node("i-1")))

    assert newest.budgets[0].blocked == "$10.00 of the $10.00 of the budget ml are spent in 2026-03"
    assert [each.ratio for each in newest.budgets[0].crossings if each.on == "actual"] == [0.5, 0.8, 1.0]
    assert desk.ledger.observation(without).budgets == ()


def test_a_month_that_begins_starts_at_nothing_and_knows_the_one_before() -> None:
    """The first round of April."""
    desk = a_desk()
    parts = live(desk)
    desk.rest(29.5 * 86400.0 - 180.0)
    march = rounds(desk, parts, 3)
    april = [rounds(desk, parts, 1) for _ in range(70)]

    assert (march.month, march.spent_usd) == ("2026-03", Decimal(2))
    assert {each.month for each in april} == {"2026-04"}
    assert [each.spent_usd for each in april] == [*range(70)]


def test_most_rounds_ask_for_the_hour_under_way_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that was spent is asked for in the first two, the last days where an hour has become whole."""
    desk = a_desk()
    parts = live(desk)
    asked: list[int] = []
    billed = SpendBook.billed_time

    def watched(spend: SpendBook, since: int, until: int) -> object:
        asked.append((int(desk.clock.now().timestamp()) - since) // 3600)
        return billed(spend, since, until)

    monkeypatch.setattr(SpendBook, "billed_time", watched)
    rounds(desk, parts, 130)
    old = [hours for hours in asked if hours > 1]

    assert len(asked) == 130 + len(old)
    assert len([hours for hours in old if hours > 24 * 5]) == 2
    assert len(old) == 2 * 2 + 3


def test_metrics_tell_what_was_billed_and_each_budget() -> None:
    """Counters are of this process; a figure that nobody can tell has no series."""
    desk = a_desk()
    telling = ControllerMetrics("enforce", "ml", desk.clock)
    seen = Observers(discovery=Discovery(signals=ObserveSettings()), metrics=telling)
    rounds(desk, live(desk), 12, seen)
    document = {
        (
            sample.name,
            *sorted(value for label, value in sample.labels.items() if label != "fleet" and value),
        ): sample.value
        for family in parse(telling.page().body.decode())
        for sample in family.samples
    }
    billed = whole(totals(SpendBook(desk.ledger).rows(0, 2**40), lambda _: "all").values())

    assert document["gpuwatch_billed_usd_total", "default", "useful"] == float(billed.usd) == 11
    assert document["gpuwatch_billed_gpu_seconds_total", "default", "useful"] == 660
    assert document["gpuwatch_budget_usd", "ml"] == 10
    assert document["gpuwatch_budget_spent_usd", "ml"] == 11
    assert ("gpuwatch_budget_forecast_usd", "ml") not in document, "an hour on record is too early"
    assert document["gpuwatch_budget_unpriced_node_seconds", "ml"] == 0
    assert document["gpuwatch_budget_effect_info", "block_growth", "ml"] == 1
    assert ("gpuwatch_budget_overrun_probability_ratio", "ml") not in document
    assert ("gpuwatch_budget_forecast_lower_usd", "ml") not in document


def test_what_was_billed_is_counted_by_the_names_of_clouds() -> None:
    """A pool in two clouds has two series a use; without names there is no such label."""
    desk = a_desk()
    telling = ControllerMetrics("enforce", "ml", desk.clock)
    for cloud in ("bj", "us", ""):
        rules = Metering(zone=UTC_ZONE, providers={cloud: "aws"})
        meter = Meter(Ledger.in_memory(), rules)
        for minute in (0, 1):
            at = NOW + timedelta(minutes=minute)
            telling.count_billed(meter(a_round(at, replace(a_busy_node("i-1", at), cloud=cloud))))
    page = telling.page().body.decode()

    for label in ('cloud="bj",', 'cloud="us",', 'cloud="",'):
        assert f'gpuwatch_billed_gpu_seconds_total{{{label}fleet="ml",pool="default",use="useful"}} 120.0' in page


@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgresql", marks=pytest.mark.component("pg_ctl"))])
def test_both_databases_tell_what_gpuwatch_cost_tells_and_what_each_round_added(database: str) -> None:
    """Two machines of two prices over two hours; a round that bills nothing adds nothing."""
    settings = LedgerSettings(url=postgresql().database()) if database == "postgresql" else None
    ledger = Ledger.in_memory() if settings is None else Ledger.connect(settings)
    spend = SpendBook(ledger)
    assert ledger.lead()
    added: list[Row] = []
    for minutes in (0, 4, 8, 58, 62, 66, 66):
        now = NOW + timedelta(minutes=minutes)
        spend.meter(a_round(now, a_busy_node("i-1", now), usd="10" if minutes < 60 else "12"), METERING)
        added += spend.latest
    total = whole(totals(spend.rows(0, 2**40), lambda _: "all").values())
    billed = spend.billed_time(0, 2**40)
    ledger.close()

    assert sum(each.node_ms for each in billed) == total.node_ms > 0
    assert {each.begin for each in billed} == {int(NOW.timestamp()), int(NOW.timestamp()) + 3600}
    assert whole(totals(added, lambda _: "all").values()).amounts == total.amounts


@pytest.fixture
def configured(tmp_path: Path) -> Path:
    """A ledger of twelve rounds, and a configuration with two budgets over it."""
    path = tmp_path / "ledger.db"
    ledger = Ledger.open(path)
    assert ledger.lead()
    desk = a_desk(ledger)
    rounds(desk, live(desk), 12)
    ledger.close()
    file = tmp_path / "gpuwatch.yaml"
    file.write_text(
        f"ledger: {{path: {path}}}\nbudgets:\n"
        "  ml: {usd_per_month: 10, block_growth: actual, shorten_idle_timeout: forecast}\n  big: {owner: ann}\n"
    )
    return file


def test_the_command_says_what_is_spent_forecast_crossed_and_in_force(configured: Path) -> None:
    """From the ledger alone, as of the newest round, also of a budget that it did not have."""
    run = CliRunner().invoke(commands, ["budget", "--config", str(configured)])

    assert run.exit_code == 0, run.output
    assert "Budgets of 2026-03, as of the round of 2026-03-02 12:11 UTC." in run.output
    assert "past 50%" not in run.output
    assert "past 100% spent since the round of 2026-03-02 12:11 UTC" in run.output
    assert "in force: no machine is added to it" in run.output
    assert "in force: idle machines wait 10m at most" in run.output
    assert "big: owner ann" in run.output
    assert "that round is" in run.output


def test_the_commands_json_holds_money_as_texts(configured: Path) -> None:
    """Decimals, and null for what nobody can tell."""
    run = CliRunner().invoke(commands, ["budget", "--json", "--config", str(configured)])
    document = {each["name"]: each for each in json.loads(run.output)["budgets"]}

    assert document["ml"]["spent_usd"] == "11.00"
    assert document["ml"]["lower_usd"] is None
    assert document["big"]["spent_usd"] == "0.00"


@pytest.mark.parametrize("read_only", [True, False])
def test_a_controller_and_a_plan_have_the_budgets_of_the_settings(tmp_path: Path, *, read_only: bool) -> None:
    """By the clocks of cost.timezone; nothing is asked of any cloud for it."""
    text = f"ledger: {{path: {tmp_path / 'ledger.db'}}}\ncost: {{timezone: Asia/Tokyo}}\nbudgets: {{ml: {{}}}}\n"
    settings = read(tmp_path / "gpuwatch.yaml", f"{text}cloud: {{regions: [us-east-1]}}\n")
    with assemble_parts(settings, read_only=read_only) as parts:
        (state,) = parts.budgets(an_observation(now=NOW.replace(day=31, hour=20)))

    assert (state.name, state.month) == ("ml", "2026-04")


def test_without_a_budget_or_a_round_the_command_says_what_to_do(tmp_path: Path) -> None:
    """Exit status 2, and one sentence."""
    file = tmp_path / "gpuwatch.yaml"
    file.write_text(f"ledger: {{path: {tmp_path / 'ledger.db'}}}\n")
    none = CliRunner().invoke(commands, ["budget", "--config", str(file)])
    Ledger.open(tmp_path / "ledger.db").close()
    file.write_text(f"ledger: {{path: {tmp_path / 'ledger.db'}}}\nbudgets: {{ml: {{}}}}\n")
    empty = CliRunner().invoke(commands, ["budget", "--config", str(file)])

    assert (none.exit_code, empty.exit_code) == (2, 2)
    assert "No budget is configured" in none.output
    assert "No round is on record yet" in empty.output


def test_the_clock_of_the_place_says_when_a_month_begins() -> None:
    """It is April in Berlin while it is March in UTC."""
    desk = a_desk()
    budgets = Budgeting(ledger=desk.ledger, budgets=TEN_DOLLARS, zone=ZoneInfo("Europe/Berlin"))
    late = NOW.replace(month=3, day=31, hour=22, minute=30)

    assert budgets.states(an_observation(now=late))[0].month == "2026-04"
    assert budgets.states(an_observation(now=late - timedelta(hours=1)))[0].month == "2026-03"
