"""PURE: dollars of busy hours in which a GPU did little, by owner and job, with what was measured. Advice, no waste.

Rules, all of them:

1. Only time counts in which a GPU was busy. Idle, parked and stalled time is waste and stands in `gpuwatch cost`: no
   dollar is in both.
2. Of rounds: the activity of the multiprocessors decides, where it is measured. Where it is not, the share of time in
   which any kernel ran is more than that: below the limit it proves little use, above it nothing is known.
3. Of metering: energy by the rated power of the GPU's model, the lowest of its forms, or by the lowest power limit that
   the machine's GPUs were seen with, where that is less. All of an hour's energy is taken
   for its busy time, so a share below the limit is proven; in an hour that was not busy throughout, one above it is not
   known.
4. A missing reading is unknown, never zero. What is exactly at the limit is not below it.
5. A machine's price is divided evenly among its GPUs, and a GPU that pods share evenly among them. GPUs without a known
   price have hours and no dollars.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType

from gpuwatch.model.activity import GpuUse, State
from gpuwatch.model.fleet import Fleet, GpuVerdict, Node, NodeState
from gpuwatch.model.money import usd_to_the_cent
from gpuwatch.model.usage import GPU, HOUR_MS, JOULES, MEASURED, USES, Use
from gpuwatch.money.accounting.totals import NONE, Row

BELOW = 0.2
BELOW_POWER = 0.4
_HOLE = timedelta(hours=1)  # between two rounds, beyond which the time between is not known
_COVERED = Fraction(95, 100)  # of an hour's GPU time, over which energy was measured
_THROUGHOUT = Fraction(95, 100)  # of an hour's GPU time that was busy
_NONE: Mapping[str, float] = MappingProxyType({})
_USEFUL = GPU + USES.index(Use.USEFUL)

# NVIDIA's datasheets, watts: of a model's forms the one that draws least, so that no GPU is taken for an idler one.
RATED_WATTS: Mapping[str, int] = {
    "P100": 250, "P4": 75, "V100": 250, "T4": 70, "A10": 150, "A10G": 150, "A30": 165, "A100": 250, "L4": 72,
    "L40S": 350, "H100": 350, "H200": 600, "B200": 1000,
}  # fmt: skip


@dataclass(slots=True)
class _Sum:
    """Dollars and hours of busy time: all of it, below the limit, and of unknown use."""

    busy: Fraction = Fraction(0)
    low: Fraction = Fraction(0)
    unknown: Fraction = Fraction(0)
    usd_busy: Fraction = Fraction(0)
    usd_low: Fraction = Fraction(0)
    usd_unknown: Fraction = Fraction(0)
    unpriced: Fraction = Fraction(0)

    def add(self, hours: Fraction, usd_per_hour: Fraction | None, low: bool | None) -> None:
        """Add so many GPU-hours; `low` None: their use is not known."""
        usd = Fraction(0) if usd_per_hour is None else hours * usd_per_hour
        self.busy += hours
        self.usd_busy += usd
        self.unpriced += hours if usd_per_hour is None else 0
        if low is None:
            self.unknown += hours
            self.usd_unknown += usd
        elif low:
            self.low += hours
            self.usd_low += usd


@dataclass(frozen=True, slots=True, kw_only=True)
class LowUse:
    """Busy GPU-hours of an owner, or of an owner's job: all, below the limit, of unknown use; dollars where priced.

    `job` is null where it is of all jobs. Dollars are null if no hour has a known price.
    """

    owner: str
    job: str | None
    gpu_hours_busy: float
    gpu_hours_low: float
    gpu_hours_unknown: float
    gpu_hours_unpriced: float
    usd_busy: Decimal | None
    usd_low: Decimal | None
    usd_unknown: Decimal | None


@dataclass(slots=True, kw_only=True)
class BusyHours:
    """What rounds, in the order of time, show of busy GPUs; `below` is the limit."""

    below: float = BELOW
    sums: dict[tuple[str, str], _Sum] = field(default_factory=dict)
    last: dict[str, datetime] = field(default_factory=dict)

    def see(self, at: datetime, fleet: Fleet, usd_per_hour: Mapping[str, Decimal]) -> None:
        """One more round; `usd_per_hour` by the machine's id. A stop ends the time that is known."""
        for node in fleet.nodes:
            if node.state not in {NodeState.RUNNING, NodeState.UNKNOWN}:
                self.last.pop(node.id, None)
            if node.state is not NodeState.RUNNING or node.verdict is None:
                continue
            before = self.last.get(node.id)
            self.last[node.id] = at
            if before is not None and timedelta() < at - before <= _HOLE:
                self._see_node(node, Fraction((at - before) / timedelta(hours=1)), usd_per_hour.get(node.id))

    def _see_node(self, node: Node, hours: Fraction, usd: Decimal | None) -> None:
        verdict = node.verdict
        gpus = () if verdict is None else verdict.gpus
        each = None if usd is None else Fraction(usd) / max(len(gpus), node.known_gpus, 1)
        for gpu in gpus:
            if gpu.activity.state is State.BUSY:
                jobs = gpu.pods or (NONE,)
                for job in jobs:
                    key = (node.owner or NONE, job)
                    self.sums.setdefault(key, _Sum()).add(hours / len(jobs), each, is_low(gpu, self.below))


def is_low(gpu: GpuVerdict, below: float) -> bool | None:
    """Whether it did less than that; None: it is not known (rule 2)."""
    use: GpuUse | None = gpu.use
    if use is None:
        return None
    if use.sm_active_ratio is not None:
        return use.sm_active_ratio < below
    return True if use.utilization_ratio is not None and use.utilization_ratio < below else None


def by_owner_and_job(sums: Mapping[tuple[str, str], _Sum]) -> tuple[LowUse, ...]:
    """Each owner, and each of the owner's jobs where there are any; the most dollars below the limit first."""
    owners: dict[str, _Sum] = {}
    found: list[LowUse] = []
    for (owner, job), each in sums.items():
        whole = owners.setdefault(owner, _Sum())
        for name in ("busy", "low", "unknown", "usd_busy", "usd_low", "usd_unknown", "unpriced"):
            setattr(whole, name, getattr(whole, name) + getattr(each, name))
        if job != NONE:
            found.append(_low_use(owner, job, each))
    found += [_low_use(owner, None, each) for owner, each in owners.items()]
    return tuple(sorted(found, key=_most_first))


def power_limits(fleet: Fleet, before: Mapping[str, float]) -> dict[str, float]:
    """The lowest limit of power (watts) of each machine's GPUs, in this round or before, by the machine's id."""
    found = dict(before)
    for node in fleet.nodes:
        uses = () if node.verdict is None else (gpu.use for gpu in node.verdict.gpus)
        limits = [use.power_limit_watts for use in uses if use is not None and use.power_limit_watts is not None]
        if limits:
            found[node.id] = min([*limits, *({found[node.id]} if node.id in found else ())])
    return found


def by_power(
    rows: Iterable[Row], gpu_models: Mapping[str, str], below: float = BELOW_POWER, limits: Mapping[str, float] = _NONE
) -> tuple[LowUse, ...]:
    """Each owner by the energy of metered hours (rule 3).

    Args:
        rows: of single machines.
        gpu_models: by machine type, where all GPUs are of one.
        below: the share of its power below which a GPU does little.
        limits: of `power_limits`.

    """
    sums: dict[tuple[str, str], _Sum] = {}
    for row in rows:
        useful, gpu_ms, measured = row.amounts[_USEFUL], sum(row.amounts[GPU:JOULES]), row.amounts[MEASURED]
        if not useful or row.terms.foreign is not None:
            continue
        terms = row.terms
        usd = None if terms.usd_per_hour is None else Fraction(terms.usd_per_hour) / max(terms.gpus, 1)
        rated = RATED_WATTS.get(gpu_models.get(terms.instance_type, ""))
        limit = limits.get(row.node_id or "")
        watts = rated if rated is None or limit is None else min(Fraction(rated), Fraction(limit))
        low: bool | None = None
        if watts is not None and measured >= _COVERED * gpu_ms and row.amounts[JOULES] > 0:
            share = Fraction(row.amounts[JOULES] * 1000, useful * watts)
            low = share < below or (False if useful >= _THROUGHOUT * gpu_ms else None)
        sums.setdefault((terms.owner or NONE, NONE), _Sum()).add(Fraction(useful, HOUR_MS), usd, low)
    return by_owner_and_job(sums)


def _low_use(owner: str, job: str | None, each: _Sum) -> LowUse:
    priced = each.unpriced < each.busy
    return LowUse(
        owner=owner,
        job=job,
        gpu_hours_busy=float(each.busy),
        gpu_hours_low=float(each.low),
        gpu_hours_unknown=float(each.unknown),
        gpu_hours_unpriced=float(each.unpriced),
        usd_busy=usd_to_the_cent(each.usd_busy) if priced else None,
        usd_low=usd_to_the_cent(each.usd_low) if priced else None,
        usd_unknown=usd_to_the_cent(each.usd_unknown) if priced else None,
    )


def _most_first(each: LowUse) -> tuple[object, ...]:
    return (each.job is not None, -(each.usd_low or Decimal(0)), -each.gpu_hours_low, each.owner, each.job or "")
