"""Kubernetes behind one protocol: what the controller asks of a cluster's API server.

A cluster never ends a machine: that is the work of the node's own cloud, by the machine's own name. Errors are those of
`gpuwatch.clouds.errors`, so that the controller treats a silent API server as it treats a silent cloud.
`tests/contracts/test_clusters.py` tests every cluster, pretended or real, against the docstrings of `Cluster`.
"""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from gpuwatch.clouds.permit import Permit
from gpuwatch.kubernetes.calls import Use
from gpuwatch.model.kubernetes import ClusterView, Drain, KubernetesNode, Target, WorkloadNow
from gpuwatch.model.placing import Room


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What we may do with one resource, and what of it is refused, each a verb; `reason` ends "They are …".

    `namespaces` are those where all of it is allowed, of a right that a role gives in some namespaces alone.
    """

    resource: str
    allowed: tuple[str, ...]
    refused: tuple[str, ...]
    reason: str
    namespaces: tuple[str, ...] | None = None


class Workloads(Protocol):
    """What the controller asks about one workload; `tests/contracts/test_cluster_workloads.py` tests each sentence."""

    def workload(self, target: Target) -> WorkloadNow | None:
        """The object and its pods, asked now; None: no object of that kind, name and uid exists.

        Raises:
            CloudError: no answer, or gpuwatch ends nothing of its kind.

        """
        ...

    def announce(self, target: Target, key: str, stop_at: datetime | None, note: str, *, permit: Permit) -> None:
        """Write STOP_AT on it (None: take it away), and an Event with this note; once for each key.

        Raises:
            PermitExpiredError: the permit did not hold when the call was about to leave.
            ProtectedError: it would lose volumes that nobody gives up.
            NotFoundError: there is no such object.
            CloudUnavailableError: nobody knows whether it was accepted.
            CloudError: it was not accepted.

        """
        ...

    def release(self, target: Target, how: str, pods: tuple[str, ...], key: str, *, permit: Permit) -> Drain:
        """End its pods, as its people have said: scale-to-zero, stop, or delete of these pods (by uid).

        The first two write RELEASED_BY and what was there before; nothing is to be done where our key is on it already,
        or where it wants no pods. A delete is an eviction of each pod: a PodDisruptionBudget's
        refusal is an answer, and a pod that came since, or with local data that nobody gives up, is never asked.

        Raises:
            PermitExpiredError: the permit did not hold before the first call; nothing was sent.
            ProtectedError: its annotations protect or snooze it, or it would lose volumes that nobody gives up.
            NotFoundError: there is no such object.
            CloudUnavailableError: nobody knows whether it was accepted.
            CloudError: it was not accepted, or its kind cannot do that; also if somebody changed it meanwhile.

        """
        ...


class Cluster(Protocol):
    """What the controller asks of a cluster. Each change takes the ledger's key and checks the permit in force last."""

    @property
    def name(self) -> str:
        """The cluster's name in the settings."""
        ...

    @property
    def workloads(self) -> Workloads:
        """Its workloads, one by one."""
        ...

    def view(self) -> ClusterView:
        """All nodes, and all pods that have not ended, as the watch holds them; never raises.

        What cannot be shown is a `trouble` of the whole: nodes and pods are there as they were last seen.
        """
        ...

    def rooms(self) -> Mapping[str, Room]:
        """All nodes and pods as the scheduler sees them, as the watch holds them, by the cluster's name.

        Pods move within their own cluster alone. Of a cluster that is not in it nobody knows what fits where.
        """
        ...

    def node(self, name: str) -> KubernetesNode | None:
        """One node and its pods, asked of the API server now; None: no node has that name.

        Raises:
            CloudError: no answer.

        """
        ...

    def cordon(self, name: str, key: str, *, permit: Permit, taint: bool = False) -> None:
        """Let no new pod onto a node and write CORDONED_BY on it; nothing is to be done where our key is on it already.

        With `taint` it also gets the taint UNHEALTHY, NoSchedule, with the key as its value. Other taints stay.

        Raises:
            PermitExpiredError: the permit did not hold when the call was about to leave.
            ProtectedError: somebody else has cordoned it, or its marks keep it.
            NotFoundError: there is no such node.
            CloudUnavailableError: nobody knows whether it was accepted.
            CloudError: it was not accepted.

        """
        ...

    def uncordon(self, name: str, key: str) -> None:
        """Undo the cordon that bears this key, and its taint; any other stays as it is, and that is success.

        Raises:
            NotFoundError: there is no such node.
            CloudUnavailableError: nobody knows whether it was accepted.
            CloudError: it was not accepted.

        """
        ...

    def mark(self, name: str, owner: str, key: str, *, permit: Permit) -> None:
        """Write the annotation by which the other autoscaler `owner` leaves a node alone, and MARKED_BY.

        Raises:
            PermitExpiredError: the permit did not hold when the call was about to leave.
            ProtectedError: somebody else has marked it.
            NotFoundError: there is no such node.
            CloudUnavailableError: nobody knows whether it was accepted.
            CloudError: it was not accepted.

        """
        ...

    def unmark(self, name: str, key: str) -> None:
        """Take away the mark that bears this key; any other stays as it is, and that is success.

        Raises:
            NotFoundError: there is no such node.
            CloudUnavailableError: nobody knows whether it was accepted.
            CloudError: it was not accepted.

        """
        ...

    def drain(self, name: str, pods: tuple[str, ...], key: str, *, permit: Permit) -> Drain:
        """Ask these pods (by uid) of a node that we have cordoned to go, each by the eviction API.

        A pod of that uid that is gone is evicted. A pod that came since, or that `Pod.drained` does not take, is never
        asked. A pod with local data goes only where LOSES_LOCAL_DATA says so.

        Raises:
            PermitExpiredError: the permit did not hold before the first eviction; nothing was asked.
            ProtectedError: the node does not carry our cordon.
            NotFoundError: there is no such node.
            CloudUnavailableError: nobody knows whether the evictions were accepted.
            CloudError: they were not accepted.

        """
        ...


class ConnectedCluster(Cluster, Protocol):
    """A cluster that is followed in the background until it is closed."""

    @property
    def server(self) -> str:
        """The API server's URL."""
        ...

    def close(self) -> None:
        """Follow nothing any more."""
        ...

    def accesses(self, uses: AbstractSet[Use], namespaces: Sequence[str]) -> Iterator[Access]:
        """Each right that these uses of the cluster need; those to end workloads are asked for in these namespaces.

        Raises:
            CloudError: no answer.

        """
        ...

    def version(self) -> str:
        """The API server's version.

        Raises:
            CloudError: no answer.

        """
        ...
