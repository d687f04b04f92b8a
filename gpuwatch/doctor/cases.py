"""What the checks look at: the settings, and the machine's own places, which a test may move."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from gpuwatch.agent.instance.detect import DMI
from gpuwatch.agent.knobs import AgentKnobs
from gpuwatch.clock import Clock
from gpuwatch.relaunch import own_command

if TYPE_CHECKING:
    from gpuwatch.clouds import Cloud
    from gpuwatch.model.fleet import Node
    from gpuwatch.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCase:
    """A GPU host; `probe` is the command that reads each GPU once."""

    knobs: AgentKnobs
    clock: Clock
    dev: Path = Path("/dev")
    proc: Path = Path("/proc")
    dmi: Path = DMI
    probe: Sequence[str] = field(default_factory=lambda: own_command("probe", "--cycles", "1"))


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
        """The whole fleet; raises as `cloud`, each time that it is asked for."""
        with self._turn:
            if self._nodes is None:
                try:
                    self._nodes = self.cloud.nodes()
                except Exception as error:  # noqa: BLE001  kept for whoever asks next
                    self._nodes = error
            if isinstance(self._nodes, Exception):
                raise self._nodes
            return self._nodes
