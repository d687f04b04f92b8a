"""What every cloud looks at before and after a group's desired size is taken back: no member may go for it."""

from collections.abc import Callable, Sequence

from gpuwatch.clouds.errors import CloudError, ProtectedError
from gpuwatch.clouds.permit import undoing

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


def raise_again(
    name: str, size: int, before: int, members: Callable[[], int], set_size: Callable[[int], object]
) -> None:
    """Look again after the size was lowered to `size` from `before`, and raise it where more members are there by now.

    No cloud lowers a size on a condition. A member that came, or that somebody attached, between the look before and
    the call has no protection, and the group would choose it. A group takes some seconds to choose. Where nobody can
    tell, the size stays as it is.

    Raises:
        CloudError: it was raised again, or that failed.

    """
    try:
        count = members()
    except CloudError:
        return
    if count <= size:
        return
    raised = min(count, before)
    with undoing():
        set_size(raised)
    raise CloudError(f"{name} had {count} machines by then: its size is {raised} again", code=TOO_MANY_MEMBERS)
