"""PURE: what the idle policy says of a node: its state in words, why it is kept, who stopped it, advice for people."""

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime

from gpuwatch.model.activity import Activity, State, WorkOwner
from gpuwatch.model.decision import Advice, LedgerView, Observation, Reason, Step, Verb
from gpuwatch.model.duration import format_duration, format_time
from gpuwatch.model.evidence_text import owner_text
from gpuwatch.model.fleet import GpuVerdict, Node, NodeState
from gpuwatch.model.stops import NOT_PROVED
from gpuwatch.policies.idle_settings import IdleRules
from gpuwatch.policies.idle_timeout.node_wait import too_old, wait_seconds

# Rounds compare thousands; to look a member up takes longer than to compare it.
_RUNNING, _BUSY, _IDLE = NodeState.RUNNING, State.BUSY, State.IDLE
# What each verdict means to this policy; the sentence finishes "It is …".
_WORDS = {
    State.BUSY: "busy",
    State.OCCUPIED: "occupied (somebody's process is alive and does nothing)",
    State.PARKED: "parked (it holds GPU memory and computes nothing)",
    State.STALLED: "stalled (full utilization at idle power: probably a deadlock)",
    State.IDLE: "idle",
    State.UNKNOWN: "unknown",
}
# The same of one process, and of several, that make it so; the words finish "alice's python3, pid 4711, …".
_OWNED = {
    State.OCCUPIED: ("does nothing", "do nothing"),
    State.PARKED: ("holds GPU memory and computes nothing", "hold GPU memory and compute nothing"),
    State.STALLED: ("full utilization at idle power: probably a deadlock",) * 2,
}


def make_step(node: Node, verb: Verb, code: str, sentence: str, change: str) -> Step:
    """Make a step with its reason and the evidence of its node."""
    return Step(
        node_id=node.id,
        verb=verb,
        reason=Reason(code=code, sentence=sentence, evidence=node.activity.evidence),
        change=change,
    )


def count_steps(changing: Iterable[Step], nodes: int) -> Reason:
    """Say how many of a pool's nodes get what, of which those that do not hold are given."""
    counts = Counter(step.verb for step in changing)
    counts[Verb.HOLD] = nodes - counts.total()
    summary = ", ".join(f"{counts[verb]} {verb.value}" for verb in Verb if counts[verb])
    return Reason(code="idle", sentence=summary or "the pool has no nodes")


def word(activity: Activity) -> str:
    """Say what the node is, with the process that makes it so where one is known."""
    if activity.state not in _OWNED:
        return _WORDS[activity.state]
    says = (each for each in activity.evidence if each.says is activity.state and each.owner is not None)
    found = tuple(dict.fromkeys(each.owner for each in says))
    if not found:
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
    """Name the owner in a sentence."""
    text = owner_text(owner)
    nameless = owner is None or (owner.user is None and owner.process is None)
    return f"somebody's process{'' if text is None else f', {text}'}" if nameless else str(text)


def why_kept(node: Node, unused_seconds: float, rules: IdleRules) -> str | None:
    """Say how people have asked that a node is left alone, as far as the pool honours it."""
    if node.protected is not None:
        return f"it is protected: {node.protected}"
    if node.snoozed is not None and unused_seconds <= rules.max_snooze:
        return f"it is snoozed until {node.snoozed}"
    return None


def unproved_stop(ledger: LedgerView, node_id: str) -> datetime | None:
    """When gpuwatch sent a stop that nobody has seen done, as far as the ledger looks back; None: it sent none."""
    coming = ledger.open_step(node_id, Verb.STOP)
    if coming is not None and coming.reached:
        return coming.reached_at or coming.intent.at
    sent = [
        done.reached_at or done.at
        for done in ledger.given_up
        if done.node_id == node_id and done.verb is Verb.STOP and done.reached
    ]
    return max(sent, default=None)


def stopped_by(ledger: LedgerView, node: Node) -> str:
    """Say who stopped a machine, when and why; the cloud gives no reason for others' stops."""
    found = ledger.stop_of(node.id)
    if node.failed_start is not None:
        return f"It is stopped: its last start failed, and its cloud says {node.failed_start}."
    if found is None and (asked_at := unproved_stop(ledger, node.id)) is not None:  # a cloud's list may be late
        at = format_time(asked_at)
        return f"It is stopped. gpuwatch asked for its stop at {at}, and its cloud did not show it done in time."
    if found is None:
        return "It is stopped. gpuwatch has no stop of it on record."
    if (doubt := found.why_not_ours(node)) is not None:
        return f"It was stopped, and {NOT_PROVED}: {doubt}."
    approved = "" if found.approved_by is None else f"; {found.approved_by} approved it"
    return f"gpuwatch stopped it at {format_time(found.at)}: {found.why or 'no reason is on record'}{approved}."


def advice(node: Node, observation: Observation, rules: IdleRules) -> tuple[Advice, ...]:
    """Say what people might do about a node that is partly idle, too old, or of the wrong size."""
    verdict = node.signal.verdict
    if node.state is not _RUNNING or verdict is None:
        return ()
    state = verdict.activity.state
    if state is _BUSY:
        idle = [gpu for gpu in verdict.gpus if gpu.activity.state is _IDLE]
        if not idle and rules.max_age is None:  # most of a large fleet
            return ()
        return tuple(_of_busy(node, idle, len(verdict.gpus), observation, rules))
    if state is _IDLE and rules.action == "resize-advice":
        held = format_duration(verdict.activity.held_seconds)
        return (_advise(node, "resize", f"It has been idle for {held}: a smaller machine, or none, may do."),)
    return ()


def _of_busy(
    node: Node, idle: list[GpuVerdict], gpus: int, observation: Observation, rules: IdleRules
) -> Iterator[Advice]:
    """Say the same of a node that works; `idle` are its GPUs that do not."""
    wait = wait_seconds(node, observation, rules) if idle else None
    shortest = min((gpu.activity.held_seconds for gpu in idle), default=0.0)
    if len(idle) < gpus and wait is not None and shortest >= wait:
        sentence = (
            f"{len(idle)} of its {gpus} GPUs have been idle for {format_duration(shortest)} or longer "
            "while the others work: a smaller machine, or MIG, may do."
        )
        yield _advise(node, "partly_idle", sentence)
    if rules.max_age is not None and too_old(node, observation, rules):
        sentence = f"It has been up for longer than {format_duration(rules.max_age)} and is still busy."
        yield _advise(node, "max_age", sentence)


def _advise(node: Node, code: str, sentence: str) -> Advice:
    """Make advice with the evidence of its node."""
    return Advice(target=node.id, reason=Reason(code=code, sentence=sentence, evidence=node.activity.evidence))
