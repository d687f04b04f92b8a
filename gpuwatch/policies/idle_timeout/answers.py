"""PURE: what people have answered to a pool's notices, by what they did; and whether a notice is a question.

Rules, all of them:

1. A notice that somebody can answer has run out unanswered if its machine was stopped or ended, and nobody started it
   within an hour. Somebody can answer where the machine has an owner, or where somebody has logged in within a week;
   what is not known of that is yes.
2. A start within an hour of our stop is a regret: we were wrong. That its machine was used since, or not, changes
   nothing. Starts by gpuwatch itself, by the machine's group or by what else manages it, are no regrets.
3. A pool is known once ten of its notices have run out unanswered on three days, of the newest twenty with at most one
   regret among them. What is older than three months does not count.
4. The first notice of a machine is a question, but not where its pool is known, where a notice of it has run out
   before, or where nobody can be asked. After a regret it is a question again, whatever is known.
5. Each regret doubles the wait of its machine for two weeks, three at most: half an hour at least to begin with, a day
   at most.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TypeVar

from gpuwatch.model.decision import Done, Observation, Status, Verb
from gpuwatch.model.fleet import Node
from gpuwatch.model.measurement import Answers
from gpuwatch.model.stops import NOT_PROVED
from gpuwatch.model.undone import STARTED_AGAIN, Undone
from gpuwatch.policies.idle_settings import TERMINATE_AFTER

# The argument of a removal by which it is kept that somebody could answer its notice.
ASKED = "asked"
ENOUGH, ENOUGH_DAYS, NEWEST, FORGIVEN = 10, 3, 20, 1
_HOUR, _DAY = 3600.0, 86400.0
WEEK_SECONDS = 7 * _DAY
_SEEN_LATE = 600.0  # by which the round that sees a start may come later
_KEPT_SECONDS, _REGRETTED_FOR, _COUNTED_DAYS = 90 * _DAY, 14 * _DAY, 30
_MOST_NODES, _MOST_REGRETS = 2000, 3
_FIRST_WAIT, _LONGEST_WAIT = 1800.0, _DAY
_ACTIONS = frozenset({Verb.STOP, Verb.TERMINATE, Verb.START})
_Kept = TypeVar("_Kept")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenStop:
    """A stop or an end of the last hour, and whether somebody could answer its notice and has regretted it."""

    node_id: str
    at: float
    asked: bool
    regretted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of a notice that somebody could answer, or of a stop that somebody regretted."""

    at: float
    regretted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DayOfStops:
    """The stops of one day since 1970 that are an hour old, and those that were regretted."""

    day: int
    stops: int = 0
    regretted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerHistory:
    """All that is kept of a pool's answers; what is `open` goes by the keys of the removals, the rest by machines."""

    open: dict[str, OpenStop] = field(default_factory=dict)
    newest: tuple[Answer, ...] = ()
    passed: dict[str, float] = field(default_factory=dict)
    regrets: dict[str, tuple[float, ...]] = field(default_factory=dict)
    days: tuple[DayOfStops, ...] = ()


def follow_answers(history: AnswerHistory, observation: Observation, pool: str) -> AnswerHistory:
    """The history after a round; the same one where nothing was stopped, taken back, or is an hour old."""
    at = observation.now.timestamp()
    for done in observation.ledger.ended_actions(_ACTIONS):
        if done.pool == pool:
            history = _note_action(history, done, at)
    for each in observation.undone:
        if each.pool == pool and each.key in history.open and _is_regret(each, observation.fleet.find(each.target)):
            history = _note_regret(history, each.key)
    for key, stop in list(history.open.items()):
        if at - stop.at >= _HOUR + _SEEN_LATE:
            history = _close_stop(history, key, stop)
    return history


def _note_action(history: AnswerHistory, done: Done, at: float) -> AnswerHistory:
    """Follow a removal of ours; a start of ours ends what was followed of its machine."""
    then = done.at.timestamp()
    if done.verb is Verb.START:
        ended = [key for key, each in history.open.items() if each.node_id == done.node_id and each.at <= then]
        ended = ended if done.status is Status.SETTLED or done.reached else []
        left = {key: each for key, each in history.open.items() if key not in ended}
        return replace(history, open=left) if ended else history
    if done.key in history.open or at - then >= _HOUR or not _counts(done):
        return history
    asked = done.owner is not None or done.arguments.get(ASKED) == "true"
    return replace(history, open={**history.open, done.key: OpenStop(node_id=done.node_id, at=then, asked=asked)})


def _counts(done: Done) -> bool:
    """Whether it was a removal of ours that somebody can take back; what was stopped before is not taken back."""
    if done.verb is Verb.STOP and done.detail == STARTED_AGAIN:
        return done.reached
    return done.status is Status.SETTLED and done.code != TERMINATE_AFTER and NOT_PROVED not in done.detail


def _is_regret(undone: Undone, node: Node | None) -> bool:
    """Whether a removal was taken back by somebody, soon."""
    by_others = node is None or node.group is not None or node.managed_by is not None
    soon = (undone.at - undone.removed_at).total_seconds() <= _HOUR
    return soon and not (undone.group or undone.waits or by_others)


def _note_regret(history: AnswerHistory, key: str) -> AnswerHistory:
    """Count a mistake, once."""
    stop = history.open[key]
    if stop.regretted:
        return history
    counted = _count(history, stop.at, regretted=True)
    before = counted.regrets.get(stop.node_id, ())
    regrets = {name: each for name, each in counted.regrets.items() if stop.at - each[-1] < _REGRETTED_FOR}
    regrets.pop(stop.node_id, None)
    return replace(
        counted,
        open={**counted.open, key: replace(stop, regretted=True)},
        newest=(*counted.newest, Answer(at=stop.at, regretted=True))[-NEWEST:],
        passed={name: each for name, each in counted.passed.items() if name != stop.node_id},
        regrets=_newest_nodes({**regrets, stop.node_id: (*before, stop.at)[-_MOST_REGRETS:]}),
    )


def _close_stop(history: AnswerHistory, key: str, stop: OpenStop) -> AnswerHistory:
    """An hour is over: what nobody took back stands."""
    history = replace(history, open={name: each for name, each in history.open.items() if name != key})
    if stop.regretted:
        return history
    history = _count(history, stop.at, regretted=False)
    if not stop.asked:
        return history
    passed = {name: each for name, each in history.passed.items() if name != stop.node_id}
    newest = (*history.newest, Answer(at=stop.at))[-NEWEST:]
    return replace(history, newest=newest, passed=_newest_nodes({**passed, stop.node_id: stop.at}))


def _newest_nodes(found: dict[str, _Kept]) -> dict[str, _Kept]:
    """Those that came last, as many as are kept."""
    return dict(list(found.items())[-_MOST_NODES:])


def _count(history: AnswerHistory, at: float, *, regretted: bool) -> AnswerHistory:
    """One more stop of its day."""
    day = int(at // _DAY)
    found = {each.day: each for each in history.days if each.day > day - _COUNTED_DAYS}
    known = found.get(day, DayOfStops(day=day))
    found[day] = replace(known, stops=known.stops + 1, regretted=known.regretted + regretted)
    return replace(history, days=tuple(sorted(found.values(), key=lambda each: each.day)))


def is_known_by_answers(history: AnswerHistory, at: float) -> bool:
    """Whether enough notices ran out unanswered (rule 3)."""
    young = [each for each in history.newest if at - each.at < _KEPT_SECONDS]
    passed = [each.at for each in young if not each.regretted]
    days = {int(each // _DAY) for each in passed}
    return len(passed) >= ENOUGH and len(days) >= ENOUGH_DAYS and len(young) - len(passed) <= FORGIVEN


def answers_of(history: AnswerHistory, now: datetime, nodes: Iterable[Node]) -> Answers:
    """What a round has to know of it about the machines that are there."""
    at, known, passed, regrets = now.timestamp(), False, {}, {}
    if history.newest or history.regrets:
        ids = [node.id for node in nodes]
        known = is_known_by_answers(history, at)
        found = {} if known else history.passed
        passed = {name: _time(found[name]) for name in ids if name in found and at - found[name] < _KEPT_SECONDS}
        regrets = {name: lately for name in ids if (lately := _lately(history.regrets.get(name, ()), at))}
    first = int(at // _DAY) - _COUNTED_DAYS
    days = [each for each in history.days if each.day > first]
    stops, regretted = sum(each.stops for each in days), sum(each.regretted for each in days)
    return Answers(known=known, passed=passed, regrets=regrets, stops=stops, regretted=regretted)


def _lately(times: Iterable[float], at: float) -> tuple[datetime, ...]:
    return tuple(_time(each) for each in times if at - each < _REGRETTED_FOR)


def _time(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def can_be_asked(node: Node) -> bool:
    """Whether somebody may answer a notice of the machine: only what is sure says that nobody is there."""
    verdict = node.verdict
    if node.owner is not None or verdict is None or verdict.login_free_seconds is None:
        return True
    silent = any(each.name == "people" and each.observed is not None for each in verdict.activity.evidence)
    typed = any(each.evidence.name == "people" for each in verdict.last_busy)
    return silent or typed or verdict.login_free_seconds < WEEK_SECONDS


def is_question(node: Node, observation: Observation) -> bool:
    """Whether a notice of the machine is a question now (rule 4)."""
    answers = observation.answers.get(node.pool)
    if answers is None:
        return False
    if node.id in answers.regrets:
        return True
    return not answers.known and node.id not in answers.passed and can_be_asked(node)


def regrets_of(node: Node, observation: Observation) -> tuple[datetime, ...]:
    """When somebody took back stops of the machine lately."""
    answers = observation.answers.get(node.pool)
    return () if answers is None else answers.regrets.get(node.id, ())


def question_words(node: Node, observation: Observation) -> str:
    """Say of a notice that it is a question, as a sentence of its own; of other notices say nothing."""
    if not is_question(node, observation):
        return ""
    if regrets_of(node, observation):
        return " Its notice is a question again."
    return " gpuwatch has not stopped it before, so its notice is a question."


def regret_sentences(observation: Observation) -> Iterator[str]:
    """Yield of each pool how many stops people took back, the largest share first; nothing of pools without any."""
    found = [(each.regretted_ratio or 0.0, pool, each) for pool, each in observation.answers.items() if each.regretted]
    for ratio, pool, each in sorted(found, key=lambda entry: (-entry[0], entry[1])):
        stops = "The one stop" if each.stops == 1 else f"{each.regretted:,} of {each.stops:,} stops"
        taken = f"{'was' if each.regretted == 1 else 'were'} taken back within an hour"
        yield f"{stops} of pool {pool} in the last {_COUNTED_DAYS} days {taken} ({ratio:.0%})."


def lengthened_wait(wait: float, regrets: int) -> float:
    """The wait of a machine with so many regrets (rule 5): never shorter than without."""
    return min(max(wait, _LONGEST_WAIT), max(wait, _FIRST_WAIT) * 2**regrets) if regrets else wait
