"""The rule on whether a pool's rules were tried before they act."""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from gpuwatch.guard.case import Case, Word, no, ok
from gpuwatch.guard.limits import Limits
from gpuwatch.guard.rulebook import Rulebook
from gpuwatch.model.knobs import format_duration
from gpuwatch.model.orders import Backtested
from gpuwatch.policies import PoolRules
from gpuwatch.policies.fingerprint import fingerprint, removes


def backtest(case: Case) -> Word:
    """Where a backtest is required, a pool whose present rules none vouches for lets no node go."""
    return tried(case.pool, case.pool_rules, case.limits, case.observation.ledger.backtests, case.observation.now)


def tried(pool: str, rules: PoolRules, limits: Limits, kept: Sequence[Backtested], now: datetime) -> Word:
    """Whether the newest backtest of a pool's present rules passed and is young enough."""
    limit = limits.require_backtest
    if limit is None:
        return ok("No backtest is required.")
    remedy = f"Run `gpuwatch backtest --ledger --pool {shlex.quote(pool)} --keep`."
    of_pool = [each for each in kept if each.pool == pool]
    if not of_pool:
        return no("No backtest of the pool is on record.", remedy)
    present = fingerprint(rules)
    found = next((each for each in of_pool if each.rules == present), None)
    if found is None:
        return no(f"{_called(of_pool[-1])} was of other rules than the pool's present ones.", remedy)
    if found.failure is not None:
        return no(f"{_called(found)} failed: {found.failure}.", remedy)
    age = (now - found.at).total_seconds()
    if age < 0:
        return no(f"{_called(found)} is ahead of our clock.", remedy)
    if age > limit:
        told = f"{format_duration(age)} old, limits.require_backtest allows {format_duration(limit)}"
        return no(f"{_called(found)} is {told}.", remedy)
    return ok(f"{_called(found)} passed.")


def untried(
    pools: Iterable[str], rules: Rulebook, kept: Sequence[Backtested], now: datetime
) -> Iterator[tuple[str, Word]]:
    """The pools that would let nodes go and may not for want of a backtest, with the rule's word."""
    for pool in pools:
        word = tried(pool, rules.pool(pool), rules.limits, kept, now)
        if word[0] and removes(rules.pool(pool)):
            yield pool, word


def _called(each: Backtested) -> str:
    """Which."""
    return f"The backtest of {each.at:%Y-%m-%d %H:%M} UTC"
