"""The ledger: what was intended, what came of it, who paused, and the rounds that decisions rested on.

Records are only ever appended, each a link of one hash chain; an intent is durable before the cloud is called.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Self

import msgspec
from sqlalchemy import func, select

from gpuwatch.guard.settings import Rulebook
from gpuwatch.ledger import active_times, chain, retention, scale_in_protection, snapshots, views
from gpuwatch.ledger.any_text import json_of
from gpuwatch.ledger.audit_log import AuditLog
from gpuwatch.ledger.bodies import Bodies
from gpuwatch.ledger.chain import sha256, text
from gpuwatch.ledger.identity import Identity
from gpuwatch.ledger.index_writer import Sensors, forget_what_runs_again, keep_unreached, mark
from gpuwatch.ledger.postgresql import PostgresqlStore
from gpuwatch.ledger.protocol import HOUR, IntentLedger
from gpuwatch.ledger.records import Audit, Entry, LedgerError, PastRound, RoundLine
from gpuwatch.ledger.removals import past_removals
from gpuwatch.ledger.sent_messages import SentMessages
from gpuwatch.ledger.settings import LedgerSettings
from gpuwatch.ledger.sqlite import SqliteStore
from gpuwatch.ledger.store import Store
from gpuwatch.ledger.tables import BODIES, CONTROLS, GAPS, INTENTS, OPEN_INTENTS, PAUSES, ROUNDS, STOPPED, WISHES
from gpuwatch.ledger.use_history import UseHistory
from gpuwatch.model.decision import (
    Decision,
    Intent,
    LedgerView,
    Observation,
    Outcome,
    Proposal,
    Review,
    Status,
    Unreached,
    Verb,
)
from gpuwatch.model.fleet import Node
from gpuwatch.model.kubernetes import is_workload
from gpuwatch.model.orders import Approval, BacktestRecord, Pause, Snooze
from gpuwatch.policies.idle_timeout.gap_history import GapHistory


class Ledger(IntentLedger):
    """One open ledger in a database."""

    def __init__(self, store: Store, settings: LedgerSettings | None = None) -> None:
        """Use `Ledger.connect`, `Ledger.open` or `Ledger.in_memory`."""
        self.store = store
        self._settings = settings or LedgerSettings()
        self.hourly_spend_retention = self._settings.hourly_spend_retention
        self.identity, self.messages = Identity(store), SentMessages(store)
        self.trail, self.uses, self.sensors = AuditLog(store), UseHistory(store), Sensors(store)
        self._bodies = Bodies(store)
        self._id = store.id

    @classmethod
    def connect(cls, settings: LedgerSettings, *, read_only: bool = False, controls_only: bool = False) -> Self:
        """The ledger of the settings: for a controller, to read it, or for pause and resume alone.

        Raises:
            LedgerError: it is not there, another controller holds the file, it is of another version, or no file can be
                made there; the sentence holds no secret.

        """
        store: Store
        if settings.file is None:
            store = PostgresqlStore(settings, read_only=read_only, controls_only=controls_only)
        elif read_only or controls_only:
            store = SqliteStore.beside(settings.file, read_only=read_only)
        else:
            store = SqliteStore.open(settings.file)
        try:
            return cls(store, settings)
        except BaseException:
            store.close()
            raise

    @classmethod
    def open(cls, path: Path, *, read_only: bool = False) -> Self:
        """Open or create an SQLite file; raises as `connect`."""
        return cls.connect(LedgerSettings(path=str(path)), read_only=read_only)

    @classmethod
    def in_memory(cls, ledger_id: str = "memory", settings: LedgerSettings | None = None) -> Self:
        """A ledger that lives as long as its process; its keys repeat with its id."""
        return cls(SqliteStore.in_memory(ledger_id), settings)

    def close(self) -> None:
        """Release the file, or the session with its lead."""
        self.store.close()

    def lead(self) -> bool:
        """Whether this process leads; takes the lead where nobody has it. Asked at each round's begin; never raises."""
        return self.store.lead()

    def leading(self) -> bool:
        """Whether this process leads at this moment. Asked right before each call to the cloud; never raises."""
        return self.store.leading()

    @property
    def epoch(self) -> int | None:
        """The number of this process's lead; None while it does not lead."""
        return self.store.epoch

    def leader(self) -> str:
        """Host and process of the controller that leads, or led last."""
        return self.store.leader()

    def record_round(
        self,
        observation: Observation,
        proposals: Sequence[Proposal] = (),
        decisions: Sequence[Decision] = (),
        reviews: Sequence[Review] = (),
        rulebook: Rulebook | None = None,
        *,
        gaps: Mapping[str, GapHistory] | None = None,
    ) -> int:
        """Keep what a round saw, proposed, decided and what the guard said under which rules; gives the round's id.

        `gaps` is what pools know from now on of their idle gaps. It is an estimate and no record; its digest is kept.
        """
        known = {pool: json_of(each) for pool, each in sorted((gaps or {}).items())}
        with self.store.reading() as db:
            left = {row.pool: row.body for row in db.execute(views.KNOWN_GAPS)}
        digests = {pool: snapshots.digest(each) for pool, each in (left | known).items()}
        at = text(observation.now)
        body = self._bodies.make_body(observation, rulebook, (proposals, decisions, reviews, digests), at)
        about = {
            "at": at,
            "body_sha256": sha256(body.content),
            "epoch": self.store.epoch or 0,
            "controller": self.store.controller,
            "nodes": len(observation.fleet.nodes),
            "steps": sum(step.verb is not Verb.HOLD for each in decisions for step in each.steps)
            + sum(is_workload(each.step.node_id) for each in reviews),
        }
        wishes = [
            {"at": at, "pool": each.pool, "policy": each.policy, "want": each.raw_desired_nodes}
            for each in proposals
            if each.raw_desired_nodes is not None
        ]
        with self.store.writing() as writer:
            active_times.note_round(writer, observation, rulebook, self.store.controller)
            round_id = writer.append("round", about)
            self._bodies.insert(writer.db, round_id, at, body)
            if wishes:
                writer.db.execute(WISHES.insert(), wishes)
            if known:
                writer.db.execute(GAPS.delete().where(GAPS.c.pool.in_(sorted(known))))
                writer.db.execute(GAPS.insert(), [{"pool": pool, "body": each} for pool, each in known.items()])
            forget_what_runs_again(writer.db, views.list_stopped(writer.db), observation)
            scale_in_protection.note_fleet(writer.db, observation)
            uses = self.uses.note(writer.db, observation)
        self.uses.keep(uses)
        self._bodies.note_written(round_id, body)
        return round_id

    def round(self, round_id: int) -> PastRound:
        """A past round, whole.

        Raises:
            LedgerError: no round has that id, or compaction has dropped what it saw.

        """
        return self._bodies.round(round_id)

    def observation(self, round_id: int) -> Observation:
        """What a past round saw; raises as `round`."""
        return self.round(round_id).observation

    def whole_rounds(self, since: datetime | None, until: datetime) -> tuple[tuple[int, datetime], ...]:
        """The rounds of a time that are still whole, each with its own, oldest first."""
        query = select(BODIES.c.round_id, BODIES.c.at).where(BODIES.c.at <= text(until))
        if since is not None:
            query = query.where(BODIES.c.at >= text(since))
        with self.store.reading() as db:
            rows = db.execute(query.order_by(BODIES.c.at, BODIES.c.round_id)).all()
        return tuple((row.round_id, datetime.fromisoformat(row.at)) for row in rows)

    def round_at(self, when: datetime) -> PastRound:
        """The newest round until then that is still whole."""
        newest = BODIES.c.at.desc(), BODIES.c.round_id.desc()
        with self.store.reading() as db:
            found = db.scalar(select(BODIES.c.round_id).where(BODIES.c.at <= text(when)).order_by(*newest).limit(1))
        if found is None:
            raise LedgerError(f"no round until {when:%Y-%m-%d %H:%M:%S} is kept whole; `gpuwatch rounds` lists them")
        return self.round(found)

    def rounds(self, limit: int = 20) -> tuple[RoundLine, ...]:
        """The newest rounds, newest first."""
        intents = select(func.count()).select_from(INTENTS).where(INTENTS.c.round_id == ROUNDS.c.id).scalar_subquery()
        query = select(ROUNDS, intents.label("intents"), BODIES.c.round_id).outerjoin(BODIES)
        with self.store.reading() as db:
            rows = db.execute(query.order_by(ROUNDS.c.id.desc()).limit(limit)).all()
        return tuple(
            RoundLine(
                id=row.id,
                at=datetime.fromisoformat(row.at),
                controller=row.controller,
                nodes=row.nodes,
                steps=row.steps,
                intents=row.intents,
                whole=row.round_id is not None,
            )
            for row in rows
        )

    def _write_intent(self, about: Callable[[str], Intent], round_id: int) -> Intent:
        """The key is allocated here and is durable when this returns."""
        with self.store.writing() as writer:
            # The head makes a key that no copy restored from a backup gives to anything else.
            intent = about(f"gpuwatch-{self._id}-{writer.links + 1}-{writer.head[:8]}")
            row = {
                "key": intent.key,
                "verb": intent.verb.value,
                "node_id": intent.node_id,
                "pool": intent.pool,
                "at": text(intent.at),
                "reason": json_of(intent.reason).decode(),
                "round_id": round_id,
                "arguments": json_of(dict(intent.arguments)).decode(),
                "owner": intent.owner,
                "usd_per_hour": None if intent.usd_per_hour is None else str(intent.usd_per_hour),
            }
            writer.append("intent", row)
            writer.db.execute(OPEN_INTENTS.insert(), {"key": intent.key})
        return intent

    def settle(self, intent: Intent, status: Status, detail: str, at: datetime) -> Outcome:
        """Write down what came of an attempt; a final status closes the intent."""
        with self.store.writing() as writer:
            writer.append("outcome", {"key": intent.key, "at": text(at), "status": status.value, "detail": detail})
            mark(writer.db, intent, status, at)
        return Outcome(key=intent.key, at=at, status=status, detail=detail)

    def note_unreached(self, unreached: Sequence[Unreached]) -> None:
        """Keep what the newest round allowed and did not come to, in the place of what an earlier one did not."""
        with self.store.writing() as writer:
            keep_unreached(writer.db, unreached)

    def pool_of(self, key: str) -> str:
        """The pool of an intent."""
        with self.store.reading() as db:
            return str(db.scalar(select(INTENTS.c.pool).where(INTENTS.c.key == key)))

    def node_of(self, key: str) -> Node | None:
        """The node of an intent as the intent's round saw it; None: no longer known, or it was there no node."""
        with self.store.reading() as db:
            row = db.execute(select(INTENTS.c.round_id, INTENTS.c.node_id).where(INTENTS.c.key == key)).one_or_none()
        try:
            return None if row is None else self.observation(row.round_id).fleet.find(row.node_id)
        except LedgerError:
            return None

    def forget_stop(self, node_id: str) -> None:
        """Forget our stop of a node that no longer exists."""
        with self.store.writing() as writer:
            writer.db.execute(STOPPED.delete().where(STOPPED.c.node_id == node_id))

    def pause(self, pool: str | None, who: str, reason: str, at: datetime, until: datetime | None = None) -> Pause:
        """An operator's order to do nothing; this process need not lead; `pool` None is all."""
        row = {"at": text(at), "verb": "pause", "pool": pool, "who": who, "reason": reason}
        with self.store.writing(fenced=False) as writer:
            number = writer.append("control", {**row, "until": None if until is None else text(until)})
            writer.db.execute(PAUSES.insert(), {"id": number})
        return Pause(pool=pool, at=at, who=who, reason=reason, until=until)

    def resume(self, pool: str | None, who: str, at: datetime) -> tuple[Pause, ...]:
        """Take the pauses of a pool back, or all there are (`pool` None); gives those that are still in force."""
        row = {"at": text(at), "verb": "resume", "pool": pool, "who": who, "reason": "", "until": None}
        of_pool = select(CONTROLS.c.id).where(CONTROLS.c.pool == pool)
        with self.store.writing(fenced=False) as writer:
            writer.append("control", row)
            writer.db.execute(PAUSES.delete() if pool is None else PAUSES.delete().where(PAUSES.c.id.in_(of_pool)))
            return views.pauses(writer.db, at)

    def acknowledge(self, pool: str | None, who: str, reason: str, at: datetime) -> None:
        """Somebody confirms that a sudden mass idleness up to now is true; `pool` None is all. It ends no pause."""
        row = {"at": text(at), "verb": "acknowledge", "pool": pool, "who": who, "reason": reason, "until": None}
        with self.store.writing(fenced=False) as writer:
            writer.append("control", row)

    def snooze(
        self, node_id: str, who: str, reason: str, at: datetime, until: datetime, *, shortens: bool = True
    ) -> Snooze:
        """A request that a node be left alone; this process need not lead; one that ends at once takes others back.

        The newest counts. Of somebody who may not shorten others', a longer one that is in force stays and is given.
        """
        row = {"at": text(at), "node_id": node_id, "until": text(until), "who": who, "reason": reason}
        with self.store.writing(fenced=False) as writer:
            there = () if shortens else views.snoozes(writer.db, at)
            longer = next((each for each in there if each.node_id == node_id and each.until > until), None)
            if longer is not None:
                return longer
            writer.append("keep", row)
        return Snooze(node_id=node_id, at=at, until=until, who=who, reason=reason)

    def approve(self, node_id: str, who: str, reason: str, at: datetime, *, key: str | None = None) -> Approval:
        """An operator's approval of a node's notice; this process need not lead. `key` is that of the notice seen.

        Raises:
            LedgerError: there is no notice to approve, or another than the one seen.

        """
        with self.store.writing(fenced=False) as writer:
            seen, key = key, views.notice_key(writer.db, node_id)
            if key is None:
                raise LedgerError(f"{node_id} has no notice in force: there is nothing to approve")
            if seen not in {None, key}:
                raise LedgerError(f"{node_id} has had another notice since: look again")
            row = {"at": text(at), "node_id": node_id, "key": key, "who": who, "reason": reason}
            writer.append("approval", row)
        return Approval(node_id=node_id, key=key, at=at, who=who, reason=reason)

    def keep_backtest(self, made: BacktestRecord) -> None:
        """Record a backtest; this process need not lead."""
        row = {**asdict(made), "at": text(made.at)}
        for name in ("node_hours", "checked_node_hours", "saved_ratio"):
            row[name] = None if row[name] is None else str(float(row[name]))
        with self.store.writing(fenced=False) as writer:
            writer.append("backtest", row)

    def gaps(self) -> dict[str, GapHistory]:
        """What pools that learn their waits know of their idle gaps."""
        with self.store.reading() as db:
            rows = db.execute(views.KNOWN_GAPS).all()
        return {row.pool: msgspec.json.decode(row.body, type=GapHistory) for row in rows}

    def view(self, now: datetime, *, recent: timedelta = HOUR, interval_seconds: float | None = None) -> LedgerView:
        """What decisions may know of the past: ended intents, wishes and resumes as far back as `recent`.

        With `interval_seconds`, that of the rounds, also that none has been made lately.
        """
        with self.store.reading() as db:
            return views.view(db, now, now - recent, interval_seconds)

    def removals(self, now: datetime) -> LedgerView:
        """What was stopped and ended in the last weeks and may be undone; asked once by a process."""
        with self.store.reading() as db:
            return past_removals(db, now)

    def open_actions(self, now: datetime) -> LedgerView:
        """What settling must know of the past: the open intents, and when people resumed lately."""
        with self.store.reading() as db:
            return views.open_actions(db, now - HOUR)

    def orders(self, now: datetime) -> LedgerView:
        """The pauses and snoozes in force, and nothing else: it is asked right before each call to the cloud."""
        with self.store.reading() as db:
            return LedgerView(pauses=views.pauses(db, now), snoozes=views.snoozes(db, now))

    def history(self, node_id: str, *, limit: int = 20) -> tuple[Entry, ...]:
        """The newest intents of a node with their outcomes, newest first."""
        query = select(INTENTS).where(INTENTS.c.node_id == node_id).order_by(INTENTS.c.id.desc()).limit(limit)
        with self.store.reading() as db:
            return tuple(views.entries(db, db.execute(query).all()))

    def audit(self, anchor: tuple[int, str] | None = None) -> Audit:
        """Walk the hash chain: where the records are first not what was written, or not what leads to the anchor."""
        with self.store.reading() as db:
            return chain.audit(db, anchor)

    def compact(self, now: datetime) -> int:
        """Drop what old rounds saw, as the settings say, a bounded number at a time; gives how many."""
        with self.store.writing() as writer:
            return retention.compact(writer, now, self._settings)
