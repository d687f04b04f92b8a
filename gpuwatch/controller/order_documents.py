"""What the commands on the ledger print for programs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from gpuwatch.controller.operations import Waiting
from gpuwatch.ledger import Audit, RoundLine
from gpuwatch.ledger.audit_log import AuditRecord
from gpuwatch.model.orders import Approval, Pause


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeDocument:
    """Which pool was resumed (null: all), and which pauses still hold."""

    pool: str | None
    still_paused: Sequence[Pause]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundsPage:
    """The newest rounds, newest first; what GET /api/v1/rounds answers."""

    rounds: tuple[RoundLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditLogDocument:
    """Orders, actions and messages, newest first."""

    records: Sequence[AuditRecord]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditVerifyDocument:
    """Whether the records are as they were written. `head` is for --anchor; `broken` names the first bad record."""

    links: int
    whole_rounds: int
    head: str
    broken: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingDocument:
    """A node that waits for an approval, and from when on it may go."""

    id: str
    name: str
    pool: str
    notified_at: datetime
    due_at: datetime
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApproveDocument:
    """The nodes that wait for an approval (without NODE), and the approvals that were given now."""

    waiting: Sequence[WaitingDocument] = ()
    approved: Sequence[Approval] = ()


def audit_document(found: Audit) -> AuditVerifyDocument:
    """What walking the records found."""
    return AuditVerifyDocument(
        links=found.links,
        whole_rounds=found.bodies,
        head=f"{found.links}:{found.head}",
        broken=None if found.broken is None else str(found.broken),
    )


def waiting_document(waiting: Iterable[Waiting]) -> ApproveDocument:
    """Return the JSON document of what waits."""
    return ApproveDocument(
        waiting=[
            WaitingDocument(
                id=each.node.id,
                name=each.node.name,
                pool=each.node.pool,
                notified_at=each.noticed,
                due_at=each.due,
                why=each.why,
            )
            for each in waiting
        ]
    )
