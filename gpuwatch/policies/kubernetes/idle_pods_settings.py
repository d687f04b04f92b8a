"""What a pool says of pods that hold its GPUs without use."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt

from gpuwatch.model.duration import Seconds
from gpuwatch.model.setting import STRICT, Floor, Setting


@dataclass(frozen=True, slots=True, kw_only=True)
class IdlePodRules:
    """One pool's. Besides `action`, the people of a workload must have said what may become of it (IDLE_ACTION)."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    action: Annotated[
        Literal["report", "as-annotated"],
        Setting(
            "What happens to pods that hold GPUs without use. report: they are shown; as-annotated: after a notice "
            "what the annotation gpuwatch.io/idle-action of their workload or namespace says, nothing without it."
        ),
    ] = "report"
    timeout: Annotated[
        Seconds,
        Gt(0),
        Floor(900),
        Setting("A workload gets a notice after all of its GPU pods were idle for this long without a break."),
    ] = 7200.0
    unused_timeout: Annotated[
        Seconds,
        Gt(0),
        Floor(3600),
        Setting("The same where one of them is parked (holds GPU memory and computes nothing) or stalled."),
    ] = 72000.0
    grace_period: Annotated[
        Seconds, Ge(0), Floor(300, or_none=True), Setting("Between the notice and the end of its pods.")
    ] = 3600.0
    rest: Annotated[
        Seconds,
        Ge(0),
        Floor(600, or_none=True),
        Setting("After its pods were ended, or that failed, a workload has no notice for this long."),
    ] = 3600.0
    bare_pods: Annotated[
        Literal["keep", "delete"],
        Setting("Pods that nothing would make again: keep leaves them alone, delete ends them as annotated."),
    ] = "keep"
