"""What a pool does about its nodes with a GPU that is not to be given work."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Le

from gpuwatch.model.setting import STRICT, Setting


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthRules:
    """One pool's sick nodes: their own agent calls a GPU `failing`."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    action: Annotated[
        Literal["tell", "cordon"],
        Setting(
            "What happens to a Kubernetes node with a failing GPU. tell: metrics, alerts and the page say so. cordon: "
            "it gets no new pods until it is well, and its pods stay."
        ),
    ] = "tell"
    max_cordoned_ratio: Annotated[
        float,
        Ge(0),
        Le(1),
        Setting(
            "This share of the pool's running nodes (rounded up) is cordoned for their health at most: many sick nodes "
            "at once are more likely a fault of what looks at them."
        ),
    ] = 0.2
