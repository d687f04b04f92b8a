"""Which recurring work has held a GPU lately: a look at the queue alone does not tell training from housekeeping."""

from collections.abc import Callable, Collection, Mapping

from gpuwatch.agent.evidence.scheduled.planned import Planned
from gpuwatch.agent.processes.process import Process, ProcessView, from_cron

_MISSED_PERIODS = 2.0  # a run may find nothing to do
_DELAY_SECONDS = 600.0  # a timer's random delay, and the run's own time
_MOST = 256


class GpuRuns:
    """Notes the processes that hold a GPU by what began them. Times are of the monotonic clock."""

    def __init__(self, user_name: Callable[[int], str]) -> None:
        """`user_name` gives the name of a uid as crontabs are named."""
        self._user_name = user_name
        self._seen: Mapping[str, float] = {}  # by unit, or by the user of a cron job
        self._since: float | None = None

    def note(self, view: ProcessView, gpu_pids: Collection[int], at: float) -> None:
        """Note those that hold a GPU now."""
        new = {key: at for pid in gpu_pids if (key := self._key(view.processes.get(pid), view)) is not None}
        if new:
            kept = sorted({**self._seen, **new}.items(), key=lambda item: -item[1])
            self._seen = dict(kept[:_MOST])

    def lately(self, work: Planned, at: float) -> bool:
        """Whether one of the last runs of recurring work held a GPU."""
        started = work.unit and (work.starts or f"{work.unit.removesuffix('.timer')}.service")
        seen = self._seen.get(started or f"cron:{work.user}")
        span = _MISSED_PERIODS * (work.period_seconds or 0.0) + _DELAY_SECONDS
        return seen is not None and at - seen <= span

    def unknown(self, work: Planned, at: float) -> bool:
        """Whether recurring work may not have run yet since the first call of this."""
        self._since = at if self._since is None else self._since
        return at - self._since <= (work.period_seconds or 0.0) + _DELAY_SECONDS

    def _key(self, process: Process | None, view: ProcessView) -> str | None:
        if process is None:
            return None
        if from_cron(process, view.processes):
            return f"cron:{self._user_name(process.uid)}"
        return process.placement.systemd_unit
