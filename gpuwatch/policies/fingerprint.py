"""PURE: which rules a backtest was of, so that none vouches for others.

It covers the rules for removals in the pool: all of `idle`, `warm_up`, and the waits of the schedule's windows,
whenever they hold. Floors, ceilings, scaling and launches only keep nodes or add some, so they may change freely. A
gpuwatch with a new setting among its idle rules asks for a new backtest.
"""

import hashlib
import json
from dataclasses import asdict
from decimal import Decimal
from typing import Literal

from gpuwatch.policies import PoolRules
from gpuwatch.policies.profiles import OWNED

Wait = float | Literal["break_even", "learned"]
_REMOVALS = frozenset({"stop", "terminate"})


def waits(rules: PoolRules) -> tuple[Wait, ...]:
    """Every wait that the pool may use: its own first, then those of its windows, shortest first, each once."""
    windows = sorted({window.idle_timeout for window in rules.schedule.values() if window.idle_timeout is not None})
    return tuple(dict.fromkeys((rules.idle.timeout, *windows)))


def removes(rules: PoolRules) -> bool:
    """Whether the pool ever removes a node."""
    idle = rules.idle
    return idle.terminate_after is not None or not {idle.action, *(getattr(idle, each) for each in OWNED)}.isdisjoint(
        _REMOVALS
    )


def fingerprint(rules: PoolRules) -> str:
    """SHA-256 over the canonical JSON of the rules for removals in the pool; equal values give equal hashes."""
    _, *windows = waits(rules)
    rows = {"idle": asdict(rules.idle), "windows": windows, "warm_up": rules.warm_up}
    return hashlib.sha256(json.dumps(_plain(rows), sort_keys=True).encode()).hexdigest()


def _plain(value: object) -> object:
    """As JSON has it; 600 and 600.0 are the same, and so are $1 and $1.00."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Decimal):
        return str(value.normalize())
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value
