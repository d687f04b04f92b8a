"""Machines: what is asked of their cloud for one step, and what the cloud then shows.

Rules of what became of a step, with those of `settle.py`:

1. A cloud's answers may be old. A removal that may have been carried out is "not carried out" only when the cloud still
   does not show it SETTLE_TIMEOUT after that.
2. A machine that its cloud does not know is gone where that is proved (`absence.py`), and otherwise not known.
"""

import logging
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from decimal import Decimal

from gpuwatch.clouds import STOP_AT, NotFoundError
from gpuwatch.clouds.permit import Permit
from gpuwatch.controller.absence import is_gone
from gpuwatch.controller.circuits import SLURM, Server
from gpuwatch.controller.context import ControllerContext
from gpuwatch.controller.last_question import objection_to
from gpuwatch.controller.target import Found, Target, not_yet, promise_arguments
from gpuwatch.controller.target_cluster_node import api_server
from gpuwatch.ledger.attempts import launch_time
from gpuwatch.model.decision import (
    DECISION_TAG,
    LAUNCHED_AT,
    NOTIFIED_TAG,
    REMOVALS,
    Intent,
    Observation,
    OpenIntent,
    Review,
    Status,
    Step,
    Verb,
)
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.model.money import SAVES, avoidable_usd
from gpuwatch.model.promise import promise_of
from gpuwatch.model.stops import NOT_PROVED, STILL_BILLED, StopAnswer, before_in, why_not_ours, with_before
from gpuwatch.model.undone import GROUP, SIZE, STARTED_AGAIN
from gpuwatch.model.verbs import ASKED_A_LAST_TIME
from gpuwatch.policies.idle_timeout.answers import ASKED, can_be_asked
from gpuwatch.policies.lives import DID_NOT_START
from gpuwatch.policies.undone import undone_of

log = logging.getLogger(__name__)

_LAUNCH_TIME_STEP = timedelta(seconds=1)  # clouds tell launch times in whole seconds


class MachineTarget(Target):
    """A machine: notices are its tags, everything else is a call of its cloud."""

    def servers(self, observation: Observation, step: Step) -> tuple[Server, ...]:
        """Return the machine's part of its cloud; before a removal its cluster and Slurm are asked, too."""
        first, node = super().servers(observation, step), observation.fleet.find(step.node_id)
        if node is None or step.verb not in ASKED_A_LAST_TIME:
            return first
        asked = [] if node.kubernetes is None else [api_server(self._parts, node.kubernetes.cluster)]
        return (*first, *asked, *([SLURM] if node.slurm is not None else []))

    def objection(self, observation: Observation, review: Review, tried: tuple[Step, ...]) -> str | None:
        """Ask cloud and node once more, and let policies and guard judge the answers afresh; a doubt is a veto."""
        return objection_to(self._parts, observation, review, tried)

    def arguments(self, observation: Observation, review: Review, now: datetime) -> Mapping[str, str]:
        """Return of a notice what it promises, of a removal or a start how its machine is, or the group.

        A later undoing of a removal shows by that, and that a start has begun.

        What somebody undid before it, without any use in between, goes with it, whether anybody could answer, and what
        an hour of it saves.
        """
        step = review.step
        if step.verb is Verb.NOTICE:
            approval = self._parts.rules.pool(review.pool).approval
            return promise_arguments(self._parts, step.arguments, now, review.pool, approval=approval)
        node = observation.fleet.find(step.node_id)
        if step.verb not in REMOVALS | {Verb.START} or node is None:
            return step.arguments
        said, undone = dict(step.arguments), undone_of(observation, node)
        if node.launched_at is not None:
            said[LAUNCHED_AT] = node.launched_at.isoformat()
        if step.verb is Verb.START:
            return said
        price = observation.price(node)
        saves = None if price is None else avoidable_usd(price.usd_per_hour, price.source)
        if node.owned:
            saves = Decimal(0)  # its price is paid for as long as it is named, also while it is off
        if saves is not None and saves != self.owner_and_price(observation, step)[1]:
            said[SAVES] = str(saves)
        if can_be_asked(node):
            said[ASKED] = "true"
        group = None if node.group is None else observation.fleet.group(node.group)
        if group is not None and step.verb is Verb.TERMINATE:
            said |= {GROUP: group.id, SIZE: str(group.desired)}
        return said if undone is None or undone.waits else {**said, **undone.arguments}

    def ask(self, intent: Intent, observation: Observation, permit: Permit) -> tuple[Status, str]:
        """Make the call that the intent's verb stands for."""
        cloud, node_id, key = self._parts.cloud, intent.node_id, intent.key
        node = observation.fleet.find(node_id)
        group = None if node is None else node.group
        before = self._parts.memory.before_stops.pop(node_id, None)
        match intent.verb:
            case Verb.STOP:
                return Status.ACCEPTED, with_before(_answer_words(cloud.stop(node_id, key, permit=permit)), before)
            case Verb.TERMINATE:
                cloud.terminate(node_id, key, permit=permit, group=group)
                return Status.ACCEPTED, with_before(f"the cloud accepted the {intent.verb}", before)
            case Verb.START:
                cloud.start(node_id, key)
            case Verb.PROTECT | Verb.UNPROTECT:
                cloud.protect(node_id, group or "", key, on=intent.verb is Verb.PROTECT)
            case _:
                cloud.tag(node_id, _tags(intent, self._parts.clock.now()), key)
                return Status.SETTLED, "its tags are set"
        return Status.ACCEPTED, f"the cloud accepted the {intent.verb.value}"

    def outcome_of(self, entry: OpenIntent) -> Found:
        """Find out what the cloud shows of the machine."""
        try:
            node = self._parts.cloud.node(entry.intent.node_id)
        except NotFoundError:
            return self._unknown(entry)
        if node is None or node.state is NodeState.TERMINATED:
            return _outcome_of_gone(entry, "the cloud shows it terminated")
        if not entry.counts or node.state is NodeState.UNKNOWN:
            return None
        return _OUTCOMES[entry.intent.verb](self._parts, entry, node)

    def _unknown(self, entry: OpenIntent) -> Found:
        """Say what a machine is that the cloud does not know; whether it is gone is proved first."""
        try:
            proof = is_gone(self._parts, entry.intent)
        except NotFoundError:
            return Status.FAILED, "the cloud does not know the node"
        return None if proof is None else _outcome_of_gone(entry, proof)


def _answer_words(answer: StopAnswer | None) -> str:
    """What is written down of an accepted stop; a cloud that says nothing of it proves nothing."""
    return "the cloud accepted the stop" if answer is None else answer.words


def _tags(intent: Intent, now: datetime) -> Mapping[str, str]:
    """What a notice, or its withdrawal, writes on the machine for its owner to see."""
    promise = promise_of(intent.pool, intent.arguments)
    if intent.verb is Verb.WITHDRAW or promise is None:
        return {NOTIFIED_TAG: f"withdrawn {now:%Y-%m-%dT%H:%M:%SZ}", STOP_AT: "", DECISION_TAG: intent.key}
    due = promise.due(now)
    return {NOTIFIED_TAG: f"{now:%Y-%m-%dT%H:%M:%SZ}", STOP_AT: f"{due:%Y-%m-%dT%H:%M:%SZ}", DECISION_TAG: intent.key}


def _outcome_of_gone(entry: OpenIntent, proof: str) -> tuple[Status, str]:
    """An answer that was lost, or never written down, may have been a yes: it counts against the limits."""
    ours = entry.intent.verb in REMOVALS and entry.reached
    before = before_in("" if entry.last is None else entry.last.detail)
    return Status.SETTLED if ours else Status.CANCELLED, with_before(proof, before)


def _outcome_of_tags(parts: ControllerContext, entry: OpenIntent, node: Node) -> Found:
    """Find the notice, or its withdrawal, among the tags."""
    del parts
    done = node.tags.get(DECISION_TAG) == entry.intent.key
    return (Status.SETTLED, "its tags show it") if done else (Status.INTERRUPTED, "its tags do not show it yet")


def _outcome_of_stop(parts: ControllerContext, entry: OpenIntent, node: Node) -> Found:
    """Find a stop over when the cloud shows it stopped, or when somebody has started it again."""
    if node.state in {NodeState.STOPPING, NodeState.TERMINATING}:
        return None
    # Also where it is stopped: whoever started it has stopped it since, and that is no stop of ours.
    if _started_since(entry, node):
        ended = Status.FAILED if entry.reached else Status.CANCELLED
        return ended, STARTED_AGAIN
    if node.state is NodeState.STOPPED:
        shown = "the cloud shows it stopped"
        if node.still_billed is not None:
            log.warning("%s is stopped and still billed: %s", node.id, node.still_billed)
            shown += f", {STILL_BILLED}: {node.still_billed}"
        # It counts against the limits either way. Whose stop it was is another question.
        doubt = why_not_ours(entry.answer, node.last_stop)
        shown = shown if doubt is None else f"{shown}; {NOT_PROVED}: {doubt}"
        return Status.SETTLED, with_before(shown, before_in("" if entry.last is None else entry.last.detail))
    return not_yet(parts, entry, "the cloud shows it running: not carried out")


def _started_since(entry: OpenIntent, node: Node) -> bool:
    """Whether somebody has started the node since the intent; by the cloud's own clock, where that is known."""
    before = launch_time(entry.intent.arguments)
    if node.launched_at is None:
        return False
    if before is not None:
        return node.launched_at > before
    return node.launched_at > entry.intent.at - _LAUNCH_TIME_STEP


def _outcome_of_termination(parts: ControllerContext, entry: OpenIntent, node: Node) -> Found:
    """Find a termination over when the cloud shows it terminated, and at no earlier word."""
    if node.state in {NodeState.TERMINATING, NodeState.STOPPING}:
        return None
    return not_yet(parts, entry, f"the cloud shows it {node.state.value}: not carried out")


def _outcome_of_start(parts: ControllerContext, entry: OpenIntent, node: Node) -> Found:
    """Find a start over when the cloud shows it starting or running."""
    if node.state in {NodeState.PENDING, NodeState.RUNNING}:
        return Status.SETTLED, f"the cloud shows it {node.state.value}"
    failed = "not carried out" if node.failed_start is None else f"{DID_NOT_START}{node.failed_start}"
    if LAUNCHED_AT in entry.intent.arguments and entry.counts and _started_since(entry, node):
        begun = failed if node.failed_start is not None else "it was started, and is stopped again"
        return Status.FAILED, f"the cloud shows it {node.state.value}: {begun}"
    return not_yet(parts, entry, f"the cloud shows it {node.state.value}: {failed}")


def _outcome_of_shield(parts: ControllerContext, entry: OpenIntent, node: Node) -> Found:
    """Find the scale-in protection as the cloud shows it."""
    if node.scale_in_protected is (entry.intent.verb is Verb.PROTECT):
        return Status.SETTLED, "the cloud shows it"
    return not_yet(parts, entry, "the cloud does not show it")


_OUTCOMES: Mapping[Verb, Callable[[ControllerContext, OpenIntent, Node], Found]] = {
    Verb.NOTICE: _outcome_of_tags,
    Verb.WITHDRAW: _outcome_of_tags,
    Verb.STOP: _outcome_of_stop,
    Verb.TERMINATE: _outcome_of_termination,
    Verb.START: _outcome_of_start,
    Verb.PROTECT: _outcome_of_shield,
    Verb.UNPROTECT: _outcome_of_shield,
}
