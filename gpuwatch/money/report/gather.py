"""Asks the ledger for all that a report is made of."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from gpuwatch.clouds import Leftover, LeftoverKind
from gpuwatch.ledger import Ledger, LedgerError, PastRound
from gpuwatch.model.decision import Verb
from gpuwatch.model.money import HOURS_A_MONTH
from gpuwatch.model.usage import milliseconds
from gpuwatch.money import unused
from gpuwatch.money.accounting.savings import Saved, offs, saved
from gpuwatch.money.accounting.settings import CostSettings
from gpuwatch.money.accounting.slices import Calendar
from gpuwatch.money.accounting.store import SpendBook
from gpuwatch.money.accounting.totals import Row
from gpuwatch.money.report.history import ActionHistory
from gpuwatch.money.report.inventory import inventory
from gpuwatch.money.report.report import LEAD_DAYS, Facts, Report, Rounds, Stretch, reported

_DAY = timedelta(days=1)
_HISTORY = timedelta(days=400)  # for the forecast
_NEWEST = 20  # deeds that are told in full
_OF_STOPPED = frozenset({LeftoverKind.STOPPED_VOLUME, LeftoverKind.STOPPED_ADDRESS})


def gathered(
    ledger: Ledger,
    stretch: Stretch,
    now: datetime,
    settings: CostSettings,
    interval_seconds: float,
    left: Sequence[Leftover] | None = None,
) -> Report:
    """The report. `left` is what the cloud told of stopped machines' disks; None: it was not asked.

    Raises:
        LedgerError: the ledger cannot be read.

    """
    now, since, until = now.astimezone(UTC), _utc(stretch.since), _utc(stretch.until)
    ends, silent = min(now, until), settings.metering(interval_seconds).silent_after_seconds
    spend, deeds = SpendBook(ledger), ActionHistory(ledger)
    began_ms = spend.began()
    began = None if began_ms is None else _utc(began_ms / 1000)
    earliest = min(stretch.before.since, int((until - _HISTORY).timestamp()), stretch.since - LEAD_DAYS * 86400)
    times = spend.rows(earliest, stretch.until, by_time=True)
    begins = max(since, began) if began is not None else since
    last = _last_round(ledger, since, ends)
    newest = _last_round(ledger, since, now) if now - until < _DAY else last
    rounds = deeds.rounds(begins, ends, silent) if began is not None and begins < ends else Rounds()
    return reported(
        Facts(
            stretch=stretch,
            now=now,
            nodes=spend.rows(stretch.since, stretch.until, by_node=True),
            times=times,
            began=began,
            cut=spend.cut(stretch.since, stretch.until),
            unseen=_unseen(deeds, times, began, min(until, now), stretch),
            tags=settings.tags,
            factors=settings.energy,
            rounds=rounds,
            saved=_saved(deeds, stretch, now, int(interval_seconds * 500), left, last),
            deeds=deeds.deeds(since, until, _NEWEST),
            inventory=None if newest is None else inventory(newest.observation, newest.decisions, newest.reviews),
            budgets=() if last is None else last.observation.budgets,
        )
    )


def _saved(
    deeds: ActionHistory,
    stretch: Stretch,
    now: datetime,
    slack: int,
    left: Sequence[Leftover] | None,
    last: PastRound | None,
) -> Saved:
    """What stops saved. What came after the stretch counts as well: it tells until when a machine stood."""
    turns = deeds.turns(_utc(stretch.since), now)
    stops = {turn.node_id: turn.at for turn in reversed(turns) if turn.verb is Verb.STOP}
    ran = deeds.ran(stops.keys(), min(stops.values()) // 1000, milliseconds(now) // 1000) if stops else {}
    stood = frozenset(stop.key for stop in last.observation.ledger.stopped) if last is not None else frozenset()
    return saved(
        offs(turns, ran, deeds.stopped() | stood, slack),
        stretch.since * 1000,
        stretch.until * 1000,
        milliseconds(now),
        None if left is None else _by_the_hour(left),
    )


def _by_the_hour(left: Sequence[Leftover]) -> dict[str, Decimal]:
    """What stopped machines' disks and addresses cost an hour, by node."""
    found: dict[str, Decimal] = {}
    for each in left:
        usd = unused.usd_per_month(each)
        if each.kind in _OF_STOPPED and each.node_id and usd is not None:
            found[each.node_id] = found.get(each.node_id, Decimal(0)) + usd / HOURS_A_MONTH
    return found


def _last_round(ledger: Ledger, since: datetime, ends: datetime) -> PastRound | None:
    """The newest round of the stretch; None: no round of it is still whole."""
    try:
        past = ledger.round_at(ends)
    except LedgerError:
        return None
    return past if past.at >= since else None


def _unseen(
    deeds: ActionHistory, times: Sequence[Row], began: datetime | None, ends: datetime, stretch: Stretch
) -> frozenset[date]:
    """Days without a row of which nobody knows whether that is because nothing ran."""
    if began is None:
        return frozenset()
    calendar = Calendar(stretch.zone)
    told = {calendar.local((row.begin or 0) * 1000).date() for row in times}
    day, last = max(began, ends - _HISTORY).astimezone(stretch.zone).date(), ends.astimezone(stretch.zone).date()
    found = set()
    while day < last:
        if day not in told:
            begin, end = (_utc(calendar.midnight(each)) for each in (day, day + _DAY))
            if not deeds.looked(begin, end):
                found.add(day)
        day += _DAY
    return frozenset(found)


def _utc(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
