"""What the ledger has metered as a series: US dollars for each hour, day or month."""

from datetime import UTC, datetime

from gpuwatch.model.money import elsewhere_note
from gpuwatch.money.accounting.store import SpendBook
from gpuwatch.money.forecast.series import DAY_SECONDS, HOUR_SECONDS, MONTH_SECONDS, Sample, Series, resample

_HOUR = 3600
_HOUR_MS = 3_600_000


def spending(spend: SpendBook, step_seconds: float = DAY_SECONDS, pool: str | None = None) -> Series:
    """Dollars of each step that is over, at the prices of then; time of machines without a price costs nothing.

    Args:
        spend: what was billed.
        step_seconds: of hours, days (of UTC) or calendar months; of days that are kept whole every hour has its share.
        pool: of one pool's machines; else of all.

    Raises:
        ValueError: nothing is metered, no step is over, or no machine of that pool is metered.

    """
    began, rows = spend.began(), spend.billed_time(0, 2**40)
    if began is None or not rows:
        raise ValueError("nothing is metered yet; let `gpuwatch controller` run, or give --csv")
    pools = sorted({row.terms.pool for row in rows})
    if pool is not None and pool not in pools:
        raise ValueError(f"no machine of pool {pool} is metered; expected --pool with one of {', '.join(pools)}")
    first = -(-began // (_HOUR * 1000))
    last = max(row.begin + row.span for row in rows) // _HOUR - 1  # the newest hour may not be over
    if last <= first:
        raise ValueError("less than an hour is metered yet")
    hours = [0.0] * (last - first)
    for row in rows:
        if pool is None or row.terms.pool == pool:
            covered = range(row.begin // _HOUR, -(-(row.begin + row.span) // _HOUR))
            usd = float(row.terms.usd_per_hour or 0) * row.node_ms / _HOUR_MS / len(covered)
            for hour in covered:
                if first <= hour < last:
                    hours[hour - first] += usd
    samples = [
        Sample(time=datetime.fromtimestamp((first + at) * _HOUR, UTC), value=usd) for at, usd in enumerate(hours)
    ]
    made = resample(samples, step_seconds)
    if step_seconds == MONTH_SECONDS:
        lengths = [(made.time(at + 1) - made.time(at)).total_seconds() / HOUR_SECONDS for at in range(len(made.values))]
    else:
        lengths = [step_seconds / HOUR_SECONDS] * len(made.values)
    sums = [None if mean is None else mean * length for mean, length in zip(made.values, lengths, strict=True)]
    asked = (row.terms.price_source for row in rows if pool in {None, row.terms.pool})
    elsewhere = (elsewhere_note(asked) or "").removesuffix(".")
    notes = (*made.notes, *filter(None, [elsewhere]))
    return Series(start=made.start, step_seconds=step_seconds, values=tuple(sums), notes=notes)
