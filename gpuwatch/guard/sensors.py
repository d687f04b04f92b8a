"""A driver, version of the agent, or image that broke the sensor: machines at work that read idle, one after another.

A roll-out takes hours or days, so no two machines need to turn idle at the same time. But all of them have something
new, and none of them is seen at work with it. What is new is proven once enough machines of the same type were at work
with it at one time: the share `1 - mass_idleness_ratio` of those that would have been, as the others were. Until then
it is suspected where the pool worked with another one within a week; a pool of less than a week is compared with the
fleet. That ends by itself: a day after the last machine got it or was started with it, so that the next working day has
begun, and at the latest a week after the last one got it.

The record has one line for the machines of a pool and a type with one driver, agent or image: its size is that of the
fleet's variety. Its times are moved by each step of the clock and each time without rounds, which prove nothing.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby
from operator import attrgetter

from gpuwatch.model.activity import State
from gpuwatch.model.bounds import is_storable
from gpuwatch.model.decision import LedgerView
from gpuwatch.model.fleet import Fleet, Node, NodeState, NodeVerdict
from gpuwatch.model.sensors import AGENT, DRIVER, IMAGE, SensorRecord, SensorUse, Unproven

SUSPECTED = timedelta(days=1)  # after the last machine got it, or was started with it
REMEMBERED = timedelta(days=7)  # since a pool worked with another one
_MOST_PAST = 50  # uses of a pool that are kept besides those that are there
_OWN_IMAGES = 3  # so many images, of more than half as many machines, and each machine has its own
_ROUNDING = 1e-9
_BUSY, _RUNNING = State.BUSY, NodeState.RUNNING

Key = tuple[str, str, str, str]  # of a SensorUse
Counts = Mapping[Key, Sequence[int]]  # members, those at work, those with a GPU at work
Change = tuple[str, str, str]  # a type; driver, agent or image; which one


def count_machines(fleet: Fleet) -> Counts:
    """How many machines run with what, and how many of them work; of each round once, for it is O(nodes)."""
    alike: dict[tuple[str, str, str | None, str | None, str | None], list[int]] = {}
    for node in fleet.nodes:
        verdict = node.signal.verdict
        if verdict is None or node.state is not _RUNNING:
            continue
        key = (node.pool, node.kind, verdict.driver_version, verdict.agent_version, node.image)
        found = alike.get(key)
        if found is None:
            found = alike[key] = [0, 0, 0]
        found[0] += 1
        if verdict.activity.state is _BUSY:
            found[1] += 1
            for gpu in verdict.gpus:
                if gpu.activity.state is _BUSY:
                    found[2] += 1
                    break
    counts: dict[Key, list[int]] = {}
    for (pool, kind, driver, agent, image), amounts in alike.items():
        for of, value in ((DRIVER, driver), (AGENT, agent), (IMAGE, image)):
            one = (pool, kind, of, value or "")
            if not value or not is_storable(value):  # the record must be writable whatever one machine says
                continue
            if one in counts:
                _add(counts[one], amounts)
            else:
                counts[one] = amounts.copy()
    return counts


def moved_record(record: SensorRecord, by: timedelta) -> SensorRecord:
    """The record, as much later; when something came stays as it was said to people."""
    at = record.at + by

    def moved(time: datetime | None) -> datetime | None:
        return None if time is None else time + by

    uses = [
        replace(
            use,
            since=min(use.since, at),
            grown_at=use.grown_at + by,
            busy_at=moved(use.busy_at),
            known_at=moved(use.known_at),
        )
        for use in record.uses
    ]
    return SensorRecord(at=at, uses=tuple(uses))


def with_round(record: SensorRecord | None, counts: Counts, ledger: LedgerView, now: datetime) -> SensorRecord:
    """The record after a round. Without one before, machines are taken as they are: nobody knows what was before."""
    known = {} if record is None else {use.key: use for use in record.uses}
    hour = now.replace(minute=0, second=0, microsecond=0)
    if record is not None and _says_nothing_new(known, counts, ledger, hour):
        return SensorRecord(at=now, uses=record.uses)
    past = [known[key] for key in known.keys() - counts.keys() if _is_remembered(known[key], now)]
    uses = [use for _, of_pool in groupby(sorted(past, key=_key), key=_pool) for use in _most_telling(of_pool)]
    for key, (members, at_work, with_gpu) in counts.items():
        use = known.get(key) or _new_use(key, now, members, now if record is None else None)
        # Who has just come may still be called busy for what it did before: that proves nothing of what is new.
        came = 0 if record is None else members - use.members if key in known else members
        busy, computing = at_work - max(0, came), with_gpu - max(0, came)
        if members > use.members:
            use = replace(use, members=members, grown_at=now)
        at = hour if busy > 0 else use.busy_at
        if busy > use.busy or computing > use.computing or at != use.busy_at:
            use = replace(use, busy=max(busy, use.busy), computing=max(computing, use.computing), busy_at=at)
        uses.append(use)
    if ledger.acknowledged or ledger.resumed:
        uses = [_with_orders(use, ledger) for use in uses]
    return SensorRecord(at=now, uses=tuple(sorted(uses, key=_key)))


def _says_nothing_new(known: Mapping[Key, SensorUse], counts: Counts, ledger: LedgerView, hour: datetime) -> bool:
    """Whether a round leaves all as it is, as most do."""
    if ledger.acknowledged or ledger.resumed or len(known) != len(counts):
        return False
    for key, (members, at_work, with_gpu) in counts.items():
        use = known.get(key)
        if use is None or members > use.members or at_work > use.busy or with_gpu > use.computing:
            return False
        if at_work and use.busy_at != hour:
            return False
    return True


def find_unproven(record: SensorRecord, fleet: Fleet, counts: Counts, ratio: float) -> tuple[Unproven, ...]:
    """What machines have by now with which they are not seen at work, where their pools worked with another."""
    changes = defaultdict[Change, dict[str, str]](dict)  # what each pool had before
    for pool, change, before in _changes(record, counts):
        changes[change].setdefault(pool, before)
    if not changes:
        return ()
    proofs = _Proofs.of_record(record)
    suspected = {change: pools for change, pools in changes.items() if not proofs.is_proven(change, ratio)}
    if not suspected:
        return ()
    starts = _newest_starts(fleet, suspected, record.at)
    with_it = defaultdict[Change, list[SensorUse]](list)
    for use in record.uses:
        if use.key in counts and use.pool in suspected.get(use.change, ()) and _is_news(use, starts):
            with_it[use.change].append(use)
    found = dict[object, Unproven]()
    for change, uses in with_it.items():
        until = max(_newest(use, starts) for use in uses) + SUSPECTED
        if until > record.at:
            new = _unproven(change, uses, counts, proofs.at_work(change, ratio), until, suspected[change])
            same = found.setdefault((new.kind, new.pools, new.nodes, new.since), new)
            if same is not new:  # driver and agent came together
                others = (*same.others, f"the {new.of} {new.value}")
                found[new.kind, new.pools, new.nodes, new.since] = replace(same, others=others)
    return tuple(found.values())


@dataclass(frozen=True, slots=True)
class _Proofs:
    """Sums over the pools of the record: members, those at work, those with a GPU at work, at one time."""

    all: Mapping[Change, Sequence[int]]
    lately: Mapping[Change, Sequence[int]]  # of uses with work within the week
    kinds: Mapping[tuple[str, str], Sequence[int]]  # the sums of those by type and kind of change

    @classmethod
    def of_record(cls, record: SensorRecord) -> "_Proofs":
        """Add up what the record has of each type."""
        all_ = defaultdict[Change, list[int]](lambda: [0, 0, 0])
        lately = defaultdict[Change, list[int]](lambda: [0, 0, 0])
        kinds = defaultdict[tuple[str, str], list[int]](lambda: [0, 0, 0])
        for use in record.uses:
            amounts, change = (use.members, use.busy, use.computing), use.change
            _add(all_[change], amounts)
            if _worked(use, record.at):
                _add(lately[change], amounts)
                _add(kinds[use.kind, use.of], amounts)
        return cls(all_, lately, kinds)

    def at_work(self, change: Change, ratio: float) -> tuple[int, int]:
        """How many were at work with it at one time, and how many prove it: as large a share as of the others."""
        kind, of, _ = change
        own, of_kind = self.all[change], self.kinds.get((kind, of), (0, 0, 0))
        lately = self.lately.get(change, (0, 0, 0))
        members, busy, computing = (each - less for each, less in zip(of_kind, lately, strict=True))
        # Where others were seen at work by their GPUs, somebody at a terminal proves nothing of these.
        worked, seen = (computing, own[2]) if computing else (busy, own[1])
        expected = own[0] * worked / members if members else 0.0
        return seen, max(1, math.ceil((1 - ratio) * expected - _ROUNDING))

    def is_proven(self, change: Change, ratio: float) -> bool:
        """Whether enough were at work with it at one time."""
        seen, needed = self.at_work(change, ratio)
        return seen >= needed


def _changes(record: SensorRecord, counts: Counts) -> Iterator[tuple[str, Change, str]]:
    """What machines of a pool have that others, which worked lately, had not; and what those had.

    They are compared with those of their type in their pool. Where none of it worked, it is with the whole pool, and
    in a pool that is too new to have worked with all of their type.
    """
    of_fleet: Mapping[str, Mapping[str, Sequence[str]]] | None = None
    pools = _pools_to_compare(record)
    for pool, of_pool in groupby([use for use in record.uses if use.pool in pools] if pools else (), key=_pool):
        uses = list(of_pool)
        worked = [use for use in uses if _worked(use, record.at)]
        of_kind, of_all = _newest_by_kind(worked), _newest_two(worked)
        if not worked and record.at - min(use.since for use in uses) < REMEMBERED:
            if of_fleet is None:
                of_fleet = _newest_by_kind([use for use in record.uses if _worked(use, record.at)])
            of_kind = of_fleet
        for use in uses:
            newest = of_kind.get(use.kind, of_all)
            before = [value for value in newest.get(use.of, ()) if value != use.value]
            if before and use.key in counts:
                yield pool, use.change, before[0]


def _pools_to_compare(record: SensorRecord) -> set[str]:
    """Those in which anything differs, or nothing ever worked; of most pools neither is so."""
    found, worked, before = set[str](), set[str](), None
    for use in record.uses:
        if use.busy_at is not None:
            worked.add(use.pool)
        if before is not None and before.pool == use.pool and (before.of == use.of or before.kind != use.kind):
            found.add(use.pool)
        before = use
    return found | {use.pool for use in record.uses if use.busy_at is None} - worked


def _newest_by_kind(worked: Iterable[SensorUse]) -> Mapping[str, Mapping[str, Sequence[str]]]:
    by_kind = defaultdict[str, list[SensorUse]](list)
    for use in worked:
        by_kind[use.kind].append(use)
    return {kind: _newest_two(uses) for kind, uses in by_kind.items()}


def _newest_two(worked: Sequence[SensorUse]) -> Mapping[str, Sequence[str]]:
    """The two drivers, agents and images that were seen at work last: one may be what is asked about.

    Images of which each machine has its own are nothing that machines have in common.
    """
    found = defaultdict[str, dict[str, None]](dict)
    for use in sorted(worked, key=attrgetter("busy_at"), reverse=True) if len(worked) > 1 else worked:
        found[use.of][use.value] = None
    images = len(found[IMAGE])
    if images >= _OWN_IMAGES and 2 * images > sum(use.members for use in worked if use.of == IMAGE):
        found[IMAGE].clear()
    return {of: list(values)[:2] for of, values in found.items()}


def _unproven(
    change: Change,
    uses: Sequence[SensorUse],
    counts: Counts,
    at_work: tuple[int, int],
    until: datetime,
    before: Mapping[str, str],
) -> Unproven:
    """What is said of a change, and of these uses that have it now."""
    kind, of, value = change
    pools = sorted({use.pool for use in uses})
    return Unproven(
        kind=kind,
        of=of,
        value=value,
        before=before[pools[0]],
        pools=tuple(pools),
        nodes=sum(counts[use.key][0] for use in uses),
        busy=at_work[0],
        needed=at_work[1],
        since=min(use.since for use in uses),
        until=until,
    )


def _newest_starts(fleet: Fleet, suspected: Mapping[Change, object], now: datetime) -> Mapping[Key, datetime]:
    """When the last machine was started with each thing that is suspected."""
    kinds, starts = {kind for kind, _, _ in suspected}, dict[Key, datetime]()
    for node in fleet.nodes:
        verdict, at = node.signal.verdict, node.launched_at
        if verdict is not None and at is not None and node.state is _RUNNING and node.kind in kinds:
            for of, value in _has(node, verdict):
                if value and (node.kind, of, value) in suspected:
                    key = (node.pool, node.kind, of, value)
                    starts[key] = max(min(at, now), starts.get(key, at))
    return starts


def _has(node: Node, verdict: NodeVerdict) -> tuple[tuple[str, str | None], ...]:
    """What a machine has that may break its readings."""
    return ((DRIVER, verdict.driver_version), (AGENT, verdict.agent_version), (IMAGE, node.image))


def _is_news(use: SensorUse, starts: Mapping[Key, datetime]) -> bool:
    """Whether nobody has taken its machines as they are since the last of them came."""
    return use.known_at is None or use.known_at < _newest(use, starts)


def _newest(use: SensorUse, starts: Mapping[Key, datetime]) -> datetime:
    """When the last of its machines got what it has, or was started with it within the days after that."""
    start = min(starts.get(use.key, use.grown_at), use.grown_at + REMEMBERED - SUSPECTED)
    return max(use.grown_at, start)


def _new_use(key: Key, now: datetime, members: int, known_at: datetime | None) -> SensorUse:
    pool, kind, of, value = key
    return SensorUse(
        pool=pool, kind=kind, of=of, value=value, since=now, grown_at=now, members=members, known_at=known_at
    )


def _with_orders(use: SensorUse, ledger: LedgerView) -> SensorUse:
    """With what people said about it; and a time in which nothing would have been stopped has warned nobody."""
    known = [at for at in (use.known_at, *_orders_on(use, ledger.acknowledged)) if at is not None]
    known_at, grown_at = max(known, default=None), use.grown_at
    if known_at is None or known_at < grown_at:
        grown_at = max([grown_at, *_orders_on(use, ledger.resumed)])
    if (known_at, grown_at) == (use.known_at, use.grown_at):
        return use
    return replace(use, known_at=known_at, grown_at=grown_at)


def _orders_on(use: SensorUse, orders: Iterable[tuple[str | None, datetime]]) -> list[datetime]:
    return [at for pool, at in orders if pool in {None, use.pool} and at >= use.since]


def _worked(use: SensorUse, now: datetime) -> bool:
    """Whether one of its machines was seen at work within the week."""
    return use.busy_at is not None and now - use.busy_at <= REMEMBERED


def _is_remembered(use: SensorUse, now: datetime) -> bool:
    """Whether it still counts though none of its machines is there."""
    return _worked(use, now) or now - use.grown_at <= REMEMBERED


def _most_telling(past: Iterable[SensorUse]) -> list[SensorUse]:
    """Of a pool's uses of which no machine is there those with most work."""
    return sorted(past, key=attrgetter("busy", "grown_at"), reverse=True)[:_MOST_PAST]


def _add(sums: list[int], amounts: Sequence[int]) -> None:
    for place, amount in enumerate(amounts):
        sums[place] += amount


_pool, _key = attrgetter("pool"), attrgetter("key")
