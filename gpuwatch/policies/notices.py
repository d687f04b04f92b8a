"""PURE: whether a notice still stands, and when what it promised may happen. Policy and guard ask the same questions.

Rules, all of them:

1. A notice stands for its own action or a milder one, in its own pool, for the owner of its time. Anything else takes
   a new notice. Tags that show no owner now change nothing: they may be missing for a moment.
2. It does not stand once the controller did nothing for a while: was paused, only observed, or was away for longer than
   the grace. Its owner may have thought the notice over.
3. What it announced may happen once its grace is over (gpuwatch.policies.waiting).
4. A notice that was not used within a day after its time is out of date; one that waits for an approval, within a week.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from gpuwatch.model.bounds import bounded_name
from gpuwatch.model.decision import Step, Verb
from gpuwatch.model.duration import format_duration, format_time
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.model.promise import Interruption, Notice
from gpuwatch.policies import waiting

_CURRENT = timedelta(days=1)
_CURRENT_UNAPPROVED = timedelta(days=7)
_NOUNS = {"terminate": "termination", "delete": "deletion"}
_WORDS = {"paused": "it was paused", "observed": "gpuwatch only observed", "away": "no round is on record"}


def promising(said: Step, then: Verb, node: Node, grace_seconds: float) -> Step:
    """The step of a notice with what it is to promise; the time is promised when it is given."""
    arguments = {"action": then.value, "grace_seconds": repr(grace_seconds), "owner": node.owner or ""}
    if node.state is not NodeState.STOPPED:
        arguments["idle_seconds"] = repr(node.activity.held_seconds)
    return replace(said, arguments=arguments)


def withdrawn(notice: Notice, pool: str, owner: str | None) -> str | None:
    """Why a notice no longer stands, whatever its node does; None: it stands. Pool and owner are those of now."""
    promise = notice.promise
    if promise is None:
        return f"{notice_words(notice)} is of an earlier version and does not say what it promised"
    if promise.pool != pool:
        return f"{notice_words(notice)} was for pool {promise.pool}, and the node is in pool {pool} now"
    owner = owner and bounded_name(owner)  # a round knows no longer names, the last look before a removal does
    if owner and promise.owner is not None and owner != bounded_name(promise.owner):
        told = "was for no owner" if promise.owner == "" else f"was for {promise.owner}"
        return f"{notice_words(notice)} {told}, and its owner is {owner} now"
    between = next((each for each in notice.interruptions if _ends(each, promise.grace_seconds)), None)
    if between is None:
        return None
    until = "" if between.until is None else f" until {format_time(between.until)}"
    since = format_time(between.since)
    return f"{notice_words(notice)} came before a time without action: {_WORDS[between.why]} from {since}{until}"


def is_paused(notice: Notice) -> bool:
    """Whether a pause goes on since a notice: then it stays, and is withdrawn when that is over."""
    return any(each.why == "paused" and each.until is None for each in notice.interruptions)


def _ends(between: Interruption, grace_seconds: float) -> bool:
    """Whether a notice does not outlive it."""
    return between.why != "away" or between.seconds > grace_seconds


def sharper(notice: Notice, verb: Verb) -> str | None:
    """Why a notice does not cover a removal; the end of a group's protection is a termination by the group."""
    promise = notice.promise
    if promise is not None and (promise.action == "terminate" or verb is Verb.STOP):
        return None
    said = "nothing that can be read" if promise is None else _noun(promise.action)
    return f"{notice_words(notice)} promised {said}, not {_noun('terminate')}"


def left_seconds(notice: Notice, node: Node, grace_seconds: float, now: datetime) -> float:
    """How long to wait until what a notice promised may happen; 0.0 or less: not any more.

    `grace_seconds` is what the pool gives now.
    """
    return waiting.left_seconds(waiting.count_of([node], node.activity.held_seconds, now), notice, grace_seconds, now)


def why_outdated(notice: Notice, now: datetime) -> str | None:
    """Why a notice is too old to be used; None: it is not."""
    promise = notice.promise
    if promise is None:
        return f"{notice_words(notice)} does not say what it promised"
    due = promise.due(notice.at)
    limit = _CURRENT_UNAPPROVED if promise.approval else _CURRENT
    if now - due <= limit:
        return None
    return f"{promise_words(notice)}, and that was {format_duration((now - due).total_seconds())} ago"


def promise_words(notice: Notice) -> str:
    """What a notice said, as the beginning of a sentence."""
    promise = notice.promise
    if promise is None:
        return notice_words(notice)
    return f"{notice_words(notice)} promised {_noun(promise.action)} not before {format_time(promise.due(notice.at))}"


def _noun(action: str) -> str:
    return f"a {_NOUNS.get(action, action)}"


def notice_words(notice: Notice) -> str:
    """Return in words which notice it is."""
    return f"The notice of {format_time(notice.at)}"
