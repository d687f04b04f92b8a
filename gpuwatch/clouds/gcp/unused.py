"""What is left of machines on Google Cloud and is still billed: disks, addresses, snapshots. They are only listed."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet

from gpuwatch.clouds import CloudError, Leftover, LeftoverKind
from gpuwatch.clouds.disks import made_at
from gpuwatch.clouds.gcp.calls import LIST_ADDRESSES, LIST_DISKS, LIST_INSTANCES, LIST_SNAPSHOTS, Call
from gpuwatch.clouds.gcp.client import Client, Json
from gpuwatch.clouds.gcp.machine_types import region_of

_GIB = 1024**3  # Google's "GB" of a disk
_MIB = 1024**2
_PROVIDER = "gcp"
_STOPPED = frozenset({"TERMINATED", "STOPPED"})


def listed(client: Client, wanted: Callable[[str], bool]) -> list[Leftover]:
    """Of one project: what nothing uses, and what stopped machines have, of whatever type these are.

    Sources: instances, disks and addresses by aggregatedList; snapshots.list.

    Raises:
        CloudError: a part of it could not be had.

    """
    states = {
        _path(each["selfLink"]): (str(each["id"]), str(each.get("status")))
        for _, each in _everywhere(client, LIST_INSTANCES, wanted)
    }
    disks = list(_everywhere(client, LIST_DISKS, lambda _: True))
    return [
        *_disks(client, [(region, disk) for region, disk in disks if wanted(region)], states),
        *_addresses(client, wanted, states),
        *_snapshots(client, wanted, {_path(disk["selfLink"]) for _, disk in disks}),
    ]


def in_use(client: Client, wanted: Callable[[str], bool], running: AbstractSet[str]) -> list[Leftover]:
    """Disks of these machines, which are not stopped, each once; raises likewise."""
    if not running:
        return []
    names = {
        _path(each["selfLink"]): str(each["id"])
        for _, each in _everywhere(client, LIST_INSTANCES, wanted)
        if str(each["id"]) in running
    }
    found = []
    for region, disk in _everywhere(client, LIST_DISKS, wanted):
        users = [names[_path(user)] for user in disk.get("users", ()) if _path(user) in names]
        if users:
            found.append(_disk(client, region, disk, LeftoverKind.RUNNING_VOLUME, users[0]))
    return found


def _disks(
    client: Client, disks: Iterable[tuple[str, Json]], states: Mapping[str, tuple[str, str]]
) -> Iterator[Leftover]:
    for region, disk in disks:
        users = [states[_path(user)] for user in disk.get("users", ()) if _path(user) in states]
        if disk.get("users") and not (users and all(status in _STOPPED for _, status in users)):
            continue
        kind = LeftoverKind.STOPPED_VOLUME if users else LeftoverKind.UNATTACHED_VOLUME
        yield _disk(client, region, disk, kind, users[0][0] if users else None)


def _disk(client: Client, region: str, disk: Json, kind: LeftoverKind, node_id: str | None) -> Leftover:
    throughput = disk.get("provisionedThroughput")
    return Leftover(
        id=str(disk["id"]),
        kind=kind,
        region=region,
        account=client.project,
        provider=_PROVIDER,
        type=str(disk.get("type", "")).rpartition("/")[2],
        size_bytes=int(disk["sizeGb"]) * _GIB,
        iops=None if disk.get("provisionedIops") is None else int(disk["provisionedIops"]),
        throughput_bytes_per_second=None if throughput is None else int(throughput) * _MIB,
        node_id=node_id,
        name=disk.get("name", ""),
    )


def _addresses(
    client: Client, wanted: Callable[[str], bool], states: Mapping[str, tuple[str, str]]
) -> Iterator[Leftover]:
    """External ones that are reserved: those that nothing uses, and those of stopped machines."""
    for region, address in _everywhere(client, LIST_ADDRESSES, wanted):
        if address.get("addressType", "EXTERNAL") != "EXTERNAL":
            continue
        users = [states[_path(user)] for user in address.get("users", ()) if _path(user) in states]
        unused = address.get("status") == "RESERVED"
        if not unused and not (users and all(status in _STOPPED for _, status in users)):
            continue
        yield Leftover(
            id=str(address["id"]),
            kind=LeftoverKind.STOPPED_ADDRESS if users else LeftoverKind.UNUSED_ADDRESS,
            region=region,
            account=client.project,
            provider=_PROVIDER,
            node_id=users[0][0] if users else None,
            name=address.get("name", ""),
        )


def _snapshots(client: Client, wanted: Callable[[str], bool], disks: AbstractSet[str]) -> Iterator[Leftover]:
    """Those of disks that are gone. The region is the place where one is stored: "us", "us-central1"."""
    for snapshot in client.items(LIST_SNAPSHOTS):
        place = next(iter(snapshot.get("storageLocations", ())), "global")
        region = "-" in place
        if _path(snapshot.get("sourceDisk", "")) in disks or (region and not wanted(place)):
            continue
        yield Leftover(
            id=str(snapshot["id"]),
            kind=LeftoverKind.SNAPSHOT,
            region=place,
            account=client.project,
            provider=_PROVIDER,
            size_bytes=int(snapshot.get("storageBytes", 0)) or None,
            name=snapshot.get("name", ""),
            made=made_at(snapshot.get("creationTimestamp")),
        )


def _everywhere(client: Client, call: Call, wanted: Callable[[str], bool]) -> Iterator[tuple[str, Json]]:
    """Each thing with its region; "global" for what is in no region. A scope that is missing fails the list."""
    for scope, content in client.scopes(call).items():
        kind, _, place = scope.partition("/")
        region = {"zones": region_of(place), "regions": place}.get(kind, "global")
        if region != "global" and not wanted(region):
            continue
        if isinstance(content, CloudError):
            raise content
        yield from ((region, each) for each in content)


def _path(link: str) -> str:
    """A link without its host, which Google writes in two ways."""
    return link.rpartition("/projects/")[2]
