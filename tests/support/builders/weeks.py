"""Days of one cause of endless launches each, played through the controller: how many machines and actions it made."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from gpuwatch.clouds import CloudUnavailableError
from gpuwatch.guard import Limits
from gpuwatch.model.activity import State
from gpuwatch.model.decision import INTERRUPTIBLE_TAG
from gpuwatch.model.fleet import NodeState
from gpuwatch.policies import PoolRules
from gpuwatch.policies.launches import LaunchRules
from gpuwatch.policies.scaling import Metric, ScalingRules
from gpuwatch.policies.schedule import Window
from gpuwatch.policies.spot.mix import MixRules
from tests.support.builders.fleet import RULES, Desk, FakeFleet, a_node
from tests.support.builders.light_desk import LightDesk
from tests.support.builders.offers import OFFERS
from tests.support.fakes.failing_images import FailingImages, TakingMarket
from tests.support.fakes.neighbours import RandomNeighbour
from tests.support.fakes.spot_market import SpotMarket

QUEUE = Metric(signal="promql", expression="sum(jobs)", target=10.0, per_node=True)
_DAY_MINUTES = 1440


@dataclass(frozen=True, slots=True, kw_only=True)
class Week:
    """What came of it: machines launched and calls made on each day, and the most that ran at any round."""

    launched: tuple[int, ...]
    calls: tuple[int, ...]
    most: int
    stopped: int = 0  # machines that are left stopped at the end


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A cloud, the rules of its pools, and what changes from minute to minute."""

    cloud: Callable[[Desk], FakeFleet]
    rules: PoolRules
    pools: int = 1
    clouds: int = 1  # which the pools are in by turns
    wanted: int = 4  # in each pool
    surge: int = 0
    each_minute: Callable[[FakeFleet, int], None] = lambda _cloud, _minute: None


def play(cause: Cause, days: int, *, minutes: int = 1) -> Week:
    """So many days of rounds with the default limits."""
    desk = LightDesk(limits=Limits(), rules=cause.rules, interval=60.0 * minutes)
    clouds = [cause.cloud(desk) for _ in range(cause.clouds)]
    desk.fleet, desk.pools = clouds[0], {f"p{number}": cause.rules for number in range(cause.pools)}
    if len(clouds) > 1:
        desk.use_clouds({f"cloud-{number}": each for number, each in enumerate(clouds)})
        homes = [replace(cause.rules.launch, cloud=name) for name in desk.fleets]
        desk.pools = {
            pool: replace(cause.rules, launch=homes[number % len(homes)]) for number, pool in enumerate(desk.pools)
        }
    for pool in desk.pools:
        desk.fleet.numbers[(pool, "load")] = 10.0 * cause.wanted
    launched, calls, most = Counter[int](), Counter[int](), 0
    for minute in range(0, days * _DAY_MINUTES, minutes):
        for each in clouds:
            cause.each_minute(each, minute)
        machines, made = sum(len(each.nodes_) for each in clouds), sum(len(each.calls) for each in clouds)
        desk.round(60.0 * minutes)
        launched[minute // _DAY_MINUTES] += sum(len(each.nodes_) for each in clouds) - machines
        calls[minute // _DAY_MINUTES] += sum(len(each.calls) for each in clouds) - made
        most = max(most, _count(clouds, NodeState.RUNNING, NodeState.PENDING))
    return Week(
        launched=tuple(launched[day] for day in range(days)),
        calls=tuple(calls[day] for day in range(days)),
        most=most,
        stopped=_count(clouds, NodeState.STOPPED),
    )


def _count(clouds: Iterable[FakeFleet], *states: NodeState) -> int:
    """How many machines are in one of these states."""
    return sum(node.state in states for each in clouds for node in each.nodes_.values())


def an_image(
    minutes: float | None,
    then: NodeState = NodeState.STOPPED,
    *,
    state: State = State.IDLE,
    pools: int = 1,
    mute: bool = False,
    clouds: int = 1,
) -> Cause:
    """Machines of one template go so many minutes after they came; without minutes they stay.

    Of several clouds, the last one gives no answer in every other hour.
    """
    rules = replace(RULES, launch=LaunchRules(template="lt-1"), scaling=ScalingRules(metrics={"load": QUEUE}))

    made: list[FakeFleet] = []

    def cloud(desk: Desk) -> FakeFleet:
        made.append(FailingImages(clock=desk.clock, minutes=minutes, then=then, state=state, mute=mute))
        return made[-1]

    def each_minute(cloud: FakeFleet, minute: int) -> None:
        if clouds > 1 and cloud is made[-1]:
            silent = CloudUnavailableError("no answer") if minute // 60 % 2 else None
            cloud.fault = lambda _call, _node: silent

    return Cause(cloud=cloud, rules=rules, pools=pools, clouds=clouds, each_minute=each_minute)


def a_market(*, hours: float | None = None, taken_after: float | None = None, floor: bool = False) -> Cause:
    """Spot comes and goes every so many hours, or is taken so many minutes after it came."""
    rules = replace(RULES, offers=OFFERS, interruptible="any", warm_up=120.0)
    rules = replace(rules, capacity=MixRules(give_back_notice=60.0), idle=replace(rules.idle, action="terminate"))
    if floor:
        rules = replace(rules, schedule={"always": Window(min_nodes=4)})
    else:
        rules = replace(rules, scaling=ScalingRules(metrics={"load": QUEUE}))

    def cloud(desk: Desk) -> FakeFleet:
        tags = {INTERRUPTIBLE_TAG: "true"}
        if taken_after is None:
            return SpotMarket(clock=desk.clock, tags=tags)
        return TakingMarket(clock=desk.clock, tags=tags, minutes=taken_after)

    def each_minute(market: FakeFleet, minute: int) -> None:
        if hours is None or not isinstance(market, SpotMarket):
            return
        dry = int(minute / 60 / hours) % 2 == 0
        market.room = {"spot-a": 0, "spot-b": 0} if dry else {}
        for name in ("spot-a", "spot-b") if dry else ():
            market.take(name)

    return Cause(cloud=cloud, rules=rules, surge=rules.capacity.surge, each_minute=each_minute)


def stops_a_day(days: int, *, often: float, seed: int, minutes: int = 10) -> tuple[float, ...]:
    """How often gpuwatch stops, on each day, one machine that somebody starts at random times and never uses."""
    desk = LightDesk(limits=Limits(), rules=RULES, interval=60.0 * minutes)
    desk.fleet = cloud = RandomNeighbour(clock=desk.clock, seed=seed, often=often, protects=False)
    cloud.put(a_node("i-1"))
    found = list[float]()
    for _ in range(days):
        before = len(cloud.removed)
        for _ in range(_DAY_MINUTES // minutes):
            desk.round(60.0 * minutes)
        found.append(float(len(cloud.removed) - before))
    return tuple(found)
