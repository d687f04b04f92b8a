"""The controller itself on a recording of spot capacity: its rounds, its guard and its ledger, a cloud that is played.

Nothing is decided here. Each minute the cloud gives notices, takes nodes and lets others come up; then the controller
makes one round of its own. All nodes always work, and their people consent to interruptions. Where the recording has
fewer nodes than the pool holds, the oldest get an interruption notice so long before. The cloud's list shows it, as
those of AWS and Alibaba Cloud do, also of a machine that boots. On demand is always to be had.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from gpuwatch.clouds import InsufficientCapacityError, Leftover, NotFoundError
from gpuwatch.clouds.permit import Permit
from gpuwatch.controller.context import ControllerContext
from gpuwatch.controller.round import step
from gpuwatch.guard import Limits, Rulebook
from gpuwatch.model.activity import Activity, State
from gpuwatch.model.cloud_notice import CloudNotice, NoticeKind
from gpuwatch.model.decision import DECISION_TAG, INTERRUPTIBLE_TAG
from gpuwatch.model.fleet import (
    DEFAULT_POOL,
    VERDICT_SCHEMA,
    CapacityType,
    Fleet,
    GpuVerdict,
    Node,
    NodeGroup,
    NodeReport,
    NodeState,
    NodeVerdict,
)
from gpuwatch.model.measurement import MetricQuery, MetricValue
from gpuwatch.model.money import Price
from gpuwatch.model.offers import PriceKey
from gpuwatch.model.stops import StopAnswer
from gpuwatch.policies import PoolRules
from gpuwatch.policies.idle_settings import IdleRules, resolve_rules
from gpuwatch.policies.schedule import Window
from gpuwatch.policies.spot.batch import Useful
from gpuwatch.policies.spot.mix import MixRules
from gpuwatch.policies.spot.settings import OfferRules
from gpuwatch.runtime.clock import ManualClock
from gpuwatch.simulate.memory_ledger import InMemoryLedger
from gpuwatch.simulate.spot.recording import STEP_SECONDS, Recording
from gpuwatch.simulate.spot.sums import Played, Sums, Terms

BEGINS = datetime(2026, 1, 5, tzinfo=UTC)
_TYPE, _SURE = "gpu", "on demand"
_COMPACT_MINUTES = 1440


def play_live(
    recording: Recording, wanted: int, rules: MixRules, terms: Terms, name: str, limits: Limits | None = None
) -> Played:
    """One policy over the whole recording, decided by the controller; None: limits that never count."""
    clock = ManualClock(wall=BEGINS)
    market = Market(recording=recording, terms=terms, clock=clock)
    ledger = InMemoryLedger(name)
    parts = ControllerContext(
        clock=clock,
        cloud=market,
        signals=market,
        ledger=ledger,
        rules=rulebook(recording, wanted, rules, limits or no_limits(wanted)),
        prices=market.price,
    )
    sums = Sums(recording, wanted, terms)
    for minute in range(recording.minutes):
        market.minute = minute
        market.failed = 0
        sums.interruptions += market.take()
        step(parts)
        sums.count(minute, market.failed, market.usd(), market.on_demand(), market.working())
        clock.advance(float(STEP_SECONDS))
        if minute % _COMPACT_MINUTES == 0:
            ledger.compact(clock.now())
            market.forget()
    return sums.play_sums(name)


def rulebook(recording: Recording, wanted: int, mix: MixRules, limits: Limits) -> Rulebook:
    """One pool with an offer for each of the recording's, and one on demand."""
    offers = {
        name: OfferRules(capacity="spot", template="spot", instance_type=_TYPE, zone=name)
        for name in sorted(recording.nodes)
    }
    offers[_SURE] = OfferRules(capacity="on_demand", template="sure", instance_type=_TYPE, zone=_SURE)
    pool = PoolRules(
        profile="cautious",
        offers=offers,
        capacity=mix,
        interruptible="any",
        warm_up=60.0,
        idle=resolve_rules(IdleRules(action="terminate"), "cautious"),
        schedule={"always": Window(min_nodes=wanted)},
    )
    return Rulebook(pools={DEFAULT_POOL: pool}, limits=limits, enforce=True)


def no_limits(wanted: int) -> Limits:
    """Limits that never count."""
    most = 100 * max(1, wanted)
    return Limits(
        max_additions_per_round=most,
        max_additions_per_hour=most,
        max_stops_per_round=most,
        max_stops_per_hour=most,
        max_stops_per_hour_ratio=1.0,
    )


@dataclass(slots=True)
class Market:
    """The cloud, and the agents on its machines."""

    recording: Recording
    terms: Terms
    clock: ManualClock
    minute: int = 0
    failed: int = 0  # launches of this minute
    _nodes: dict[str, Node] = field(default_factory=dict)
    _launched: dict[str, int] = field(default_factory=dict)  # the minute of each
    _ends: dict[str, int] = field(default_factory=dict)  # of those with a notice
    _gone: dict[str, Node] = field(default_factory=dict)

    def take(self) -> int:
        """End what has reached its end, and give notices; the count of those ended."""
        over = [node_id for node_id, end in self._ends.items() if end <= self.minute]
        for node_id in over:
            self._end(node_id)
        last = self.recording.minutes - 1
        for name, room in self.recording.nodes.items():
            kept = [each for each in self._nodes_of(name) if each not in self._ends]
            for node_id in kept[: max(0, len(kept) - room[min(self.minute + self.terms.notice_minutes, last)])]:
                self._ends[node_id] = self.minute + self.terms.notice_minutes
        return len(over)

    def working(self) -> int:
        """How many nodes have booted, with or without a notice."""
        return sum(self._has_booted(node_id) for node_id in self._nodes)

    def useful(self, begin: datetime, until: datetime) -> list[Useful]:
        """The work of a minute, node by node."""
        seconds = (until - begin).total_seconds()
        return [
            Useful(begin=begin, until=until, node_id=node_id, seconds=seconds)
            for node_id in self._nodes
            if self._has_booted(node_id)
        ]

    @property
    def launches(self) -> int:
        """How many machines came."""
        return len(self._launched)

    def on_demand(self) -> int:
        """How many nodes are on demand."""
        return len(self._nodes_of(_SURE))

    def usd(self) -> list[float]:
        """What each spot node costs an hour now."""
        return [self._spot_usd(node.zone) for node in self._nodes.values() if node.zone != _SURE]

    def forget(self) -> None:
        """Forget what ended, as clouds do after a while."""
        self._gone.clear()

    def price(self, key: PriceKey, now: datetime) -> Price | None:
        """What an hour of a machine costs now."""
        spot = key.capacity_type is CapacityType.SPOT and key.zone in self.recording.nodes
        usd = self._spot_usd(key.zone) if spot else self.terms.on_demand_usd_per_hour
        return Price(usd_per_hour=Decimal(repr(usd)), as_of=now.date(), source="the recording")

    def nodes(self) -> Sequence[Node]:
        """All machines that run or come up."""
        return tuple(map(self._shown_node, self._nodes))

    def node(self, node_id: str) -> Node | None:
        """Return one machine of the market."""
        if node_id in self._gone:
            return self._gone[node_id]
        if node_id not in self._nodes:
            raise NotFoundError(f"there is no machine {node_id}")
        return self._shown_node(node_id)

    def launch(self, arguments: Mapping[str, str], key: str) -> str:
        """A machine of the offer, where the recording has room for it."""
        name, node_id = arguments["offer"], f"i-{key}"
        if name != _SURE and len(self._nodes_of(name)) >= self.recording.nodes[name][self.minute]:
            self.failed += 1
            raise InsufficientCapacityError("no machine is left", code="InsufficientInstanceCapacity")
        self._launched[node_id] = self.minute
        self._nodes[node_id] = Node(
            id=node_id,
            name=node_id,
            pool=DEFAULT_POOL,
            state=NodeState.PENDING,
            instance_type=_TYPE,
            gpu_count=1,
            region="r",
            zone=name,
            capacity_type=CapacityType.ON_DEMAND if name == _SURE else CapacityType.SPOT,
            launched_at=self.clock.now(),
            enrolled=True,
            tags={DECISION_TAG: key, INTERRUPTIBLE_TAG: "true"},
        )
        return node_id

    def find(self, key: str, arguments: Mapping[str, str] | None = None) -> Node | None:
        """The machine of that key."""
        del arguments
        node_id = f"i-{key}"
        return self._shown_node(node_id) if node_id in self._nodes else self._gone.get(node_id)

    def terminate(self, node_id: str, key: str, *, permit: Permit, group: str | None = None) -> None:
        """Terminate a machine at once."""
        del key, group
        permit.check()
        if node_id in self._nodes:
            self._end(node_id)

    def tag(self, node_id: str, tags: Mapping[str, str], key: str) -> None:
        """Set tags of a machine."""
        del key
        node = self._nodes[node_id]
        self._nodes[node_id] = replace(node, tags={**node.tags, **tags})

    def groups(self) -> Sequence[NodeGroup]:
        """Return no groups: a market sells machines alone."""
        return ()

    def leftovers(self) -> Sequence[Leftover]:
        """Return no leftovers: a market sells machines alone."""
        return ()

    def group(self, group_id: str) -> NodeGroup:
        """The played cloud has no groups."""
        raise NotFoundError(f"there is no group {group_id}")

    def stop(self, node_id: str, key: str, *, permit: Permit) -> StopAnswer:
        """Refuse a stop: the pool terminates its machines."""
        raise self._refuse_call("stop", node_id, key, permit)

    def start(self, node_id: str, key: str) -> None:
        """No machine is ever stopped."""
        raise self._refuse_call("start", node_id, key)

    def grow(self, group_id: str, size: int, key: str) -> None:
        """There is no group."""
        raise self._refuse_call("grow", group_id, size, key)

    def shrink(self, group_id: str, size: int, key: str) -> None:
        """There is no group."""
        raise self._refuse_call("shrink", group_id, size, key)

    def protect(self, node_id: str, group_id: str, key: str, *, on: bool) -> None:
        """There is no group."""
        raise self._refuse_call("protect", node_id, group_id, key, on)

    def _refuse_call(self, *call: object) -> NotImplementedError:
        return NotImplementedError(f"no such call comes up in a play: {call}")

    def observe(self, nodes: Sequence[Node]) -> Fleet:
        """What the agents say."""
        asked = tuple(replace(node, signal=self.confirm(node)) for node in nodes)
        return Fleet(observed_at=self.clock.now(), nodes=asked)

    def confirm(self, node: Node) -> NodeReport:
        """One agent's word: it works, and what its cloud says."""
        if node.id not in self._nodes or not self._has_booted(node.id):
            return NodeReport(failure="its agent does not answer")
        now, ends = self.clock.now(), self._ends.get(node.id)
        activity = Activity(state=State.BUSY, since=node.launched_at, held_seconds=0.0)
        verdict = NodeVerdict(
            schema=VERDICT_SCHEMA,
            node_id=node.id,
            agent_version="played",
            at=now,
            age_seconds=0.5,
            interval_seconds=1.0,
            activity=activity,
            gpus=(GpuVerdict(uuid=f"GPU-{node.id}", index=0, activity=activity),),
            cloud_notices=() if ends is None else (self._notice(ends),),
        )
        return NodeReport(verdict=verdict)

    def measure(self, fleet: Fleet, queries: Sequence[MetricQuery]) -> tuple[MetricValue, ...]:
        """Return no measurements: nothing is asked."""
        del fleet, queries
        return ()

    def _nodes_of(self, name: str) -> list[str]:
        return [node_id for node_id, node in self._nodes.items() if node.zone == name]

    def _spot_usd(self, name: str) -> float:
        prices = self.recording.usd_per_hour
        flat = self.terms.on_demand_usd_per_hour * self.terms.spot_price_ratio
        return flat if prices is None else prices[name][self.minute]

    def _has_booted(self, node_id: str) -> bool:
        return self.minute - self._launched[node_id] >= self.terms.boot_minutes

    def _shown_node(self, node_id: str) -> Node:
        node, ends = self._nodes[node_id], self._ends.get(node_id)
        state = NodeState.RUNNING if self._has_booted(node_id) else node.state
        return replace(node, state=state, announced=() if ends is None else (self._notice(ends),))

    def _end(self, node_id: str) -> None:
        self._ends.pop(node_id, None)
        self._gone[node_id] = replace(self._nodes.pop(node_id), state=NodeState.TERMINATED)

    def _notice(self, ends: int) -> CloudNotice:
        at = BEGINS + timedelta(seconds=float(ends * STEP_SECONDS))
        seen = at - timedelta(seconds=float(self.terms.notice_minutes * STEP_SECONDS))
        return CloudNotice(kind=NoticeKind.SPOT_INTERRUPTION, action="terminate", deadline=at, seen_at=seen)
