"""PURE: which GPUs pods have, want, and nodes offer by Dynamic Resource Allocation.

Rules, all of them:

1. A claim that was allocated is as many GPUs as devices of GPUs in it: each device once, a part of MIG by its sevenths,
   a device that several claims share in equal parts. Pods that share a claim divide it. Access for administrators (to
   watch devices) holds none.
2. One that was not is as many as its requests want: of alternatives the fewest; of "all" as many as a node has at most.
3. A device is a GPU, or none, by its driver's name; else by the type that its driver gives it. Of a driver that nobody
   knows each device counts as a GPU: what may be one is never taken for none.
4. A class is of the driver that its selectors, or its name, say.
5. A node offers the devices of GPUs that the newest generation of its pools has; parts count where their GPU is no
   device itself.
6. While nobody may read claims, classes and slices, each claim counts as one GPU.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
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
)
from gpuwatch.kubernetes.facts import version_of
from gpuwatch.kubernetes.gpu_requests import mig_share
from gpuwatch.model.placing import Wanted

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


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDevices:
    """What a pod has, or wants, by its claims: so many GPUs, which these are, and where they may be."""

    gpus: float
    uuids: tuple[str, ...] | None  # None: nobody can tell
    wanted: tuple[tuple[Wanted, ...], ...] = ()


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


def is_gpu_driver(driver: str) -> bool | None:
    """Whether devices of a driver are GPUs, by its name; None: nobody knows (rule 3)."""
    if "gpu" in driver.lower():
        return True
    return False if _NO_GPU.fullmatch(driver) else None


@dataclass(slots=True, kw_only=True)
class Devices:
    """All claims, classes and slices at one moment. `doubt`: why they are not known, as a clause (rule 6)."""

    claims: Mapping[tuple[str, str], DeviceClaimFacts] = field(default_factory=dict)
    classes: Mapping[str, ClassFacts] = field(default_factory=dict)
    slices: Sequence[SliceFacts] = ()
    doubt: str | None = None
    _by_key: Mapping[DeviceKey, DeviceFacts] = field(default_factory=dict)
    _on_node: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # devices by driver, by node
    _gpus_on: Mapping[str, float] = field(default_factory=dict)
    _sharing: Mapping[DeviceKey, int] = field(default_factory=dict)  # claims of a device

    @classmethod
    def from_facts(
        cls,
        claims: Iterable[DeviceClaimFacts],
        classes: Iterable[ClassFacts],
        slices: Sequence[SliceFacts],
        doubt: str | None = None,
    ) -> "Devices":
        """All of these together."""
        known = {(each.namespace, each.name): each for each in claims}
        newest: dict[tuple[str, str], int] = {}
        for each in slices:
            newest[each.driver, each.pool] = max(each.generation, newest.get((each.driver, each.pool), 0))
        current = [each for each in slices if each.generation == newest[each.driver, each.pool]]
        on_node: defaultdict[str, Counter[str]] = defaultdict(Counter)
        gpus_on: defaultdict[str, list[DeviceFacts]] = defaultdict(list)
        for each in current:
            if each.node is not None:
                on_node[each.node][each.driver] += sum(not device.part for device in each.devices) or len(each.devices)
                gpus_on[each.node] += [device for device in each.devices if device.gpus > 0]
        return cls(
            claims=known,
            classes={each.name: each for each in classes},
            slices=current,
            doubt=doubt,
            _by_key={(each.driver, each.pool, device.name): device for each in current for device in each.devices},
            _on_node={
                node: {driver: float(count) for driver, count in found.items()} for node, found in on_node.items()
            },
            _gpus_on={node: _offered_gpus(found) for node, found in gpus_on.items() if found},
            _sharing=Counter(key for each in known.values() for key in each.devices or ()),
        )

    def gpus_on(self, node: str) -> float | None:
        """How many GPUs a node offers to claims; None: none of its devices is one (rule 5)."""
        return self._gpus_on.get(node)

    def is_held(self, key: DeviceKey) -> bool:
        """Whether a claim has a device."""
        return key in self._sharing

    def on_node(self, node: str) -> Mapping[str, float]:
        """How many devices a node has, by driver."""
        return self._on_node.get(node, {})

    def of_pod(self, namespace: str, uid: str, claims: Sequence[str | None]) -> PodDevices:
        """What a pod has or wants by claims of these names; None: the claim was not made yet."""
        gpus, uuids, wanted = 0.0, list[str | None](), list[tuple[Wanted, ...]]()
        for name in claims:
            claim = None if name is None or self.doubt is not None else self.claims.get((namespace, name))
            if claim is None:
                gpus, uuids = gpus + 1.0, [*uuids, None]
            elif claim.devices is None:
                gpus += sum(self._wanted_gpus(each) for each in claim.wants)
                wanted += [self._alternatives(each) for each in claim.wants]
            else:
                held = [(key, self._device(key)) for key in sorted(claim.devices)]
                parts = max(1, len(claim.users)) if uid in claim.users else len(claim.users) + 1
                gpus += sum(device.gpus / max(1, self._sharing.get(key, 1)) for key, device in held) / parts
                uuids += [device.uuid for _, device in held if device.gpus > 0]
        known = [each for each in uuids if each is not None]
        return PodDevices(
            gpus=gpus,
            uuids=tuple(dict.fromkeys(known)) if known and len(known) == len(uuids) else None,
            wanted=tuple(wanted),
        )

    def with_requests(
        self, namespace: str, uid: str, requested: float, claims: Sequence[str | None], extended: str | None
    ) -> PodDevices:
        """The same, with what its containers request; a claim that the scheduler made for that adds nothing to it."""
        found = self.of_pod(namespace, uid, claims)
        stands = None if extended is None else self.of_pod(namespace, uid, (extended,))
        if stands is not None and self.doubt is None and (namespace, extended) in self.claims:
            requested = max(requested, stands.gpus)
        uuids = [each for each in (found, stands) if each is not None and each.gpus > 0]
        known = not (requested > 0 and stands is None) and uuids and all(each.uuids is not None for each in uuids)
        return PodDevices(
            gpus=requested + found.gpus,
            uuids=tuple(uuid for each in uuids for uuid in each.uuids or ()) if known else None,
            wanted=found.wanted,
        )

    def _device(self, key: DeviceKey) -> DeviceFacts:
        """A device; one of a pool that is gone is what its driver's name says."""
        return self._by_key.get(key) or DeviceFacts(
            name=key[2], gpus=0.0 if is_gpu_driver(key[0]) is False else 1.0, uuid=None, part=False
        )

    def _driver(self, kind: str) -> str:
        """The driver of a class; its own name, where its selectors do not say it, or nobody knows the class."""
        found = self.classes.get(kind)
        return kind if found is None or found.driver is None else found.driver

    def _count(self, kind: str, count: int | None) -> float:
        """How many devices a request wants (rule 2)."""
        if count is not None:
            return float(count)
        return max((each.get(self._driver(kind), 0.0) for each in self._on_node.values()), default=0.0) or 1.0

    def _wanted_gpus(self, wants: WantedDevices) -> float:
        return min(
            0.0 if self._is_none(kind) else self._count(kind, count) * (mig_share(_profile(kind)) or 1.0)
            for kind, count in wants.alternatives
        )

    def _is_none(self, kind: str) -> bool:
        return is_gpu_driver(self._driver(kind)) is False or is_gpu_driver(kind) is False

    def _alternatives(self, wants: WantedDevices) -> tuple[Wanted, ...]:
        return tuple(
            Wanted(driver=self._driver(kind), count=0.0 if count is None else float(count))
            for kind, count in wants.alternatives
        )


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


def _offered_gpus(devices: Sequence[DeviceFacts]) -> float:
    """Rule 5: parts of a GPU that is a device itself are other ways to give it away."""
    whole = {each.uuid for each in devices if not each.part}
    return sum(each.gpus for each in devices if not each.part or each.uuid not in whole)


def _profile(kind: str) -> str:
    """A MIG profile in the name of a class, such as `mig-1g.10gb.nvidia.com`."""
    found = re.search(r"\d+g\.", kind)
    return "" if found is None else found[0]
