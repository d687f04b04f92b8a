"""PURE: advice about what does not finish: an action on a machine that hangs, or that its cloud refuses; a start."""

from collections.abc import Iterator

from gpuwatch.model.decision import (
    GIVEN_UP,
    REMOVALS,
    SETTLE_TIMEOUT,
    Advice,
    Done,
    Observation,
    OpenIntent,
    Reason,
    Status,
)
from gpuwatch.model.duration import format_duration
from gpuwatch.model.fleet import NodeState
from gpuwatch.model.verbs import TargetKind

_PENDING = NodeState.PENDING  # for speed


def advice(observation: Observation, pool: str) -> Iterator[Advice]:
    """Advice for each node of the pool with a step that hangs, or with a removal that was given up as refused."""
    for entry in observation.ledger.open_intents:
        if entry.last is not None and entry.last.status is Status.UNSEEN:
            continue  # the advice for the pool says what to do
        if entry.intent.pool == pool and not entry.resumable and observation.now - entry.intent.at > SETTLE_TIMEOUT:
            yield Advice(target=entry.intent.node_id, reason=_hangs(observation, entry))
    for each in observation.fleet.roster(pool).nodes:
        if each.state is _PENDING and each.enrolled and each.launched_at is not None:
            age = observation.now - each.launched_at
            if age > SETTLE_TIMEOUT:
                yield Advice(target=each.id, reason=_pending(format_duration(age.total_seconds())))
    refused = {done.node_id: done for done in observation.ledger.recent if done.refused and done.verb in REMOVALS}
    for node_id, done in refused.items():
        node = observation.fleet.find(node_id)
        if done.pool == pool and node is not None and node.state is NodeState.RUNNING:
            yield Advice(target=node_id, reason=_refused_reason(done))


def _pending(age: str) -> Reason:
    """What begins to run and does not: it counts as one that is there."""
    # Of a machine that was started again some clouds give the time of its creation: nobody is told to end it.
    sentence = (
        f"The cloud shows it pending, with a start {age} ago. It counts as a node of its pool, so no other is added in "
        "its place. Look at it in the cloud's console."
    )
    return Reason(code="pending", sentence=sentence)


def _hangs(observation: Observation, entry: OpenIntent) -> Reason:
    """What was asked for long ago and does not show."""
    intent, node = entry.intent, observation.fleet.find(entry.intent.node_id)
    seen = "" if node is None else f": the cloud shows it {node.state.value}"
    age = format_duration((observation.now - intent.at).total_seconds())
    if intent.verb.target is TargetKind.CLUSTER_NODE:
        name, cluster = intent.arguments.get("node", intent.node_id), intent.arguments.get("cluster", "")
        sentence = (
            f"Its {intent.verb.value} was asked for {age} ago, and the cluster {cluster} does not show it. Look at "
            f"`kubectl describe node {name}`; docs/runbooks/controller.md#gpuwatchledgerunsettled says what to do."
        )
        return Reason(code="unsettled", sentence=sentence)
    if intent.verb.target is TargetKind.SLURM_NODE:
        name = intent.arguments.get("slurm_node", intent.node_id)
        sentence = (
            f"Its {intent.verb.value} was asked for {age} ago, and nobody knows whether Slurm has carried it out. "
        )
        return Reason(code="unsettled", sentence=f"{sentence}Look at `scontrol show node {name}`.")
    sentence = (
        f"Its {intent.verb.value} was asked for {age} ago and is not finished{seen}. It blocks no other "
        "machine. Look at it in the cloud's console; "
        "docs/runbooks/controller.md#gpuwatchledgerunsettled says what to do."
    )
    return Reason(code="unsettled", sentence=sentence)


def _refused_reason(done: Done) -> Reason:
    """What the cloud does not allow."""
    why = done.detail.removeprefix(GIVEN_UP)
    sentence = (
        f"The cloud refuses its {done.verb.value} ({why}), so it is left alone for limits.refusal_cooldown. Lift what "
        "forbids it there, let its pool `terminate` where a stop is impossible, or tag it gpuwatch:protect."
    )
    return Reason(code="refused", sentence=sentence)
