"""What Azure has for people to look at: what is left of machines, use, other places; it is never acted on.

Left are a disk that nothing holds, the disks and addresses of deallocated machines, addresses of interfaces without a
machine, snapshots of disks that are gone, and images. An interface by itself costs nothing.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from gpuwatch.clouds import CloudError, Leftover, LeftoverKind
from gpuwatch.clouds.azure import groups, instances
from gpuwatch.clouds.azure.instances import Machine
from gpuwatch.clouds.azure.nodes import Surroundings, Translator
from gpuwatch.clouds.azure.places import Subscription, Subscriptions, same
from gpuwatch.clouds.azure.seen import Paths
from gpuwatch.clouds.azure.settings import TemplateSettings
from gpuwatch.clouds.disks import of_machines
from gpuwatch.clouds.errors import reading
from gpuwatch.clouds.places import everywhere
from gpuwatch.clouds.survey import (
    GIB,
    CloudUse,
    Surveyed,
    machine_in_series,
    refuse_partial,
    unanswered_place,
    use_of_values,
)
from gpuwatch.clouds.times import is_old, time_made

_MB = 1000**2
_PROVIDER = "azure"
_UNATTACHED = "unattached"
_NETWORK = "Microsoft.Network"
_DISK = "/microsoft.compute/disks/"  # another source is another subscription's image, or a snapshot


def list_unused(place: Subscription, stopped: Mapping[str, str]) -> list[Leftover]:
    """Of one subscription; `stopped` are the ids of stopped machines by `same` of their paths.

    Raises:
        CloudError: a part of it could not be had.

    """
    disks = place.everything("disks", version="disks")
    there = {same(str(disk["id"])) for disk in disks}
    return [*_disks(place, disks, stopped), *_snapshots(place, there), *_addresses(place, stopped)]


def disks_in_use(place: Subscription, running: Mapping[str, str]) -> list[Leftover]:
    """Disks of these machines, which are not stopped; raises CloudError."""
    disks = place.everything("disks", version="disks") if running else []
    return of_machines(_disks(place, disks, running))


def _disks(place: Subscription, disks: Sequence[Mapping[str, Any]], stopped: Mapping[str, str]) -> Iterator[Leftover]:
    """Return disks that no machine uses. Source: Azure Disks List."""
    for disk in disks:
        properties = disk.get("properties") or {}
        owner = disk.get("managedBy")
        node_id = stopped.get(same(str(owner))) if owner else None
        free = not owner and str(properties.get("diskState", "")).lower() == _UNATTACHED
        if not place.covers(_region(disk)) or (node_id is None and not free):
            continue
        throughput = properties.get("diskMBpsReadWrite")
        yield Leftover(
            id=str(disk["id"]),
            kind=LeftoverKind.UNATTACHED_VOLUME if free else LeftoverKind.STOPPED_VOLUME,
            region=_region(disk),
            account=place.id,
            provider=_PROVIDER,
            type=str((disk.get("sku") or {}).get("name", "")),
            size_bytes=_size(properties),
            iops=properties.get("diskIOPSReadWrite"),
            throughput_bytes_per_second=None if throughput is None else int(throughput) * _MB,
            node_id=node_id,
            name=str(disk.get("name", "")),
        )


def _snapshots(place: Subscription, disks: Collection[str]) -> Iterator[Leftover]:
    """Snapshots of disks that are gone; `disks` are those that are there, by `same`. Source: Snapshots List."""
    for snapshot in place.everything("snapshots", version="disks"):
        properties = snapshot.get("properties") or {}
        made_of = properties.get("creationData") or {}
        source = made_of.get("sourceResourceId") or made_of.get("sourceUri")  # of older copies
        if place.covers(_region(snapshot)) and source and _DISK in same(source) and same(source) not in disks:
            yield Leftover(
                id=str(snapshot["id"]),
                kind=LeftoverKind.SNAPSHOT,
                region=_region(snapshot),
                account=place.id,
                provider=_PROVIDER,
                type=str((snapshot.get("sku") or {}).get("name", "")),
                size_bytes=_size(properties),
                name=str(snapshot.get("name", "")),
                made=time_made(properties.get("timeCreated")),
            )


def _addresses(place: Subscription, stopped: Mapping[str, str]) -> Iterator[Leftover]:
    """Sources: PublicIPAddresses ListAll, NetworkInterfaces ListAll."""
    interfaces = {
        same(str(each["id"])): str(((each.get("properties") or {}).get("virtualMachine") or {}).get("id") or "")
        for each in place.everything("networkInterfaces", provider=_NETWORK, version="network")
    }
    for address in place.everything("publicIPAddresses", provider=_NETWORK, version="network"):
        holder = str(((address.get("properties") or {}).get("ipConfiguration") or {}).get("id") or "")
        interface = same(holder).partition("/ipconfigurations/")[0]
        machine = interfaces.get(interface)
        node_id = stopped.get(same(machine)) if machine else None
        idle = not holder or machine == ""
        if not place.covers(_region(address)) or (node_id is None and not idle):
            continue
        yield Leftover(
            id=str(address["id"]),
            kind=LeftoverKind.UNUSED_ADDRESS if idle else LeftoverKind.STOPPED_ADDRESS,
            region=_region(address),
            account=place.id,
            provider=_PROVIDER,
            node_id=node_id,
            name=str(address.get("name", "")),
        )


def _region(described: Mapping[str, Any]) -> str:
    return str(described.get("location", ""))


def _size(properties: Mapping[str, Any]) -> int | None:
    """In bytes; Azure's "GB" of a disk are GiB."""
    size, gib = properties.get("diskSizeBytes"), properties.get("diskSizeGB")
    if isinstance(size, int):
        return size
    return None if gib is None else int(gib) * GIB


_KIND = "Microsoft.Compute/images"


def old_images(place: Subscription, templates: Iterable[TemplateSettings], now: datetime) -> list[Leftover]:
    """Of one subscription: images older than a month that nothing there, and no template of the settings, names.

    An image does not tell its age; the subscription's list of resources does.

    Sources: Images List, Resources List with createdTime, VirtualMachines ListAll, VirtualMachineScaleSets ListAll.

    Raises:
        CloudError: a part of it could not be had.

    """
    images = [each for each in place.everything("images") if place.covers(str(each.get("location", "")))]
    made = _made_times(place) if images else {}
    old = [image for image in images if is_old(made.get(same(str(image["id"]))), now)]
    written = _template_bodies(templates) if old else ""
    if not old or written is None:
        return []  # machines need not be looked at
    used = {same(name) for name in _named_images(place)}
    return [
        Leftover(
            id=str(image["id"]),
            kind=LeftoverKind.IMAGE,
            region=str(image.get("location", "")),
            account=place.id,
            provider="azure",
            size_bytes=_image_size(image),
            name=str(image.get("name", "")),
        )
        for image in old
        if same(str(image["id"])) not in used and same(str(image["id"])) not in written
    ]


def _made_times(place: Subscription) -> dict[str, str]:
    """When each image was made, by `same` of its path."""
    found = place.list_all(
        f"{place.root}/resources",
        version="resources",
        filter_=f"resourceType eq '{_KIND}'",
        expand="createdTime",
    )
    return {same(str(each["id"])): str(each.get("createdTime", "")) for each in found}


def _template_bodies(templates: Iterable[TemplateSettings]) -> str | None:
    """The bodies of the settings' templates; None: one cannot be read, and nobody knows what it names."""
    try:
        return "\n".join(Path(each.body).read_text(encoding="utf-8").lower() for each in templates if each.body)
    except (OSError, UnicodeDecodeError):
        return None


def _named_images(place: Subscription) -> Iterator[str]:
    """Images of machines, of scale sets, and of members of Uniform ones, which may be of an older model."""
    for machine in place.everything("virtualMachines"):
        yield _reference(machine.get("properties") or {})
    for group in groups.every_group(place):
        properties = group.described.get("properties") or {}
        yield _reference(properties.get("virtualMachineProfile") or {})
        for member in instances.members(place, group.described) if group.uniform else ():
            yield _reference(member.described.get("properties") or {})


def _reference(properties: Mapping[str, Any]) -> str:
    return str(((properties.get("storageProfile") or {}).get("imageReference") or {}).get("id") or "")


def _image_size(image: Mapping[str, Any]) -> int | None:
    profile = (image.get("properties") or {}).get("storageProfile") or {}
    disks = [profile.get("osDisk") or {}, *(profile.get("dataDisks") or ())]
    return sum(int(disk.get("diskSizeGB") or 0) for disk in disks) * GIB or None


MONITOR = "Azure Monitor"
_PERIOD_SECONDS = 3600  # an hour: the platform's own metrics are kept for 93 days
_CPU, _RECEIVED, _SENT = "Percentage CPU", "Network In Total", "Network Out Total"
_FORM = "%Y-%m-%dT%H:%M:%SZ"
_GOOD = "Success"  # the errorCode of a metric that was read whole


def use_of(place: Subscription, paths: Mapping[str, str], begin: datetime, end: datetime) -> dict[str, CloudUse]:
    """Use of those of these machines that have values, by their ids; raises CloudError."""
    found = {name: _use_of_machine(place.beside_path(path), path, begin, end) for name, path in paths.items()}
    return {name: use for name, use in found.items() if use is not None}


def _use_of_machine(place: Subscription, path: str, begin: datetime, end: datetime) -> CloudUse | None:
    """Use of one machine between two times; None: it has no values. Source: Metrics List of the machine.

    Raises:
        CloudError: no answer, or it is not allowed.

    """
    answer = place.get(
        f"{path}/providers/Microsoft.Insights/metrics",
        version="metrics",
        metricnames=f"{_CPU},{_RECEIVED},{_SENT}",
        timespan=f"{begin.strftime(_FORM)}/{end.strftime(_FORM)}",
        interval="PT1H",
        aggregation="Average,Maximum,Total",
    )
    said = f"{MONITOR} of {path}"
    with reading(said):
        # One machine is asked about, in the path; a series names its metric.
        hours: dict[str, list[Mapping[str, Any]]] = {}
        for metric in answer.body["value"]:
            if metric.get("errorCode", _GOOD) != _GOOD:
                refuse_partial(said, metric.get("errorMessage") or metric["errorCode"])
            hours.setdefault(machine_in_series(metric["name"]["value"], said), []).extend(_hours(metric))
        return use_of_values(
            means=_values(hours.get(_CPU, []), "average"),
            highest=_values(hours.get(_CPU, []), "maximum"),
            received=_values(hours.get(_RECEIVED, []), "total"),
            sent=_values(hours.get(_SENT, []), "total"),
            seconds=_PERIOD_SECONDS,
        )


def _hours(metric: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [hour for series in metric.get("timeseries") or () for hour in series.get("data") or ()]


def _values(hours: list[Mapping[str, Any]], word: str) -> list[float]:
    """An hour without values counts for nothing: the machine was off."""
    return [float(hour[word]) for hour in hours if hour.get(word) is not None]


_USABLE = frozenset({"enabled", "warned", "pastdue"})


def elsewhere(places: Subscriptions, translator: Translator, paths: Paths) -> list[Surveyed]:
    """Every region with GPU machines where the settings do not look, and every subscription that gives no answer.

    Raises:
        CloudError: the subscriptions cannot be listed.

    """
    own = [place for place in places.all if place.regions]  # without regions all of them are looked at
    found = everywhere([*own, *_others(places)], lambda place: list(_look_at_regions(places, place, translator, paths)))
    return [each for part in found for each in part if not each.watched]


def every_place(places: Subscriptions, translator: Translator, paths: Paths) -> list[Surveyed]:
    """All regions that have GPU machines; where other subscriptions cannot be listed, that is an entry."""
    try:
        others, missing = list(_others(places)), []
    except CloudError as error:
        others, missing = [], [unanswered_place("other subscriptions", error)]
    found = everywhere([*places.all, *others], lambda place: list(_look_at_regions(places, place, translator, paths)))
    return [*(each for part in found for each in part), *missing]


def _others(places: Subscriptions) -> Iterator[Subscription]:
    """Return subscriptions that the settings do not name. Source: Azure Subscriptions List."""
    first = places.all[0]
    known = {place.id for place in places.all}
    for each in first.list_all("/subscriptions", version="subscriptions"):
        number = str(each.get("subscriptionId", "")).lower()
        if number and number not in known and str(each.get("state", "")).lower() in _USABLE:
            yield first.beside(number, str(each.get("displayName") or number))


def _look_at_regions(
    places: Subscriptions, place: Subscription, translator: Translator, paths: Paths
) -> Iterator[Surveyed]:
    """One subscription by its regions; one list has all of them."""
    ours = place in places.all
    apart = Subscription(place.id, place.account, frozenset(), place.line, place.groups)
    try:
        there = _machines(apart, translator)
        nodes = list(translator.nodes(apart, there, Surroundings()))
    except CloudError as error:
        yield unanswered_place(place.name, error, watched=ours)
        return
    paths.saw(there)  # for the monitor's answers
    regions = {node.region for node in nodes} | {region for region in place.regions if ours}
    for region in sorted(regions):
        yield Surveyed(
            where=f"{region} of {place.name}",
            region=region,
            watched=ours and place.covers(region),
            nodes=tuple(node for node in nodes if node.region == region),
        )


def _machines(place: Subscription, translator: Translator) -> list[Machine]:
    found = instances.list_machines(place)
    for group in groups.every_group(place):
        if group.uniform and translator.has_gpus(place, group.region, group.size):
            found += instances.members(place, group.described)
    return found
