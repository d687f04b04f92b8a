"""The settings of the GPUs' health."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge, Gt, Le

from gpuwatch.model.duration import Seconds
from gpuwatch.model.setting import STRICT, Setting

BLIND_SECONDS = 120.0  # looks further apart than this saw nothing in between


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthRules:
    """From which values on a GPU is not healthy."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    recover_after: Annotated[
        Seconds, Ge(0), Setting("A cause that has not been seen for this long is over; a reset may end it sooner.")
    ] = 600.0
    throttle_window: Annotated[
        Seconds, Gt(0), Setting("Shares of time with lowered clocks are taken over about this long.")
    ] = 600.0
    thermal_ratio: Annotated[
        float, Gt(0), Le(1), Setting("Clocks lowered for heat for more than this share of the window: degraded.")
    ] = 0.1
    power_brake_ratio: Annotated[
        float, Gt(0), Le(1), Setting("Clocks lowered by the power supply's brake for more than this share: degraded.")
    ] = 0.1
    corrected_per_hour: Annotated[
        float, Gt(0), Setting("More corrected memory errors in about an hour than this: degraded.")
    ] = 1000.0
    load_ratio: Annotated[
        float,
        Gt(0),
        Le(1),
        Setting("A utilization of this much is load, under which a PCIe link must have all lanes and its speed."),
    ] = 0.1
    narrow_after: Annotated[
        Seconds, Ge(0), Setting("A PCIe link with too few lanes, or far too slow, under load for this long: degraded.")
    ] = 60.0
