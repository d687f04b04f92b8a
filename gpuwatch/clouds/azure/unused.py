"""What is left of machines on Azure and goes on being billed. It is reported, never removed.

A disk that nothing holds, the disks and addresses of deallocated machines, addresses of interfaces without a machine,
and snapshots of disks that are gone. An interface by itself costs nothing.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from gpuwatch.clouds import Leftover, LeftoverKind
from gpuwatch.clouds.azure.places import Subscription
from gpuwatch.clouds.azure.resource_ids import same
from gpuwatch.clouds.disks import made_at, of_machines

_GIB, _MB = 1024**3, 1000**2
_PROVIDER = "azure"
_UNATTACHED = "unattached"
_NETWORK = "Microsoft.Network"
_DISK = "/microsoft.compute/disks/"  # another source is another subscription's image, or a snapshot


def listed(place: Subscription, stopped: Mapping[str, str]) -> list[Leftover]:
    """Of one subscription; `stopped` are the ids of stopped machines by `same` of their paths.

    Raises:
        CloudError: a part of it could not be had.

    """
    disks = place.everything("disks", version="disks")
    there = {same(str(disk["id"])) for disk in disks}
    return [*_disks(place, disks, stopped), *_snapshots(place, there), *_addresses(place, stopped)]


def in_use(place: Subscription, running: Mapping[str, str]) -> list[Leftover]:
    """Disks of these machines, which are not stopped; raises likewise."""
    disks = place.everything("disks", version="disks") if running else []
    return of_machines(_disks(place, disks, running))


def _disks(place: Subscription, disks: Sequence[Mapping[str, Any]], stopped: Mapping[str, str]) -> Iterator[Leftover]:
    """Source: Disks List."""
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
        source = (properties.get("creationData") or {}).get("sourceResourceId")
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
                made=made_at(properties.get("timeCreated")),
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
    return None if gib is None else int(gib) * _GIB
