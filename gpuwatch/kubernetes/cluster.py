"""A cluster by its API server: what its watches hold, one node asked afresh, and changes of nodes.

The watches begin with the first question, and the first answer waits for their first lists. Every later answer is what
they hold at that moment: 500 nodes and 5,000 pods cost a round about 0.1 s and the API server nothing.
"""

import logging
import math
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import timedelta
from functools import partial

from gpuwatch.clouds.errors import CloudUnavailableError, NotFoundError
from gpuwatch.clouds.permit import Permit
from gpuwatch.kubernetes import Access, changes
from gpuwatch.kubernetes.asked import AskedNow, accesses, server_version
from gpuwatch.kubernetes.attachments import AttachmentFacts, AttachmentWatch, CsiNodeFacts
from gpuwatch.kubernetes.calls import DISRUPTION_BUDGETS, NAMESPACES, NODES, PODS, Use
from gpuwatch.kubernetes.client import METADATA, METADATA_LIST, Api
from gpuwatch.kubernetes.device_watch import DeviceWatch
from gpuwatch.kubernetes.disruptions import BudgetFacts
from gpuwatch.kubernetes.endpoints import ApiAddressWatch, SliceFacts
from gpuwatch.kubernetes.facts import NodeFacts, OwnerFacts, PodFacts, node_facts
from gpuwatch.kubernetes.kueue import Queue
from gpuwatch.kubernetes.objects import NodeObject
from gpuwatch.kubernetes.owners import Owners
from gpuwatch.kubernetes.picture import OwnersOf, Picture, asked_labels, pending
from gpuwatch.kubernetes.reading import read_budget, read_namespace, read_node, read_pod
from gpuwatch.kubernetes.room import room_of
from gpuwatch.kubernetes.settings import KubernetesSettings
from gpuwatch.kubernetes.unreadable import UNREADABLE, draw_or_protect
from gpuwatch.kubernetes.volume_watch import VolumeWatch
from gpuwatch.kubernetes.watch import Watch
from gpuwatch.kubernetes.wholes import Chain, together
from gpuwatch.kubernetes.workloads import ApiWorkloads
from gpuwatch.model.duration import format_duration
from gpuwatch.model.kubernetes import ClusterView, Drain, KubernetesNode, Pod
from gpuwatch.model.placing import Room
from gpuwatch.runtime.clock import Clock

_LOG = logging.getLogger(__name__)

_PLAIN = ("application/json", "application/json")
_FIRST_LISTS_SECONDS = 30.0  # of a large cluster, page by page
_SAME_TIME_SECONDS = 30.0  # clocks differ by less than that, and answers take their time
_MINUTE = 60.0


class ApiCluster:
    """One cluster. Threads follow it from the first `view` until `close`."""

    def __init__(self, settings: KubernetesSettings, clock: Clock, api: Api) -> None:
        """Nothing is asked yet."""
        self.settings = settings
        self.api = api
        self._clock = clock
        silence = settings.max_silence
        self.queue = Queue(api, clock, silence, settings.gpu_resources)
        self.owners = Owners(api, clock, silence, self._owner_pod)
        self._nodes: Watch[NodeFacts] = Watch(
            api, clock, NODES, partial(read_node, settings.gpu_resources), accept=_PLAIN, silence_seconds=silence
        )
        self._pods: Watch[PodFacts] = Watch(
            api,
            clock,
            PODS,
            partial(read_pod, settings.gpu_resources),
            accept=_PLAIN,
            silence_seconds=silence,
            selector={"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"},
        )
        self._namespaces: Watch[OwnerFacts] = Watch(
            api,
            clock,
            NAMESPACES,
            read_namespace,
            accept=(METADATA_LIST, METADATA),
            silence_seconds=silence,
        )
        self.workloads = ApiWorkloads(api=api, now=clock.now, pods_in=self._pods_in, kueue_versions=self.queue.versions)
        self._budgets: Watch[BudgetFacts] = Watch(
            api,
            clock,
            DISRUPTION_BUDGETS,
            read_budget,
            accept=_PLAIN,
            silence_seconds=silence,
        )
        self._bound: Mapping[str, Pod] = {}  # those of the newest view that belong with others, by uid
        self._volumes = VolumeWatch(api, clock, silence)
        self._addresses = ApiAddressWatch(api, clock, silence)
        self._attached = AttachmentWatch(api, clock, silence)
        self._devices = DeviceWatch(api, clock, silence)
        self._behind = timedelta(0)  # the API server's clock behind ours
        self._starting = threading.Lock()
        self._started = False

    @classmethod
    def from_settings(cls, settings: KubernetesSettings, clock: Clock) -> "ApiCluster":
        """The cluster of the settings; nothing is sent yet.

        Raises:
            AuthFailedError: there are no usable credentials.

        """
        return cls(settings, clock, Api.from_settings(settings, clock))

    @property
    def name(self) -> str:
        """The cluster's name in the settings."""
        return self.settings.name

    @property
    def server(self) -> str:
        """The API server's URL."""
        return self.api.server

    def version(self) -> str:
        """The API server's version; raises CloudError."""
        return server_version(self.api)

    def accesses(self, uses: AbstractSet[Use], namespaces: Sequence[str]) -> Iterator[Access]:
        """Each right that is needed; raises CloudError."""
        return accesses(self.api, uses, namespaces)

    def view(self) -> ClusterView:
        """All nodes, and all pods that have not ended, as the watches hold them; never raises."""
        try:
            self._start()
            return self._view()
        except Exception as error:  # noqa: BLE001  the round goes on without it
            _LOG.exception("The view of the cluster %s could not be made", self.name)
            trouble = f"What cluster {self.name} shows could not be understood: {error}."
            return ClusterView(name=self.name, trouble=trouble, pools=self.settings.pools)

    def rooms(self) -> Mapping[str, Room]:
        """All nodes and pods as the scheduler sees them; see `Cluster.rooms`."""
        if not self._started:
            return {}
        nodes = self._nodes.kept.all()
        disks, attached = self._volumes.disks(nodes), self._attached.attachments()
        return {self.name: room_of(nodes, self._pods.kept.all(), disks, attached, self._devices.devices())}

    def node(self, name: str) -> KubernetesNode | None:
        """One node and its pods, asked of the API server now, with all that stands above its pods.

        Raises:
            CloudError: no answer.

        """
        try:
            found = node_facts(self.api.get(f"{NODES}/{name}", NodeObject), self.settings.gpu_resources)
        except NotFoundError:
            return None
        facts = list(self._pods_on(name))
        now = AskedNow(self.api, self.owners.path)
        picture = self._picture(now.owner, now.namespaces({pod.namespace for pod in facts}))
        return picture.node(
            found, self._as_bound(draw_or_protect(picture.pod, pod) for pod in facts), (), self._nominated_pods()[name]
        )

    def cordon(self, name: str, key: str, *, permit: Permit, taint: bool = False) -> None:
        """Let no new pod onto a node and write CORDONED_BY on it; errors as in `Cluster`."""
        changes.cordon(self.api, name, key, permit=permit, now=self._clock.now(), taint=taint)

    def uncordon(self, name: str, key: str) -> None:
        """Undo the cordon that bears this key; errors as in `Cluster`."""
        changes.uncordon(self.api, name, key)

    def mark(self, name: str, owner: str, key: str, *, permit: Permit) -> None:
        """Let another autoscaler leave a node alone; errors as in `Cluster`."""
        changes.mark(self.api, name, owner, key, permit=permit)

    def unmark(self, name: str, key: str) -> None:
        """Take the mark with that key away; errors as in `Cluster`."""
        changes.unmark(self.api, name, key)

    def drain(self, name: str, pods: tuple[str, ...], key: str, *, permit: Permit) -> Drain:
        """Ask these pods of a node that we have cordoned to go; errors as in `Cluster`."""
        del key
        node = self.node(name)
        if node is None:
            raise NotFoundError(f"cluster {self.name} has no node {name}", code="NotFound")
        return changes.drain(self.api, node, frozenset(pods), permit=permit)

    def close(self) -> None:
        """Follow nothing any more."""
        for watch in (self._nodes, self._pods, self._namespaces, self._budgets, *self._volumes.both):
            watch.close()
        for other in self._others():
            other.close()
        self._devices.close()
        self._volumes.replicas.close()
        self.owners.close()
        self.queue.close()

    def _start(self) -> None:
        """Begin once, and wait for the first lists."""
        watches: tuple[Watch[NodeFacts] | Watch[PodFacts] | Watch[OwnerFacts], ...]
        watches = (self._nodes, self._pods, self._namespaces)
        with self._starting:
            first = not self._started
            self._started = True
            if first:
                for watch in watches:
                    watch.start()
                self._budgets.start()
                self._volumes.start()
                for other in self._others():
                    other.start()
        if not first:
            self.queue.follow(0.0)
            self._devices.begin(0.0)
            self._volumes.replicas.begin(0.0)
            self.owners.follow((pod.owner for pod in self._pods.kept.all()), 0.0)
            return
        until = self._clock.monotonic() + _FIRST_LISTS_SECONDS
        for each in (*watches, self._budgets, *self._volumes.both, *self._others()):
            each.wait(max(0.0, until - self._clock.monotonic()))
        self.queue.follow(max(0.0, until - self._clock.monotonic()))
        self._devices.begin(max(0.0, until - self._clock.monotonic()))
        self._volumes.replicas.begin(max(0.0, until - self._clock.monotonic()))
        self.owners.follow((pod.owner for pod in self._pods.kept.all()), max(0.0, until - self._clock.monotonic()))

    def _others(self) -> "tuple[Watch[SliceFacts] | Watch[CsiNodeFacts] | Watch[AttachmentFacts], ...]":
        return (self._addresses.slices, *self._attached.both)

    def _view(self) -> ClusterView:
        """What the watches hold."""
        namespaces = {each.name: each for each in self._namespaces.kept.all()}
        picture = self._picture(self.owners.owner_of, namespaces)
        on: defaultdict[str | None, list[Pod]] = defaultdict(list)
        facts = self._pods.kept.all()
        chains = {pod.uid: _chain(picture, pod) for pod in facts}
        drawn = together((draw_or_protect(picture.pod, pod), chains[pod.uid], pod.labels) for pod in facts)
        self._bound = {pod.uid: pod for pod in drawn if pod.group is not None or pod.release is not None}
        for pod in drawn:
            on[pod.node].append(pod)
        there = {*chains, *(uid for chain in chains.values() for _, uid in chain)}
        waits = (*pending(on[None]), *self.queue.pods(there))
        waiting = tuple(sorted(waits, key=lambda pod: (pod.namespace, pod.name)))
        asked = asked_labels(waiting)
        nominated = self._nominated_pods()
        nodes = (picture.node(node, on[node.name], asked, nominated[node.name]) for node in self._nodes.kept.all())
        return ClusterView(
            name=self.name,
            silent_seconds=max(watch.silent_seconds for watch in self._required_watches()),
            trouble=self._trouble(),
            nodes=tuple(sorted(nodes, key=lambda node: node.name)),
            pending=waiting,
            pools=self.settings.pools,
            notes=(*self._notes(), *self._claims_in_doubt(picture)),
        )

    def _notes(self) -> tuple[str, ...]:
        """What people should know of the API server itself."""
        if not self._behind:
            return ()
        behind = format_duration(self._behind.total_seconds())
        return (f"The clock of the API server of cluster {self.name} is up to {behind} behind; pods count as younger.",)

    def _claims_in_doubt(self, picture: Picture) -> Iterator[str]:
        """Why claims are not counted by their devices, where pods have any."""
        doubt = picture.devices.doubt
        if doubt is not None and any(pod.device_claims for pod in self._pods.kept.all()):
            yield f"What pods of cluster {self.name} claim is not known: {doubt}. Each claim counts as a GPU."

    def _clocks(self) -> timedelta:
        """How far the API server's clock is behind, in whole minutes, rounded up; the same while it hardly changes."""
        told, before = self.api.behind_seconds, self._behind.total_seconds()
        if told > before or told < before - 2 * _MINUTE:
            minutes = math.ceil(told / _MINUTE) if told > _SAME_TIME_SECONDS else 0
            self._behind = timedelta(minutes=minutes)
        return self._behind

    def _required_watches(self) -> "list[Watch[NodeFacts] | Watch[PodFacts] | Watch[OwnerFacts]]":
        """The watches that the whole depends on; a kind of owner costs its own pods alone, which are protected."""
        return [self._nodes, self._pods, self._namespaces]

    def _trouble(self) -> str | None:
        """Why the whole is not to be relied on, as a sentence."""
        for watch in self._required_watches():
            what = watch.path.rpartition("/")[2]
            why = "" if watch.failure is None else f" ({watch.failure})"
            if not watch.listed:
                return f"The API server of cluster {self.name} has not shown its {what} yet{why}."
            if watch.silent_seconds > self.settings.max_silence:
                silence = format_duration(round(watch.silent_seconds))
                return f"The API server of cluster {self.name} has been silent about its {what} for {silence}{why}."
        return None

    def _picture(self, owners: OwnersOf, namespaces: Mapping[str, OwnerFacts]) -> Picture:
        return Picture(
            now=self._clock.now(),
            owners=owners,
            namespaces=namespaces,
            system_namespaces=frozenset(self.settings.system_namespaces),
            cluster=self.name,
            budgets=self._by_namespace(),
            behind=self._clocks(),
            queued=self.queue.jobs,
            why_not_stopped=self.queue.why_not_stopped,
            own_uids=self.api.own_uids,
            api=self._addresses.addresses(),
            attachments=self._attached.attachments(),
            disks=self._volumes.disks(self._nodes.kept.all()),
            devices=self._devices.devices(),
        )

    def _by_namespace(self) -> Mapping[str, Sequence[BudgetFacts]]:
        """The disruption budgets; none while they are not known: the whole does not depend on them."""
        found: defaultdict[str, list[BudgetFacts]] = defaultdict(list)
        for each in self._budgets.kept.all() if self._budgets.silent_seconds <= self.settings.max_silence else ():
            found[each.namespace].append(each)
        return found

    def _pods_on(self, name: str) -> Iterator[PodFacts]:
        """The pods of a node that have not ended, asked now."""
        return self._pods_of(PODS, {"fieldSelector": f"spec.nodeName={name}"}, name)

    def _pods_in(self, namespace: str) -> tuple[Pod, ...]:
        """The pods of a namespace that have not ended, with all that stands above them, asked now."""
        facts = list(self._pods_of(f"{NAMESPACES}/{namespace}/pods", {}, namespace))
        now = AskedNow(self.api, self.owners.path)
        picture = self._picture(now.owner, now.namespaces({namespace}))
        return tuple(self._as_bound(draw_or_protect(picture.pod, pod) for pod in facts))

    def _nominated_pods(self) -> defaultdict[str, list[str]]:
        """The pods for which the scheduler makes room, by their node."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for pod in self._pods.kept.all():
            if pod.nominated is not None and pod.ends_at is None:
                found[pod.nominated].append(f"{pod.namespace}/{pod.name}")
        return found

    def _as_bound(self, pods: Iterable[Pod]) -> Iterator[Pod]:
        """The pods, with those of the newest view that they belong with."""
        for pod in pods:
            seen = self._bound.get(pod.uid)
            yield pod if seen is None else replace(pod, group=seen.group, release=seen.release)

    def _pods_of(self, path: str, query: Mapping[str, str], whose: str) -> Iterator[PodFacts]:
        """Yield the pods of one list."""
        for page in self.api.pages(path, query):
            for item in page.items or ():
                try:
                    found = read_pod(self.settings.gpu_resources, bytes(item))
                except UNREADABLE as error:
                    raise CloudUnavailableError(f"a pod of {whose} cannot be read: {error}", code="Nonsense") from None
                if found is not None:
                    yield found

    def _owner_pod(self, uid: str) -> OwnerFacts | None:
        """A pod that owns another, such as Spark's driver."""
        pod = self._pods.kept.get(uid)
        if pod is None:
            return None
        return OwnerFacts(pod.namespace, pod.name, pod.uid, pod.version, pod.owner, pod.annotations)


def _chain(picture: Picture, pod: PodFacts) -> Chain:
    """What owns a pod; nothing where that makes no sense, and the pod is left alone for it."""
    try:
        return picture.chain(pod)
    except UNREADABLE:
        return ()
