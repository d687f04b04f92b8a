"""PURE: as many nodes as the work with a deadline needs, from its begin until it is done or its deadline is over."""

from collections.abc import Iterator, Mapping
from typing import Literal, Protocol

from gpuwatch.model.decision import Observation, Proposal, Reason
from gpuwatch.model.duration import format_duration, format_time
from gpuwatch.model.measurement import BatchPast
from gpuwatch.model.setting import Contradiction
from gpuwatch.policies.spot import back, batch
from gpuwatch.policies.spot.batch import BatchRules
from gpuwatch.policies.spot.mix import MixRules
from gpuwatch.policies.spot.records import SPOT
from gpuwatch.policies.spot.settings import OfferRules, Offers

NAME = "batch"  # how far the work is stands with what a decision says of its pool, on every page

_MODES = {
    "spot_only": "spot only",
    "spot_first": "spot first, and on demand at once",
    "on_demand": "what is missing comes on demand, to the end",
}


def propose(observation: Observation, pool: str, rules: back.Rules) -> Proposal | None:
    """The nodes of the job, or none before and after it; None: the pool's work has no deadline."""
    offers = rules.sources
    if not isinstance(offers, Offers) or offers.batch is None:
        return None
    has = back.nodes_now(observation, pool, rules)
    job = offers.job(observation, pool, spot=has.spot_working + has.spot_coming, firm=has.on_demand)
    if job is None:
        code, why = _why_over(observation, pool, offers.batch)
        return Proposal(policy=NAME, pool=pool, reason=Reason(code=code, sentence=f"{why}: no nodes are wanted."))
    slack = f"slack {format_duration(job.slack)}" if job.slack >= 0 else f"{format_duration(-job.slack)} too little"
    sentence = (
        f"{_done_words(observation, pool, offers.batch)}, {format_duration(job.left)} left until "
        f"{format_time(offers.batch.ends)}, {slack}: {_MODES[batch.mode(job)]}."
    )
    return Proposal(
        policy=NAME,
        pool=pool,
        reason=Reason(code=batch.mode(job), sentence=sentence),
        desired_nodes=offers.batch.nodes,
        grows=True,
    )


def _why_over(observation: Observation, pool: str, rules: BatchRules) -> tuple[str, str]:
    """Why no nodes are wanted: a code and a clause."""
    if observation.now < rules.begins:
        return "not_begun", f"The work begins at {format_time(rules.begins)}"
    done = _done_words(observation, pool, rules)
    if observation.now < rules.ends or batch.left_seconds(rules, observation.batches.get(pool, BatchPast())) <= 0:
        return "done", done
    return "deadline_over", f"{done}, and the deadline {format_time(rules.ends)} is over"


def _done_words(observation: Observation, pool: str, rules: BatchRules) -> str:
    known = observation.batches.get(pool)
    if known is None:
        return f"How much of {format_duration(rules.work)} is done is not known and counts as none"
    done = format_duration(min(known.done_seconds, rules.work))
    lost = f" ({known.losses} node{'s' * (known.losses > 1)} lost)" if known.losses else ""
    return f"{done} of {format_duration(rules.work)} done{lost}"


class Written(Protocol):
    """What of a pool's settings is judged together."""

    @property
    def batch(self) -> BatchRules:
        """The work with a deadline."""
        ...

    @property
    def interruptible(self) -> str:
        """Whether its work may be interrupted."""
        ...

    @property
    def offers(self) -> Mapping[str, OfferRules]:
        """Where its nodes come from."""
        ...

    @property
    def capacity(self) -> MixRules:
        """How they divide without a deadline."""
        ...

    @property
    def max_nodes(self) -> int | None:
        """The most nodes that it may have."""
        ...


def contradictions(rules: Written, here: tuple[str, ...]) -> Iterator[Contradiction]:
    """What is wrong together; `here` are the keys of the pool."""
    if not rules.batch.work:
        if rules.interruptible == "batch":
            yield Contradiction(
                keys=((*here, "interruptible"),),
                wrong=f"{'.'.join(here)}.interruptible is batch, and batch.work is not set",
                right="batch with work, nodes, since and by; or interruptible: any",
            )
        return
    at = (*here, "batch")
    if rules.interruptible != "batch":
        yield Contradiction(
            keys=(at, (*here, "interruptible")),
            wrong=f"{'.'.join(at)} is set, and interruptible is {rules.interruptible}",
            right="interruptible: batch, or no batch",
        )
    kinds = {each.capacity == SPOT for each in rules.offers.values()}
    if kinds != {True, False}:
        yield Contradiction(
            keys=(at, (*here, "offers")),
            wrong=f"{'.'.join(at)} needs spot and, for the deadline, something that is not spot",
            right="an offer with capacity: spot, and one with capacity: on_demand",
        )
    if rules.max_nodes is not None and rules.max_nodes < rules.batch.nodes:
        yield Contradiction(
            keys=((*at, "nodes"), (*here, "max_nodes")),
            wrong=f"{'.'.join(at)}.nodes ({rules.batch.nodes}) is above max_nodes ({rules.max_nodes})",
            right=f"nodes of {rules.max_nodes} or less",
        )
    usual = MixRules()
    for key in ("on_demand_base", "spot_share", "fallback_after"):
        if getattr(rules.capacity, key) != getattr(usual, key):
            yield Contradiction(
                keys=((*here, "capacity", key), at),
                wrong=f"{'.'.join(here)}.capacity.{key} is set, and batch decides it in each round",
                right=f"no capacity.{key}, or no batch",
            )
    yield from _times(rules.batch, at)


def _times(rules: BatchRules, at: tuple[str, ...]) -> Iterator[Contradiction]:
    """Times that cannot be read, or in the wrong order."""
    keys: tuple[Literal["since"], Literal["by"]] = ("since", "by")
    unread = [key for key in keys if not _is_moment(getattr(rules, key))]
    for key in unread:
        yield Contradiction(
            keys=((*at, key),),
            wrong=f"{'.'.join(at)}.{key} is {getattr(rules, key)!r}, which is not a time with its offset",
            right="a time such as 2026-11-04T08:00:00Z or 2026-11-04T08:00:00+08:00",
        )
    if not unread and rules.ends <= rules.begins:
        yield Contradiction(
            keys=((*at, "by"), (*at, "since")),
            wrong=f"{'.'.join(at)}.by ({rules.by}) is not after since ({rules.since})",
            right="a later by",
        )


def _is_moment(text: str | None) -> bool:
    try:
        batch.moment(text)
    except ValueError:
        return False
    return True


def warnings(rules: Written, here: tuple[str, ...]) -> Iterator[Contradiction]:
    """Work that cannot be done in its time: all of it runs on demand, and is late all the same."""
    job, at = rules.batch, (*here, "batch")
    if not job.work or any(_times(job, at)) or job.work + job.restart <= job.allowed:
        return
    needed = f"{format_duration(job.work)} and one start of {format_duration(job.restart)}"
    yield Contradiction(
        keys=((*at, "work"), (*at, "by")),
        wrong=f"{'.'.join(at)}.work does not fit: {needed} are more than {format_duration(job.allowed)}",
        right="a later by, less work, or more nodes",
    )
