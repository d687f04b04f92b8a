"""Where busy begins, and how time counts: the settings of `agent.activity`."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge, Gt, Le

from gpuwatch.model.duration import Seconds
from gpuwatch.model.setting import STRICT, Setting


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityRules:
    """Where busy begins. The defaults err towards busy."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    busy_utilization_ratio: Annotated[
        float,
        Gt(0),
        Le(0.1),
        Setting("A utilization sample at or above this share (0.01 = NVML's smallest step) is busy."),
    ] = 0.01
    busy_power_ratio: Annotated[
        float,
        Gt(0),
        Le(0.8),
        Setting("Power at or above this share of the GPU's power limit is busy, unless it draws that at rest."),
    ] = 0.35
    max_rest_power_ratio: Annotated[
        float,
        Gt(0),
        Le(0.6),
        Setting(
            "Where the GPU's model, or a quiet hour of this GPU, shows that it draws more at rest, power is busy only "
            "above that, but always above this share of the limit. Not above busy_power_ratio: rest is not looked at."
        ),
    ] = 0.6
    held_memory_bytes: Annotated[
        int,
        Gt(0),
        Le(4 * 1024**3),
        Setting("Device memory in use at or above this, in bytes, is held: the GPU is parked, not idle."),
    ] = 512 * 1024 * 1024
    stalled_timeout: Annotated[
        Seconds,
        Ge(60),
        Setting("Full utilization at idle power without memory traffic is called stalled after this long."),
    ] = 600.0
    max_gap: Annotated[
        Seconds,
        Gt(0),
        Le(300),
        Setting("Two samples further apart than this leave a gap, which does not count as idle time."),
    ] = 10.0
    forget_after: Annotated[
        Seconds, Ge(0), Le(300), Setting("Doubt that lasts longer than this starts the idle time again from zero.")
    ] = 60.0
