"""Objects that a cluster may be without, because another project defines them: followed once the API server has some.

A cluster without them costs one question in five minutes.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic

from msgspec import Struct

from gpuwatch.clouds.errors import CloudError, NotFoundError
from gpuwatch.kubernetes.client import PLAIN, Api
from gpuwatch.kubernetes.kept import F
from gpuwatch.kubernetes.watch import Watch
from gpuwatch.runtime.clock import Clock

_LOG = logging.getLogger(__name__)

AGAIN_SECONDS = 300.0  # until a cluster without them is asked again


class _Version(Struct):
    """A version of a group that is served."""

    version: str = ""


class _Group(Struct):
    """APIGroup: the versions of a group that are served."""

    versions: list[_Version] | None = None


def served_versions(api: Api, group: str) -> frozenset[str]:
    """The versions of a group that the API server serves; none where it has no such group.

    Raises:
        CloudError: it gives no answer about it.

    """
    try:
        return frozenset(each.version for each in api.get(f"/apis/{group}", _Group).versions or ())
    except NotFoundError:
        return frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionalKind:
    """What may be there: `versions` are those that are understood, the one that is to be read first."""

    project: str
    group: str
    resource: str
    versions: Sequence[str]


class OptionalWatch(Generic[F]):
    """Follows one such kind from the first `begin` that finds it until `close`."""

    def __init__(
        self, api: Api, clock: Clock, kind: OptionalKind, read: Callable[[bytes], F | None], *, silence_seconds: float
    ) -> None:
        """Nothing is asked yet; `read` is that of `Watch`."""
        self._api, self._clock, self._kind, self._read = api, clock, kind, read
        self._silence = silence_seconds
        self._next_at = 0.0
        self.version: str | None = None  # in which they are followed
        self.watch: Watch[F] | None = None  # None: the cluster has none, as far as is known

    def begin(self, wait_seconds: float) -> None:
        """Find out whether the cluster has them, and wait for the first list; does nothing where they are followed."""
        now, kind = self._clock.monotonic(), self._kind
        if self.watch is not None or now < self._next_at:
            return
        self._next_at = now + AGAIN_SECONDS
        try:
            served = served_versions(self._api, kind.group)
        except CloudError as error:
            _LOG.info("Nobody knows whether the cluster has %s: %s", kind.project, error)
            return
        self.version = next((each for each in kind.versions if each in served), None)
        if self.version is None:
            return
        path = f"/apis/{kind.group}/{self.version}/{kind.resource}"
        self.watch = Watch(
            self._api, self._clock, path, self._read, accept=(PLAIN, PLAIN), silence_seconds=self._silence
        )
        self.watch.start()
        self.watch.wait(wait_seconds)

    def all(self) -> Sequence[F]:
        """What it showed last, also while nothing is heard."""
        return () if self.watch is None else self.watch.kept.all()

    def close(self) -> None:
        """Follow nothing any more."""
        if self.watch is not None:
            self.watch.close()
