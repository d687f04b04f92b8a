"""What a pool does about its nodes with a GPU that is not to be given work."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Le

from gpuwatch.model.duration import Seconds
from gpuwatch.model.setting import STRICT, Floor, Setting

_DRAINS = frozenset({"drain", "replace"})


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthRules:
    """One pool's sick nodes: their own agent calls a GPU `failing`."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    action: Annotated[
        Literal["tell", "cordon", "drain", "replace"],
        Setting(
            "What happens to a node with a failing GPU. tell: metrics, alerts and the page say so. cordon: a "
            "Kubernetes node gets no new pods until it is well, and its pods stay; a Slurm node is drained, and its "
            "jobs run to their end. drain: pods that may go are also "
            "moved to other nodes. replace: also, a machine that is terminated as idle while its GPU is failing comes "
            "back as a new one; it needs `idle.action: terminate`. drain and replace: a machine of which the driver "
            "has lost a GPU goes as the rest of it says (docs/policies/idle.md#a-lost-gpu); else it stays "
            "unknown for ever."
        ),
    ] = "tell"
    taint: Annotated[
        bool,
        Setting(
            "A cordon for its health also gives the node the taint gpuwatch.io/unhealthy (NoSchedule), for other "
            "programs to see. Pods of DaemonSets that do not tolerate it cannot be made again there."
        ),
    ] = False
    max_cordoned_ratio: Annotated[
        float,
        Ge(0),
        Le(1),
        Setting(
            "This share of the pool's running nodes (rounded up) is cordoned for their health at most: many sick nodes "
            "at once are more likely a fault of what looks at them."
        ),
    ] = 0.2
    max_failing_ratio: Annotated[
        float,
        Ge(0),
        Le(1),
        Setting(
            "While more than this share of the pool's running nodes (rounded up) has a failing GPU, none is drained or "
            "replaced: the likely fault is a driver or its roll-out."
        ),
    ] = 0.2
    drain_after: Annotated[
        Seconds,
        Ge(0),
        Floor(60, or_none=True),
        Setting("So long after the cordon of a sick node its first pods are asked to go."),
    ] = 600.0
    drain_busy: Annotated[
        bool,
        Setting(
            "Also pods that work leave a sick node, if their people say gpuwatch.io/interruptible. Without it, pods go "
            "only from a node that is proven idle."
        ),
    ] = False
    drain_rest: Annotated[
        Seconds,
        Ge(0),
        Floor(600, or_none=True),
        Setting("A node is not drained in Slurm again within this time after somebody resumed it."),
    ] = 86400.0
    max_replacements_per_day: Annotated[
        int, Ge(0), Setting("So many machines of the pool come back within 24 h for sick ones, at most.")
    ] = 2

    @property
    def cordons(self) -> bool:
        """Whether a sick node gets no new pods."""
        return self.action != "tell"

    @property
    def drains(self) -> bool:
        """Whether pods are moved off a sick node."""
        return self.action in _DRAINS
