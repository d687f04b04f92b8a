"""What is read of persistent volumes and their claims; all else in them is skipped while they are decoded."""

from msgspec import Struct, field

from gpuwatch.kubernetes.objects import NodeSelector, ObjectMeta
from gpuwatch.kubernetes.volume_sources import HostPath, InlineVolume


class ObjectReference(Struct):
    """The claim that a persistent volume is bound to."""

    namespace: str = ""
    name: str = ""


class VolumeAffinity(Struct):
    """Where a persistent volume can be mounted."""

    required: NodeSelector | None = None


class PersistentVolumeSpec(Struct, rename="camel"):
    """The specification of a persistent volume."""

    claim_ref: ObjectReference | None = None
    reclaim_policy: str = field(name="persistentVolumeReclaimPolicy", default="")
    node_affinity: VolumeAffinity | None = None
    host_path: HostPath | None = None
    local: dict[str, object] | None = None
    csi: InlineVolume | None = None


class ClaimSpec(Struct, rename="camel"):
    """The specification of a claim."""

    volume_name: str = ""
    access_modes: list[str] | None = None


class Phase(Struct):
    """The status of a persistent volume or a claim."""

    phase: str = ""


class PersistentVolumeObject(Struct):
    """A volume as the API server shows it (v1 PersistentVolume)."""

    metadata: ObjectMeta
    spec: PersistentVolumeSpec | None = None
    status: Phase | None = None


class ClaimObject(Struct):
    """A claim as the API server shows it (v1 PersistentVolumeClaim)."""

    metadata: ObjectMeta
    spec: ClaimSpec | None = None
    status: Phase | None = None
