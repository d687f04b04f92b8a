"""Crontabs of cron daemons in containers, read through /proc/PID/root.

The whole container is somebody's, so root's jobs in its /etc/cron.d are, too, but for those that images bring. What may
not be read is no doubt: the container itself occupies the node.
"""

from dataclasses import replace

from gpuwatch.agent.evidence.base import Moment, Roots
from gpuwatch.agent.evidence.scheduled.crontabs import Crontabs
from gpuwatch.agent.evidence.scheduled.found import Found, Users, Zones
from gpuwatch.agent.processes.process import Process

_DAEMONS = frozenset({"cron", "crond"})
_MOST = 64


class ContainedCrontabs:
    """The crontabs of each container with a cron daemon."""

    def __init__(self, roots: Roots) -> None:
        """Nobody is known."""
        self._roots = roots
        self._known: dict[tuple[int, int], Crontabs] = {}

    def read(self, found: Found, now: Moment) -> None:
        """Add what is due next in containers."""
        daemons: dict[str, Process] = {}
        for process in () if now.processes is None else now.processes.people():
            container = process.placement.container_id
            if container is not None and process.name in _DAEMONS and len(daemons) < _MOST:
                daemons.setdefault(container, process)
        keys = {name: (process.pid, process.started_ticks) for name, process in daemons.items()}
        self._known = {key: self._known.get(key) or self._tabs(key[0]) for key in keys.values()}
        for name, key in keys.items():
            within = Found()
            self._known[key].read(within, now.at)
            found.planned += [replace(each, what=f"{each.what} in container {name}") for each in within.planned]

    def _tabs(self, pid: int) -> Crontabs:
        root = self._roots.proc / str(pid) / "root"
        its = replace(self._roots, etc=root / "etc", var=root / "var", usr=root / "usr")
        return Crontabs(its, Users(its), Zones(its), contained=True)
