"""PURE: which pods of a node that is emptied are sure to run elsewhere: the scheduler's own rules, played through.

Rules, all of them:

1. A pod fits a node if that offers what the pod requests besides all others there; if its labels, taints, ports and
   volumes allow it; if affinity, anti-affinity (of both sides) and spread do.
2. A node is no place if it takes no pods, or will not last: cordoned, not ready, being ended, or with a notice; nor if
   it has another architecture or system than the one that the pod runs on now.
3. Of a node all pods have to fit at once, together with those that other nodes have been promised a place for. Nodes
   that are on their way come first, in the order of their notices.
4. What fits is not yet sure: the scheduler chooses among places, and pods that move or wait may take the one that was
   meant. A pod is sure of a place if all others together cannot fill every place that fits it.
5. What is not known (another scheduler, a volume that may be anywhere) fits nowhere. Devices of claims are resources
   like others: gpuwatch.kubernetes.device_places says which are free, and which are in doubt.
6. What is not there is no place: a node that an autoscaler would add may not come, or cost more than the one that goes.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpuwatch.model.placing import PODS, Needs, Place, PlacedPod, PodTerm, Room, Selector
from gpuwatch.policies.kubernetes.company import Company, conflicts_of, has_turn, is_about, selects, tolerates

_MOST_RIVALS = 64  # that are looked at one by one
_ALIKE = ("kubernetes.io/arch", "kubernetes.io/os")
_UNITS = {"cpu": (1000.0, "cores"), "memory": (2.0**30, "GiB of memory"), "ephemeral-storage": (2.0**30, "GiB of disk")}

# A node that is to be emptied, by its name, and the uids of the pods that would have to move.
Leaving = tuple[str, frozenset[str]]


def why_stranded(
    room: Room, promised: Sequence[Leaving], asked: Sequence[Leaving], closed: Collection[str]
) -> Mapping[str, str]:
    """Why pods of these nodes are not sure to run elsewhere, by their uids, as clauses; the others are.

    `promised` are nodes that are being emptied, first come first served; each of `asked` is judged as if it went alone.
    """
    table = _Table(room, {*closed, *(name for name, _ in promised)})
    found: dict[str, str] = {}
    for leaving in promised:
        if why := table.place(*leaving):
            found |= why
            table.undo()
        else:
            table.keep()
    for leaving in asked:
        found |= table.place(*leaving)
        table.undo()
    return found


@dataclass(slots=True)
class _Placed:
    """What was put where, to be taken back."""

    pod: PlacedPod
    place: str


class _Table:
    """The nodes with what is free of them, and the pods that stay."""

    def __init__(self, room: Room, closed: Collection[str]) -> None:
        """Count what is free."""
        self._places = {each.name: each for each in room.places}
        self._open = [each for each in room.places if not each.closed and each.name not in closed]
        self._free = {each.name: Counter(each.offers) for each in room.places}
        self._ports: defaultdict[str, set[tuple[str, int]]] = defaultdict(set)
        self._pods = room.pods
        self._on: defaultdict[str, list[PlacedPod]] = defaultdict(list)
        self._by_namespace: defaultdict[str, list[PlacedPod]] = defaultdict(list)
        self._wary: defaultdict[tuple[str, PodTerm], list[PlacedPod]] = defaultdict(list)  # whose anti-affinity it is
        for pod in room.pods:
            self._by_namespace[pod.namespace].append(pod)
            if pod.node is None and pod.nominated is not None and not pod.ends:
                self._take(pod, pod.nominated)  # other pods go to make room for it, and it alone gets that
            if pod.node is not None:
                self._on[pod.node].append(pod)
                self._take(pod, pod.node)
                for term in pod.needs.apart:
                    self._wary[(pod.namespace, term)].append(pod)
        self._open.sort(key=lambda each: (-self._free[each.name].get("cpu", 0), each.name))
        self._base = {name: dict(free) for name, free in self._free.items()}  # before anything is put
        self._base_ports = {name: frozenset(ports) for name, ports in self._ports.items()}
        self._static: dict[tuple[object, ...], Mapping[str, Place]] = {}
        self._made: list[_Placed] = []  # in this attempt
        self._moved: list[_Placed] = []  # of those that were promised
        self._moved_uids: set[str] = set()
        self._taken: dict[tuple[int, tuple[str, ...] | None], list[tuple[PlacedPod, str]]] = {}
        self._going: frozenset[str] = frozenset()
        self._origin = ""
        self._waiting = [pod for pod in room.pods if pod.node is None and not pod.ends and self._fits_now(pod)]

    def place(self, name: str, uids: frozenset[str]) -> dict[str, str]:
        """Put the pods of a node elsewhere: why some of them are not sure of a place; none is put then."""
        movers = [pod for pod in self._on.get(name, ()) if pod.uid in uids]
        movers.sort(key=lambda pod: (-sum(_sizes(pod.needs)), pod.name))
        self._going, self._origin = frozenset(pod.uid for pod in movers), name
        found: dict[str, str] = {}
        rivals = [*movers, *self._waiting, *(each.pod for each in self._moved)]
        totals = _totals(rivals)
        for pod in movers:
            place, why = None, _doubt(pod, movers)
            if why is None:
                place, why = self._first(pod, name)
            if place is not None:
                self._put(pod, place.name)
                why = self._why_unsure(pod, name, rivals, totals)
            if why is not None:
                found[pod.uid] = why
        return found

    def undo(self) -> None:
        """Take back what the last attempt has put."""
        for each in self._made:
            self._give(each.pod, each.place)
        self._made = []

    def keep(self) -> None:
        """Leave there what the last attempt has put."""
        self._moved += self._made
        self._moved_uids |= {each.pod.uid for each in self._made}
        self._made = []

    def _put(self, pod: PlacedPod, place: str) -> None:
        self._take(pod, place)
        self._made.append(_Placed(pod, place))

    def _take(self, pod: PlacedPod, place: str) -> None:
        if place in self._free:
            self._free[place].subtract({PODS: 1, **dict(pod.needs.requests)})
            self._ports[place].update(pod.needs.ports)

    def _give(self, pod: PlacedPod, place: str) -> None:
        self._free[place].update({PODS: 1, **dict(pod.needs.requests)})
        self._ports[place].difference_update(pod.needs.ports)  # nobody else may have had them

    def _fits_now(self, pod: PlacedPod) -> bool:
        return any(_has_room(pod, self._base[each.name]) for each in self._likely(pod, None))

    def _likely(self, pod: PlacedPod, origin: str | None) -> Iterator[Place]:
        """The places that fit it by labels, taints and volumes, but for its own node."""
        return (each for each in self._likely_list(pod, origin).values() if each.name != origin)

    def _likely_list(self, pod: PlacedPod, origin: str | None) -> Mapping[str, Place]:
        alike = self._alike(origin)
        needs = pod.needs
        key = (needs.tolerations, needs.selector, needs.alternatives, pod.disks, alike)
        if key not in self._static:
            self._static[key] = {each.name: each for each in _sieve(pod, self._open, alike)[0]}
        return self._static[key]

    def _alike(self, origin: str | None) -> tuple[str | None, ...]:
        home = self._places.get(origin or "")
        return tuple(None if home is None else home.labels.get(key) for key in _ALIKE)

    def _first(self, pod: PlacedPod, origin: str) -> tuple[Place | None, str | None]:
        """The first place that fits; or why it has no place."""
        company = Company(self, pod, put=True)
        for place in self._likely(pod, origin):
            if _has_room(pod, self._free[place.name]) and self._ports_free(pod, place) and company.allows(place):
                return place, None
        others = [each for each in self._open if each.name != origin]
        left, why = _sieve(pod, others, self._alike(origin))
        if not left:
            return None, why
        left = [each for each in left if self._ports_free(pod, each)]
        if not left:
            return None, f"port {pod.needs.ports[0][1]} is taken on each node that it fits"
        left = [each for each in left if company.allows(each)]
        if not left:
            return None, "its affinity, anti-affinity or spread, or those of others, leave no other node"
        return None, self._shortage(pod, left)

    def _why_unsure(
        self, pod: PlacedPod, origin: str, rivals: Sequence[PlacedPod], totals: Mapping[str, int]
    ) -> str | None:
        """Rule 4: whether others may take all of its places; None: they cannot."""
        needed = {PODS: 1, **dict(pod.needs.requests)}
        rest = {what: rival for what, most in needed.items() if (rival := totals.get(what, 0) - most) > 0}
        touchy = rivals if pod.needs.apart or pod.needs.ports else [each for each in rivals if each.needs.apart]
        conflicts = [each for rival in touchy if rival.uid != pod.uid for each in set(conflicts_of(pod, rival))]
        if not rest and not conflicts and not pod.needs.spread:
            return None
        company = Company(self, pod, put=False)
        shares: dict[str, float] = {}
        total, few, loose = 0.0, len(rivals) <= _MOST_RIVALS, not conflicts and not pod.needs.spread
        for name, place in self._likely_list(pod, origin).items():
            free = self._base[name]
            if name == origin or not _has_room(pod, free) or not company.allows(place):
                continue
            if pod.needs.ports and not self._base_ports.get(name, frozenset()).isdisjoint(pod.needs.ports):
                continue
            share = min([(free[what] - needed[what]) / most for what, most in rest.items()], default=1.0)
            if share < 1 and few and self._has_room_for_all(pod, place, rivals):
                share = 1.0
            shares[name] = share
            total += share
            if loose and (share >= 1 or total > len(rest)):
                return None
        for topology in conflicts:
            domains: defaultdict[str, list[str]] = defaultdict(list)
            for name in shares:
                domains[self._places[name].labels.get(topology, name)].append(name)
            for name in max(domains.values(), key=lambda names: sum(shares[name] for name in names), default=()):
                del shares[name]
        sure = any(share >= 1 for share in shares.values()) or sum(shares.values()) > len(rest) > 0
        left = [self._places[name] for name in shares]
        if sure and all(has_turn(self, each, pod, left, rivals) for each in pod.needs.spread):
            return None
        return "other pods that move, or wait, may take the places that it fits"

    def _ports_free(self, pod: PlacedPod, place: Place) -> bool:
        return not pod.needs.ports or self._ports[place.name].isdisjoint(pod.needs.ports)

    def _has_room_for_all(self, pod: PlacedPod, place: Place, rivals: Sequence[PlacedPod]) -> bool:
        """Whether a place has room for a pod with all others that fit there themselves."""
        free = self._base[place.name]
        left = Counter(free)
        left.subtract({PODS: 1, **dict(pod.needs.requests)})
        for rival in rivals:
            if rival.uid != pod.uid and _has_room(rival, free) and place.name in self._likely_list(rival, rival.node):
                left.subtract({PODS: 1, **dict(rival.needs.requests)})
        return all(left[what] >= 0 for what in (PODS, *dict(pod.needs.requests)))

    def _shortage(self, pod: PlacedPod, places: Sequence[Place]) -> str:
        """What is short on the places that fit it otherwise."""
        if all(self._free[each.name][PODS] < 1 for each in places):
            return "no other node takes one more pod"
        for what, amount in pod.needs.requests:
            most = max(self._free[each.name].get(what, 0) for each in places)
            if most < amount:
                return (
                    f"{_text(what, amount)} are asked for, and the largest free place has {_number(what, max(most, 0))}"
                )
        asked = " and ".join(_text(what, amount) for what, amount in pod.needs.requests if amount > 0)
        return f"no single place has room for its {asked}"

    def staying(
        self, selector: Selector, namespaces: tuple[str, ...] | None, *, put: bool
    ) -> Iterator[tuple[PlacedPod, str]]:
        """The pods of these namespaces, None: of all, that a selector takes, and their nodes; with those put there."""
        for each in (*self._moved, *self._made) if put else ():
            if (namespaces is None or each.pod.namespace in namespaces) and selector.takes(each.pod.labels):
                yield each.pod, each.place
        key = (id(selector), namespaces)  # the room has it for as long as this lasts
        if key not in self._taken:
            self._taken[key] = [
                (pod, pod.node)
                for namespace in (self._by_namespace if namespaces is None else namespaces)
                for pod in self._by_namespace.get(namespace, ())
                if pod.node is not None and not pod.ends and selector.takes(pod.labels)
            ]
        yield from (each for each in self._taken[key] if not self._is_gone(each[0]))

    def _is_gone(self, pod: PlacedPod) -> bool:
        return pod.uid in self._going or pod.uid in self._moved_uids

    def domain(self, name: str, topology: str) -> str | None:
        """The value of a label of a node."""
        place = self._places.get(name)
        return None if place is None else place.labels.get(topology)

    def wary_of(self, pod: PlacedPod, *, put: bool) -> Iterator[tuple[str, set[str | None]]]:
        """The anti-affinity of other pods that is against it: the label, and its values where that holds."""
        for (namespace, term), others in self._wary.items():
            if is_about(term, namespace, pod):
                there = {self.domain(each.node or "", term.topology) for each in others if not self._is_gone(each)}
                yield term.topology, there
        for each in (*self._moved, *self._made) if put else ():
            for term in each.pod.needs.apart:
                if is_about(term, each.pod.namespace, pod):
                    yield term.topology, {self.domain(each.place, term.topology)}

    def is_left(self, place: Place) -> bool:
        """Whether no pod comes to a node any more, as its taint says once it is cordoned."""
        return place.closed or place.name == self._origin

    @property
    def places(self) -> Iterable[Place]:
        """All nodes, also those that take nobody."""
        return self._places.values()


def _sieve(pod: PlacedPod, places: Sequence[Place], alike: tuple[str | None, ...]) -> tuple[list[Place], str]:
    """The places that fit a pod by labels, volumes and taints; or why it has no place."""
    left, why = list(places), "there is no other node that takes pods and stays"
    steps: tuple[tuple[Callable[[Place], bool], str], ...] = (
        (lambda place: _is_alike(place, alike), "no other node has the architecture and system that it runs on"),
        (lambda place: selects(pod.needs, place), "no other node has the labels that it asks for"),
        (lambda place: _is_mounted(pod, place), f"its volume{_zones(pod)} can be mounted on no other node"),
        (lambda place: tolerates(pod.needs.tolerations, place.taints), "it tolerates the taints of no other node"),
    )
    for test, reason in steps:
        if not left:
            break
        left, why = [each for each in left if test(each)], reason
    return left, why


def _doubt(pod: PlacedPod, movers: Sequence[PlacedPod]) -> str | None:
    """Why nobody knows where a pod fits (rule 5)."""
    if pod.needs.doubt is not None:
        return pod.needs.doubt
    for disk in pod.disks:
        if disk.doubt is not None:
            return f"where its volume {disk.name} can be mounted is not known: {disk.doubt}"
        if disk.alone and any(disk in other.disks for other in movers if other.uid != pod.uid):
            return f"its volume {disk.name} is mounted by several pods, and one node at a time may have it"
    return None


def _is_alike(place: Place, alike: tuple[str | None, ...]) -> bool:
    return all(value is None or place.labels.get(key) == value for key, value in zip(_ALIKE, alike, strict=True))


def _is_mounted(pod: PlacedPod, place: Place) -> bool:
    return all(
        not disk.alternatives or any(all(each.meets(place.labels) for each in terms) for terms in disk.alternatives)
        for disk in pod.disks
    )


def _zones(pod: PlacedPod) -> str:
    """The volume that names places, and those."""
    for disk in pod.disks:
        if disk.alternatives:
            values = sorted({value for terms in disk.alternatives for each in terms for value in each.values})
            return f" {disk.name} ({', '.join(values)})"
    return ""


def _sizes(needs: Needs) -> Iterator[float]:
    """How large a pod is, of each resource in its own measure."""
    return (amount / _UNITS.get(what, (1.0, ""))[0] for what, amount in needs.requests)


def _has_room(pod: PlacedPod, free: Mapping[str, int]) -> bool:
    """Whether a pod's requests fit into what is free of a node."""
    if free.get(PODS, 0) < 1:
        return False
    for what, amount in pod.needs.requests:  # noqa: SIM110  a generator costs as much as all the rest
        if amount > free.get(what, 0):
            return False
    return True


def _totals(pods: Iterable[PlacedPod]) -> dict[str, int]:
    """What pods request together."""
    found: defaultdict[str, int] = defaultdict(int)
    for pod in pods:
        found[PODS] += 1
        for what, amount in pod.needs.requests:
            found[what] += amount
    return found


def _number(what: str, amount: int) -> str:
    return f"{amount / _UNITS.get(what, (1.0, ''))[0]:.4g}"


def _text(what: str, amount: int) -> str:
    return f"{_number(what, amount)} {_UNITS.get(what, (1.0, what))[1]}"
