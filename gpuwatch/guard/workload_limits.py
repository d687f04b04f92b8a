"""How much of a cluster's work may be ended, whatever is decided."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge

from gpuwatch.model.setting import STRICT, Setting

# The last question asks each machine's cloud and agent within the seconds that an answer is worth something.
MOST_MACHINES = 16
MOST_NOTICES = 50  # in a round


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
        Setting("Pods of one owner with so many GPUs at most are ended within any hour. None: no such limit."),
    ] = None
