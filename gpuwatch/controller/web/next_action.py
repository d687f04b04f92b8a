"""What happens next to a node, not before when, and whose word it takes, as far as the last round can tell."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuwatch.guard import Rulebook
from gpuwatch.guard.consent import wants_approval
from gpuwatch.model.decision import REMOVALS, Answer, LedgerView, Observation, Step, Verb
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.policies import idle

_REMOVES = frozenset(verb.value for verb in REMOVALS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coming:
    """The next step, if nothing changes.

    `at` is when at the earliest; that of the round where the step is due already. `gone_at` is the earliest time of the
    removal that a notice leads to. `refused_by` are the guard's rules that hold it back: of a step that is not due yet,
    those that are sure to.
    """

    verb: Verb
    at: datetime
    gone_at: datetime | None = None
    refused_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Consent:
    """An operator's approval of the notice of that key, which its pool asks for; `who` is None until it is given."""

    notice: str
    who: str | None = None
    at: datetime | None = None
    reason: str = ""


def consent(node: Node, ledger: LedgerView, rulebook: Rulebook) -> Consent | None:
    """The approval that the node's removal takes; None: it takes none, or has had no notice that could be approved."""
    notice, given = ledger.notice(node.id), ledger.approval(node.id)
    if notice is None or not wants_approval(rulebook.pool(node.pool), notice):
        return None
    if given is None:
        return Consent(notice=notice.key)
    return Consent(notice=notice.key, who=given.who, at=given.at, reason=given.reason)


def coming(
    node: Node, step: Step, refusals: tuple[Answer, ...], observation: Observation, rulebook: Rulebook
) -> Coming | None:
    """What comes next; None: nothing, or nobody can say when."""
    rules, now = rulebook.pool(node.pool), observation.now
    grace = timedelta(seconds=rules.idle.notice)
    refused = tuple(answer.rule for answer in refusals)
    if step.verb is not Verb.HOLD:
        gone = now + grace if step.verb is Verb.NOTICE else None
        return Coming(verb=step.verb, at=now, gone_at=gone, refused_by=refused)
    if not node.enrolled or node.protected is not None or node.snoozed is not None:
        return None
    choice, wait = idle.chosen(node, observation, rules.idle) if node.state is NodeState.RUNNING else (None, None)
    if choice not in _REMOVES:
        return None
    notice = observation.ledger.notice(node.id)
    if step.reason.code == "grace" and notice is not None:
        at = max(now, notice.at + grace if notice.promise is None else notice.promise.due(notice.at))
        asked = consent(node, observation.ledger, rulebook)
        waits = ("approval",) if asked is not None and asked.who is None else ()
        held = _surely(node, observation, rulebook, at)
        return Coming(verb=Verb(choice), at=at, gone_at=at, refused_by=(*held, *waits))
    if step.reason.code == "waiting" and wait is not None:
        at = now + timedelta(seconds=max(0.0, wait - node.activity.held_seconds))
        held = _surely(node, observation, rulebook, at)
        return Coming(verb=Verb.NOTICE, at=at, gone_at=at + grace, refused_by=held)
    return None


def _surely(node: Node, observation: Observation, rulebook: Rulebook, at: datetime) -> tuple[str, ...]:
    """What will still hold a step back then."""
    pauses = (each for each in observation.ledger.pauses if each.pool in {None, node.pool})
    paused = any(each.until is None or each.until > at for each in pauses)
    return tuple(["observe_only"] * (not rulebook.enforce) + ["paused"] * paused)
