"""Carrying out what the guard allows: the intent first, then a last look at the node, then the cloud.

The last word is worth something for seconds only: each call goes with a permit that is checked when it leaves.
"""

import logging
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from functools import partial

from gpuwatch import guard, policies
from gpuwatch.clouds import (
    STOP_AT,
    CloudError,
    NotFoundError,
    PermitExpiredError,
)
from gpuwatch.clouds.permit import Permit, in_force
from gpuwatch.controller import answers, closing, cluster_calls, workload_calls
from gpuwatch.controller.context import Act, ControllerContext
from gpuwatch.controller.offers import NextOffers
from gpuwatch.controller.slurm import calls as slurm_calls
from gpuwatch.controller.startup_pause import decisions_on, with_foreign
from gpuwatch.ledger import LeadLostError, LedgerError
from gpuwatch.model.decision import (
    ADDITIONS,
    DECISION_TAG,
    FINAL,
    GIVEN_UP,
    LAUNCHED_AT,
    LETS_GO,
    NOTIFIED_TAG,
    REMOVALS,
    Decision,
    Intent,
    Observation,
    Outcome,
    Review,
    Status,
    Step,
    Verb,
)
from gpuwatch.model.duration import format_duration
from gpuwatch.model.fleet import NodeReport, NodeState
from gpuwatch.model.kubernetes import is_workload
from gpuwatch.model.looked_again import looked_again
from gpuwatch.model.promise import arguments_of, promise_of
from gpuwatch.model.proposal import step_for
from gpuwatch.model.verbs import ASKED_LAST, ENDS, OF_CLUSTER, OF_SLURM
from gpuwatch.policies import capacity
from gpuwatch.policies.spot.records import OFFER

log = logging.getLogger(__name__)

_FRESH_INTERVALS = 3  # of its own sampling
# What lets no machine go rests on the round's own observation: it is not sent after a longer pause of this process.
_DECIDED_SECONDS = 60.0

# Nor after so many denied calls in a row: one denied call may be about its machine, many are about our credentials.
_DENIED_IN_A_ROW = 3


def execute(
    parts: ControllerContext,
    observation: Observation,
    reviews: tuple[Review, ...],
    round_id: int,
    decisions: Sequence[Decision] = (),
) -> Iterator[Act]:
    """Intend, confirm and act on every step that the guard allows; drop open intents that are no longer wanted."""
    closing.drop_unwanted(parts, observation, reviews)
    closing.close_gone(parts, observation, round_id)
    workload_calls.close_gone(parts, observation, round_id)
    closing.drop_unenrolled(parts, observation, round_id)
    tried: tuple[Step, ...] = ()
    denied, broken, slurm_broken = 0, False, False
    offers = NextOffers(parts, observation, reviews, decisions)
    waiting = deque(review for review in reviews if review.allowed)
    while waiting:
        review = waiting.popleft()
        if offers.is_over(review):
            waiting.extendleft(reversed(offers.others(review)))
            continue
        of_cluster = review.step.verb in OF_CLUSTER or is_workload(review.step.node_id)
        of_slurm = review.step.verb in OF_SLURM
        if (of_cluster and broken) or (of_slurm and slurm_broken):
            continue
        outcome = _act(parts, observation, review, round_id, tried)
        yield Act(review=review, outcome=outcome)
        if offers.refused(review, outcome):
            waiting.extendleft(reversed(offers.others(review)))
        if of_cluster:
            # The API server's silence says nothing about the cloud, and a right that one kind of workload lacks nothing
            # about the others.
            denied_all = {Status.DENIED} if review.step.verb in OF_CLUSTER else set()
            broken = outcome.status in answers.BREAKERS | denied_all
        elif of_slurm:
            slurm_broken = outcome.status in answers.BREAKERS | {Status.DENIED}
        else:
            denied = denied + 1 if outcome.status is Status.DENIED else 0
        if not (of_cluster or of_slurm) and (outcome.status in answers.BREAKERS or denied == _DENIED_IN_A_ROW):
            log.warning("No further calls in this round: %s", outcome.detail)
            return
        if review.step.verb in LETS_GO | ENDS | ADDITIONS and outcome.status is not Status.CANCELLED:
            tried += (review.step,)


def _act(
    parts: ControllerContext, observation: Observation, review: Review, round_id: int, tried: tuple[Step, ...]
) -> Outcome:
    """One step."""
    move, now = review.step, parts.clock.now()
    entry = observation.ledger.open_step(move.node_id, move.verb)
    if entry is not None and _same(entry.intent.arguments, move):
        intent = entry.intent
    else:
        if entry is not None and entry.intent.verb is move.verb:
            status = Status.FAILED if entry.reached else Status.CANCELLED
            parts.ledger.settle(entry.intent, status, "something else is wanted of it", now)
        owner, usd = _whose(parts, observation, move)
        intent = parts.ledger.intend(
            move.verb,
            move.node_id,
            review.pool,
            now,
            move.reason,
            round_id,
            arguments=_arguments(parts, observation, review, now),
            owner=owner,
            usd_per_hour=usd,
        )
    # An earlier attempt may have been carried out: then it counts against the limits, whatever becomes of this one.
    reached = entry is not None and entry.intent is intent and entry.reached
    if entry is not None and move.verb in ENDS:
        # Should this process end before the answer is written down, this attempt may have been carried out, too.
        parts.ledger.settle(intent, Status.ASKED, "asked again", parts.clock.now())
    permit = _permit(parts, observation, review)
    veto = _confirm(parts, observation, review, tried) if move.verb in ASKED_LAST else None
    if veto is not None:
        status, detail = Status.FAILED if reached else Status.CANCELLED, f"vetoed at the last moment: {veto}"
    else:
        status, detail = _call(parts, intent, observation, permit)
        if status in answers.OFFER_REFUSED and OFFER in intent.arguments and not reached:
            parts.ledger.settle(intent, status, detail, parts.clock.now())
            status, detail = Status.FAILED, f"{GIVEN_UP}{detail}"
        if status in {Status.CANCELLED, Status.UNSENT} and reached:
            status = Status.INTERRUPTED  # as it was before this attempt, of which nothing was sent
    outcome = parts.ledger.settle(intent, status, detail, parts.clock.now())
    level = logging.INFO if status in FINAL or status is Status.ACCEPTED else logging.WARNING
    log.log(level, "%s of %s: %s (%s). %s", intent.verb, intent.node_id, status, detail, move.reason.sentence)
    return outcome


def _permit(parts: ControllerContext, observation: Observation, review: Review) -> Permit:
    """What goes with the call, made before anybody is asked: its age is that of the oldest answer."""
    ledger, epoch, verb = parts.ledger, parts.ledger.epoch, review.step.verb
    seconds = parts.rules.limits.max_confirmation_age if verb in ASKED_LAST else _DECIDED_SECONDS
    return Permit.asked_now(
        parts.clock,
        seconds,
        lambda: ledger.leading() and ledger.epoch == epoch,
        partial(_ordered, parts, observation, review),
    )


def _ordered(parts: ControllerContext, observation: Observation, review: Review) -> str | None:
    """What a person has ordered against a step since the round looked; None: nothing."""
    move, now = review.step, parts.clock.now()
    try:
        latest = parts.orders(now)
    except LedgerError as error:  # a cloud's SDK must not take it for one of its own
        return f"the ledger cannot say whether a pause or a snooze was ordered: {error}"
    for pause in latest.pauses if guard.obeys_pauses(move.verb) else ():
        if pause.pool in {None, review.pool}:
            what = "everything" if pause.pool is None else f"the pool {pause.pool}"
            return f"{pause.who} has paused {what}"
    known = observation.ledger.snoozes
    for snooze in latest.snoozes if move.verb in ASKED_LAST else ():
        if snooze.node_id == move.node_id and snooze not in known:
            return f"{snooze.who} has snoozed it until {snooze.until:%Y-%m-%d %H:%M} UTC"
    return None


def _arguments(parts: ControllerContext, observation: Observation, review: Review, now: datetime) -> Mapping[str, str]:
    """What goes with the intent: of a notice what it promises, of a removal its machine's launch time, too.

    A later start is recognised by it.
    """
    move = review.step
    if move.verb is Verb.NOTICE:
        of_workload = is_workload(move.node_id)
        return workload_calls.promised(parts, move, now) if of_workload else _promised(parts, review, now)
    node = observation.fleet.find(move.node_id)
    if move.verb not in REMOVALS or node is None or node.launched_at is None:
        return move.arguments
    return {**move.arguments, LAUNCHED_AT: node.launched_at.isoformat()}


def _same(arguments: Mapping[str, str], move: Step) -> bool:
    """Whether a group's size, an end of pods, a drain in Slurm of the node, is the one that the guard has allowed."""
    return move.verb not in {Verb.GROW, Verb.SHRINK, Verb.RELEASE} | OF_SLURM or dict(arguments) == dict(move.arguments)


def _whose(parts: ControllerContext, observation: Observation, move: Step) -> tuple[str | None, Decimal | None]:
    """Who owns the target and what its hour costs, for the limits of the hours to come."""
    if is_workload(move.node_id):
        use = parts.memory.workloads.get(move.node_id)
        return (None, None) if use is None else (use.workload.owner, use.usd_per_hour)
    node, group = observation.fleet.find(move.node_id), observation.fleet.group(move.node_id)
    kind = node.instance_type if node is not None else group.instance_type if group is not None else None
    price = observation.prices.get(kind or move.arguments.get("instance_type", ""))
    return None if node is None else node.owner, None if price is None else price.usd_per_hour


def _confirm(parts: ControllerContext, observation: Observation, review: Review, tried: tuple[Step, ...]) -> str | None:
    """Ask cloud and node once more, and let policies and guard judge the answers afresh; a doubt is a veto.

    `tried` are the changes made earlier in this round: they count against the limits.
    """
    node_id = review.step.node_id
    if is_workload(node_id):
        return workload_calls.veto(parts, observation, review.step, tried)
    try:
        node = parts.cloud.node(node_id)
        group = None if node is None or node.group is None else parts.cloud.group(node.group)
    except NotFoundError as error:
        return f"the cloud does not know it: {error}"
    except CloudError as error:
        return f"the cloud gives no answer about it: {error}"
    if node is None:
        return "the cloud no longer lists it"
    seen = observation.fleet.find(node_id)
    looked = cluster_calls.looked_at(parts, node, None if seen is None else seen.kubernetes)
    if not isinstance(looked, str):
        looked = slurm_calls.looked_at(parts, looked, None if seen is None else seen.slurm)
    if isinstance(looked, str):
        return looked
    node, signal = looked, looked.signal
    if node.state is not NodeState.STOPPED:
        signal = parts.signals.confirm(node)
        if (late := _late(signal, parts.rules.limits.max_confirmation_age)) is not None:
            return late
    node = replace(node, signal=signal, cloud_notice=None if seen is None else seen.cloud_notice)
    now = parts.clock.now()
    latest = parts.past(now)  # somebody may have just paused or kept it
    node, fleet = latest.kept(node), observation.fleet
    groups = tuple(group if group is not None and each.id == group.id else each for each in fleet.groups)
    ledger = with_foreign(parts, observation.ledger, [decisions_on(node)])
    if (ledger.pauses, ledger.snoozes) != (latest.pauses, latest.snoozes):
        ledger = replace(ledger, pauses=latest.pauses, snoozes=latest.snoozes)
    fresh = replace(observation, now=now, ledger=ledger, fleet=looked_again(fleet, node, groups, now))
    rules = parts.rules.pool(node.pool)
    steps = dict(parts.memory.steps)  # those of the round: the next question differs from them in its own node alone
    proposals = policies.propose(fresh, node.pool, rules, doubt=parts.rules.doubt(node.pool), cache=steps)
    decision = policies.resolve(fresh, node.pool, proposals, rules)
    found = step_for(node_id, decision.steps)
    if found is None or found.verb is not review.step.verb:
        return "it is no longer in the pool" if found is None else found.reason.sentence
    if (stays := cluster_calls.stays_now(review.step, found)) is not None:
        return stays
    again = guard.judge(
        guard.case_of(
            found,
            fresh,
            node.pool,
            parts.rules,
            frozen=guard.burst(fresh, node.pool, parts.rules.limits),
            granted=tried,
        )
    )
    return None if again.allowed else " ".join(answer.sentence for answer in again.refusals)


def _late(signal: NodeReport, seconds: float) -> str | None:
    """Why an answer is not one of now, whatever the source holds of it: its own count of its newest sample's age."""
    verdict = signal.verdict
    if verdict is None or verdict.age_seconds <= max(seconds, _FRESH_INTERVALS * verdict.interval_seconds):
        return None
    return f"its newest sample is {format_duration(verdict.age_seconds)} old"


def _call(parts: ControllerContext, intent: Intent, observation: Observation, permit: Permit) -> tuple[Status, str]:
    """One mutation of the cloud, and what came of it in the ledger's words."""
    try:
        permit.check()
        permit.checks.clear()
        with in_force(permit):
            return _ask(parts, intent, observation, permit)
    except PermitExpiredError as error:
        if not parts.ledger.leading():
            why = parts.ledger.identity.trouble or "another controller leads now"
            raise LeadLostError(f"{why}; {intent.verb} of {intent.node_id} is not carried out") from None
        log.warning("%s of %s was not sent: %s.", intent.verb, intent.node_id, error)
        return Status.CANCELLED, f"not sent: {error}"
    except CloudError as error:
        return answers.status_of(error, intent.verb, sent=bool(permit.checks)), str(error)


def _ask(parts: ControllerContext, intent: Intent, observation: Observation, permit: Permit) -> tuple[Status, str]:
    """The call that the intent's verb stands for."""
    cloud, node_id, key = parts.cloud, intent.node_id, intent.key
    node = observation.fleet.find(node_id)
    group = None if node is None else node.group
    if is_workload(node_id):
        return workload_calls.asked(parts, intent, permit)
    if intent.verb in OF_CLUSTER:
        return cluster_calls.asked(parts, intent, permit)
    if intent.verb in OF_SLURM:
        return slurm_calls.asked(parts, intent, permit)
    if intent.verb is Verb.STOP:
        cloud.stop(node_id, key, permit=permit)
    elif intent.verb is Verb.TERMINATE:
        cloud.terminate(node_id, key, permit=permit, group=group)
    elif intent.verb is Verb.START:
        cloud.start(node_id, key)
    elif intent.verb is Verb.LAUNCH:
        return Status.ACCEPTED, f"{capacity.LAUNCHES}{cloud.launch(intent.arguments, key)}"
    elif intent.verb in {Verb.GROW, Verb.SHRINK}:
        (cloud.grow if intent.verb is Verb.GROW else cloud.shrink)(node_id, int(intent.arguments["size"]), key)
    elif intent.verb in {Verb.PROTECT, Verb.UNPROTECT}:
        cloud.protect(node_id, group or "", key, on=intent.verb is Verb.PROTECT)
    else:
        cloud.tag(node_id, _tags(intent, parts.clock.now()), key)
        return Status.SETTLED, "its tags are set"
    return Status.ACCEPTED, f"the cloud accepted the {intent.verb.value}"


def _promised(parts: ControllerContext, review: Review, now: datetime) -> Mapping[str, str]:
    """What a notice that is given now promises."""
    arguments = review.step.arguments
    return arguments_of(
        arguments["action"],
        grace_seconds=float(arguments["grace_seconds"]),
        idle_seconds=float(arguments["idle_seconds"]) if "idle_seconds" in arguments else None,
        at=now,
        approval=parts.rules.pool(review.pool).approval,
        heard=parts.rules.limits.require_notification,
    )


def _tags(intent: Intent, now: datetime) -> Mapping[str, str]:
    """What a notice, or its withdrawal, writes on the machine for its owner to see."""
    promise = promise_of(intent.pool, intent.arguments)
    if intent.verb is Verb.WITHDRAW or promise is None:
        return {NOTIFIED_TAG: f"withdrawn {now:%Y-%m-%dT%H:%M:%SZ}", STOP_AT: "", DECISION_TAG: intent.key}
    due = promise.due(now)
    return {NOTIFIED_TAG: f"{now:%Y-%m-%dT%H:%M:%SZ}", STOP_AT: f"{due:%Y-%m-%dT%H:%M:%SZ}", DECISION_TAG: intent.key}
