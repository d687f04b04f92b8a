"""What Google Cloud has for people to look at: what is left of machines, use, other regions; it is never acted on."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gpuwatch.clouds import CloudError, Leftover, LeftoverKind
from gpuwatch.clouds.errors import reading
from gpuwatch.clouds.gcp.client import Client, Json
from gpuwatch.clouds.gcp.groups import region_of
from gpuwatch.clouds.gcp.iam import (
    LIST_ADDRESSES,
    LIST_DISKS,
    LIST_IMAGES,
    LIST_INSTANCES,
    LIST_REGIONS,
    LIST_SNAPSHOTS,
    LIST_TEMPLATES,
    LIST_TIME_SERIES,
    Call,
)
from gpuwatch.clouds.gcp.instances import Instance, Translator
from gpuwatch.clouds.gcp.places import Listing
from gpuwatch.clouds.survey import (
    GIB,
    MIB,
    CloudUse,
    Surveyed,
    batches,
    machine_in_series,
    refuse_partial,
    use_of_values,
)
from gpuwatch.clouds.times import is_old, time_made
from gpuwatch.model.fleet import Node

_PROVIDER = "gcp"
_STOPPED = frozenset({"TERMINATED", "STOPPED"})


def list_unused(client: Client, wanted: Callable[[str], bool]) -> list[Leftover]:
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


def disks_in_use(client: Client, wanted: Callable[[str], bool], running: AbstractSet[str]) -> list[Leftover]:
    """Disks of these machines, which are not stopped, each once; raises CloudError."""
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
        size_bytes=int(disk["sizeGb"]) * GIB,
        iops=None if disk.get("provisionedIops") is None else int(disk["provisionedIops"]),
        throughput_bytes_per_second=None if throughput is None else int(throughput) * MIB,
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
            made=time_made(snapshot.get("creationTimestamp")),
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


def old_images(clients: Sequence[Client], now: datetime) -> list[Leftover]:
    """Of some projects: images older than a month that nothing in any of these projects names.

    A disk that was made from one keeps it, whatever machine has the disk. Of a family the newest is kept, since a
    template may name the family. The size is what is stored.

    Sources: images.list; disks and instanceTemplates by aggregatedList.

    Raises:
        CloudError: a part of it could not be had.

    """
    found = [(client, list(_old(client.items(LIST_IMAGES), now))) for client in clients]
    if not any(images for _, images in found):
        return []  # disks and templates need not be looked at
    used = {_image_path(link) for client in clients for link in _named_images(client)}
    return [
        Leftover(
            id=str(image["id"]),
            kind=LeftoverKind.IMAGE,
            region=next(iter(image.get("storageLocations", ())), "global"),
            account=client.project,
            provider="gcp",
            size_bytes=int(image.get("archiveSizeBytes", 0)) or None,
            name=image.get("name", ""),
        )
        for client, images in found
        for image in images
        if _image_path(image["selfLink"]) not in used
    ]


def _old(images: Sequence[Json], now: datetime) -> Iterator[Json]:
    newest: dict[str, str] = {}
    for image in images:
        family = image.get("family", "")
        if not (image.get("deprecated") or {}).get("state"):
            newest[family] = max(newest.get(family, ""), image.get("creationTimestamp", ""))
    for image in images:
        family, made = image.get("family", ""), image.get("creationTimestamp")
        kept = family and made == newest.get(family)
        if image.get("status") == "READY" and not kept and is_old(made, now):
            yield image


def _named_images(client: Client) -> Iterator[str]:
    for content in client.scopes(LIST_DISKS).values():
        if isinstance(content, CloudError):
            raise content
        yield from (each.get("sourceImage", "") for each in content)
    for content in client.scopes(LIST_TEMPLATES).values():
        if isinstance(content, CloudError):
            raise content
        for template in content:
            for disk in (template.get("properties") or {}).get("disks", ()):
                yield (disk.get("initializeParams") or {}).get("sourceImage", "")


def _image_path(link: str) -> str:
    """A link without its host, which Google writes in two ways: projects/P/global/images/N."""
    return link.partition("/compute/v1/")[2] or link


MONITOR = "Cloud Monitoring"
_HOUR = "3600s"
_NODES_A_CALL = 50
_BY_MACHINE = "resource.label.instance_id"
_FORM = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """A metric, its value of an hour, and how a machine's several series become one."""

    metric: str
    aligner: str
    reducer: str


# The CPU's is a ratio, the network's counts of bytes become rates, the GPU's is per cent of each GPU.
_CPU = "compute.googleapis.com/instance/cpu/utilization"
_NETWORK = "compute.googleapis.com/instance/network"
_MEAN = _Question(metric=_CPU, aligner="ALIGN_MEAN", reducer="REDUCE_MEAN")
_HIGHEST = _Question(metric=_CPU, aligner="ALIGN_MAX", reducer="REDUCE_MAX")
_RECEIVED = _Question(metric=f"{_NETWORK}/received_bytes_count", aligner="ALIGN_RATE", reducer="REDUCE_SUM")
_SENT = _Question(metric=f"{_NETWORK}/sent_bytes_count", aligner="ALIGN_RATE", reducer="REDUCE_SUM")
_GPU = _Question(metric="agent.googleapis.com/gpu/utilization", aligner="ALIGN_MEAN", reducer="REDUCE_MEAN")

_Hours = Mapping[str, Sequence[float]]  # the values of the hours, by machine


def use_in(client: Client, node_ids: Sequence[str], begin: datetime, end: datetime) -> dict[str, CloudUse]:
    """Use between two times of the machines that Cloud Monitoring knows. Source: projects.timeSeries.list.

    Raises:
        CloudError: no answer, or it is not allowed.

    """
    found: dict[str, CloudUse] = {}
    for batch in batches(node_ids, _NODES_A_CALL):
        questions = (_MEAN, _HIGHEST, _RECEIVED, _SENT, _GPU)
        mean, highest, received, sent, gpu = (_hours(client, each, batch, begin, end) for each in questions)
        for node_id in batch:
            use = use_of_values(
                means=mean.get(node_id, ()),
                highest=highest.get(node_id, ()),
                received=received.get(node_id, ()),
                sent=sent.get(node_id, ()),
                gpus=gpu.get(node_id, ()),
                percent=False,
            )
            if use is not None:
                found[node_id] = use
    return found


def _hours(client: Client, asked: _Question, batch: Sequence[str], begin: datetime, end: datetime) -> _Hours:
    """The values of each machine's hours; a series may go on on the next page."""
    ids = ",".join(f'"{node_id}"' for node_id in batch)
    query = {
        "filter": f'metric.type = "{asked.metric}" AND resource.type = "gce_instance" AND '
        f"resource.labels.instance_id = one_of({ids})",
        "interval.startTime": begin.strftime(_FORM),
        "interval.endTime": end.strftime(_FORM),
        "aggregation.alignmentPeriod": _HOUR,
        "aggregation.perSeriesAligner": asked.aligner,
        "aggregation.crossSeriesReducer": asked.reducer,
        "aggregation.groupByFields": _BY_MACHINE,
    }
    found: dict[str, list[float]] = {}
    said = f"{LIST_TIME_SERIES.name} in {client}"
    for page in client.pages(LIST_TIME_SERIES, query=query):
        refuse_partial(said, page.get("executionErrors") or page.get("unreachable"))
        for series in page.get("timeSeries", ()):
            with reading(said):
                named = ((series.get("resource") or {}).get("labels") or {}).get("instance_id")
                values = found.setdefault(machine_in_series(named, said), [])
                values += [_value(point) for point in series.get("points", ())]
    return found


def _value(point: Mapping[str, Any]) -> float:
    """A mean is a double, whatever the metric is; the API writes whole numbers as text."""
    value = point["value"]
    return float(value["doubleValue"] if "doubleValue" in value else value["int64Value"])


def elsewhere(listing: Listing, apart: Translator) -> Iterator[Surveyed]:
    """Every region of a project that the settings do not name, with the GPU machines in it.

    Sources: regions.list, instances.aggregatedList.

    Raises:
        CloudError: they cannot be listed.

    """
    client = listing.client
    names = sorted(each["name"] for each in client.items(LIST_REGIONS) if not listing.wanted(each["name"]))
    machines: dict[str, list[Node]] = {name: [] for name in names}
    trouble: dict[str, str] = {}
    for scope, content in client.scopes(LIST_INSTANCES).items():
        region = region_of(scope.removeprefix("zones/"))
        if region not in machines:
            continue
        if isinstance(content, CloudError):
            trouble[region] = str(content)
            continue
        for each in content:
            node = apart.node(client, Instance(described=each, project=client.project), {}, leaving=False)
            if node.known_gpus > 0:
                machines[region].append(node)
    for name in names:
        nodes = tuple(sorted(machines[name], key=lambda node: node.id))
        yield Surveyed(where=f"{name} of {client}", region=name, nodes=nodes, trouble=trouble.get(name))
