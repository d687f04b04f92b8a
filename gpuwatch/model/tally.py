"""What an agent has counted of its node's time and energy."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What an agent has counted since it began at `since`, which names its run: each run begins at zero.

    Seconds of the node and of its GPUs together by state, as long as somebody looked; a GPU that is not to be given
    work and does none counts as `down`. Joules are differences of the GPUs' energy counters, over
    `joules_gpu_seconds` of them. For accounting; never a ground for removal.
    """

    since: datetime
    node_seconds: Mapping[str, float]
    gpu_seconds: Mapping[str, float]
    joules: float = 0.0
    joules_gpu_seconds: float = 0.0
