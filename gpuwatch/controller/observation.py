"""One whole look at the fleet, in stages: a list that is taken from top to bottom, each with why it stands there.

What is slow is asked before the agents, so that nothing makes old what they say; what is judged by the time of the
round comes after them.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from operator import attrgetter

from gpuwatch.clouds.silence import of_cloud
from gpuwatch.controller import interruptions
from gpuwatch.controller.context import ControllerContext
from gpuwatch.controller.isolation import judge_apart
from gpuwatch.controller.observe.believable import Listing
from gpuwatch.controller.observe.ended import ended_machines
from gpuwatch.controller.observe.kubernetes import with_cluster
from gpuwatch.controller.observe.own_hosts import with_own_hosts
from gpuwatch.controller.observe.places import with_places
from gpuwatch.controller.observe.short_groups import with_short
from gpuwatch.controller.offers_past import with_past
from gpuwatch.controller.sensors import with_unproven
from gpuwatch.controller.slurm.join import Shown, show_cluster, with_slurm
from gpuwatch.controller.slurm.sleepers import with_sleepers
from gpuwatch.controller.startup_pause import with_foreign
from gpuwatch.controller.undone import with_undone
from gpuwatch.model.decision import LedgerView, Observation
from gpuwatch.model.fleet import Fleet, NodeState
from gpuwatch.model.measurement import MetricQuery, MetricValue
from gpuwatch.model.money import Price
from gpuwatch.model.sight import BLIND_SECONDS
from gpuwatch.money.prices.price_book import of_fleet
from gpuwatch.policies import PoolRules, replacement, scaling
from gpuwatch.policies.idle_timeout import demand
from gpuwatch.policies.lost_gpus import judge_fleet
from gpuwatch.policies.machines import told_by_records

log = logging.getLogger(__name__)

_POOL = attrgetter("pool")


@dataclass(slots=True, kw_only=True)
class _Look:
    """What the stages have seen so far."""

    parts: ControllerContext
    now: datetime
    fleet: Fleet
    rules: Mapping[str, PoolRules]
    measures: tuple[MetricValue, ...] = ()
    in_slurm: Shown | None = None
    ledger: LedgerView = field(default_factory=LedgerView)
    watched: Mapping[str, float] = field(default_factory=dict)
    prices: Mapping[str, Price] = field(default_factory=dict)


def observe(parts: ControllerContext) -> Observation:
    """Return the fleet with its signals, what scaling looks at, prices, the ledger, and budgets, at one moment.

    Raises:
        CloudError: the cloud gave no whole picture.

    """
    look = _begin(parts)
    for stage in _ASKING:
        stage(look)
    asked = Observation(now=look.now, fleet=look.fleet, measures=look.measures)
    return judge_apart(asked, lambda each: _put_together(look, each), parts.memory.sick["look"])


def _put_together(look: _Look, asked: Observation) -> Observation:
    """What follows from what was asked, or from a part of it: nobody outside is asked about it again."""
    look = replace(look, fleet=asked.fleet, measures=asked.measures)
    for stage in _JOINING:
        stage(look)
    return _observation(look)


def _begin(parts: ControllerContext) -> _Look:
    """List the machines and groups: everything else is asked about them and their pools."""
    listing = Listing()
    nodes, groups = listing.nodes(parts.cloud.nodes()), listing.groups(parts.cloud.groups())
    _note_doubts(parts, listing)
    outlook, named = of_cloud(parts.cloud), tuple(sorted(parts.rules.growing))
    fleet = Fleet(
        observed_at=parts.clock.now(),
        nodes=nodes,
        groups=groups,
        named=named,
        places=tuple(sorted(outlook.places)),
        silent=outlook.silent,
    )
    pools = {*map(_POOL, nodes), *map(_POOL, groups), *named}
    rules = {pool: parts.rules.pool(pool) for pool in sorted(pools)}
    return _Look(parts=parts, now=fleet.observed_at, fleet=fleet, rules=rules)


def _note_doubts(parts: ControllerContext, listing: Listing) -> None:
    """Say in the log once of each machine and group why its cloud is not believed."""
    told = parts.memory.unbelieved
    for name, why in listing.doubts.items():
        if told.get(name) != why:
            log.warning("%s is left alone, for its cloud says of it what cannot be: %s", name, why)
    told.clear()
    told |= listing.doubts


def _measure_in_prometheus(look: _Look) -> None:
    expressions = [query for query in _queries(look.rules) if query.expression is not None]
    look.measures += look.parts.signals.measure(look.fleet, expressions) if expressions else ()


def _ask_slurm(look: _Look) -> None:
    look.in_slurm = show_cluster(look.parts.slurm)


def _ask_agents(look: _Look) -> None:
    listed = look.fleet
    look.fleet = replace(
        look.parts.signals.observe(listed.nodes),
        groups=listed.groups,
        named=listed.named,
        places=listed.places,
        silent=listed.silent,
    )


def _judge_own_hosts(look: _Look) -> None:
    look.fleet = with_own_hosts(look.fleet, look.parts.memory.own_gpus)


def _ask_cluster(look: _Look) -> None:
    look.fleet = replace(look.fleet, cluster=None if look.parts.cluster is None else look.parts.cluster.view())


def _join_cluster(look: _Look) -> None:
    look.fleet = with_cluster(look.fleet, look.fleet.cluster)


def _join_slurm(look: _Look) -> None:
    look.fleet = with_slurm(look.fleet, look.in_slurm)


def _judge_lost_gpus(look: _Look) -> None:
    look.fleet = judge_fleet(look.fleet, {pool: rules.health for pool, rules in look.rules.items()})


def _measure_by_agents(look: _Look) -> None:
    queries = [query for query in _queries(look.rules) if query.expression is None]
    look.measures += look.parts.signals.measure(look.fleet, queries) if queries else ()


def _set_the_time(look: _Look) -> None:
    look.now = look.parts.clock.now()


def _watch_undated(look: _Look) -> None:
    """Count for how long machines were seen to run of which their cloud names no launch time."""
    known, now = look.parts.memory.undated, look.parts.clock.uptime()
    longest = max(BLIND_SECONDS, 3 * look.parts.interval_seconds)
    running = [node.id for node in look.fleet.nodes if node.launched_at is None and node.state is NodeState.RUNNING]
    for node_id in known.keys() - set(running):
        del known[node_id]
    for node_id in running:
        since, last = known.get(node_id, (now, now))
        known[node_id] = (since if now - last <= longest else now, now)
    look.watched = {node_id: now - known[node_id][0] for node_id in running}


def _price(look: _Look) -> None:
    parts, offers = look.parts, [each for rule in look.rules.values() for each in rule.offers.values()]
    launches = [(each.launch.instance_type, each.launch.region, each.launch.cloud) for each in look.rules.values()]
    launches += [(each.instance_type, each.region, each.cloud) for each in offers]
    look.prices = of_fleet(
        parts.prices,
        look.fleet,
        launches,
        look.now,
        [each.price_key for each in offers],
        named=parts.priced_singly(look.now),
    )


def _read_ledger(look: _Look) -> None:
    parts = look.parts
    past = parts.past(look.now, recent=_memory(parts, look.rules), interval_seconds=parts.interval_seconds)
    look.ledger = with_foreign(parts, past, look.fleet.nodes)
    launched = parts.ledger.identity.launched_machines(told_by_records(look.fleet.nodes, look.ledger))
    if launched != look.ledger.launched:
        look.ledger = replace(look.ledger, launched=launched)


def _obey_keeps(look: _Look) -> None:
    obey, kept = look.ledger.with_orders, {each.node_id for each in look.ledger.snoozes}
    if kept:  # orders may also be about pods of a node
        nodes = [obey(node) if node.id in kept or node.kubernetes else node for node in look.fleet.nodes]
        look.fleet = replace(look.fleet, nodes=tuple(nodes))


def _note_ended(look: _Look) -> None:
    look.fleet = replace(look.fleet, ended=ended_machines(look.parts.cloud, look.fleet, look.ledger))


def _note_interruptions(look: _Look) -> None:
    look.fleet = interruptions.with_notices(look.fleet, look.ledger, look.now)


def _note_short_groups(look: _Look) -> None:
    memory, monotonic = look.parts.memory, look.parts.clock.monotonic()
    groups = with_short(look.fleet.groups, memory.short, look.ledger, look.now, monotonic)
    look.fleet = replace(look.fleet, groups=groups)


def _find_places(look: _Look) -> None:
    cluster = look.parts.cluster
    if cluster is not None and look.fleet.cluster is not None:
        look.fleet = with_places(look.fleet, cluster.rooms(), look.ledger, look.rules)


_ASKING: Sequence[Callable[[_Look], None]] = (
    _measure_in_prometheus,  # a slow server must not make old what agents say
    _ask_slurm,  # so must a slow Slurm not
    _ask_agents,
    _ask_cluster,  # its view is watched: it costs no time, and is newer than what agents said
)
# What one part makes impossible here is tried again without that part (controller/isolation.py).
_JOINING: Sequence[Callable[[_Look], None]] = (
    _judge_own_hosts,  # no cloud says of them what their agents do not
    _join_cluster,
    _join_slurm,
    _judge_lost_gpus,
    _measure_by_agents,  # of what the agents have just said
    _set_the_time,  # of the round: all that follows is judged by it
    _watch_undated,
    _price,
    _read_ledger,  # after the agents, so that it holds what people have just ordered
    _obey_keeps,
    _note_ended,  # the ledger says of which machines that is to be known
    _note_interruptions,  # a node that has ended has no notice any more
    _note_short_groups,  # by the ledger's growths
    _find_places,  # which nodes go is known by notices, of clouds and our own
)


def _observation(look: _Look) -> Observation:
    """Put together what was seen; budgets and deadlines are judged by all of it."""
    parts = look.parts
    seen = Observation(
        now=look.now,
        fleet=look.fleet,
        ledger=look.ledger,
        measures=look.measures,
        prices=look.prices,
        watched=look.watched,
        interval_seconds=parts.interval_seconds,
    )
    seen = with_sleepers(with_past(parts, seen, look.rules), look.in_slurm, look.rules)
    seen = with_unproven(parts, with_undone(parts, seen))
    return replace(seen, budgets=parts.budgets(seen), batches=parts.batches(seen))


def _queries(rules: Mapping[str, PoolRules]) -> list[MetricQuery]:
    """Return what scaling and learned waits want measured."""
    queries = [query for pool in rules for query in scaling.queries(pool, rules[pool].scaling)]
    return queries + [query for pool in rules for query in demand.queries(pool, rules[pool].idle)]


def _memory(parts: ControllerContext, pools: Mapping[str, PoolRules]) -> timedelta:
    """Return how far back decisions look: an hour for the limits, and as long as any cooldown or window is."""
    waits = [
        3600.0,
        parts.rules.limits.failure_cooldown,
        parts.rules.limits.refusal_cooldown,
        parts.rules.limits.capacity_cooldown,
        parts.rules.limits.mass_idleness_freeze,
    ]
    for rules in pools.values():
        waits += [rules.scaling.cooldown_out, rules.scaling.cooldown_in, rules.scaling.stabilisation]
        waits += [rules.kubernetes.drain_rest + 2 * rules.kubernetes.drain_timeout, rules.kubernetes.pods.rest]
        waits += [] if parts.slurm is None else [rules.health.drain_rest]
        waits += [replacement.WINDOW_SECONDS] if rules.health.action == "replace" else []
    return timedelta(seconds=max(waits))
