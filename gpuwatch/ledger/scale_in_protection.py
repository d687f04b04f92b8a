"""Who set a scale-in protection: the nodes that gpuwatch protected, and that nobody has unprotected since."""

from datetime import datetime, timedelta

from sqlalchemy import Connection, func, select

from gpuwatch.ledger.chain import text
from gpuwatch.ledger.indexes import settled_by_records
from gpuwatch.ledger.tables import INTENTS, SHIELDS
from gpuwatch.model.decision import Intent, Observation, Status, Verb

SHOWN = timedelta(minutes=1)  # a list of machines may be older than the answer that showed the protection
GONE = timedelta(hours=1)  # one list without a machine proves nothing
# What the cloud has said yes to is done: what it shows from then on is somebody else's.
_ENDED_BY = frozenset({Status.ACCEPTED, Status.SETTLED})
_COUNT = select(func.count()).select_from(SHIELDS)
_SHIELDS = settled_by_records(
    (INTENTS.c.node_id,), SHIELDS, Verb.PROTECT, lambda verb: verb == Verb.UNPROTECT.value, _ENDED_BY
)


def shields(db: Connection) -> tuple[str, ...]:
    """The nodes with a protection of gpuwatch's own."""
    return tuple(sorted(db.scalars(_SHIELDS)))


def begins(verb: Verb, status: Status) -> bool:
    """Whether a protection is gpuwatch's own from this outcome on."""
    return verb is Verb.PROTECT and status is Status.SETTLED


def ends(verb: Verb, status: Status) -> bool:
    """Whether it is no longer, or what the cloud shows is not."""
    if verb is Verb.TERMINATE:
        return status is Status.SETTLED
    return begins(verb, status) or (verb is Verb.UNPROTECT and status in _ENDED_BY)


def settle(db: Connection, intent: Intent, status: Status, at: datetime) -> None:
    """An attempt came to something: a protection begins, or ends."""
    if ends(intent.verb, status):
        db.execute(SHIELDS.delete().where(SHIELDS.c.node_id == intent.node_id))
    if begins(intent.verb, status):
        row = {"node_id": intent.node_id, "key": intent.key, "at": text(at), "missing_since": None}
        db.execute(SHIELDS.insert(), row)


def note_fleet(db: Connection, observation: Observation) -> None:
    """A round saw the fleet: a protection that is gone is nobody's, and a new one will be its setter's."""
    if not db.scalar(_COUNT):
        return
    for row in db.execute(select(SHIELDS)).all():
        missing = None if row.missing_since is None else datetime.fromisoformat(row.missing_since)
        keeps, since = protection_after(observation, row.node_id, datetime.fromisoformat(row.at), missing)
        mine = SHIELDS.c.node_id == row.node_id
        if not keeps:
            db.execute(SHIELDS.delete().where(mine))
        elif since != missing:
            db.execute(SHIELDS.update().where(mine).values(missing_since=None if since is None else text(since)))


def protection_after(
    observation: Observation, node_id: str, at: datetime, missing: datetime | None
) -> tuple[bool, datetime | None]:
    """Whether a node's protection is still ours after this round, and since when the node is not listed."""
    node, now = observation.fleet.find(node_id), observation.now
    if node is not None:
        return node.scale_in_protected or now - at <= SHOWN, None
    since = now if missing is None else missing
    return now - since <= GONE, since
