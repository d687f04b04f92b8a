"""Resource locks. Azure itself refuses what they forbid; here they are shown in good time.

A lock holds for all that is below it. CanNotDelete refuses deletions; ReadOnly also refuses every POST, so a machine
under it can neither be deallocated nor started (page "Lock your resources").
"""

import logging
from collections.abc import Mapping
from typing import Any

from gpuwatch.clouds.azure.places import Subscription
from gpuwatch.clouds.azure.resource_ids import same
from gpuwatch.clouds.errors import AuthFailedError

log = logging.getLogger(__name__)

_END = "/providers/microsoft.authorization/locks/"
_READ_ONLY, _DELETE = "readonly", "cannotdelete"


class Locks:
    """The locks of a subscription at one moment."""

    def __init__(self, listed: list[dict[str, Any]]) -> None:
        """As Azure lists them: each has the id of what it locks in its own."""
        self._locks = [
            (same(str(each.get("id", "")).lower().partition(_END)[0]), _level(each), str(each.get("name", "")))
            for each in listed
        ]

    def against_stop(self, path: str) -> str | None:
        """The lock that refuses a stop and a start."""
        return self._of(path, {_READ_ONLY})

    def against_end(self, path: str) -> str | None:
        """The lock that refuses an end."""
        return self._of(path, {_READ_ONLY, _DELETE})

    def _of(self, path: str, levels: set[str]) -> str | None:
        inner = same(path)
        for scope, level, name in self._locks:
            if level in levels and (inner == scope or inner.startswith(f"{scope}/")):
                return f"the lock {name} ({'ReadOnly' if level == _READ_ONLY else 'CanNotDelete'}) forbids it"
        return None


def of(place: Subscription) -> Locks:
    """All locks; none where we may not see them: Azure then refuses by itself."""
    try:
        return Locks(place.everything("locks", provider="Microsoft.Authorization", version="locks"))
    except AuthFailedError as error:
        log.info("%s: locks are not seen before Azure refuses", error)
        return Locks([])


def _level(lock: Mapping[str, Any]) -> str:
    return str(lock.get("properties", {}).get("level", "")).lower()
