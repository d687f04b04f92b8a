"""The order in which one round carries out what is allowed, and what has its turn in a later round.

The calls of a round are made one after the other: each is written down before it leaves, counts against the limits of
those that follow, and rests on answers that are seconds old. What is slow is therefore bounded here.

Rules, all of them:

1. What protects machines and their work goes first, then what takes back a notice or a mark, then what brings
   machines, then what removes some, then what announces removals.
2. Within a rank that server is asked next which has taken the least time in this round, and of its targets the pools in
   turn; a target that was asked in vain comes after the others of its pool.
3. Removals may take a third of the time between two rounds, and so may announcements, and what takes one back: the
   next round, and what it has to protect, does not wait for the rest. Servers share that time, and each has its part
   for certain. Waiting for a silent server does not count.
4. No server's calls of one rank may take longer than the time between two rounds.
5. A server that was waited for in vain the last time comes after the others (`circuits.py`): its protections and
   additions after all of those, its removals and notices at the end. Once the waiting for such servers has taken a
   third of the time between two rounds, the others of them have their turn in a later round.
"""

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from gpuwatch.controller.circuits import Circuits, Server
from gpuwatch.model.decision import Review, Unreached
from gpuwatch.model.duration import format_duration
from gpuwatch.model.verbs import Action, Verb

_LEAST_SECONDS = 10.0
_NO_TIME = "other steps of the round took {}; it comes before them in the next round"
_OTHERS_SILENT = "{} was waited for in vain the last time, and this round has waited for others long enough"


class Rank(IntEnum):
    """Which steps go first: the smallest rank."""

    PROTECT = 0
    UNDO = 1
    ADD = 2
    REMOVE = 3
    ANNOUNCE = 4


_RANKS: Mapping[Action, Rank] = {
    Action.SHIELD: Rank.PROTECT,
    Action.MARK: Rank.PROTECT,
    Action.EVACUATE: Rank.PROTECT,
    Action.ISOLATE: Rank.PROTECT,
    Action.WITHDRAW: Rank.UNDO,
    Action.UNDO: Rank.UNDO,
    Action.ADD: Rank.ADD,
    Action.ANNOUNCE: Rank.ANNOUNCE,
}
_MAY_WAIT = frozenset({Rank.UNDO, Rank.REMOVE, Rank.ANNOUNCE})


def rank_of(verb: Verb) -> Rank:
    """Return when a step of that verb has its turn; what ends, moves or takes back something is a removal."""
    return _RANKS.get(verb.action, Rank.REMOVE)


@dataclass(slots=True, eq=False)
class _Lane:
    """The steps of one rank that one server is asked for, by pool, the pools in turn."""

    server: Server
    rank: Rank
    pools: OrderedDict[str, deque[Review]] = field(default_factory=OrderedDict)
    seconds: float = 0.0
    taken: int = 0

    def take(self) -> Review:
        """Take the next step; its pool comes last from then on."""
        pool, steps = next(iter(self.pools.items()))
        review = steps.popleft()
        if steps:
            self.pools.move_to_end(pool)
        else:
            del self.pools[pool]
        self.taken += 1
        return review


class Turns:
    """The allowed steps of one round, and who has had a turn."""

    def __init__(
        self,
        circuits: Circuits,
        servers_of: Callable[[Review], Sequence[Server]],
        reviews: Iterable[Review],
        interval_seconds: float,
    ) -> None:
        """Nothing has had its turn; the first of a step's servers is asked for the change, the others before it."""
        self._circuits, self._servers_of = circuits, servers_of
        self._share = max(_LEAST_SECONDS, interval_seconds / 3)
        self._most = max(_LEAST_SECONDS, interval_seconds)
        self._lanes: dict[tuple[Server, Rank], _Lane] = {}
        self._sharing = dict.fromkeys(Rank, 0)  # how many servers are asked for steps of each rank
        self._seconds = dict.fromkeys(Rank, 0.0)
        self._skipped: list[tuple[Review, str]] = []
        for review in sorted(reviews, key=lambda each: circuits.asked_in_vain(each.step.node_id)):
            self._steps_beside(review).append(review)

    def take(self) -> Review | None:
        """Take the next step in turn; None: the round is over."""
        while (lane := min(filter(self._is_open, self._lanes.values()), key=self._place_of, default=None)) is not None:
            review = lane.take()
            others = self._servers_of(review)[1:]
            why = next(filter(None, map(self._why_left_alone, others)), None)
            if why is None:
                return review
            self._skipped.append((review, why))
        return None

    def put_first(self, reviews: Sequence[Review]) -> None:
        """Give steps in the place of one that is over the next turn of their pools."""
        for review in reversed(reviews):
            self._steps_beside(review).appendleft(review)

    def note_end(self, review: Review, seconds: float, lost_seconds: float) -> None:
        """Count how long a step has taken, and for how long of that an answer did not come."""
        rank = rank_of(review.step.verb)
        self._lane(self._servers_of(review)[0], rank).seconds += seconds
        self._seconds[rank] += seconds - lost_seconds

    def skip(self, review: Review, why: str) -> None:
        """Note a step that could not be tried."""
        self._skipped.append((review, why))

    def list_unreached(self) -> tuple[Unreached, ...]:
        """Return what was allowed and had no turn, by the reason."""
        found: dict[tuple[Verb, str], list[str]] = defaultdict(list)
        for lane in self._lanes.values():
            for steps in lane.pools.values():
                for review in steps:
                    found[review.step.verb, self._why_unreached(lane)].append(review.step.node_id)
        for review, why in self._skipped:
            found[review.step.verb, why].append(review.step.node_id)
        return tuple(Unreached(verb=verb, why=why, targets=tuple(ids)) for (verb, why), ids in found.items())

    def _lane(self, server: Server, rank: Rank) -> _Lane:
        """Return the lane of a server and a rank."""
        lane = self._lanes.get((server, rank))
        if lane is None:
            lane = self._lanes[server, rank] = _Lane(server, rank)
            self._sharing[rank] += 1
        return lane

    def _steps_beside(self, review: Review) -> deque[Review]:
        """Return the steps of the same server, rank and pool."""
        lane = self._lane(self._servers_of(review)[0], rank_of(review.step.verb))
        return lane.pools.setdefault(review.pool, deque())

    def _is_open(self, lane: _Lane) -> bool:
        """Whether a lane has steps, and its server may be asked for the next one now."""
        return bool(lane.pools) and self._why_closed(lane) is None

    def _place_of(self, lane: _Lane) -> tuple[bool, bool, float, Rank, float, int]:
        """Return by what lanes are ordered: the smallest comes first."""
        since = self._circuits.waited_for(lane.server)
        slow = (since is not None, 0.0 if since is None else since)
        return (lane.rank > Rank.ADD, *slow, lane.rank, lane.seconds, lane.taken)

    def _why_left_alone(self, server: Server) -> str | None:
        """Why a server is not asked again in this round."""
        why = self._circuits.why_left_alone(server)
        return None if why is None else f"{server} is not asked again in this round: {why}"

    def _why_closed(self, lane: _Lane) -> str | None:
        """Why nothing else of a lane has its turn in this round; None: it may have."""
        why = self._why_left_alone(lane.server)
        if why is not None:
            return why
        if self._circuits.waited_for(lane.server) is not None and self._circuits.lost_seconds >= self._share:
            return _OTHERS_SILENT.format(lane.server)
        if self._is_out_of_time(lane):
            return _NO_TIME.format(format_duration(max(lane.seconds, self._seconds[lane.rank])))
        return None

    def _is_out_of_time(self, lane: _Lane) -> bool:
        """Whether a lane has had its time; where servers share it, each has its part for certain."""
        if lane.rank not in _MAY_WAIT:
            return lane.seconds >= self._most
        part = self._share / self._sharing[lane.rank]
        spent = self._seconds[lane.rank] >= self._share and lane.seconds >= part
        return spent or lane.seconds >= self._share

    def _why_unreached(self, lane: _Lane) -> str:
        """Why what is left of a lane had no turn."""
        return self._why_closed(lane) or "the round was over"
