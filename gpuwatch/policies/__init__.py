"""PURE: policies look at one pool of an observation and propose; none acts, sleeps or remembers.

A new policy is one file with its settings and a `propose`, a field of `PoolRules`, and an entry of `POLICIES`. The
docstring of the entry says what it wants and what sets it up. `resolve` makes one decision of all proposals.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, MinLen

from gpuwatch.model.decision import Observation, Proposal, Reason
from gpuwatch.model.duration import Seconds
from gpuwatch.model.fleet import Fleet
from gpuwatch.model.setting import STRICT, Floor, Setting
from gpuwatch.policies import batch, elsewhere, idle, scale_in_protection, scaling, schedule, unknown_pool
from gpuwatch.policies.health_settings import HealthRules
from gpuwatch.policies.idle_settings import IdleRules, resolve_rules
from gpuwatch.policies.idle_timeout.keep_warm import keep_warm
from gpuwatch.policies.idle_timeout.working_time import Office, office_of
from gpuwatch.policies.kubernetes.obstacles import is_joined
from gpuwatch.policies.kubernetes.settings import KubernetesRules
from gpuwatch.policies.launches import LaunchRules, Sources
from gpuwatch.policies.profiles import ProfileName
from gpuwatch.policies.resolving import resolve
from gpuwatch.policies.scaling import ScalingRules
from gpuwatch.policies.schedule import Window
from gpuwatch.policies.sizes import NODES, Sizes, Unit
from gpuwatch.policies.spot.batch import BatchRules
from gpuwatch.policies.spot.mix import MixRules
from gpuwatch.policies.spot.settings import OfferRules, Offers
from gpuwatch.policies.starts import Startable

__all__ = ["POLICIES", "Policy", "PoolRules", "propose", "resolve"]


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
    unit: Annotated[
        Unit,
        Setting(
            "What the pool's size is counted in: nodes, or gpus where its machines have different numbers of GPUs. "
            "Then wishes, floors, shares and steps are in GPUs; see docs/policies/spot.md#machines-of-different-sizes."
        ),
    ] = "nodes"
    min_nodes: Annotated[int, Ge(0), Setting("So many nodes of the pool are always left running.")] = 0
    max_nodes: Annotated[
        int | None,
        Ge(0),
        Setting(
            "The pool never grows above so many nodes. None: above half as many again as it needs, and four more at "
            "least; see docs/guard.md#max_nodes."
        ),
    ] = None
    min_gpus: Annotated[
        int, Ge(0), Setting("So many GPUs of the pool are always left running, where unit is gpus.")
    ] = 0
    max_gpus: Annotated[
        int | None,
        Ge(0),
        Setting("The pool never grows above so many GPUs, where unit is gpus; max_nodes may hold as well."),
    ] = None
    surge_nodes: Annotated[
        int | None,
        Ge(0),
        Setting(
            "So many nodes above max_nodes may run while nodes that their cloud is about to take are replaced (above "
            "max_gpus, the GPUs of so many of these). None: as many as those. The pool never runs more than twice its "
            "maximum, whatever stands here."
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
            "Several places to launch from, by a name of your choice, in place of `launch`; see "
            "docs/policies/spot.md#a-pool-with-offers."
        ),
    ] = field(default_factory=dict)
    capacity: Annotated[
        MixRules, Setting("How the nodes divide between spot and on demand, where the pool has offers.")
    ] = field(default_factory=MixRules)
    interruptible: Annotated[
        Literal["never", "batch", "any"],
        Setting(
            "Whether its work may be interrupted by the cloud. never: the pool has no spot offers. batch: it has a "
            "deadline (`batch`); see docs/policies/spot.md#what-may-be-interrupted."
        ),
    ] = "never"
    batch: Annotated[
        BatchRules,
        Setting(
            "The work and its deadline, where `interruptible` is batch; see docs/policies/spot.md#work-with-a-deadline."
        ),
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
        job, mix = self.batch if self.batch.work else None, self.capacity
        mix = mix if self.unit == "nodes" else replace(mix, surge=self.surge)
        return Offers(offers=self.offers, mix=mix, batch=job) if self.offers else self.launch

    def sizes(self, fleet: Fleet) -> Sizes:
        """What each machine counts: for its type a machine that is there speaks louder than an offer."""
        if self.unit == "nodes":
            return NODES
        offered = {each.instance_type: each.gpus for each in self.offers.values() if each.instance_type}
        return Sizes(gpus={kind: gpus for kind, gpus in offered.items() if gpus is not None} | fleet.gpus_of_types)

    @property
    def least(self) -> int:
        """Its minimum in what it counts."""
        return self.min_nodes if self.unit == "nodes" else self.min_gpus

    @property
    def most(self) -> int | None:
        """Its maximum in what it counts."""
        return self.max_nodes if self.unit == "nodes" else self.max_gpus

    @property
    def office(self) -> Office:
        """When its people are at work, as far as its schedule says."""
        return office_of(self.schedule)

    @property
    def surge(self) -> int:
        """`capacity.surge` in what the pool counts: of GPUs, so many machines of its largest offer."""
        largest = max((each.gpus or 1 for each in self.offers.values()), default=1)
        return self.capacity.surge * (1 if self.unit == "nodes" else largest)

    @property
    def launches(self) -> bool:
        """Whether anything may be launched for it."""
        return bool(self.offers) or self.launch.template is not None

    @property
    def adds(self) -> bool:
        """Whether anything may be launched or started for it."""
        return self.launches or bool(self.schedule or self.scaling.metrics or self.health.action == "replace")

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> dict[str, Any]:  # noqa: ANN401  pydantic's protocol is untyped here
        """What is read has plain values: its profile fills in what nobody has written."""

        def read(raw: Any, validated: Callable[[Any], PoolRules]) -> PoolRules:  # noqa: ANN401  anything may be written
            rules = validated(raw)
            if isinstance(raw, PoolRules):
                return rules
            idle_raw = raw.get("idle") if isinstance(raw, Mapping) else None
            written = frozenset(idle_raw) if isinstance(idle_raw, Mapping) else frozenset()
            return replace(rules, idle=resolve_rules(rules.idle, rules.profile, written))

        function = {"type": "no-info", "function": read}
        return {"type": "function-wrap", "function": function, "schema": handler(source)}


def _idle(
    observation: Observation, pool: str, rules: PoolRules, *, steps_of: idle.StepsOf = idle.each_step
) -> Proposal:
    """Notice, then stop or termination of idle nodes, except those that are about to be needed.

    Set up by `pools.<name>.idle`.
    """
    effective = _idle_rules(observation, rules)
    proposal = elsewhere.hold_elsewhere(
        idle.propose(observation, pool, effective, office=rules.office, steps_of=steps_of), observation, rules.clouds
    )
    return keep_warm(observation, proposal, effective, rules.schedule, rules.sizes(observation.fleet))


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
    sizes = rules.sizes(observation.fleet)
    return scaling.propose(observation, pool, rules.scaling, warm_up=rules.warm_up, sizes=sizes, start=rules.start)


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
    ours = partial(is_joined, rules=rules.kubernetes)
    return scale_in_protection.propose(observation, pool, _idle_rules(observation, rules), ours=ours)


def _bounds(observation: Observation, pool: str, rules: PoolRules) -> Proposal:
    """Never fewer and never more nodes than these.

    Set up by `pools.<name>.min_nodes`, `pools.<name>.max_nodes`, `pools.<name>.min_gpus`, `pools.<name>.max_gpus`.
    """
    del observation
    counts = rules.unit == "gpus"
    most = "" if rules.most is None else f" and at most {rules.most}"
    most += f", on at most {rules.max_nodes} nodes" if counts and rules.max_nodes is not None else ""
    sentence = f"The pool keeps at least {rules.least} {'GPUs' if counts else 'nodes'}{most}."
    reason = Reason(code="bounds", sentence=sentence)
    return Proposal(policy="bounds", pool=pool, reason=reason, min_nodes=rules.least, max_nodes=rules.most)


Policy = Callable[[Observation, str, PoolRules], Proposal | None]
POLICIES: dict[str, Policy] = {
    "idle": _idle,
    "scaling": _scaling,
    "schedule": _schedule,
    "batch": _batch,
    "shield": _shield,
    "bounds": _bounds,
}


def propose(
    observation: Observation,
    pool: str,
    rules: PoolRules,
    *,
    doubt: str | None = None,
    steps_of: idle.StepsOf = idle.each_step,
) -> tuple[Proposal, ...]:
    """Every policy's proposal for one pool, those that hold included.

    `doubt` is why nobody knows which rules are the pool's: then no policy is asked what to do with it.
    `steps_of` gives the idle policy's steps: those of each node, or of a simulation that knows most of them.
    """
    if doubt is not None:
        return (unknown_pool.propose(observation, pool, doubt),)
    asked: dict[str, Policy] = POLICIES | {"idle": partial(_idle, steps_of=steps_of)}
    return tuple(proposal for policy in asked.values() if (proposal := policy(observation, pool, rules)) is not None)
