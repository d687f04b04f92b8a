"""What the checks look at: the settings, and the machine's own places, which a test may move."""

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from gpuwatch.agent.evidence.base import Roots
from gpuwatch.agent.metadata.detect import DMI
from gpuwatch.agent.settings import AgentSettings
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.program import own_command

if TYPE_CHECKING:
    from gpuwatch.clouds import Cloud
    from gpuwatch.config.settings import Settings
    from gpuwatch.model.fleet import Node
    from gpuwatch.model.sight import Silence


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCase:
    """A GPU host; `probe` is the command that reads each GPU once."""

    settings: AgentSettings
    clock: Clock
    dev: Path = Path("/dev")
    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    run: Path = Path("/run")
    dmi: Path = DMI
    roots: Roots = field(default_factory=Roots)
    probe: Sequence[str] = field(default_factory=lambda: own_command("probe", "--cycles", "1", "--steps"))
    cuda: str | None = None  # the runtime that somebody wants to use here


class ControllerCase:
    """A controller. The fleet is listed once, by the check that comes first; the others wait for it."""

    def __init__(self, settings: "Settings", clock: Clock, connect: "Callable[[], Cloud]") -> None:
        """Nothing is asked yet."""
        self.settings = settings
        self.clock = clock
        self._connect = connect
        self._turn = threading.RLock()
        self._cloud: Cloud | None = None
        self._nodes: Sequence[Node] | Exception | None = None
        self.silent: list[Silence] = []

    @property
    def cloud(self) -> "Cloud":
        """The cloud of the settings.

        Raises:
            CloudError: it cannot be set up.
            ImportError: its extra is not installed.

        """
        with self._turn:
            if self._cloud is None:
                self._cloud = self._connect()
            return self._cloud

    @property
    def nodes(self) -> "Sequence[Node]":
        """The fleet without the places that are `silent`; raises as `cloud`, each time that it is asked for."""
        from gpuwatch.clouds.silence import partial

        with self._turn:
            if self._nodes is None:
                try:
                    with partial() as self.silent:
                        self._nodes = self.cloud.nodes()
                except Exception as error:  # noqa: BLE001  kept for the next check
                    self._nodes = error
            if isinstance(self._nodes, Exception):
                raise self._nodes
            return self._nodes


def may_write(path: Path) -> bool:
    """Whether this user may read and write it; in a folder, also make and remove files."""
    mode = os.R_OK | os.W_OK | (os.X_OK if path.is_dir() else 0)
    return os.access(path, mode, effective_ids=True)


def why_closed(path: Path) -> str | None:
    """Why that file or folder cannot be written or made; None: it can."""
    try:
        nearest = next((each for each in (path, *path.parents) if each.exists()), path)
    except PermissionError as error:
        return f"{error.filename} is closed to this user"
    return None if may_write(nearest) else f"{nearest} is closed to this user"
