"""The section about running Slurm jobs that hold GPUs and do not use them."""

from collections.abc import Iterator, Sequence
from decimal import Decimal

from gpuwatch.model.duration import format_duration
from gpuwatch.model.money import format_usd
from gpuwatch.money.report.blocks import Part, Table, Words
from gpuwatch.money.report.fleet_sections import named
from gpuwatch.money.report.report import Report
from gpuwatch.policies.job_use import JobUse

_MOST = 10


def unused(report: Report) -> Iterator[Part]:
    """By user and by job, as the newest round saw them; nothing where no job holds GPUs in vain."""
    seen = report.facts.inventory
    if seen is None or not seen.jobs:
        return
    at = f"{seen.at.astimezone(report.facts.period.zone):%Y-%m-%d %H:%M}"
    count = sum(each.unused for each in seen.jobs)
    words = f"At {at} Slurm jobs held {count:,} GPU{'' if count == 1 else 's'} without use for an hour and more"
    yield Words((f"{words}, at {_usd(seen.jobs)} an hour.",))
    by_user: dict[str, list[JobUse]] = {}
    for each in seen.jobs:
        by_user.setdefault(each.job.user, []).append(each)
    rows = sorted(by_user.items(), key=lambda item: (-_known(item[1]), -sum(each.unused for each in item[1]), item[0]))
    yield Table(
        caption=_first("By user", len(rows)),
        heads=("user", "unused GPUs", "jobs", "USD/h"),
        rows=tuple(
            (
                user or "-",
                f"{sum(each.unused for each in jobs):,}",
                f"{len({each.job.id for each in jobs}):,}",
                _usd(jobs),
            )
            for user, jobs in rows[:_MOST]
        ),
        left=frozenset({0}),
    )
    yield Table(
        caption=_first("By job", len(seen.jobs)),
        heads=("job", "user", "machine", "GPUs", "unused", "for", "USD/h"),
        rows=tuple(_row(each) for each in seen.jobs[:_MOST]),
        left=frozenset({0, 1, 2}),
    )


def _row(each: JobUse) -> tuple[str, ...]:
    return (
        each.job.id,
        each.job.user or "-",
        named(each.node),
        f"{each.job.gpus:,}",
        f"{each.unused:,}",
        format_duration(each.held_seconds),
        format_usd(each.usd_per_hour, "?"),
    )


def _known(jobs: Sequence[JobUse]) -> Decimal:
    return sum((each.usd_per_hour for each in jobs if each.usd_per_hour is not None), Decimal(0))


def _usd(jobs: Sequence[JobUse]) -> str:
    """The sum; `+?` where a price is not known."""
    return f"{format_usd(_known(jobs))}{'+?' if any(each.usd_per_hour is None for each in jobs) else ''}"


def _first(what: str, count: int) -> str:
    """Says that a table is cut."""
    return f"{what} (the first {_MOST} of {count:,})" if count > _MOST else what
