"""What a pool says of nodes that are in a Kubernetes cluster."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt

from gpuwatch.model.duration import Seconds
from gpuwatch.model.setting import STRICT, Floor, Setting
from gpuwatch.policies.kubernetes.idle_pods_settings import IdlePodRules


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesRules:
    """One pool's nodes in a cluster. Nothing of it holds for machines that are in none."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    node_owner: Annotated[
        Literal["nobody", "gpuwatch", "cluster-autoscaler", "karpenter"],
        Setting(
            "Who removes the pool's Kubernetes nodes. gpuwatch does only where this says gpuwatch and a node's labels "
            "name nobody else; otherwise it shows what is idle, and leaves them alone."
        ),
    ] = "nobody"
    drain_timeout: Annotated[
        Seconds,
        Gt(0),
        Floor(60),
        Setting(
            "How long after its cordon a node may take to be drained. A node that still has pods then is uncordoned "
            "and kept."
        ),
    ] = 900.0
    drain_rest: Annotated[
        Seconds,
        Ge(0),
        Floor(600, or_none=True),
        Setting("After a cordon was undone, its node has no notice and no new cordon for this long."),
    ] = 3600.0
    mark_busy: Annotated[
        bool,
        Setting(
            "Where cluster-autoscaler or karpenter removes the pool's nodes: nodes that work, or that somebody keeps, "
            "get the annotation by which it leaves them alone, until they are proven idle."
        ),
    ] = False
    bare_pods: Annotated[
        Literal["keep", "evict"],
        Setting(
            "Pods that nothing would make again: keep leaves a node alone while it has one, evict ends them by a drain."
        ),
    ] = "keep"
    pods: Annotated[IdlePodRules, Setting("What happens to pods that hold the pool's GPUs without use.")] = field(
        default_factory=IdlePodRules
    )

    @property
    def without_cluster(self) -> str | None:
        """The key that has no effect where no cluster is in the settings; None: none has."""
        if self.node_owner != "nobody":
            return "node_owner"
        return None if self.pods == IdlePodRules() else "pods"
