"""Own images that no disk and no template names; they are reported, never removed."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from gpuwatch.clouds import CloudError, Leftover, LeftoverKind
from gpuwatch.clouds.gcp.calls import LIST_DISKS, LIST_IMAGES, LIST_TEMPLATES
from gpuwatch.clouds.gcp.client import Client, Json
from gpuwatch.clouds.old_images import is_old


def listed(clients: Sequence[Client], now: datetime) -> list[Leftover]:
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
    used = {_path(link) for client in clients for link in _named(client)}
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
        if _path(image["selfLink"]) not in used
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


def _named(client: Client) -> Iterator[str]:
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


def _path(link: str) -> str:
    """A link without its host, which Google writes in two ways: projects/P/global/images/N."""
    return link.partition("/compute/v1/")[2] or link
