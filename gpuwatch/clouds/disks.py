"""PURE: what is billed besides machines: disks of machines that are not stopped, and images that nothing names.

An image that nothing uses today may be tomorrow's template: one of the last month is not reported. What other accounts,
or programs outside the cloud, make of an image cannot be seen, so people decide, and gpuwatch removes none.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

from gpuwatch.clouds import Leftover, LeftoverKind
from gpuwatch.model.fleet import Node, NodeState


class HasPlace(Protocol):
    """What is in one region of an account; asking for the account may raise CloudError."""

    @property
    def region(self) -> str:
        """Return the region's name."""

    @property
    def account(self) -> str | None:
        """Return the account's number, where it is known."""


@runtime_checkable
class HasDisks(Protocol):
    """A cloud that lists disks of machines that are in use."""

    def disks(self) -> Sequence[Leftover]:
        """Disks of GPU machines that are not stopped, in the order of the ids; `leftovers` has those of the others.

        Raises:
            CloudError: the list could not be had whole.

        """
        ...


def in_use(nodes: Iterable[Node]) -> frozenset[str]:
    """The ids of those that are not stopped; a state that is not known is not stopped."""
    return frozenset(node.id for node in nodes if node.state is not NodeState.STOPPED)


def of_machines(found: Iterable[Leftover]) -> list[Leftover]:
    """Those that a machine has, as disks in use."""
    return [replace(each, kind=LeftoverKind.RUNNING_VOLUME) for each in found if each.node_id]


def by_id(found: Iterable[Leftover]) -> tuple[Leftover, ...]:
    """In the order of the ids."""
    return tuple(sorted(found, key=lambda each: each.id))


def old_image(
    place: HasPlace, image_id: str, name: str | None, size_bytes: int | None, *, provider: str = "aws"
) -> Leftover:
    """Return an old image that nothing names, as what is left over in its place."""
    return Leftover(
        id=image_id,
        kind=LeftoverKind.IMAGE,
        region=place.region,
        account=place.account,
        provider=provider,
        size_bytes=size_bytes,
        name=name or "",
    )
