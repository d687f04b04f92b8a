"""A driver, version of the agent, or image that broke the sensor: machines at work that read idle, one after another.

A roll-out takes hours or days, so no two machines need to turn idle at the same time. But all of them have something
new, and none of them is seen at work with it. What is new is proven once enough machines of the same type were at work
with it at one time: the share `1 - mass_idleness_ratio` of those that would have been, as the others were. Until then
it is suspected where the pool worked with another one within a week. That ends by itself: a day after the last machine
got it or was started with it, so that the next working day has begun, and at the latest a week after the last one got
it.

The record has one line for the machines of a pool, a type, and what they have in common: its size is that of the
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
from gpuwatch.model.decision import LedgerView
from gpuwatch.model.fleet import Fleet, NodeState
from gpuwatch.model.sensors import AGENT, DRIVER, IMAGE, SensorRecord, SensorUse, Unproven

SUSPECTED = timedelta(days=1)  # after the last machine got it, or was started with it
REMEMBERED = timedelta(days=7)  # since a pool worked with another one
_MOST_PAST = 50  # uses of a pool that are kept besides those that are there
_OWN_IMAGES = 3  # so many images, of more than half as many machines, and each machine has its own
_ROUNDING = 1e-9
_BUSY, _RUNNING = State.BUSY, NodeState.RUNNING

Key = tuple[str, str, str | None, str | None, str | None]  # of a SensorUse
Counts = Mapping[Key, Sequence[int]]  # members, those at work, those with a GPU at work
Change = tuple[str, str, str]  # a type; driver, agent or image; which one


def count_machines(fleet: Fleet) -> Counts:
    """How many machines run with what in common, and how many of them work; of each round once, for it is O(nodes)."""
    counts: dict[Key, list[int]] = {}
    for node in fleet.nodes:
        verdict = node.signal.verdict
        if verdict is None or node.state is not _RUNNING:
            continue
        key = (node.pool, node.kind, verdict.driver_version, verdict.agent_version, node.image)
        found = counts.get(key)
        if found is None:
            found = counts[key] = [0, 0, 0]
        found[0] += 1
        if verdict.activity.state is _BUSY:
            found[1] += 1
            for gpu in verdict.gpus:
                if gpu.activity.state is _BUSY:
                    found[2] += 1
                    break
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
    past = [use for use in known.values() if use.key not in counts and _is_remembered(use, now)]
    uses = [use for _, of_pool in groupby(sorted(past, key=_pool), key=_pool) for use in _most_telling(of_pool)]
    for key, (members, busy, computing) in counts.items():
        use = known.get(key) or _new_use(key, now, now if record is None else None)
        if members > use.members:
            use = replace(use, members=members, grown_at=now)
        at = hour if busy else use.busy_at
        if busy > use.busy or computing > use.computing or at != use.busy_at:
            use = replace(use, busy=max(busy, use.busy), computing=max(computing, use.computing), busy_at=at)
        uses.append(use)
    if ledger.acknowledged or ledger.resumed:
        uses = [_with_orders(use, ledger) for use in uses]
    return SensorRecord(at=now, uses=tuple(sorted(uses, key=_order)))


def find_unproven(record: SensorRecord, fleet: Fleet, counts: Counts, ratio: float) -> tuple[Unproven, ...]:
    """What machines have by now with which they are not seen at work, where their pools worked with another."""
    changes = defaultdict[Change, dict[str, str]](dict)  # what each pool had before
    for pool, of_pool in groupby(record.uses, key=_pool):
        for change, before in _changes(list(of_pool), counts, record.at):
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
        for change in _possible_changes(use) if use.key in counts else ():
            if use.pool in suspected.get(change, ()) and _is_news(use, starts):
                with_it[change].append(use)
    found = dict[tuple[Key, ...], Unproven]()
    for change, uses in with_it.items():
        until = max(_newest(use, starts) for use in uses) + SUSPECTED
        if until > record.at:
            keys = tuple([use.key for use in uses])
            new = _unproven(change, uses, counts, proofs.at_work(change, ratio), until, suspected[change])
            same = found.get(keys, new)  # driver and agent came together
            found[keys] = new if same is new else replace(same, others=(*same.others, f"the {new.of} {new.value}"))
    return tuple(found.values())


@dataclass(frozen=True, slots=True)
class _Proofs:
    """Sums over the record, by type: what worked at one time with what, and what of it worked within the week."""

    all: Mapping[Change, Sequence[int]]  # members, those at work, those with a GPU at work
    lately: Mapping[Change, Sequence[int]]  # the same of uses with work within the week
    kinds: Mapping[tuple[str, str], Sequence[int]]  # the sums of those by type and kind of change

    @classmethod
    def of_record(cls, record: SensorRecord) -> "_Proofs":
        """Add up what the record has of each type."""
        all_ = defaultdict[Change, list[int]](lambda: [0, 0, 0])
        lately = defaultdict[Change, list[int]](lambda: [0, 0, 0])
        kinds = defaultdict[tuple[str, str], list[int]](lambda: [0, 0, 0])
        for use in record.uses:
            worked, amounts = _worked(use, record.at), (use.members, use.busy, use.computing)
            for change in _possible_changes(use):
                sums = [all_[change], *((lately[change], kinds[change[:2]]) if worked else ())]
                for place, amount in enumerate(amounts):
                    for each in sums:
                        each[place] += amount
        return cls(all_, lately, kinds)

    def at_work(self, change: Change, ratio: float) -> tuple[int, int]:
        """How many were at work with it at one time, and how many prove it: as large a share as of the others."""
        own, of_kind = self.all[change], self.kinds.get(change[:2], (0, 0, 0))
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


def _changes(pool: Sequence[SensorUse], counts: Counts, now: datetime) -> Iterator[tuple[Change, str]]:
    """What machines of a pool have that others of it, which worked lately, had not; and what those had.

    They are compared with those of their type, and where none of it worked, with all.
    """
    worked = [use for use in pool if _worked(use, now)] if len(pool) > 1 else []
    if not worked:
        return
    worked.sort(key=attrgetter("busy_at"), reverse=True)
    by_kind = defaultdict[str, list[SensorUse]](list)
    for use in worked:
        by_kind[use.kind].append(use)
    of_kind, of_all = {kind: _newest_two(uses) for kind, uses in by_kind.items()}, _newest_two(worked)
    for use in pool:
        newest = of_kind.get(use.kind, of_all)
        for change in _possible_changes(use) if use.key in counts else ():
            before = [value for value in newest[change[1]] if value != change[2]]
            if before:
                yield change, before[0]


def _newest_two(worked: Sequence[SensorUse]) -> Mapping[str, Sequence[str]]:
    """The two drivers, agents and images that were seen at work last: one may be what is asked about.

    Images of which each machine has its own are nothing that machines have in common.
    """
    found = {of: dict[str, None]() for of in (DRIVER, AGENT, IMAGE)}
    for use in worked:
        for _, of, value in _possible_changes(use):
            found[of][value] = None
    images = len(found[IMAGE])
    if images >= _OWN_IMAGES and 2 * images > sum(use.members for use in worked):
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
    """When the machines of each use were started last, of types about which something is suspected."""
    kinds, starts = {kind for kind, _, _ in suspected}, dict[Key, datetime]()
    for node in fleet.nodes:
        verdict, at = node.signal.verdict, node.launched_at
        if verdict is not None and at is not None and node.state is _RUNNING and node.kind in kinds:
            key = (node.pool, node.kind, verdict.driver_version, verdict.agent_version, node.image)
            at = min(at, now)
            starts[key] = max(at, starts.get(key, at))
    return starts


def _is_news(use: SensorUse, starts: Mapping[Key, datetime]) -> bool:
    """Whether nobody has taken its machines as they are since the last of them came."""
    return use.known_at is None or use.known_at < _newest(use, starts)


def _newest(use: SensorUse, starts: Mapping[Key, datetime]) -> datetime:
    """When the last of its machines got what it has, or was started with it within the days after that."""
    start = min(starts.get(use.key, use.grown_at), use.grown_at + REMEMBERED - SUSPECTED)
    return max(use.grown_at, start)


def _new_use(key: Key, now: datetime, known_at: datetime | None) -> SensorUse:
    pool, kind, driver, agent, image = key
    return SensorUse(
        pool=pool,
        kind=kind,
        driver=driver,
        agent=agent,
        image=image,
        since=now,
        grown_at=now,
        members=0,
        known_at=known_at,
    )


def _with_orders(use: SensorUse, ledger: LedgerView) -> SensorUse:
    """With what people said of it; and a time in which nothing would have been stopped has warned nobody."""
    known_at = max((at for at in (use.known_at, *_orders_on(use, ledger.acknowledged)) if at is not None), default=None)
    grown_at = use.grown_at
    if known_at is None or known_at < grown_at:
        grown_at = max([grown_at, *_orders_on(use, ledger.resumed)])
    if (known_at, grown_at) == (use.known_at, use.grown_at):
        return use
    return replace(use, known_at=known_at, grown_at=grown_at)


def _orders_on(use: SensorUse, orders: Iterable[tuple[str | None, datetime]]) -> list[datetime]:
    return [at for pool, at in orders if pool in {None, use.pool} and at >= use.since]


def _possible_changes(use: SensorUse) -> list[Change]:
    """What its machines have in common, as far as it is known."""
    found = ((DRIVER, use.driver), (AGENT, use.agent), (IMAGE, use.image))
    return [(use.kind, of, value) for of, value in found if value]


def _worked(use: SensorUse, now: datetime) -> bool:
    """Whether one of its machines was seen at work within the week."""
    return use.busy_at is not None and now - use.busy_at <= REMEMBERED


def _is_remembered(use: SensorUse, now: datetime) -> bool:
    """Whether it still counts though none of its machines is there."""
    return _worked(use, now) or now - use.grown_at <= REMEMBERED


def _most_telling(past: Iterable[SensorUse]) -> list[SensorUse]:
    """Of a pool's uses of which no machine is there those with most work."""
    return sorted(past, key=attrgetter("busy", "grown_at"), reverse=True)[:_MOST_PAST]


def _order(use: SensorUse) -> tuple[str, ...]:
    return tuple([each or "" for each in use.key])


_pool = attrgetter("pool")
