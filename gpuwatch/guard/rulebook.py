"""The rules that a decision was made under: with the observation, everything that it rests on."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuwatch.guard.limits import Limits
from gpuwatch.policies import PoolRules

DEFAULT_POOL = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rulebook:
    """Pools' rules, the fleet's limits, and whether anything is to be done; kept in the ledger with every round."""

    pools: Mapping[str, PoolRules] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    enforce: bool = False

    @property
    def growing(self) -> frozenset[str]:
        """The pools that are decided about even while they have no node: something may launch one."""
        return frozenset(name for name, rules in self.pools.items() if rules.launch.template is not None)

    def pool(self, name: str) -> PoolRules:
        """The rules of a pool; one that is not listed follows `default`, which exists even when not written."""
        return self.pools.get(name) or self.pools.get(DEFAULT_POOL) or PoolRules()
