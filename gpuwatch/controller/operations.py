"""What people order of the controllers, and ask of the ledger, while a controller may run."""

import getpass
import socket
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from gpuwatch import guard
from gpuwatch.guard import Rulebook
from gpuwatch.guard.case import Finding
from gpuwatch.guard.consent import wants_approval
from gpuwatch.ledger import Audit, Ledger, LedgerError, RoundLine
from gpuwatch.ledger.audit_log import Asked, AuditRecord
from gpuwatch.ledger.settings import LedgerSettings
from gpuwatch.model.decision import LedgerView
from gpuwatch.model.duration import format_time
from gpuwatch.model.fleet import DEFAULT_POOL, Fleet, Node
from gpuwatch.model.orders import Acknowledgement, Approval, BacktestRecord, Pause
from gpuwatch.model.readable import how_many
from gpuwatch.model.slips import meant_name, nearest
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.printable import legible
from gpuwatch.runtime.table import align_rows

_EVERY = 2**31  # records: more than a ledger has
_FREEZE = "mass_idleness"


def pause(settings: LedgerSettings, clock: Clock, pool: str | None, seconds: float | None, reason: str) -> Pause:
    """Nothing more is done to a pool, or to all, for so long or until `resume`."""
    now = clock.now()
    until = None if seconds is None else now + timedelta(seconds=seconds)
    ledger = Ledger.connect(settings, controls_only=True)
    try:
        return ledger.pause(pool, operator_name(), reason, now, until)
    finally:
        ledger.close()


def pause_text(given: Pause) -> str:
    """Return a given pause as text for people."""
    return f"Paused: {legible(pause_line(given))}. What a controller has asked the cloud for already goes on."


def resume(settings: LedgerSettings, clock: Clock, pool: str | None) -> tuple[Pause, ...]:
    """Take back the pauses of a pool, or all; gives those that still hold."""
    ledger = Ledger.connect(settings, controls_only=True)
    try:
        return tuple(ledger.resume(pool, operator_name(), clock.now()))
    finally:
        ledger.close()


def resume_text(pool: str | None, held: Sequence[Pause], before: Sequence[Pause]) -> str:
    """Return an ended pause as text for people; `before` are the pauses that there were."""
    ended = any(pool is None or each.pool == pool for each in before)
    first = f"Resumed: {_pool(pool)}." if ended else f"Nothing to resume: there was no pause of {_pool(pool)}."
    return "\n".join([first, *(f"Still paused: {legible(pause_line(each))}." for each in held)])


def check_pool(pool: str | None, pools: Iterable[str]) -> None:
    """Refuse a misspelt pool: its pause would silently do nothing.

    Raises:
        LedgerError: there is no such pool.

    """
    pools = sorted(set(pools))
    if pool is not None and pool not in pools:
        raise LedgerError(f"--pool {pool!r}: the settings have no such pool. {meant_name(pool, pools)}")


def pauses(settings: LedgerSettings, clock: Clock) -> tuple[Pause, ...]:
    """The pauses that hold, also of pools that the settings do not have any more."""
    if settings.unwritten:
        return ()
    ledger = Ledger.connect(settings, read_only=True)
    try:
        return tuple(ledger.view(clock.now()).pauses)
    finally:
        ledger.close()


def acknowledge(settings: LedgerSettings, clock: Clock, pool: str | None, reason: str) -> Acknowledgement:
    """Say that the mass idleness of a pool, or of all, is true as far as it has shown by now."""
    ledger, now = Ledger.connect(settings, controls_only=True), clock.now()
    try:
        who = operator_name()
        ledger.acknowledge(pool, who, reason, now)
    finally:
        ledger.close()
    return Acknowledgement(pool=pool, at=now, who=who, reason=reason)


def frozen_pools(settings: LedgerSettings) -> tuple[str, ...] | None:
    """The pools with nodes that the newest round kept because many had become idle at once; None: it is not known."""
    ledger = Ledger.connect(settings, read_only=True)
    try:
        newest = ledger.rounds(1)
        reviews = ledger.round(newest[0].id).reviews if newest else ()
    except LedgerError:  # such as one that a later gpuwatch wrote; the acknowledgement stands
        return None
    finally:
        ledger.close()
    return tuple(sorted({each.pool for each in reviews for answer in each.refusals if answer.rule == _FREEZE}))


def acknowledge_text(pool: str | None, frozen: Sequence[str] | None) -> str:
    """Return an acknowledged freeze as text for people; `frozen` are the pools of `frozen_pools`."""
    given = f"Acknowledged: the idleness of {_pool(pool)} up to now. Pauses stay as they are."
    if frozen is None:
        return f"{given}\nWarning: the newest round cannot be read, so nobody knows whether it froze anything."
    if pool in frozen or (pool is None and frozen):
        return given
    kept = "no pool" if pool is None else f"no node of pool {pool}"
    others = f"Frozen: {', '.join(frozen)}." if frozen else "A freeze that comes later is not ended by this."
    return f"{given}\nWarning: the newest round froze {kept}. {others}"


def keep_backtest(settings: LedgerSettings, made: BacktestRecord) -> None:
    """Every controller goes by it from its next round on."""
    ledger = Ledger.connect(settings, controls_only=True)
    try:
        ledger.keep_backtest(made)
    finally:
        ledger.close()


def untried_pools(settings: LedgerSettings, clock: Clock, rules: Rulebook) -> Iterator[tuple[str, Finding]]:
    """The pools with rules that remove nodes, but may not because no backtest is recorded, and the guard's finding."""
    if rules.limits.require_backtest is None:
        return
    kept: tuple[BacktestRecord, ...] = ()
    if not settings.unwritten:
        ledger = Ledger.connect(settings, read_only=True)
        try:
            kept = ledger.view(clock.now()).backtests
        finally:
            ledger.close()
    yield from guard.untried_pools(dict.fromkeys((DEFAULT_POOL, *rules.pools)), rules, kept, clock.now())


def audit(settings: LedgerSettings, anchor: str | None) -> Audit:
    """What walking the records found. `anchor` is LINK:HASH as an earlier audit printed it.

    Raises:
        LedgerError: the ledger cannot be read, or the anchor is malformed.

    """
    ledger = Ledger.connect(settings, read_only=True)
    try:
        return ledger.audit(_anchor(anchor))
    finally:
        ledger.close()


def rounds(settings: LedgerSettings, limit: int) -> tuple[RoundLine, ...]:
    """The newest rounds, newest first."""
    ledger = Ledger.connect(settings, read_only=True)
    try:
        return ledger.rounds(limit)
    finally:
        ledger.close()


def rounds_text(rounds: tuple[RoundLine, ...]) -> str:
    """For people: what cannot be explained any more says so."""
    rows = [
        (
            str(line.id),
            format_time(line.at, seconds=True),
            _count(line.nodes),
            _count(line.steps),
            str(line.intents),
            "whole" if line.whole else "compacted",
            line.controller,
        )
        for line in rounds
    ]
    heads = ("ROUND", "AT", "NODES", "STEPS", "INTENTS", "KEPT", "CONTROLLER")
    return "\n".join(align_rows([heads, *rows], left={1, 5, 6})) if rows else "No round is on record yet."


def trail(settings: LedgerSettings, asked: Asked, pools: Iterable[str]) -> tuple[AuditRecord, ...]:
    """Who did what: the newest records that were asked for, newest first. `asked.node_id` may be a unique name.

    Raises:
        LedgerError: nothing is on record of a pool that `pools` lacks, or of a node that the newest round lacks.

    """
    ledger = Ledger.connect(settings, read_only=True)
    try:
        newest = ledger.rounds(1)
        fleet = ledger.round(newest[0].id).observation.fleet if asked.node_id and newest else None
        node = None if asked.node_id is None or fleet is None else fleet.node(asked.node_id)
        found = ledger.trail.traces(asked if node is None else replace(asked, node_id=node.id))
        if not _of_a_pool(found) and not _of_a_pool(ledger.trail.traces(Asked(limit=_EVERY, pool=asked.pool))):
            check_pool(asked.pool, pools)
        if not found and asked.node_id is not None and node is None:
            nodes = () if fleet is None else fleet.nodes
            raise LedgerError(f"--node {asked.node_id!r}: nothing is on record. {_nodes(nodes, asked.node_id)}")
        return found
    finally:
        ledger.close()


def _of_a_pool(records: Iterable[AuditRecord]) -> bool:
    """Whether one of them is about more than all pools at once."""
    return any(each.pool is not None or each.node_id is not None for each in records)


def _nodes(nodes: Sequence[Node], name: str) -> str:
    """A sentence on the node that was probably meant, or some that the newest round has."""
    names = {each for node in nodes for each in (node.id, node.name)}
    near = nearest(name, names)
    if near is not None:
        return f"The nearest in the newest round is {near!r}."
    return f"The newest round has: {', '.join(node.id for node in nodes[:10]) or 'no node'}."


def trail_text(traces: tuple[AuditRecord, ...]) -> str:
    """For people: a line each, and under it the reason and the outcome."""
    lines = [
        "\n    ".join(legible(line) for line in (_headline(each), each.why, each.result) if line) for each in traces
    ]
    return "\n".join(lines) or "Nothing of that is on record."


def _headline(trace: AuditRecord) -> str:
    return f"{format_time(trace.at, seconds=True)}  {trace.what:<9}  {_record_subject(trace)}, by {trace.who}"


def _record_subject(trace: AuditRecord) -> str:
    """What a record is about, in words."""
    if trace.node_id is None:
        return _pool(trace.pool)
    return trace.node_id if trace.pool is None else f"{trace.node_id} of pool {trace.pool}"


def pause_line(pause: Pause) -> str:
    """Which pool, until when, who paused it and why."""
    until = "until somebody resumes it" if pause.until is None else f"until {format_time(pause.until, seconds=True)}"
    why = f": {pause.reason}" if pause.reason else ""
    return f"{_pool(pause.pool)} {until}, by {pause.who}{why}"


def operator_name() -> str:
    """Login name and host of who gives the order."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in containers
        name = "somebody"
    return f"{name}@{socket.gethostname()}"


def audit_text(found: Audit) -> str:
    """For people: where it is broken, and what to write down elsewhere."""
    if found.broken is not None:
        links = how_many(found.links, "link")
        return f"Broken: {found.broken}.\nUp to there the records are as they were written: {links}."
    return (
        f"The records are as they were written: {how_many(found.links, 'link')}, "
        f"{how_many(found.bodies, 'whole round')}.\n"
        f"Head {found.links}:{found.head}\n"
        "Keep this line elsewhere: `gpuwatch audit verify --anchor` then also finds a chain that was rewritten."
    )


def _anchor(text: str | None) -> tuple[int, str] | None:
    """A link's number and hash."""
    if text is None:
        return None
    number, _, digest = text.partition(":")
    if not number.isdecimal() or not digest:
        raise LedgerError(f"--anchor {text!r} is not LINK:HASH, such as `gpuwatch audit verify` prints after Head")
    return int(number), digest


def _pool(pool: str | None) -> str:
    """Return a pool, or all pools, in words."""
    return "all pools" if pool is None else f"pool {pool}"


def _count(value: int | None) -> str:
    """A number, or that it is not known."""
    return "?" if value is None else str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A node that goes only once somebody approves: noticed when, why, and from when on it may go.

    `key` is the notice's.
    """

    node: Node
    key: str
    noticed: datetime
    due: datetime
    why: str


def waiting(fleet: Fleet, ledger: LedgerView, rules: Rulebook) -> tuple[Node, ...]:
    """The nodes with a notice that needs an approval, and without that approval."""
    noticed = [(node, each) for each in ledger.notices if (node := fleet.find(each.node_id)) is not None]
    return tuple(
        node
        for node, notice in noticed
        if wants_approval(rules.pool(node.pool), notice) and ledger.approval(node.id) is None
    )


def list_waiting(settings: LedgerSettings, clock: Clock, rules: Rulebook) -> tuple[Waiting, ...]:
    """Those of the newest round, oldest notice first.

    Raises:
        LedgerError: the ledger cannot be read.

    """
    ledger = Ledger.connect(settings, read_only=True)
    try:
        return _list_waiting(ledger, clock.now(), rules)
    finally:
        ledger.close()


def approve(
    settings: LedgerSettings, clock: Clock, rules: Rulebook, names: Sequence[str], reason: str
) -> list[Approval]:
    """Approve the notices of these nodes (ids or unique names); all of them, or none where one is a mistake.

    Raises:
        LedgerError: one of them waits for no approval, or the ledger cannot be written.

    """
    ledger = Ledger.connect(settings, controls_only=True)
    try:
        now = clock.now()
        there = _list_waiting(ledger, now, rules)
        keys = {each.node.id: each.key for each in there}
        found = dict.fromkeys([_node_named(name, [each.node for each in there]).id for name in names])
        return [ledger.approve(node_id, operator_name(), reason, now, key=keys[node_id]) for node_id in found]
    finally:
        ledger.close()


def _list_waiting(ledger: Ledger, now: datetime, rules: Rulebook) -> tuple[Waiting, ...]:
    newest = ledger.rounds(1)
    if not newest:
        return ()
    fleet, view = ledger.round(newest[0].id).observation.fleet, ledger.view(now)
    found = []
    for node in waiting(fleet, view, rules):
        notice = view.notice(node.id)
        if notice is None:
            continue
        given = next((each.intent for each in ledger.history(node.id) if each.intent.key == notice.key), None)
        grace = timedelta(seconds=rules.pool(node.pool).idle.grace_period)
        due = notice.at + grace if notice.promise is None else notice.promise.due(notice.at)
        why = "" if given is None else given.reason.sentence
        found.append(Waiting(node=node, key=notice.key, noticed=notice.at, due=due, why=why))
    return tuple(sorted(found, key=lambda each: (each.noticed, each.node.id)))


def _node_named(name: str, there: Sequence[Node]) -> Node:
    """The node that is meant."""
    named = [node for node in there if node.name == name]
    found = next((node for node in there if node.id == name), named[0] if len(named) == 1 else None)
    if found is None:
        known = ", ".join(node.id for node in there[:10])
        others = f"These wait: {known}." if known else "No node waits for one."
        raise LedgerError(f"No node with the id or the unique name {name!r} waits for an approval. {others}")
    return found
