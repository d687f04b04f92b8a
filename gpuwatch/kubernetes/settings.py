"""The section `kubernetes`: which cluster, how its API server is reached, and what counts there as a GPU.

urllib3, which comes with the extra `kubernetes`, is loaded only by the calls that need it.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pkgutil import resolve_name
from typing import Annotated, ClassVar

from annotated_types import Ge, Gt, Le, MaxLen, MinLen

from gpuwatch.kubernetes import ConnectedCluster
from gpuwatch.model.duration import Seconds, format_duration
from gpuwatch.model.setting import STRICT, Contradiction, Setting
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.installed import MissingExtraError, install_command

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,62}[a-z0-9])?")
_Text = Annotated[str, MinLen(1)]
# Where the chart, the GPU operator and Kubernetes itself put what serves the cluster.
SYSTEM_NAMESPACES = ("kube-system", "kube-node-lease", "gpu-operator", "nvidia-gpu-operator", "gpuwatch")
# Each unit of these is a GPU, or with `*` a part of one: of a MIG part its slices.
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
        Setting("Resources that are GPUs, each unit one; nvidia.com/mig-* counts by its slices of a GPU."),
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


def by_name(clusters: Mapping[str, KubernetesSettings]) -> dict[str, KubernetesSettings]:
    """Those that are to be looked at; one of several is called by its key, whatever its own `name`."""
    return {key or each.name: replace(each, name=key or each.name) for key, each in clusters.items() if each.configured}


def of_several(clusters: Mapping[str, KubernetesSettings]) -> Iterator[Contradiction]:
    """Mistakes in the clusters with names: in each by itself, in names, and in two ways into one cluster."""
    inside = [name for name, each in clusters.items() if each.in_cluster]
    for name in inside[1:]:
        yield Contradiction(
            keys=(("kubernetes", name, "in_cluster"),),
            wrong=f"kubernetes.{inside[0]} and kubernetes.{name} are both the cluster that the controller runs in",
            right="in_cluster: true once, and a file in kubeconfig for each of the others",
        )
    for name, each in clusters.items():
        here = ("kubernetes", name)
        yield from contradictions(each, here)
        if not _NAME.fullmatch(name):
            wrong, right = f"{name!r} is no name of a cluster", "1 to 64 of a-z, 0-9, . and -, such as prod-eu"
            yield Contradiction(keys=(here,), wrong=wrong, right=right)
        if each.name not in {KubernetesSettings().name, name}:
            wrong = f"kubernetes.{name}.name is {each.name!r}: it is called {name}"
            yield Contradiction(keys=((*here, "name"),), wrong=wrong, right="no name: the key is its name")
        if not each.configured and each == KubernetesSettings():
            wrong = f"kubernetes.{name} does not say where the API server is"
            yield Contradiction(keys=(here,), wrong=wrong, right="in_cluster: true, or a file in kubeconfig")


def contradictions(settings: KubernetesSettings, here: tuple[str, ...] = ("kubernetes",)) -> Iterator[Contradiction]:
    """Mistakes that no single key's bounds show; the settings are written under the keys `here`."""
    section = ".".join(here)
    if settings.in_cluster and settings.kubeconfig is not None:
        yield Contradiction(
            keys=((*here, "kubeconfig"), (*here, "in_cluster")),
            wrong=f"{section}.in_cluster and {section}.kubeconfig are two ways to the API server",
            right="one of them",
        )
    if settings.context is not None and settings.kubeconfig is None:
        yield Contradiction(
            keys=((*here, "context"),),
            wrong=f"{section}.context names a context of a kubeconfig, and {section}.kubeconfig is not set",
            right=f"the file in {section}.kubeconfig, or no context",
        )
    if not settings.configured and settings != KubernetesSettings():
        yield Contradiction(
            keys=(here,),
            wrong=f"the section {section} does not say where the API server is",
            right="in_cluster: true, or a file in kubeconfig",
        )
    if settings.configured and settings.max_silence < settings.timeout:
        silence, timeout = format_duration(settings.max_silence), format_duration(settings.timeout)
        yield Contradiction(
            keys=((*here, "max_silence"), (*here, "timeout")),
            wrong=f"{section}.max_silence ({silence}) is shorter than {section}.timeout ({timeout}): "
            "one slow answer would count as silence",
            right=f"at least {timeout}",
        )
