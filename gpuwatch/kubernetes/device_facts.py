"""PURE: what one claim, class, slice or rule of Dynamic Resource Allocation says.

`devices.py` has the rules of what they mean together.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from sys import intern

from gpuwatch.kubernetes.device_objects import (
    Attribute,
    Basic,
    ClaimObject,
    ClassObject,
    Device,
    Request,
    Requests,
    Selector,
    SliceObject,
    TaintRuleObject,
)
from gpuwatch.kubernetes.facts import version_of
from gpuwatch.kubernetes.gpu_requests import mig_share

_NO_GPU = re.compile(
    r"dra\.net|compute-domain[.-].*|(?:.*[.-])?(?:cpu|nic|rdma|sriov[a-z]*|sr-iov|tpu|neuron|fpga)(?:[.-].*)?"
)
_TYPES_OF_GPUS = frozenset({"gpu", "mig", "vfio"})
_OF_NETWORKS = frozenset({"ifName", "rdma", "mac", "mtu", "linkType"})  # attributes that no GPU has
_DRIVER = re.compile(r"device\.driver\s*==\s*[\"']([^\"']{1,253})[\"']")
_MOST_COUNT = 512
DeviceKey = tuple[str, str, str]  # driver, pool, name


@dataclass(frozen=True, slots=True)
class WantedDevices:
    """A request: as many of one of these classes, which meet all of the selectors."""

    alternatives: tuple[tuple[str, int | None], ...]  # None: all of a node
    selectors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceClaimFacts:
    """Of one claim. `devices` None: nothing was allocated yet. `users` are uids of pods.

    `odd` is what it asks for besides numbers of devices, as a clause.
    """

    namespace: str
    name: str
    uid: str
    version: int
    wants: tuple[WantedDevices, ...]
    devices: frozenset[DeviceKey] | None
    users: frozenset[str]
    odd: str | None = None


@dataclass(frozen=True, slots=True)
class ClassFacts:
    """Of one class: its driver, None where its selectors name none; `extended` is the resource that it stands for."""

    name: str
    uid: str
    version: int
    driver: str | None
    selectors: tuple[str, ...] = ("",)  # nobody knows what this one selects
    extended: str | None = None


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """Of one device: how much of a GPU it is, and the uuid of that GPU.

    `plain`: nothing but a claim on it keeps it from a pod of its node.
    """

    name: str
    gpus: float
    uuid: str | None
    part: bool
    plain: bool = False
    attributes: Mapping[str, str | bool | int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SliceFacts:
    """Of some devices of a pool; `slices` is how many of them it says it has."""

    uid: str
    version: int
    driver: str
    pool: str
    generation: int
    node: str | None
    devices: tuple[DeviceFacts, ...]
    slices: int = 1


@dataclass(frozen=True, slots=True)
class TaintRuleFacts:
    """Which devices one DeviceTaintRule taints: None is all; of conditions that gpuwatch does not read, all."""

    uid: str
    version: int
    driver: str | None
    pool: str | None
    device: str | None

    def taints(self, key: DeviceKey) -> bool:
        """Whether it taints a device."""
        return all(mine in {None, its} for mine, its in zip((self.driver, self.pool, self.device), key, strict=True))


def claim_facts(claim: ClaimObject) -> DeviceClaimFacts:
    """What a claim asks for, and was given."""
    meta, status = claim.metadata, claim.status
    wanted = (claim.spec.devices if claim.spec is not None else None) or Requests()
    asked = wanted.requests or ()
    given = status.allocation.devices if status is not None and status.allocation is not None else None
    allocated = status is not None and status.allocation is not None
    watching = {each.name for each in asked if (each.exactly or each).admin_access}
    users = (status.reserved_for if status is not None else None) or ()
    return DeviceClaimFacts(
        namespace=intern(meta.namespace),
        name=meta.name,
        uid=meta.uid,
        version=version_of(meta),
        wants=tuple(wants for each in asked if (wants := _wanted_by(each)) is not None),
        devices=frozenset(
            (intern(each.driver), each.pool, each.device)
            for each in ((given.results if given is not None else None) or ())
            if not each.admin_access and each.request.partition("/")[0] not in watching
        )
        if allocated
        else None,
        users=frozenset(each.uid for each in users if each.resource == "pods"),
        odd=_oddity(wanted),
    )


def class_facts(kind: ClassObject) -> ClassFacts:
    """Of a class (rule 4)."""
    selectors = (kind.spec.selectors if kind.spec is not None else None) or ()
    named = [found[1] for each in selectors if each.cel and (found := _DRIVER.search(each.cel.expression))]
    meta = kind.metadata
    return ClassFacts(
        name=meta.name,
        uid=meta.uid,
        version=version_of(meta),
        driver=named[0] if named else None,
        selectors=_expressions(selectors),
        extended=kind.spec.extended_resource_name if kind.spec is not None else None,
    )


def slice_facts(slice_: SliceObject) -> SliceFacts | None:
    """Of a slice; None: it has no devices."""
    meta, spec = slice_.metadata, slice_.spec
    if spec is None:
        return None
    return SliceFacts(
        uid=meta.uid,
        version=version_of(meta),
        driver=intern(spec.driver),
        pool=spec.pool.name,
        generation=spec.pool.generation,
        node=intern(spec.node_name) if spec.node_name else None,
        devices=tuple(_device(spec.driver, each) for each in spec.devices or ()),
        slices=spec.pool.resource_slice_count,
    )


def taint_rule_facts(rule: TaintRuleObject) -> TaintRuleFacts | None:
    """Of a rule; None: it taints nothing, or only says what it would do."""
    spec = rule.spec
    if spec is None or spec.selector is None or spec.taint.effect == "None":
        return None
    meta, chosen = rule.metadata, spec.selector
    return TaintRuleFacts(meta.uid, version_of(meta), chosen.driver, chosen.pool, chosen.device)


def is_gpu_driver(driver: str) -> bool | None:
    """Whether devices of a driver are GPUs, by its name; None: nobody knows (rule 3)."""
    if "gpu" in driver.lower():
        return True
    return False if _NO_GPU.fullmatch(driver) else None


def _wanted_by(request: Request) -> WantedDevices | None:
    """A request; None: it wants access for administrators."""
    exact = request.exactly or request
    if request.first_available:
        found = tuple((each.device_class_name, _amount(each)) for each in request.first_available)
        return WantedDevices(alternatives=found)
    alternatives = ((exact.device_class_name, _amount(exact)),)
    return None if exact.admin_access else WantedDevices(alternatives, _expressions(exact.selectors or ()))


def _expressions(selectors: Sequence[Selector]) -> tuple[str, ...]:
    """In CEL; one of another kind is an empty text."""
    return tuple(intern(each.cel.expression) if each.cel is not None else "" for each in selectors)


def _oddity(wanted: Requests) -> str | None:
    """What a claim asks for besides numbers of devices, as a clause."""
    exact = [each.exactly or each for each in wanted.requests or ()]
    cases = {
        "has constraints on its devices": bool(wanted.constraints),
        "names alternatives": any(each.first_available for each in exact),
        "wants access for administrators": any(each.admin_access for each in exact),
        "wants all devices of a node": any(_amount(each) is None for each in exact),
        "wants a part of a device's capacity": any(each.capacity is not None for each in exact),
    }
    return next((why for why, is_so in cases.items() if is_so), None)


def _amount(request: Request) -> int | None:
    if request.allocation_mode == "All":
        return None
    return min(max(1, request.count or 1), _MOST_COUNT)


def _device(driver: str, device: Device) -> DeviceFacts:
    """A device by its attributes; their names may have the driver's domain before them."""
    facts = device if device.basic is None else device.basic
    found = facts.attributes or {}
    kind, profile = _text(found, "type"), _text(found, "profile")
    share = mig_share(profile) if kind == "mig" or profile else None
    is_gpu = is_gpu_driver(driver)
    if is_gpu is None:
        names = {key.rpartition("/")[2] for key in found}
        is_gpu = kind in _TYPES_OF_GPUS if kind else not names & _OF_NETWORKS
    uuid = _text(found, "parentUUID") or _text(found, "uuid") or None
    return DeviceFacts(
        name=device.name,
        gpus=(share or 1.0) if is_gpu else 0.0,
        uuid=uuid if is_gpu else None,
        part=share is not None,
        plain=_is_plain(facts),
        attributes={intern(key): value for key, each in found.items() if (value := _value(each)) is not None},
    )


def _is_plain(facts: Basic) -> bool:
    """Whether nothing but a claim keeps a device from a pod of its node."""
    keeps = (facts.taints, facts.consumes_counters, facts.allow_multiple_allocations, facts.binding_conditions)
    return not any(keeps) and facts.node_name is None and facts.node_selector is None and not facts.all_nodes


def _value(attribute: Attribute) -> str | bool | int | None:
    """What an attribute says; None: a version, or nothing."""
    values = (attribute.string, attribute.flag, attribute.number)
    return next((each for each in values if each is not None), None)


def _text(attributes: Mapping[str, Attribute], name: str) -> str:
    return next((each.string or "" for key, each in attributes.items() if key.rpartition("/")[2] == name), "")
