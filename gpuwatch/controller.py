"""One round: settle · observe · propose · resolve · review · intend · confirm · act. `step` is the only implementation.

The live controller, `plan`, the demo and every replay call it; `plan` stops before the intent. It keeps nothing between
rounds: what it must know of the past is in the ledger.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

from gpuwatch import guard, policies
from gpuwatch.clock import Clock
from gpuwatch.clouds import (
    DECISION_ID,
    NOTIFIED_AT,
    STOP_AT,
    AuthFailedError,
    Cloud,
    CloudError,
    CloudUnavailableError,
    NotFoundError,
    ThrottledError,
)
from gpuwatch.ledger import Ledger
from gpuwatch.model.decision import (
    FINAL,
    Decision,
    Intent,
    Observation,
    OpenIntent,
    Outcome,
    Proposal,
    Review,
    Status,
    Step,
    Verb,
)
from gpuwatch.model.fleet import Fleet, Node, NodeState
from gpuwatch.model.knobs import format_duration
from gpuwatch.signals import SignalSource

log = logging.getLogger(__name__)

SETTLE_TIMEOUT = timedelta(minutes=10)  # after which an accepted stop that shows no effect is tried again
MAX_ATTEMPTS = 5
_LAUNCH_TIME_STEP = timedelta(seconds=1)  # clouds tell launch times in whole seconds
_FRESH_INTERVALS = 3  # of its own sampling: an older answer is no answer to "now"

# What an error leaves in the ledger; any other refusal is REFUSED.
_STATUS_OF: dict[type[CloudError], Status] = {
    ThrottledError: Status.THROTTLED,
    AuthFailedError: Status.DENIED,
    CloudUnavailableError: Status.UNAVAILABLE,
}
# After these nothing else is asked of the cloud in the same round.
_BREAKERS = frozenset(_STATUS_OF.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a controller is made of; the casts differ in these alone."""

    clock: Clock
    cloud: Cloud
    signals: SignalSource
    ledger: Ledger
    pools: Callable[[str], policies.PoolRules]
    limits: guard.Limits
    enforce: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One step that was carried out, or tried, with what came of it."""

    review: Review
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """All that one round saw, said and did. `trouble` is why it saw nothing."""

    observation: Observation
    proposals: tuple[Proposal, ...] = ()
    decisions: tuple[Decision, ...] = ()
    reviews: tuple[Review, ...] = ()
    settled: tuple[Outcome, ...] = ()
    acts: tuple[Act, ...] = ()
    trouble: str | None = None


def step(parts: Parts, *, act: bool = True) -> Round:
    """One round. With `act=False` (plan) it ends before anything is written down."""
    settled = tuple(_settle_open(parts)) if act else ()
    try:
        observation = observe(parts)
    except CloudError as error:
        blind = Observation(now=parts.clock.now(), fleet=Fleet(observed_at=parts.clock.now(), nodes=()))
        return Round(observation=blind, settled=settled, trouble=f"The cloud gave no whole picture: {error}")
    proposals, decisions = decide(parts, observation)
    reviews = guard.review(observation, decisions, parts.pools, parts.limits, enforce=parts.enforce)
    acts = tuple(_carry_out(parts, observation, reviews)) if act else ()
    return Round(
        observation=observation, proposals=proposals, decisions=decisions, reviews=reviews, settled=settled, acts=acts
    )


def observe(parts: Parts) -> Observation:
    """The fleet with its signals, and the ledger, at one moment."""
    fleet = parts.signals.observe(parts.cloud.nodes())
    now = parts.clock.now()
    recent = timedelta(seconds=max(3600.0, parts.limits.failure_cooldown))
    return Observation(now=now, fleet=fleet, ledger=parts.ledger.view(now, recent=recent))


def decide(parts: Parts, observation: Observation) -> tuple[tuple[Proposal, ...], tuple[Decision, ...]]:
    """All proposals, and one decision for each pool that has nodes."""
    proposals: list[Proposal] = []
    decisions: list[Decision] = []
    for pool in sorted({node.pool for node in observation.fleet.nodes}):
        proposed = policies.propose(observation, pool, parts.pools(pool))
        proposals.extend(proposed)
        decisions.append(policies.resolve(observation, pool, proposed))
    return tuple(proposals), tuple(decisions)


def _settle_open(parts: Parts) -> Iterator[Outcome]:
    """Find out, before anything is observed, what became of every open intent: the cloud's word alone counts."""
    for entry in parts.ledger.view(parts.clock.now()).open_intents:
        try:
            found = _became(parts, entry)
        except CloudError as error:
            log.warning("What became of the %s of %s is not known: %s", entry.intent.verb, entry.intent.node_id, error)
            continue
        if found is not None and (entry.last is None or found[0] is not entry.last.status):
            status, detail = found
            log.info("%s of %s: %s (%s)", entry.intent.verb, entry.intent.node_id, status, detail)
            yield parts.ledger.settle(entry.intent, status, detail, parts.clock.now())


def _became(parts: Parts, entry: OpenIntent) -> tuple[Status, str] | None:
    """What became of one open intent; None where only time will tell."""
    intent, last = entry.intent, entry.last
    try:
        node = parts.cloud.node(intent.node_id)
    except NotFoundError:
        waited = parts.clock.now() - intent.at
        return (Status.FAILED, "the cloud does not know the node") if waited > SETTLE_TIMEOUT else None
    if node is None or node.state is NodeState.TERMINATED:
        gone = intent.verb is Verb.STOP and last is not None and last.status is Status.ACCEPTED
        return (Status.SETTLED if gone else Status.CANCELLED, "the cloud shows it terminated")
    if guard.resumable(entry):
        return (Status.FAILED, f"given up: {last.detail}") if last and entry.attempts >= MAX_ATTEMPTS else None
    if intent.verb is not Verb.STOP:
        done = node.tags.get(DECISION_ID) == intent.key
        return (Status.SETTLED, "its tags show it") if done else (Status.INTERRUPTED, "its tags do not show it")
    if node.state is NodeState.STOPPED:
        return Status.SETTLED, "the cloud shows it stopped"
    if node.state in {NodeState.STOPPING, NodeState.TERMINATING}:
        return None
    if node.launched_at is not None and node.launched_at > intent.at - _LAUNCH_TIME_STEP:
        ended = Status.FAILED if entry.reached else Status.CANCELLED
        return ended, "it was started again before it was seen stopped"
    if last is not None and last.status is Status.ACCEPTED and parts.clock.now() - last.at <= SETTLE_TIMEOUT:
        return None
    return Status.INTERRUPTED, "the cloud shows it running: not carried out"


def _carry_out(parts: Parts, observation: Observation, reviews: tuple[Review, ...]) -> Iterator[Act]:
    """Intend, confirm and act on every step that nobody refuses; drop open intents that nobody wants any more."""
    allowed = [review for review in reviews if review.allowed]
    _drop_unwanted(parts, observation, reviews)
    if not allowed:
        return
    round_id = parts.ledger.record_round(observation, reviews)
    tried: tuple[Step, ...] = ()
    for review in allowed:
        outcome = _act(parts, observation, review, round_id, tried)
        yield Act(review=review, outcome=outcome)
        if outcome.status in _BREAKERS:
            log.warning("No further calls in this round: %s", outcome.detail)
            return
        if review.step.verb is Verb.STOP and outcome.status is not Status.CANCELLED:
            tried += (review.step,)


def _drop_unwanted(parts: Parts, observation: Observation, reviews: tuple[Review, ...]) -> None:
    """An intent that may be tried again is cancelled once its step is no longer decided, or is refused for good."""
    wanted = {
        (review.step.node_id, review.step.verb)
        for review in reviews
        if all(refusal.rule == "in_flight" for refusal in review.refusals)
    }
    listed = {node.id for node in observation.fleet.nodes}
    for entry in observation.ledger.open_intents:
        if guard.resumable(entry) and (entry.intent.node_id, entry.intent.verb) not in wanted:
            status = Status.FAILED if entry.reached else Status.CANCELLED
            parts.ledger.settle(entry.intent, status, "no longer wanted", parts.clock.now())
    for notice in observation.ledger.notices:
        if notice.node_id not in listed:
            parts.ledger.drop_notice(notice.node_id)


def _act(parts: Parts, observation: Observation, review: Review, round_id: int, tried: tuple[Step, ...]) -> Outcome:
    """One step: the intent first, then the node's last word, then the cloud."""
    move, now = review.step, parts.clock.now()
    entry = observation.ledger.open_for(move.node_id)
    if entry is not None and entry.intent.verb is move.verb:
        intent = entry.intent
    else:
        intent = parts.ledger.intend(move.verb, move.node_id, review.pool, now, move.reason, round_id)

    veto = _confirm(parts, observation, review, tried) if move.verb is Verb.STOP else None
    if veto is not None:
        status, detail = Status.CANCELLED, f"vetoed at the last moment: {veto}"
    else:
        status, detail = _call(parts, intent, observation)
    outcome = parts.ledger.settle(intent, status, detail, parts.clock.now())
    level = logging.INFO if status in FINAL or status is Status.ACCEPTED else logging.WARNING
    log.log(level, "%s of %s: %s (%s). %s", intent.verb, intent.node_id, status, detail, move.reason.sentence)
    return outcome


def _confirm(parts: Parts, observation: Observation, review: Review, tried: tuple[Step, ...]) -> str | None:
    """Ask cloud and node once more, and let policies and guard judge the answers afresh; a doubt is a veto.

    `tried` are the stops made earlier in this round: they count against the limits.
    """
    node_id = review.step.node_id
    try:
        node = parts.cloud.node(node_id)
    except CloudError as error:
        return f"the cloud gives no answer about it: {error}"
    if node is None:
        return "the cloud no longer lists it"
    signal = parts.signals.confirm(node)
    if signal.verdict is not None and signal.verdict.age_seconds > _FRESH_INTERVALS * signal.verdict.interval_seconds:
        return f"its agent's newest sample is {format_duration(signal.verdict.age_seconds)} old"
    asked = replace(node, signal=signal)
    nodes = tuple(asked if each.id == node_id else each for each in observation.fleet.nodes)
    now = parts.clock.now()
    fresh = Observation(now=now, fleet=Fleet(observed_at=now, nodes=nodes), ledger=observation.ledger)
    rules = parts.pools(asked.pool)
    decision = policies.resolve(fresh, asked.pool, policies.propose(fresh, asked.pool, rules))
    found = next((each for each in decision.steps if each.node_id == node_id), None)
    if found is None or found.verb is not Verb.STOP:
        return "it is no longer in the pool" if found is None else found.reason.sentence
    again = guard.judge(
        guard.Case(
            step=found,
            node=asked,
            pool=asked.pool,
            pool_rules=rules,
            limits=parts.limits,
            observation=fresh,
            enforce=parts.enforce,
            granted=tried,
        )
    )
    return None if again.allowed else " ".join(answer.sentence for answer in again.refusals)


def _call(parts: Parts, intent: Intent, observation: Observation) -> tuple[Status, str]:
    """One mutation of the cloud, and what came of it in the ledger's words."""
    try:
        if intent.verb is Verb.STOP:
            parts.cloud.stop(intent.node_id, intent.key)
            return Status.ACCEPTED, "the cloud accepted the stop"
        parts.cloud.tag(intent.node_id, _tags(parts, intent, observation), intent.key)
    except CloudError as error:
        status = next((status for kind, status in _STATUS_OF.items() if isinstance(error, kind)), Status.REFUSED)
        return status, str(error)
    return Status.SETTLED, "its tags are set"


def _tags(parts: Parts, intent: Intent, observation: Observation) -> Mapping[str, str]:
    """What a notice, or its withdrawal, writes on the machine for its owner to see."""
    now = parts.clock.now()
    if intent.verb is Verb.WITHDRAW:
        return {NOTIFIED_AT: f"withdrawn {now:%Y-%m-%dT%H:%M:%SZ}", STOP_AT: "", DECISION_ID: intent.key}
    node = observation.fleet.node(intent.node_id)
    grace = parts.pools(intent.pool if node is None else node.pool).idle.notice
    due = now + timedelta(seconds=grace)
    return {NOTIFIED_AT: f"{now:%Y-%m-%dT%H:%M:%SZ}", STOP_AT: f"{due:%Y-%m-%dT%H:%M:%SZ}", DECISION_ID: intent.key}


def explained(parts: Parts, done: Round, node: Node) -> tuple[Step, Review]:
    """A node's step in a round, and every guard rule's answer had it been a stop."""
    found = next(each for decision in done.decisions for each in decision.steps if each.node_id == node.id)
    review = guard.judge(
        guard.Case(
            step=replace(found, verb=Verb.STOP),
            node=node,
            pool=node.pool,
            pool_rules=parts.pools(node.pool),
            limits=parts.limits,
            observation=done.observation,
            enforce=parts.enforce,
        )
    )
    return found, review
