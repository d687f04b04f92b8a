"""PURE: how long a node waits for its notice and after it, what follows then, and why that is so.

Rules, all of them:

1. A wait that is set holds. break_even: the wait that costs as much as a restart, never more than twice the optimum
   (ski rental). learned: the same where nothing is known of the node's gap yet, and `fresh_timeout` at least.
2. What was learned includes the grace after the notice, at least the round between, as their rental is paid too. So
   does `fresh_timeout`.
3. Where somebody is, or where nobody looked for half an hour, a learned wait is half an hour at least: people read and
   think, and an agent that has just begun has not seen who comes by.
4. A budget, and `max_age`, shorten the wait of idle nodes before the notice, and only to less; the grace stays.
5. Occupied, parked and stalled nodes are somebody's: each state has a wait of its own, and a longer grace. Where nobody
   is there, an idle node has a shorter one, unless its wait is a fixed one until its pool is known.
6. Where the notice is a question, an idle node has the longer grace as well, after half an hour at least. A stop that
   somebody took back makes the next wait longer, whatever hastens it (gpuwatch.policies.idle_timeout.answers).
7. The longer grace waits for a working day (gpuwatch.policies.idle_timeout.working_time).
"""

from collections.abc import Sequence
from datetime import datetime

from gpuwatch.model.activity import State
from gpuwatch.model.budget import BudgetState, Scope, ShorterWaits
from gpuwatch.model.decision import Observation, Wait
from gpuwatch.model.duration import format_duration, format_time
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.model.measurement import Restarts
from gpuwatch.model.money import Price
from gpuwatch.policies.idle_settings import IdleRules
from gpuwatch.policies.idle_timeout.answers import is_question, lengthened_wait, regrets_of
from gpuwatch.policies.idle_timeout.break_even import MINIMUM_WAIT_SECONDS, Restart, restart
from gpuwatch.policies.idle_timeout.gap_history import fresh_words
from gpuwatch.policies.idle_timeout.working_time import ANYWHERE, Office, days_off_words, grace_at_work

ATTENDED_WAIT_SECONDS = 1800.0  # no learned wait is shorter with an open session, or without a look so long
OLD_NODE_WAIT_SECONDS = 300.0  # a node past `max_age` waits no longer than this once it is idle
_BUSY = State.BUSY  # rounds compare thousands; to look a member up takes longer than to compare it


def restart_of(observation: Observation, pool: str, rules: IdleRules, price: Price | None) -> Restart | None:
    """Return what a restart of a machine at this price costs now; None: it takes a price, which is not known."""
    return restart(
        rules.restart_cost,
        observation.restarts.get(pool, Restarts()),
        usd=float(rules.restart_usd),
        usd_per_hour=None if price is None else float(price.usd_per_hour),
    )


def wait_seconds(node: Node, observation: Observation, rules: IdleRules) -> float | None:
    """Return how long a node is to be idle where nothing hastens it; None: it takes a price, which is not known."""
    if not isinstance(rules.timeout, str):
        return rules.timeout
    somebody = not _empty(node) or is_question(node, observation)
    attended = rules.timeout == "learned" and node.activity.state is State.IDLE and somebody
    least = ATTENDED_WAIT_SECONDS if attended else MINIMUM_WAIT_SECONDS
    ahead = max(_plain_grace_seconds(node, observation, rules), observation.interval_seconds)
    if (found := _learned_wait(node, observation, rules)) is not None:
        return max(least, found.seconds - ahead)
    cost = restart_of(observation, node.pool, rules, observation.price(node))
    if cost is None or rules.fresh_seconds is None:
        return None if cost is None else max(least, cost.seconds)
    return max(least, max(rules.fresh_seconds, cost.seconds) - ahead)


def learns(node: Node, observation: Observation, rules: IdleRules) -> bool:
    """Whether a node waits as its pool learns, and not for a time that is set or that follows from a restart alone."""
    return rules.timeout == "learned" and (rules.fresh_seconds is None or node.id in observation.waits)


def _learned_wait(node: Node, observation: Observation, rules: IdleRules) -> Wait | None:
    return observation.waits.get(node.id) if rules.timeout == "learned" else None


def choose_action(node: Node, observation: Observation, rules: IdleRules) -> tuple[str | None, float | None]:
    """Return what the pool does with a node in this state, and after how long; no choice for one that works."""
    choice, wait = _choice(node, observation, rules)
    return choice, wait if wait is None else lengthened_wait(wait, len(regrets_of(node, observation)))


def _choice(node: Node, observation: Observation, rules: IdleRules) -> tuple[str | None, float | None]:
    """Return the same as if nobody had taken back a stop."""
    state = node.activity.state
    if state is _BUSY:  # most of a large fleet
        return None, None
    if state is State.OCCUPIED:
        return rules.occupied, rules.occupied_timeout
    if state is State.PARKED:
        return rules.parked, rules.parked_timeout
    if state is State.STALLED:
        return rules.stalled, rules.stalled_timeout
    if state is not State.IDLE:
        return None, None
    return rules.action, hastened_wait(observation.budgets, node, _unhastened_wait(node, observation, rules))


def grace_seconds(node: Node, observation: Observation, rules: IdleRules, office: Office = ANYWHERE) -> float:
    """Return the grace of a node in this state: of the notice that it has, or of one that is given now."""
    if node.state is NodeState.STOPPED:
        return rules.terminate_grace_period
    asking = _asking_seconds(node, observation, rules)
    if asking is None:
        return _plain_grace_seconds(node, observation, rules)
    return grace_at_work(asking, _given_at(node, observation), office)


def grace_words(node: Node, observation: Observation, rules: IdleRules, office: Office) -> str:
    """Say why the grace of a node lasts longer than is set, as a sentence of its own; of others say nothing."""
    asking = _asking_seconds(node, observation, rules)
    return "" if asking is None else days_off_words(asking, _given_at(node, observation), office)


def _given_at(node: Node, observation: Observation) -> datetime:
    """Return when the notice of a node was given, or would be."""
    notice = observation.ledger.notice(node.id)
    return observation.now if notice is None else notice.at


def _asking_seconds(node: Node, observation: Observation, rules: IdleRules) -> float | None:
    """Return the grace that is set where somebody is asked; None: nobody is."""
    if node.activity.state is not State.IDLE:
        return rules.owner_grace_period
    if not is_question(node, observation):
        return None
    return max(_plain_grace_seconds(node, observation, rules), rules.owner_grace_period)


def _plain_grace_seconds(node: Node, observation: Observation, rules: IdleRules) -> float:
    """Return the grace of an idle node where nobody is asked about it."""
    fixed = rules.fresh_seconds is not None and not learns(node, observation, rules)
    return rules.unattended_grace_period if node.owner is None and _empty(node) and not fixed else rules.grace_period


def _empty(node: Node) -> bool:
    """Whether the agent looked for sessions for long enough and found none."""
    people = [each for each in node.activity.evidence if each.name == "people"]
    none = bool(people) and all(each.says is State.IDLE and each.observed is None for each in people)
    return none and _is_watched(node)


def _is_watched(node: Node) -> bool:
    """Whether the agent has watched the node for half an hour; recordings do not say since when they watch."""
    tally = None if node.verdict is None else node.verdict.tally
    return tally is None or sum(tally.node_seconds.values()) >= ATTENDED_WAIT_SECONDS


def too_old(node: Node, observation: Observation, rules: IdleRules) -> bool:
    """Whether a node has been up for longer than its pool likes."""
    if rules.max_age is None or node.launched_at is None:
        return False
    return (observation.now - node.launched_at).total_seconds() > rules.max_age


def _unhastened_wait(node: Node, observation: Observation, rules: IdleRules) -> float | None:
    """Return how long an idle node waits where no budget hastens it."""
    wait = wait_seconds(node, observation, rules)
    if wait is not None and too_old(node, observation, rules):
        wait = min(wait, OLD_NODE_WAIT_SECONDS)
    return wait


def because(node: Node, observation: Observation, rules: IdleRules, wait: float) -> str:
    """Say why a node waits for so long, where that is not set in the configuration."""
    idle = node.activity.state is State.IDLE
    if regrets := regrets_of(node, observation):
        times = "" if len(regrets) == 1 else f" {len(regrets)} times, last"
        return f" (somebody started it again{times} within an hour of a stop, at {format_time(regrets[-1])})"
    asked = hastening(observation.budgets, node) if idle else None
    own = None if asked is None else _unhastened_wait(node, observation, rules)
    if asked is not None and own is not None and wait < own:
        return f" instead of {format_duration(own)} ({asked.why})"
    if not idle or not isinstance(rules.timeout, str) or wait != wait_seconds(node, observation, rules):
        return ""
    reasons = (
        _learned_wait(node, observation, rules),
        restart_of(observation, node.pool, rules, observation.price(node)),
    )
    if rules.fresh_seconds is not None and not learns(node, observation, rules):
        return fresh_words(observation.fresh.get(node.pool))
    return f" ({'; '.join(each.why for each in reasons if each is not None)})"


def hastening(budgets: Sequence[BudgetState], node: Node) -> ShorterWaits | None:
    """Return the shortest wait that a budget asks of an idle node; None where none does."""
    asked = [each.hastening for each in budgets if each.hastening is not None and each.scope.covers(node)]
    return min(asked, key=lambda each: each.wait_seconds, default=None)


def hastened_wait(budgets: Sequence[BudgetState], node: Node, wait: float | None) -> float | None:
    """Return a node's wait under these budgets; one that is not known, as there is no price, stays so."""
    found = hastening(budgets, node) if wait is not None else None
    return wait if wait is None or found is None else min(wait, max(MINIMUM_WAIT_SECONDS, found.wait_seconds))


def in_force(budgets: Sequence[BudgetState]) -> tuple[tuple[Scope, ShorterWaits], ...]:
    """Return all that any wait can follow from: it changes far less often than what was spent."""
    return tuple((each.scope, each.hastening) for each in budgets if each.hastening is not None)
