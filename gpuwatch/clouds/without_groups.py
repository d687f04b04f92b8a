"""What a cloud answers that has machines alone: hosts of one's own, and whatever a driver speaks for."""

from collections.abc import Sequence
from typing import ClassVar

from gpuwatch.clouds.errors import CloudError, NotFoundError
from gpuwatch.model.fleet import NodeGroup

NO_GROUPS = "NoGroups"  # our own code


class WithoutGroups:
    """The part of `clouds.Cloud` that is about groups."""

    whose: ClassVar[str]  # what has no groups

    def groups(self) -> Sequence[NodeGroup]:
        """Return nothing: no machine is in one."""
        return ()

    def group(self, group_id: str) -> NodeGroup:
        """Refuse it: there are no groups."""
        raise self._no_group(group_id)

    def grow(self, group_id: str, size: int, key: str) -> None:
        """Refuse the growth: there are no groups."""
        del size, key
        raise self._no_group(group_id)

    def shrink(self, group_id: str, size: int, key: str) -> None:
        """Refuse the reduction: there are no groups."""
        del size, key
        raise self._no_group(group_id)

    def protect(self, node_id: str, group_id: str, key: str, *, on: bool) -> None:
        """Refuse the protection: there are no groups."""
        del node_id, key, on
        raise self._no_group(group_id)

    def _no_group(self, group_id: str) -> CloudError:
        return NotFoundError(f"{self.whose} have no groups, so there is no {group_id}", code=NO_GROUPS)
