"""A backtest of a pool's own rules, as it is kept in the ledger; whether it passed, `limits.require_backtest` goes by.

It passes if of every wait that the pool may use all of this is true:

1. The real controller played it, and stopped something: what was never done was not tried.
2. No stop of those hurt anybody by the truth, and no property was broken.
3. Of all its stops over the whole history at most a quarter were needed again within REGRET_SECONDS; or what these
   cost, restarts and the people who wait, is at most a quarter of what stops saved on nodes that were needed again.
   A count alone has no size: where load pauses for minutes and for nights, many regretted stops cost little.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime

from gpuwatch.model.duration import format_duration
from gpuwatch.model.orders import BacktestRecord
from gpuwatch.policies import PoolRules
from gpuwatch.policies.fingerprint import fingerprint
from gpuwatch.policies.idle_timeout.break_even import REGRET_SECONDS
from gpuwatch.simulate.backtest.compare import Policy
from gpuwatch.simulate.backtest.pool_rules import trials
from gpuwatch.simulate.backtest.report import Backtest, Line

MOST_REGRETTED_RATIO = MOST_COST_RATIO = 0.25


def policies_of(pool: str, rules: PoolRules) -> tuple[Policy, ...]:
    """The pool's rules as policies, one for each wait that it may use."""
    return tuple(_policy(pool, each) for each in trials(rules))


def record(result: Backtest, pool: str, rules: PoolRules, at: datetime, who: str) -> BacktestRecord:
    """What is kept of a backtest in which the pool's `policies_of` took part."""
    own = policies_of(pool, rules)
    lines = [line for line in result.lines if line.figures.policy in own]
    checked = [line.checked for line in lines if line.checked is not None]
    failures = list(_failures(lines))
    return BacktestRecord(
        pool=pool,
        at=at,
        who=who,
        rules=fingerprint(rules),
        source=result.source,
        node_hours=result.node_hours,
        stops=sum(line.figures.stops for line in lines),
        suspected_wrong_stops=sum(line.figures.suspected_wrong_stops for line in lines),
        checked_node_hours=sum(each.node_hours for each in checked),
        checked_stops=sum(each.stops for each in checked),
        wrongly_stopped=sum(each.wrongly_stopped for each in checked),
        violations=sum(len(each.violations) for each in checked),
        saved_ratio=lines[0].figures.bill_saved_ratio,
        failure="; ".join(failures) or None,
    )


def _failures(lines: Sequence[Line]) -> Iterator[str]:
    """Why it did not pass, as clauses."""
    for line in lines:
        figures, checked = line.figures, line.checked
        name = f"{figures.policy.name}: " if len(lines) > 1 else ""
        if checked is None or not checked.stops:
            yield f"{name}no stop was played by the real controller"
            continue
        if checked.wrongly_stopped:
            yield f"{name}wrong stops, {checked.wrongly_stopped} of {checked.stops}"
        if checked.violations:
            yield f"{name}violations, {len(checked.violations)}"
        cost = figures.regret_cost_ratio or 0.0
        if figures.suspected_wrong_stops > MOST_REGRETTED_RATIO * figures.stops and cost > MOST_COST_RATIO:
            soon, most = format_duration(REGRET_SECONDS), f"{MOST_REGRETTED_RATIO:.0%}"
            count = f"{figures.suspected_wrong_stops} of {figures.stops}"
            told = f"{name}nodes needed again within {soon} of their stop, {count}, more than {most}"
            cheaper = "; these stops lose money here: wait longer, or make restarts faster" if cost > 1 else ""
            paid = f"this cost {cost:.0%} of what stops saved on nodes that were needed again, more than {most}"
            yield f"{told}; {paid}{cheaper}"


def _policy(pool: str, rules: PoolRules) -> Policy:
    after = rules.idle.timeout
    wait = after if isinstance(after, str) else format_duration(after)
    return Policy(name=f"{pool}:timeout={wait}", timeout=after, rules=rules)
