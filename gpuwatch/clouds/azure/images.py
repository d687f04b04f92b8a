"""Own images that no machine, scale set or template names; they are reported, never removed.

Managed images alone: versions in a gallery are made to be shared, and who uses one cannot be seen.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from gpuwatch.clouds import Leftover, LeftoverKind
from gpuwatch.clouds.azure import groups, instances
from gpuwatch.clouds.azure.places import Subscription
from gpuwatch.clouds.azure.resource_ids import same
from gpuwatch.clouds.azure.settings import TemplateSettings
from gpuwatch.clouds.old_images import is_old

_GIB = 1024**3
_KIND = "Microsoft.Compute/images"


def listed(place: Subscription, templates: Iterable[TemplateSettings], now: datetime) -> list[Leftover]:
    """Of one subscription: images older than a month that nothing there, and no template of the settings, names.

    An image does not tell its age; the subscription's list of resources does.

    Sources: Images List, Resources List with createdTime, VirtualMachines ListAll, VirtualMachineScaleSets ListAll.

    Raises:
        CloudError: a part of it could not be had.

    """
    images = [each for each in place.everything("images") if place.covers(str(each.get("location", "")))]
    made = _made(place) if images else {}
    old = [image for image in images if is_old(made.get(same(str(image["id"]))), now)]
    written = _written(templates) if old else ""
    if not old or written is None:
        return []  # machines need not be looked at
    used = {same(name) for name in _named(place)}
    return [
        Leftover(
            id=str(image["id"]),
            kind=LeftoverKind.IMAGE,
            region=str(image.get("location", "")),
            account=place.id,
            provider="azure",
            size_bytes=_size(image),
            name=str(image.get("name", "")),
        )
        for image in old
        if same(str(image["id"])) not in used and same(str(image["id"])) not in written
    ]


def _made(place: Subscription) -> dict[str, str]:
    """When each image was made, by `same` of its path."""
    found = place.listed(
        f"{place.root}/resources",
        version="resources",
        filter_=f"resourceType eq '{_KIND}'",
        expand="createdTime",
    )
    return {same(str(each["id"])): str(each.get("createdTime", "")) for each in found}


def _written(templates: Iterable[TemplateSettings]) -> str | None:
    """The bodies of the settings' templates; None: one cannot be read, and nobody knows what it names."""
    try:
        return "\n".join(Path(each.body).read_text(encoding="utf-8").lower() for each in templates if each.body)
    except (OSError, UnicodeDecodeError):
        return None


def _named(place: Subscription) -> Iterator[str]:
    """Images of machines, of scale sets, and of members of Uniform ones, which may be of an older model."""
    for machine in place.everything("virtualMachines"):
        yield _reference(machine.get("properties") or {})
    for group in groups.listed(place):
        properties = group.described.get("properties") or {}
        yield _reference(properties.get("virtualMachineProfile") or {})
        for member in instances.members(place, group.described) if group.uniform else ():
            yield _reference(member.described.get("properties") or {})


def _reference(properties: Mapping[str, Any]) -> str:
    return str(((properties.get("storageProfile") or {}).get("imageReference") or {}).get("id") or "")


def _size(image: Mapping[str, Any]) -> int | None:
    profile = (image.get("properties") or {}).get("storageProfile") or {}
    disks = [profile.get("osDisk") or {}, *(profile.get("dataDisks") or ())]
    return sum(int(disk.get("diskSizeGB") or 0) for disk in disks) * _GIB or None
