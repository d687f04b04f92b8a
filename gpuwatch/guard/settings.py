"""What no round may exceed, whatever the policies propose; and the rules that a decision was made under."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, ClassVar

from annotated_types import Ge, Gt, Le

from gpuwatch.model.duration import Seconds
from gpuwatch.model.fleet import DEFAULT_POOL
from gpuwatch.model.setting import STRICT, Floor, Setting
from gpuwatch.model.slips import meant_name
from gpuwatch.policies import PoolRules
from gpuwatch.policies.idle_settings import IdleRules, resolve_rules
from gpuwatch.policies.kubernetes.idle_pods_settings import IdlePodRules

# What holds for a pool that nobody wrote rules for: it is looked at, and nothing more.
_HANDS_OFF = PoolRules(profile="cautious", idle=resolve_rules(IdleRules(action="report"), "cautious"))


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerLimit:
    """What one owner may have."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    max_nodes: Annotated[
        int | None, Ge(0), Setting("So many nodes at most, enrolled or not. None: no limit, or that of all owners.")
    ] = None
    max_gpus: Annotated[int | None, Ge(0), Setting("So many GPUs at most. None: no limit, or that of all owners.")] = (
        None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerLimits(OwnerLimit):
    """What each owner may have, by the tag gpuwatch:owner: gpuwatch adds nothing beyond it."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    owners: Annotated[
        dict[str, OwnerLimit], Setting("Other limits for these owners; what is not given is as for all owners.")
    ] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadLimits:
    """The administrator's limits for all workloads together. Only pods that hold GPUs count."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    max_pods_per_round: Annotated[int, Ge(0), Setting("So many GPU pods at most are ended in one round.")] = 8
    max_pods_per_hour: Annotated[int, Ge(0), Setting("So many GPU pods at most are ended within any hour.")] = 32
    max_gpus_per_hour: Annotated[int, Ge(0), Setting("Pods of so many GPUs at most are ended within any hour.")] = 64
    max_gpus_per_owner_per_hour: Annotated[
        int | None,
        Ge(0),
        Setting("Pods of one owner with so many GPUs at most are ended within any hour."),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The administrator's limits for the whole fleet."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    max_verdict_age: Annotated[
        Seconds, Gt(0), Le(300), Setting("A verdict older than this, by either clock, is stale and stops nothing.")
    ] = 30.0
    max_confirmation_age: Annotated[
        Seconds,
        Ge(1),
        Le(30),
        Setting(
            "A stop or termination is sent only within this time after its last confirmation was asked for; a later "
            "one is not sent, and the node is asked again in the next round."
        ),
    ] = 5.0
    min_coverage_ratio: Annotated[
        float,
        Ge(0),
        Le(1),
        Setting("With fewer of a pool's running nodes answering than this share, nothing is stopped."),
    ] = 0.5
    max_stops_per_round: Annotated[int, Ge(0), Setting("So many nodes at most are stopped in one round.")] = 3
    max_stops_per_hour: Annotated[int, Ge(0), Setting("So many nodes at most are stopped within any hour.")] = 10
    max_stops_per_hour_ratio: Annotated[
        float,
        Ge(0),
        Le(1),
        Setting("This share of the enrolled nodes at most (rounded up) is stopped within any hour."),
    ] = 0.5
    max_stops_per_owner_per_hour: Annotated[
        int | None,
        Ge(0),
        Setting("So many nodes of one owner at most are stopped within any hour."),
    ] = None
    max_stopped_usd_per_hour: Annotated[
        Decimal | None,
        Ge(0),
        Setting("Nodes of this price an hour together at most are stopped within any hour."),
    ] = None
    failure_cooldown: Annotated[
        Seconds, Ge(0), Setting("After a stop was given up, its node is left alone for this long.")
    ] = 3600.0
    refusal_cooldown: Annotated[
        Seconds,
        Ge(0),
        Setting("After the cloud has refused to stop a node twice, the node is left alone for this long."),
    ] = 21600.0
    mass_idleness_ratio: Annotated[
        float,
        Gt(0),
        Le(0.9),
        Setting(
            "When this share of a pool, of the fleet, or of the nodes with one cloud, image, driver or agent turns "
            "idle at the same time, a sensor is suspected: freeze. So is one with which this share of the nodes that "
            "would work is not seen at work."
        ),
    ] = 0.5
    mass_idleness_nodes: Annotated[
        int, Ge(2), Le(100), Setting("A pool is frozen only if at least this many nodes turn idle at the same time.")
    ] = 5
    mass_idleness_window: Annotated[
        Seconds, Ge(30), Setting("Turning idle within this time of each other counts as the same time.")
    ] = 120.0
    mass_idleness_freeze: Annotated[
        Seconds,
        Ge(0),
        Floor(600, or_none=True),
        Setting(
            "How long such a freeze lasts, from its first possible notice; `gpuwatch acknowledge` ends it. "
            "0s: mass idleness is no reason to freeze, nor is a sensor without proof."
        ),
    ] = 3600.0
    max_additions_per_round: Annotated[
        int, Ge(0), Setting("So many nodes at most are started or launched in one round.")
    ] = 5
    max_additions_per_hour: Annotated[
        int, Ge(0), Setting("So many nodes at most are started or launched within any hour.")
    ] = 20
    max_usd_per_hour: Annotated[
        Decimal | None,
        Ge(0),
        Setting(
            "No node is started or launched that would let the enrolled nodes cost more than this. None: no limit."
        ),
    ] = None
    per_owner: OwnerLimits = field(default_factory=OwnerLimits)
    capacity_cooldown: Annotated[
        Seconds, Ge(0), Setting("After a start or launch failed, the same is not tried again for this long.")
    ] = 180.0
    workloads: Annotated[WorkloadLimits, Setting("What no round may exceed in ending pods of a cluster.")] = field(
        default_factory=WorkloadLimits
    )
    require_backtest: Annotated[
        Annotated[Seconds, Gt(0)] | None,
        Setting(
            "A pool's nodes are removed only if a backtest of its present rules passed and is no older than this "
            "(`gpuwatch backtest --pool NAME --keep`). None: no backtest is needed."
        ),
    ] = None
    require_notification: Annotated[
        bool,
        Setting(
            "A node is removed only if a message about its notice was delivered to a receiver in notify.receivers, at "
            "least the grace period before."
        ),
    ] = False
    allow_short_waits: Annotated[
        bool,
        Setting(
            "For tests on unused machines: accept waits below the minimum that each setting names. "
            "A warning says so at every start, in `gpuwatch status` and in `gpuwatch doctor`."
        ),
    ] = False

    @property
    def cautions(self) -> tuple[str, ...]:
        """What these limits leave open, in sentences."""
        if not self.allow_short_waits:
            return ()
        caution = "waits of seconds are accepted. It is for tests, never for machines that people use."
        return (f"limits.allow_short_waits is true: {caution}",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rulebook:
    """Pools' rules, the fleet's limits, and whether anything is to be done; kept in the ledger with every round.

    `delivery_seconds` is how long the grace of a notice waits for the first message about it to arrive, by the pools
    with a receiver of notices.
    """

    pools: Mapping[str, PoolRules] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    enforce: bool = False
    delivery_seconds: Mapping[str, float] = field(default_factory=dict)

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
        return f"The tag gpuwatch:pool is {pool!r}, and the settings have no such pool. {meant_name(pool, self.known)}"

    def unknown(self, pools: Iterable[str]) -> tuple[str, ...]:
        """Those of these pools that the settings do not have."""
        return tuple(sorted({pool for pool in pools if self.doubt(pool) is not None}))
