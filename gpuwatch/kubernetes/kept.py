"""The objects of one kind as the API server showed them last, by uid. Any thread may ask.

Late and repeated events change nothing: an object's version only grows. A deletion is of one uid, so that a late one
never removes an object that has the name since.
"""

import threading
from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar


class Facts(Protocol):
    """What is kept of an object."""

    @property
    def uid(self) -> str:
        """Return the object's uid."""
        ...

    @property
    def version(self) -> int:
        """Return the object's resource version."""
        ...


F = TypeVar("F", bound=Facts)
# Deletions that are remembered against late events; a watch that repeats itself repeats less than this.
_MOST_DELETED = 1_000


class Kept(Generic[F]):
    """Objects of one kind. `version` counts changes, so that what was made of them is made again only after one."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._lock = threading.Lock()
        self._by_uid: dict[str, F] = {}
        self._deleted: dict[str, None] = {}
        self.changes = 0

    def replace(self, objects: Iterable[F]) -> None:
        """These and no others exist: a whole list, which is newer than all before it."""
        by_uid = {each.uid: each for each in objects}
        with self._lock:
            self._by_uid = by_uid
            self._deleted.clear()
            self.changes += 1

    def put(self, seen: F) -> None:
        """This one was made or changed."""
        with self._lock:
            before = self._by_uid.get(seen.uid)
            if seen.uid in self._deleted or (before is not None and seen.version <= before.version):
                return
            self._by_uid[seen.uid] = seen
            self.changes += 1

    def drop(self, uid: str) -> None:
        """This one is gone."""
        with self._lock:
            self._deleted[uid] = None
            if len(self._deleted) > _MOST_DELETED:
                del self._deleted[next(iter(self._deleted))]
            if self._by_uid.pop(uid, None) is not None:
                self.changes += 1

    def all(self) -> list[F]:
        """Return every object that is kept."""
        with self._lock:
            return list(self._by_uid.values())

    def get(self, uid: str) -> F | None:
        """The object of that uid."""
        with self._lock:
            return self._by_uid.get(uid)

    def __len__(self) -> int:
        """How many there are."""
        with self._lock:
            return len(self._by_uid)
