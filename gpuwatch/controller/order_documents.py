"""What the commands on the ledger print for programs."""

from collections.abc import Sequence
from datetime import datetime
from typing import TypedDict

from gpuwatch.controller.operations import Waiting
from gpuwatch.ledger import Audit, RoundLine
from gpuwatch.ledger.audit_log import AuditRecord
from gpuwatch.model.orders import Approval, Pause


class ResumeDocument(TypedDict):
    """Which pool was resumed (null: all), and which pauses still hold."""

    pool: str | None
    still_paused: list[Pause]


class AcknowledgeDocument(TypedDict):
    """The idleness of the pool (null: of all) up to `at` is confirmed."""

    pool: str | None
    at: datetime
    who: str
    reason: str


class RoundsDocument(TypedDict):
    """The newest rounds, newest first; what GET /api/v1/rounds answers."""

    rounds: list[RoundLine]


class AuditLogDocument(TypedDict):
    """Orders, actions and messages, newest first."""

    records: list[AuditRecord]


class AuditVerifyDocument(TypedDict):
    """Whether the records are as they were written. `head` is for --anchor; `broken` names the first bad record."""

    links: int
    whole_rounds: int
    head: str
    broken: str | None


class WaitingDocument(TypedDict):
    """A node that waits for an approval, and from when on it may go."""

    id: str
    name: str
    pool: str
    notified_at: datetime
    due_at: datetime
    why: str


class ApproveDocument(TypedDict):
    """The nodes that wait for an approval (without NODE), and the approvals that were given now."""

    waiting: list[WaitingDocument]
    approved: list[Approval]


def audit_object(found: Audit) -> AuditVerifyDocument:
    """What walking the records found."""
    broken = None if found.broken is None else str(found.broken)
    return {"links": found.links, "whole_rounds": found.bodies, "head": f"{found.links}:{found.head}", "broken": broken}


def approve_object(waiting: Sequence[Waiting], approved: Sequence[Approval]) -> ApproveDocument:
    """Who waits, and what was approved."""
    rows: list[WaitingDocument] = [
        {
            "id": each.node.id,
            "name": each.node.name,
            "pool": each.node.pool,
            "notified_at": each.noticed,
            "due_at": each.due,
            "why": each.why,
        }
        for each in waiting
    ]
    return {"waiting": rows, "approved": list(approved)}
