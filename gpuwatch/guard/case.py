"""One step under review, with all that a rule may look at, and how a rule answers.

A step is about a machine (a node, a group, a launch) or about a workload of a cluster. Most rules are on one of them
alone, and take its `Case` or `WorkloadCase`. What means the same for both is one rule: it takes a `Subject`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from gpuwatch.guard.mass_idleness import Burst, Bursts
from gpuwatch.guard.settings import Limits, Rulebook
from gpuwatch.model.decision import Intent, Observation, Step, Verb
from gpuwatch.model.duration import backoff_seconds
from gpuwatch.model.fleet import Node, NodeGroup, NodeState
from gpuwatch.model.promise import Notice
from gpuwatch.model.verbs import prepared_removal
from gpuwatch.policies import PoolRules, idle, notices
from gpuwatch.policies.kubernetes import idle_pods
from gpuwatch.policies.kubernetes import idle_pods_obstacles as pods
from gpuwatch.policies.kubernetes.idle_pods_settings import IdlePodRules
from gpuwatch.policies.kubernetes.workload_use import WorkloadUse
from gpuwatch.policies.spot import back


@dataclass(frozen=True, slots=True, kw_only=True)
class Surge:
    """How much more spot may come on top of what is wanted: for nodes that no rule of the guard keeps.

    `against` says of the first other node what stands against its removal.
    """

    left: int
    against: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One step under review that is about a machine.

    `node` is its node (None of a launch or a group), `group` the group that grows or that the node is a member of.
    `granted` are the steps allowed earlier in this round, `burst` the mass idleness that its node is part of, if any,
    `unknown_pool` the sentence that says why nobody knows which rules are the pool's. `wanted` is how large the pool is
    to be. Of a launch on top of that, `surge` is for what nodes it may be.
    """

    step: Step
    node: Node | None
    pool: str
    pool_rules: PoolRules
    limits: Limits
    observation: Observation
    enforce: bool
    burst: Burst | None
    group: NodeGroup | None = None
    granted: tuple[Step, ...] = ()
    unknown_pool: str | None = None
    wanted: int | None = None
    surge: Surge | None = None

    @property
    def machine(self) -> Node:
        """The node, for the rules that only nodes are put to."""
        assert self.node is not None  # noqa: S101  `judge` answers for steps whose node is gone
        return self.node

    @property
    def asleep(self) -> bool:
        """Whether the step is about a node that does not run: there is no use of it to know."""
        return self.node is not None and self.node.state is NodeState.STOPPED

    def counts(self, verbs: frozenset[Verb]) -> tuple[Step, ...]:
        """The steps of these verbs allowed earlier in this round."""
        return tuple([step for step in self.granted if step.verb in verbs]) if self.granted else ()

    @property
    def pools(self) -> tuple[str, ...]:
        """Return the pool of the step alone."""
        return (self.pool,)

    @property
    def places(self) -> tuple[Node | NodeGroup, ...]:
        """Its node, or the group that changes."""
        place = self.node or self.group
        return () if place is None else (place,)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Return the node of the step alone."""
        return (self.machine,)

    @property
    def wait_seconds(self) -> float:
        """For how long a node as it is has to be so before its notice; 0 where it is not removed for that."""
        return idle.choose_action(self.machine, self.observation, self.pool_rules.idle)[1] or 0.0

    @property
    def grace_seconds(self) -> float:
        """The grace that the pool gives for the step now."""
        if self.step.reason.code == back.CODE and not self.asleep:
            return self.pool_rules.capacity.give_back_notice
        rules = self.pool_rules
        return idle.grace_seconds(self.machine, self.observation, rules.idle, rules.office)

    def rules_of(self, pool: str) -> PoolRules:
        """The rules of its one pool."""
        del pool
        return self.pool_rules

    def burst_of(self, pool: str) -> Burst | None:
        """The sudden mass idleness that its node is suspected of."""
        del pool
        return self.burst

    def notice_over(self, notice: Notice) -> str | None:
        """Why a notice does not cover the removal; first of all, that it is withdrawn."""
        return (
            notices.withdrawn(notice, self.pool, self.machine.owner)
            or notices.sharper(notice, prepared_removal(self.step.verb, self.step.arguments))
            or notices.why_outdated(notice, self.observation.now)
        )

    def left_seconds(self, notice: Notice) -> float:
        """How long to wait, by the grace of the notice or of the pool now: the longer one."""
        return notices.left_seconds(notice, self.machine, self.grace_seconds, self.observation.now)

    def repeats(self, intent: Intent) -> bool:
        """Whether the step may follow: what was not done to a machine stands in the way of nothing else."""
        del intent
        return True

    def name_subject(self, place: Node | NodeGroup) -> str:
        """The machine that the step is about."""
        del place
        return "It"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadCase:
    """One step under review that is about a workload of a cluster; `use` is what its pods do.

    `granted` are the workloads that this round ends already, `notices` is how many it gives a notice. `bursts` are the
    sudden mass idleness of its pools, where there is one.
    """

    step: Step
    use: WorkloadUse
    observation: Observation
    rulebook: Rulebook
    bursts: Bursts | None = None
    granted: tuple[WorkloadUse, ...] = ()
    notices: int = 0

    @property
    def rules(self) -> Mapping[str, IdlePodRules]:
        """What its pools say of pods without use, by their names."""
        return self.rulebook.idle_pods(self.use.pools)

    @property
    def limits(self) -> Limits:
        """Return the limits of the fleet."""
        return self.rulebook.limits

    @property
    def enforce(self) -> bool:
        """Whether gpuwatch may act at all."""
        return self.rulebook.enforce

    @property
    def pools(self) -> tuple[str, ...]:
        """The pools of its pods' machines."""
        return self.use.pools

    @property
    def places(self) -> tuple[Node | NodeGroup, ...]:
        """The machines that its GPU pods are on."""
        return self.nodes

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The machines that its GPU pods are on."""
        return tuple({each.node.id: each.node for each in self.use.pods}.values())

    @property
    def asleep(self) -> bool:
        """Whether it does not run: never. Pods on a machine that does not run are not known."""
        return False

    @property
    def wait_seconds(self) -> float:
        """The longest wait of its pools; its people may ask for more."""
        return pods.wait_seconds(self.use, self.rules)

    @property
    def grace_seconds(self) -> float:
        """The longest grace of its pools."""
        return idle_pods.grace_seconds(self.use, self.rules)

    def rules_of(self, pool: str) -> PoolRules:
        """The rules of one of its pools."""
        return self.rulebook.pool(pool)

    def burst_of(self, pool: str) -> Burst | None:
        """The latest sudden mass idleness that its machines in one of its pools are suspected of."""
        if self.bursts is None:
            return None
        found = [self.bursts.on(pool, node) for node in self.nodes if node.pool == pool] or [self.bursts.on(pool)]
        return max((each for each in found if each is not None), key=lambda each: each.last, default=None)

    def notice_over(self, notice: Notice) -> str | None:
        """Why a notice does not cover the end of its pods, or not any more."""
        return idle_pods.notice_over(self.use, notice, self.observation.now)

    def left_seconds(self, notice: Notice) -> float:
        """How long to wait, by the agents of all of its machines."""
        return idle_pods.left_seconds(self.use, notice, self.grace_seconds, self.observation.now)

    def repeats(self, intent: Intent) -> bool:
        """Whether the step is the same; its pods may have come and gone since."""
        how = idle_pods.HOW
        return intent.verb is self.step.verb and intent.arguments.get(how) == self.step.arguments.get(how)

    def name_subject(self, place: Node | NodeGroup) -> str:
        """One machine of several."""
        return f"Its machine {place.name}"


# What a rule that means the same for both may take.
Subject = Case | WorkloadCase
# A rule's answer: whether it objects, the sentence, the remedy.
Finding = tuple[bool, str, str]


def allow(sentence: str) -> Finding:
    """No objection, and why."""
    return False, sentence, ""


def refuse(sentence: str, remedy: str) -> Finding:
    """An objection, and what would remedy it."""
    return True, sentence, remedy


def chosen_action(case: Case) -> str | None:
    """What the pool does with a node as it is; one that gives its place to spot goes as an idle one does."""
    if case.step.reason.code == back.CODE and back.against(case.machine, case.pool_rules) is None:
        return case.pool_rules.idle.action
    return idle.choose_action(case.machine, case.observation, case.pool_rules.idle)[0]


def final_verb(case: Case) -> Verb:
    """The step's verb; of a notice and of what prepares a removal, that of the removal."""
    if case.step.verb is not Verb.NOTICE:
        return prepared_removal(case.step.verb, case.step.arguments)
    return Verb.TERMINATE if case.asleep or chosen_action(case) == "terminate" else Verb.STOP


def retry_wait_seconds(attempts: int, *, denied: bool = False) -> float:
    """The wait after so many attempts: 30 s, doubled each time, at most 15 minutes.

    What the cloud does not allow takes somebody who changes a tag or a policy: 30 minutes, at most 4 hours.
    """
    first, most = (1800, 14400) if denied else (30, 900)
    return backoff_seconds(attempts, first=first, longest=most)
