"""Other exporters' names for what the agent reads, so that their dashboards and alerts work on it unchanged.

A dialect is a table (`dcgm.py`, `nvidia_smi.py`, `nvitop.py`) of what `table.py` defines. They are written as text
here rather than through prometheus-client, which gives each counter a name that ends in `_total`.
"""

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module

from gpuwatch.agent.attribution.attribution import View
from gpuwatch.agent.exporter.compat.processes import Figures
from gpuwatch.agent.exporter.compat.table import Dialect, Sample, Scene
from gpuwatch.agent.published import Snapshot
from gpuwatch.runtime.metrics.exposition import OPENMETRICS_END, head, labels_text

DIALECTS = ("dcgm", "nvidia_smi", "nvitop")

_OPENMETRICS_END = OPENMETRICS_END.encode()


def load(name: str) -> Dialect:
    """A dialect by its name; only those asked for cost memory."""
    dialect: Dialect = import_module(f"{__name__}.{name}").DIALECT
    return dialect


class Compatibility:
    """Adds the families of some dialects to a page.

    `users` gives the owners of processes, `processes` what they use, `host` figures of the host.
    """

    def __init__(
        self,
        names: Iterable[str],
        *,
        hostname: str,
        top_processes: int,
        users: Callable[[], View | None] = lambda: None,
        host: Callable[[], Iterable[Sample]] = tuple,
        processes: Callable[[Iterable[int]], Mapping[int, Figures]] = lambda _: {},
    ) -> None:
        self._dialects = tuple(load(name) for name in dict.fromkeys(names))
        self._hostname = hostname
        self._top_processes = top_processes
        self._users = users
        self._host = host
        self._processes = processes

    def extend(self, snapshot: Snapshot, page: bytes) -> bytes:
        """The page with the foreign families behind its own, in its format: plain text or OpenMetrics."""
        scene = Scene(
            snapshot=snapshot,
            hostname=self._hostname,
            top_processes=self._top_processes,
            users=self._users(),
            host=self._host,
            processes=self._processes,
        )
        openmetrics = page.endswith(_OPENMETRICS_END)
        added = "".join(_text(dialect, scene, openmetrics=openmetrics) for dialect in self._dialects).encode()
        return page.removesuffix(_OPENMETRICS_END) + added + (_OPENMETRICS_END if openmetrics else b"")


def _text(dialect: Dialect, scene: Scene, *, openmetrics: bool) -> str:
    """The families of a dialect that have a sample now."""
    lines: dict[str, list[str]] = {family.name: [] for family in dialect.families}
    for reading in scene.snapshot.readings:
        for part in dialect.parts(reading, scene):
            labels = labels_text(part.labels.items())
            for row in dialect.rows:
                value = None if row.source in part.hidden else row.value(part.values)
                if value is not None:
                    lines[row.name].append(f"{row.name}{labels} {float(value)!r}\n")
    for name, labelled, value in dialect.samples(scene):
        lines[name].append(f"{name}{labels_text(labelled.items())} {float(value)!r}\n")
    return "".join(
        head(family.name, family.help, family.kind, openmetrics=openmetrics) + "".join(lines[family.name])
        for family in dialect.families
        if lines[family.name]
    )
