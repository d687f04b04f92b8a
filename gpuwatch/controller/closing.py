"""What is over without an action: intents that nobody wants any more, notices of what is gone or not ours."""

import logging

from gpuwatch.clouds import CloudError, NotFoundError
from gpuwatch.clouds.permit import Permit
from gpuwatch.controller import answers
from gpuwatch.controller.circuits import Server
from gpuwatch.controller.context import ControllerContext, Missing
from gpuwatch.controller.settle import given_up
from gpuwatch.controller.target_cluster_node import api_server
from gpuwatch.controller.targets import Targets, target_kind
from gpuwatch.model.decision import Observation, Reason, Review, Status, Verb
from gpuwatch.model.fleet import NodeState
from gpuwatch.model.promise import Notice
from gpuwatch.model.verbs import TargetKind
from gpuwatch.policies.kubernetes import idle_pods
from gpuwatch.policies.kubernetes.workload_words import workload_of_id
from gpuwatch.policies.machines import may_appear

log = logging.getLogger(__name__)

_ASKED_AT_MOST = 20  # in one round, those first that have waited longest
_UNKNOWN_FOR_SECONDS = 3600.0
_CLOSE_SECONDS = 60.0
_REASON = Reason(code="gone", sentence="The machine no longer exists, so its notice is closed.")


def close_what_is_over(
    parts: ControllerContext, observation: Observation, reviews: tuple[Review, ...], round_id: int
) -> None:
    """Close, before anything new is done, all that is over by itself."""
    _drop_unwanted(parts, observation, reviews)
    with answers.one_part("The end of notices of machines that are gone"):
        _close_gone_machines(parts, observation, round_id)
    for notice in idle_pods.notices_of_gone(observation):
        if observation.ledger.open_for(notice.node_id) is None:
            with answers.one_part(f"The end of the notice of {notice.node_id}"):
                _close_gone_workload(parts, observation, notice, round_id)
    _drop_unenrolled(parts, observation, round_id)


def _drop_unwanted(parts: ControllerContext, observation: Observation, reviews: tuple[Review, ...]) -> None:
    """Cancel an intent that may be tried again, once its step is no longer decided, or is refused for good."""
    wanted = {
        (review.step.node_id, review.step.verb)
        for review in reviews
        if all(refusal.rule in {"in_flight", "growth_rate"} for refusal in review.refusals)
    }
    for entry in observation.ledger.open_intents:
        unwanted = (entry.intent.node_id, entry.intent.verb) not in wanted
        ended = given_up(parts, entry) if unwanted and not may_appear(entry, observation.now) else None
        if ended is not None:
            parts.ledger.settle(entry.intent, *ended, parts.clock.now())


def _drop_unenrolled(parts: ControllerContext, observation: Observation, round_id: int) -> None:
    """End the notices of machines that are no longer enrolled. The machines stay; their owners are notified."""
    for notice in observation.ledger.notices if parts.rules.enforce else ():
        node = observation.fleet.find(notice.node_id)
        if node is not None and not node.enrolled:
            reason = Reason(code="not_enrolled", sentence="It is no longer enrolled, so its notice does not hold.")
            now = parts.clock.now()
            intent = parts.ledger.intend(Verb.WITHDRAW, node.id, node.pool, now, reason, round_id, owner=node.owner)
            parts.ledger.settle(intent, Status.SETTLED, "the machine is not touched", now)


def _close_gone_machines(parts: ControllerContext, observation: Observation, round_id: int) -> None:
    """Close the notices of machines that are gone, each with a record, and forget our stops."""
    ledger, missing = observation.ledger, parts.memory.missing
    noticed, stopped = {each.node_id: each for each in ledger.notices}, ledger.stopped_ids
    absent = {
        node_id
        for node_id in observation.fleet.missing(noticed.keys() | stopped)
        if target_kind(Verb.NOTICE, node_id) is TargetKind.MACHINE
    }
    now = parts.clock.monotonic()
    for node_id in missing.keys() - absent:
        del missing[node_id]
    for node_id in absent - missing.keys():
        missing[node_id] = Missing(since=now)
    for node_id in sorted(absent, key=lambda each: (missing[each].asked, each))[:_ASKED_AT_MOST]:
        if parts.memory.circuits.why_left_alone(Server()) is not None:
            return  # nobody knows whose these are: those that waited longest come first in the next round
        missing[node_id].asked = now
        if not _is_gone(parts, node_id, now - missing[node_id].since):
            continue
        if node_id in noticed:
            at, pool = parts.clock.now(), parts.ledger.pool_of(noticed[node_id].key)
            intent = parts.ledger.intend(Verb.WITHDRAW, node_id, pool, at, _REASON, round_id)
            parts.ledger.settle(intent, Status.SETTLED, "the machine is gone: there are no tags to set", at)
        if node_id in stopped:
            parts.ledger.forget_stop(node_id)


def _is_gone(parts: ControllerContext, node_id: str, missing_seconds: float) -> bool:
    """Whether it is proved that a machine no longer exists."""
    asked_at = parts.clock.monotonic()
    try:
        node = parts.cloud.node(node_id)
    except NotFoundError:
        return missing_seconds >= _UNKNOWN_FOR_SECONDS
    except CloudError as error:
        answers.note_silence(parts, Server(), error, asked_at)
        return False
    return node is None or node.state is NodeState.TERMINATED


def _close_gone_workload(parts: ControllerContext, observation: Observation, notice: Notice, round_id: int) -> None:
    """End the notice of a workload that holds no GPU any more; its annotation goes where that is allowed and possible.

    It binds nobody: a notice is what the ledger says.
    """
    at, promise, target = parts.clock.now(), notice.promise, notice.target
    pool = parts.ledger.pool_of(notice.key) if promise is None else promise.pool
    arguments = {} if target is None else target.arguments
    intent = parts.ledger.intend(Verb.WITHDRAW, notice.node_id, pool, at, idle_pods.GONE, round_id, arguments=arguments)
    detail = "its annotation was left as it is"
    acts = parts.rules.enforce and not observation.ledger.pauses
    name = workload_of_id(notice.node_id)
    server = api_server(parts, "" if name is None else name.cluster)
    acts = acts and parts.memory.circuits.why_left_alone(server) is None
    if acts and parts.cluster is not None and target is not None:
        asked_at = parts.clock.monotonic()
        try:
            permit = Permit.asked_now(parts.clock, _CLOSE_SECONDS, parts.ledger.leading)
            _, detail = Targets(parts).target_of(intent).ask(intent, observation, permit)
        except CloudError as error:
            answers.note_silence(parts, server, error, asked_at)
            detail = f"its annotation could not be taken away: {error}"
    parts.ledger.settle(intent, Status.SETTLED, detail, parts.clock.now())
    log.info("The notice of %s is closed: %s", notice.node_id, detail)
