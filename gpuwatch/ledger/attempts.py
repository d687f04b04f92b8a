"""What the outcomes of an intent's attempts amount to: how often it was tried, and whether it may have happened."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from gpuwatch.model.bounds import time_on_record
from gpuwatch.model.cloud_notice import Interruption, notice_of
from gpuwatch.model.decision import (
    GIVEN_UP,
    LAUNCHED_AT,
    NOT_DONE,
    Intent,
    OpenIntent,
    Outcome,
    Status,
    Stopped,
    Verb,
)
from gpuwatch.model.fleet import Node
from gpuwatch.model.stops import StopAnswer, read_answer
from gpuwatch.policies import undone

# Attempts are outcomes that came from a call to the cloud.
_OF_CALLS = frozenset(
    {Status.ACCEPTED, Status.THROTTLED, Status.BUSY, Status.REFUSED, Status.DENIED, Status.SKEWED, Status.UNSENT}
    | {Status.UNAVAILABLE}
)
_MAY_HAVE_HAPPENED = frozenset({Status.ACCEPTED, Status.UNAVAILABLE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """So many `calls`, of which the cloud refused `refusals`; the others are as in `OpenIntent`."""

    calls: int
    refusals: int
    reached: bool
    reached_at: datetime | None

    def given_up_as_refused(self, status: Status) -> bool:
        """Whether an intent that ended so was given up because the cloud refused it, and certainly did nothing."""
        return status is Status.FAILED and self.refusals > 0 and not self.reached


def attempts(outcomes: Iterable[tuple[Status, datetime]]) -> Attempts:
    """What these outcomes, oldest first, amount to; without any, a call may have been made just the same."""
    known = list(outcomes)
    ends = [at for status, at in known if status in _MAY_HAVE_HAPPENED]
    # Nobody knew, and the cloud did not show it: such an intent may have happened, however sure the later looks are.
    looks = [at for status, at in known if status is Status.INTERRUPTED]
    unanswered = not known or known[-1][0] is Status.ASKED
    return Attempts(
        calls=sum(status in _OF_CALLS for status, _ in known),
        refusals=sum(status is Status.REFUSED for status, _ in known),
        reached=unanswered or bool(ends or looks),
        reached_at=None if unanswered else max(ends or looks, default=None),
    )


def fault(status: Status, detail: str, before: Sequence[Status]) -> Status | None:
    """What kept an intent that ended so from an answer that says what the cloud has; `before` came before its end."""
    last = before[-1] if before else None
    given_up = status is Status.FAILED and detail.startswith(GIVEN_UP)
    return last if given_up and last in NOT_DONE | {Status.UNAVAILABLE} else None


def open_intent(intent: Intent, outcomes: Sequence[Outcome]) -> OpenIntent:
    """An open intent as decisions see it."""
    tried = attempts((each.status, each.at) for each in outcomes)
    return OpenIntent(
        intent=intent,
        attempts=tried.calls,
        last=outcomes[-1] if outcomes else None,
        reached=tried.reached,
        reached_at=tried.reached_at,
        refusals=tried.refusals,
        answer=stop_answer(outcomes) if intent.verb is Verb.STOP else None,
    )


def stop_answer(outcomes: Sequence[Outcome]) -> StopAnswer | None:
    """What the cloud said when it accepted a stop last; None: it never did, or the record is of an earlier version."""
    accepted = (each.detail for each in reversed(outcomes) if each.status is Status.ACCEPTED)
    return read_answer(next(accepted, ""))


def launch_time(arguments: Mapping[str, str]) -> datetime | None:
    """The machine's launch time when the intent was written down; None: it was not known, or cannot be read."""
    return time_on_record(arguments.get(LAUNCHED_AT))


def interruption_of(
    verb: Verb, node_id: str, key: str, pool: str, at: datetime, arguments: Mapping[str, str]
) -> Interruption | None:
    """A settled record of a cloud's notice; None: it says that one is over, or cannot be read."""
    notice = notice_of(arguments) if verb is Verb.INTERRUPTION else None
    if notice is None:
        return None
    return Interruption(node_id=node_id, key=key, pool=pool, at=at, notice=notice, arguments=arguments)


def runs_again(stop: Stopped, node: Node | None) -> bool:
    """Whether it is proved that somebody has started the node since."""
    return undone.runs_again(stop.at, stop.launched_at, node)
