"""One step under review, with all that a rule may look at, and how a rule answers."""

from collections.abc import Callable
from dataclasses import dataclass

from gpuwatch.guard.mass_idleness import Burst
from gpuwatch.guard.settings import Limits
from gpuwatch.model.decision import Observation, Step, Verb
from gpuwatch.model.duration import backoff_seconds
from gpuwatch.model.fleet import Node, NodeGroup, NodeState
from gpuwatch.model.verbs import prepared
from gpuwatch.policies import PoolRules, idle
from gpuwatch.policies.spot import back


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One step under review.

    `node` is its node (None of a launch or a group), `group` the group that grows or that the node is a member of.
    `granted` are the steps allowed earlier in this round, `burst` the pool's sudden mass idleness if there is one,
    `unknown_pool` the sentence that says why nobody knows which rules are the pool's.
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


# A rule's answer: whether it objects, the sentence, the remedy.
Finding = tuple[bool, str, str]
Rule = Callable[[Case], Finding]


def allow(sentence: str) -> Finding:
    """No objection, and why."""
    return False, sentence, ""


def refuse(sentence: str, remedy: str) -> Finding:
    """An objection, and what would remedy it."""
    return True, sentence, remedy


def chosen(case: Case) -> str | None:
    """What the pool does with a node as it is; one that gives its place to spot goes as an idle one does."""
    if case.step.reason.code == back.CODE and back.against(case.machine, case.pool_rules) is None:
        return case.pool_rules.idle.action
    return idle.chosen(case.machine, case.observation, case.pool_rules.idle)[0]


def grace_seconds(case: Case) -> float:
    """The grace that the pool gives for the step now."""
    if case.step.reason.code == back.CODE and not case.asleep:
        return case.pool_rules.capacity.give_back_notice
    return idle.grace_seconds(case.machine, case.observation, case.pool_rules.idle)


def final_verb(case: Case) -> Verb:
    """The step's verb; of a notice and of what prepares a removal, that of the removal."""
    if case.step.verb is not Verb.NOTICE:
        return prepared(case.step.verb, case.step.arguments)
    return Verb.TERMINATE if case.asleep or chosen(case) == "terminate" else Verb.STOP


def retry_wait_seconds(attempts: int, *, denied: bool = False) -> float:
    """The wait after so many attempts: 30 s, doubled each time, at most 15 minutes.

    What the cloud does not allow takes somebody who changes a tag or a policy: 30 minutes, at most 4 hours.
    """
    first, most = (1800, 14400) if denied else (30, 900)
    return backoff_seconds(attempts, first=first, longest=most)
