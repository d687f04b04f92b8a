"""What is read of the API server's objects; all else in them is skipped while they are decoded.

Fields: https://kubernetes.io/docs/reference/kubernetes-api/. A field may be missing or null at any time.
"""

from msgspec import Raw, Struct, field

from gpuwatch.kubernetes.volume_sources import Mount, Volume
from gpuwatch.model.bounds import BoundedInt

Texts = dict[str, str]


class ListMeta(Struct, rename="camel"):
    """Of a page of a list."""

    resource_version: str = ""
    next_page: str = field(name="continue", default="")


class Page(Struct):
    """A page of any list; each item is still JSON."""

    metadata: ListMeta
    items: list[Raw] | None = None
    kind: str = ""

    @property
    def whole(self) -> bool:
        """Whether it is a list at all, as of some version. What a proxy makes up shows nothing, which is not nobody."""
        return self.kind.endswith("List") and bool(self.metadata.resource_version)


class Event(Struct):
    """A line of a watch: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."""

    type: str
    object: Raw


class OwnerReference(Struct, rename="camel", frozen=True):
    """Who made an object, or would make it again: `controller`."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None


class ObjectMeta(Struct, rename="camel"):
    """The metadata of any object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: BoundedInt = 0
    labels: Texts | None = None
    annotations: Texts | None = None
    owner_references: list[OwnerReference] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class Described(Struct):
    """Any object's metadata alone: PartialObjectMetadata."""

    metadata: ObjectMeta


class Taint(Struct, rename="camel", omit_defaults=True):
    """What keeps pods away that do not tolerate it."""

    key: str = ""
    value: str | None = None
    effect: str = ""
    time_added: str | None = None


class NodeSpec(Struct, rename="camel"):
    """The specification of a node."""

    provider_id: str | None = field(name="providerID", default=None)
    unschedulable: bool | None = None
    taints: list[Taint] | None = None


class Condition(Struct):
    """Of a node or a pod."""

    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None


class Address(Struct):
    """InternalIP, ExternalIP, Hostname, InternalDNS or ExternalDNS."""

    type: str = ""
    address: str = ""


class NodeInfo(Struct):
    """Of a node's system."""

    system_uuid: str = field(name="systemUUID", default="")


class NodeStatus(Struct, rename="camel"):
    """The status of a node."""

    allocatable: Texts | None = None
    capacity: Texts | None = None
    conditions: list[Condition] | None = None
    addresses: list[Address] | None = None
    node_info: NodeInfo | None = None


class NodeObject(Struct):
    """A node as the API server shows it (v1 Node)."""

    metadata: ObjectMeta
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


class Resources(Struct):
    """The resources that a container requests."""

    requests: Texts | None = None
    limits: Texts | None = None


class SecurityContext(Struct):
    """Whether a container has all devices of its machine."""

    privileged: bool | None = None


class Variable(Struct):
    """A variable of a container's environment, without its value."""

    name: str = ""


class Port(Struct, rename="camel"):
    """A port of a container; `host_port` is taken of its node."""

    host_port: BoundedInt | None = None
    protocol: str | None = None


class Container(Struct, rename="camel"):
    """Of a pod; an init container that restarts always is a sidecar."""

    resources: Resources | None = None
    restart_policy: str | None = None
    volume_mounts: list[Mount] | None = None
    security_context: SecurityContext | None = None
    env: list[Variable] | None = None
    name: str = ""
    ports: list[Port] | None = None


class Toleration(Struct):
    """A taint that a pod can bear."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class Claim(Struct, rename="camel"):
    """Of devices by Dynamic Resource Allocation: a claim of that name, or one that is made for the pod."""

    name: str = ""
    resource_claim_name: str | None = None


class ExtendedClaim(Struct, rename="camel"):
    """The claim that the scheduler made for requests of an extended resource."""

    resource_claim_name: str | None = None


class Term(Struct, rename="camel"):
    """A requirement of a node selector term."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class SelectorTerm(Struct, rename="camel"):
    """One of several alternatives."""

    match_expressions: list[Term] | None = None
    match_fields: list[Term] | None = None


class NodeSelector(Struct, rename="camel"):
    """Alternatives of which one has to hold."""

    node_selector_terms: list[SelectorTerm] | None = None


class LabelSelector(Struct, rename="camel", frozen=True):
    """The pods that something is of: all of it has to hold."""

    match_labels: Texts | None = None
    match_expressions: list[Term] | None = None


class PodAffinityTerm(Struct, rename="camel"):
    """Pods that a pod has to be next to, or apart from, by a label of their nodes."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None


class PodAffinity(Struct):
    """The affinity, or the anti-affinity, of a pod to others."""

    required: list[PodAffinityTerm] | None = field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)


class SpreadConstraint(Struct, rename="camel"):
    """How evenly pods are spread over the values of a label of their nodes."""

    max_skew: BoundedInt = 1
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: BoundedInt | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None


class NodeAffinity(Struct):
    """The node affinity of a pod."""

    required: NodeSelector | None = field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)


class Affinity(Struct, rename="camel"):
    """The affinity of a pod."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class PodSpec(Struct, rename="camel"):
    """The specification of a pod."""

    node_name: str = ""
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    ephemeral_containers: list[Container] | None = None
    resources: Resources | None = None
    overhead: Texts | None = None
    scheduler_name: str = ""
    topology_spread_constraints: list[SpreadConstraint] | None = None
    volumes: list[Volume] | None = None
    resource_claims: list[Claim] | None = None
    node_selector: Texts | None = None
    affinity: Affinity | None = None
    tolerations: list[Toleration] | None = None
    scheduling_group: dict[str, object] | None = None


class Allocated(Struct, rename="camel"):
    """What a container, or a pod as a whole, was promised and has after it was resized in place."""

    allocated_resources: Texts | None = None
    resources: Resources | None = None


class ContainerStatus(Allocated):
    """The same of a container by its name."""

    name: str = ""


class PodStatus(Allocated):
    """The status of a pod."""

    phase: str = ""
    nominated_node_name: str | None = None
    conditions: list[Condition] | None = None
    resource_claim_statuses: list[Claim] | None = None
    extended_resource_claim_status: ExtendedClaim | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None


class PodObject(Struct):
    """A pod as the API server shows it (v1 Pod)."""

    metadata: ObjectMeta
    spec: PodSpec | None = None
    status: PodStatus | None = None


class FailureRule(Struct, rename="camel"):
    """What a Job makes of a pod that failed; the first that fits holds."""

    action: str = ""
    on_pod_conditions: list[Condition] | None = None
    on_exit_codes: dict[str, object] | None = None


class FailurePolicy(Struct):
    """The pod failure policy of a Job."""

    rules: list[FailureRule] | None = None


class JobSpec(Struct, rename="camel"):
    """When a Job fails for good."""

    backoff_limit: BoundedInt | None = None
    backoff_limit_per_index: BoundedInt | None = None
    pod_failure_policy: FailurePolicy | None = None


class JobStatus(Struct):
    """How many of its pods have failed."""

    failed: BoundedInt | None = None


class JobObject(Struct):
    """A Job as the API server shows it (batch/v1 Job)."""

    metadata: ObjectMeta
    spec: JobSpec | None = None
    status: JobStatus | None = None


class BudgetSpec(Struct, rename="camel"):
    """The specification of a PodDisruptionBudget."""

    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str | None = None


class BudgetStatus(Struct, rename="camel"):
    """The same, as its controller has counted."""

    disruptions_allowed: BoundedInt = 0
    current_healthy: BoundedInt = 0
    desired_healthy: BoundedInt = 0


class BudgetObject(Struct):
    """A budget as the API server shows it (policy/v1 PodDisruptionBudget)."""

    metadata: ObjectMeta
    spec: BudgetSpec | None = None
    status: BudgetStatus | None = None


class ApiResource(Struct):
    """A kind that the API server knows, with the name of its path."""

    name: str
    kind: str
    namespaced: bool = True


class ApiResources(Struct):
    """APIResourceList: what a version of a group has."""

    resources: list[ApiResource] | None = None


class ReviewStatus(Struct):
    """The status of a SelfSubjectAccessReview."""

    allowed: bool = False


class AccessReview(Struct):
    """The answer whether we may do something (authorization.k8s.io/v1 SelfSubjectAccessReview)."""

    status: ReviewStatus | None = None


class Version(Struct, rename="camel"):
    """Of the API server."""

    git_version: str = ""
