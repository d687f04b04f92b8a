"""PURE: back to spot: the launch comes first, and a node on demand goes once spot works in its place.

Rules, all of them:

1. Nodes on demand beyond the pool's shares stand in for spot. While any of them may go, so many spot nodes as `surge`
   says are launched on top of what is wanted; of no offer that rests, and never on demand.
2. A node may be removed if it is idle, by the idle policy's own wait, notice and grace; or if its people consent:
   `interruptible: any` or `batch` on the pool, and the tag `gpuwatch:interruptible: true` on the machine. Both are
   needed, and either ends it. Only then may a node go that works, after a notice of `give_back_notice`.
3. Nodes of a Kubernetes cluster and members of groups go once they are idle, whatever their tags say.
4. So many go as spot nodes work in their places: what is left is never less than is wanted.
5. A node that is younger than the pool's warm-up, or than `back_to_spot_after`, stays, and no spot is launched for it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from gpuwatch.model.decision import INTERRUPTIBLE_TAG, LETS_GO, Observation, Reason, Step, Verb
from gpuwatch.model.duration import format_duration
from gpuwatch.model.fleet import CapacityType, Node, NodeState
from gpuwatch.policies import capacity, notices
from gpuwatch.policies.idle_settings import IdleRules
from gpuwatch.policies.launches import Need, Sources, launches
from gpuwatch.policies.spot.mix import Has, MixRules, goal, shares
from gpuwatch.policies.spot.records import CAPACITY, SPOT
from gpuwatch.policies.spot.settings import INTERRUPTIBLE, OfferRules, Offers

CODE = "back_to_spot"  # of the reasons of all its steps
_REMOVES = frozenset({"stop", "terminate"})


class Rules(Protocol):
    """What of a pool's rules matters here."""

    @property
    def offers(self) -> Mapping[str, OfferRules]:
        """Where its nodes come from."""
        ...

    @property
    def sources(self) -> Sources:
        """The same with the mix, or the template of a pool without offers."""
        ...

    @property
    def capacity(self) -> MixRules:
        """How they divide."""
        ...

    @property
    def interruptible(self) -> str:
        """Whether its work may be interrupted."""
        ...

    @property
    def idle(self) -> IdleRules:
        """How nodes are removed."""
        ...

    @property
    def warm_up(self) -> float:
        """For how long no node is touched, in seconds."""
        ...


def against(node: Node, rules: Rules) -> str | None:
    """Why a node that works is not given back, as a sentence; None: its people consent."""
    if rules.interruptible not in INTERRUPTIBLE:
        return "The pool's work must not be interrupted."
    if node.capacity_type is not CapacityType.ON_DEMAND or not _spot(rules):
        return "It does not stand in for spot."
    if node.kubernetes is not None or node.group is not None:
        return "A Kubernetes node or a member of a group is given back only once it is idle."
    if node.tags.get(INTERRUPTIBLE_TAG, "").strip().casefold() != "true":
        return f"Its tag {INTERRUPTIBLE_TAG} does not say true."
    return None


def stand_ins(observation: Observation, pool: str, wanted: int, rules: Rules) -> int:
    """How many nodes on demand are there in the place of spot."""
    if not _spot(rules):
        return 0
    has = nodes_now(observation, pool, rules)
    _, fixed = shares(wanted, _mix(observation, pool, rules, has))
    return max(0, has.on_demand - fixed)


def ahead(observation: Observation, pool: str, wanted: int | None, rules: Rules, decided: Sequence[Step]) -> list[Step]:
    """Rule 1: the launches of spot in the place of nodes that may go; `decided` are the steps of the other policies."""
    extra = capacity.now(observation, pool) - (wanted or 0)
    if wanted is None or extra < 0 or extra >= rules.capacity.surge or not isinstance(rules.sources, Offers):
        return []
    leave = {step.node_id for step in decided if step.verb in LETS_GO}
    able = [node for node in _firm(observation, pool) if _old(node, observation, rules) and _may_go(node, rules, leave)]
    count = min(len(able), stand_ins(observation, pool, wanted, rules))
    missing = min(rules.capacity.surge, count) - extra
    if missing <= 0:
        return []
    who, go = ("A node on demand stands", "it goes") if count == 1 else (f"{count} nodes on demand stand", "they go")
    reason = Reason(code=CODE, sentence=f"{who} in for spot: spot is asked for first, and {go} once it works.")
    need = Need(missing=missing, wanted=wanted, coming=capacity.launching(observation, pool))
    asked = launches(observation, pool, need, rules.sources, reason)
    return [step for step in asked if step.arguments.get(CAPACITY) == SPOT]


def stepped(
    steps: tuple[Step, ...], observation: Observation, pool: str, wanted: int | None, rules: Rules
) -> tuple[Step, ...]:
    """Rules 2 to 5: the steps; nodes with consent give their places to the spot nodes that work."""
    if wanted is None or not _spot(rules) or rules.idle.action not in _REMOVES:
        return steps
    has = nodes_now(observation, pool, rules)
    leave = {step.node_id for step in steps if step.verb in LETS_GO}
    firm = _firm(observation, pool)
    spare = (
        has.on_demand
        - goal(wanted, has, _mix(observation, pool, rules, has)).on_demand
        - sum(node.id in leave for node in firm)
    )
    able = [node for node in firm if node.id not in leave and _old(node, observation, rules)]
    able = [node for node in able if _consents(node, rules)]
    able.sort(key=lambda node: (observation.ledger.notice(node.id) is None, -_started(node), node.id))
    going = {node.id: node for node in able[: max(0, spare)]}
    return tuple(
        [_step(step, going[step.node_id], observation, rules) if step.node_id in going else step for step in steps]
    )


def first(removals: Sequence[Step], observation: Observation, pool: str, wanted: int, rules: Rules) -> list[Step]:
    """The removals in the same order, but first so many nodes on demand as stand in for spot."""
    kinds = {node.id: node.capacity_type for node in observation.fleet.roster(pool).nodes}
    on_demand = [step for step in removals if kinds.get(step.node_id) is CapacityType.ON_DEMAND]
    early = {step.node_id for step in on_demand[: stand_ins(observation, pool, wanted, rules)]}
    return sorted(removals, key=lambda step: step.node_id not in early)


def _spot(rules: Rules) -> bool:
    return any(each.capacity == SPOT for each in rules.offers.values())


def _there(observation: Observation, pool: str) -> list[Node]:
    """The pool's nodes that run or come up, without those that are being removed, or that their cloud is to take."""
    leaving = capacity.leaving(observation)
    nodes = [node for node in observation.fleet.roster(pool).nodes if node.enrolled and node.cloud_notice is None]
    return [node for node in nodes if node.state in capacity.THERE and node.id not in leaving]


def _firm(observation: Observation, pool: str) -> list[Node]:
    """Those on demand that run; what is reserved or prepaid is paid for and stays."""
    return [
        node
        for node in _there(observation, pool)
        if node.capacity_type is CapacityType.ON_DEMAND and node.state is NodeState.RUNNING
    ]


def nodes_now(observation: Observation, pool: str, rules: Rules) -> Has:
    """The pool's nodes now. A spot node works once work can be given to it."""
    nodes, sound = _there(observation, pool), observation.fleet.roster(pool).sound
    spot = [node for node in nodes if node.capacity_type is CapacityType.SPOT]
    working = sum(node.id in sound for node in spot)
    names = capacity.launching(observation, pool)
    coming = sum(name in rules.offers and rules.offers[name].capacity == SPOT for name in names)
    return Has(
        spot_working=working,
        spot_coming=len(spot) - working + coming,
        on_demand=len(nodes) - len(spot) + len(names) - coming,
    )


def _mix(observation: Observation, pool: str, rules: Rules, has: Has) -> MixRules:
    """How the nodes divide now; a deadline decides it again in each round."""
    if not isinstance(rules.sources, Offers):
        return rules.capacity
    return rules.sources.mix_now(observation, pool, spot=has.spot_working + has.spot_coming, firm=has.on_demand)


def _old(node: Node, observation: Observation, rules: Rules) -> bool:
    """Rule 5."""
    least = max(rules.warm_up, rules.capacity.back_to_spot_after)
    return node.launched_at is not None and (observation.now - node.launched_at).total_seconds() >= least


def _started(node: Node) -> float:
    return 0.0 if node.launched_at is None else node.launched_at.timestamp()


def _consents(node: Node, rules: Rules) -> bool:
    return against(node, rules) is None and node.protected is None and node.snoozed is None


def _may_go(node: Node, rules: Rules, leave: set[str]) -> bool:
    """Rule 2."""
    return node.id in leave or (_consents(node, rules) and rules.idle.action in _REMOVES)


def _step(step: Step, node: Node, observation: Observation, rules: Rules) -> Step:
    """One node's, where the idle policy has nothing under way with it."""
    notice, grace = observation.ledger.notice(node.id), rules.capacity.give_back_notice
    then = Verb.TERMINATE if rules.idle.action == "terminate" else Verb.STOP
    if notice is None:
        if step.verb not in {Verb.HOLD, Verb.NOTICE}:
            return step
        arguments = {"action": then.value, "grace_seconds": repr(grace)}
        sentence = "Spot works in its place, and its people consent to an interruption."
        return replace(_say(step, Verb.NOTICE, sentence, f"The tag {INTERRUPTIBLE_TAG} removed."), arguments=arguments)
    if notice.promise is None or notice.promise.idle_seconds is not None or step.reason.code == "notice_over":
        return step  # the idle policy's own
    if notices.sharper(notice, then) is not None:
        return step
    left = notices.left_seconds(notice, node, grace, observation.now)
    sentence = f"Spot works in its place. {notices.promised(notice)}"
    if left > 0:
        change = f"It stays if spot is lost, or its tag is removed, within {format_duration(left)}."
        return _say(step, Verb.HOLD, f"{sentence}.", change)
    return _say(step, then, f"{sentence}, which has passed.", f"The tag {INTERRUPTIBLE_TAG} removed.")


def _say(step: Step, verb: Verb, sentence: str, change: str) -> Step:
    reason = Reason(code=CODE, sentence=sentence, evidence=step.reason.evidence)
    return Step(node_id=step.node_id, verb=verb, reason=reason, change=change)
