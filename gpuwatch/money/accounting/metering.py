"""PURE: from what two rounds saw of a machine to how long it was billed and what its GPUs did meanwhile.

Rules, all of them:

1. A machine is billed while its cloud says it runs, or that it is stopped and still billed: from `launched_at` on, but
   never for time before metering began, nor for time of a sealed day. No moment is billed twice: each node has a mark
   up to which it is metered, and a clock that was set back bills nothing until it has reached the mark.
2. A machine that no longer runs, or is no longer listed, ran until half way between the two rounds; where these are
   more than `silent_after` apart, until it was last seen.
3. Between rounds more than `silent_after` apart nothing is known. The time is billed where the cloud says that the
   machine ran throughout, and it is `silent`: neither idle nor useful. A host of one's own costs its price for as long
   as it is named, whether it answers or not.
4. What it was used for follows from its agent's reports (`useful_time`).
5. Billed time has the labels and the price that were seen at its begin, and with them whether the machine was ours
   (`scope`).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from zoneinfo import ZoneInfo

from gpuwatch.model.decision import Observation
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.model.money import Price
from gpuwatch.model.usage import GPU, HourKey, Terms, milliseconds
from gpuwatch.money.accounting.scope import foreign_nodes, mark_tags
from gpuwatch.money.accounting.slices import Calendar, HourSheet
from gpuwatch.money.accounting.useful_time import (
    SILENT,
    UNKNOWN,
    Mark,
    Stretch,
    Was,
    is_held_down,
    mark_of,
    measured_energy,
    stopped_amounts,
    used_amounts,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metering:
    """How to meter: the zone of hours and days, the tags to keep, and the longest gap between two rounds.

    `providers` are those of the clouds, by their names in the settings; "" is the only one where these name none.
    `in_hours` are times (begin, end). Their hours are kept until they end: work with a deadline counts them.
    """

    zone: ZoneInfo
    tags: tuple[str, ...] = ()
    silent_after_seconds: float = 300.0
    providers: Mapping[str, str] = field(default_factory=dict)
    in_hours: tuple[tuple[datetime, datetime], ...] = ()

    def hours_since(self, now: datetime) -> datetime:
        """From when on hours are kept for such work; without any, `now`."""
        return min((begin for begin, end in self.in_hours if begin <= now < end), default=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """What metering must know of the past; times in ms. `sealed`: days that end by then no longer change."""

    began: int
    sealed: int = 0
    nodes: Mapping[str, Mark] = field(default_factory=dict)


class UnmeteredError(Exception):
    """The figures of the node `node_id` cannot be counted."""

    def __init__(self, node_id: str) -> None:
        """Keep the name of that node."""
        super().__init__(node_id)
        self.node_id = node_id


class LostTags:
    """Machines of ours that a listing shows without any tag, and when it last had one (rule 3 of `scope`)."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._since: dict[str, int] = {}

    def doubted_nodes(
        self, observation: Observation, marks: Marks | None, numbers: Mapping[Terms, int], rules: Metering
    ) -> frozenset[str]:
        """The nodes that are to be counted as before."""
        now, before = milliseconds(observation.now), {} if marks is None else marks.nodes
        bare = {node.id for node in observation.fleet.nodes if not (node.enrolled or node.tags) and node.id in before}
        if bare:
            ours = {number for terms, number in numbers.items() if terms.foreign is None}
            foreign = foreign_nodes(observation.fleet)
            bare = {node_id for node_id in bare if node_id in foreign and before[node_id].terms in ours}
        self._since = {node_id: self._since.get(node_id, before[node_id].until) for node_id in bare}
        longest = rules.silent_after_seconds * 1000
        return frozenset(node_id for node_id, since in self._since.items() if now - since < longest)


def meter(
    marks: Marks | None,
    observation: Observation,
    rules: Metering,
    number: Callable[[Terms], int],
    calendar: Calendar,
    days_until: int = 0,
    doubted: frozenset[str] = frozenset(),
) -> tuple[Marks, dict[HourKey, list[int]]]:
    """The marks after a round, and what it adds to the rows. `number` gives each terms their number for good.

    The terms of `doubted` nodes stay as they were (`LostTags`). Days that end by `days_until` (ms) are not cut to
    hours. Metering the same round again adds nothing.

    Raises:
        UnmeteredError: what is said of one node cannot be counted.

    """
    now = milliseconds(observation.now)
    marks = marks or Marks(began=now)
    sheet = HourSheet(calendar, days_until)
    nodes: dict[str, Mark] = {}
    numbered: dict[tuple[object, ...], int] = {}
    foreign = foreign_nodes(observation.fleet)
    for node in observation.fleet.nodes:
        before = marks.nodes.get(node.id)
        unseen = node.state is NodeState.UNKNOWN and not node.owned
        if before is not None and (now <= before.until or unseen):
            nodes[node.id] = before  # nothing is billed until the state is known again
            continue
        if unseen:
            continue
        try:
            terms = (
                before.terms
                if before is not None and node.id in doubted
                else _number(node, observation, rules, number, numbered, foreign.get(node.id))
            )
            mark = mark_of(node, now, terms)
            for stretch in _billed_stretches(before, node, mark, max(marks.began, marks.sealed), rules):
                _meter(sheet, node, stretch, mark, rules)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise UnmeteredError(node.id) from error
        nodes[node.id] = mark
    for node_id in marks.nodes.keys() - nodes.keys():
        nodes |= _unlisted_marks(sheet, node_id, marks.nodes[node_id], now, marks.sealed, rules)
    return replace(marks, nodes=nodes), sheet.rows


def _unlisted_marks(
    sheet: HourSheet, node_id: str, mark: Mark, now: int, sealed: int, rules: Metering
) -> dict[str, Mark]:
    """A node that the cloud does not list. Its mark stays while it could keep something from being billed twice."""
    if mark.was is Was.RUNNING and now > mark.until:
        until = mark.until
        for stretch in _tail(mark, now, rules):
            _add(sheet, node_id, stretch, UNKNOWN)
            until = stretch.end
        mark = replace(mark, was=Was.GONE, until=until, tally=None)
    return {node_id: mark} if mark.until > sealed else {}


def _billed_stretches(before: Mark | None, node: Node, mark: Mark, floor: int, rules: Metering) -> Iterator[Stretch]:
    """Rules 1 to 3 for one node, up to its new mark."""
    now, running = mark.until, mark.was is Was.RUNNING
    launched = None if node.launched_at is None else min(milliseconds(node.launched_at), now)
    since_launch = Stretch(begin=max(launched or now, floor), end=now, valid=mark)
    if before is None:
        if running:
            yield since_launch
        return
    if not running or (launched is not None and launched > before.until):
        if before.was is Was.RUNNING:
            yield from _tail(before, launched if running and launched is not None else now, rules)
        if running:
            yield since_launch
        return
    begin, short = max(before.until, floor), now - before.until <= rules.silent_after_seconds * 1000
    if before.was is Was.RUNNING and (short or launched is not None or node.owned):
        yield Stretch(begin=begin, end=now, valid=before, before=before)
    elif before.was is not Was.OFF and launched is not None:
        yield Stretch(begin=begin, end=now, valid=mark)
    elif short:
        yield Stretch(begin=max((before.until + now) // 2, floor), end=now, valid=mark)


def _tail(before: Mark, end: int, rules: Metering) -> Iterator[Stretch]:
    """Yield what is billed after the last mark (rule 2)."""
    if 0 < end - before.until <= rules.silent_after_seconds * 1000:
        yield Stretch(begin=before.until, end=(before.until + end) // 2, valid=before, seen=False)


def _meter(sheet: HourSheet, node: Node, stretch: Stretch, mark: Mark, rules: Metering) -> None:
    """What one stretch was used for."""
    length, verdict = stretch.end - stretch.begin, node.verdict
    if length <= 0:
        return
    if length > rules.silent_after_seconds * 1000:
        _add(sheet, node.id, stretch, SILENT, {} if verdict is None else measured_energy(stretch, verdict))
        return
    if stretch.seen and is_held_down(node):
        parts = stopped_amounts(stretch, mark)
    elif stretch.seen and verdict is not None:
        parts = used_amounts(stretch, verdict, mark)
    else:
        _add(sheet, node.id, stretch, UNKNOWN)
        return
    for (begin, end), amounts in parts.items():
        sheet.add(node.id, stretch.valid.terms, begin, end, amounts)


def _add(sheet: HourSheet, node_id: str, stretch: Stretch, place: int, energy: Mapping[int, int] | None = None) -> None:
    """The whole stretch in one use."""
    length = stretch.end - stretch.begin
    amounts = {place: length, GPU + place: length * len(stretch.valid.gpus), **(energy or {})}
    sheet.add(node_id, stretch.valid.terms, stretch.begin, stretch.end, amounts)


def _number(
    node: Node,
    observation: Observation,
    rules: Metering,
    number: Callable[[Terms], int],
    numbered: dict[tuple[object, ...], int],
    foreign: str | None,
) -> int:
    """The number of what the node is billed under from now on; machines that differ in nothing are asked for once."""
    price = observation.price(node)
    tags = mark_tags(tuple([(name, node.tags[name]) for name in sorted(rules.tags) if name in node.tags]), foreign)
    # A price is one object for all machines that have it.
    place = (node.region, node.instance_type, node.capacity_type, node.known_gpus)
    about = (node.pool, node.owner, node.account, node.cloud, *place, id(price), tags)
    found = numbered.get(about)
    if found is None:
        found = numbered[about] = number(_terms(node, price, tags, rules.providers.get(node.cloud)))
    return found


def _terms(node: Node, price: Price | None, tags: tuple[tuple[str, str], ...], provider: str | None) -> Terms:
    return Terms(
        pool=node.pool,
        owner=node.owner,
        account=node.account,
        region=node.region,
        instance_type=node.instance_type,
        capacity_type=node.capacity_type.value,
        gpus=node.known_gpus,
        usd_per_hour=None if price is None else price.usd_per_hour,
        price_as_of=None if price is None else price.as_of,
        price_source=None if price is None else _source(price),
        tags=tags,
        cloud=node.cloud,
        provider=provider,
    )


def _source(price: Price) -> str:
    """The source of a price, with the rate it was converted at."""
    if price.original_per_hour is None:
        return price.source
    return f"{price.source}; {price.original_per_hour} {price.currency} at {price.rate}"
