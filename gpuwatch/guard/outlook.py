"""PURE: what comes next for a machine, in the one sentence that every surface shows, and what will refuse it.

`explain`, `status`, `plan`, the page and the report must not promise a stop that a rule already forbids. So what will
still refuse a removal when it is due is said from the first minute: the objections that no time lifts, by the rules
that `gpuwatch blocked` counts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cached_property

from gpuwatch.guard import Bursts, Case, Rulebook, case_of, find_bursts
from gpuwatch.guard.consent import wants_approval
from gpuwatch.guard.obstacles import Holds
from gpuwatch.guard.rules import RULES
from gpuwatch.model.decision import REMOVALS, Answer, LedgerView, Observation, Step, Verb, reason_with_refusals
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.model.nodes_page import NextAction, RequiredApproval
from gpuwatch.policies import idle, notices, undone
from gpuwatch.policies.idle_settings import IdleRules

_WAITING = frozenset({"waiting", "not_running"})
_REMOVES = frozenset(verb.value for verb in REMOVALS)
# What is no objection later: a verdict comes, a machine grows warm, people are told and limits let it go in their turn.
_PASSES = frozenset({"stale", "unknown", "warm_up"})
LASTS = tuple(
    name
    for name, rule in RULES.items()
    if rule.obstacle is not None and rule.holds is not Holds.WHEN_DUE and name not in _PASSES
)
# Of these the objections end at a time that they know. Nothing else is asked about later: an observation of another
# time counts pools anew, for each machine.
MAY_END = frozenset({"cooling_down", "left_alone", "paused", "snoozed"})
# What holds the whole fleet or a pool is told once, above the machines, and not with each of them.
_TOLD_ONCE = frozenset({"observe_only", "paused"})


def required_approval(node: Node, ledger: LedgerView, rules: Rulebook) -> RequiredApproval | None:
    """The approval that the node's removal requires. None: it requires none, or there is no notice to approve yet."""
    notice, approval = ledger.notice(node.id), ledger.approval(node.id)
    if notice is None or not wants_approval(rules.pool(node.pool), notice):
        return None
    if approval is None:
        return RequiredApproval(notice=notice.key)
    return RequiredApproval(notice=notice.key, who=approval.who, at=approval.at, reason=approval.reason)


class Outlook:
    """What comes next for the machines of one round."""

    def __init__(self, observation: Observation, rules: Rulebook) -> None:
        self.observation = observation
        self.rules = rules

    @cached_property
    def _bursts(self) -> Bursts:
        """The mass idleness of the round, which one machine's answer needs as all others' do."""
        return find_bursts(self.observation, self.rules.limits)

    def next_action(
        self, node: Node, step: Step, refusals: Sequence[Answer], *, late: bool = False
    ) -> tuple[NextAction | None, str]:
        """What happens next, and why the machine is treated so.

        Args:
            node: the machine.
            step: what the round decided about it.
            refusals: the guard's objections to that step.
            late: the step had no turn in its round, so the next round is next.

        Returns:
            The action (None: nothing comes, or its time is not known), and the sentence.

        """
        rules, now = self.rules.pool(node.pool), self.observation.now
        why = reason_with_refusals(step, refusals)
        grace = timedelta(seconds=idle.grace_seconds(node, self.observation, rules.idle, rules.office))
        if step.verb is not Verb.HOLD:
            at = now + timedelta(seconds=self.observation.interval_seconds) if late else now
            refused = tuple(answer.rule for answer in refusals)
            if step.verb is not Verb.NOTICE:
                return NextAction(verb=step.verb, at=at, refused_by=refused), why
            grace, removal = _announced_removal(step, grace)
            return NextAction(verb=step.verb, at=at, removal_at=at + grace, removal=removal, refused_by=refused), why
        if not node.enrolled or node.protected is not None or node.snoozed is not None:
            return None, why
        choice, wait = _choice(node, step, self.observation, rules.idle)
        if choice not in _REMOVES:
            return None, why
        removal, notice = Verb(choice or ""), self.observation.ledger.notice(node.id)
        waits = step.reason.code in _WAITING and wait is not None
        if notice is not None and (waits or step.reason.code == "grace"):  # a wait may have grown since the notice
            left = notices.left_seconds(notice, node, grace.total_seconds(), now)
            ends = 0.0 if wait is None else wait if node.state is NodeState.RUNNING else wait + grace.total_seconds()
            at = (
                max(now, notice.at + grace) if notice.promise is None else now + timedelta(seconds=max(0.0, left, ends))
            )
            required = required_approval(node, self.observation.ledger, self.rules)
            unapproved = ("approval",) if required is not None and required.who is None else ()
            lasts = self._lasting(node, (replace(step, verb=removal),), at)
            refused = (*(each.rule for each in lasts), *unapproved)
            return NextAction(verb=removal, at=at, removal_at=at, refused_by=refused), _told(step, lasts)
        if waits and wait is not None:
            at = now + timedelta(seconds=max(0.0, wait))
            notified = replace(step, verb=Verb.NOTICE, arguments={**step.arguments, "action": removal.value})
            lasts = self._lasting(node, (notified, replace(step, verb=removal)), at)
            refused = tuple(each.rule for each in lasts)
            after = NextAction(verb=Verb.NOTICE, at=at, removal_at=at + grace, removal=removal, refused_by=refused)
            return after, _told(step, lasts)
        return None, why

    def _lasting(self, node: Node, steps: Sequence[Step], at: datetime) -> list[Answer]:
        """What will refuse one of these steps on the machine, each rule once."""
        found: dict[str, Answer] = {}
        for step in steps:
            case = case_of(step, self.observation, node.pool, self.rules, frozen=self._bursts)
            for answer in lasting_refusals(case, at):
                found.setdefault(answer.rule, answer)
        return list(found.values())


def lasting_refusals(case: Case, at: datetime) -> Iterator[Answer]:
    """Yield what refuses the step now and, if nobody acts, at that time.

    Args:
        case: of a removal, or of its notice.
        at: when it would be due; a pause that ends before it is left out.

    """
    then = replace(case, observation=replace(case.observation, now=at))
    for name in LASTS:
        found = RULES[name].answer(case)
        if found is None or not found[0] or (name == "group" and not group_keeps_member(case)):
            continue
        later = RULES[name].answer(then) if name in MAY_END else found
        if later is not None and later[0]:
            yield Answer(rule=name, refused=True, sentence=found[1], remedy=found[2])


def group_keeps_member(case: Case) -> bool:
    """Whether the group's objection stays. Where gpuwatch acts, it protects the other members before AZRebalance."""
    group = case.group
    if group is None or group.desired - 1 < group.min_size or "Terminate" in group.suspended:
        return True
    return case.enforce


def _told(step: Step, lasts: Sequence[Answer]) -> str:
    """The reason of a step, with what will refuse what it leads to."""
    return reason_with_refusals(step, [each for each in lasts if each.rule not in _TOLD_ONCE])


def _announced_removal(step: Step, grace: timedelta) -> tuple[timedelta, Verb | None]:
    """What a notice promises: the time until the removal, and which one; a notice without a promise says neither."""
    seconds, action = step.arguments.get("grace_seconds"), step.arguments.get("action")
    return grace if seconds is None else timedelta(seconds=float(seconds)), Verb(action) if action in _REMOVES else None


def _choice(node: Node, step: Step, observation: Observation, rules: IdleRules) -> tuple[str | None, float | None]:
    """What its pool does with the node in the end, and for how many seconds it still waits before the notice."""
    if node.state is NodeState.RUNNING:
        choice, wait = idle.choose_action(node, observation, rules)
        return choice, None if wait is None else wait - node.activity.held_seconds
    found = observation.ledger.own_stop(node) if node.state is NodeState.STOPPED else None
    if found is None or rules.terminate_after is None or step.reason.code == undone.CODE:
        return None, None
    if found.why_unwatched(node, observation.interval_seconds) is not None:
        return None, None
    age = (observation.now - found.at).total_seconds()
    return Verb.TERMINATE.value, rules.terminate_after - rules.terminate_grace_period - age
