"""The sections about machines: idle and stopped ones, jobs that do not use theirs, what was done, and health."""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from zoneinfo import ZoneInfo

from gpuwatch.model.currency import display_currency
from gpuwatch.model.decision import Status, Verb
from gpuwatch.model.duration import format_duration
from gpuwatch.model.health import Health
from gpuwatch.model.money import format_usd
from gpuwatch.money.report.blocks import Part, Table, Words
from gpuwatch.money.report.health_share import HealthShare
from gpuwatch.money.report.inventory import Idle, UnusedJob
from gpuwatch.money.report.report import ActionRecord, Report
from gpuwatch.policies.replacement import Loss

_MOST = 10
_NOTHING_KNOWN = "No round of these days is kept whole, so it is not known any more which machines stood."
_DONE = {
    Verb.STOP: "stopped",
    Verb.TERMINATE: "terminated",
    Verb.START: "started",
    Verb.LAUNCH: "launched",
    Verb.GROW: "groups grown",
    Verb.SHRINK: "groups taken back to what their cloud gives",
    Verb.NOTICE: "notices given",
    Verb.WITHDRAW: "notices withdrawn",
    Verb.CORDON: "nodes of Kubernetes and Slurm that get no new work before their end",
    Verb.UNCORDON: "of these, nodes that get new work again",
    Verb.QUARANTINE: "Kubernetes nodes cordoned for their health",
    Verb.SLURM_DRAIN: "Slurm nodes drained for their health",
    Verb.SLURM_RESUME: "Slurm nodes resumed",
    Verb.LOST: "taken by their cloud",
    Verb.ENDED: "launched and ended by themselves",
    Verb.LEFT_ALONE: "left alone for a time",
    Verb.EVICT: "evictions of pods from sick nodes",
}


def idle(report: Report) -> Iterator[Part]:
    """Running machines without use, the longest idle first."""
    seen = report.facts.inventory
    if seen is None:
        if report.facts.began is not None:
            yield Words((_NOTHING_KNOWN,))
        return
    at = _local(seen.at, report.facts.period.zone)
    if not seen.machines.idle:
        yield Words((f"At {at} no running machine was idle, occupied, parked or stalled.",))
        return
    found = seen.machines.idle
    unpriced = sum(each.usd_per_hour is None for each in found)
    words = f"At {at} {_machines(len(found))} ran without use, at {format_usd(_known_usd(found))} an hour"
    yield Words((f"{words}{f', {unpriced} without a known price' if unpriced else ''}.",))
    rows = [
        (
            machine_name(report, each.node_id),
            each.pool,
            each.owner or "-",
            f"{each.state.value} {format_duration(each.held_seconds)}",
            format_usd(each.usd_per_hour, "?"),
            f"{each.next.value}: {each.why}",
        )
        for each in found[:_MOST]
    ]
    heads = ("machine", "pool", "owner", "since", f"{display_currency().code}/h", "next, and why")
    yield Table(
        caption=_caption("The longest first", len(found)),
        heads=heads,
        rows=tuple(rows),
        left=frozenset({0, 1, 2, 3, 5}),
        extra=frozenset({1}),
        beneath=True,
    )


def unused_gpus(report: Report) -> Iterator[Part]:
    """By user and by job, as the newest round saw them; nothing where no job holds GPUs in vain."""
    seen = report.facts.inventory
    if seen is None or not seen.jobs:
        return
    at = _local(seen.at, report.facts.period.zone)
    count = sum(each.unused_gpus for each in seen.jobs)
    words = f"At {at} Slurm jobs held {count:,} GPU{'' if count == 1 else 's'} without use for an hour and more"
    yield Words((f"{words}, at {_usd(seen.jobs)} an hour.",))
    by_user: dict[str, list[UnusedJob]] = {}
    for each in seen.jobs:
        by_user.setdefault(each.user, []).append(each)
    gpus = {user: sum(each.unused_gpus for each in jobs) for user, jobs in by_user.items()}
    users = sorted(by_user, key=lambda user: (-_known_usd(by_user[user]), -gpus[user], user))
    yield Table(
        caption=_caption("By user", len(users)),
        heads=("user", "unused GPUs", "jobs", f"{display_currency().code}/h"),
        rows=tuple(
            (
                user or "-",
                f"{gpus[user]:,}",
                f"{len({each.job for each in by_user[user]}):,}",
                _usd(by_user[user]),
            )
            for user in users[:_MOST]
        ),
        left=frozenset({0}),
    )
    yield Table(
        caption=_caption("By job", len(seen.jobs)),
        heads=("job", "user", "machine", "GPUs", "unused", "for", f"{display_currency().code}/h"),
        rows=tuple(
            (
                each.job,
                each.user or "-",
                machine_name(report, each.node_id),
                f"{each.gpus:,}",
                f"{each.unused_gpus:,}",
                format_duration(each.held_seconds),
                format_usd(each.usd_per_hour, "?"),
            )
            for each in seen.jobs[:_MOST]
        ),
        left=frozenset({0, 1, 2}),
    )


def _known_usd(parts: Sequence[UnusedJob | Idle]) -> Decimal:
    """The sum of the prices that are known."""
    return sum((each.usd_per_hour for each in parts if each.usd_per_hour is not None), Decimal(0))


def _usd(jobs: Sequence[UnusedJob]) -> str:
    """The sum; `+?` where a price is not known."""
    return f"{format_usd(_known_usd(jobs))}{'+?' if any(each.usd_per_hour is None for each in jobs) else ''}"


def stopped_parts(report: Report) -> Iterator[Part]:
    """Yield the part on stopped machines."""
    seen, zone = report.facts.inventory, report.facts.period.zone
    if seen is None or not seen.machines.stopped:
        return
    rows = [
        (
            machine_name(report, each.node_id),
            each.pool,
            each.owner or "-",
            "gpuwatch" if each.by_gpuwatch else "somebody else",
            "-" if each.since is None else _local(each.since, zone),
        )
        for each in seen.machines.stopped[:_MOST]
    ]
    heads = ("machine", "pool", "owner", "stopped by", "since")
    yield Table(
        caption=_caption("Stopped by, and since when", len(seen.machines.stopped)),
        heads=heads,
        rows=tuple(rows),
        left=frozenset(range(5)),
    )
    yield Words(("Their disks and addresses go on costing; `gpuwatch unused` lists these.",))


def actions(report: Report) -> Iterator[Part]:
    """What was done, what people ordered, and what failed."""
    done, zone = report.facts.actions, report.facts.period.zone
    if not done.counts and not done.orders:
        yield Words(("Nothing was done.",))
        return
    parts = [
        f"{_DONE[each.verb]}: {each.count:,}"
        for each in done.counts
        if each.status is Status.SETTLED and each.verb in _DONE
    ]
    others: Counter[Status] = Counter()
    for each in done.counts:
        if each.status is not Status.SETTLED:
            others[each.status] += each.count
    parts += [f"{status.value}: {count:,}" for status, count in sorted(others.items())]
    if parts:
        yield Words((f"{', '.join(parts).capitalize()}.",))
    if report.facts.inventory is not None and report.facts.inventory.regrets:
        yield Words(report.facts.inventory.regrets)
    if done.newest:
        rows = [
            (
                _local(each.at, zone),
                _action(each),
                machine_name(report, each.node_id),
                each.pool,
                each.owner or "-",
                each.why,
            )
            for each in done.newest[:_MOST]
        ]
        heads = ("ended at", "what", "machine", "pool", "owner", "why")
        caption = _caption("The newest actions", sum(each.count for each in done.counts), len(rows))
        yield Table(
            caption=caption, heads=heads, rows=tuple(rows), left=frozenset(range(6)), beneath=True, extra=frozenset({3})
        )
    if done.orders:
        orders = tuple(
            (_local(each.at, zone), f"{each.verb} {each.pool or 'everything'}", each.who, each.reason or "-")
            for each in done.orders
        )
        order_heads = ("at", "order", "by", "because")
        yield Table(caption="What people ordered", heads=order_heads, rows=orders, left=frozenset(range(4)))


def _replacement_parts(report: Report) -> Iterator[Part]:
    """Sick machines that were terminated, and how long until others came, by cloud and type."""
    kinds: dict[tuple[str, str], list[Loss]] = {}
    for each in report.facts.actions.sick_machines:
        kinds.setdefault((each.cloud or "-", each.instance_type or "-"), []).append(each)
    if not kinds:
        return
    rows = []
    for (cloud, kind), losses in sorted(kinds.items()):
        gone = [(loss.gone_at - loss.failing_since).total_seconds() for loss in losses]
        came = [loss.seconds for loss in losses if loss.seconds is not None]
        rows.append((cloud, kind, str(len(losses)), _hours(gone), str(len(came)), _hours(came)))
    heads = ("cloud", "type", "terminated", "hours from failing", "replaced", "hours from failing")
    yield Table(caption="Machines with a failing GPU", heads=heads, rows=tuple(rows), left=frozenset({0, 1}))


def _hours(seconds: list[float]) -> str:
    """Return the mean in hours."""
    return f"{sum(seconds) / len(seconds) / 3600:.1f}" if seconds else "-"


def health(report: Report) -> Iterator[Part]:
    """GPUs that are not healthy, and sick machines that went."""
    yield from _replacement_parts(report)
    if report.facts.health is not None:
        yield from _shares(report.facts.health)
    seen = report.facts.inventory
    if seen is None or not seen.health.gpus:
        return
    gpus, sick = seen.health.gpus, seen.health.not_well
    counts = [f"{gpus[state.value]:,} {state.value}" for state in Health if gpus.get(state.value)]
    yield Words((f"GPUs at {_local(seen.at, report.facts.period.zone)}: {', '.join(counts)}.",))
    if sick:
        rows = [
            (
                machine_name(report, each.node_id),
                each.gpu,
                each.health.value,
                each.remedy.value.replace("_", " "),
                each.why,
            )
            for each in sick[:_MOST]
        ]
        heads = ("machine", "GPU", "health", "do", "what is wrong")
        yield Table(
            caption=_caption("Not well, the worst first", len(sick)),
            heads=heads,
            rows=tuple(rows),
            left=frozenset(range(5)),
            beneath=True,
        )


def _shares(share: HealthShare) -> Iterator[Part]:
    """Of the GPU-hours of these days, by type and driver."""
    looks = "one round" if share.looks == 1 else f"{share.looks} rounds at equal distances"
    yield Words((f"{_percent(share.ratios[Health.HEALTHY])} of the GPU-hours were healthy, by {looks}.",))
    rows = [
        (
            each.instance_type,
            each.driver or "not known",
            f"{each.gpus:,.1f}",
            *(_percent(each.ratios[state]) for state in Health),
        )
        for each in share.by_driver
    ]
    heads = ("type", "driver", "GPUs", *(state.value for state in Health))
    yield Table(caption="Share of GPU-hours in each health", heads=heads, rows=tuple(rows), left=frozenset({0, 1}))


def _percent(ratio: float) -> str:
    """Rounded down to a tenth: 100 % has no exception, and what there is is not 0."""
    return "< 0.1 %" if 0 < ratio < 0.001 else f"{int(ratio * 1000) / 10:.1f} %"  # noqa: PLR2004  a tenth of a percent


def machine_name(report: Report, node_id: str) -> str:
    """The name of a machine from its id, where the newest round saw it, and its cloud where that has a name."""
    seen = report.facts.inventory
    name, cloud = ("", "") if seen is None else (seen.names.get(node_id, ""), seen.clouds.get(node_id, ""))
    where = f"{node_id} in {cloud}" if cloud else node_id
    return where if name in {"", node_id} else f"{name} ({where})"


def _action(action: ActionRecord) -> str:
    verb = action.verb.value
    return verb if action.status is Status.SETTLED else f"{verb}: {action.status.value}, {action.detail}"


def _machines(count: int) -> str:
    return f"{count:,} machine{'s' if count != 1 else ''}"


def _caption(words: str, count: int, shown: int | None = None) -> str:
    """A caption that says when not all are shown."""
    listed = min(count, _MOST) if shown is None else shown
    return words if listed >= count else f"{words}: {listed} of {count:,}"


def _local(at: datetime, zone: ZoneInfo) -> str:
    return f"{at.astimezone(zone):%Y-%m-%d %H:%M}"
