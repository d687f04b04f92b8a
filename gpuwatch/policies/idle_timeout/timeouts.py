"""PURE: what each pool learns of its starts and gaps in a round, and the waits that follow.

Rules of what a round teaches, all of them:

1. A node that is seen idle has a gap since its agent says so, by the node's own clock. Idle for less long than its open
   gap, it was needed in between.
2. A node that works, or that runs again after it was reclaimed, was needed.
3. Of a node that is not known, nothing is learned; its gap waits until the node is seen.
4. A gap is lost if its node is not seen at all, or was stopped by somebody else.

With `fresh_timeout`, all waits are fixed until the pool has shown how it pauses. After that, the first pause of each
node has that wait, its notice included: other nodes' pauses say little of a new kind of work. The same holds for a
node if its notice is a question.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from operator import attrgetter

from gpuwatch.model.activity import State
from gpuwatch.model.decision import ADDITIONS, Observation, Status, Wait
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.model.measurement import Answers, Pauses, Restarts
from gpuwatch.policies import PoolRules, machines, schedule
from gpuwatch.policies.idle_settings import IdleRules
from gpuwatch.policies.idle_timeout import facts
from gpuwatch.policies.idle_timeout import gap_history as gaps
from gpuwatch.policies.idle_timeout.answers import answers_of, follow_answers, is_question
from gpuwatch.policies.idle_timeout.break_even import LONGEST, waiting_restarts
from gpuwatch.policies.idle_timeout.demand import demand_of, hints_of
from gpuwatch.policies.idle_timeout.gap_history import GapHistory
from gpuwatch.policies.idle_timeout.learned import waits as learned
from gpuwatch.policies.idle_timeout.node_wait import restart_of
from gpuwatch.policies.idle_timeout.restart_times import count_refusals, measured_restart, watch_starts

_ENROLLED = attrgetter("enrolled")
_SCARCE_FOR = timedelta(hours=1)
_AHEAD = 16.0  # restarts, in which a window's opening is a fact
_FIRST = "no pause of it was seen before"
_ASKED = "its notice is a question"
_SLACK_SECONDS = 30.0  # by which two rounds may differ on when a node turned idle


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One pool in one round: its restarts, for how long work has waited for it, answers, waits, and what it knows.

    `fresh` is None where its waits do not wait for more knowledge.
    """

    restarts: Restarts
    queued: float | None
    fresh: Pauses | None
    answers: Answers
    waits: Mapping[str, Wait]
    history: GapHistory


def time_round(observation: Observation, pool: str, rules: PoolRules, history: GapHistory) -> Timed:
    """Return the waits of a pool's nodes in this round."""
    at = observation.now.timestamp()
    nodes = observation.fleet.roster(pool).nodes
    ended = [done for done in observation.ledger.recent if done.pool == pool]
    starts = count_refusals(watch_starts(history.starts, at, filter(_ENROLLED, nodes)), ended)
    seconds, count = measured_restart(starts)
    restarts = Restarts(
        seconds=seconds,
        starts=count,
        failed=_failed_starts(observation, pool),
        asked=starts.asked,
        refused=starts.refused,
    )
    demand = demand_of(observation, pool, rules.idle, rules.scaling, rules.sizes(observation.fleet))
    since = history.queued_since
    since = since if demand is None else None if not demand else at if since is None else min(at, since)
    queued = at - since if demand and since is not None else None
    told = follow_answers(history.answers, observation, pool)
    history = replace(history, starts=starts, queued_since=since, answers=told)
    answers = answers_of(told, observation.now, nodes)
    seen = replace(observation, restarts={pool: restarts}, answers={pool: answers})
    waits, history = _waits(seen, pool, rules, history, queued)
    waiting = rules.idle.fresh_seconds is not None and not gaps.is_pool_known(history)
    fresh = history.pauses if waiting else None
    return Timed(restarts=restarts, queued=queued, fresh=fresh, answers=answers, waits=waits, history=history)


def _failed_starts(observation: Observation, pool: str) -> int:
    """How many starts and launches of the pool failed lately."""
    since = observation.now - _SCARCE_FOR
    return sum(
        done.pool == pool and done.verb in ADDITIONS and done.status is Status.FAILED and done.at > since
        for done in observation.ledger.recent
    )


def _waits(
    observation: Observation, pool: str, rules: PoolRules, history: GapHistory, queued: float | None
) -> tuple[Mapping[str, Wait], GapHistory]:
    """The waits of a pool's idle nodes, and its history after this round; no waits in a pool that does not learn them.

    The cheapest node's price decides what a restart costs. A pool at its floor is followed and has no waits.
    """
    if rules.idle.timeout != "learned":
        return {}, history
    nodes = observation.fleet.roster(pool).nodes if rules.idle.restart_usd else ()  # else no price matters
    prices = [price for node in nodes if (price := observation.price(node)) is not None]
    cheapest = min(prices, key=lambda price: price.usd_per_hour, default=None)
    restart = restart_of(observation, pool, rules.idle, cheapest)
    if restart is None:
        return {}, history
    at, news = observation.now.timestamp(), _news(observation, pool, rules, restart.seconds)
    followed = follow_round(history, observation, pool, restart.seconds, news, _waiting(observation, rules.idle))
    history = gaps.after_look(followed, at)
    fixed = rules.idle.fresh_seconds is not None and not gaps.is_pool_known(history)
    sizes = rules.sizes(observation.fleet)
    if fixed or machines.there(observation, pool, sizes) <= _floor(observation, pool, rules, restart.seconds):
        return {}, gaps.keep_nodes(history, at)
    soon = queued is not None and queued < restart.seconds
    held = [name for name, gap in history.open.items() if gap.reclaimed is None]
    asked = {name for name in held if (node := observation.fleet.find(name)) and is_question(node, observation)}
    if rules.idle.fresh_seconds is None:
        return learned(gaps.keep_nodes(history, at, asked) if asked else history, at, queued=soon)
    first = {name: _FIRST for name in held if name not in history.habits} | dict.fromkeys(asked, _ASKED)
    return with_fixed(history, at, rules.idle.fresh_seconds, first, queued=soon)


def with_fixed(
    history: GapHistory, at: float, fresh_seconds: float, fixed: Mapping[str, str], *, queued: bool
) -> tuple[dict[str, Wait], GapHistory]:
    """Learned waits, and fixed ones for these nodes, each with why: they are not in the account."""
    found, history = learned(gaps.keep_nodes(history, at, fixed.keys()), at, history.open.keys() - fixed, queued=queued)
    for name, why in sorted(fixed.items()):
        restart = history.open[name].restart
        found[name] = Wait(seconds=max(fresh_seconds, restart * (LONGEST if queued else 1.0)), why=why)
    return found, history


def _floor(observation: Observation, pool: str, rules: PoolRules, restart: float) -> int:
    """How much something else keeps: the minimum, windows in force or about to open, the last wish of scaling."""
    ahead = schedule.coming(rules.schedule, observation.now, restart)
    wishes = [each for each in observation.ledger.wishes if each.pool == pool]
    return max(
        rules.least,
        *(each.floor or 0 for each in schedule.in_force(rules.schedule, observation.now)),
        0 if ahead is None else ahead[2],
        max(wishes, key=lambda each: each.at).want if wishes else 0,
    )


def _news(observation: Observation, pool: str, rules: PoolRules, restart: float) -> dict[str, float]:
    """Facts about the pool besides its gaps: hints, and when the schedule asks for nodes next."""
    ahead = schedule.coming(rules.schedule, observation.now, _AHEAD * restart) if rules.schedule else None
    hints = hints_of(observation, pool, rules.idle)
    if ahead is None:
        return hints
    return hints | {"window": facts.length((ahead[1] - observation.now).total_seconds() / restart)}


def _waiting(observation: Observation, rules: IdleRules) -> Callable[[Node], float]:
    """What a regretted stop of a node costs people, in restarts' costs."""
    usd_per_hour = float(rules.waiting_usd_per_hour)

    def restarts(node: Node) -> float:
        price = observation.price(node)
        return waiting_restarts(usd_per_hour, None if price is None else float(price.usd_per_hour))

    return restarts


def _nobody_waits(_: Node) -> float:
    return 0.0


def follow_round(
    history: GapHistory,
    observation: Observation,
    pool: str,
    restart: float,
    news: Mapping[str, float],
    waiting: Callable[[Node], float] = _nobody_waits,
) -> GapHistory:
    """The history after a round at which a restart costs so much; gaps that are open keep what held when they began."""
    at = observation.now.timestamp()
    stopped, stopping, running, idle_state = NodeState.STOPPED, NodeState.STOPPING, NodeState.RUNNING, State.IDLE
    ours, begun = {each.node_id for each in observation.ledger.stopped}, history.open
    # Nothing becomes of the others: they have no gap, and begin none.
    concerned = [
        node
        for node in observation.fleet.roster(pool).nodes
        if node.id in begun or ((verdict := node.signal.verdict) is not None and verdict.activity.state is idle_state)
    ]
    nodes = {node.id: node for node in concerned if node.enrolled and (node.state is not stopped or node.id in ours)}
    for name in sorted(begun.keys() - nodes.keys()):
        history = gaps.forget_node(history, name, at)
    unknown = set[str]()
    for name, node in sorted(nodes.items()):
        if node.state is stopped or node.state is stopping:
            if name in begun and begun[name].reclaimed is None:
                history = gaps.reclaim_node(history, name, at)
        elif node.state is not running or node.activity.state is State.UNKNOWN:
            unknown.add(name)
        elif node.activity.state is idle_state:
            history = _idle(history, node, at, restart, waiting)
        else:
            history = gaps.need_node(history, name, at)
    seen = [name for name in history.open if name not in unknown] if unknown else None
    return gaps.after_time(history, at, seen, news)


def _idle(history: GapHistory, node: Node, at: float, restart: float, waiting: Callable[[Node], float]) -> GapHistory:
    """A node that is idle: its gap goes on, unless it was needed since that began."""
    name, since = node.id, at - node.activity.held_seconds
    gap = history.open.get(name)
    if gap is not None and gap.reclaimed is None and since < gap.since - _SLACK_SECONDS:  # our clock was set back
        return replace(history, open={**history.open, name: replace(gap, since=since)})
    if gap is not None and (gap.reclaimed is not None or since > gap.since + _SLACK_SECONDS):
        history = gaps.need_node(history, name, max(since, gap.since + (gap.reclaimed or 0.0)))
    return history if name in history.open else gaps.went_idle(history, name, since, restart, waiting(node))
