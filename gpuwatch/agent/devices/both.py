"""The GPUs of two drivers on one host, as one source. Neither driver's failure hides the other's GPUs.

The second driver's GPUs are counted after the first's. While a driver cannot be reached, the GPUs that it once showed
are down; one that never showed any makes the whole unavailable, because nobody knows what is there.
"""

from collections.abc import Sequence
from dataclasses import replace

from gpuwatch.agent.devices import DeviceSource, EventSource, PacedSource, SourceUnavailableError
from gpuwatch.model.gpu import DownCause, GpuDown, GpuInfo, GpuReading
from gpuwatch.runtime.clock import Clock

_FOR_A_FRESH_PROCESS = {"version_mismatch"}  # what this process can never read again


class BothSources:
    """Several sources; each GPU is read by its own."""

    def __init__(self, sources: Sequence[DeviceSource], clock: Clock) -> None:
        """Name both sources; no device is touched yet."""
        self._sources = tuple(sources)
        self._clock = clock
        self._listed: list[tuple[GpuInfo, ...]] = [() for _ in self._sources]  # as each last listed its own
        self._silent: dict[int, SourceUnavailableError] = {}
        self._owners: dict[str, tuple[int, GpuInfo]] = {}

    @property
    def whole(self) -> bool:
        """Whether each source read all that verdicts rest on."""
        return all(source.whole for source in self._sources if isinstance(source, PacedSource))

    def gpus(self) -> tuple[GpuInfo, ...]:
        """The GPUs of all sources.

        Raises:
            SourceUnavailableError: a source can read nothing and never showed a GPU.

        """
        self._silent.clear()
        for place, source in enumerate(self._sources):
            try:
                self._listed[place] = source.gpus()
            except SourceUnavailableError as error:
                if not self._listed[place] or error.cause in _FOR_A_FRESH_PROCESS:
                    raise
                self._silent[place] = error
        infos: list[GpuInfo] = []
        self._owners.clear()
        before = 0
        for place, listed in enumerate(self._listed):
            for info in listed:
                self._owners[info.uuid] = place, info
                infos.append(info if info.index is None else replace(info, index=info.index + before))
            before += len(listed)
        return tuple(infos)

    def read(self, gpu: GpuInfo) -> GpuReading | GpuDown:
        """One reading from the GPU's own source; a source that has failed leaves its GPUs down."""
        place, info = self._owners[gpu.uuid]
        error = self._silent.get(place)
        if error is None:
            try:
                result = self._sources[place].read(info)
                return replace(result, info=replace(result.info, index=gpu.index))
            except SourceUnavailableError as failed:
                error = self._silent[place] = failed
        return GpuDown(info=gpu, at=self._clock.now(), cause=DownCause.DRIVER, detail=str(error))

    def hurry(self) -> None:
        """Read everything in the next cycle that verdicts rest on."""
        for source in self._sources:
            if isinstance(source, PacedSource):
                source.hurry()

    def events(self) -> tuple[tuple[str, int], ...]:
        """The errors that the sources heard of."""
        return tuple(event for source in self._sources if isinstance(source, EventSource) for event in source.events())

    def close(self) -> None:
        """Release the devices of all sources."""
        for source in self._sources:
            source.close()
