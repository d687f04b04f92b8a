"""Rule on decisions that another ledger has on record: a second controller, or lost records."""

from datetime import UTC, datetime, timedelta

from gpuwatch.guard.case import Case, Word, no, ok
from gpuwatch.model.decision import DECISION_TAG, NOTIFIED_TAG
from gpuwatch.model.fleet import Node

RECENT = timedelta(days=1)
_FORM = "%Y-%m-%dT%H:%M:%SZ"


def other_ledger(case: Case) -> Word:
    """A node whose newest decision is on record in another ledger is that one's for a day."""
    node, now = case.machine, case.observation.now
    key = node.tags.get(DECISION_TAG, "")
    if key not in case.observation.ledger.foreign:
        return ok("No other ledger decides about it.")
    if not recent(node, now):
        return ok(f"Its tag {DECISION_TAG} names {key}, which this ledger lacks, but that is more than a day old.")
    return no(
        f"Its tag {DECISION_TAG} names {key}, which is not in this ledger: another controller decides about it, or "
        "records were lost.",
        "Run one ledger for a fleet. If no other controller runs, remove the tag, or wait until it is a day old.",
    )


def recent(node: Node, now: datetime) -> bool:
    """Whether the decision in a node's tag is younger than a day; one of an unknown time counts as young."""
    at = _decided_at(node)
    return at is None or now - at < RECENT


def _decided_at(node: Node) -> datetime | None:
    """When that was: the time of its notice or withdrawal; of a node that was launched so, its start."""
    if NOTIFIED_TAG not in node.tags:
        return node.launched_at
    try:
        return datetime.strptime(node.tags[NOTIFIED_TAG].rpartition(" ")[2], _FORM).replace(tzinfo=UTC)
    except ValueError:
        return None
