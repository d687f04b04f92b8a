"""What is read of Dynamic Resource Allocation (resource.k8s.io), in all versions served.

v1 and v1beta2 have the same fields; v1beta1 has those of a request and of a device one level higher or lower.
https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/
"""

from msgspec import Raw, Struct, field

from gpuwatch.kubernetes.objects import ObjectMeta
from gpuwatch.model.bounds import BoundedInt


class Request(Struct, rename="camel"):
    """How many devices of a class, or all of a node: a request, one of its alternatives, or a part of either."""

    name: str = ""
    device_class_name: str = ""
    allocation_mode: str | None = None
    count: BoundedInt | None = None
    admin_access: bool | None = None
    selectors: "list[Selector] | None" = None
    capacity: Raw | None = None
    exactly: "Request | None" = None
    first_available: "list[Request] | None" = None


class Requests(Struct):
    """The devices of a claim; `constraints`: they have to have something in common."""

    requests: list[Request] | None = None
    constraints: list[Raw] | None = None


class ClaimSpec(Struct):
    """The specification of a claim."""

    devices: Requests | None = None


class Result(Struct, rename="camel"):
    """One device that was allocated, for a request or `request/alternative`."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None


class Results(Struct):
    """All devices that were allocated."""

    results: list[Result] | None = None


class Allocation(Struct):
    """What a claim was given."""

    devices: Results | None = None


class Consumer(Struct):
    """Who uses a claim."""

    resource: str = ""
    uid: str = ""


class ClaimStatus(Struct, rename="camel"):
    """The status of a claim."""

    allocation: Allocation | None = None
    reserved_for: list[Consumer] | None = None


class ClaimObject(Struct):
    """A ResourceClaim as the API server shows it."""

    metadata: ObjectMeta
    spec: ClaimSpec | None = None
    status: ClaimStatus | None = None


class Expression(Struct):
    """A condition on devices, in CEL."""

    expression: str = ""


class Selector(Struct):
    """The same, where there is one."""

    cel: Expression | None = None


class ClassSpec(Struct, rename="camel"):
    """The specification of a class."""

    selectors: list[Selector] | None = None
    extended_resource_name: str | None = None


class ClassObject(Struct):
    """A DeviceClass as the API server shows it."""

    metadata: ObjectMeta
    spec: ClassSpec | None = None


class Attribute(Struct):
    """One fact on a device."""

    string: str | None = None
    flag: bool | None = field(name="bool", default=None)
    number: BoundedInt | None = field(name="int", default=None)


class Basic(Struct, rename="camel"):
    """The facts on a device, where v1beta1 has them; what keeps it from pods is not read, but seen to be there."""

    attributes: dict[str, Attribute] | None = None
    taints: list[Raw] | None = None
    consumes_counters: list[Raw] | None = None
    allow_multiple_allocations: bool | None = None
    binding_conditions: list[str] | None = None
    node_name: str | None = None
    node_selector: Raw | None = None
    all_nodes: bool | None = None


class Device(Basic, rename="camel"):
    """A device of a pool."""

    name: str = ""
    basic: Basic | None = None


class DevicePool(Struct, rename="camel"):
    """Which pool, which of its generations (an older one counts no more), and how many slices of that there are."""

    name: str = ""
    generation: BoundedInt = 0
    resource_slice_count: BoundedInt = 1


class SliceSpec(Struct, rename="camel"):
    """The specification of a slice."""

    driver: str = ""
    node_name: str | None = None
    pool: DevicePool = field(default_factory=DevicePool)
    devices: list[Device] | None = None


class SliceObject(Struct):
    """A ResourceSlice as the API server shows it."""

    metadata: ObjectMeta
    spec: SliceSpec | None = None


class TaintSelector(Struct):
    """Which devices a rule is for; v1alpha3 had two conditions more, which are not read."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaint(Struct):
    """What a rule taints them with: NoSchedule, NoExecute, or None, which only says what it would do."""

    effect: str = ""


class TaintRuleSpec(Struct):
    """The specification of a rule; without a selector it is for no device."""

    selector: TaintSelector | None = field(name="deviceSelector", default=None)
    taint: DeviceTaint = field(default_factory=DeviceTaint)


class TaintRuleObject(Struct):
    """A DeviceTaintRule as the API server shows it."""

    metadata: ObjectMeta
    spec: TaintRuleSpec | None = None
