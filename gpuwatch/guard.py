"""PURE: the last word before anything is written down or done.

Rules of this module: every rule runs on every step that would change something and every objection is listed; a rule
says in one sentence why it objects or why not, and what would remedy it; no rule knows another; a rule that cannot tell
objects. A new rule is one function and one line in RULES.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, ClassVar

from annotated_types import Ge, Gt, Le

from gpuwatch.model.decision import Answer, Decision, Observation, OpenIntent, Review, Status, Step, Verb
from gpuwatch.model.fleet import Node, NodeState, State
from gpuwatch.model.knobs import STRICT, Knob, Seconds, format_duration
from gpuwatch.policies import PoolRules


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What no round may exceed, whatever the policies propose."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    max_verdict_age: Annotated[
        Seconds, Gt(0), Knob("A verdict older than this, by either clock, is stale and stops nothing.")
    ] = 30.0
    min_coverage_ratio: Annotated[
        float, Ge(0), Le(1), Knob("With fewer of a pool's running nodes answering than this share, nothing is stopped.")
    ] = 0.5
    max_stops_per_round: Annotated[int, Ge(0), Knob("So many nodes at most are stopped in one round.")] = 3
    max_stops_per_hour: Annotated[int, Ge(0), Knob("So many nodes at most are stopped within any hour.")] = 10
    max_stops_per_hour_ratio: Annotated[
        float, Ge(0), Le(1), Knob("This share of the enrolled nodes at most (rounded up) is stopped within any hour.")
    ] = 0.5
    failure_cooldown: Annotated[
        Seconds, Ge(0), Knob("After a stop was given up, its node is left alone for this long.")
    ] = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One step under review with all that a rule may look at. `granted` are the stops allowed earlier in this round."""

    step: Step
    node: Node | None
    pool: str
    pool_rules: PoolRules
    limits: Limits
    observation: Observation
    enforce: bool
    granted: tuple[Step, ...] = ()


# A rule's answer: whether it objects, the sentence, the remedy.
Word = tuple[bool, str, str]
Rule = Callable[[Case, Node], Word]


def _ok(sentence: str) -> Word:
    return False, sentence, ""


def _no(sentence: str, remedy: str) -> Word:
    return True, sentence, remedy


def _observe_only(case: Case, node: Node) -> Word:
    del node
    if case.enforce:
        return _ok("This controller enforces.")
    return _no("This controller only observes.", "Set `mode: enforce` once you trust its plan.")


def _not_enrolled(case: Case, node: Node) -> Word:
    del case
    if node.enrolled:
        return _ok("It is enrolled by its tag.")
    return _no("It is not enrolled.", "Tag it gpuwatch:fleet=<your fleet>, if gpuwatch may stop it.")


def _protected(case: Case, node: Node) -> Word:
    del case
    if node.protected is None:
        return _ok("Nothing protects it.")
    return _no(f"It is protected: {node.protected}.", "Remove the tag, or wait until it runs out.")


def _owned(case: Case, node: Node) -> Word:
    del case
    if node.managed_by is None:
        return _ok("No other system owns it.")
    return _no(f"It belongs to {node.managed_by}.", "That system must scale it; it would only replace a stopped node.")


def _not_running(case: Case, node: Node) -> Word:
    del case
    if node.state is NodeState.RUNNING:
        return _ok("It is running.")
    return _no(f"It is {node.state.value}.", "Only running nodes are stopped.")


def _unknown(case: Case, node: Node) -> Word:
    del case
    if node.activity.state is not State.UNKNOWN:
        return _ok(f"Its use is known: {node.activity.state.value}.")
    return _no(f"Its use is unknown: {node.activity.doubt}.", "Its agent must answer with a complete, fresh verdict.")


def _stale(case: Case, node: Node) -> Word:
    if node.verdict is None:
        return _no("There is no verdict.", "Its agent must answer.")
    limit = case.limits.max_verdict_age
    skew = (case.observation.now - node.verdict.at).total_seconds()
    worst = max(node.verdict.age_seconds, abs(skew))
    if worst <= limit:
        return _ok(f"Its verdict is {format_duration(worst)} old.")
    told = f"{format_duration(node.verdict.age_seconds)} by its own count, {format_duration(skew)} by ours"
    return _no(f"Its verdict is stale: {told}.", f"At most {format_duration(limit)}; check its agent and both clocks.")


def _busy(case: Case, node: Node) -> Word:
    allowed = {State.IDLE}
    if case.pool_rules.idle.parked == "stop":
        allowed.add(State.PARKED)
    inside = [gpu for gpu in (node.verdict.gpus if node.verdict else ()) if gpu.activity.state not in allowed]
    if node.activity.state in allowed and not inside:
        return _ok(f"It is {node.activity.state.value}, and so is each of its GPUs.")
    word = node.activity.state.value if node.activity.state not in allowed else inside[0].activity.state.value
    return _no(f"It, or one of its GPUs, is {word}.", "Every GPU must be idle.")


def _gpus_missing(case: Case, node: Node) -> Word:
    del case
    seen = len(node.verdict.gpus) if node.verdict else 0
    if seen >= node.gpu_count:
        return _ok(f"All {node.gpu_count} GPUs of its type are accounted for.")
    return _no(
        f"Its agent sees {seen} of {node.gpu_count} GPUs.", "The others may be working; find out where they are."
    )


def _warm_up(case: Case, node: Node) -> Word:
    limit = case.pool_rules.warm_up
    if node.launched_at is None:
        return _no("Nobody knows when it was started.", "The cloud must tell its launch time.")
    age = (case.observation.now - node.launched_at).total_seconds()
    if age < limit:
        return _no(f"It was started {format_duration(age)} ago.", f"It warms up for {format_duration(limit)}.")
    if node.activity.held_seconds > age:
        held = format_duration(node.activity.held_seconds)
        return _no(f"It claims {held} of idleness and was started {format_duration(age)} ago.", "Check its clock.")
    return _ok(f"It was started {format_duration(age)} ago.")


def _no_notice(case: Case, node: Node) -> Word:
    notice = case.observation.ledger.notice(node.id)
    if notice is None:
        return _no("It has had no notice.", "A notice comes first, then the grace period.")
    age, grace = (case.observation.now - notice.at).total_seconds(), case.pool_rules.idle.notice
    if age < grace:
        return _no(f"Its notice is {format_duration(age)} old.", f"The grace period is {format_duration(grace)}.")
    return _ok(f"Its notice is {format_duration(age)} old.")


def _blind(case: Case, node: Node) -> Word:
    del node
    roster = case.observation.fleet.roster(case.pool)
    told = f"{roster.known} of {len(roster.members)} running nodes of the pool are known"
    if roster.members and roster.known / len(roster.members) >= case.limits.min_coverage_ratio:
        return _ok(f"{told}.")
    return _no(f"Only {told}.", f"At least {case.limits.min_coverage_ratio:.0%}: mend the agents or the way to them.")


def _in_flight(case: Case, node: Node) -> Word:
    waiting = [each for each in case.observation.ledger.open_intents if each.intent.pool == case.pool]
    others = [each for each in waiting if not resumable(each)]
    if others:
        told = f"{others[0].intent.verb.value} of {others[0].intent.node_id}"
        return _no(f"An action on the pool is in flight: {told}.", "It must settle first.")
    own = case.observation.ledger.open_for(node.id)
    if own is None or own.last is None:
        return _ok("Nothing is in flight.")
    left = (own.last.at - case.observation.now).total_seconds() + retry_wait_seconds(own.attempts)
    if left > 0:
        return _no(f"The last attempt was {own.last.status.value}: {own.last.detail}", f"In {format_duration(left)}.")
    return _ok(f"Attempt {own.attempts + 1} of the same intent is due.")


def _cooling_down(case: Case, node: Node) -> Word:
    since = case.observation.now - timedelta(seconds=case.limits.failure_cooldown)
    for done in case.observation.ledger.recent:
        if done.node_id == node.id and done.status is Status.FAILED and done.at > since:
            return _no(f"A {done.verb.value} of it was given up at {done.at:%H:%M}.", "See the ledger for the cause.")
    return _ok("No recent failure.")


def _floor(case: Case, node: Node) -> Word:
    del node
    leaving = {step.node_id for step in case.granted} | {
        each.intent.node_id for each in case.observation.ledger.open_intents if each.intent.verb is Verb.STOP
    }
    leaving.add(case.step.node_id)
    left = len(case.observation.fleet.roster(case.pool).members - leaving)
    if left >= case.pool_rules.min_nodes:
        return _ok(f"{left} nodes of the pool would still run.")
    return _no(f"{left} nodes of the pool would still run.", f"min_nodes is {case.pool_rules.min_nodes}.")


def _blast_radius(case: Case, node: Node) -> Word:
    hour_ago = case.observation.now - timedelta(hours=1)
    ledger = case.observation.ledger
    # Cancelled intents changed nothing; failed ones may have.
    past = {
        done.key
        for done in ledger.recent
        if done.verb is Verb.STOP and done.at > hour_ago and done.status is not Status.CANCELLED
    }
    open_others = {
        each.intent.key
        for each in ledger.open_intents
        if each.intent.verb is Verb.STOP and each.intent.node_id != node.id
    }
    now = len(case.granted)
    hour = len(past | open_others) + sum(ledger.open_for(step.node_id) is None for step in case.granted)
    enrolled = sum(each.enrolled for each in case.observation.fleet.nodes)
    share = math.ceil(case.limits.max_stops_per_hour_ratio * enrolled)
    for count, limit, name in (
        (now, case.limits.max_stops_per_round, "max_stops_per_round"),
        (hour, case.limits.max_stops_per_hour, "max_stops_per_hour"),
        (hour, share, "max_stops_per_hour_ratio"),
    ):
        if count + 1 > limit:
            return _no(f"{count} stops are spent, {name} allows {limit}.", f"Wait, or raise {name}.")
    return _ok(f"{hour} stops within the hour, {now} in this round.")


_NOT_DONE = frozenset({Status.THROTTLED, Status.REFUSED, Status.DENIED, Status.INTERRUPTED})


def resumable(entry: OpenIntent) -> bool:
    """Whether the cloud has certainly not (yet) carried it out, so that the same intent may be tried again."""
    return entry.last is not None and entry.last.status in {
        Status.THROTTLED,
        Status.REFUSED,
        Status.DENIED,
        Status.INTERRUPTED,
    }


def retry_wait_seconds(attempts: int) -> float:
    """The wait after so many attempts: 30 s, doubled each time, at most 15 minutes."""
    return float(min(30 * 2 ** max(0, attempts - 1), 900))


_ALL = frozenset({Verb.NOTICE, Verb.STOP, Verb.WITHDRAW})
_RECLAIM = frozenset({Verb.NOTICE, Verb.STOP})
_STOP = frozenset({Verb.STOP})

RULES: dict[str, tuple[frozenset[Verb], Rule]] = {
    "observe_only": (_ALL, _observe_only),
    "not_enrolled": (_ALL, _not_enrolled),
    "protected": (_RECLAIM, _protected),
    "owned": (_RECLAIM, _owned),
    "not_running": (_RECLAIM, _not_running),
    "unknown": (_RECLAIM, _unknown),
    "stale": (_RECLAIM, _stale),
    "busy": (_RECLAIM, _busy),
    "gpus_missing": (_RECLAIM, _gpus_missing),
    "warm_up": (_RECLAIM, _warm_up),
    "blind": (_RECLAIM, _blind),
    "cooling_down": (_RECLAIM, _cooling_down),
    "in_flight": (_ALL, _in_flight),
    "no_notice": (_STOP, _no_notice),
    "floor": (_STOP, _floor),
    "blast_radius": (_STOP, _blast_radius),
}


def judge(case: Case) -> Review:
    """Every rule's answer on one step."""
    verb = case.step.verb
    if case.node is None:
        gone = Answer(rule="gone", refused=True, sentence="The cloud does not list it.", remedy="Nothing to do.")
        return Review(pool=case.pool, step=case.step, answers=(gone,))
    answers = []
    for name, (verbs, rule) in RULES.items():
        if verb in verbs:
            refused, sentence, remedy = rule(case, case.node)
            answers.append(Answer(rule=name, refused=refused, sentence=sentence, remedy=remedy))
    return Review(pool=case.pool, step=case.step, answers=tuple(answers))


def review(
    observation: Observation,
    decisions: Sequence[Decision],
    pools: Callable[[str], PoolRules],
    limits: Limits,
    *,
    enforce: bool,
) -> tuple[Review, ...]:
    """The guard's answers on every step that would change something; stops that it allows count against the next."""
    nodes = {node.id: node for node in observation.fleet.nodes}
    granted: list[Step] = []
    reviews: list[Review] = []
    for decision in decisions:
        for step in decision.steps:
            if step.verb is Verb.HOLD:
                continue
            case = Case(
                step=step,
                node=nodes.get(step.node_id),
                pool=decision.pool,
                pool_rules=pools(decision.pool),
                limits=limits,
                observation=observation,
                enforce=enforce,
                granted=tuple(granted),
            )
            result = judge(case)
            reviews.append(result)
            if step.verb is Verb.STOP and result.allowed:
                granted.append(step)
    return tuple(reviews)
