"""The section `kubernetes`: which cluster, how its API server is reached, and what counts there as a GPU.

urllib3, which comes with the extra `kubernetes`, is loaded only by the calls that need it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Annotated, ClassVar

from annotated_types import Ge, Gt, Le, MaxLen, MinLen

from gpuwatch.kubernetes import ConnectedCluster
from gpuwatch.model.duration import Seconds, format_duration
from gpuwatch.model.setting import STRICT, Contradiction, Setting
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.installed import MissingExtraError, install_command

_Text = Annotated[str, MinLen(1)]
# Where the chart, the GPU operator and Kubernetes itself put what serves the cluster.
SYSTEM_NAMESPACES = ("kube-system", "kube-node-lease", "gpu-operator", "nvidia-gpu-operator", "gpuwatch")
# Each unit of these is a GPU, or with `*` a part of one: of a MIG part its sevenths.
GPU_RESOURCES = ("nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-*", "amd.com/gpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesSettings:
    """The cluster that the fleet's machines are nodes of. Without `in_cluster` or `kubeconfig` none is looked at."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    name: Annotated[_Text, MaxLen(256), Setting("The cluster's name in messages, metrics and records.")] = "kubernetes"
    in_cluster: Annotated[
        bool, Setting("The controller runs in this cluster, and shows the token of its own service account.")
    ] = False
    kubeconfig: Annotated[
        _Text | None, Setting("The file with the API server's address and the credentials, as kubectl reads it.")
    ] = None
    context: Annotated[_Text | None, Setting("The context of the kubeconfig; none given: its current one.")] = None
    timeout: Annotated[
        Seconds, Gt(0), Le(120), Setting("The API server answers a call, and a credential plugin ends, within this.")
    ] = 10.0
    max_silence: Annotated[
        Seconds,
        Ge(10),
        Le(600),
        Setting("After this long without a word about nodes, pods or owners none of its nodes is removed."),
    ] = 30.0
    pools: Annotated[
        tuple[_Text, ...],
        Setting(
            "Pools with machines that may be nodes of this cluster: while it is silent, they are left alone. None: all."
        ),
    ] = ()
    system_namespaces: Annotated[
        tuple[_Text, ...],
        Setting("Namespaces of pods that serve the cluster: these count neither as use nor as demand."),
    ] = SYSTEM_NAMESPACES
    gpu_resources: Annotated[
        tuple[_Text, ...],
        MinLen(1),
        Setting("Resources that are GPUs, each unit one; nvidia.com/mig-* counts by its sevenths of a GPU."),
    ] = GPU_RESOURCES

    @property
    def configured(self) -> bool:
        """Whether a cluster is to be looked at."""
        return self.in_cluster or self.kubeconfig is not None

    def connect(self, clock: Clock) -> ConnectedCluster:
        """The cluster; nothing is sent yet.

        Raises:
            CloudError: there are no credentials, or they cannot be used.
            ImportError: the extra is not installed.

        """
        try:
            made: ConnectedCluster = resolve_name("gpuwatch.kubernetes.cluster:ApiCluster").from_settings(self, clock)
        except ImportError as error:
            hint = f"the section kubernetes needs its extra: {install_command('kubernetes')} ({error})"
            raise MissingExtraError(hint, name=error.name) from error
        return made


def contradictions(settings: KubernetesSettings) -> Iterator[Contradiction]:
    """Mistakes that no single key's bounds show."""
    if settings.in_cluster and settings.kubeconfig is not None:
        yield Contradiction(
            keys=(("kubernetes", "kubeconfig"), ("kubernetes", "in_cluster")),
            wrong="kubernetes.in_cluster and kubernetes.kubeconfig are two ways to the API server",
            right="one of them",
        )
    if settings.context is not None and settings.kubeconfig is None:
        yield Contradiction(
            keys=(("kubernetes", "context"),),
            wrong="kubernetes.context names a context of a kubeconfig, and kubernetes.kubeconfig is not set",
            right="the file in kubernetes.kubeconfig, or no context",
        )
    if not settings.configured and settings != KubernetesSettings():
        yield Contradiction(
            keys=(("kubernetes",),),
            wrong="the section kubernetes does not say where the API server is",
            right="in_cluster: true, or a file in kubeconfig",
        )
    if settings.configured and settings.max_silence < settings.timeout:
        silence, timeout = format_duration(settings.max_silence), format_duration(settings.timeout)
        yield Contradiction(
            keys=(("kubernetes", "max_silence"), ("kubernetes", "timeout")),
            wrong=f"kubernetes.max_silence ({silence}) is shorter than kubernetes.timeout ({timeout}): "
            "one slow answer would count as silence",
            right=f"at least {timeout}",
        )
