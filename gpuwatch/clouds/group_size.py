"""PURE: what every cloud looks at right before a group's desired size is taken back: no member may go for it."""

from collections.abc import Sequence

from gpuwatch.clouds.errors import CloudError, ProtectedError

TOO_MANY_MEMBERS, NOT_PROTECTED = "TooManyMembers", "NotProtected"  # our own codes


def refuse_if_chosen(name: str, bare: Sequence[str], members: int, size: int) -> None:
    """Refuse what could cost a member: `bare` are those of the group's `members` that it may choose.

    Raises:
        CloudError: the group has more than `size`.
        ProtectedError: one is not protected from a scale-in.

    """
    if members > size:
        raise CloudError(f"{name} has {members} machines: {size} would end one", code=TOO_MANY_MEMBERS)
    if bare:
        raise ProtectedError(f"{name} could choose {bare[0]} for a scale-in: its size stays", code=NOT_PROTECTED)
