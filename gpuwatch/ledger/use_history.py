"""What the fleet's GPUs and each node were used for in the last day, in slots of five minutes.

An index over the rounds for people's eyes: no decision rests on it, and what is older than a day and some hours is
dropped. Of the fleet a slot holds the sums over its rounds; a slot without a round has no row, because missing data
is not idleness. Of a node there is a row only where its use changed; within a slot the last one counts.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Connection, bindparam, func, select
from sqlalchemy.dialects import postgresql, sqlite

from gpuwatch.ledger.any_text import json_of
from gpuwatch.ledger.chain import text
from gpuwatch.ledger.store import Store
from gpuwatch.ledger.tables import FLEET_USE, INTENTS, NODE_USE, OUTCOMES
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Observation, Status, Verb
from gpuwatch.model.fleet import Node, NodeState

SLOT_SECONDS = 300
KEPT_SECONDS = 26 * 3600
OFF = "off"  # listed by its cloud, and not running
GONE = "gone"  # no longer listed
MARKED = (Verb.NOTICE, Verb.WITHDRAW, Verb.STOP, Verb.START, Verb.LAUNCH, Verb.TERMINATE)
_MOST_MARKS = 200  # of one node
_INSERT: dict[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}
_LATER = NODE_USE.alias("later")
_SLOT, _NEW_SLOT = select(FLEET_USE).where(FLEET_USE.c.begin == bindparam("slot")), FLEET_USE.insert()
_DROP_SLOT = FLEET_USE.delete().where(FLEET_USE.c.begin == bindparam("slot"))
# Each round compares thousands; to look a member up takes longer than to compare it.
_RUNNING, _UNKNOWN, _OCCUPIED, _IDLE = NodeState.RUNNING, State.UNKNOWN, State.OCCUPIED, State.IDLE


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSlot:
    """Five minutes from `begin` (seconds since 1970): GPUs by use, summed over `rounds` rounds."""

    begin: int
    rounds: int
    gpus: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Marked:
    """Something that was shown done to a node."""

    at: datetime
    verb: Verb
    node_id: str
    why: str


def slot(at: datetime) -> int:
    """The begin of the slot of a time."""
    return int(at.timestamp()) // SLOT_SECONDS * SLOT_SECONDS


def use_of(node: Node) -> str:
    """What a node is used for as a whole."""
    if node.state is _RUNNING:
        return _UNKNOWN if (verdict := node.signal.verdict) is None else verdict.activity.state
    return _UNKNOWN if node.state is NodeState.UNKNOWN else OFF


def gpus_by_use(nodes: tuple[Node, ...]) -> Counter[str]:
    """GPUs by use. One that does nothing on an occupied machine is taken: it goes when its machine goes."""
    uses: list[str] = []  # of each GPU: to count them at the end takes a third of the time
    others: Counter[str] = Counter()
    for node in nodes:
        verdict = node.signal.verdict
        if node.state is not _RUNNING or verdict is None or not verdict.gpus:
            others[use_of(node) if node.state is not _RUNNING else _UNKNOWN] += node.known_gpus
        elif verdict.activity.state is _OCCUPIED:
            uses += [_OCCUPIED if (state := gpu.activity.state) is _IDLE else state for gpu in verdict.gpus]
        else:
            uses += [gpu.activity.state for gpu in verdict.gpus]
    return Counter({str(use): number for use, number in (Counter(uses) + others).items()})


class UseHistory:
    """The part of a ledger that timelines are drawn from."""

    def __init__(self, store: Store) -> None:
        """Of an open store. Who writes keeps one: it remembers what it wrote last of each node."""
        self._store = store
        self._known: tuple[int | None, dict[str, str]] = (None, {})  # by node, with the epoch of its lead

    def note(self, db: Connection, observation: Observation) -> dict[str, str]:
        """Add a round, in the caller's transaction; gives what to `keep` once that is over."""
        begin, nodes = slot(observation.now), observation.fleet.nodes
        _add(db, begin, gpus_by_use(nodes))
        epoch, known = self._known
        if epoch is None or epoch != self._store.epoch:
            known = _last(db)
        uses = {node.id: use_of(node) for node in nodes}
        changed = {node_id: use for node_id, use in uses.items() if known.get(node_id) != use}
        changed |= dict.fromkeys(known.keys() - uses.keys(), GONE)
        _upsert(db, begin, changed)
        return uses

    def keep(self, uses: dict[str, str]) -> None:
        """What a round that is on record wrote of each node."""
        self._known = (self._store.epoch, uses)

    def fleet(self, since: datetime, until: datetime) -> list[FleetSlot]:
        """The slots with rounds from that of `since` to that of `until`, in order."""
        query = select(FLEET_USE).where(FLEET_USE.c.begin >= slot(since), FLEET_USE.c.begin <= slot(until))
        with self._store.reading() as db:
            rows = db.execute(query.order_by(FLEET_USE.c.begin)).all()
        return [
            FleetSlot(begin=row.begin, rounds=row.rounds, gpus=msgspec.json.decode(row.gpus, type=dict[str, int]))
            for row in rows
        ]

    def node(self, node_id: str, since: datetime) -> list[tuple[int, str]]:
        """Since when a node had which use, in order; the first may lie before `since`."""
        begin = slot(since)
        before = select(func.max(_LATER.c.begin)).where(_LATER.c.node_id == node_id, _LATER.c.begin <= begin)
        query = select(NODE_USE.c.begin, NODE_USE.c.use).where(
            NODE_USE.c.node_id == node_id, NODE_USE.c.begin >= func.coalesce(before.scalar_subquery(), begin)
        )
        with self._store.reading() as db:
            return [(row.begin, row.use) for row in db.execute(query.order_by(NODE_USE.c.begin))]

    def counts(self, since: datetime, until: datetime) -> Counter[tuple[int, Verb]]:
        """How much of what was shown done in each slot."""
        query = (
            select(OUTCOMES.c.at, INTENTS.c.verb)
            .join(INTENTS, OUTCOMES.c.key == INTENTS.c.key)
            .where(*_shown_done(since, until))
        )
        with self._store.reading() as db:
            rows = db.execute(query).all()
        return Counter((slot(datetime.fromisoformat(row.at)), Verb(row.verb)) for row in rows)

    def marks(self, node_id: str, since: datetime, until: datetime) -> list[Marked]:
        """What was shown done to a node, in order; the newest 200."""
        query = (
            select(OUTCOMES.c.at, INTENTS.c.verb, INTENTS.c.reason)
            .join(INTENTS, OUTCOMES.c.key == INTENTS.c.key)
            .where(INTENTS.c.node_id == node_id, *_shown_done(since, until))
            .order_by(OUTCOMES.c.id.desc())
            .limit(_MOST_MARKS)
        )
        with self._store.reading() as db:
            rows = db.execute(query).all()
        return [
            Marked(
                at=datetime.fromisoformat(row.at),
                verb=Verb(row.verb),
                node_id=node_id,
                why=str(msgspec.json.decode(row.reason)["sentence"]),
            )
            for row in reversed(rows)
        ]


def drop_old(db: Connection, now: datetime) -> None:
    """Keep a day and some hours; of each node that is listed also the last row before."""
    begin = slot(now) - KEPT_SECONDS
    if not db.execute(FLEET_USE.delete().where(FLEET_USE.c.begin < begin)).rowcount:
        return  # asked with each round; a slot becomes too old once in five minutes
    later = select(_LATER.c.begin).where(
        _LATER.c.node_id == NODE_USE.c.node_id, _LATER.c.begin > NODE_USE.c.begin, _LATER.c.begin <= begin
    )
    db.execute(NODE_USE.delete().where(NODE_USE.c.begin < begin, later.exists()))
    db.execute(NODE_USE.delete().where(NODE_USE.c.begin < begin, NODE_USE.c.use == GONE))


def _shown_done(since: datetime, until: datetime) -> tuple[Any, ...]:
    return (
        OUTCOMES.c.at >= text(since),
        OUTCOMES.c.at <= text(until),
        OUTCOMES.c.status == Status.SETTLED.value,
        INTENTS.c.verb.in_([verb.value for verb in MARKED]),
    )


def _add(db: Connection, begin: int, gpus: Counter[str]) -> None:
    """One more round of a slot."""
    row = db.execute(_SLOT, {"slot": begin}).one_or_none()
    if row is not None:
        gpus = gpus + Counter(msgspec.json.decode(row.gpus, type=dict[str, int]))
        db.execute(_DROP_SLOT, {"slot": begin})
    rounds = 1 + (0 if row is None else row.rounds)
    body = json_of(dict(gpus)).decode()
    db.execute(_NEW_SLOT, {"begin": begin, "rounds": rounds, "gpus": body})


def _last(db: Connection) -> dict[str, str]:
    """The newest row of each node; without those that are gone."""
    newest = select(_LATER.c.node_id, func.max(_LATER.c.begin).label("begin")).group_by(_LATER.c.node_id).subquery()
    query = select(NODE_USE.c.node_id, NODE_USE.c.use).join(
        newest, (NODE_USE.c.node_id == newest.c.node_id) & (NODE_USE.c.begin == newest.c.begin)
    )
    return {row.node_id: row.use for row in db.execute(query) if row.use != GONE}


def _upsert(db: Connection, begin: int, uses: Mapping[str, str]) -> None:
    """From this slot on nodes have these uses."""
    if not uses:
        return
    statement = _INSERT[db.dialect.name](NODE_USE)
    statement = statement.on_conflict_do_update(
        index_elements=list(NODE_USE.primary_key), set_={"use": statement.excluded.use}
    )
    db.execute(statement, [{"node_id": node_id, "begin": begin, "use": str(use)} for node_id, use in uses.items()])
