"""What became of every open intent: the cloud's word alone counts, and it is asked before anything is observed.

Rules:

1. What the cloud shows done is done, however the call was answered, also if it is no longer wanted.
2. A call without an answer on record may have been carried out. That is written down at the first look.
3. A cloud's answers may be old. A removal that may have been carried out is "not carried out" only when the cloud still
   does not show it SETTLE_TIMEOUT after that.
4. A node that its cloud does not know is gone where that is proved (`absence.py`), and otherwise not known.
5. What may have been carried out is not given up before SETTLE_TIMEOUT, and never as "nothing was done".
"""

import logging
from collections.abc import Callable, Iterator
from datetime import timedelta

from gpuwatch.clouds import CloudError, NotFoundError
from gpuwatch.controller import cluster_calls, workload_calls
from gpuwatch.controller.absence import is_gone
from gpuwatch.controller.context import ControllerContext
from gpuwatch.controller.launches import Found, Launches
from gpuwatch.controller.slurm import calls as slurm_calls
from gpuwatch.ledger.attempts import launch_time
from gpuwatch.model.decision import (
    ADDITIONS,
    DECISION_TAG,
    GIVEN_UP,
    NOT_DONE,
    REMOVALS,
    SETTLE_TIMEOUT,
    OpenIntent,
    Outcome,
    Status,
    Verb,
)
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.model.kubernetes import is_workload
from gpuwatch.model.verbs import ENDS, OF_CLUSTER, OF_SLURM, RECORDS

__all__ = ["MAX_ATTEMPTS", "MAX_REFUSALS", "SETTLE_TIMEOUT", "given_up", "reconcile"]

log = logging.getLogger(__name__)

MAX_ATTEMPTS = 5
MAX_REFUSALS = 2  # of a removal: a cloud that has said no twice says it again
_UNANSWERED = (Status.UNAVAILABLE, "no answer is on record: it may have been carried out")
_LAUNCH_TIME_STEP = timedelta(seconds=1)  # clouds tell launch times in whole seconds

_NOT_SHOWN = frozenset({Status.INTERRUPTED, Status.UNAVAILABLE})


def reconcile(parts: ControllerContext) -> Iterator[Outcome]:
    """Find out what became of every open intent and write it down."""
    view = parts.past(parts.clock.now())
    launches = Launches(parts, view.resume_orders)
    for entry in view.open_intents:
        try:
            found = _became(parts, entry, launches)
        except CloudError as error:
            log.warning("What became of the %s of %s is not known: %s", entry.intent.verb, entry.intent.node_id, error)
            continue
        # What keeps a machine from being a node may change, and is said anew.
        if found is not None and (entry.last is None or found[0] is not entry.last.status or found[0] is Status.UNSEEN):
            status, detail = found
            level = logging.WARNING if status is Status.UNSEEN else logging.INFO
            log.log(level, "%s of %s: %s (%s)", entry.intent.verb, entry.intent.node_id, status, detail)
            yield parts.ledger.settle(entry.intent, status, detail, parts.clock.now())


def _became(parts: ControllerContext, entry: OpenIntent, launches: Launches) -> Found:
    """What became of one open intent."""
    if entry.intent.verb is Verb.LAUNCH:
        found = launches.became(entry)
    elif entry.intent.verb in {Verb.GROW, Verb.SHRINK}:
        found = _resized(parts, entry)
    elif entry.intent.verb in RECORDS:
        return Status.SETTLED, "it is written down"
    elif is_workload(entry.intent.node_id):
        found = workload_calls.became(parts, entry)
    elif entry.intent.verb in OF_CLUSTER:
        found = cluster_calls.became(parts, entry)
    elif entry.intent.verb in OF_SLURM:
        found = slurm_calls.became(parts, entry)
    else:
        found = _of_node(parts, entry)
    if entry.last is not None and (found is None or found[0] in NOT_DONE) and _exhausted(entry):
        return Status.FAILED, f"{GIVEN_UP}{entry.last.detail}"
    return found


def _exhausted(entry: OpenIntent) -> bool:
    """Whether an intent that may be tried again has been tried, or refused, often enough."""
    refused = entry.intent.verb in ENDS and entry.refusals >= MAX_REFUSALS
    return entry.resumable and (refused or entry.attempts >= MAX_ATTEMPTS)


def given_up(parts: ControllerContext, entry: OpenIntent) -> Found:
    """How an open intent that is no longer wanted ends; None: not yet, its effect may still show."""
    if not entry.resumable:
        return None
    if not entry.reached:
        return Status.CANCELLED, "no longer wanted"
    if entry.reached_at is not None and parts.clock.now() - entry.reached_at <= SETTLE_TIMEOUT:
        return None
    ended = Status.FAILED if entry.intent.verb in ENDS | ADDITIONS else Status.CANCELLED
    return ended, "no longer wanted; the cloud never showed it done"


def _of_node(parts: ControllerContext, entry: OpenIntent) -> Found:
    """What the cloud shows of the node that an intent is about."""
    intent = entry.intent
    try:
        node = parts.cloud.node(intent.node_id)
    except NotFoundError:
        return _unknown(parts, entry)
    if node is None or node.state is NodeState.TERMINATED:
        return _gone(entry, "the cloud shows it terminated")
    if (entry.resumable and not entry.reached) or node.state is NodeState.UNKNOWN:
        return None
    found = _SHOWN[intent.verb](parts, entry, node)
    # What was not carried out so far may have been all the same: only its being done is news.
    return None if entry.resumable and found is not None and found[0] in _NOT_SHOWN else found


def _unknown(parts: ControllerContext, entry: OpenIntent) -> Found:
    """The cloud does not know the node; whether that means that it is gone is proved first."""
    try:
        proof = is_gone(parts, entry.intent)
    except NotFoundError:
        return Status.FAILED, "the cloud does not know the node"
    return None if proof is None else _gone(entry, proof)


def _gone(entry: OpenIntent, proof: str) -> tuple[Status, str]:
    """An answer that was lost, or never written down, may have been a yes: it counts against the limits."""
    ours = entry.intent.verb in REMOVALS and entry.reached
    return Status.SETTLED if ours else Status.CANCELLED, proof


def _tagged(parts: ControllerContext, entry: OpenIntent, node: Node) -> Found:
    """Notices are tags."""
    del parts
    done = node.tags.get(DECISION_TAG) == entry.intent.key
    return (Status.SETTLED, "its tags show it") if done else (Status.INTERRUPTED, "its tags do not show it yet")


def _stopped(parts: ControllerContext, entry: OpenIntent, node: Node) -> Found:
    """A stop is over when the cloud shows it stopped, or when somebody has started it again."""
    if node.state in {NodeState.STOPPING, NodeState.TERMINATING}:
        return None
    # Also where it is stopped: whoever started it has stopped it since, and that is no stop of ours.
    if _started_since(entry, node):
        ended = Status.FAILED if entry.reached else Status.CANCELLED
        return ended, "it was started again before it was seen stopped"
    if node.state is NodeState.STOPPED and node.still_billed is not None:
        log.warning("%s is stopped and still billed: %s", node.id, node.still_billed)
        return Status.SETTLED, f"the cloud shows it stopped, and still bills it: {node.still_billed}"
    if node.state is NodeState.STOPPED:
        return Status.SETTLED, "the cloud shows it stopped"
    return _not_yet(parts, entry, "the cloud shows it running: not carried out")


def _started_since(entry: OpenIntent, node: Node) -> bool:
    """Whether somebody has started the node since the intent; by the cloud's own clock, where that is known."""
    before = launch_time(entry.intent.arguments)
    if node.launched_at is None:
        return False
    if before is not None:
        return node.launched_at > before
    return node.launched_at > entry.intent.at - _LAUNCH_TIME_STEP


def _terminated(parts: ControllerContext, entry: OpenIntent, node: Node) -> Found:
    """A termination is over when the cloud shows it terminated, and at no earlier word."""
    if node.state in {NodeState.TERMINATING, NodeState.STOPPING}:
        return None
    return _not_yet(parts, entry, f"the cloud shows it {node.state.value}: not carried out")


def _started(parts: ControllerContext, entry: OpenIntent, node: Node) -> Found:
    """A start is over when the cloud shows it starting or running."""
    if node.state in {NodeState.PENDING, NodeState.RUNNING}:
        return Status.SETTLED, f"the cloud shows it {node.state.value}"
    return _not_yet(parts, entry, f"the cloud shows it {node.state.value}: not carried out")


def _shielded(parts: ControllerContext, entry: OpenIntent, node: Node) -> Found:
    """Scale-in protection is what the cloud shows."""
    if node.scale_in_protected is (entry.intent.verb is Verb.PROTECT):
        return Status.SETTLED, "the cloud shows it"
    return _not_yet(parts, entry, "the cloud does not show it")


_SHOWN: dict[Verb, Callable[[ControllerContext, OpenIntent, Node], Found]] = {
    Verb.NOTICE: _tagged,
    Verb.WITHDRAW: _tagged,
    Verb.STOP: _stopped,
    Verb.TERMINATE: _terminated,
    Verb.START: _started,
    Verb.PROTECT: _shielded,
    Verb.UNPROTECT: _shielded,
}


def _resized(parts: ControllerContext, entry: OpenIntent) -> Found:
    """A growth is over when the group's desired size is what was asked for, or more; taking back, or less."""
    size = int(entry.intent.arguments["size"])
    try:
        group = parts.cloud.group(entry.intent.node_id)
    except NotFoundError:
        return Status.FAILED, "the cloud does not know the group"
    done = group.desired >= size if entry.intent.verb is Verb.GROW else group.desired <= size
    if done:
        return Status.SETTLED, f"the cloud shows a desired size of {group.desired}"
    return None if entry.resumable else _not_yet(parts, entry, f"the cloud shows a desired size of {group.desired}")


def _not_yet(parts: ControllerContext, entry: OpenIntent, detail: str) -> Found:
    """An accepted call, and a removal without an answer, have some time to take effect."""
    last, removal = entry.last, entry.intent.verb in REMOVALS
    if removal and entry.unanswered:
        return _UNANSWERED
    patient = last is not None and (last.status is Status.ACCEPTED or (removal and last.status is Status.UNAVAILABLE))
    if last is not None and patient and parts.clock.now() - last.at <= SETTLE_TIMEOUT:
        return None
    return Status.INTERRUPTED, detail
