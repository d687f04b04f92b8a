"""Metrics of the fleet as the last round saw it: machines, their use and their price."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal

from gpuwatch.controller.metrics.state import ROUND, MetricsState, Series, Value, gauge, info
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.money.accounting.scope import uncounted_nodes
from gpuwatch.money.accounting.useful_time import OF_NO_USE, usd_by_use
from gpuwatch.money.blocked.blocked import HOURS_A_DAY, Money

_OFF = (NodeState.STOPPING, NodeState.STOPPED)


def _of_nodes(labels: Callable[[Node], tuple[str, ...]], value: Callable[[Node], float | None]) -> Series:
    """One series a node, where there is a value."""

    def series(state: MetricsState) -> Iterator[Value]:
        for node in () if state.observation is None else state.observation.fleet.nodes:
            number = value(node)
            if number is not None:
                yield labels(node), number

    return series


def _sum_nodes(labels: Callable[[Node], tuple[str, ...] | None], value: Callable[[Node], float]) -> Series:
    """Sums over the nodes that have these labels."""

    def series(state: MetricsState) -> Iterator[Value]:
        sums: dict[tuple[str, ...], float] = {}
        for node in () if state.observation is None else state.observation.fleet.nodes:
            key = labels(node)
            if key is not None:
                sums[key] = sums.get(key, 0.0) + value(node)
        yield from sorted(sums.items())

    return series


def _by_activity(node: Node) -> tuple[str, str] | None:
    return (node.pool, node.activity.state.value) if node.state is NodeState.RUNNING else None


def _facts(node: Node) -> tuple[str, ...]:
    """The labels of a node's info."""
    known = (node.name, node.pool, node.instance_type, node.region, node.zone, node.capacity_type.value)
    return (node.id, *known, node.owner or "", node.account or "", str(node.enrolled).lower(), node.cloud)


def _held_seconds(node: Node) -> float | None:
    running = node.state is NodeState.RUNNING and node.activity.state is not State.UNKNOWN
    return node.activity.held_seconds if running else None


def _verdict_age(node: Node) -> float | None:
    return None if node.verdict is None else node.verdict.age_seconds


def _billed_stops(node: Node) -> tuple[str] | None:
    return (node.pool,) if node.billed_though_stopped else None


def _prices(state: MetricsState) -> Iterator[Value]:
    seen = state.observation
    for node in () if seen is None else seen.fleet.nodes:
        price = None if seen is None or node.state is not NodeState.RUNNING else seen.price(node)
        if price is not None:
            yield (node.id,), float(price.usd_per_hour)


def _priced_uses(state: MetricsState) -> Iterator[tuple[Node, Mapping[str, Decimal]]]:
    """The price of each machine that counts, by what its GPUs do."""
    seen = state.observation
    for node, uses in state.uses:
        price = None if seen is None else seen.price(node)
        if price is not None:
            yield node, usd_by_use(price.usd_per_hour, uses)


def _wasted_values(state: MetricsState) -> Iterator[Value]:
    for node, by_use in _priced_uses(state):
        wasted = sum(usd for use, usd in by_use.items() if use in OF_NO_USE)
        if wasted:
            yield (node.id,), float(wasted)


def _spending(state: MetricsState) -> Iterator[Value]:
    sums: dict[tuple[str, ...], Decimal] = {}
    for node, by_use in _priced_uses(state):
        for use, usd in by_use.items():
            sums[node.pool, use] = sums.get((node.pool, use), Decimal(0)) + usd
    yield from ((key, float(usd)) for key, usd in sorted(sums.items()))


def _running_gpus(state: MetricsState) -> Iterator[Value]:
    counts: Counter[tuple[str, ...]] = Counter()
    for node, uses in state.uses:
        if node.state is NodeState.RUNNING:
            counts.update((node.pool, use) for use in uses[: node.known_gpus])
    yield from ((key, float(count)) for key, count in sorted(counts.items()))


def _foreign_values(state: MetricsState) -> Iterator[Value]:
    """What machines cost that are not ours, by pool."""
    seen, sums = state.observation, dict[tuple[str, ...], Decimal]()
    left_out = frozenset[str]() if seen is None else uncounted_nodes(seen.fleet)
    for node in () if seen is None or not left_out else seen.fleet.nodes:
        running = node.id in left_out and node.state is NodeState.RUNNING
        price = seen.price(node) if seen is not None and running else None
        if price is not None:
            sums[node.pool,] = sums.get((node.pool,), Decimal(0)) + price.usd_per_hour
    yield from ((key, float(usd)) for key, usd in sorted(sums.items()))


def _blocked_series(value: Callable[[Money], float | None]) -> Series:
    """By pool and by what holds it back, where there is a value; only what has been without use for long enough."""

    def series(state: MetricsState) -> Iterator[Value]:
        found = state.blocked
        groups = () if found is None else found.groups
        values = [((each.pool, group.reason.value), value(each.money)) for group in groups for each in group.pools]
        yield from sorted((labels, number) for labels, number in values if number is not None)

    return series


def _blocked_usd(money: Money) -> float | None:
    """By the hour; None where no machine has a known price."""
    return None if money.unpriced == money.nodes else float(money.usd_per_day / HOURS_A_DAY)


def _notices(state: MetricsState) -> Iterator[Value]:
    seen = state.observation
    for notice in () if seen is None else seen.ledger.notices:
        yield (notice.node_id,), notice.at.timestamp()


def _coverage(state: MetricsState) -> Iterator[Value]:
    seen = state.observation
    for pool in () if seen is None else seen.fleet.pools:
        roster = seen.fleet.roster(pool) if seen is not None else None
        if roster is not None and roster.members:
            yield (pool,), roster.known / len(roster.members)


FAMILIES = (
    gauge(
        "fleet_nodes",
        ("pool", "state"),
        "Machines by the state that the cloud shows.",
        ROUND,
        _sum_nodes(lambda node: (node.pool, node.state.value), lambda _: 1.0),
    ),
    gauge(
        "fleet_stopped_billed_nodes",
        ("pool",),
        "Stopped machines that their cloud still bills by the hour.",
        ROUND,
        _sum_nodes(_billed_stops, lambda _: 1.0),
    ),
    gauge(
        "fleet_running_nodes",
        ("pool", "activity"),
        "Running machines by the verdict of their agents.",
        ROUND,
        _sum_nodes(_by_activity, lambda _: 1.0),
    ),
    gauge(
        "fleet_running_gpus",
        ("pool", "activity"),
        "GPUs of running machines that count (`cost.scope`), by what each does, as it is billed.",
        ROUND,
        _running_gpus,
    ),
    gauge(
        "fleet_usd_per_hour",
        ("pool", "activity"),
        "What machines with a known price cost now, by what their GPUs do; stopped ones that are billed are unknown.",
        ROUND,
        _spending,
    ),
    gauge(
        "fleet_foreign_usd_per_hour",
        ("pool",),
        "What running machines cost that are not enrolled in this fleet (`cost.scope`): it is in no other sum.",
        ROUND,
        _foreign_values,
    ),
    gauge(
        "fleet_blocked_usd_per_hour",
        ("pool", "reason"),
        "What machines without use cost because a rule forbids stopping them, by the first obstacle (docs/blocked.md); "
        "where their price is known.",
        ROUND,
        _blocked_series(_blocked_usd),
    ),
    gauge(
        "fleet_blocked_nodes",
        ("pool", "reason"),
        "How many these machines are, also those without a known price.",
        ROUND,
        _blocked_series(lambda money: float(money.nodes)),
    ),
    gauge(
        "fleet_coverage_ratio",
        ("pool",),
        "Part of a pool's enrolled, running machines of which anything is known.",
        ROUND,
        _coverage,
    ),
    info(
        "fleet_node_info",
        (
            "node",
            "name",
            "pool",
            "instance_type",
            "region",
            "zone",
            "capacity_type",
            "owner",
            "account",
            "enrolled",
            "cloud",
        ),
        "Who a machine is.",
        ROUND,
        _of_nodes(_facts, lambda _: 1.0),
    ),
    info(
        "fleet_node_activity_info",
        ("node", "pool", "activity"),
        "The verdict of a running machine's agent.",
        ROUND,
        _of_nodes(
            lambda node: (node.id, node.pool, node.activity.state.value),
            lambda node: 1.0 if node.state is NodeState.RUNNING else None,
        ),
    ),
    gauge(
        "fleet_node_activity_duration_seconds",
        ("node",),
        "For how long that has held, on the host's own clock; none while unknown.",
        ROUND,
        _of_nodes(lambda node: (node.id,), _held_seconds),
    ),
    gauge(
        "fleet_node_verdict_age_seconds",
        ("node",),
        "How old the agent's verdict was when it was asked for.",
        ROUND,
        _of_nodes(lambda node: (node.id,), _verdict_age),
    ),
    gauge(
        "fleet_node_usd_per_hour", ("node",), "What a running machine costs, where its price is known.", ROUND, _prices
    ),
    gauge(
        "fleet_node_wasted_usd_per_hour",
        ("node",),
        "What of that is for GPUs that are idle, parked, stalled or down; none where nothing is, or it is not ours.",
        ROUND,
        _wasted_values,
    ),
    gauge(
        "fleet_node_notice_timestamp_seconds",
        ("node",),
        "When a machine was given notice that is in force.",
        "ledger",
        _notices,
    ),
)
