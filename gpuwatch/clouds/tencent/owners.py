"""Which other system owns a machine on Tencent Cloud: by TKE's own word, by names and by tags. Doubt makes it theirs.

TKE leaves no tag on the machines of its clusters: `tke-clusterId` is one of load balancers and disks. It names those
that it makes `tke_cls-…_worker`, and says itself which machines are in a cluster, whatever their names are.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from gpuwatch.clouds import AuthFailedError, CloudError
from gpuwatch.clouds.survey import batches
from gpuwatch.clouds.tags import Owners, owner_by
from gpuwatch.clouds.tencent.client import Line
from gpuwatch.clouds.tencent.errors import asking
from gpuwatch.runtime.clock import Clock

GROUP_TAG = "tencentcloud:autoscaling:auto-scaling-group-id"  # which Auto Scaling leaves on the machines it makes

# Tags by which other systems own a machine: pattern of the key, what owns it. The first match wins.
_OWNERS: Owners = (
    ("tke-clusterId", "TKE cluster"),
    ("tke-*", "TKE"),
    ("tke.cloud.tencent.com/*", "TKE"),
    ("tencentcloud:tke:*", "TKE"),
    ("kubernetes.io/cluster/*", "Kubernetes cluster"),
    ("k8s.io/cluster-autoscaler/*", "cluster autoscaler"),
    ("karpenter.*", "Karpenter"),
    ("emr-*", "EMR"),
    ("tencentcloud:emr:*", "EMR"),
    ("tencentcloud:batch:*", "Batch Compute"),
    ("tencentcloud:thpc:*", "THPC cluster"),
    ("ray-cluster-name", "Ray cluster"),
    ("tencentcloud:autoscaling:*", "Auto Scaling group"),
    ("tencentcloud:*", "a service of Tencent Cloud"),  # the prefix is kept for its own services
)
_OF_A_GROUP = "tencentcloud:autoscaling:*"
_OF_TKE = re.compile(r"tke[_-](?P<cluster>cls-[a-z0-9]+)?", re.IGNORECASE)  # how TKE begins names

_DESCRIBE, _IDS_A_CALL = "DescribeExistedInstances", 100
_REMEMBERED_SECONDS = 600.0  # a question for each hundred machines of a round is too many, at TKE's pace
_NOT_THERE = ("UnsupportedRegion", "InvalidParameterValue.Region")  # where there is no TKE, nothing is in a cluster


def managed_by(
    tags: Mapping[str, str], *, name: str = "", cluster: str | None = None, in_own_group: bool = False
) -> str | None:
    """Which other system owns a machine or a group; None if none does.

    `name` is its own, `cluster` what `Clusters` says about it. `in_own_group`: it is an Auto Scaling group with consent
    for gpuwatch, or a member of one. Then the group is no foreign owner; a system that drives the group (TKE, EMR)
    still is one.
    """
    if cluster is not None:
        return cluster
    named = _OF_TKE.match(name)
    if named is not None:
        return f"TKE cluster {named['cluster']}" if named["cluster"] else "TKE"
    return owner_by(_OWNERS, tags, lambda key: in_own_group and fnmatchcase(key, _OF_A_GROUP))


class Clusters:
    """Which TKE cluster the fleet's machines are in, by TKE's own word, which lists remember for some minutes.

    A machine that enters a cluster meanwhile is shown as ours for so long. It is not touched: right before a change it
    is asked about once more (`of_machine`), and what comes is remembered. One that is new is asked about at once.
    """

    def __init__(self, clock: Clock) -> None:
        """Nothing is asked yet."""
        self._clock = clock
        self._known: dict[str, dict[str, tuple[float, str | None]]] = {}  # by the place and the machine: when, and what

    def of_list(self, place: str, line: Line, ids: Sequence[str]) -> dict[str, str]:
        """The owners of these machines, which are all of the place; those that are in no cluster are left out.

        Where we may not ask, each may be in one.

        Raises:
            CloudError: no answer.

        """
        now, before = self._clock.monotonic(), self._known.get(place, {})
        known = {each: before[each] for each in ids if each in before and now - before[each][0] < _REMEMBERED_SECONDS}
        owners = {each: owner for each, (_, owner) in known.items() if owner is not None}
        return owners | self._ask(place, line, [each for each in ids if each not in known], known)

    def of_machine(self, place: str, line: Line, node_id: str) -> dict[str, str]:
        """The owner of one machine at this moment; raises CloudError."""
        return self._ask(place, line, [node_id], dict(self._known.get(place, {})))

    def _ask(
        self, place: str, line: Line, ids: list[str], known: dict[str, tuple[float, str | None]]
    ) -> dict[str, str]:
        """Ask about these machines, and remember the answers. Source: DescribeExistedInstances, AlreadyInCluster."""
        try:
            found = {
                node_id: f"TKE cluster {cluster}"
                for batch in batches(sorted(ids), _IDS_A_CALL)
                for node_id, cluster in _memberships(line, list(batch))
            }
        except AuthFailedError as error:
            self._known[place] = {each: told for each, told in known.items() if each not in ids}
            return dict.fromkeys(ids, f"TKE, for all that is known: tke:{_DESCRIBE} is not allowed ({error.code})")
        except CloudError as error:
            if error.code not in _NOT_THERE:
                raise
            found = {}
        now = self._clock.monotonic()
        self._known[place] = known | {each: (now, found.get(each)) for each in ids}
        return found


def _memberships(line: Line, ids: list[str]) -> Iterator[tuple[str, str]]:
    found = line.list_all("tke", _DESCRIBE, "ExistedInstanceSet", "InstanceId", InstanceIds=ids)
    with asking(line.name_call(_DESCRIBE)):
        for each in found:
            if each["AlreadyInCluster"]:
                yield each["InstanceId"], str(each["AlreadyInCluster"])
