"""Asks the ledger for all that a report is made of."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

from gpuwatch.clouds import Leftover, LeftoverKind
from gpuwatch.ledger import Ledger, LedgerError, PastRound
from gpuwatch.model.fleet import Node
from gpuwatch.model.money import HOURS_A_MONTH
from gpuwatch.money import unused
from gpuwatch.money.accounting.savings import Saved
from gpuwatch.money.accounting.settings import CostSettings
from gpuwatch.money.accounting.slices import Calendar
from gpuwatch.money.accounting.store import SpendBook
from gpuwatch.money.accounting.totals import Row
from gpuwatch.money.blocked.blocked import Blocked, blocked_money
from gpuwatch.money.report.anomalies import Anomaly, find_anomalies
from gpuwatch.money.report.health_share import health_share
from gpuwatch.money.report.history import ActionHistory
from gpuwatch.money.report.inventory import inventory
from gpuwatch.money.report.period import Period
from gpuwatch.money.report.progress import ComparedEnds, Event, Progress, compare_ends, ends_of, progress
from gpuwatch.money.report.report import LEAD_DAYS, Facts, Report, Rounds, make_report
from gpuwatch.money.report.saved import savings_in, stops_of
from gpuwatch.policies import PoolRules

_DAY = timedelta(days=1)
_HISTORY = timedelta(days=400)  # for the forecast
_RULE_WEEKS = 13  # whose rounds are looked at for other rules: each is read whole
_ROUGH_SECONDS = 300.0  # between two rounds, where days are what counts
_MOST_LOOKS = 24  # at the health of a period
_NEWEST = 20  # actions that are listed in full
_OF_STOPPED = frozenset({LeftoverKind.STOPPED_VOLUME, LeftoverKind.STOPPED_ADDRESS})


def gather_report(
    ledger: Ledger,
    period: Period,
    now: datetime,
    settings: CostSettings,
    interval_seconds: float,
    left: Sequence[Leftover] | None = None,
) -> Report:
    """The report. `left` is what is left over, and disks in use; None: the cloud was not asked.

    Raises:
        LedgerError: the ledger cannot be read.

    """
    now, since, until = now.astimezone(UTC), _utc(period.since), _utc(period.until)
    ends, silent = min(now, until), settings.metering(interval_seconds).silent_after_seconds
    spend, history = SpendBook(ledger), ActionHistory(ledger)
    began_ms = spend.began()
    began = None if began_ms is None else _utc(began_ms / 1000)
    earliest = min(period.before.since, int((until - _HISTORY).timestamp()), period.since - LEAD_DAYS * 86400)
    times = spend.rows(earliest, period.until, by_time=True)
    begins = max(since, began) if began is not None else since
    last = _last_round(ledger, since, ends)
    newest = _last_round(ledger, since, now) if now - until < _DAY else last
    rounds = history.rounds(begins, ends, silent) if began is not None and begins < ends else Rounds()
    return make_report(
        Facts(
            period=period,
            now=now,
            nodes=spend.rows(period.since, period.until, by_node=True),
            times=times,
            held=spend.rows_by_holder(period.since, period.until),
            began=began,
            cut=spend.cut(period.since, period.until),
            unseen=_unseen(spend, times, began, min(until, now), period),
            tags=settings.tags,
            factors=settings.energy,
            rounds=rounds,
            saved=_saved_money(history, period, now, interval_seconds, left, last),
            actions=history.actions(since, until, _NEWEST),
            inventory=None
            if newest is None
            else inventory(newest.observation, newest.decisions, newest.reviews, newest.rulebook),
            health=health_share(_hourly_machines(ledger, begins, ends)),
            blocked=_blocked_money(newest),
            budgets=() if last is None else last.observation.budgets,
            progress=None if began is None else since_began(ledger, period, now, began),
            storage=None if left is None else tuple(unused.by_kind(left)),
            anomalies=unusual_spending(spend, period, now, times),
        )
    )


def unusual_spending(
    spend: SpendBook, period: Period, now: datetime, times: Sequence[Row] | None = None
) -> tuple[Anomaly, ...]:
    """What cost more on the last day of a period, or of what is over of it, than its past explains."""
    began_ms, today = spend.began(), now.astimezone(period.zone).date()
    day = min(period.after, today) - _DAY
    if began_ms is None or day < period.first:
        return ()
    calendar, began = Calendar(period.zone), _utc(began_ms / 1000)
    begin, end = calendar.midnight(day), calendar.midnight(day + _DAY)
    if times is None:
        times = spend.rows(begin - int(_HISTORY.total_seconds()), end, by_time=True)
    return find_anomalies(
        day,
        [row for row in times if (row.begin or 0) < end],
        spend.rows(begin, end, by_node=True),
        spend.rows(calendar.midnight(day - 7 * _DAY), begin, by_node=True),
        calendar,
        began.astimezone(period.zone).date(),
        _unseen(spend, times, began, _utc(end), period),
    )


def since_began(ledger: Ledger, period: Period, now: datetime, began: datetime) -> Progress | None:
    """The first weeks against the last whole ones up to the end of the period; None: less than two weeks."""
    zone = period.zone
    end = min(period.after, now.astimezone(zone).date())
    calendar = Calendar(zone)
    since = int(began.timestamp()) - 25 * 3600  # a sealed day's row begins at its midnight
    rows = SpendBook(ledger).rows(since, calendar.midnight(end), by_time=True)
    events = [*ActionHistory(ledger).events(began, now), *_rule_changes(ledger, began, calendar.midnight(end))]
    return progress(rows, began, end, calendar, events)


def ends_compared(ledger: Ledger, zone: ZoneInfo, now: datetime) -> ComparedEnds | None:
    """The first weeks against the last whole ones until today; None: less than two weeks.

    It reads only these weeks, summed up by the database, so that years between cost nothing.

    Raises:
        LedgerError: the ledger cannot be read.

    """
    spend, calendar, end = SpendBook(ledger), Calendar(zone), now.astimezone(zone).date()
    began = spend.began()
    ends = None if began is None else ends_of(_utc(began / 1000), end, calendar)
    if ends is None:
        return None
    early, late = (
        spend.rows(calendar.midnight(first), calendar.midnight(first + ends.length))
        for first in (ends.first, ends.last)
    )
    return compare_ends(ends, early, late)


def _rule_changes(ledger: Ledger, began: datetime, end: int) -> Iterator[Event]:
    """Pools with other rules at the end of a week than at its begin, as far as rounds are kept whole."""
    known: Mapping[str, PoolRules] | None = None
    for week in range(_RULE_WEEKS, -1, -1):
        at = _utc(end) - week * 7 * _DAY
        past = _last_round(ledger, began, at) if at >= began else None
        rules = None if past is None or past.rulebook is None else past.rulebook.pools
        if rules is not None and known is not None:
            for pool in sorted(pool for pool in {*rules, *known} if rules.get(pool) != known.get(pool)):
                yield Event(at=at - timedelta(seconds=1), what=f"new rules of pool {pool}")
        known = rules or known


def _blocked_money(newest: PastRound | None) -> Blocked | None:
    """What held money back in a round; None: it is not kept, or without its rules."""
    if newest is None or newest.rulebook is None:
        return None
    return blocked_money(newest.observation, newest.decisions, newest.reviews, newest.rulebook)


def _saved_money(
    history: ActionHistory,
    period: Period,
    now: datetime,
    interval_seconds: float,
    left: Sequence[Leftover] | None,
    last: PastRound | None,
) -> Saved:
    """What stops saved, less what the stopped machines still cost."""
    stood = frozenset(stop.key for stop in last.observation.ledger.stopped) if last is not None else frozenset()
    found = stops_of(history, _utc(period.since), now, interval_seconds, stood)
    rules = None if last is None else last.rulebook
    return savings_in(found, period, now, rules, None if left is None else _by_the_hour(left))


def _by_the_hour(left: Sequence[Leftover]) -> dict[str, Decimal]:
    """What stopped machines' disks and addresses cost an hour, by node."""
    found: dict[str, Decimal] = {}
    for each in left:
        usd = unused.usd_per_month(each)
        if each.kind in _OF_STOPPED and each.node_id and usd is not None:
            found[each.node_id] = found.get(each.node_id, Decimal(0)) + usd / HOURS_A_MONTH
    return found


def _hourly_machines(ledger: Ledger, since: datetime, until: datetime) -> Iterator[Sequence[Node]]:
    """The machines of rounds of a time, one an hour, or fewer at equal distances: each is read whole."""
    hours = {int(at.timestamp()) // 3600: number for number, at in ledger.whole_rounds(since, until)}
    every = -(-len(hours) // _MOST_LOOKS) or 1
    for hour in sorted(hours)[::every]:
        with suppress(LedgerError):  # it was dropped meanwhile, or cannot be read: one look less
            yield ledger.observation(hours[hour]).fleet.nodes


def _last_round(ledger: Ledger, since: datetime, ends: datetime) -> PastRound | None:
    """The newest round of the period; None: no round of it is still whole."""
    try:
        past = ledger.round_at(ends)
    except LedgerError:
        return None
    return past if past.at >= since else None


def _unseen(
    spend: SpendBook, times: Sequence[Row], began: datetime | None, ends: datetime, period: Period
) -> frozenset[date]:
    """Days without a row and without a round: whether a machine ran is not known."""
    if began is None:
        return frozenset()
    calendar = Calendar(period.zone)
    metered = {calendar.local((row.begin or 0) * 1000).date() for row in times}
    day, last = max(began, ends - _HISTORY).astimezone(period.zone).date(), ends.astimezone(period.zone).date()
    found = set()
    while day < last:
        if day not in metered:
            begin, end = (_utc(calendar.midnight(each)) for each in (day, day + _DAY))
            if not spend.has_rounds(begin, end):
                found.add(day)
        day += _DAY
    return frozenset(found)


def _utc(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
