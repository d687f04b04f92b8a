"""A package's service that works much more than it has since it began, for minutes, works for somebody.

What a service does by itself is much the same all the time: a poller at half a core was at half a core yesterday. A
database that builds an index rested before. So the time that a service's processes have used since the oldest of them
began is compared with what they use now. A service that is younger than an hour has no past, and neither what lasts
for less than five minutes nor what is less than a tenth of a core counts.
"""

import os
from collections.abc import Iterable, Mapping

from gpuwatch.agent.attribution.process import user_name
from gpuwatch.agent.evidence.base import Origin, make_finding
from gpuwatch.agent.processes.kinds import PACKAGED
from gpuwatch.agent.processes.process import Process, ProcessView, owner_of
from gpuwatch.model.activity import Evidence, State

_SUSTAINED_SECONDS = 300.0
_LEAST_CORES = 0.1
_TIMES_USUAL = 3.0
_YOUNG_SECONDS = 3600.0
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class OwnPast:
    """Remembers since when each service has worked more than usual."""

    def __init__(self) -> None:
        """No service has worked more than usual yet."""
        self._since: dict[str, float] = {}

    def find_unusual(self, signal: Origin, view: ProcessView, uptime: float | None) -> Evidence | None:
        """Busy evidence of the service that works most of those that work more than usual; None: no service does."""
        by_unit: dict[str, list[Process]] = {}
        for each in view.processes.values() if uptime is not None else ():
            if each.rule == PACKAGED and each.placement.systemd_unit is not None:
                by_unit.setdefault(each.placement.systemd_unit, []).append(each)
        now = {unit: sum(view.cores.get(each.pid, 0.0) for each in its) for unit, its in by_unit.items()}
        limits = {unit: _limit(its, uptime or 0.0) for unit, its in by_unit.items()}
        at = view.monotonic_seconds
        self._since = {unit: self._since.get(unit, at) for unit, limit in limits.items() if now[unit] > limit}
        lasting = [unit for unit, since in self._since.items() if at - since >= _SUSTAINED_SECONDS]
        if not lasting:
            return None
        most = max(lasting, key=lambda unit: (now[unit], unit))
        return _evidence(signal, by_unit[most], now[most], limits[most], view.cores)


def _evidence(
    signal: Origin, service: Iterable[Process], cores: float, limit: float, by_pid: Mapping[int, float]
) -> Evidence:
    process = max(service, key=lambda each: (by_pid.get(each.pid, 0.0), each.pid))
    owner = owner_of(process, user_name(process.uid))
    note = f"{owner.user}'s {process.name} (pid {process.pid}, {owner.unit}) works more than usual"
    return make_finding(
        signal,
        State.BUSY,
        note,
        observed=cores,
        limit=limit,
        unit="cores",
        owner=owner,
        setting="agent.services",
    )


def _limit(service: list[Process], uptime: float) -> float:
    """The cores above which these processes work more than usual; without a past nothing is."""
    age = uptime - min(each.started_ticks for each in service) / _TICKS_PER_SECOND
    used = sum(each.cpu_seconds + each.reaped_seconds for each in service)
    return float("inf") if age < _YOUNG_SECONDS else max(_LEAST_CORES, _TIMES_USUAL * used / age)
