"""The rules that a decision was made under: with the observation, everything that it rests on."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gpuwatch.guard.settings import Limits
from gpuwatch.model.fleet import DEFAULT_POOL
from gpuwatch.model.slips import meant
from gpuwatch.policies import PoolRules
from gpuwatch.policies.idle_settings import IdleRules, resolved
from gpuwatch.policies.kubernetes.idle_pods_settings import IdlePodRules

# What holds for a pool that nobody wrote rules for: it is looked at, and nothing more.
_HANDS_OFF = PoolRules(profile="cautious", idle=resolved(IdleRules(action="report"), "cautious"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rulebook:
    """Pools' rules, the fleet's limits, and whether anything is to be done; kept in the ledger with every round."""

    pools: Mapping[str, PoolRules] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    enforce: bool = False

    @property
    def growing(self) -> frozenset[str]:
        """The pools that are decided about even while they have no node: something may launch one."""
        return frozenset(name for name, rules in self.pools.items() if rules.launches)

    @property
    def known(self) -> tuple[str, ...]:
        """The names of the pools that have rules; `default` exists even when it is not written."""
        return tuple(dict.fromkeys((DEFAULT_POOL, *self.pools)))

    def pool(self, name: str) -> PoolRules:
        """The rules of a pool; nothing may be done to one that the settings do not have."""
        return self.pools.get(name) or (PoolRules() if name == DEFAULT_POOL else _HANDS_OFF)

    def idle_pods(self, pools: Iterable[str]) -> Mapping[str, IdlePodRules]:
        """What each of these pools says of pods that hold its GPUs without use."""
        return {pool: self.pool(pool).kubernetes.pods for pool in pools}

    def doubt(self, pool: str) -> str | None:
        """Why nobody knows which rules hold for what is in a pool, as a sentence; None: the settings have the pool.

        Names are compared as they are. One that is only similar may be a slip, or another team's pool.
        """
        if pool == DEFAULT_POOL or pool in self.pools:
            return None
        if not pool.strip():
            return "The tag gpuwatch:pool is empty."
        return f"The tag gpuwatch:pool is {pool!r}, and the settings have no such pool. {meant(pool, self.known)}"

    def unknown(self, pools: Iterable[str]) -> tuple[str, ...]:
        """Those of these pools that the settings do not have."""
        return tuple(sorted({pool for pool in pools if self.doubt(pool) is not None}))
