"""PURE: which GPUs pods have, want, and nodes offer by Dynamic Resource Allocation.

Rules, all of them:

1. A claim that was allocated is as many GPUs as devices of GPUs in it: each device once, a part of MIG by its slices,
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

from gpuwatch.kubernetes.device_facts import (
    ClassFacts,
    DeviceClaimFacts,
    DeviceFacts,
    DeviceKey,
    SliceFacts,
    TaintRuleFacts,
    WantedDevices,
    is_gpu_driver,
)
from gpuwatch.kubernetes.gpu_requests import mig_share
from gpuwatch.model.placing import Wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDevices:
    """What a pod has, or wants, by its claims: so many GPUs, which these are, and where they may be."""

    gpus: float
    uuids: tuple[str, ...] | None  # None: nobody can tell
    wanted: tuple[tuple[Wanted, ...], ...] = ()


@dataclass(slots=True, kw_only=True)
class Devices:
    """All claims, classes and slices at one moment. `doubt`: why they are not known, as a clause (rule 6).

    `rules_doubt`: why it is not known which devices rules taint.
    """

    claims: Mapping[tuple[str, str], DeviceClaimFacts] = field(default_factory=dict)
    classes: Mapping[str, ClassFacts] = field(default_factory=dict)
    slices: Sequence[SliceFacts] = ()
    doubt: str | None = None
    rules: Sequence[TaintRuleFacts] = ()
    rules_doubt: str | None = None
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
        rules: Sequence[TaintRuleFacts] = (),
        rules_doubt: str | None = None,
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
            rules=rules,
            rules_doubt=rules_doubt,
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

    def is_tainted(self, key: DeviceKey) -> bool:
        """Whether a rule taints a device; what its driver taints it with stands on itself."""
        return any(each.taints(key) for each in self.rules)

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


def _offered_gpus(devices: Sequence[DeviceFacts]) -> float:
    """Rule 5: parts of a GPU that is a device itself are other ways to give it away."""
    whole = {each.uuid for each in devices if not each.part}
    return sum(each.gpus for each in devices if not each.part or each.uuid not in whole)


def _profile(kind: str) -> str:
    """A MIG profile in the name of a class, such as `mig-1g.10gb.nvidia.com`."""
    found = re.search(r"\d+g\.", kind)
    return "" if found is None else found[0]
