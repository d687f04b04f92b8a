"""A cloud with a neighbour: somebody who starts again what gpuwatch stops, or makes groups as large as they were."""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from gpuwatch.clouds.permit import Permit
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import Node, NodeGroup, NodeState
from gpuwatch.model.stops import StopAnswer
from tests.support.builders.fleet import FakeFleet


@dataclass(slots=True)
class Neighbour(FakeFleet):
    """Whoever starts machines again so many `minutes` after they were stopped, and sets groups to `sizes`.

    None: nobody. What runs again works for `works` minutes, and then it is idle; so it is with new members. A machine
    with hours in `shifts` is started by them: each is the hour of a start, and for how many hours it then works.
    """

    minutes: float | None = None
    works: float = 0.0
    sizes: dict[str, int] = field(default_factory=dict)
    shifts: dict[str, tuple[tuple[float, float], ...]] = field(default_factory=dict)
    tells_launches: bool = True  # whether the cloud shows when a machine was started last
    started: list[tuple[str, datetime]] = field(default_factory=list)
    _begun: set[tuple[str, datetime]] = field(default_factory=set)
    _down: dict[str, datetime] = field(default_factory=dict)
    _works_until: dict[str, datetime] = field(default_factory=dict)

    def nodes(self) -> tuple[Node, ...]:
        """The list, after the neighbour has done what was due."""
        self.act()
        return FakeFleet.nodes(self)

    def act(self) -> None:
        """Whatever the neighbour does by now."""
        now = self.clock.now()
        for node in list(self.nodes_.values()):
            if self._now(node).state is not NodeState.STOPPED:
                self._down.pop(node.id, None)
                continue
            since = self._down.setdefault(node.id, now)
            if self.minutes is not None and now - since >= timedelta(minutes=self.minutes):
                self.start_again(node.id, timedelta(minutes=self.works))
        self._begin_shifts(now)
        for group_id, size in self.sizes.items():
            self._reset_group(self.groups_[group_id], size)
        self._end_work(now)

    def start(self, node_id: str, key: str) -> None:
        """By gpuwatch itself; nobody works."""
        FakeFleet.start(self, node_id, key)
        self._begin_work(node_id, timedelta())

    def start_again(self, node_id: str, works: timedelta) -> None:
        """Start a machine, which then works for that long."""
        now, node = self.clock.now(), self.nodes_[node_id]
        launched = now if self.tells_launches else node.launched_at
        self.put(replace(node, state=NodeState.RUNNING, launched_at=launched, last_stop=None))
        self.started.append((node_id, now))
        self._begin_work(node_id, works)

    def _begin_work(self, node_id: str, works: timedelta) -> None:
        self.show(node_id, State.BUSY if works else State.IDLE)
        self._works_until[node_id] = self.clock.now() + works

    def _begin_shifts(self, now: datetime) -> None:
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        for node_id, shifts in self.shifts.items():
            for begin, hours in shifts:
                at = midnight + timedelta(hours=begin)
                if (node_id, at) in self._begun or not at <= now < at + timedelta(hours=1):
                    continue
                self._begun.add((node_id, at))
                if self._now(self.nodes_[node_id]).state is NodeState.STOPPED:
                    self.start_again(node_id, timedelta(hours=hours))
                else:
                    self._begin_work(node_id, timedelta(hours=hours))

    def _reset_group(self, group: NodeGroup, size: int) -> None:
        if group.desired >= size:
            return
        group = replace(group, desired=size)
        while len(group.node_ids) < size:
            self.made_ += 1
            group = self._member(group, f"{group.id}-{self.made_}")
        self.groups_[group.id] = group

    def _member(self, group: NodeGroup, node_id: str) -> NodeGroup:
        group = FakeFleet._member(self, group, node_id)
        self._begin_work(node_id, timedelta(minutes=self.works))
        return group

    def _end_work(self, now: datetime) -> None:
        for node_id, until in list(self._works_until.items()):
            node = self._now(self.nodes_[node_id])
            if node.state is NodeState.RUNNING and until <= now and node.activity.state is State.BUSY:
                self.show(node_id, State.IDLE, 0.0)


@dataclass(slots=True)
class RandomNeighbour(Neighbour):
    """Somebody who starts machines, sets groups to `whole`, and protects machines, whenever it occurs to them.

    `seed` is what occurs to them, `often` how many times an hour each of these does. What they start works for
    `works` minutes. `removed` has what gpuwatch removed and when, `wrongly` what it removed while that was forbidden.
    """

    seed: int = 0
    often: float = 1.0
    whole: dict[str, int] = field(default_factory=dict)
    protects: bool = True
    removed: list[tuple[str, datetime]] = field(default_factory=list)
    wrongly: list[str] = field(default_factory=list)
    _chance: random.Random | None = None
    _last: datetime | None = None

    def nodes(self) -> tuple[Node, ...]:
        """The list, after what has occurred to the neighbour since the last one."""
        self._chance = self._chance or random.Random(self.seed)
        now = self.clock.now()
        passed = 0.0 if self._last is None else (now - self._last).total_seconds() / 3600
        self._last = now
        for node in list(self.nodes_.values()):
            if self._occurs(passed) and self._now(node).state is NodeState.STOPPED:
                self.start_again(node.id, timedelta(minutes=self.works))
            if self.protects and self._occurs(passed):
                kept = None if node.protected is not None else "the neighbour's tag"
                self.put(replace(self.nodes_[node.id], protected=kept))
        for group_id, size in self.whole.items():
            if self._occurs(passed):
                self._reset_group(self.groups_[group_id], size)
        return Neighbour.nodes(self)

    def stop(self, node_id: str, key: str, *, permit: Permit) -> StopAnswer:
        """By gpuwatch."""
        self._note_removal(node_id, node_id)
        return Neighbour.stop(self, node_id, key, permit=permit)

    def terminate(self, node_id: str, key: str, *, permit: Permit, group: str | None = None) -> None:
        """By gpuwatch."""
        self._note_removal(node_id, group or node_id)
        Neighbour.terminate(self, node_id, key, permit=permit, group=group)

    def _note_removal(self, node_id: str, target: str) -> None:
        node = self._now(self.nodes_[node_id])
        self.removed.append((target, self.clock.now()))
        if node.protected is not None or node.activity.state is State.BUSY:
            self.wrongly.append(node_id)

    def _occurs(self, hours: float) -> bool:
        assert self._chance is not None
        return self._chance.random() < self.often * hours


def most_in_a_day(removed: Iterable[tuple[str, datetime]]) -> int:
    """How often one target was removed within twenty-four hours, at most."""
    times: dict[str, list[datetime]] = {}
    for target, at in removed:
        times.setdefault(target, []).append(at)
    day = timedelta(days=1)
    return max((sum(at <= each < at + day for each in known) for known in times.values() for at in known), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Days:
    """What gpuwatch did on each day."""

    stops: tuple[int, ...]
    notices: tuple[int, ...]
    ends: tuple[int, ...]
    told: tuple[int, ...]


def count_days(rounds: Callable[[], tuple[str, ...]], days: int, rounds_a_day: int) -> Days:
    """Play so many days; `rounds` plays one round, and gives the words of what was done in it."""
    stops, notices, ends, told = ([0] * days for _ in range(4))
    for day in range(days):
        for _ in range(rounds_a_day):
            for word in rounds():
                stops[day] += word == "stop"
                notices[day] += word == "notice"
                ends[day] += word == "terminate"
                told[day] += word == "left_alone"
    return Days(stops=tuple(stops), notices=tuple(notices), ends=tuple(ends), told=tuple(told))
