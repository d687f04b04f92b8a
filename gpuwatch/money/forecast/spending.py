"""What the ledger has metered as a series: US dollars for each hour, day or month."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from gpuwatch.model.money import elsewhere_note
from gpuwatch.money.accounting.store import SpendBook
from gpuwatch.money.accounting.totals import Billed
from gpuwatch.money.forecast.series import DAY_SECONDS, HOUR_SECONDS, MONTH_SECONDS, Sample, Series, resample

_HOUR = 3600
_HOUR_MS = 3_600_000
_MOST_KINDS = 3
_COUNT_ALL = "enrol them, or set cost.scope: account to count all machines"
_SET_PRICES = "set prices.live, or their prices in prices.file"


def spending(spend: SpendBook, step_seconds: float = DAY_SECONDS, pool: str | None = None) -> Series:
    """Dollars of each step that is over, at the prices of then.

    An hour in which no running machine had a price is not known, and no zero, and so is one without a row and without a
    round; what sums lack is among the notes. What foreign machines were billed is in no sum.

    Args:
        spend: what was billed.
        step_seconds: of hours, days (of UTC) or calendar months; of days that are kept whole every hour has its share.
        pool: of one pool's machines; else of all.

    Raises:
        ValueError: nothing is metered, no step is over, no machine of that pool is metered, or none has a price.

    """
    began, everything = spend.began(), spend.billed_time(0, 2**40)
    if began is None or not everything:
        raise ValueError("nothing is metered yet; let `gpuwatch controller` run, or give --csv")
    rows = [row for row in everything if row.terms.foreign is None]
    if not rows:
        raise ValueError(f"only machines that are not enrolled are metered; {_COUNT_ALL}")
    pools = sorted({row.terms.pool for row in rows})
    if pool is not None and pool not in pools:
        raise ValueError(f"no machine of pool {pool} is metered; expected --pool with one of {', '.join(pools)}")
    first = -(-began // (_HOUR * 1000))
    last = max(row.begin + row.span for row in rows) // _HOUR - 1  # the newest hour may not be over
    if last <= first:
        raise ValueError("less than an hour is metered yet")
    hours, lacking = [0.0] * (last - first), _unseen_hours(spend, rows, first, last)
    unseen = len(lacking)
    mine = [row for row in rows if pool is None or row.terms.pool == pool]
    for row in mine:
        covered = range(row.begin // _HOUR, -(-(row.begin + row.span) // _HOUR))
        within = [hour - first for hour in covered if first <= hour < last]
        if row.terms.usd_per_hour is None:
            lacking.update(within if row.node_ms else ())
            continue
        usd = float(row.terms.usd_per_hour) * row.node_ms / _HOUR_MS / len(covered)
        for at in within:
            hours[at] += usd
    samples = [
        Sample(time=datetime.fromtimestamp((first + at) * _HOUR, UTC), value=usd)
        for at, usd in enumerate(hours)
        if usd or at not in lacking
    ]
    unpriced = [row for row in mine if row.terms.usd_per_hour is None and row.node_ms]
    if unpriced and len(unpriced) == sum(row.node_ms > 0 for row in mine):
        raise ValueError(f"no metered machine has a known price; {_SET_PRICES}")
    made = resample(samples, step_seconds)
    if step_seconds == MONTH_SECONDS:
        lengths = [(made.time(at + 1) - made.time(at)).total_seconds() / HOUR_SECONDS for at in range(len(made.values))]
    else:
        lengths = [step_seconds / HOUR_SECONDS] * len(made.values)
    sums = [None if mean is None else mean * length for mean, length in zip(made.values, lengths, strict=True)]
    elsewhere = (elsewhere_note(row.terms.price_source for row in mine) or "").removesuffix(".")
    down = [f"{unseen} hours had no round: what ran then is not known"] if unseen else []
    foreign = [row for row in everything if row.terms.foreign is not None and pool in {None, row.terms.pool}]
    notes = (*_unpriced_notes(unpriced), *_foreign_notes(foreign), *down, *made.notes, *filter(None, [elsewhere]))
    return Series(start=made.start, step_seconds=step_seconds, values=tuple(sums), notes=notes)


def _unseen_hours(spend: SpendBook, rows: Sequence[Billed], first: int, last: int) -> set[int]:
    """Hours, counted from the first, in which nothing was billed and no round looked: the controller was down."""
    seen = bytearray(last - first)
    for row in rows:
        begin, end = (max(0, at - first) for at in (row.begin // _HOUR, -(-(row.begin + row.span) // _HOUR)))
        seen[begin:end] = b"\1" * (min(end, last - first) - begin)
    found, at = set[int](), 0
    while at < len(seen):
        end = next((later for later in range(at, len(seen)) if seen[later]), len(seen))
        # An hour is asked for alone: between two rounds that look in vain the machines are off.
        found.update(
            each for each in range(at, end) if not spend.has_rounds(_utc(first + each), _utc(first + each + 1))
        )
        at = end + 1
    return found


def _utc(hour: int) -> datetime:
    return datetime.fromtimestamp(hour * _HOUR, UTC)


def _foreign_notes(rows: Sequence[Billed]) -> Iterator[str]:
    """What is not ours, with what to do."""
    hours = sum(row.node_ms for row in rows) / _HOUR_MS
    if hours:
        yield f"{hours:,.1f} machine-hours of machines that are not enrolled are in no sum; {_COUNT_ALL}"


def _unpriced_notes(rows: Sequence[Billed]) -> Iterator[str]:
    """What the sums lack, with what to do."""
    if rows:
        kinds = sorted({f"{row.terms.instance_type} in {row.terms.region}" for row in rows})
        more = f" and {len(kinds) - _MOST_KINDS} more kinds" if len(kinds) > _MOST_KINDS else ""
        yield (
            f"{sum(row.node_ms for row in rows) / _HOUR_MS:,.1f} machine-hours have no known price "
            f"({', '.join(kinds[:_MOST_KINDS])}{more}): the sums are the least it can be; {_SET_PRICES}"
        )
