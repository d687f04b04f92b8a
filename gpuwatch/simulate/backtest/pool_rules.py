"""A pool's own rules on trial: what of them is played, and how long they let a node be.

They are played at their harshest. Left out is what only keeps nodes and of which a recording knows nothing: floors,
`requires`, `demand`, `fresh_timeout`, and the hours of the schedule's windows; their waits are trials of their own. A
removal is played as a stop, so that a node that is needed again comes back and is tried again.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from gpuwatch.model.money import Price
from gpuwatch.policies import PoolRules
from gpuwatch.policies.fingerprint import waits
from gpuwatch.policies.idle_settings import IdleRules
from gpuwatch.policies.idle_timeout.break_even import MINIMUM_WAIT_SECONDS, UNMEASURED_SECONDS, waiting_restarts
from gpuwatch.policies.idle_timeout.node_wait import OLD_NODE_WAIT_SECONDS
from gpuwatch.policies.profiles import Removal
from gpuwatch.simulate.backtest.replay import Fresh


def trials(rules: PoolRules) -> tuple[PoolRules, ...]:
    """What is played, once for each wait that the pool may use: its own first."""
    idle = replace(
        rules.idle,
        action="stop" if rules.idle.action == "terminate" else rules.idle.action,
        occupied=_milder(rules.idle.occupied),
        parked=_milder(rules.idle.parked),
        stalled=_milder(rules.idle.stalled),
        terminate_after=None,
        instance_store="discard",
        required_evidence=(),
        demand={},
        hints={},
        fresh_timeout=None,
    )
    return tuple(PoolRules(warm_up=rules.warm_up, idle=replace(idle, timeout=after)) for after in waits(rules))


def _milder(choice: Removal) -> Removal:
    return "stop" if choice == "terminate" else choice


def owned_seconds(rules: PoolRules) -> float | None:
    """How much longer than idle nodes the pool lets occupied or parked ones be at least; None: it removes neither.

    From the first moment to the removal. A recording in which such time is busy for so long, and then idle, is played
    as if their own wait and grace were kept.
    """
    idle = rules.idle
    owned = [
        wait + idle.owner_grace_period
        for choice, wait in ((idle.occupied, idle.occupied_timeout), (idle.parked, idle.parked_timeout))
        if choice != "report"
    ]
    if not owned:
        return None
    first = fresh(idle)
    longest = max(in_all(idle, restart_seconds(idle) if isinstance(wait, str) else wait) for wait in waits(rules))
    longest = longest if first is None else max(longest, first.pool)
    return max(0.0, min(owned) - longest)


def restart_seconds(idle: IdleRules) -> float:
    """What a restart costs in machine time, as far as settings tell; money besides would only let nodes wait longer."""
    return UNMEASURED_SECONDS if idle.restart_cost == "measured" else idle.restart_cost


def waiting(idle: IdleRules, prices: Mapping[str, Price]) -> Callable[[str], float]:
    """What a regretted stop of a node costs people, in restarts' costs."""
    usd_per_hour = float(idle.waiting_usd_per_hour)

    def restarts(node_id: str) -> float:
        price = prices.get(node_id)
        return waiting_restarts(usd_per_hour, None if price is None else float(price.usd_per_hour))

    return restarts


def in_all(idle: IdleRules, wait: float) -> float:
    """From turning idle to removal: a wait that is set comes before the notice, a learned one includes it."""
    if idle.timeout == "learned":
        grace = idle.unattended_grace_period  # nobody is at a recorded node
        return max(MINIMUM_WAIT_SECONDS, wait - grace) + grace
    return wait + idle.grace_period


def fresh(idle: IdleRules) -> Fresh | None:
    """The waits of what a pool does not know yet; None: it need not."""
    if idle.fresh_seconds is None:
        return None
    longest = max(idle.fresh_seconds, restart_seconds(idle))
    return Fresh(pool=max(longest, MINIMUM_WAIT_SECONDS + idle.grace_period), node=longest)


def least_seconds(idle: IdleRules) -> float:
    """The shortest idleness after which these rules may stop a node; 0 where it depends on what is measured."""
    after: float
    if isinstance(idle.timeout, float):
        after = idle.timeout
    elif idle.restart_cost == "measured":
        return 0.0
    else:
        after = idle.restart_cost if idle.timeout == "break_even" else min(MINIMUM_WAIT_SECONDS, idle.restart_cost)
    parked = idle.parked_timeout if idle.parked != "report" else math.inf
    too_old = OLD_NODE_WAIT_SECONDS if idle.max_age is not None else math.inf
    return min(after, parked, too_old)
