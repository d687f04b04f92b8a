"""Machines and prices in, dollars out: sums that a reader of docs/money.md does by hand."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest

from gpuwatch.ledger import Ledger
from gpuwatch.model.activity import State
from gpuwatch.model.currency import Currency, show_in
from gpuwatch.model.decision import Verb
from gpuwatch.model.fleet import Node, NodeReport, NodeState
from gpuwatch.model.money import Price, avoidable_usd, format_usd
from gpuwatch.model.usage import HOUR_MS
from gpuwatch.money.accounting.metering import Metering
from gpuwatch.money.accounting.savings import Ran, Turn, Waits, offs, savings_within
from gpuwatch.money.accounting.scope import count_in
from gpuwatch.money.accounting.settings import CostSettings, EnergySettings
from gpuwatch.money.accounting.store import SpendBook
from gpuwatch.money.bill.parse import charges
from gpuwatch.money.bill.rates import effective_rates
from gpuwatch.money.report.cost import cost_document, cost_report
from gpuwatch.money.report.period import period_of
from gpuwatch.runtime.json_document import read_json
from tests.support.builders.bills import cur_line
from tests.support.builders.budgeted_months import a_month, hours
from tests.support.builders.budgeted_months import a_state as budget_state
from tests.support.builders.fleet import a_node, a_verdict, an_observation
from tests.support.builders.kubernetes_views import shown_cluster, shown_node, shown_pod
from tests.support.builders.money import a_round

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
BUSY, IDLE, PARKED, STALLED, UNKNOWN = State.BUSY, State.IDLE, State.PARKED, State.STALLED, State.UNKNOWN
Story = Callable[[int], Sequence[Node] | None]


def doing(*states: State, node_id: str = "i-1", **other: object) -> Node:
    """A machine with a GPU in each of these states, for long."""
    verdict = a_verdict(node_id, states[0], 90_000.0, gpus=len(states), age=0.0)
    gpus = tuple(
        replace(a_verdict(node_id, state, 90_000.0, gpus=len(states)).gpus[index], index=index)
        for index, state in enumerate(states)
    )
    node = a_node(node_id, gpu_count=len(states), signal=NodeReport(verdict=replace(verdict, gpus=gpus)))
    return replace(node, **other)  # type: ignore[arg-type]  # fields of a node


def told_at(node: Node, at: datetime) -> Node:
    """Its agent answers now."""
    verdict = node.signal.verdict
    return node if verdict is None else replace(node, signal=NodeReport(verdict=replace(verdict, at=at)))


class Fleet:
    """A fleet that is metered each minute, and what `gpuwatch cost --json` then says."""

    def __init__(self, *, zone: str = "UTC", began: datetime = NOON, usd: Mapping[str, str] | None = None) -> None:
        """Prices an hour by type; $10 for any other."""
        self.zone, self.began, self.usd = ZoneInfo(zone), began, usd
        self.ledger = Ledger.in_memory()
        self.book = SpendBook(self.ledger)
        self.ask: Callable[[Node, datetime], Price | None] = self._list

    def _list(self, node: Node, at: datetime) -> Price | None:
        usd = "10" if self.usd is None else self.usd.get(node.instance_type)
        return None if usd is None else Price(usd_per_hour=Decimal(usd), as_of=at.date(), source="a list")

    def runs(self, minutes: int, story: Story, every: int = 1) -> "Fleet":
        """Rounds from minute 0 to the last; None: no controller in that minute."""
        for minute in range(0, minutes + 1, every):
            nodes = story(minute)
            if nodes is None:
                continue
            at = self.began + timedelta(minutes=minute)
            asked = {node.instance_type: self.ask(node, at) for node in nodes}
            prices = {kind: price for kind, price in asked.items() if price is not None}
            seen = an_observation(*(told_at(node, at) for node in nodes), now=at)
            rules = Metering(zone=self.zone, tags=("team",), silent_after_seconds=max(300.0, 180.0 * every))
            self.book.meter(replace(seen, prices=prices), rules)
        return self

    def cost(self, by: str = "pool", day: str = "2026-03-02") -> dict[str, object]:
        """The document of that day."""
        period = period_of(self.zone, self.began + timedelta(days=40), day=day)
        return _plain(cost_document(cost_report(self.book, period, by), EnergySettings()))

    def total(self, **other: str) -> dict[str, object]:
        """Its total."""
        return self.cost(**other)["total"]  # type: ignore[return-value]

    def by(self, slicing: str, key: str = "usd") -> dict[str, object]:
        """One figure of each group."""
        return {each["name"]: each[key] for each in self.cost(by=slicing)["groups"]}  # type: ignore[attr-defined]


def _plain(value: object) -> dict[str, Any]:
    return msgspec.to_builtins(value)  # type: ignore[no-any-return]  # a document


def usd(total: dict[str, object]) -> tuple[object, ...]:
    """Cost, proven waste, what nobody knows."""
    return tuple(
        None if total[key] is None else Decimal(str(total[key])) for key in ("usd", "usd_wasted", "usd_unproven")
    )


def of(*sums: str) -> tuple[Decimal, ...]:
    """The sums."""
    return tuple(map(Decimal, sums))


@pytest.mark.parametrize(
    ("states", "minutes", "price", "expected"),
    [
        ((BUSY,), 180, "10", of("30.00", "0.00", "0.00")),
        ((IDLE,), 90, "10", of("15.00", "15.00", "0.00")),
        ((BUSY, *[IDLE] * 7), 120, "32", of("64.00", "56.00", "0.00")),
        ((BUSY, IDLE, PARKED, UNKNOWN), 60, "8", of("8.00", "4.00", "2.00")),
        ((PARKED, STALLED), 60, "6", of("6.00", "6.00", "0.00")),
        ((BUSY, BUSY, IDLE), 60, "10", of("10.00", "3.33", "0.00")),
        ((BUSY, UNKNOWN), 20, "0.01", of("0.00", "0.00", "0.00")),
        ((UNKNOWN,) * 8, 60, "98.32", of("98.32", "0.00", "98.32")),
        ((BUSY,), 7, "21.957642", of("2.56", "0.00", "0.00")),  # 0.116667 h x 21.957642 = 2.561725
    ],
)
def test_each_gpu_has_its_part_of_the_price(
    states: tuple[State, ...], minutes: int, price: str, expected: tuple[Decimal, ...]
) -> None:
    """The price of the machine by the share of its GPUs in each state, by the minutes."""
    fleet = Fleet(usd={"g6.xlarge": price}).runs(minutes, lambda _: [doing(*states)])

    assert usd(fleet.total()) == expected


def test_a_machine_without_an_agent_is_unproven_and_no_waste() -> None:
    """Three hours at $5: $15.00, of which nobody knows anything."""
    silent = a_node("i-1", signal=NodeReport(failure="no agent"))
    fleet = Fleet(usd={"g6.xlarge": "5"}).runs(180, lambda _: [silent])

    assert usd(fleet.total()) == of("15.00", "0.00", "15.00")


def test_a_machine_that_runs_through_two_hours_without_a_controller_is_billed_for_them() -> None:
    """Busy for an hour, nobody looks for two, busy for an hour: $40.00, of which $20.00 are unproven."""
    fleet = Fleet().runs(240, lambda m: None if 60 < m < 180 else [doing(BUSY)])

    assert usd(fleet.total()) == of("40.00", "0.00", "20.00")


def test_a_machine_that_is_stopped_when_the_controller_comes_back_is_billed_until_it_was_last_seen() -> None:
    """Busy for an hour, nobody looks for two, then it is stopped: $10.00."""
    stopped = replace(doing(BUSY), state=NodeState.STOPPED, signal=NodeReport())
    fleet = Fleet().runs(240, lambda m: None if 60 < m < 180 else [doing(BUSY) if m <= 60 else stopped])

    assert usd(fleet.total()) == of("10.00", "0.00", "0.00")


def test_a_stop_between_two_rounds_counts_at_half_of_the_interval() -> None:
    """$60 an hour, seen for the last time after 30 minutes and stopped at 31: 30.5 minutes, $30.50."""
    stopped = replace(doing(BUSY), state=NodeState.STOPPED, signal=NodeReport())
    fleet = Fleet(usd={"g6.xlarge": "60"}).runs(60, lambda m: [doing(BUSY) if m <= 30 else stopped])

    assert fleet.total()["usd"] == "30.50"


def test_a_machine_that_is_launched_is_billed_from_its_launch() -> None:
    """Seen first at minute 30, launched 20 seconds before: $60 an hour for 30 minutes and 20 seconds is $30.33."""
    node = doing(BUSY, launched_at=NOON + timedelta(minutes=29, seconds=40))
    fleet = Fleet(usd={"g6.xlarge": "60"}).runs(60, lambda m: [node] if m >= 30 else [])

    assert fleet.total()["usd"] == "30.33"


def test_a_machine_of_another_fleet_stands_apart_unless_the_account_is_asked_for() -> None:
    """$10.00 are ours, $20.00 are not; with `cost.scope: account` all $30.00 are."""
    ours = doing(BUSY, node_id="i-ours")
    theirs = doing(IDLE, node_id="i-theirs", instance_type="p4d.24xlarge", enrolled=False)
    fleet = Fleet(usd={"g6.xlarge": "10", "p4d.24xlarge": "20"}).runs(60, lambda _: [ours, theirs])
    total = fleet.total()
    assert (usd(total), total["usd_foreign"]) == (of("10.00", "0.00", "0.00"), "20.00")
    count_in("account")
    assert usd(fleet.total()) == of("30.00", "20.00", "0.00")


def test_a_machine_counts_for_the_hours_in_which_it_was_enrolled() -> None:
    """Enrolled after an hour of two, at $10: $10.00 are ours, and $10.00 are not."""
    fleet = Fleet().runs(120, lambda m: [doing(BUSY, enrolled=m > 60)])
    total = fleet.total()

    assert abs(Decimal(str(total["usd"])) - 10) <= Decimal("0.17")  # the minute in which it was enrolled is either's
    assert Decimal(str(total["usd"])) + Decimal(str(total["usd_foreign"])) == 20


def test_hours_without_a_price_are_in_no_sum_and_told() -> None:
    """Three hours at $10 and three without a price: $30.00 and three hours."""
    nodes = [doing(BUSY, node_id="i-1"), doing(IDLE, node_id="i-2", instance_type="unheard.of")]
    total = Fleet(usd={"g6.xlarge": "10"}).runs(180, lambda _: nodes).total()

    assert usd(total) == of("30.00", "0.00", "0.00")
    assert (total["unpriced_machine_hours"], total["machine_hours"]) == (3.0, 6.0)


def test_a_sum_without_any_price_is_not_known() -> None:
    """Null, and no zero."""
    total = Fleet(usd={}).runs(60, lambda _: [doing(IDLE)]).total()

    assert usd(total) == (None, None, None)
    assert (total["unpriced_machine_hours"], total["waste_ratio"]) == (1.0, 1.0)


def test_each_row_keeps_the_price_of_its_time() -> None:
    """Two hours at $10, two at $20: $60.00."""
    fleet = Fleet()
    fleet.ask = lambda _, at: Price(
        usd_per_hour=Decimal(10 if at < NOON + timedelta(hours=2) else 20), as_of=at.date(), source="a list"
    )
    total = fleet.runs(240, lambda _: [doing(BUSY)]).total()

    assert abs(Decimal(str(total["usd"])) - 60) <= Decimal("0.17")  # the minute in which it changes is either's


def test_groups_add_up_and_are_of_their_own_machines() -> None:
    """Ann's GPU works for $10, Bob's idles for $20, nobody's is parked for $5, for two hours."""
    types = {"g6.xlarge": "10", "p4d.24xlarge": "20", "g4dn.xlarge": "5"}
    nodes = [
        doing(BUSY, node_id="i-1", owner="ann", pool="a"),
        doing(IDLE, node_id="i-2", owner="bob", pool="a", instance_type="p4d.24xlarge"),
        doing(PARKED, node_id="i-3", pool="b", instance_type="g4dn.xlarge"),
    ]
    fleet = Fleet(usd=types).runs(120, lambda _: nodes)

    assert usd(fleet.total()) == of("70.00", "50.00", "0.00")
    assert {name: str(each) for name, each in fleet.by("pool").items()} == {"a": "60.00", "b": "10.00"}
    assert sorted(map(str, fleet.by("owner").values())) == ["10.00", "20.00", "40.00"]
    assert {name: str(each) for name, each in fleet.by("pool", "usd_wasted").items()} == {"a": "40.00", "b": "10.00"}


@pytest.mark.parametrize(
    ("day", "expected"), [("2026-03-29", "230.00"), ("2026-10-25", "250.00"), ("2026-06-01", "240.00")]
)
def test_a_day_with_a_clock_change_has_23_or_25_hours(day: str, expected: str) -> None:
    """$10 an hour for all of that day in Berlin."""
    began = datetime.fromisoformat(f"{day}T00:00:00+00:00") - timedelta(hours=3)
    fleet = Fleet(zone="Europe/Berlin", began=began).runs(31 * 60, lambda _: [doing(BUSY)], every=60)

    assert fleet.total(day=day)["usd"] == expected


def test_a_stopped_machine_that_its_cloud_still_bills_is_waste() -> None:
    """Stopped, not deallocated: two hours at $10 for nothing, by the cloud's own word."""
    held = replace(doing(IDLE), state=NodeState.STOPPED, still_billed="it is not deallocated", signal=NodeReport())
    total = Fleet().runs(120, lambda _: [held]).total()

    assert usd(total) == of("20.00", "20.00", "0.00")


def test_a_machine_that_is_busy_and_then_stopped_without_an_end_of_its_bill_wastes_the_time_after() -> None:
    """An hour of work and an hour off at $60, the minute between them half and half, then deallocated and free."""
    held = replace(doing(BUSY), state=NodeState.STOPPED, still_billed="it is not deallocated", signal=NodeReport())
    free = replace(held, still_billed=None)
    fleet = Fleet(usd={"g6.xlarge": "60"})
    fleet.runs(240, lambda m: [doing(BUSY) if m <= 60 else held if m <= 120 else free])

    assert usd(fleet.total()) == of("120.50", "59.50", "0.50")


def a_turn(verb: Verb, hour: float, usd: str = "10") -> Turn:
    """One of i-1, at an hour."""
    price, at = Decimal(usd), round(hour * HOUR_MS)
    return Turn(key=f"{at}", node_id="i-1", verb=verb, at=at, pool="a", owner=None, usd_per_hour=price)


def test_a_cluster_is_divided_among_the_pods_that_request_its_gpus(tmp_path: Path) -> None:
    """Eight GPUs at $32 an hour for two: four are a's throughout, two are b's in the second hour."""
    ledger = Ledger.open(tmp_path / "ledger.db")
    book, rules = SpendBook(ledger), CostSettings().metering(60)
    for minute in range(121):
        at = NOON + timedelta(minutes=minute)
        pods = [shown_pod("train-0", "gpu-1", gpus=4.0, namespace="a")]
        if minute >= 60:
            pods.append(shown_pod("serve-0", "gpu-1", gpus=2.0, namespace="b", created_at=NOON + timedelta(hours=1)))
        known = shown_node("gpu-1", "i-1", *pods, gpus=8.0)
        node = told_at(doing(*[BUSY] * 8, kubernetes=known), at)
        seen = a_round(at, node, usd="32")
        book.meter(replace(seen, fleet=replace(seen.fleet, cluster=shown_cluster(known))), rules)
    period = period_of(ZoneInfo("UTC"), NOON + timedelta(days=3), day="2026-03-02")
    document = _plain(cost_document(cost_report(book, period, "namespace"), EnergySettings()))

    assert document["total"]["usd"] == "64.00"
    assert {each["name"]: each["usd"] for each in document["groups"]} == {
        "a": "32.00",
        "b": "8.00",
        "(unallocated)": "24.00",
    }


def test_hosts_and_the_building_draw_power_that_is_in_no_other_sum() -> None:
    """800 W for ten hours is 8 kWh, with a PUE of 1.3 10.4 kWh: $1.25 at 12 cents, and 4.16 kg at 400 g."""
    fleet = Fleet().runs(600, lambda _: [doing(BUSY)], every=60)
    period = period_of(fleet.zone, fleet.began + timedelta(days=40), day="2026-03-02")
    power = EnergySettings(host_watts=800, pue=1.3, co2e_grams_per_kwh=400, usd_per_kwh=Decimal("0.12"))
    total = _plain(cost_document(cost_report(fleet.book, period, "pool"), power))["total"]

    assert total["usd"] == "100.00"
    assert (total["energy"]["host_kwh"], total["energy"]["facility_kwh"]) == (8.0, pytest.approx(10.4))
    assert (total["energy"]["usd"], total["energy"]["co2e_kg"]) == ("1.25", pytest.approx(4.16))


def test_a_budget_at_the_present_rate_is_what_is_spent_and_what_runs_until_the_month_ends() -> None:
    """$10 an hour until the 11th of March: $2,400.00; 504 hours are left, two machines run: $12,480.00."""
    found = budget_state(hours("2026-02-01T00:00", "2026-03-11T00:00"), a_month("2026-03-11T00:00"), machines=2)

    assert (found.spent_usd, found.present_rate_usd) == (Decimal(2400), Decimal(12480))


def test_an_effective_rate_is_what_all_hours_of_a_type_cost_and_a_stop_saves_what_no_plan_covers() -> None:
    """Ten hours at a plan's $6 and ten at $10: $8 an hour, 37.5 % of it committed, so that a stop saves $5."""
    plan = {"LineItemType": "SavingsPlanCoveredUsage", "savingsPlan/SavingsPlanEffectiveCost": "6"}
    lines = [cur_line("i-1", hour, **plan, UnblendedCost="10") for hour in range(10)]
    lines += [cur_line("i-2", hour, UnblendedCost="10") for hour in range(10)]
    header = list(dict.fromkeys(name for line in lines for name in line))
    rows = [{name: str(value) for name, value in line.items()} for line in lines]
    [rate] = effective_rates(charges(header, rows, lambda at: at.date(), None, read_json), {}).rates

    assert (rate.per_hour, rate.hours, rate.committed_ratio) == of("8", "20", "0.375")
    assert avoidable_usd(rate.per_hour, rate.source) == 5
    assert rate.until == date(2026, 5, 1)


def test_a_price_with_many_digits_is_rounded_once() -> None:
    """Two machines for 50 minutes: 2 x 21.957642 x 5 / 6 = $36.596, a quarter of it idle, half of it not known."""
    nodes = [doing(BUSY, IDLE, node_id="i-1"), doing(UNKNOWN, node_id="i-2")]
    fleet = Fleet(usd={"g6.xlarge": "21.957642"}).runs(50, lambda _: nodes)

    assert usd(fleet.total()) == of("36.60", "9.15", "18.30")


@pytest.mark.parametrize(("hours_later", "saved"), [(48, "480"), (24 * 30, "7200"), (24 * 40, "7200")])
def test_a_machine_that_nobody_needs_saves_for_thirty_days_at_most(hours_later: int, saved: str) -> None:
    """$10 an hour from the stop on."""
    stop = a_turn(Verb.STOP, 0)
    found = offs([stop], {}, frozenset({stop.key}), 0)

    assert savings_within(found, 0, 10**15, hours_later * HOUR_MS).whole.usd == Decimal(saved)


def test_a_start_by_somebody_else_ends_a_saving_at_its_latest_moment() -> None:
    """Stopped at 12:00; of the hour from 18:00 40 minutes were billed: 6 h 20 min at $10 are $63.33."""
    stop = a_turn(Verb.STOP, 12)
    ran = Ran(begin=18 * HOUR_MS, end=19 * HOUR_MS, billed=HOUR_MS * 2 // 3)
    found = offs([stop], {"i-1": [ran]}, frozenset(), 0)

    assert savings_within(found, 0, 10**15, 30 * HOUR_MS).whole.usd == Fraction(190, 3)


def test_a_stop_that_somebody_regrets_costs_more_than_it_saves() -> None:
    """$60 an hour, needed after ten minutes: $10.00 less ten minutes of somebody's time at $120 an hour: $-10.00."""
    turns = [a_turn(Verb.STOP, 0, usd="60"), a_turn(Verb.START, 1 / 6, usd="60")]
    found = offs(turns, {}, frozenset(), 0)
    people = Waits(restart_ms=HOUR_MS // 6, usd_per_hour=Decimal(120))

    assert savings_within(found, 0, 10**15, HOUR_MS, None, lambda _: people).whole.usd == -10


def test_the_habit_of_a_pool_limits_what_a_stop_saves() -> None:
    """Five returns after 8, 9, 10, 11 and 12 hours: a machine that nobody needs saves ten hours at $10."""
    turns = []
    for number, hours_off in enumerate((8, 9, 10, 11, 12)):
        turns += [a_turn(Verb.STOP, 24 * number), a_turn(Verb.START, 24 * number + hours_off)]
    last = a_turn(Verb.STOP, 240)
    found = offs([*turns, last], {}, frozenset({last.key}), 0)

    assert savings_within(found, 240 * HOUR_MS, 10**15, 500 * HOUR_MS).whole.usd == 100


def test_a_termination_saves_until_its_pool_launches_the_next_machine() -> None:
    """Terminated at 12:00, launched at 15:00, $10 an hour: $30."""
    turns = [a_turn(Verb.TERMINATE, 12), replace(a_turn(Verb.LAUNCH, 15), node_id="")]

    assert savings_within(offs(turns, {}, frozenset(), 0), 0, 10**15, 40 * HOUR_MS).whole.usd == 30


def test_money_in_another_currency_is_converted_once() -> None:
    """$42,011.84 at 0.138 dollars for a yuan are ¥304,433.62."""
    show_in(Currency(code="CNY", usd=Decimal("0.138")))

    assert format_usd(Fraction("42011.84")) == "¥304,433.62"
