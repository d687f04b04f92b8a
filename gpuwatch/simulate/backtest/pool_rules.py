"""A pool's own rules on trial: what of them is played, and how long they let a node be.

They are played at their harshest. Left out is what only keeps nodes and of which a recording knows nothing: floors,
`requires`, `demand`, and the hours of the schedule's windows, whose waits are trials of their own. A removal is played
as a stop, so that a node that is needed again comes back and is tried again.
"""

import math
from dataclasses import replace

from gpuwatch.policies import PoolRules
from gpuwatch.policies.fingerprint import waits
from gpuwatch.policies.idle import OLD_NODE_WAIT_SECONDS, IdleRules
from gpuwatch.policies.idle_timeout.break_even import MINIMUM_WAIT_SECONDS, UNMEASURED_SECONDS


def trials(rules: PoolRules) -> tuple[PoolRules, ...]:
    """What is played, once for each wait that the pool may use: its own first."""
    idle = replace(
        rules.idle,
        action="stop" if rules.idle.action == "terminate" else rules.idle.action,
        parked="stop" if rules.idle.parked == "terminate" else rules.idle.parked,
        terminate_after=None,
        instance_store="discard",
        required_evidence=(),
        demand={},
    )
    return tuple(PoolRules(warm_up=rules.warm_up, idle=replace(idle, timeout=after)) for after in waits(rules))


def restart_seconds(idle: IdleRules) -> float:
    """What a restart costs in machine time, as far as settings tell; money besides would only let nodes wait longer."""
    return UNMEASURED_SECONDS if idle.restart_cost == "measured" else idle.restart_cost


def in_all(idle: IdleRules, wait: float) -> float:
    """From turning idle to removal: a wait that is set comes before the notice, a learned one includes it."""
    if idle.timeout == "learned":
        return max(MINIMUM_WAIT_SECONDS, wait - idle.grace_period) + idle.grace_period
    return wait + idle.grace_period


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
