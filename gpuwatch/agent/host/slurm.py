"""Slurm: jobs on this node, as the Slurm controller lists them."""

import re
import shutil
import socket

from gpuwatch.agent.host import child
from gpuwatch.agent.host.knobs import SlurmKnobs
from gpuwatch.agent.host.protocol import Moment, UnseenError, say, several
from gpuwatch.model.fleet import Evidence, State

_JOB = re.compile(r"\d+([_+]\S+)?")  # 12, 12_3 and 12_[4-9] of an array, 12+1 of a heterogeneous job


class Slurm:
    """Busy while a job runs or completes on this node."""

    name = "slurm"
    source = "squeue"

    def __init__(self, knobs: SlurmKnobs, deadline_seconds: float) -> None:
        self._node = knobs.node_name or socket.gethostname().partition(".")[0]
        self._deadline_seconds = deadline_seconds

    def look(self, now: Moment) -> tuple[Evidence, ...]:
        """One finding over all jobs; none where neither slurmd nor squeue is installed."""
        del now
        squeue = shutil.which("squeue")
        if squeue is None:
            if shutil.which("slurmd") is None:
                return ()
            raise UnseenError("slurmd is installed, and squeue is not on the PATH")
        argv = (squeue, "--noheader", "--states=R,CG", f"--nodelist={self._node}", "--format=%i")
        ended = child.run(argv, self._deadline_seconds)
        if ended.status != 0:
            raise UnseenError(f"squeue failed with status {ended.status} for node {self._node}")
        jobs = ended.output.decode("utf-8", "replace").split()
        if not all(_JOB.fullmatch(job) for job in jobs):
            raise UnseenError("squeue said what is no list of jobs")
        says = State.BUSY if jobs else State.IDLE
        note = f"jobs {several(jobs)}" if jobs else f"no job on {self._node}"
        return (say(self, says, note, observed=len(jobs), limit=1, unit="jobs"),)
