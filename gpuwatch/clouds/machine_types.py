"""What machine types bring, for clouds that do not describe a machine's GPUs. Each type is looked up once in a process.

That a type is missing may be the cloud's slip: it is asked for again, later and later. Its machines are left out
meanwhile, unless they carry the fleet's tag: these are nodes with an unknown number of GPUs. They count, and are left
alone.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from gpuwatch.clouds.errors import CloudError
from gpuwatch.clouds.places import AnyPlace
from gpuwatch.runtime.clock import Clock

log = logging.getLogger(__name__)

# A type that is not described is asked for again after this long, twice as long each time.
_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS = 60.0, 3600.0


class HasGpus(Protocol):
    """What a machine type brings."""

    @property
    def gpu_count(self) -> int:
        """How many GPUs; a part of one counts as one."""
        ...


Kind = TypeVar("Kind", bound=HasGpus)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Missing:
    """When to ask for a type again (of the monotonic clock), and the wait after that."""

    again_at: float
    wait_seconds: float


class MachineTypes(Generic[AnyPlace, Kind]):
    """The types that were looked up so far. `describe` gives those of some names that a place describes."""

    def __init__(
        self,
        clock: Clock,
        service: str,
        describe: Callable[[AnyPlace, list[str]], Mapping[str, Kind]],
        *,
        a_call: int = 1,
    ) -> None:
        """Begin without any; `a_call`: how many types are asked for at once."""
        self._clock, self._service, self._describe, self._a_call = clock, service, describe, a_call
        self._types: dict[str, Kind] = {}
        self._missing: dict[str, _Missing] = {}

    def known_kind(self, name: str) -> Kind | None:
        """What a type brings, by what was looked up so far; None: not known."""
        return self._types.get(name)

    def type(self, place: AnyPlace, name: str) -> Kind | None:
        """What a type brings; None: it is not described."""
        self.learn(place, [name])
        return self._types.get(name)

    def has_gpus(self, place: AnyPlace, names: Iterable[str]) -> bool:
        """Whether any of these types is known to have GPUs."""
        names = list(names)
        self.learn(place, names)
        return any(name in self._types and self._types[name].gpu_count > 0 for name in names)

    def learn(self, place: AnyPlace, names: Iterable[str]) -> None:
        """Look up types that are new, or that are due to be asked for again.

        Raises:
            CloudError: no answer about a type that was never asked for.

        """
        now = self._clock.monotonic()
        wanted = {name for name in names if name and name not in self._types}
        unknown = sorted(name for name in wanted if name not in self._missing or self._missing[name].again_at <= now)
        for begin in range(0, len(unknown), self._a_call):
            batch = unknown[begin : begin + self._a_call]
            found: Mapping[str, Kind] = {}
            try:
                found = self._describe(place, batch)
            except CloudError:
                if any(name not in self._missing for name in batch):
                    raise  # else: these were not known before, either
            self._types |= found
            for name in batch:
                self._note(name, known=name in found, now=now)

    def _note(self, name: str, *, known: bool, now: float) -> None:
        """Say once that a type is missing, and once that it no longer is."""
        before = self._missing.pop(name, None)
        if known:
            if before is not None:
                log.warning("%s describes the machine type %s now", self._service, name)
            return
        wait = _FIRST_RETRY_SECONDS if before is None else before.wait_seconds
        self._missing[name] = _Missing(again_at=now + wait, wait_seconds=min(2 * wait, _LAST_RETRY_SECONDS))
        if before is None:
            log.warning(
                "%s does not describe the machine type %s: its machines are left out, or left alone where they carry "
                "the fleet's tag; it is asked again",
                self._service,
                name,
            )
