"""What is over without an action: intents that nobody wants any more, notices of machines that are gone or not ours."""

from gpuwatch.clouds import CloudError, NotFoundError
from gpuwatch.controller.context import ControllerContext, Missing
from gpuwatch.controller.settle import given_up
from gpuwatch.model.decision import Observation, Reason, Review, Status, Verb
from gpuwatch.model.fleet import NodeState
from gpuwatch.model.kubernetes import is_workload
from gpuwatch.policies import capacity

_ASKED_AT_MOST = 20  # in one round, those first that have waited longest
_UNKNOWN_FOR_SECONDS = 3600.0
_REASON = Reason(code="gone", sentence="The machine no longer exists, so its notice is closed.")


def drop_unwanted(parts: ControllerContext, observation: Observation, reviews: tuple[Review, ...]) -> None:
    """An intent that may be tried again is cancelled once its step is no longer decided, or is refused for good."""
    wanted = {
        (review.step.node_id, review.step.verb)
        for review in reviews
        if all(refusal.rule in {"in_flight", "growth_rate"} for refusal in review.refusals)
    }
    for entry in observation.ledger.open_intents:
        unwanted = (entry.intent.node_id, entry.intent.verb) not in wanted
        ended = given_up(parts, entry) if unwanted and not capacity.may_appear(entry, observation.now) else None
        if ended is not None:
            parts.ledger.settle(entry.intent, *ended, parts.clock.now())


def drop_unenrolled(parts: ControllerContext, observation: Observation, round_id: int) -> None:
    """End the notices of machines that are no longer enrolled. The machines stay; their owners are notified."""
    for notice in observation.ledger.notices if parts.rules.enforce else ():
        node = observation.fleet.find(notice.node_id)
        if node is not None and not node.enrolled:
            reason = Reason(code="not_enrolled", sentence="It is no longer enrolled, so its notice does not hold.")
            now = parts.clock.now()
            intent = parts.ledger.intend(Verb.WITHDRAW, node.id, node.pool, now, reason, round_id, owner=node.owner)
            parts.ledger.settle(intent, Status.SETTLED, "the machine is not touched", now)


def close_gone(parts: ControllerContext, observation: Observation, round_id: int) -> None:
    """Close the notices of machines that are gone, each with a record, and forget our stops of them."""
    ledger, missing = observation.ledger, parts.memory.missing
    noticed, stopped = {each.node_id: each for each in ledger.notices}, ledger.stopped_ids
    absent = {each for each in observation.fleet.missing(noticed.keys() | stopped) if not is_workload(each)}
    now = parts.clock.monotonic()
    for node_id in missing.keys() - absent:
        del missing[node_id]
    for node_id in absent - missing.keys():
        missing[node_id] = Missing(since=now)
    for node_id in sorted(absent, key=lambda each: (missing[each].asked, each))[:_ASKED_AT_MOST]:
        missing[node_id].asked = now
        if not _gone(parts, node_id, now - missing[node_id].since):
            continue
        if node_id in noticed:
            at, pool = parts.clock.now(), parts.ledger.pool_of(noticed[node_id].key)
            intent = parts.ledger.intend(Verb.WITHDRAW, node_id, pool, at, _REASON, round_id)
            parts.ledger.settle(intent, Status.SETTLED, "the machine is gone: there are no tags to set", at)
        if node_id in stopped:
            parts.ledger.forget_stop(node_id)


def _gone(parts: ControllerContext, node_id: str, missing_seconds: float) -> bool:
    """Whether it is proved that a machine no longer exists."""
    try:
        node = parts.cloud.node(node_id)
    except NotFoundError:
        return missing_seconds >= _UNKNOWN_FOR_SECONDS
    except CloudError:
        return False
    return node is None or node.state is NodeState.TERMINATED
