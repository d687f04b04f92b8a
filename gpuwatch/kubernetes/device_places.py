"""PURE: which devices are free on each node, and what pods with claims need of them, as resources like others.

Rules, all of them:

1. A claim needs so many devices of a class, and moves with its pod. What asks for more than that (alternatives, all of
   a node, access for administrators, constraints, capacity, several pods) is doubt; so is a claim that is not there.
2. Which devices do is read from the selectors: conditions on the driver and on attributes that are joined by `&&`. Any
   other expression is doubt.
3. A device is free if nobody holds it, and nothing else may keep it: no taint of its driver or of a DeviceTaintRule, no
   counter or capacity that it shares, no condition of its own. It has to be one node's, in a pool that is shown whole,
   and not offered by a plugin as well.
4. Two selections are the same devices, or have no device in common. Otherwise one may take devices of the other, which
   is doubt. While a pod waits and its claim is in doubt, all claims are: it may take any device.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from gpuwatch.kubernetes.device_facts import DeviceFacts, DeviceKey, SliceFacts
from gpuwatch.kubernetes.devices import Devices
from gpuwatch.kubernetes.facts import PodFacts
from gpuwatch.model.bounds import bounded_name

# A class, and what a request selects of it.
Selection = tuple[str, tuple[str, ...]]

_TEXT = r"(?:'[^'\\]*'|\"[^\"\\]*\")"
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_TERM = re.compile(
    rf"\s*(?:device\.driver\s*==\s*(?P<driver>{_TEXT})"
    rf"|device\.attributes\[(?P<domain>{_TEXT})\]\.(?P<name>{_NAME})\s*==\s*(?P<value>{_TEXT}|true|false|\d{{1,18}})"
    r"|(?P<all>true))\s*"
)
_IMPLICIT = "deviceclass.resource.kubernetes.io/"  # the resource that is a class without a name for it


class _DoubtError(Exception):
    """Why nobody can say which devices would do, as a clause."""


def devices_of(selection: Selection) -> str:
    """The resource that devices of a selection are."""
    return f"devices of {bounded_name(selection[0])}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePlaces:
    """What pods need of devices, by their uids, or why nobody can say it; and what is free on each node."""

    needs: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    doubts: Mapping[str, str] = field(default_factory=dict)
    free: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


def device_places(devices: Devices, pods: Sequence[PodFacts], plugins: Collection[str]) -> DevicePlaces:
    """Of all pods; `plugins` are the nodes where a device plugin offers the GPUs."""
    claiming = [pod for pod in pods if pod.device_claims]
    if not claiming:
        return DevicePlaces()
    named = Counter((pod.namespace, claim) for pod in claiming for claim in pod.device_claims)
    wanted: dict[str, Counter[Selection]] = {}
    doubts: dict[str, str] = {}
    for pod in claiming:
        try:
            wanted[pod.uid] = _wanted_devices(pod, devices, named)
        except _DoubtError as doubt:
            doubts[pod.uid] = str(doubt)
    kinds = {kind for each in wanted.values() for kind in each}
    found: dict[Selection, frozenset[DeviceKey]] = {}
    odd: dict[Selection, str] = {}
    for kind in sorted(kinds):
        try:
            found[kind] = _selected_devices(kind, devices)
        except _DoubtError as doubt:
            odd[kind] = str(doubt)
    odd |= _entangled_selections(found)
    for uid, counts in wanted.items():
        if why := next((odd[kind] for kind in sorted(counts) if kind in odd), None):
            doubts[uid] = why
    rival = _unknown_rival(devices, pods, doubts)
    if rival is not None:
        doubts = {pod.uid: doubts.get(pod.uid, rival) for pod in claiming}
    clear = {uid: counts for uid, counts in wanted.items() if uid not in doubts}
    names = _names(found)
    needs = {uid: _by_name(counts, names) for uid, counts in clear.items()}
    return DevicePlaces(needs=needs, doubts=doubts, free=_free(devices, found, names, plugins))


def _by_name(counts: Mapping[Selection, int], names: Mapping[Selection, str]) -> Counter[str]:
    total: Counter[str] = Counter()
    for kind, count in counts.items():
        total[names[kind]] += count
    return total


def _names(found: Mapping[Selection, frozenset[DeviceKey]]) -> dict[Selection, str]:
    """One resource for all selections of the same devices. One that finds none anywhere has its own."""
    first: dict[frozenset[DeviceKey], str] = {}
    names: dict[Selection, str] = {}
    used: Counter[str] = Counter()
    for kind in sorted(found):
        if found[kind] in first and found[kind]:
            names[kind] = first[found[kind]]
            continue
        name = devices_of(kind)
        used[name] += 1
        names[kind] = first[found[kind]] = name if used[name] == 1 else f"{name} ({used[name]})"
    return names


def _wanted_devices(pod: PodFacts, devices: Devices, named: Mapping[tuple[str, str | None], int]) -> Counter[Selection]:
    """What a pod's claims ask for (rule 1)."""
    found: Counter[Selection] = Counter()
    for name in pod.device_claims:
        if (why := devices.doubt or devices.rules_doubt) is not None:
            raise _DoubtError(f"which devices are free is not known: {why}")
        claim = None if name is None else devices.claims.get((pod.namespace, name))
        whose = f"its claim {bounded_name(name or '')}" if name else "a claim of devices"
        if claim is None:
            raise _DoubtError(f"{whose} is not there")
        if named[pod.namespace, name] > 1 or claim.users - {pod.uid}:
            raise _DoubtError(f"{whose} is shared with other pods, and they stay where they are")
        if claim.odd is not None:
            raise _DoubtError(f"{whose} {claim.odd}, and gpuwatch does not play that through")
        for wants in claim.wants:
            kind, count = wants.alternatives[0]
            found[kind, wants.selectors] += count or 1
    return found


def _selected_devices(kind: Selection, devices: Devices) -> frozenset[DeviceKey]:
    """The devices of a selection, free or not (rule 2)."""
    found = devices.classes.get(kind[0])
    if found is None:
        raise _DoubtError(f"the class {bounded_name(kind[0])} is not there")
    terms = [term for text in (*found.selectors, *kind[1]) for term in _terms(text, kind[0])]
    return frozenset(
        (each.driver, each.pool, device.name)
        for each in devices.slices
        for device in each.devices
        if _is_selected(each, device, terms, kind[0])
    )


_Term = tuple[str, str, str | bool | int]  # domain and name of an attribute, and its value; without a name: the driver


@lru_cache(maxsize=1024)
def _read_terms(text: str) -> tuple[_Term, ...] | None:
    """The conditions of an expression; None: it says something else."""
    at, found = 0, list[_Term]()
    while (term := _TERM.match(text, at)) is not None:
        if term["driver"] is not None:
            found.append(("", "", term["driver"][1:-1]))
        elif term["name"] is not None:
            found.append((term["domain"][1:-1], term["name"], _literal(term["value"])))
        if term.end() == len(text):
            return tuple(found)
        if not text.startswith("&&", term.end()):
            return None
        at = term.end() + 2
    return None


def _literal(text: str) -> str | bool | int:
    if text in {"true", "false"}:
        return text == "true"
    return int(text) if text.isdigit() else text[1:-1]


def _terms(text: str, kind: str) -> tuple[_Term, ...]:
    found = _read_terms(text)
    if found is None:
        raise _DoubtError(f"which devices its claim of the class {bounded_name(kind)} selects is not known")
    return found


def _is_selected(slice_: SliceFacts, device: DeviceFacts, terms: Iterable[_Term], kind: str) -> bool:
    """Whether a device meets all conditions. One that lacks an attribute is an error, unless another one is false."""
    missing = False
    for domain, name, value in terms:
        if not name:
            if value != slice_.driver:
                return False
            continue
        has = device.attributes.get(f"{domain}/{name}")
        if has is None and domain == slice_.driver:
            has = device.attributes.get(name)
        if has is None or type(has) is not type(value):
            missing = True
        elif has != value:
            return False
    if missing:
        raise _DoubtError(
            f"a device lacks what the class {bounded_name(kind)} asks for, on which the scheduler gives up"
        )
    return True


def _entangled_selections(found: Mapping[Selection, frozenset[DeviceKey]]) -> dict[Selection, str]:
    """The selections that have some devices in common with others, and not all."""
    odd: dict[Selection, str] = {}
    kinds = sorted(found)
    for number, one in enumerate(kinds):
        for other in kinds[number + 1 :]:
            if found[one] != found[other] and not found[one].isdisjoint(found[other]):
                for mine, its in ((one, other), (other, one)):
                    odd[mine] = f"claims of {bounded_name(its[0])} may take devices of {bounded_name(mine[0])}"
    return odd


def _unknown_rival(devices: Devices, pods: Iterable[PodFacts], doubts: Mapping[str, str]) -> str | None:
    """Why any device may be taken: a pod that waits, and of which nobody knows what it gets (rule 4)."""
    extended = {each.extended for each in devices.classes.values() if each.extended is not None}
    for pod in pods:
        if pod.node is not None:
            continue
        asks = any(what in extended or what.startswith(_IMPLICIT) for what, _ in pod.needs.requests)
        if pod.uid in doubts or asks:
            return f"the pod {pod.namespace}/{pod.name}, which waits, may take the devices that it needs"
    return None


def _free(
    devices: Devices,
    found: Mapping[Selection, frozenset[DeviceKey]],
    names: Mapping[Selection, str],
    plugins: Collection[str],
) -> Mapping[str, Mapping[str, int]]:
    """Rule 3: how many of each resource are free, by node."""
    by_key: defaultdict[DeviceKey, set[str]] = defaultdict(set)
    for kind, keys in found.items():
        for key in keys:
            by_key[key].add(names[kind])
    shown = Counter((each.driver, each.pool) for each in devices.slices)
    free: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for each in devices.slices:
        if each.node is None or shown[each.driver, each.pool] != each.slices:
            continue
        for device in each.devices:
            key = (each.driver, each.pool, device.name)
            if not device.plain or devices.is_held(key) or devices.is_tainted(key):
                continue
            if device.gpus > 0 and each.node in plugins:
                continue
            free[each.node].update(dict.fromkeys(by_key.get(key, ()), 1))
    return free
