"""What is read of the volumes in a pod's specification: where each of them comes from.

Fields: https://kubernetes.io/docs/reference/kubernetes-api/config-and-storage-resources/volume/
"""

from msgspec import Struct, field


class Mount(Struct, rename="camel"):
    """Where a container sees a volume."""

    name: str = ""
    read_only: bool | None = None


class HostPath(Struct):
    """A path of the machine itself."""

    path: str = ""
    type: str | None = None


class ClaimSource(Struct, rename="camel"):
    """The claim that a volume of a pod is."""

    claim_name: str = ""


class InlineVolume(Struct, rename="camel"):
    """What a CSI driver makes for a pod alone."""

    driver: str = ""
    read_only: bool | None = None


class Volume(Struct, rename="camel"):
    """A volume of a pod; one without any source is an emptyDir."""

    name: str = ""
    empty_dir: dict[str, object] | None = None
    ephemeral: dict[str, object] | None = None
    host_path: HostPath | None = None
    claim: ClaimSource | None = field(name="persistentVolumeClaim", default=None)
    csi: InlineVolume | None = None
    # Made of objects of the API server, or an image.
    config_map: object = None
    secret: object = None
    projected: object = None
    downward: object = field(name="downwardAPI", default=None)
    image: object = None
    # On machines of others.
    nfs: object = None
    cephfs: object = None
    glusterfs: object = None
    rbd: object = None
    iscsi: object = None
    fc: object = None
    azure_file: object = None
    azure_disk: object = None
    aws_elastic_block_store: object = field(name="awsElasticBlockStore", default=None)
    gce_persistent_disk: object = field(name="gcePersistentDisk", default=None)
    cinder: object = None
    vsphere_volume: object = None

    @property
    def is_elsewhere(self) -> bool:
        """Whether what it shows is kept on no node of the cluster."""
        made = (self.config_map, self.secret, self.projected, self.downward, self.image)
        files = (self.nfs, self.cephfs, self.glusterfs, self.azure_file)
        return self.is_network_disk or any(each is not None for each in (*made, *files))

    @property
    def is_network_disk(self) -> bool:
        """Whether it is a disk that one machine at a time has, named in the pod itself."""
        disks = (self.rbd, self.iscsi, self.fc, self.azure_disk, self.cinder, self.vsphere_volume)
        return any(each is not None for each in (*disks, self.aws_elastic_block_store, self.gce_persistent_disk))
