"""PURE: find idle nodes, give notice, and ask for their removal after a grace period.

Rules, all of them:

1. Only the verdict `idle` makes a candidate, after it has held for `timeout` (a budget may ask for less, never for more
   and never below a minute) on the node's own monotonic clock.
2. A candidate first gets a notice. It is stopped after the grace period, if it was idle all that time: the rule of
   waiting (gpuwatch.policies.waiting), with the waits and graces of gpuwatch.policies.idle_timeout.node_wait.
   What the notice promised holds, whatever the settings say by then (gpuwatch.policies.notices).
3. A notice is withdrawn as soon as its node is known not to be idle. While its use is unknown, the notice waits. It is
   also withdrawn if somebody protects or snoozes the node, and while what reads its use is too new to be believed (the
   guard's rule `mass_idleness`); after that, a new notice comes first.
4. Occupied, parked and stalled nodes are somebody's. Where the pool removes them, each state has a time of its own, and
   the notice a longer grace. No budget and no age hastens them. A change of state withdraws; what its agents count of
   the new state decides when the next notice comes.
5. If somebody has undone the stops of a node or a group twice, it is left alone for a time (gpuwatch.policies.undone).
6. A node that is partly idle, or too old, is advice for people, never a removal while it works.
7. A node that gpuwatch stopped itself is terminated after `terminate_after`, with a notice of its own.
8. Every node gets a step, also one that holds, and the step says what would change it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from gpuwatch.model.activity import Activity, State
from gpuwatch.model.decision import Advice, Observation, Proposal, Reason, Step, Verb
from gpuwatch.model.duration import format_duration
from gpuwatch.model.evidence_text import last_text, later_text
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.model.measurement import Restarts
from gpuwatch.model.promise import Notice
from gpuwatch.model.proposal import Steps, changing
from gpuwatch.policies import idle_words, notices, undone, waiting
from gpuwatch.policies.idle_settings import TERMINATE_AFTER, IdleRules
from gpuwatch.policies.idle_timeout import node_wait
from gpuwatch.policies.idle_timeout.answers import question_words
from gpuwatch.policies.idle_timeout.node_wait import choose_action, grace_seconds, grace_words, wait_seconds
from gpuwatch.policies.idle_timeout.working_time import ANYWHERE, Office, hour_of_days_off
from gpuwatch.policies.idle_words import make_step, word
from gpuwatch.policies.lost_gpus import CONSENT, loss_words, what_is_left
from gpuwatch.policies.waiting import Phase

_NEW_NOTICE = "Once that is over and it still has no use, a new notice."
_WORKS = Reason(code=State.BUSY.value, sentence="It works.")
_AGAIN = "A new notice follows if it still has no use."
# Rounds compare thousands; to look a member up takes longer than to compare it.
_RUNNING, _STOPPED, _UNSEEN = NodeState.RUNNING, NodeState.STOPPED, NodeState.UNKNOWN
_CODES = {state: state.value for state in State}  # `value` is a call
_BUSY, _UNKNOWN, _HOLD, _WITHDRAW = State.BUSY, State.UNKNOWN, Verb.HOLD, Verb.WITHDRAW

__all__ = ["IdleRules", "choose_action", "grace_seconds", "lacking", "propose", "wait_seconds"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """How the nodes of a pool are decided about; a step and its advice follow from the node, its notice, stop and wait.

    They also follow from `about`, and from the time: for nodes with a notice, for all nodes where `ages`, and for
    stopped nodes where `terminates`.
    """

    pool: str
    decide: Callable[[Node], tuple[Step, tuple[Advice, ...]]]
    about: object
    ages: bool
    terminates: bool


# Gives the step of each node of the pool, in order, and all advice. A simulation may know most of them from before.
StepsOf = Callable[[Observation, Asked], tuple[tuple[Step, ...], tuple[Advice, ...]]]


def each_step(observation: Observation, asked: Asked) -> tuple[tuple[Step, ...], tuple[Advice, ...]]:
    """Decide about each node of the pool."""
    made = [asked.decide(node) for node in observation.fleet.roster(asked.pool).nodes]
    steps = tuple([step for step, _ in made])
    if len({step.node_id for step in steps}) == len(steps):
        steps = Steps.one_per_target(steps, changing(steps))
    return steps, tuple([each for _, advice in made for each in advice])


def steps_for(node_id: str) -> StepsOf:
    """Decide about that node, and about all others that may not hold: of those it matters only that they hold.

    A node that works and has no notice holds. Of thousands most do, and their sentences are not asked for.
    """

    def steps_of(observation: Observation, asked: Asked) -> tuple[tuple[Step, ...], tuple[Advice, ...]]:
        notice = observation.ledger.notice

        def decide(node: Node) -> tuple[Step, tuple[Advice, ...]]:
            works = node.state is NodeState.RUNNING and node.activity.state is State.BUSY
            if works and node.id != node_id and notice(node.id) is None:
                return Step(node_id=node.id, verb=Verb.HOLD, reason=_WORKS, change=""), ()
            return asked.decide(node)

        return each_step(observation, replace(asked, decide=decide))

    return steps_of


def propose(
    observation: Observation,
    pool: str,
    rules: IdleRules,
    *,
    office: Office = ANYWHERE,
    steps_of: StepsOf = each_step,
) -> Proposal:
    """Propose a step for each node of the pool, and advice; `office` is when its people are at work."""
    asked = Asked(
        pool=pool,
        decide=lambda node: (
            _step_for(node, observation, rules, office),
            idle_words.advice(node, observation, rules),
        ),
        about=(
            rules,
            office,
            hour_of_days_off(rules.owner_grace_period, observation.now, office),
            _starts(observation, pool, rules),
            observation.prices,
            node_wait.in_force(observation.budgets),
            observation.interval_seconds,
            observation.fresh.get(pool),
            observation.answers.get(pool),
            tuple((each, undone.in_force(each, observation.now)) for each in observation.undone if each.pool == pool),
            tuple(observation.unproven_in(pool)),
        ),
        ages=rules.max_age is not None,
        terminates=rules.terminate_after is not None,
    )
    steps, advice = steps_of(observation, asked)
    reason = idle_words.count_steps(changing(steps), len(steps))
    return Proposal(policy="idle", pool=pool, reason=reason, steps=steps, advice=advice)


def _starts(observation: Observation, pool: str, rules: IdleRules) -> Restarts | int | None:
    """What of a pool's starts its waits follow from: all of it where their cost is measured, else those that failed.

    A wait that is set follows from nothing. Each start of the pool changes the rest.
    """
    known = observation.restarts.get(pool)
    if known is None or not isinstance(rules.timeout, str):
        return None
    return known if rules.restart_cost == "measured" else known.failed


def _step_for(node: Node, observation: Observation, rules: IdleRules, office: Office) -> Step:
    """One node's step; a notice that no longer stands is withdrawn, whatever its node does."""
    notice, verdict = observation.ledger.notice(node.id), node.signal.verdict
    if notice is None and verdict is not None and node.state is _RUNNING and verdict.activity.state is _BUSY:
        return _unchosen(node, verdict.activity, _HOLD, observation, rules)  # most of a large fleet
    why = None if notice is None or notices.is_paused(notice) else notices.withdrawn(notice, node.pool, node.owner)
    if why is not None:
        return make_step(node, _WITHDRAW, "notice_over", f"{why}.", _AGAIN)
    return _step(node, notice, observation, rules, office)


def _step(node: Node, notice: Notice | None, observation: Observation, rules: IdleRules, office: Office) -> Step:
    """Decide a node's step by the table of the rules above, top to bottom."""
    activity = node.activity
    undo = _HOLD if notice is None else _WITHDRAW
    if node.state is _STOPPED:
        return _asleep(node, observation, rules)
    if node.state is _UNSEEN:
        sentence = f"Its state is not known: {node.unseen or 'the cloud gave no usable answer about it'}."
        answer = "An answer of its agent." if node.owned else "An answer of the cloud."
        return make_step(node, _HOLD, "not_running", sentence, answer)
    if node.state is not _RUNNING:
        return make_step(node, undo, "not_running", f"It is {node.state.value}.", "It would have to run.")
    if activity.state is _UNKNOWN:
        why = activity.doubt or "no reason was given"
        change = CONSENT if what_is_left(node) is not None else "A fresh, complete verdict of its agent."
        return make_step(node, _HOLD, "unknown", f"Its use is unknown: {why}.", change)
    missing = lacking(activity, rules)
    if missing is not None and activity.state is not _BUSY:
        return make_step(node, _HOLD, "unknown", f"Its verdict does not hold the evidence {missing!r}.", "That signal.")
    choice, wait = choose_action(node, observation, rules)
    if choice is None:
        return _unchosen(node, activity, undo, observation, rules)
    held, is_ = format_duration(activity.held_seconds), word(activity)
    if choice in {"report", "resize-advice"}:
        change = f"The pool says `{choice}` for {activity.state.value} nodes; `stop` would reclaim it."
        sentence = f"It has been {is_} for {held}."
        if undo is _WITHDRAW:
            sentence = f"It has been {is_} for {held}, and its pool only reports {activity.state.value} nodes."
        return make_step(node, undo, f"{activity.state.value}_report", sentence, change)
    then = Verb.TERMINATE if choice == "terminate" else Verb.STOP
    if (alone := undone.why_left_alone(observation, node, ends=then is Verb.TERMINATE)) is not None:
        return make_step(node, undo, undone.CODE, alone, undone.change_of(node.pool))
    if wait is None:
        return make_step(
            node, undo, "no_price", f"It has been {is_} for {held}; break_even needs its price.", "A price."
        )
    return _waiting(node, observation, rules, office, wait, then)


def _unchosen(node: Node, activity: Activity, undo: Verb, observation: Observation, rules: IdleRules) -> Step:
    """Hold a node in a state that the pool does nothing about, or withdraw its notice."""
    learnt = rules.fresh_seconds is not None and node.pool not in observation.fresh
    wait = None if learnt else wait_seconds(node, observation, rules)
    change = "It would have to be idle" + ("." if wait is None else f" for {format_duration(wait)}.")
    sentence = f"It has been {word(activity)} for {format_duration(activity.held_seconds)}."
    return make_step(node, undo, _CODES[activity.state], sentence, change)


def _waiting(node: Node, observation: Observation, rules: IdleRules, office: Office, wait: float, then: Verb) -> Step:
    """Rules 1 to 3: what follows for a node that the pool takes after its wait and its notice."""
    held, is_ = format_duration(node.activity.held_seconds), word(node.activity)
    notice, now = observation.ledger.notice(node.id), observation.now
    grace = grace_seconds(node, observation, rules, office)
    count = waiting.count_of([node], node.activity.held_seconds, now)
    learned = node.activity.state is State.IDLE and rules.timeout == "learned"
    phase = waiting.phase(count, wait, notice, grace, now, may_grow=learned)
    if phase in {Phase.WAITING, Phase.TOO_SOON}:
        left = format_duration(wait - node.activity.held_seconds)
        why = node_wait.because(node, observation, rules, wait)
        sentence = f"It has been {is_} for {held} of {format_duration(wait)}{why}."
        change = f"Another {left} without activity{last_text(node.verdict)}."
        return make_step(node, Verb.HOLD if phase is Phase.WAITING else Verb.WITHDRAW, "waiting", sentence, change)
    if notice is None:
        why = node_wait.because(node, observation, rules, wait)
        longer = node.activity.state is State.IDLE and rules.owner_grace_period > rules.grace_period
        asks = question_words(node, observation) if longer else ""
        asks += grace_words(node, observation, rules, office)
        asks += "" if (later := later_text(node.activity)) is None else f" Later: {later}."
        sentence = f"It has been {is_} for {held}, longer than {format_duration(wait)}{why}.{loss_words(node)}{asks}"
        said = make_step(node, Verb.NOTICE, "candidate", sentence, "Any activity on it.")
        return notices.promising(said, then, node, grace)
    if (kept := idle_words.why_kept(node, node.activity.held_seconds, rules)) is not None:
        return make_step(node, Verb.WITHDRAW, "kept", f"It has been {is_} for {held}, and {kept}.", _NEW_NOTICE)
    if (new := observation.unproven_of(node)) is not None:
        sentence = f"It has been {is_} for {held}, and too few machines are seen at work with {new.words}."
        return make_step(node, Verb.WITHDRAW, "kept", sentence, _NEW_NOTICE)
    if phase is Phase.BROKEN and waiting.is_set_back(notice, now):
        return make_step(node, Verb.WITHDRAW, "not_continuous", _set_back(notice), _AGAIN)
    if phase is Phase.BROKEN:
        age = format_duration((now - notice.at).total_seconds())
        sentence = f"It has been {is_} for {held} only, and its notice is {age} old."
        return make_step(node, Verb.WITHDRAW, "not_continuous", sentence, _AGAIN)
    if (sharper := notices.sharper(notice, then)) is not None:
        return make_step(node, Verb.WITHDRAW, "notice_over", f"{sharper}.", _AGAIN)
    promise = f"It has been {is_} for {held}. {notices.promise_words(notice)}"
    if phase is Phase.GRACE:
        left = format_duration(waiting.left_seconds(count, notice, grace, now))
        return make_step(node, Verb.HOLD, "grace", f"{promise}.", f"Any activity within {left} withdraws the notice.")
    change = "Any activity, protection, or the veto of its agent."
    return make_step(node, then, "expired", f"{promise}, which has passed.", change)


def _set_back(notice: Notice) -> str:
    """Say why a notice is given again though nothing has used its node."""
    return f"The clock was set back since. {notices.promise_words(notice)}, and a new one comes sooner."


def lacking(activity: Activity, rules: IdleRules) -> str | None:
    """The first required evidence that a verdict does not hold; one that says nothing does not count."""
    if not rules.required_evidence:
        return None
    names = [evidence.name for evidence in activity.evidence if evidence.says is not State.UNKNOWN]
    return next((each for each in rules.required_evidence if not any(fnmatchcase(name, each) for name in names)), None)


def _asleep(node: Node, observation: Observation, rules: IdleRules) -> Step:
    """Rule 7: what gpuwatch stopped itself is terminated in the end, where the pool says so."""
    notice, now = observation.ledger.notice(node.id), observation.now
    undo = Verb.HOLD if notice is None else Verb.WITHDRAW
    found = observation.ledger.own_stop(node)
    if rules.terminate_after is None or found is None:
        sentence = idle_words.stopped_by(observation.ledger, node)
        return make_step(node, undo, "not_running", sentence, "It would have to run.")
    if (alone := undone.why_left_alone(observation, node, ends=True)) is not None:
        return make_step(
            node, undo, undone.CODE, f"gpuwatch stopped it, and does not end it. {alone}", "A start keeps it."
        )
    age, keeps = (now - found.at).total_seconds(), "A start keeps it."
    stopped = f"gpuwatch stopped it {format_duration(age)} ago"
    limit = format_duration(rules.terminate_after)
    count = waiting.Count(seconds=age, own_clock=False)
    grace = rules.terminate_grace_period
    phase = waiting.phase(count, rules.terminate_after - grace, notice, grace, now)
    if phase in {Phase.WAITING, Phase.TOO_SOON}:
        return make_step(node, undo, "not_running", f"{stopped}; it is kept for {limit}.", keeps)
    if notice is None:
        said = make_step(node, Verb.NOTICE, TERMINATE_AFTER, f"{stopped}; it is kept for {limit}.", keeps)
        return notices.promising(said, Verb.TERMINATE, node, grace)
    if phase is Phase.BROKEN and waiting.is_set_back(notice, now):
        return make_step(node, Verb.WITHDRAW, TERMINATE_AFTER, _set_back(notice), _NEW_NOTICE)
    if notice.at <= found.at:
        return make_step(node, Verb.WITHDRAW, TERMINATE_AFTER, f"{stopped}; its notice was for that stop.", keeps)
    if (kept := idle_words.why_kept(node, age, rules)) is not None:
        return make_step(node, Verb.WITHDRAW, "kept", f"{stopped}, and {kept}.", _NEW_NOTICE)
    if age < rules.terminate_after or phase is Phase.GRACE:
        return make_step(node, Verb.HOLD, "grace", f"{stopped}. {notices.promise_words(notice)}.", keeps)
    return make_step(node, Verb.TERMINATE, TERMINATE_AFTER, f"{stopped}, and its {limit} are over.", keeps)
