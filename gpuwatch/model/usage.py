"""Hours of a machine by what they were used for, and the terms it is paid by."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import StrEnum

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MS = timedelta(milliseconds=1)
HOUR_MS = 3_600_000


class Use(StrEnum):
    """What billed time was used for: `useful`, proven waste (WASTED), or nobody knows (UNPROVEN)."""

    USEFUL = "useful"  # busy
    IDLE = "idle"
    PARKED = "parked"
    STALLED = "stalled"
    DOWN = "down"  # the GPU is lost or is not to be given work, or its machine is stopped and still billed
    UNKNOWN = "unknown"  # looked at, and not known
    SILENT = "silent"  # between rounds too far apart: nobody looked


USES = tuple(Use)
# The one definition of waste: seen, and of no use. Of what nobody saw, nobody can say that it is wasted.
WASTED = (Use.IDLE, Use.PARKED, Use.STALLED, Use.DOWN)
UNPROVEN = (Use.UNKNOWN, Use.SILENT)


# A row's amounts: a node's milliseconds by use, those of its GPUs together, joules, and GPU-milliseconds of these.
AMOUNTS = (*(f"node_{use}_ms" for use in USES), *(f"gpu_{use}_ms" for use in USES), "joules", "measured_gpu_ms")
GPU = len(USES)  # where the GPUs' uses begin
JOULES = 2 * GPU
MEASURED = JOULES + 1
GROUPS = (range(GPU), range(GPU, JOULES), range(JOULES, MEASURED), range(MEASURED, MEASURED + 1))


FLEET_TAG = "gpuwatch:fleet"  # of a machine: with the name of a fleet it enrols it there
FOREIGN = "(not ours)"  # among the tags of terms: the mark of machines that are not ours


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a machine was billed under: its labels, and its price with its source. None is an unknown price.

    `cloud` is its name in the settings, "" where they name none; None, as a `provider` of None: not known. `tags` has
    FOREIGN where the machine was not ours, with the fleet that its own tag named.
    """

    pool: str
    owner: str | None
    account: str | None
    region: str
    instance_type: str
    capacity_type: str
    gpus: int
    usd_per_hour: Decimal | None
    price_as_of: date | None
    price_source: str | None
    tags: tuple[tuple[str, str], ...] = ()
    cloud: str | None = None
    provider: str | None = None

    @property
    def foreign(self) -> str | None:
        """The fleet that a machine names which was not ours, "" where it named none; None: it was ours."""
        return next((named for name, named in self.tags if name == FOREIGN), None)


# In the place of a namespace: GPUs that no pod requests, and time in which nobody knows which pod had them.
UNALLOCATED = "(unallocated)"
NOT_SEEN = "(not known)"


@dataclass(frozen=True, slots=True)
class Holder:
    """Who held GPUs of a Kubernetes cluster: a workload, or UNALLOCATED or NOT_SEEN as `namespace`.

    `owner` is the person or team that the workload, or its namespace, names.
    """

    cluster: str
    namespace: str
    kind: str = ""
    name: str = ""
    owner: str | None = None

    @property
    def workload(self) -> str:
        """Return its kind and name, such as `Notebook team-a/alice`."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.kind else self.namespace


@dataclass(frozen=True, slots=True)
class HourKey:
    """Of a row: it begins then and spans so many seconds; `terms` is their number."""

    begin: int
    node_id: str
    terms: int
    span: int


def milliseconds(at: datetime) -> int:
    """Since 1970, of an aware time."""
    return (at - EPOCH) // MS
