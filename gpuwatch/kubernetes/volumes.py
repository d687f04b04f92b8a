"""PURE: which volumes of a pod hold data that goes with its machine, by what the pod itself says.

What is neither known to be elsewhere nor known to hold nothing is data: cluster-autoscaler asks of emptyDir and
hostPath alone (simulator/drainability/rules/localstorage), and of claims nothing but where they can be mounted.
Claims are looked up by `gpuwatch.kubernetes.claims`.
"""

from collections.abc import Collection, Iterator

from gpuwatch.kubernetes.objects import Container, PodSpec
from gpuwatch.kubernetes.volume_sources import HostPath, Volume
from gpuwatch.model.bounds import bounded_name

# A mark of cluster-autoscaler: the names of local volumes of a pod that may be lost with it, with commas between.
SAFE_LOCAL_VOLUMES = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
# Paths of a host that hold nothing of anybody's, with all below them: the kernel's own file systems, what is made anew
# at each boot, and what comes with the machine's image.
_OF_THE_HOST = (
    *("/dev", "/proc", "/sys", "/run", "/var/run"),
    *("/boot", "/lib/modules", "/usr/lib", "/usr/share", "/usr/src", "/usr/bin"),
    *("/etc/localtime", "/etc/timezone", "/etc/machine-id", "/etc/os-release", "/etc/hostname", "/etc/resolv.conf"),
    *("/etc/ssl/certs", "/etc/pki/ca-trust", "/etc/ca-certificates"),
)
_DISKS = ("/dev/sd", "/dev/vd", "/dev/xvd", "/dev/nvme", "/dev/md", "/dev/dm-", "/dev/mapper/", "/dev/disk/")
# Where pods of DaemonSets write what a new machine of the same kind makes again: sockets and states of the kubelet, of
# the network, of the container runtime, logs.
_OF_EACH_NODE = (
    *("/var/lib/kubelet", "/var/lib/cni", "/etc/cni", "/opt/cni", "/var/lib/calico", "/var/lib/cilium"),
    *("/var/lib/containerd", "/var/lib/docker/containers", "/var/lib/containers", "/etc/kubernetes", "/var/log"),
    *("/usr/local/nvidia", "/opt/nvidia", "/usr/local/vgpu", "/home/kubernetes/bin"),
    # How far a shipper of logs has read them.
    *("/var/lib/vector", "/var/lib/filebeat-data", "/var/lib/datadog-agent", "/var/lib/fluent-bit", "/var/fluent-bit"),
)
# Inline volumes of CSI drivers that hold secrets, or show what is kept elsewhere.
_NO_DATA_DRIVERS = frozenset(
    {
        *("secrets-store.csi.k8s.io", "csi.cert-manager.io", "csi.spiffe.io", "csi.trust-manager.io"),
        *("gcsfuse.csi.storage.gke.io", "parallelstore.csi.storage.gke.io", "file.csi.azure.com"),
        *("blob.csi.azure.com", "nfs.csi.k8s.io", "smb.csi.k8s.io", "efs.csi.aws.com", "image.csi.k8s.io"),
    }
)


def local_data(spec: PodSpec, safe: str | None) -> str | None:
    """The names of the volumes that would be lost with a pod, each with why; `safe` is the value of its mark."""
    released = frozenset(each.strip() for each in (safe or "").split(","))
    found = [
        f"{bounded_name(volume.name)}{what}"
        for volume in spec.volumes or ()
        if volume.name not in released and (what := _data(volume)) is not None
    ]
    return ", ".join(found) or None


def data_of_daemon(spec: PodSpec, safe: str | None) -> str | None:
    """The same of a pod of a DaemonSet, which no drain moves: paths of its host that it may write data to."""
    released = frozenset(each.strip() for each in (safe or "").split(","))
    writable = set(_writable(spec))
    found = [
        f"{bounded_name(volume.name)} (hostPath {bounded_name(volume.host_path.path)})"
        for volume in spec.volumes or ()
        if volume.host_path is not None and volume.name in writable and volume.name not in released
        if _holds_data(volume.host_path) and not _is_below(_plain(volume.host_path.path), _OF_EACH_NODE)
    ]
    return ", ".join(found) or None


def claims_of(spec: PodSpec) -> tuple[tuple[str, str], ...]:
    """The volumes of a pod that are claims, each as its name and the claim's."""
    return tuple((volume.name, volume.claim.claim_name) for volume in spec.volumes or () if volume.claim is not None)


def _data(volume: Volume) -> str | None:
    """What of a volume would be lost, to be said after its name; None: nothing, or its claim has to be looked at."""
    if volume.claim is not None:
        return None
    if volume.ephemeral is not None:
        return ""
    if volume.empty_dir is not None:
        # One of memory (/dev/shm) is a process's memory under another name.
        medium = str(volume.empty_dir.get("medium") or "")
        return None if medium == "Memory" or medium.startswith("HugePages") else ""
    if volume.host_path is not None:
        return f" (hostPath {bounded_name(volume.host_path.path)})" if _holds_data(volume.host_path) else None
    if volume.csi is not None:
        driver = volume.csi.driver
        return None if driver in _NO_DATA_DRIVERS or volume.csi.read_only else f" (of {bounded_name(driver)})"
    return None if volume.is_elsewhere else " (of a kind that gpuwatch does not know)"


def _holds_data(host: HostPath) -> bool:
    """Whether a path of the host may hold data of somebody's."""
    path = _plain(host.path)
    if ".." in path.split("/") or host.type == "BlockDevice" or path.startswith(_DISKS):
        return True
    return not _is_below(path, _OF_THE_HOST)


def _plain(path: str) -> str:
    return f"/{'/'.join(each for each in path.split('/') if each)}"


def _is_below(path: str, places: Collection[str]) -> bool:
    return any(path == each or path.startswith(f"{each}/") for each in places)


def _writable(spec: PodSpec) -> Iterator[str]:
    """The names of the volumes that any container of a pod may write to."""
    containers: list[Container] = [*(spec.containers or ()), *(spec.init_containers or ())]
    for container in [*containers, *(spec.ephemeral_containers or ())]:
        yield from (mount.name for mount in container.volume_mounts or () if not mount.read_only)
