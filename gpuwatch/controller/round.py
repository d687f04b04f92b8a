"""One round: settle · observe · propose · resolve · review · intend · confirm · act. `step` is the only implementation.

The live controller, `plan`, the demo and every replay call it; `plan` stops before the intent. It keeps nothing between
rounds: what it must know of the past is in the ledger.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from operator import attrgetter

from gpuwatch import guard, policies
from gpuwatch.clouds import CloudError
from gpuwatch.clouds.silence import of_cloud
from gpuwatch.controller import interruptions
from gpuwatch.controller.act import execute
from gpuwatch.controller.context import Act, ControllerContext, Round
from gpuwatch.controller.observe.ended import ended
from gpuwatch.controller.observe.kubernetes import with_cluster
from gpuwatch.controller.observe.short_groups import with_short
from gpuwatch.controller.offers_past import offers_past
from gpuwatch.controller.settle import reconcile
from gpuwatch.controller.slurm.join import shown, with_slurm
from gpuwatch.controller.startup_pause import begin, cautious, decisions_on, with_foreign
from gpuwatch.controller.target_workload import remember_workloads, steps_for_workloads
from gpuwatch.guard import Rulebook
from gpuwatch.model.decision import Decision, Intent, Observation, Proposal, Review, Step, Verb
from gpuwatch.model.fleet import Fleet, Node
from gpuwatch.model.looked_again import carried_on
from gpuwatch.model.money import price_key
from gpuwatch.money.prices.price_book import of_fleet
from gpuwatch.policies import replacement, scaling
from gpuwatch.policies.idle_timeout import demand
from gpuwatch.policies.idle_timeout.gap_history import GapHistory
from gpuwatch.policies.idle_timeout.timeouts import timed
from gpuwatch.policies.step_cache import StepCache

__all__ = ["Act", "ControllerContext", "Round", "decide", "explained", "observe", "step"]

_POOL = attrgetter("pool")


def step(parts: ControllerContext, *, act: bool = True) -> Round:
    """One round. With `act=False` (plan) it ends before anything is written down."""
    if act:
        begin(parts)
    settled = tuple(reconcile(parts)) if act else ()
    try:
        observation = cautious(parts, observe(parts), act=act)
        observation, gaps = _timed(parts, observation)
    except CloudError as error:
        blind = Observation(now=parts.clock.now(), fleet=Fleet(observed_at=parts.clock.now(), nodes=()))
        return Round(observation=blind, settled=settled, trouble=f"The cloud gave no whole picture: {error}")
    proposals, decisions = decide(observation, parts.rules, parts.memory.steps)
    workloads = steps_for_workloads(parts, observation)
    reviews = guard.review(observation, decisions, parts.rules, workloads)
    acts: tuple[Act, ...] = ()
    records: tuple[Intent, ...] = ()
    if act:
        remember_workloads(parts, workloads)
        round_id = parts.ledger.record_round(observation, proposals, decisions, reviews, parts.rules, gaps=gaps)
        records = interruptions.record(parts, observation, round_id)
        acts = tuple(execute(parts, observation, reviews, round_id, decisions))
    return Round(
        observation=observation,
        proposals=proposals,
        decisions=decisions,
        workloads=workloads,
        reviews=reviews,
        settled=settled,
        acts=acts,
        records=records,
    )


def observe(parts: ControllerContext) -> Observation:
    """The fleet with its signals, what scaling looks at, prices, the ledger, and budgets, at one moment."""
    nodes, groups, facts = tuple(parts.cloud.nodes()), tuple(parts.cloud.groups()), parts.memory.facts
    outlook = of_cloud(parts.cloud)
    named = tuple(sorted(parts.rules.growing))
    pools = {*facts.of(_POOL, nodes), *map(_POOL, groups), *named}
    rules = {pool: parts.rules.pool(pool) for pool in sorted(pools)}
    queries = [query for pool in rules for query in scaling.queries(pool, rules[pool].scaling)]
    queries += [query for pool in rules for query in demand.queries(pool, rules[pool].idle)]
    # The agents come last: a slow Prometheus, or cloud, must not make old what they say.
    expressions = [query for query in queries if query.expression is not None]
    listed = Fleet(observed_at=parts.clock.now(), nodes=nodes, groups=groups, named=named)
    measures = parts.signals.measure(listed, expressions) if expressions else ()
    in_slurm = shown(parts.slurm)
    fleet = replace(
        parts.signals.observe(nodes),
        groups=groups,
        named=named,
        places=tuple(sorted(outlook.places)),
        silent=outlook.silent,
    )
    fleet = with_cluster(fleet, None if parts.cluster is None else parts.cluster.view())
    fleet = with_slurm(fleet, in_slurm)
    from_agents = [query for query in queries if query.expression is None]
    measures += parts.signals.measure(fleet, from_agents) if from_agents else ()
    now = parts.clock.now()
    launches = [(each.launch.instance_type, each.launch.region, each.launch.cloud) for each in rules.values()]
    offers = [each for rule in rules.values() for each in rule.offers.values()]
    launches += [(each.instance_type, each.region, each.cloud) for each in offers]
    known = of_fleet(
        parts.prices,
        fleet,
        launches,
        now,
        [each.price_key for each in offers],
        hires=facts.of(price_key, fleet.nodes),
        named=parts.priced_singly(now),
    )
    past = parts.past(now, recent=_memory(parts, pools), interval_seconds=parts.interval_seconds)
    ledger = with_foreign(parts, past, facts.of(decisions_on, fleet.nodes))
    if ledger.snoozes:
        fleet = replace(fleet, nodes=tuple(map(ledger.kept, fleet.nodes)))
    fleet = interruptions.with_notices(replace(fleet, ended=ended(parts.cloud, fleet, ledger)), ledger, now, facts)
    groups = with_short(fleet.groups, parts.memory.short, ledger, now, parts.clock.monotonic())
    parts.memory.fleet = fleet = carried_on(parts.memory.fleet, replace(fleet, groups=groups))
    seen = Observation(
        now=now,
        fleet=fleet,
        ledger=ledger,
        measures=measures,
        prices=known,
        offers=offers_past(parts, fleet, ledger, [pool for pool, rule in rules.items() if rule.offers], now),
        interval_seconds=parts.interval_seconds,
    )
    return replace(seen, budgets=parts.budgets(seen), batches=parts.batches(seen))


def _timed(parts: ControllerContext, observation: Observation) -> tuple[Observation, dict[str, GapHistory]]:
    """The observation with what pools know of their restarts, queues and waits, and what is to be kept of that."""
    before = {pool: GapHistory() for pool in observation.fleet.pools} | parts.ledger.gaps()
    timings = {pool: timed(observation, pool, parts.rules.pool(pool), before[pool]) for pool in observation.fleet.pools}
    observation = replace(
        observation,
        restarts={pool: each.restarts for pool, each in timings.items()},
        queued={pool: each.queued for pool, each in timings.items() if each.queued is not None},
        fresh={pool: each.fresh for pool, each in timings.items() if each.fresh is not None},
        waits={node_id: wait for each in timings.values() for node_id, wait in each.waits.items()},
    )
    return observation, {pool: each.history for pool, each in timings.items() if each.history != before[pool]}


def _memory(parts: ControllerContext, pools: Iterable[str]) -> timedelta:
    """How far back decisions look: an hour for the limits, and as long as any cooldown or window is."""
    waits = [
        3600.0,
        parts.rules.limits.failure_cooldown,
        parts.rules.limits.refusal_cooldown,
        parts.rules.limits.capacity_cooldown,
        parts.rules.limits.mass_idleness_freeze,
    ]
    for pool in pools:
        rules = parts.rules.pool(pool).scaling
        waits += [rules.cooldown_out, rules.cooldown_in, rules.stabilisation]
        nodes = parts.rules.pool(pool).kubernetes
        waits += [nodes.drain_rest + 2 * nodes.drain_timeout, nodes.pods.rest]
        waits += [] if parts.slurm is None else [parts.rules.pool(pool).health.drain_rest]
        waits += [replacement.WINDOW_SECONDS] if parts.rules.pool(pool).health.action == "replace" else []
    return timedelta(seconds=max(waits))


def decide(
    observation: Observation, rulebook: Rulebook, cache: StepCache | None = None
) -> tuple[tuple[Proposal, ...], tuple[Decision, ...]]:
    """All proposals, and one decision for each pool that has nodes or groups."""
    proposals: list[Proposal] = []
    decisions: list[Decision] = []
    for pool in observation.fleet.pools:
        rules = rulebook.pool(pool)
        proposed = policies.propose(observation, pool, rules, doubt=rulebook.doubt(pool), cache=cache)
        proposals.extend(proposed)
        decisions.append(policies.resolve(observation, pool, proposed, rules))
    return tuple(proposals), tuple(decisions)


def explained(
    observation: Observation, decisions: tuple[Decision, ...], node: Node, rulebook: Rulebook
) -> tuple[Step, Review]:
    """A node's step in a round, and every guard rule's answer had it been a removal."""
    found = next(each for decision in decisions for each in decision.steps if each.node_id == node.id)
    verb = Verb.TERMINATE if rulebook.pool(node.pool).idle.action == "terminate" else Verb.STOP
    frozen = guard.burst(observation, node.pool, rulebook.limits)
    case = guard.case_of(replace(found, verb=verb), observation, node.pool, rulebook, frozen=frozen)
    return found, guard.judge(case)
