"""PURE: find idle nodes, give notice, and ask for their stop after a grace period.

Rules, all of them:

1. Only the verdict `idle` makes a candidate, after it has held for `after` on the node's own monotonic clock.
2. A candidate first gets a notice. It is asked to stop when `notice` has passed and it was idle all that time.
3. A notice is withdrawn as soon as its node is anything but idle, unknown alone excepted: doubt neither stops a node
   nor frees it from its notice, it waits.
4. Parked and stalled nodes are told about; they are stopped only where the pool says so, after a time of their own.
5. It holds aloud: every node gets a step, and the step says what would change it.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt

from gpuwatch.model.decision import Observation, Proposal, Reason, Step, Verb
from gpuwatch.model.fleet import Activity, Node, NodeState, State
from gpuwatch.model.knobs import STRICT, Knob, Seconds, format_duration

# What a verdict may lag behind a notice beyond its own age and sampling interval: the round trip and one round's work.
_SLACK_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleRules:
    """One pool's idle policy."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    after: Annotated[Seconds, Gt(0), Knob("A node idle for this long without a break becomes a candidate.")] = 1800.0
    notice: Annotated[
        Seconds, Ge(0), Knob("Grace between the notice (tag and log) and the stop; the node must stay idle.")
    ] = 600.0
    then: Annotated[
        Literal["stop", "tell"], Knob("What happens to an idle node: stop it, or tell (log and metrics) only.")
    ] = "stop"
    parked: Annotated[
        Literal["stop", "tell"],
        Knob("What happens to a node that holds GPU memory but computes nothing: tell, unless you choose stop."),
    ] = "tell"
    parked_after: Annotated[
        Seconds, Gt(0), Knob("A node parked for this long without a break becomes a candidate, where parked: stop.")
    ] = 14400.0


# What each verdict means to this policy; the sentence finishes "It is …".
_WORDS = {
    State.BUSY: "busy",
    State.PARKED: "parked (it holds GPU memory and computes nothing)",
    State.STALLED: "stalled (full utilization at idle power: probably a deadlock)",
    State.IDLE: "idle",
    State.UNKNOWN: "unknown",
}


def propose(observation: Observation, pool: str, rules: IdleRules) -> Proposal:
    """A step for each node of the pool."""
    steps = tuple(_step(node, observation, rules) for node in observation.fleet.roster(pool).nodes)
    counts = {verb: sum(step.verb is verb for step in steps) for verb in Verb}
    said = ", ".join(f"{count} {verb.value}" for verb, count in counts.items() if count)
    return Proposal(
        policy="idle", pool=pool, reason=Reason(code="idle", sentence=said or "the pool has no nodes"), steps=steps
    )


def _step(node: Node, observation: Observation, rules: IdleRules) -> Step:
    """One node's step; the table of the rules above, top to bottom."""
    activity, notice = node.activity, observation.ledger.notice(node.id)
    undo = Verb.HOLD if notice is None else Verb.WITHDRAW
    if node.state is not NodeState.RUNNING:
        return _say(node, undo, "not_running", f"It is {node.state.value}.", "It would have to run.")
    if activity.state is State.UNKNOWN:
        why = activity.doubt or "no reason was given"
        return _say(
            node, Verb.HOLD, "unknown", f"Its use is unknown: {why}.", "A fresh, complete verdict of its agent."
        )
    held, word = format_duration(activity.held_seconds), _WORDS[activity.state]
    wait = {State.IDLE: rules.after, State.PARKED: rules.parked_after}.get(activity.state)
    if wait is None:
        change = f"It would have to be idle for {format_duration(rules.after)}."
        return _say(node, undo, activity.state.value, f"It has been {word} for {held}.", change)
    choice = rules.then if activity.state is State.IDLE else rules.parked
    if choice == "tell":
        change = f"The pool says `tell` for {activity.state.value} nodes; `stop` would reclaim it."
        return _say(node, undo, f"{activity.state.value}_tell", f"It has been {word} for {held}.", change)
    if activity.held_seconds < wait:
        left = format_duration(wait - activity.held_seconds)
        sentence = f"It has been {word} for {held} of {format_duration(wait)}."
        return _say(node, undo, "waiting", sentence, f"Another {left} without activity.")
    if notice is None:
        sentence = f"It has been {word} for {held}, longer than {format_duration(wait)}."
        return _say(node, Verb.NOTICE, "candidate", sentence, "Any activity on it.")
    return _after_notice(node, activity, (observation.now - notice.at).total_seconds(), rules)


def _after_notice(node: Node, activity: Activity, since_notice: float, rules: IdleRules) -> Step:
    """Rule 2: the grace period, and idleness without a break since the notice."""
    word, held = _WORDS[activity.state], format_duration(activity.held_seconds)
    verdict = node.verdict
    lag = 0.0 if verdict is None else verdict.age_seconds + 2 * verdict.interval_seconds + _SLACK_SECONDS
    if activity.held_seconds + lag < since_notice:
        sentence = f"It has been {word} for {held} only, and its notice is {format_duration(since_notice)} old."
        return _say(node, Verb.WITHDRAW, "not_continuous", sentence, "A new notice follows if it stays so.")
    if since_notice < rules.notice:
        left = format_duration(rules.notice - since_notice)
        sentence = f"It has been {word} for {held} and has had its notice for {format_duration(since_notice)}."
        return _say(node, Verb.HOLD, "grace", sentence, f"Any activity within {left} withdraws the notice.")
    sentence = f"It has been {word} for {held}, and its notice of {format_duration(rules.notice)} has run out."
    return _say(node, Verb.STOP, "expired", sentence, "Any activity, protection, or the veto of its agent.")


def _say(node: Node, verb: Verb, code: str, sentence: str, change: str) -> Step:
    """A step with its reason and the evidence of its node."""
    return Step(
        node_id=node.id,
        verb=verb,
        reason=Reason(code=code, sentence=sentence, evidence=node.activity.evidence),
        change=change,
    )
