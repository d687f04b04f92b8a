"""What a pool, or a job with a deadline, would have cost on a recording of spot capacity under several policies."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf
from statistics import fmean

from gpuwatch.model.duration import format_duration
from gpuwatch.model.progress import Advance, no_advance
from gpuwatch.policies.spot.mix import MixRules
from gpuwatch.simulate.spot import job
from gpuwatch.simulate.spot.fleet import Played, Terms, lower_bound, play
from gpuwatch.simulate.spot.recording import Recording

ON_DEMAND, FALLBACK, SPARE = "on demand only", "spot, falls back", "the same, one spare"
_STARTS = 24
_SHORT_DAYS = 7.0
_HIGH = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRow:
    """One policy. `useful_cost_ratio` is what an hour of work that counts costs, of an hour on demand."""

    name: str
    cost_usd: float
    cost_ratio: float
    useful_cost_ratio: float
    full_ratio: float
    working_ratio: float
    interruptions_per_node_day: float
    failed_launches_per_day: float
    lost_node_hours: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """One rule for a job with a deadline, over all starts; costs are parts of the cost on demand without a move."""

    name: str
    mean_cost_ratio: float
    high_cost_ratio: float  # of nine starts in ten it was less
    missed_ratio: float
    mean_hours: float  # from the start to the end


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotAdvice:
    """The advice: the policies in the order in which they are shown, and the sentences that follow from them."""

    days: float
    offers: int
    nodes: int
    bound_ratio: float
    policies: tuple[PolicyRow, ...]
    jobs: tuple[JobRow, ...]
    starts: int
    advice: tuple[str, ...]
    warnings: tuple[str, ...]


def advise(
    recording: Recording, nodes: int, rules: MixRules, terms: Terms, advance: Advance = no_advance
) -> SpotAdvice:
    """Play every policy; `rules` are those of the row `spot, falls back`."""
    tried = _policies(nodes, rules)
    rows = []
    for count, (name, each) in enumerate(tried.items()):
        advance(count, len(tried))
        rows.append(_row(play(recording, nodes, each, terms, name), recording, nodes, terms))
    return SpotAdvice(
        days=recording.days,
        offers=len(recording.nodes),
        nodes=nodes,
        bound_ratio=lower_bound(recording, nodes, terms),
        policies=tuple(rows),
        jobs=(),
        starts=0,
        advice=tuple(_pool_sentences(rows, nodes)),
        warnings=tuple(_warnings(recording, nodes)),
    )


def advise_job(recording: Recording, terms: job.JobTerms) -> SpotAdvice:
    """Play every rule for a job with a deadline from starts that are spread evenly over the recording.

    Raises:
        ValueError: the recording is shorter than the time allowed, or that is shorter than the work and one start.

    """
    if terms.allowed_minutes < terms.work_minutes + terms.move_minutes:
        needed = format_duration((terms.work_minutes + terms.move_minutes) * 60.0)
        allowed = format_duration(terms.allowed_minutes * 60.0)
        raise ValueError(f"the time allowed is {allowed}; the work and one start take {needed}")
    last = recording.minutes - terms.allowed_minutes
    if last < 0:
        raise ValueError(
            f"the recording has {recording.minutes} min, and the job is allowed {terms.allowed_minutes} min"
        )
    starts = sorted({round(last * number / (_STARTS - 1)) for number in range(_STARTS)})
    rooms = [[count > 0 for count in counts] for _, counts in sorted(recording.nodes.items())]
    windows = [[room[begin : begin + terms.allowed_minutes] for room in rooms] for begin in starts]
    rows = [
        _job_row(name, [job.play(window, terms, rule) for window in windows], terms) for name, rule in job.RULES.items()
    ]
    return SpotAdvice(
        days=recording.days,
        offers=len(rooms),
        nodes=1,
        bound_ratio=terms.spot_price_ratio,
        policies=(),
        jobs=tuple(rows),
        starts=len(starts),
        advice=tuple(_job_sentences(rows)),
        warnings=tuple(_warnings(recording, 1)),
    )


def _policies(nodes: int, rules: MixRules) -> dict[str, MixRules]:
    """The policies by name; the shares of those that have one are of so many nodes."""
    return {
        ON_DEMAND: MixRules(spot_share=0.0),
        "spot only": replace(rules, on_demand_base=0, spot_share=1.0, over_provision=0, fallback_after=inf),
        "30 % on demand, 70 % spot": replace(
            rules, on_demand_base=ceil(0.3 * nodes), spot_share=1.0, over_provision=0, fallback_after=inf
        ),
        FALLBACK: rules,
        SPARE: replace(rules, over_provision=rules.over_provision + 1),
    }


def _row(played: Played, recording: Recording, nodes: int, terms: Terms) -> PolicyRow:
    # Boots are no working time: of what an interruption costs only the work that is done again is still to go.
    again = played.interruptions * terms.lost_minutes / 60
    worked = played.working_ratio * nodes * recording.days * 24 - again
    useful = played.cost_usd / worked / terms.on_demand_usd_per_hour if worked > 0 else inf
    return PolicyRow(
        name=played.name,
        cost_usd=played.cost_usd,
        cost_ratio=played.cost_ratio,
        useful_cost_ratio=useful,
        full_ratio=played.full_ratio,
        working_ratio=played.working_ratio,
        interruptions_per_node_day=played.interruptions_per_node_day,
        failed_launches_per_day=played.failed_launches_per_day,
        lost_node_hours=played.lost_node_hours,
    )


def _pool_sentences(rows: Sequence[PolicyRow], nodes: int) -> Iterator[str]:
    by_name = {row.name: row for row in rows}
    mixed, spare = by_name[FALLBACK], by_name[SPARE]
    if mixed.useful_cost_ratio >= 1.0:
        yield (
            f"Stay on demand: an hour of work that counts costs {mixed.useful_cost_ratio:.0%} of on demand on spot, "
            "for what interruptions destroy costs more than spot saves."
        )
        return
    yield (
        f"Use spot that falls back to on demand: it costs {mixed.cost_ratio:.0%} of on demand, and all {nodes} nodes "
        f"work {mixed.full_ratio:.1%} of the time. With what interruptions destroy, an hour of work that counts costs "
        f"{mixed.useful_cost_ratio:.0%}."
    )
    points = (spare.full_ratio - mixed.full_ratio) * 100
    if points > 0:
        dearer = (spare.cost_ratio - mixed.cost_ratio) / mixed.cost_ratio
        adds = f"A spare node adds {points:.1f} points to that time and"
        if dearer > 0:
            yield f"{adds} {dearer:.0%} to the cost: {dearer / points:.1%} a point."
        else:
            yield f"{adds} takes {-dearer:.0%} off the cost: it is worth having."


def _job_sentences(rows: Sequence[JobRow]) -> Iterator[str]:
    safe = [row for row in rows if row.missed_ratio == 0]
    if not safe:
        yield "No rule held the deadline from every start: allow more time."
        return
    best = min(safe, key=lambda row: row.mean_cost_ratio)
    yield (
        f"Cheapest without a missed deadline: {best.name}, at {best.mean_cost_ratio:.0%} of on demand on average, and "
        f"less than {best.high_cost_ratio:.0%} from nine of ten starts."
    )


def _job_row(name: str, played: Sequence[job.JobPlayed], terms: job.JobTerms) -> JobRow:
    alone = terms.work_minutes / 60
    costs = sorted(each.cost_hours / alone for each in played)
    return JobRow(
        name=name,
        mean_cost_ratio=fmean(costs),
        high_cost_ratio=costs[min(len(costs) - 1, int(_HIGH * len(costs)))],
        missed_ratio=fmean(each.missed for each in played),
        mean_hours=fmean((each.minutes or terms.allowed_minutes) / 60 for each in played),
    )


def _warnings(recording: Recording, nodes: int) -> Iterator[str]:
    if recording.days < _SHORT_DAYS:
        yield f"The recording has {recording.days:.1f} days: less than a week says little about the next one."
    most = max(sum(counts) for counts in zip(*recording.nodes.values(), strict=True))
    if most < nodes:
        yield f"The recording never has {nodes} nodes at once, {most} at most: a larger recording may say more."
    if recording.usd_per_hour is None:
        yield "The recording has no prices, so one price of spot is assumed for all its time."
