"""PURE: policies look at one pool of an observation and propose; none acts, sleeps or remembers.

A new policy is one file with a `propose` and one line in `POLICIES`. `resolve` makes one decision of all proposals for
a pool: the largest wish, then floors, then ceilings, and every clamp is a sentence.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

from annotated_types import Ge

from gpuwatch.model.decision import Decision, Observation, Proposal, Reason, Step, Verb
from gpuwatch.model.knobs import STRICT, Knob, Seconds
from gpuwatch.policies import idle
from gpuwatch.policies.idle import IdleRules


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRules:
    """One pool's settings; a node's pool is its tag gpuwatch:pool, or `default`."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    min_nodes: Annotated[int, Ge(0), Knob("So many nodes of the pool are always left running.")] = 0
    warm_up: Annotated[
        Seconds, Ge(0), Knob("A node started more recently than this is not touched, whatever it shows.")
    ] = 900.0
    idle: Annotated[IdleRules, Knob("When idle nodes of the pool are reclaimed.")] = field(default_factory=IdleRules)


def _idle(observation: Observation, pool: str, rules: PoolRules) -> Proposal:
    """The idle policy with its part of the pool's rules."""
    return idle.propose(observation, pool, rules.idle)


def _floor(observation: Observation, pool: str, rules: PoolRules) -> Proposal:
    """The administrator's minimum."""
    del observation
    sentence = f"The pool keeps at least {rules.min_nodes} nodes."
    return Proposal(
        policy="floor", pool=pool, reason=Reason(code="min_nodes", sentence=sentence), at_least=rules.min_nodes
    )


Policy = Callable[[Observation, str, PoolRules], Proposal]
POLICIES: dict[str, Policy] = {"idle": _idle, "floor": _floor}

# Where policies differ over one node, the safest verb wins.
_SAFEST_FIRST = (Verb.WITHDRAW, Verb.HOLD, Verb.NOTICE, Verb.STOP)


def propose(observation: Observation, pool: str, rules: PoolRules) -> tuple[Proposal, ...]:
    """Every policy's proposal for one pool, those that hold included."""
    return tuple(policy(observation, pool, rules) for policy in POLICIES.values())


def resolve(observation: Observation, pool: str, proposals: Sequence[Proposal]) -> Decision:
    """One decision of all proposals."""
    chosen: dict[str, Step] = {}
    for step in (step for proposal in proposals for step in proposal.steps):
        rival = chosen.get(step.node_id, step)
        chosen[step.node_id] = min(step, rival, key=lambda each: _SAFEST_FIRST.index(each.verb))
    steps = list(chosen.values())

    floor = max((proposal.at_least for proposal in proposals if proposal.at_least is not None), default=0)
    nodes = {node.id: node for node in observation.fleet.roster(pool).nodes}
    running = len(observation.fleet.roster(pool).members)
    stops = sorted(
        (step for step in steps if step.verb is Verb.STOP),
        key=lambda step: (-nodes[step.node_id].activity.held_seconds, step.node_id),
    )
    kept = stops[max(0, running - floor) :]
    if not kept:
        return Decision(pool=pool, steps=tuple(steps))
    clamp = f"{len(stops)} stops were proposed, {len(stops) - len(kept)} leave the floor of {floor} running nodes."
    held = {step.node_id: _held(step, clamp) for step in kept}
    return Decision(pool=pool, steps=tuple(held.get(step.node_id, step) for step in steps), clamps=(clamp,))


def _held(step: Step, clamp: str) -> Step:
    """The step turned into a hold by a clamp."""
    reason = replace(step.reason, code="floor", sentence=f"{step.reason.sentence} {clamp}")
    return replace(step, verb=Verb.HOLD, reason=reason, change="A lower min_nodes, or another running node.")
