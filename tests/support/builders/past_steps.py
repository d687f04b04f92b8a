"""Steps and what the ledger holds of earlier ones, for tests of the guard."""

from dataclasses import replace
from datetime import timedelta

from gpuwatch.model.decision import NOT_DONE, VETOED, Done, Intent, OpenIntent, Outcome, Reason, Status, Step, Verb
from gpuwatch.model.fleet import NodeGroup, NodeReport
from tests.support.builders.fleet import NOW, a_verdict

REASON = Reason(code="expired", sentence="Its notice has run out.")


def a_step(node_id: str = "i-1", verb: Verb = Verb.STOP) -> Step:
    """A stop of the first node."""
    return Step(node_id=node_id, verb=verb, reason=REASON, change="Any activity.")


def a_done(node_id: str = "i-9", status: Status = Status.SETTLED, *, minutes_ago: float = 10.0, key: str = "k") -> Done:
    """A finished stop of the recent past."""
    at = NOW - timedelta(minutes=minutes_ago)
    return Done(key=key, verb=Verb.STOP, node_id=node_id, pool="default", status=status, at=at, detail="as told")


def vetoes(count: int, node_id: str = "i-1", *, minutes_ago: float = 1.0) -> tuple[Done, ...]:
    """So many stops in a row to which somebody objected at the last moment, a minute apart."""
    return tuple(
        replace(
            a_done(node_id, Status.CANCELLED, minutes_ago=minutes_ago + count - number, key=f"k-{number}"),
            detail=f"{VETOED}it is busy",
            reached=False,
        )
        for number in range(1, count + 1)
    )


def an_open(node_id: str, status: Status | None, *, attempts: int = 1, seconds_ago: float = 3600.0) -> OpenIntent:
    """An intent that is not closed."""
    at = NOW - timedelta(seconds=seconds_ago)
    intent = Intent(key=f"k-{node_id}", verb=Verb.STOP, node_id=node_id, pool="default", at=at, reason=REASON)
    last = None if status is None else Outcome(key=intent.key, at=at, status=status, detail="as told")
    return OpenIntent(intent=intent, attempts=attempts, last=last, reached=status not in NOT_DONE)


def launching_since(seconds_ago: float, status: Status | None = Status.ACCEPTED) -> OpenIntent:
    """A launch of the pool that the cloud does not show yet."""
    entry = an_open("new:default:9", status, seconds_ago=seconds_ago)
    return replace(entry, intent=replace(entry.intent, verb=Verb.LAUNCH))


def received(seconds_ago: float) -> NodeReport:
    """An answer that was fresh when it came."""
    at = NOW - timedelta(seconds=seconds_ago)
    return NodeReport(verdict=a_verdict(at=at), received_at=at)


def a_group(**changes: object) -> NodeGroup:
    """A consented group of one zone with room at both ends."""
    base = NodeGroup(
        id="g-1",
        name="trainers",
        pool="default",
        min_size=0,
        max_size=9,
        desired=3,
        region="us-east-1",
        zones=("us-east-1a",),
        enrolled=True,
        instance_type="g6.xlarge",
        node_ids=("i-1", "i-2", "i-3"),
    )
    return replace(base, **changes)  # type: ignore[arg-type]
