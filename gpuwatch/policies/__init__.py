"""PURE: policies look at one pool of an observation and propose; none acts, sleeps or remembers.

A new policy is one file with its settings and a `propose`, a field of `PoolRules`, and an entry of `POLICIES`. The
docstring of the entry says what it wants and what sets it up. `resolve` makes one decision of all proposals for a
pool: the largest wish, then minimums, then maximums, and every limit that took effect is a sentence.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from itertools import chain
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, MinLen

from gpuwatch.model.decision import LETS_GO, Decision, Observation, Proposal, Reason, Step, Verb
from gpuwatch.model.duration import Seconds
from gpuwatch.model.proposal import Steps, changing
from gpuwatch.model.setting import STRICT, Floor, Setting
from gpuwatch.policies import (
    batch,
    capacity,
    elsewhere,
    floors,
    idle,
    kubernetes,
    next_offer,
    notices,
    replacement,
    scale_in_protection,
    scaling,
    schedule,
    slurm_sick,
    stuck_actions,
    uncounted,
    unknown_pool,
)
from gpuwatch.policies.capacity import Startable
from gpuwatch.policies.health_settings import HealthRules
from gpuwatch.policies.idle_settings import IdleRules, resolved
from gpuwatch.policies.idle_timeout.keep_warm import keep_warm
from gpuwatch.policies.kubernetes_obstacles import joined
from gpuwatch.policies.kubernetes_settings import KubernetesRules
from gpuwatch.policies.launches import LaunchRules, Sources
from gpuwatch.policies.profiles import ProfileName
from gpuwatch.policies.scaling import ScalingRules
from gpuwatch.policies.schedule import Window
from gpuwatch.policies.spot import back
from gpuwatch.policies.spot.batch import BatchRules
from gpuwatch.policies.spot.mix import MixRules
from gpuwatch.policies.spot.settings import OfferRules, Offers
from gpuwatch.policies.step_cache import StepCache


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRules:
    """One pool's settings; a node's pool is its tag gpuwatch:pool, or `default`.

    `idle` has plain values: those that `profile` decides were filled in when the settings were read.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    profile: Annotated[
        ProfileName,
        Setting(
            "How bold the pool is: cautious removes idle nodes alone, balanced also what somebody left behind, after "
            "20 h; eager is for batch pools. It decides the settings of `idle` that say so, where they are not written."
        ),
    ] = "balanced"
    clouds: Annotated[
        tuple[Annotated[str, MinLen(1)], ...],
        Setting("The clouds that its nodes may be in; nodes elsewhere are left alone. None given: all clouds."),
    ] = ()
    regions: Annotated[
        tuple[Annotated[str, MinLen(1)], ...],
        Setting(
            "The regions in which nodes may be started, launched or added to groups, such as eu-central-1 or eu-*. "
            "None given: all regions."
        ),
    ] = ()
    min_nodes: Annotated[int, Ge(0), Setting("So many nodes of the pool are always left running.")] = 0
    max_nodes: Annotated[
        int | None, Ge(0), Setting("The pool never grows above so many nodes. None: only the limits hold.")
    ] = None
    surge_nodes: Annotated[
        int | None,
        Ge(0),
        Setting(
            "So many nodes above max_nodes may run while nodes that their cloud is about to take are replaced. None: "
            "as many as those, and max_nodes at most."
        ),
    ] = None
    warm_up: Annotated[
        Seconds,
        Ge(0),
        Floor(60, or_none=True),
        Setting("A node started more recently than this is not touched, whatever it shows."),
    ] = 900.0
    approval: Annotated[
        bool,
        Setting(
            "Nodes that have had their notice go only once an operator approves it (`gpuwatch approve`, the page)."
        ),
    ] = False
    idle: Annotated[IdleRules, Setting("When idle nodes of the pool are reclaimed.")] = field(default_factory=IdleRules)
    scaling: Annotated[
        ScalingRules, Setting("How many nodes the load needs; without metrics the pool never follows it.")
    ] = field(default_factory=ScalingRules)
    schedule: Annotated[
        dict[str, Window], Setting("Floors and ceilings by the clock, such as office hours, by a name of your choice.")
    ] = field(default_factory=dict)
    start: Annotated[
        Startable,
        Setting(
            "Which stopped nodes may be started for scaling and schedules. own: those that gpuwatch stopped; any: also "
            "those that somebody else stopped, once an hour at most."
        ),
    ] = "own"
    launch: Annotated[
        LaunchRules, Setting("Where new nodes come from when no stopped node and no group is left to grow.")
    ] = field(default_factory=LaunchRules)
    offers: Annotated[
        dict[str, OfferRules],
        Setting(
            "Several places to launch from, by a name of your choice, in place of `launch`; see docs/policies/spot.md."
        ),
    ] = field(default_factory=dict)
    capacity: Annotated[
        MixRules, Setting("How the nodes divide between spot and on demand, where the pool has offers.")
    ] = field(default_factory=MixRules)
    interruptible: Annotated[
        Literal["never", "batch", "any"],
        Setting(
            "Whether its work may be interrupted by the cloud. never: the pool has no spot offers. batch: it has a "
            "deadline (`batch`); see docs/policies/spot.md."
        ),
    ] = "never"
    batch: Annotated[
        BatchRules, Setting("The work and its deadline, where `interruptible` is batch; see docs/policies/spot.md.")
    ] = field(default_factory=BatchRules)
    kubernetes: Annotated[
        KubernetesRules, Setting("What holds for those of its nodes that are in a Kubernetes cluster.")
    ] = field(default_factory=KubernetesRules)
    health: Annotated[HealthRules, Setting("What happens to its nodes with a failing GPU.")] = field(
        default_factory=HealthRules
    )

    def allows(self, region: str) -> bool:
        """Whether nodes may be added in this region."""
        return not self.regions or any(fnmatchcase(region, pattern) for pattern in self.regions)

    @property
    def sources(self) -> Sources:
        """Where its launches come from."""
        job = self.batch if self.batch.work else None
        return Offers(offers=self.offers, mix=self.capacity, batch=job) if self.offers else self.launch

    @property
    def launches(self) -> bool:
        """Whether anything may be launched for it."""
        return bool(self.offers) or self.launch.template is not None

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> dict[str, Any]:  # noqa: ANN401  pydantic's protocol is untyped here
        """What is read has plain values: its profile fills in what nobody has written."""

        def read(raw: Any, validated: Callable[[Any], PoolRules]) -> PoolRules:  # noqa: ANN401  anything may be written
            rules = validated(raw)
            if isinstance(raw, PoolRules):
                return rules
            idle_raw = raw.get("idle") if isinstance(raw, Mapping) else None
            written = frozenset(idle_raw) if isinstance(idle_raw, Mapping) else frozenset()
            return replace(rules, idle=resolved(rules.idle, rules.profile, written))

        function = {"type": "no-info", "function": read}
        return {"type": "function-wrap", "function": function, "schema": handler(source)}


def _idle(observation: Observation, pool: str, rules: PoolRules, *, cache: StepCache | None = None) -> Proposal:
    """Notice, then stop or termination of idle nodes, except those that are about to be needed.

    Set up by `pools.<name>.idle`.
    """
    effective = _idle_rules(observation, rules)
    proposal = elsewhere.held(idle.propose(observation, pool, effective, cache=cache), observation, rules.clouds)
    return keep_warm(observation, proposal, effective, rules.schedule)


def _idle_rules(observation: Observation, rules: PoolRules) -> IdleRules:
    """The idle rules; a schedule's window in force may shorten the wait, which is a written one then."""
    waits = [
        window.idle_timeout
        for window in schedule.in_force(rules.schedule, observation.now)
        if window.idle_timeout is not None
    ]
    if not waits:
        return rules.idle
    idle = rules.idle
    unattended = idle.unattended_grace_period if idle.fresh_seconds is None else idle.grace_period
    return replace(idle, timeout=min(waits), fresh_timeout=None, unattended_grace_period=unattended)


def _scaling(observation: Observation, pool: str, rules: PoolRules) -> Proposal | None:
    """As many nodes as the load needs.

    Set up by `pools.<name>.scaling`.
    """
    if not rules.scaling.metrics:
        return None
    return scaling.propose(observation, pool, rules.scaling, warm_up=rules.warm_up)


def _schedule(observation: Observation, pool: str, rules: PoolRules) -> Proposal | None:
    """At least, or at most, so many nodes at these hours.

    Set up by `pools.<name>.schedule`.
    """
    return schedule.propose(observation, pool, rules.schedule) if rules.schedule else None


def _batch(observation: Observation, pool: str, rules: PoolRules) -> Proposal | None:
    """The nodes of work with a deadline, until it is done.

    Set up by `pools.<name>.batch`.
    """
    return batch.propose(observation, pool, rules)


def _shield(observation: Observation, pool: str, rules: PoolRules) -> Proposal:
    """An Auto Scaling group's own scale-in takes idle members only.

    Set up by the group's tag `gpuwatch:fleet`.
    """
    ours = partial(joined, rules=rules.kubernetes)
    return scale_in_protection.propose(observation, pool, _idle_rules(observation, rules), ours=ours)


def _bounds(observation: Observation, pool: str, rules: PoolRules) -> Proposal:
    """Never fewer and never more nodes than these.

    Set up by `pools.<name>.min_nodes`, `pools.<name>.max_nodes`.
    """
    del observation
    most = "" if rules.max_nodes is None else f" and at most {rules.max_nodes}"
    sentence = f"The pool keeps at least {rules.min_nodes} nodes{most}."
    return Proposal(
        policy="bounds",
        pool=pool,
        reason=Reason(code="bounds", sentence=sentence),
        min_nodes=rules.min_nodes,
        max_nodes=rules.max_nodes,
    )


Policy = Callable[[Observation, str, PoolRules], Proposal | None]
POLICIES: dict[str, Policy] = {
    "idle": _idle,
    "scaling": _scaling,
    "schedule": _schedule,
    "batch": _batch,
    "shield": _shield,
    "bounds": _bounds,
}

# Where policies differ over one node, the safest verb wins; a start wins over what was meant for a stopped node.
# UNPROTECT stands right before TERMINATE: it is the first half of one, and nothing else gives way to it.
_SAFEST_FIRST = (
    Verb.UNCORDON,
    Verb.WITHDRAW,
    Verb.PROTECT,
    Verb.START,
    Verb.HOLD,
    Verb.NOTICE,
    Verb.MARK,
    Verb.UNMARK,
    Verb.QUARANTINE,
    Verb.EVACUATE,
    Verb.EVICT,
    Verb.CORDON,
    Verb.DRAIN,
    Verb.STOP,
    Verb.UNPROTECT,
    Verb.TERMINATE,
    Verb.SHRINK,
    Verb.GROW,
    Verb.LAUNCH,
)


def propose(
    observation: Observation,
    pool: str,
    rules: PoolRules,
    *,
    doubt: str | None = None,
    cache: StepCache | None = None,
) -> tuple[Proposal, ...]:
    """Every policy's proposal for one pool, those that hold included.

    `doubt` is why nobody knows which rules are the pool's: then no policy is asked what to do with it.
    `cache` holds the idle policy's earlier steps; it saves time and changes nothing.
    """
    if doubt is not None:
        return (unknown_pool.propose(observation, pool, doubt),)
    asked: dict[str, Policy] = POLICIES | {"idle": partial(_idle, cache=cache)}
    return tuple(proposal for policy in asked.values() if (proposal := policy(observation, pool, rules)) is not None)


def resolve(observation: Observation, pool: str, proposals: Sequence[Proposal], rules: PoolRules) -> Decision:
    """One decision of all proposals: what must stay, what must come, and a step for each node."""
    proposed = [proposal.steps for proposal in proposals if proposal.steps]
    steps = proposed[0] if len(proposed) == 1 else tuple(chain.from_iterable(proposed))
    wanted = max((proposal.desired_nodes for proposal in proposals if proposal.desired_nodes is not None), default=0)
    least = max((proposal.min_nodes for proposal in proposals if proposal.min_nodes is not None), default=0)
    most = min((proposal.max_nodes for proposal in proposals if proposal.max_nodes is not None), default=None)
    clamps = [proposal.reason.sentence for proposal in proposals if proposal.policy == batch.NAME]
    clamps += [f"A launch brought no node: {detail}." for detail in capacity.unseen(observation, pool)]
    clamps += [*uncounted.told(observation, pool), *next_offer.faults(observation, pool)]
    if going := capacity.taken(observation, pool):
        clamps.append(f"The cloud is about to take {going} node{'s' * (going > 1)}, which no longer count.")
    target, grows = None, any(proposal.grows for proposal in proposals)
    owed, short = (0, "") if grows else replacement.owed(observation, pool, rules.health)
    clamps += [short] if short else []
    if grows or owed:
        target = max(wanted, least, capacity.now(observation, pool) + owed if owed else 0)
        if wanted < least:
            clamps.append(f"{wanted} nodes are wanted, the floor is {least}.")
        if most is not None and target > most:
            clamps.append(f"{target} nodes are wanted, the ceiling is {most}.")
            target = most
        added = capacity.additions(observation, pool, target, rules.sources, rules.start)
        counted = capacity.now(observation, pool) + sum(map(capacity.adds, added))
        steps = (*steps, *uncounted.taken_back(observation, pool, target, counted), *added)
        steps = (*steps, *back.ahead(observation, pool, target, rules, steps))
        missing = target - counted
        if missing > 0:
            clamps.append(f"{missing} more nodes are needed and {_nothing(pool, rules)}.")
    steps = _safest(back.stepped(steps, observation, pool, target, rules))
    changes = {step.node_id: step for step in changing(steps)}

    # A wish keeps as many nodes as it wants, whatever else would remove them.
    kept, clamp = floors.kept(observation, pool, list(changes.values()), max(wanted, least), rules)
    clamps += [clamp] if clamp else []
    now = {node_id: _in_date(kept.get(node_id, step), observation) for node_id, step in changes.items()}
    if any(now[node_id] is not step for node_id, step in changes.items()):
        steps = Steps.of([now.get(step.node_id, step) for step in steps], changing(list(now.values())))
    return Decision(
        pool=pool,
        steps=replacement.noted(
            slurm_sick.all_stepped(kubernetes.stepped(steps, observation, rules), observation, rules.health),
            observation,
            rules.health,
        ),
        clamps=tuple(clamps),
        target=target,
        advice=(
            *(each for proposal in proposals for each in proposal.advice),
            *stuck_actions.advice(observation, pool),
        ),
    )


def _safest(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """One step for each node: where policies differ over one, the safest."""
    if isinstance(steps, Steps):  # of one policy
        return steps
    chosen: dict[str, Step] = {}
    for step in steps:
        rival = chosen.setdefault(step.node_id, step)
        if rival is not step:
            chosen[step.node_id] = min(step, rival, key=lambda each: _SAFEST_FIRST.index(each.verb))
    return tuple(chosen.values())


def _nothing(pool: str, rules: PoolRules) -> str:
    """Why missing nodes are not asked for."""
    if rules.offers:
        return "no offer may be asked now: each rests after a refusal, costs too much, or is not wanted yet"
    return (
        f"there is nothing to get them from: set pools.{pool}.launch, enrol a group, or let stopped nodes be started "
        f"(pools.{pool}.start)"
    )


def _in_date(step: Step, observation: Observation) -> Step:
    """The step; if it is a removal and its notice is out of date, the withdrawal of the notice. A new one follows."""
    notice = observation.ledger.notice(step.node_id) if step.verb in LETS_GO else None
    old = None if notice is None else notices.outdated(notice, observation.now)
    if old is None:
        return step
    reason = replace(step.reason, code="notice_over", sentence=f"{old}.")
    return replace(step, verb=Verb.WITHDRAW, reason=reason, change="A new notice follows if it still has no use.")
