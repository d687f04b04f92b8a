"""PURE: the machines of a round for people: which are idle and what happens to them, which stand, which are ill."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from gpuwatch.model.activity import State
from gpuwatch.model.decision import Decision, Observation, Review, Verb, reason_with_refusals
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.model.health import Health
from gpuwatch.policies.job_use import JobUse
from gpuwatch.policies.job_use import unused as unused_jobs

_OF_NO_USE = (State.IDLE, State.OCCUPIED, State.PARKED, State.STALLED)
_OFF = frozenset({NodeState.STOPPED, NodeState.STOPPING})
_WORST_FIRST = (Health.FAILING, Health.DEGRADED, Health.UNKNOWN, Health.HEALTHY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """A running machine without use: since how long, what an hour of it costs, and what is done about it."""

    node: Node
    state: State
    held_seconds: float
    usd_per_hour: Decimal | None
    next_verb: Verb
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A stopped machine. `since` is known of those that gpuwatch stopped."""

    node: Node
    by_gpuwatch: bool
    since: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ill:
    """A GPU that is not healthy, with the first thing that is wrong."""

    node: Node
    gpu: str
    health: Health
    since: datetime | None
    sentence: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """What a round saw. `states` counts machines by the cloud's word, `uses` the running ones by their use."""

    at: datetime
    states: Mapping[str, int]
    uses: Mapping[str, int]
    idle: tuple[Idle, ...]  # what has stood the longest first
    standing: tuple[Standing, ...]
    health: Mapping[str, int]  # GPUs with a verdict
    ill: tuple[Ill, ...]  # the worst first
    names: Mapping[str, str]  # of all machines, by id
    clouds: Mapping[str, str]  # of those whose clouds have names
    jobs: tuple[JobUse, ...] = ()  # of Slurm, with GPUs that they do not use; the most expensive first


def inventory(observation: Observation, decisions: Sequence[Decision], reviews: Sequence[Review]) -> Inventory:
    """From one round."""
    running = [node for node in observation.fleet.nodes if node.state is NodeState.RUNNING]
    steps = {step.node_id: step for decision in decisions for step in decision.steps}
    refused = {review.step.node_id: review.refusals for review in reviews if review.refusals}
    idle = []
    for node in running:
        if node.activity.state in _OF_NO_USE:
            step, price = steps.get(node.id), observation.price(node)
            refusals = refused.get(node.id, ())
            idle.append(
                Idle(
                    node=node,
                    state=node.activity.state,
                    held_seconds=node.activity.held_seconds,
                    usd_per_hour=None if price is None else price.usd_per_hour,
                    next_verb=Verb.HOLD if step is None or refusals else step.verb,
                    why="nothing was decided about it" if step is None else reason_with_refusals(step, refusals),
                )
            )
    standing = []
    for node in observation.fleet.nodes:
        if node.state in _OFF:
            ours = observation.ledger.stop_of(node.id)
            standing.append(Standing(node=node, by_gpuwatch=ours is not None, since=None if ours is None else ours.at))
    gpus = [(node, gpu) for node in running if node.verdict is not None for gpu in node.verdict.gpus]
    ill = [
        Ill(
            node=node,
            gpu=gpu.uuid if gpu.index is None else str(gpu.index),
            health=gpu.health.state,
            since=gpu.health.since,
            sentence=gpu.health.findings[0].sentence if gpu.health.findings else gpu.health.doubt or "",
            remedy=gpu.health.remedy.value,
        )
        for node, gpu in gpus
        if gpu.health is not None and gpu.health.state in {Health.FAILING, Health.DEGRADED}
    ]
    return Inventory(
        at=observation.now,
        states=_counted(node.state.value for node in observation.fleet.nodes),
        uses=_counted(node.activity.state.value for node in running),
        idle=tuple(sorted(idle, key=lambda each: (-each.held_seconds, each.node.id))),
        standing=tuple(sorted(standing, key=lambda each: (each.since is None, str(each.since), each.node.id))),
        health=_counted((Health.UNKNOWN if gpu.health is None else gpu.health.state).value for _, gpu in gpus),
        names={node.id: node.name for node in observation.fleet.nodes},
        clouds={node.id: node.cloud for node in observation.fleet.nodes if node.cloud},
        jobs=unused_jobs(observation),
        ill=tuple(sorted(ill, key=lambda each: (_WORST_FIRST.index(each.health), each.node.id, each.gpu))),
    )


def _counted(words: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(words).items()))
