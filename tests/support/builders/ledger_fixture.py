"""A fleet's fortnight in a ledger, for reports: two stops, a changed price, a night without rounds, an odd name."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cache
from zoneinfo import ZoneInfo

from gpuwatch import guard
from gpuwatch.clouds import Leftover
from gpuwatch.controller.round import decide
from gpuwatch.guard import Rulebook
from gpuwatch.ledger import Ledger
from gpuwatch.model.activity import State
from gpuwatch.model.budget import BudgetState, Scope
from gpuwatch.model.decision import Intent, Observation, Reason, Status, Verb
from gpuwatch.model.fleet import Fleet, Node, NodeReport, NodeState
from gpuwatch.model.health import Finding, GpuHealth, Health, Remedy
from gpuwatch.model.money import Price
from gpuwatch.model.stops import StopAnswer
from gpuwatch.money.accounting.settings import CostSettings
from gpuwatch.money.accounting.store import SpendBook
from gpuwatch.money.report.gather import gather_report
from gpuwatch.money.report.period import Period
from gpuwatch.money.report.report import Report
from tests.support.builders.fleet import RULES, a_node, a_verdict

BERLIN = ZoneInfo("Europe/Berlin")
DAY = date(2026, 3, 28)  # a Saturday; on the next day the clocks go forward
INTERVAL = 3600.0
KNOBS = CostSettings(timezone="Europe/Berlin", tags=("team",))
ODD = "dave <script>alert('x')</script> & sons"
_HOUR = timedelta(hours=1)
_OWNERS = {"train": "ann", "serve": "carol", "note": ODD, "odd": None}
_TEAMS = {"train": "nlp", "serve": "vision", "note": "nlp"}
_POOLS = {"train": "training", "serve": "serving", "note": "notebooks", "odd": "default"}
_RULEBOOK = Rulebook(pools=dict.fromkeys(("default", *_POOLS.values()), RULES))


@dataclass(slots=True)
class Fortnight:
    """Rounds an hour apart; what changes in between is said by the hour at which it does."""

    ledger: Ledger = field(default_factory=Ledger.in_memory)
    nodes: dict[str, Node] = field(default_factory=dict)
    states: dict[str, State] = field(default_factory=dict)
    usd: dict[str, str] = field(default_factory=lambda: {"p4d.24xlarge": "32.7726", "g6.xlarge": "0.8048"})
    ill: str | None = None
    round_id: int = 1

    def put(self, name: str, instance_type: str, gpus: int, state: State, launched: datetime) -> None:
        """A machine, by its name's kind."""
        kind = name.partition("-")[0]
        tags = {"team": _TEAMS[kind]} if kind in _TEAMS else {}
        node = a_node(f"i-{name}", name=name, pool=_POOLS[kind], owner=_OWNERS[kind], tags=tags, gpu_count=gpus)
        self.nodes[name] = replace(node, instance_type=instance_type, launched_at=launched)
        self.states[name] = state

    def round(self, now: datetime) -> None:
        """One round: seen, decided, metered."""
        nodes = tuple(self._seen(name, node, now) for name, node in self.nodes.items())
        prices = {
            kind: Price(usd_per_hour=Decimal(usd), as_of=date(2026, 3, 1), source="a list")
            for kind, usd in self.usd.items()
        }
        view = self.ledger.view(now)
        fleet = Fleet(observed_at=now, nodes=nodes)
        observation = Observation(now=now, fleet=fleet, ledger=view, prices=prices, budgets=(_budget(now),))
        proposals, decisions = decide(observation, _RULEBOOK)
        reviews = guard.review(observation, decisions, _RULEBOOK)
        self.round_id = self.ledger.record_round(observation, proposals, decisions, reviews, _RULEBOOK)
        SpendBook(self.ledger).meter(observation, KNOBS.metering(INTERVAL, {"": "aws"}))

    def done(self, verb: Verb, name: str, at: datetime, status: Status = Status.SETTLED) -> Intent:
        """An intent and its end, in the round of then."""
        node = self.nodes[name]
        reason = Reason(code="idle", sentence=f"{name} has been idle for 2h.")
        usd = self.usd.get(node.instance_type)
        intent = self.ledger.intend(
            verb,
            node.id,
            node.pool,
            at,
            reason,
            self.round_id,
            owner=node.owner,
            usd_per_hour=None if usd is None else Decimal(usd),
        )
        if verb is Verb.STOP and status is Status.SETTLED:
            self.ledger.settle(intent, Status.ACCEPTED, StopAnswer(ran=True).words, at)
        self.ledger.settle(intent, status, "the cloud shows it" if status is Status.SETTLED else "a person came", at)
        return intent

    def stop(self, name: str, at: datetime) -> None:
        """By gpuwatch."""
        self.done(Verb.STOP, name, at)
        self.nodes[name] = replace(self.nodes[name], state=NodeState.STOPPED)

    def start(self, name: str, at: datetime) -> None:
        """By a person."""
        self.nodes[name] = replace(self.nodes[name], state=NodeState.RUNNING, launched_at=at)

    def _seen(self, name: str, node: Node, now: datetime) -> Node:
        if node.state is not NodeState.RUNNING:
            return replace(node, signal=NodeReport(failure=f"it is {node.state.value}"))
        verdict = a_verdict(node.id, self.states[name], 90_000.0, gpus=node.known_gpus, age=0.0, at=now)
        if name == self.ill:
            wrong = Finding(
                code="ecc",
                health=Health.DEGRADED,
                sentence="3 rows wait to be remapped.",
                remedy=Remedy.RESET,
                source="NVML",
            )
            bad = GpuHealth(state=Health.DEGRADED, since=now - 3 * _HOUR, findings=(wrong,))
            well = GpuHealth(state=Health.HEALTHY, since=None)
            gpus = [replace(gpu, health=bad if number == 3 else well) for number, gpu in enumerate(verdict.gpus)]
            verdict = replace(verdict, gpus=tuple(gpus))
        return replace(node, signal=NodeReport(verdict=verdict))


def at(day: date, hour: int, minute: int = 0) -> datetime:
    """By the clocks of Berlin."""
    return datetime(day.year, day.month, day.day, hour, minute, tzinfo=BERLIN)


def a_fortnight(ledger: Ledger | None = None, until: datetime | None = None) -> Fortnight:
    """From the 14th of March to the morning after the 28th, which is the day that is told; or longer."""
    fortnight = Fortnight() if ledger is None else Fortnight(ledger=ledger)
    first = at(date(2026, 3, 14), 0)
    for number in (1, 2, 3, 4):
        fortnight.put(f"train-{number}", "p4d.24xlarge", 8, State.BUSY, first)
    for number in (1, 2, 3):
        fortnight.put(f"serve-{number}", "g6.xlarge", 1, State.BUSY, first)
    fortnight.put("note-1", "g6.xlarge", 1, State.IDLE, first)
    fortnight.put("odd-1", "unheard.of", 1, State.PARKED, at(date(2026, 3, 27), 12))
    fortnight.ill = "train-2"
    now = first.astimezone(UTC)
    while now <= (until or at(date(2026, 3, 29), 7)).astimezone(UTC):
        _happens(fortnight, now.astimezone(BERLIN))
        if not at(DAY, 1) < now < at(DAY, 6):
            fortnight.round(now)
        now += _HOUR
    return fortnight


@cache
def the_fortnight() -> Ledger:
    """The same for all tests that change nothing in it."""
    return a_fortnight().ledger


def _happens(fortnight: Fortnight, now: datetime) -> None:
    """What changes right before a round."""
    day, hour = now.date(), now.hour
    fortnight.states["train-1"] = State.BUSY if 8 <= hour < 20 else State.IDLE
    if (day, hour) == (date(2026, 3, 27), 18):
        fortnight.states["train-4"] = State.IDLE
        fortnight.stop("train-4", now)
    if (day, hour) == (DAY, 12):
        fortnight.done(Verb.NOTICE, "note-1", now)
        fortnight.done(Verb.STOP, "note-1", now, Status.CANCELLED)
    if (day, hour) == (DAY, 14):
        fortnight.stop("train-3", now)
        fortnight.ledger.pause("serving", "carol@host", "a launch", now, now + 2 * _HOUR)
    if (day, hour) == (DAY, 20):
        fortnight.start("train-3", now)
    if (day, hour) == (DAY, 16):
        fortnight.usd["g6.xlarge"] = "0.9000"


def a_report(
    ledger: Ledger,
    day: date = DAY,
    days: int = 1,
    now: datetime | None = None,
    left: Sequence[Leftover] | None = None,
) -> Report:
    """On a day, or several; told on the morning after the 28th unless said otherwise, with what the cloud shows."""
    period = Period(zone=BERLIN, first=day, after=day + timedelta(days=days))
    return gather_report(ledger, period, now or at(date(2026, 3, 29), 7), KNOBS, INTERVAL, left)


def _budget(now: datetime) -> BudgetState:
    return BudgetState(
        name="everything",
        scope=Scope(),
        usd_per_month=Decimal(60000),
        month=f"{now:%Y-%m}",
        ends_at=at(date(2026, 4, 1), 0),
        spent_usd=Decimal("41234.50"),
        forecast_usd=Decimal("63000.25"),
        present_rate_usd=Decimal("61200.75"),
        probability_over=0.81,
        method="7-day mean",
        reaches_at=at(date(2026, 3, 30), 4),
    )
