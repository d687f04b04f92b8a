"""PURE: back to spot: the launch comes first, and a node on demand goes once spot works in its place.

Rules, all of them:

1. Nodes on demand beyond the pool's shares stand in for spot. While any of them may go, so many spot nodes as `surge`
   says are launched on top of what is wanted; of no offer that rests, and never on demand.
2. A node may be removed if it is idle, by the idle policy's own wait, notice and grace; or if its people consent:
   `interruptible: any` or `batch` on the pool, and the tag `gpuwatch:interruptible: true` on the machine. Both are
   needed, and either ends it. Only then may a node go that works, after a notice of `give_back_notice`.
3. Nodes of a Kubernetes cluster and members of groups go once they are idle, whatever their tags say.
4. So many go as spot nodes work in their places: what is left is never less than is wanted. Where the pool counts GPUs,
   a node goes whole, so spot of its size has to work; one that is larger than the surge stays.
5. A node that is younger than the pool's warm-up, or than `back_to_spot_after`, stays, and no spot is launched for it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from gpuwatch.model.decision import INTERRUPTIBLE_TAG, REMOVAL_STEPS, Observation, Reason, Step, Verb
from gpuwatch.model.duration import format_duration
from gpuwatch.model.fleet import CapacityType, Fleet, Node, NodeState
from gpuwatch.policies import machines, notices
from gpuwatch.policies.idle_settings import IdleRules
from gpuwatch.policies.launches import Sources, launches
from gpuwatch.policies.sizes import Need, Sizes
from gpuwatch.policies.spot.mix import Has, MixRules, goal, shares
from gpuwatch.policies.spot.records import BACK_TO_SPOT, CAPACITY, SPOT
from gpuwatch.policies.spot.settings import INTERRUPTIBLE, OfferRules, Offers

CODE = BACK_TO_SPOT
# Of the reasons of holds in the place of removals that a floor does not let happen yet.
HELD_BY_FLOOR = "min_nodes"
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
        """Return how spot and on-demand nodes divide."""
        ...

    @property
    def surge(self) -> int:
        """How much more than is wanted may be there while spot takes the places of nodes on demand."""
        ...

    def sizes(self, fleet: Fleet) -> Sizes:
        """What each machine counts."""
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
    def max_nodes(self) -> int | None:
        """The most nodes that the pool may have."""
        ...

    @property
    def max_gpus(self) -> int | None:
        """The most GPUs that it may have."""
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
    """How much of the pool is on demand in the place of spot."""
    if not _spot(rules):
        return 0
    has = nodes_now(observation, pool, rules)
    _, fixed = shares(wanted, _mix(observation, pool, rules, has))
    return max(0, has.on_demand - has.on_demand_coming - fixed)


def ahead(observation: Observation, pool: str, wanted: int | None, rules: Rules, decided: Sequence[Step]) -> list[Step]:
    """Rule 1: the launches of spot in the place of nodes that may go; `decided` are the steps of the other policies."""
    sizes = rules.sizes(observation.fleet)
    has, surge = machines.now(observation, pool, sizes), rules.surge
    extra = has - (wanted or 0)
    if wanted is None or extra < 0 or extra >= surge or not isinstance(rules.sources, Offers):
        return []
    going = _together(give_way(observation, pool, rules, decided), stand_ins(observation, pool, wanted, rules), sizes)
    missing = surge_left(observation, pool, wanted, rules, going)
    if missing <= 0 or machines.unsized_machines(observation, pool, sizes):
        return []
    several = len(going) > 1
    who, go = (f"{len(going)} nodes on demand stand", "they go") if several else ("A node on demand stands", "it goes")
    reason = Reason(code=CODE, sentence=f"{who} in for spot: spot is asked for first, and {go} once it works.")
    need = Need(missing=missing, wanted=wanted, sizes=sizes)
    if sizes.gpus is not None:
        need = replace(need, most=_room(rules.max_gpus, surge, has))
        need = replace(need, machines=_room(rules.max_nodes, rules.capacity.surge, machines.now(observation, pool)))
    asked = launches(observation, pool, need, rules.sources, reason)
    asked = [step for step in asked if step.arguments.get(CAPACITY) == SPOT]
    # A part of a node frees none: it would only be paid for as well.
    enough = extra + sizes.total(observation.fleet, asked) >= min(sizes.node(node) or 0 for node in going)
    return asked if enough else []


def give_way(observation: Observation, pool: str, rules: Rules, decided: Sequence[Step]) -> list[Node]:
    """The nodes on demand that may give their places to spot, by rules 1, 2 and 5; the guard may refuse some."""
    due = [step for step in decided if step.verb in REMOVAL_STEPS or step.reason.code == HELD_BY_FLOOR]
    leave, sizes = {step.node_id for step in due}, rules.sizes(observation.fleet)
    able = [node for node in _firm(observation, pool) if _old(node, observation, rules) and _may_go(node, rules, leave)]
    return [node for node in able if (sizes.node(node) or 0) <= rules.surge]


def surge_left(observation: Observation, pool: str, wanted: int, rules: Rules, able: Sequence[Node]) -> int:
    """How much more spot may come on top of what is wanted, in the places of these nodes."""
    sizes = rules.sizes(observation.fleet)
    going = _together(able, stand_ins(observation, pool, wanted, rules), sizes)
    extra = machines.now(observation, pool, sizes) - wanted
    return min(rules.surge, sum(sizes.node(node) or 0 for node in going)) - extra


def _room(most: int | None, surge: int, has: int) -> int | None:
    """How much may come on top of what the pool has, by its maximum and the surge; None: there is no limit."""
    return None if most is None else max(0, most + surge - has)


def _together(nodes: Sequence[Node], most: int, sizes: Sizes) -> list[Node]:
    """The first of them that together are no more than that."""
    found, total = list[Node](), 0
    for node in nodes:
        size = sizes.node(node)
        if size and total + size <= most:
            found.append(node)
            total += size
    return found


def back_steps(
    steps: tuple[Step, ...], observation: Observation, pool: str, wanted: int | None, rules: Rules
) -> tuple[Step, ...]:
    """Rules 2 to 5: the steps; nodes with consent give their places to the spot nodes that work."""
    if wanted is None or not _spot(rules) or rules.idle.action not in _REMOVES:
        return steps
    has, sizes = nodes_now(observation, pool, rules), rules.sizes(observation.fleet)
    leave = {step.node_id for step in steps if step.verb in REMOVAL_STEPS}
    firm = _firm(observation, pool)
    spare = (
        has.on_demand
        - has.on_demand_coming  # what only comes is no reason for anything to go
        - goal(wanted, has, _mix(observation, pool, rules, has)).on_demand
        - sum(sizes.node(node) or 0 for node in firm if node.id in leave)
    )
    able = [node for node in firm if node.id not in leave and _old(node, observation, rules)]
    able = [node for node in able if _consents(node, rules)]
    able.sort(key=lambda node: (observation.ledger.notice(node.id) is None, -_start_time(node), node.id))
    going = {node.id: node for node in _together(able, spare, sizes)}
    return tuple(
        [_step(step, going[step.node_id], observation, rules) if step.node_id in going else step for step in steps]
    )


def first(removals: Sequence[Step], observation: Observation, pool: str, wanted: int, rules: Rules) -> list[Step]:
    """The removals in the same order, but first those nodes on demand that stand in for spot."""
    nodes = {node.id: node for node in observation.fleet.roster(pool).nodes}
    firm = [node for step in removals if (node := nodes.get(step.node_id)) is not None]
    firm = [node for node in firm if node.capacity_type is CapacityType.ON_DEMAND]
    sizes, most = rules.sizes(observation.fleet), stand_ins(observation, pool, wanted, rules)
    early = {node.id for node in _together(firm, most, sizes)}
    return sorted(removals, key=lambda step: step.node_id not in early)


def _spot(rules: Rules) -> bool:
    return any(each.capacity == SPOT for each in rules.offers.values())


def _firm(observation: Observation, pool: str) -> list[Node]:
    """Those on demand that run; what is reserved or prepaid is paid for and stays."""
    return [
        node
        for node in machines.pool_machines(observation, pool).present
        if node.capacity_type is CapacityType.ON_DEMAND and node.state is NodeState.RUNNING
    ]


def nodes_now(observation: Observation, pool: str, rules: Rules) -> Has:
    """The pool's nodes now, by what each counts. A spot node works once work can be given to it."""
    found, sound = machines.pool_machines(observation, pool), observation.fleet.roster(pool).sound
    sizes, spot = rules.sizes(observation.fleet), CapacityType.SPOT
    nodes = [node for node in found.present if node.capacity_type is spot]
    working, all_spot = sizes.of_nodes([node for node in nodes if node.id in sound]), sizes.of_nodes(nodes)
    spot_coming = sizes.of_expected([each for each in found.coming if each.spot])
    firm_coming = sizes.of_expected(found.coming) - spot_coming
    unseen = sizes.of_nodes([node for node in found.unseen if node.capacity_type is not spot])
    return Has(
        spot_working=working,
        spot_coming=all_spot - working + spot_coming,
        on_demand=sizes.of_nodes(found.present) - all_spot + firm_coming,
        on_demand_coming=firm_coming + unseen,
    )


def _mix(observation: Observation, pool: str, rules: Rules, has: Has) -> MixRules:
    """How the nodes divide now; a deadline decides it again in each round."""
    if not isinstance(rules.sources, Offers):
        return rules.capacity
    return rules.sources.mix_now(observation, pool, spot=has.spot_working + has.spot_coming, firm=has.on_demand)


def _old(node: Node, observation: Observation, rules: Rules) -> bool:
    """Return whether an on-demand node may be replaced (rule 5)."""
    least = max(rules.warm_up, rules.capacity.back_to_spot_after)
    return node.launched_at is not None and (observation.now - node.launched_at).total_seconds() >= least


def _start_time(node: Node) -> float:
    return 0.0 if node.launched_at is None else node.launched_at.timestamp()


def _consents(node: Node, rules: Rules) -> bool:
    return against(node, rules) is None and node.protected is None and node.snoozed is None


def _may_go(node: Node, rules: Rules, leave: set[str]) -> bool:
    """Return whether a node may give its place (rule 2)."""
    return node.id in leave or (_consents(node, rules) and rules.idle.action in _REMOVES)


def _step(step: Step, node: Node, observation: Observation, rules: Rules) -> Step:
    """One node's, where the idle policy has nothing under way with it."""
    notice, grace = observation.ledger.notice(node.id), rules.capacity.give_back_notice
    then = Verb.TERMINATE if rules.idle.action == "terminate" else Verb.STOP
    if notice is None:
        if step.verb not in {Verb.HOLD, Verb.NOTICE}:
            return step
        arguments = {"action": then.value, "grace_seconds": repr(grace), "owner": node.owner or ""}
        sentence = "Spot works in its place, and its people consent to an interruption."
        return replace(
            _make_step(step, Verb.NOTICE, sentence, f"The tag {INTERRUPTIBLE_TAG} removed."), arguments=arguments
        )
    if notice.promise is None or notice.promise.idle_seconds is not None or step.reason.code == "notice_over":
        return step  # the idle policy's own
    if notices.sharper(notice, then) is not None:
        return step
    left = notices.left_seconds(notice, node, grace, observation.now)
    sentence = f"Spot works in its place. {notices.promise_words(notice)}"
    if left > 0:
        change = f"It stays if spot is lost, or its tag is removed, within {format_duration(left)}."
        return _make_step(step, Verb.HOLD, f"{sentence}.", change)
    return _make_step(step, then, f"{sentence}, which has passed.", f"The tag {INTERRUPTIBLE_TAG} removed.")


def _make_step(step: Step, verb: Verb, sentence: str, change: str) -> Step:
    reason = Reason(code=CODE, sentence=sentence, evidence=step.reason.evidence)
    return Step(node_id=step.node_id, verb=verb, reason=reason, change=change)
