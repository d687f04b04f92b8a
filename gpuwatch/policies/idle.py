"""PURE: find idle nodes, give notice, and ask for their removal after a grace period.

Rules, all of them:

1. Only the verdict `idle` makes a candidate, after it has held for `timeout` (a budget may ask for less, never for more
   and never below a minute) on the node's own monotonic clock.
2. A candidate first gets a notice. It is stopped after the grace period, if it was idle all that time.
   It counts towards a wait that was learned. Where nobody is there, it has a shorter grace, 0 included.
   Where somebody is, or where nobody looked, a learned wait is half an hour at least: people read and think.
   With `fresh_timeout`, the wait and the grace are fixed ones until the pool has shown how it pauses.
   What the notice promised holds, whatever the settings say by then (gpuwatch.policies.notices).
3. A notice is withdrawn as soon as its node is known not to be idle. While its use is unknown, the notice waits. It is
   also withdrawn if somebody protects or snoozes the node; after that, a new notice comes first.
4. Occupied, parked and stalled nodes are somebody's. Where the pool removes them, each state has a time of its own, and
   the notice a longer grace. No budget and no age hastens them. A change of state counts from zero, and withdraws.
5. A node that is partly idle, or too old, is advice for people, never a removal while it works.
6. A node that gpuwatch stopped itself is terminated after `terminate_after`, with a notice of its own.
7. Every node gets a step, also one that holds, and the step says what would change it.
"""

from collections.abc import Iterator
from datetime import datetime
from fnmatch import fnmatchcase

from gpuwatch.model.activity import Activity, Evidence, State, WorkOwner
from gpuwatch.model.decision import Advice, Observation, Proposal, Reason, Step, Stopped, Verb, Wait
from gpuwatch.model.duration import format_duration, format_time
from gpuwatch.model.evidence_text import last_text, owner_text
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.model.measurement import Restarts
from gpuwatch.model.money import Price
from gpuwatch.model.promise import Notice
from gpuwatch.model.proposal import changing
from gpuwatch.policies import budget_pressure, notices, step_cache
from gpuwatch.policies.idle_settings import TERMINATE_AFTER, IdleRules
from gpuwatch.policies.idle_timeout.break_even import MINIMUM_WAIT_SECONDS, Restart, restart
from gpuwatch.policies.idle_timeout.gap_history import fresh_words

# What a verdict may lag behind a notice beyond its own age and sampling interval: the round trip and one round's work.
_SLACK_SECONDS = 5.0
ATTENDED_WAIT_SECONDS = 1800.0  # a learned wait is no shorter where a session is open, or none was looked for
OLD_NODE_WAIT_SECONDS = 300.0  # a node past `max_age` waits no longer than this once it is idle

_NEW_NOTICE = "Once that is over and it still has no use, a new notice."
_AGAIN = "A new notice follows if it still has no use."

__all__ = ["OLD_NODE_WAIT_SECONDS", "IdleRules", "chosen", "grace_seconds", "lacking", "learns", "propose"]
__all__ += ["restart_of", "wait_seconds"]

# What each verdict means to this policy; the sentence finishes "It is …".
_WORDS = {
    State.BUSY: "busy",
    State.OCCUPIED: "occupied (somebody's process is alive and does nothing)",
    State.PARKED: "parked (it holds GPU memory and computes nothing)",
    State.STALLED: "stalled (full utilization at idle power: probably a deadlock)",
    State.IDLE: "idle",
    State.UNKNOWN: "unknown",
}

# Likewise of one process, and of several, that make it so; the words finish "alice's python3, pid 4711, …".
_OWNED = {
    State.OCCUPIED: ("does nothing", "do nothing"),
    State.PARKED: ("holds GPU memory and computes nothing", "hold GPU memory and compute nothing"),
    State.STALLED: ("full utilization at idle power: probably a deadlock",) * 2,
}


def restart_of(observation: Observation, pool: str, rules: IdleRules, price: Price | None) -> Restart | None:
    """What a restart of a machine at this price costs now; None: it takes a price, which is not known."""
    return restart(
        rules.restart_cost,
        observation.restarts.get(pool, Restarts()),
        usd=float(rules.restart_usd),
        usd_per_hour=None if price is None else float(price.usd_per_hour),
    )


def wait_seconds(node: Node, observation: Observation, rules: IdleRules) -> float | None:
    """How long a node is to be idle; None: it takes a price, which is not known.

    break_even: the wait that costs as much as a restart, never more than twice the optimum (ski rental).
    learned: the same where nothing is known of the node's gap yet, and `fresh_timeout` at least; what was learned
    includes the grace after the notice, at least the round between, as their rental is paid too. Sessions make it
    half an hour at least.
    """
    if not isinstance(rules.timeout, str):
        return rules.timeout
    attended = rules.timeout == "learned" and node.activity.state is State.IDLE and not _empty(node)
    least = ATTENDED_WAIT_SECONDS if attended else MINIMUM_WAIT_SECONDS
    if (found := _found(node, observation, rules)) is not None:
        ahead = max(grace_seconds(node, observation, rules), observation.interval_seconds)
        return max(least, found.seconds - ahead)
    cost = restart_of(observation, node.pool, rules, observation.price(node))
    return None if cost is None else max(rules.fresh_seconds or least, least, cost.seconds)


def learns(node: Node, observation: Observation, rules: IdleRules) -> bool:
    """Whether a node waits as its pool learns, and not for a time that is set or that follows from a restart alone."""
    return rules.timeout == "learned" and (rules.fresh_seconds is None or node.id in observation.waits)


def _found(node: Node, observation: Observation, rules: IdleRules) -> Wait | None:
    """The wait that was learned for a node, in a pool with `timeout: learned`."""
    return observation.waits.get(node.id) if rules.timeout == "learned" else None


def propose(
    observation: Observation, pool: str, rules: IdleRules, *, cache: step_cache.StepCache | None = None
) -> Proposal:
    """A step for each node of the pool, and advice; `cache` only saves time."""
    made = step_cache.steps_of_pool(
        observation,
        pool,
        (
            rules,
            _starts(observation, pool, rules),
            observation.prices,
            budget_pressure.in_force(observation.budgets),
            observation.interval_seconds,
            observation.fresh.get(pool),
        ),
        lambda node: (
            _over(node, observation) or _step(node, observation, rules),
            tuple(_advice(node, observation, rules)),
        ),
        ages=rules.max_age is not None,
        terminates=rules.terminate_after is not None,
        cache=cache,
    )
    steps = made.indexed
    reason = step_cache.counted(changing(steps), len(steps))
    return Proposal(policy="idle", pool=pool, reason=reason, steps=steps, advice=made.advice)


def _starts(observation: Observation, pool: str, rules: IdleRules) -> Restarts | int | None:
    """What of a pool's starts its waits follow from: all of it where their cost is measured, else those that failed.

    A wait that is set follows from nothing. Each start of the pool changes the rest.
    """
    known = observation.restarts.get(pool)
    if known is None or not isinstance(rules.timeout, str):
        return None
    return known if rules.restart_cost == "measured" else known.failed


def _over(node: Node, observation: Observation) -> Step | None:
    """The withdrawal of a notice that no longer stands, whatever its node does."""
    notice = observation.ledger.notice(node.id)
    why = None if notice is None else notices.withdrawn(notice, node.pool)
    return None if why is None else _say(node, Verb.WITHDRAW, "notice_over", f"{why}.", _AGAIN)


def _step(node: Node, observation: Observation, rules: IdleRules) -> Step:
    """One node's step; the table of the rules above, top to bottom."""
    activity, notice = node.activity, observation.ledger.notice(node.id)
    undo = Verb.HOLD if notice is None else Verb.WITHDRAW
    if node.state is NodeState.STOPPED:
        return _asleep(node, observation, rules)
    if node.state is NodeState.UNKNOWN:
        sentence = f"Its state is not known: {node.unseen or 'the cloud gave no usable answer about it'}."
        return _say(node, Verb.HOLD, "not_running", sentence, "An answer of the cloud.")
    if node.state is not NodeState.RUNNING:
        return _say(node, undo, "not_running", f"It is {node.state.value}.", "It would have to run.")
    if activity.state is State.UNKNOWN:
        why = activity.doubt or "no reason was given"
        return _say(
            node, Verb.HOLD, "unknown", f"Its use is unknown: {why}.", "A fresh, complete verdict of its agent."
        )
    missing = lacking(activity, rules)
    if missing is not None and activity.state is not State.BUSY:
        return _say(node, Verb.HOLD, "unknown", f"Its verdict does not hold the evidence {missing!r}.", "That signal.")
    held, word = format_duration(activity.held_seconds), _word(activity)
    choice, wait = chosen(node, observation, rules)
    if choice is None:
        learnt = rules.fresh_seconds is not None and node.pool not in observation.fresh
        wait = None if learnt else wait_seconds(node, observation, rules)
        change = "It would have to be idle" + ("." if wait is None else f" for {format_duration(wait)}.")
        return _say(node, undo, activity.state.value, f"It has been {word} for {held}.", change)
    if choice in {"report", "resize-advice"}:
        change = f"The pool says `{choice}` for {activity.state.value} nodes; `stop` would reclaim it."
        return _say(node, undo, f"{activity.state.value}_report", f"It has been {word} for {held}.", change)
    if wait is None:
        return _say(node, undo, "no_price", f"It has been {word} for {held}; break_even needs its price.", "A price.")
    why = _because(node, observation, rules, wait)
    if activity.held_seconds < wait:
        left = format_duration(wait - activity.held_seconds)
        sentence = f"It has been {word} for {held} of {format_duration(wait)}{why}."
        learned = activity.state is State.IDLE and rules.timeout == "learned"  # such a wait may grow again
        still = Verb.HOLD if learned and notice is not None and _unbroken(node, notice, observation.now) else undo
        return _say(node, still, "waiting", sentence, f"Another {left} without activity{last_text(node.verdict)}.")
    then = Verb.TERMINATE if choice == "terminate" else Verb.STOP
    if notice is None:
        sentence = f"It has been {word} for {held}, longer than {format_duration(wait)}{why}."
        said = _say(node, Verb.NOTICE, "candidate", sentence, "Any activity on it.")
        return notices.promising(said, then, node, grace_seconds(node, observation, rules))
    kept = _kept(node, activity.held_seconds, rules)
    if kept is not None:
        return _say(node, Verb.WITHDRAW, "kept", f"It has been {word} for {held}, and {kept}.", _NEW_NOTICE)
    return _after_notice(node, then, notice, observation, rules)


def chosen(node: Node, observation: Observation, rules: IdleRules) -> tuple[str | None, float | None]:
    """What the pool does with a node in this state, and after how long; no choice for one that works."""
    state = node.activity.state
    if state is State.OCCUPIED:
        return rules.occupied, rules.occupied_timeout
    if state is State.PARKED:
        return rules.parked, rules.parked_timeout
    if state is State.STALLED:
        return rules.stalled, rules.stalled_timeout
    if state is not State.IDLE:
        return None, None
    return rules.action, budget_pressure.hastened(observation.budgets, node, _own(node, observation, rules))


def grace_seconds(node: Node, observation: Observation, rules: IdleRules) -> float:
    """The grace of a notice for a node in this state: nobody is asked about an idle or stopped one."""
    if node.state is NodeState.STOPPED:
        return rules.grace_period
    if node.activity.state is not State.IDLE:
        return rules.owner_grace_period
    fixed = rules.fresh_seconds is not None and not learns(node, observation, rules)
    return rules.unattended_grace_period if node.owner is None and _empty(node) and not fixed else rules.grace_period


def _empty(node: Node) -> bool:
    """Whether the agent looked for sessions and found none."""
    people = [each for each in node.activity.evidence if each.name == "people"]
    return bool(people) and all(_nobody(each) for each in people)


def _nobody(people: Evidence) -> bool:
    return people.says is State.IDLE and people.observed is None


def _word(activity: Activity) -> str:
    """What the node is, with the process that makes it so where one is known."""
    says = (each for each in activity.evidence if each.says is activity.state and each.owner is not None)
    found = tuple(dict.fromkeys(each.owner for each in says))
    if activity.state not in _OWNED or not found:
        return _WORDS[activity.state]
    one, several = _OWNED[activity.state]
    if len(found) == 1:
        notes = (each.note for each in activity.evidence if each.says is activity.state and each.owner == found[0])
        nobody = found[0] is None or (found[0].pid is None and found[0].process is None)
        if (note := next(notes, None)) is not None and nobody:
            return f"{activity.state.value} ({note})"  # a queue or a unit: nothing of it is alive
        return f"{activity.state.value} ({_owner_word(found[0])}, {one})"
    return f"{activity.state.value} ({_owner_word(found[0])}, and {len(found) - 1} more: {several})"


def _owner_word(owner: WorkOwner | None) -> str:
    """The owner in a sentence."""
    text = owner_text(owner)
    nameless = owner is None or (owner.user is None and owner.process is None)
    return f"somebody's process{'' if text is None else f', {text}'}" if nameless else str(text)


def _own(node: Node, observation: Observation, rules: IdleRules) -> float | None:
    """How long an idle node waits where no budget hastens it."""
    wait = wait_seconds(node, observation, rules)
    if wait is not None and _too_old(node, observation, rules):
        wait = min(wait, OLD_NODE_WAIT_SECONDS)
    return wait


def _because(node: Node, observation: Observation, rules: IdleRules, wait: float) -> str:
    """Why an idle node waits for so long, where that is not set in the configuration."""
    idle = node.activity.state is State.IDLE
    asked = budget_pressure.hastening(observation.budgets, node) if idle else None
    own = None if asked is None else _own(node, observation, rules)
    if asked is not None and own is not None and wait < own:
        return f" instead of {format_duration(own)} ({asked.why})"
    if not idle or not isinstance(rules.timeout, str) or wait != wait_seconds(node, observation, rules):
        return ""
    reasons = _found(node, observation, rules), restart_of(observation, node.pool, rules, observation.price(node))
    if rules.fresh_seconds is not None and not learns(node, observation, rules):
        return fresh_words(observation.fresh.get(node.pool))
    return f" ({'; '.join(each.why for each in reasons if each is not None)})"


def lacking(activity: Activity, rules: IdleRules) -> str | None:
    """The first required evidence that a verdict does not hold; one that says nothing does not count."""
    names = [evidence.name for evidence in activity.evidence if evidence.says is not State.UNKNOWN]
    return next((each for each in rules.required_evidence if not any(fnmatchcase(name, each) for name in names)), None)


def _asleep(node: Node, observation: Observation, rules: IdleRules) -> Step:
    """Rule 6: what gpuwatch stopped itself is terminated in the end, where the pool says so."""
    notice = observation.ledger.notice(node.id)
    undo = Verb.HOLD if notice is None else Verb.WITHDRAW
    found = observation.ledger.stop_of(node.id)
    if rules.terminate_after is None or found is None:
        return _say(node, undo, "not_running", _stopped_by(found), "It would have to run.")
    age = (observation.now - found.at).total_seconds()
    stopped = f"gpuwatch stopped it {format_duration(age)} ago"
    limit = format_duration(rules.terminate_after)
    if age + rules.grace_period < rules.terminate_after:
        return _say(node, undo, "not_running", f"{stopped}; it is kept for {limit}.", "A start keeps it.")
    if notice is not None and notice.at <= found.at:
        return _say(
            node, Verb.WITHDRAW, TERMINATE_AFTER, f"{stopped}; its notice was for that stop.", "A start keeps it."
        )
    if notice is None:
        said = _say(node, Verb.NOTICE, TERMINATE_AFTER, f"{stopped}; it is kept for {limit}.", "A start keeps it.")
        return notices.promising(said, Verb.TERMINATE, node, rules.grace_period)
    kept = _kept(node, age, rules)
    if kept is not None:
        return _say(node, Verb.WITHDRAW, "kept", f"{stopped}, and {kept}.", _NEW_NOTICE)
    if age < rules.terminate_after or notices.left_seconds(notice, node, rules.grace_period, observation.now) > 0:
        return _say(node, Verb.HOLD, "grace", f"{stopped}, and it has had its notice.", "A start keeps it.")
    return _say(node, Verb.TERMINATE, TERMINATE_AFTER, f"{stopped}, and its {limit} are over.", "A start keeps it.")


def _stopped_by(found: Stopped | None) -> str:
    """Who stopped a machine, when and why, as a sentence; the cloud gives no reason for others' stops."""
    if found is None:
        return "It is stopped. gpuwatch has no stop of it on record."
    approved = "" if found.approved_by is None else f"; {found.approved_by} approved it"
    return f"gpuwatch stopped it at {format_time(found.at)}: {found.why or 'no reason is on record'}{approved}."


def _kept(node: Node, unused_seconds: float, rules: IdleRules) -> str | None:
    """How people have said that a node is to be left alone, as far as the pool honours it."""
    if node.protected is not None:
        return f"it is protected: {node.protected}"
    if node.snoozed is not None and unused_seconds <= rules.max_snooze:
        return f"it is snoozed until {node.snoozed}"
    return None


def _too_old(node: Node, observation: Observation, rules: IdleRules) -> bool:
    """Whether a node has been up for longer than its pool likes."""
    if rules.max_age is None or node.launched_at is None:
        return False
    return (observation.now - node.launched_at).total_seconds() > rules.max_age


def _advice(node: Node, observation: Observation, rules: IdleRules) -> Iterator[Advice]:
    """Rule 5: what people might do about it."""
    verdict, state = node.verdict, node.activity.state
    if node.state is not NodeState.RUNNING or verdict is None:
        return
    if state is State.BUSY:
        wait = wait_seconds(node, observation, rules)
        idle = [gpu for gpu in verdict.gpus if gpu.activity.state is State.IDLE]
        shortest = min((gpu.activity.held_seconds for gpu in idle), default=0.0)
        if idle and len(idle) < len(verdict.gpus) and wait is not None and shortest >= wait:
            sentence = (
                f"{len(idle)} of its {len(verdict.gpus)} GPUs have been idle for {format_duration(shortest)} or longer "
                "while the others work: a smaller machine, or MIG, may do."
            )
            yield _advise(node, "partly_idle", sentence)
        if rules.max_age is not None and _too_old(node, observation, rules):
            sentence = f"It has been up for longer than {format_duration(rules.max_age)} and is still busy."
            yield _advise(node, "max_age", sentence)
    if state is State.IDLE and rules.action == "resize-advice":
        held = format_duration(node.activity.held_seconds)
        yield _advise(node, "resize", f"It has been idle for {held}: a smaller machine, or none, may do.")


def _advise(node: Node, code: str, sentence: str) -> Advice:
    """Advice with the evidence of its node."""
    return Advice(target=node.id, reason=Reason(code=code, sentence=sentence, evidence=node.activity.evidence))


def _after_notice(node: Node, then: Verb, notice: Notice, observation: Observation, rules: IdleRules) -> Step:
    """Rule 2: what the notice promised, and idleness without a break since it."""
    now, word, held = observation.now, _word(node.activity), format_duration(node.activity.held_seconds)
    since_notice = (now - notice.at).total_seconds()
    if not _unbroken(node, notice, now):
        sentence = f"It has been {word} for {held} only, and its notice is {format_duration(since_notice)} old."
        return _say(node, Verb.WITHDRAW, "not_continuous", sentence, _AGAIN)
    if (why := notices.sharper(notice, then)) is not None:
        return _say(node, Verb.WITHDRAW, "notice_over", f"{why}.", _AGAIN)
    grace, promise = grace_seconds(node, observation, rules), notices.promised(notice)
    left = notices.left_seconds(notice, node, grace, now)
    if left > 0:
        change = f"Any activity within {format_duration(left)} withdraws the notice."
        return _say(node, Verb.HOLD, "grace", f"It has been {word} for {held}. {promise}.", change)
    sentence = f"It has been {word} for {held}. {promise}, which has passed."
    return _say(node, then, "expired", sentence, "Any activity, protection, or the veto of its agent.")


def _unbroken(node: Node, notice: Notice, now: datetime) -> bool:
    """Whether the node has been in its state since the notice, as far as its verdict may lag behind."""
    verdict = node.verdict
    lag = 0.0 if verdict is None else verdict.age_seconds + 2 * verdict.interval_seconds + _SLACK_SECONDS
    lag += max(0.0, node.waited_seconds(now))
    return node.activity.held_seconds + lag >= (now - notice.at).total_seconds()


def _say(node: Node, verb: Verb, code: str, sentence: str, change: str) -> Step:
    """A step with its reason and the evidence of its node."""
    return Step(
        node_id=node.id,
        verb=verb,
        reason=Reason(code=code, sentence=sentence, evidence=node.activity.evidence),
        change=change,
    )
