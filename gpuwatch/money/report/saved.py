"""What stops saved, out of the ledger: the report's figure for its period, and the page's for today and this month."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import partial
from zoneinfo import ZoneInfo

from gpuwatch.guard import Rulebook
from gpuwatch.ledger import Ledger
from gpuwatch.model.decision import Verb
from gpuwatch.model.money import usd_to_the_cent
from gpuwatch.model.usage import HOUR_MS, milliseconds
from gpuwatch.money.accounting.savings import (
    HABIT_MS,
    LONGEST_MS,
    Offs,
    Saved,
    Waits,
    offs,
    saves_at,
    savings_within,
)
from gpuwatch.money.report.history import ActionHistory
from gpuwatch.money.report.period import Period, period_of
from gpuwatch.policies.idle_timeout.break_even import UNMEASURED_SECONDS

_LOOK_BACK = timedelta(milliseconds=LONGEST_MS + HABIT_MS)  # what may still save, and the habits of then


@dataclass(frozen=True, slots=True, kw_only=True)
class Savings:
    """What stops saved in [since, until), in dollars to the cent; `unpriced_machine_hours` are not in it.

    `stops` had an effect in that time, `terminations` among them. A machine saves until it is needed, by its pool's
    habit or for 30 days at most; after that it is still off, and in no sum (`still_off_…`). `usd_waiting` is taken off,
    for people who waited for a machine that was stopped too soon (`regretted_stops`). Of `stops_without_a_known_end`
    nothing is counted, nor of `stops_not_proved_ours`, which somebody else may have made.
    """

    since: datetime
    until: datetime
    usd: Decimal
    machine_hours: float
    unpriced_machine_hours: float
    stops: int
    stops_without_a_known_end: int
    stops_not_proved_ours: int
    machine_hours_not_proved_ours: float
    terminations: int
    regretted_stops: int
    usd_waiting: Decimal
    still_off_machines: int
    still_off_machine_hours: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedByPool:
    """What stops and terminations save an hour now, and what they have saved this month, net of people's waits."""

    usd_per_hour: Mapping[str, Fraction]
    month_usd: Mapping[str, Fraction]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentSavings:
    """What stops saved today and this month, up to `at`, in days of `timezone`. Null: nothing is metered yet."""

    at: datetime
    timezone: str
    metered_since: datetime | None
    today: Savings
    month: Savings


def stops_of(
    history: ActionHistory, since: datetime, now: datetime, interval_seconds: float, standing: frozenset[str]
) -> Offs:
    """Every stop that may have saved money after `since`, with its end.

    Args:
        history: of the ledger.
        since: the begin of the period.
        now: what came after the period counts as well: it shows until when a machine was stopped.
        interval_seconds: from one round to the next.
        standing: keys of stops that hold until now, besides those in the ledger.

    """
    turns = history.turns(since - _LOOK_BACK, now)
    stops = {turn.node_id: turn.at for turn in reversed(turns) if turn.verb is Verb.STOP}
    ran = history.ran(stops.keys(), min(stops.values()) // 1000, milliseconds(now) // 1000) if stops else {}
    return offs(turns, ran, history.stops_in_force() | standing, int(interval_seconds * 500))


def savings_in(
    found: Offs,
    period: Period,
    now: datetime,
    rules: Rulebook | None,
    still_usd: Mapping[str, Decimal] | None = None,
) -> Saved:
    """What these stops saved in a period; `still_usd` is what each stopped machine costs an hour.

    Of people's waits the price is known by the pools' rules.
    """
    since, until = period.since * 1000, period.until * 1000
    return savings_within(found, since, until, milliseconds(now), still_usd, partial(waits_of, rules))


def waits_of(rules: Rulebook | None, pool: str) -> Waits:
    """What it costs a pool's people to wait for a machine; without rules, nothing is known about it."""
    if rules is None:
        return Waits()
    idle = rules.pool(pool).idle
    seconds = UNMEASURED_SECONDS if idle.restart_cost == "measured" else idle.restart_cost
    return Waits(restart_ms=int(seconds * 1000), usd_per_hour=idle.waiting_usd_per_hour)


def saved_by_pool(
    ledger: Ledger, zone: ZoneInfo, now: datetime, interval_seconds: float, rules: Rulebook | None
) -> SavedByPool:
    """What stops and terminations save now, and have saved this month.

    Raises:
        LedgerError: the ledger cannot be read.

    """
    month = period_of(zone, now)
    begin = datetime.fromtimestamp(month.since, UTC)
    found = stops_of(ActionHistory(ledger), begin, now, interval_seconds, frozenset())
    pools = savings_in(found, month, now, rules).by_pool
    return SavedByPool(
        usd_per_hour=saves_at(found, milliseconds(now)), month_usd={pool: each.usd for pool, each in pools.items()}
    )


def recent_savings(
    ledger: Ledger,
    zone: ZoneInfo,
    now: datetime,
    interval_seconds: float,
    standing: frozenset[str],
    began: int | None,
    rules: Rulebook,
) -> RecentSavings:
    """What stops saved today and this month; `began` is when metering began, in ms since 1970.

    Raises:
        LedgerError: the ledger cannot be read.

    """
    month = period_of(zone, now)
    today = period_of(zone, now, day=f"{now.astimezone(zone):%Y-%m-%d}")
    begin = datetime.fromtimestamp(month.since, UTC)
    found = stops_of(ActionHistory(ledger), begin, now, interval_seconds, standing)
    return RecentSavings(
        at=now,
        timezone=zone.key,
        metered_since=None if began is None else datetime.fromtimestamp(began // 1000, UTC),
        today=_savings(savings_in(found, today, now, rules), today),
        month=_savings(savings_in(found, month, now, rules), month),
    )


def _savings(found: Saved, period: Period) -> Savings:
    return Savings(
        since=datetime.fromtimestamp(period.since, UTC),
        until=datetime.fromtimestamp(period.until, UTC),
        usd=usd_to_the_cent(found.whole.usd),
        machine_hours=found.whole.ms / HOUR_MS,
        unpriced_machine_hours=found.whole.unpriced_ms / HOUR_MS,
        stops=found.stops,
        stops_without_a_known_end=found.endless,
        stops_not_proved_ours=found.unproved,
        machine_hours_not_proved_ours=found.unproved_ms / HOUR_MS,
        terminations=found.terminations,
        regretted_stops=found.regretted,
        usd_waiting=usd_to_the_cent(found.whole.waiting_usd),
        still_off_machines=found.still_off,
        still_off_machine_hours=found.whole.off_ms / HOUR_MS,
    )
