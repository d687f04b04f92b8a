"""A pool of nodes on a recording of spot capacity: what a policy would have cost, and how often all nodes worked.

Minute steps. A launch that the recording has room for boots and then works; one without room is a failed launch. Where
the recording has fewer nodes than the pool holds, the oldest get an interruption notice so long before. On demand is
always to be had, at its price.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import ceil

from gpuwatch.policies.spot.mix import Has, MixRules, goal
from gpuwatch.policies.spot.offers import (
    MEMORY_SECONDS,
    OfferRecord,
    rank_offers,
    refusals_after,
    rest_seconds,
)
from gpuwatch.simulate.spot.recording import STEP_SECONDS, Recording
from gpuwatch.simulate.spot.sums import Played, Sums, Terms, on_demand_cost

__all__ = ["Played", "Terms", "lower_bound", "on_demand_cost", "play"]

_MEMORY = int(MEMORY_SECONDS // STEP_SECONDS)
_MINUTES_PER_HOUR = 60.0


@dataclass(slots=True)
class _Node:
    launched: int
    ends: int | None = None  # with an interruption notice


@dataclass(slots=True)
class _Offer:
    """One offer's nodes and record."""

    name: str
    room: list[int]
    usd: list[float]
    nodes: list[_Node] = field(default_factory=list)
    losses: deque[int] = field(default_factory=deque)
    up: deque[int] = field(default_factory=deque)
    up_minutes: int = 0
    refusals: int = 0
    refused_at: int = 0

    @property
    def own(self) -> int:
        """Its nodes without a notice."""
        return sum(node.ends is None for node in self.nodes)

    def working(self, minute: int, boot: int) -> int:
        """Its nodes that work, with or without a notice."""
        return sum(minute - node.launched >= boot for node in self.nodes)

    def take(self, minute: int, notice: int) -> int:
        """Remove the nodes that reached their end, and give notices; the count of those removed."""
        before = len(self.nodes)
        self.nodes = [node for node in self.nodes if node.ends is None or node.ends > minute]
        room = self.room[min(minute + notice, len(self.room) - 1)]
        kept = [node for node in self.nodes if node.ends is None]
        for node in kept[: max(0, len(kept) - room)]:
            node.ends = minute + notice
            self.losses.append(minute)
        if len(kept) > room:
            self.note_try(minute, refused=True)
        return before - len(self.nodes)

    def launch(self, minute: int) -> bool:
        """Ask for a node; whether there was room."""
        found = len(self.nodes) < self.room[minute]
        if found:
            self.nodes.append(_Node(minute))
        self.note_try(minute, refused=not found)
        return found

    def note_try(self, minute: int, *, refused: bool) -> None:
        """Note the answer of a try."""
        self.refusals = refusals_after(self.refusals, refused=refused)
        self.refused_at = minute if refused else self.refused_at

    @property
    def rests_until(self) -> int:
        """The minute from which on it may be asked; nodes that it holds, or has lost, change it."""
        return self.refused_at + ceil(rest_seconds(self.refusals, self.own) / STEP_SECONDS)

    def remember(self) -> None:
        """Count a minute of its nodes, and forget what is too old."""
        count = len(self.nodes)
        self.up.append(count)
        self.up_minutes += count - (self.up.popleft() if len(self.up) > _MEMORY else 0)

    def record(self, minute: int) -> OfferRecord:
        """What is known of it now."""
        while self.losses and self.losses[0] < minute - _MEMORY:
            self.losses.popleft()
        return OfferRecord(
            name=self.name,
            usd_per_hour=self.usd[minute],
            preemptions=len(self.losses),
            hours_up=self.up_minutes / _MINUTES_PER_HOUR,
            own=self.own,
            resting_seconds=(self.rests_until - minute) * float(STEP_SECONDS),
        )


def play(recording: Recording, wanted: int, rules: MixRules, terms: Terms, name: str) -> Played:
    """One policy over the whole recording."""
    flat = [terms.on_demand_usd_per_hour * terms.spot_price_ratio] * recording.minutes
    prices = recording.usd_per_hour or dict.fromkeys(recording.nodes, flat)
    offers = [_Offer(each, recording.nodes[each], prices[each]) for each in sorted(recording.nodes)]
    sums = Sums(recording, wanted, terms)
    on_demand: list[int] = []  # the minutes of their launches
    missing_since: int | None = None
    for minute in range(recording.minutes):
        sums.interruptions += sum([offer.take(minute, terms.notice_minutes) for offer in offers])
        has = _has(offers, on_demand, minute, terms, missing_since)
        failed = _launch_spot(offers, goal(wanted, has, rules).spot_missing, minute, rules, terms)
        has = _has(offers, on_demand, minute, terms, missing_since)
        plan = goal(wanted, has, rules)
        missing_since = None if plan.spot_missing == 0 else minute if missing_since is None else missing_since
        _fit(on_demand, plan.on_demand, minute, rules)
        _count(sums, offers, on_demand, minute, failed, terms)
    return sums.play_sums(name)


def _has(offers: list[_Offer], on_demand: list[int], minute: int, terms: Terms, missing_since: int | None) -> Has:
    own = sum([offer.own for offer in offers])
    working = sum(
        node.ends is None and minute - node.launched >= terms.boot_minutes for offer in offers for node in offer.nodes
    )
    waited = 0.0 if missing_since is None else (minute - missing_since) * float(STEP_SECONDS)
    return Has(spot_working=working, spot_coming=own - working, on_demand=len(on_demand), missing_seconds=waited)


def _launch_spot(offers: list[_Offer], missing: int, minute: int, rules: MixRules, terms: Terms) -> int:
    """Ask offer after offer for what is missing; the count of failed launches."""
    failed, most = 0, rules.max_price_ratio * terms.on_demand_usd_per_hour
    by_name = {offer.name: offer for offer in offers}
    while missing > 0:
        order = rank_offers(
            [offer.record(minute) for offer in offers if offer.rests_until <= minute],
            most_usd_per_hour=most,
            spread=rules.spread,
        )
        if not order:
            break
        if by_name[order[0].name].launch(minute):
            missing -= 1
        else:
            failed += 1
    return failed


def _fit(on_demand: list[int], wanted: int, minute: int, rules: MixRules) -> None:
    """Launch on demand what is missing at once, and give back the newest that is not wanted and had its time."""
    while len(on_demand) < wanted:
        on_demand.append(minute)
    stays = rules.back_to_spot_after / STEP_SECONDS
    while len(on_demand) > wanted and minute - on_demand[-1] >= stays:
        on_demand.pop()


def _count(sums: Sums, offers: list[_Offer], on_demand: list[int], minute: int, failed: int, terms: Terms) -> None:
    working = sum(minute - launched >= terms.boot_minutes for launched in on_demand)
    usd: list[float] = []
    for offer in offers:
        offer.remember()
        if offer.nodes:
            usd += [offer.usd[minute]] * len(offer.nodes)
            working += offer.working(minute, terms.boot_minutes)
    sums.count(minute, failed, usd, len(on_demand), working)


def lower_bound(recording: Recording, wanted: int, terms: Terms) -> float:
    """What no policy can go below, as a part of on demand: each spot node that exists, at once, and moves are free."""
    return sum(_cheapest(recording, wanted, terms)) / _MINUTES_PER_HOUR / on_demand_cost(recording, wanted, terms)


def _cheapest(recording: Recording, wanted: int, terms: Terms) -> Iterator[float]:
    """For each minute the least that so many nodes cost, as if it were an hour."""
    flat = terms.on_demand_usd_per_hour * terms.spot_price_ratio
    for minute in range(recording.minutes):
        left, cost = wanted, 0.0
        prices = recording.usd_per_hour
        there = sorted(
            (flat if prices is None else prices[name][minute], room[minute]) for name, room in recording.nodes.items()
        )
        for usd, room in there:
            taken = min(left, room) if usd < terms.on_demand_usd_per_hour else 0
            left, cost = left - taken, cost + taken * usd
        yield cost + left * terms.on_demand_usd_per_hour
