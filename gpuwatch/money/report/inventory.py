"""PURE: the machines of a round for people: which are idle and what happens to them, which stand, which are ill."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from gpuwatch.guard import Rulebook
from gpuwatch.guard.outlook import Outlook
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Answer, Decision, Observation, Review, Step, Verb, reason_with_refusals
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.model.health import Health, Remedy
from gpuwatch.money.accounting.scope import counted_nodes
from gpuwatch.policies.idle_timeout.answers import regret_sentences
from gpuwatch.policies.job_use import unused_jobs

_OF_NO_USE = (State.IDLE, State.OCCUPIED, State.PARKED, State.STALLED)
_OFF = frozenset({NodeState.STOPPED, NodeState.STOPPING})
_WORST_FIRST = (Health.FAILING, Health.DEGRADED, Health.UNKNOWN, Health.HEALTHY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """A running machine without use: since how long, what an hour of it costs, and what is done next about it."""

    node_id: str
    name: str
    pool: str
    owner: str | None
    state: State
    held_seconds: float
    usd_per_hour: Decimal | None
    next: Verb
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """A node that is stopped; `since` is known of those that gpuwatch stopped."""

    node_id: str
    name: str
    pool: str
    owner: str | None
    by_gpuwatch: bool
    since: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """The machines of the newest round: how many in each state and use, which are idle, which are stopped.

    `states` counts machines by the cloud's word, `uses` the running ones. What is idle the longest is first. `foreign`
    are machines that are not ours: they are in none of it but `stopped`.
    """

    at: datetime
    states: Mapping[str, int]
    uses: Mapping[str, int]
    idle: tuple[Idle, ...]
    stopped: tuple[Stopped, ...]
    foreign: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SickGpu:
    """A GPU that is not well, and the first thing that is wrong."""

    node_id: str
    gpu: str
    health: Health
    since: datetime | None
    remedy: Remedy
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetHealth:
    """The health of the GPUs in the newest round: how many are well, and which are not, the worst first."""

    at: datetime
    gpus: Mapping[str, int]
    not_well: tuple[SickGpu, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedJob:
    """A running Slurm job with GPUs that it has not used for an hour and more, on one machine."""

    job: str
    user: str
    node_id: str
    pool: str
    gpus: int
    unused_gpus: int
    held_seconds: float
    usd_per_hour: Decimal | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """What a round saw. `names` has all machines, by id; `clouds` has those of clouds with a name.

    `regrets` says of each pool how many stops people took back.
    """

    machines: Machines
    health: FleetHealth
    jobs: tuple[UnusedJob, ...]  # the most expensive first
    names: Mapping[str, str]
    clouds: Mapping[str, str]
    regrets: tuple[str, ...] = ()

    @property
    def at(self) -> datetime:
        """The time of the round."""
        return self.machines.at


def inventory(
    observation: Observation, decisions: Sequence[Decision], reviews: Sequence[Review], rules: Rulebook | None
) -> Inventory:
    """What one round saw. `rules` are those that it was decided by; an early ledger does not have them."""
    nodes, ours = observation.fleet.nodes, tuple(counted_nodes(observation.fleet))
    running = [node for node in ours if node.state is NodeState.RUNNING]
    return Inventory(
        machines=Machines(
            at=observation.now,
            states=_count_words(node.state.value for node in ours),
            uses=_count_words(node.activity.state.value for node in running),
            idle=tuple(
                sorted(
                    _idle(observation, running, decisions, reviews, rules),
                    key=lambda each: (-each.held_seconds, each.node_id),
                )
            ),
            stopped=tuple(
                sorted(
                    _stopped_machines(observation), key=lambda each: (each.since is None, str(each.since), each.node_id)
                )
            ),
            foreign=len(nodes) - len(ours),
        ),
        health=_health(observation, [node for node in nodes if node.state is NodeState.RUNNING]),
        jobs=tuple(
            UnusedJob(
                job=each.job.id,
                user=each.job.user,
                node_id=each.node.id,
                pool=each.node.pool,
                gpus=each.job.gpus,
                unused_gpus=each.unused,
                held_seconds=each.held_seconds,
                usd_per_hour=each.usd_per_hour,
            )
            for each in unused_jobs(observation)
        ),
        names={node.id: node.name for node in nodes},
        clouds={node.id: node.cloud for node in nodes if node.cloud},
        regrets=tuple(regret_sentences(observation)),
    )


def _idle(
    observation: Observation,
    running: Iterable[Node],
    decisions: Sequence[Decision],
    reviews: Sequence[Review],
    rules: Rulebook | None,
) -> Iterator[Idle]:
    """Those without use, each with what is decided about it."""
    steps = {step.node_id: step for decision in decisions for step in decision.steps}
    refused = {review.step.node_id: review.refusals for review in reviews if review.refusals}
    outlook = None if rules is None else Outlook(observation, rules)
    for node in running:
        if node.activity.state in _OF_NO_USE:
            step, price, refusals = steps.get(node.id), observation.price(node), refused.get(node.id, ())
            yield Idle(
                node_id=node.id,
                name=node.name,
                pool=node.pool,
                owner=node.owner,
                state=node.activity.state,
                held_seconds=node.activity.held_seconds,
                usd_per_hour=None if price is None else price.usd_per_hour,
                next=Verb.HOLD if step is None or refusals else step.verb,
                why=_why(node, step, refusals, outlook),
            )


def _why(node: Node, step: Step | None, refusals: Sequence[Answer], outlook: Outlook | None) -> str:
    """The sentence that `gpuwatch status` shows."""
    if step is None:
        return "nothing was decided about it"
    return reason_with_refusals(step, refusals) if outlook is None else outlook.next_action(node, step, refusals)[1]


def _stopped_machines(observation: Observation) -> Iterator[Stopped]:
    """Each with the stop of ours that holds, if there is one."""
    for node in observation.fleet.nodes:
        if node.state in _OFF:
            ours = observation.ledger.own_stop(node)
            yield Stopped(
                node_id=node.id,
                name=node.name,
                pool=node.pool,
                owner=node.owner,
                by_gpuwatch=ours is not None,
                since=None if ours is None else ours.at,
            )


def _health(observation: Observation, running: Iterable[Node]) -> FleetHealth:
    """The GPUs with a verdict."""
    gpus = [(node, gpu) for node in running if node.verdict is not None for gpu in node.verdict.gpus]
    sick = [
        SickGpu(
            node_id=node.id,
            gpu=gpu.uuid if gpu.index is None else str(gpu.index),
            health=gpu.health.state,
            since=gpu.health.since,
            remedy=gpu.health.remedy,
            why=gpu.health.findings[0].sentence if gpu.health.findings else gpu.health.doubt or "",
        )
        for node, gpu in gpus
        if gpu.health is not None and gpu.health.state in {Health.FAILING, Health.DEGRADED}
    ]
    return FleetHealth(
        at=observation.now,
        gpus=_count_words((Health.UNKNOWN if gpu.health is None else gpu.health.state).value for _, gpu in gpus),
        not_well=tuple(sorted(sick, key=lambda each: (_WORST_FIRST.index(each.health), each.node_id, each.gpu))),
    )


def _count_words(words: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(words).items()))
