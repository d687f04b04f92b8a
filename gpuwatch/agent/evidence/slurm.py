"""Slurm: jobs on this node, as the Slurm controller lists them."""

import re
import shutil
import socket

from gpuwatch.agent.evidence.base import Moment, Roots, UnseenError, make_finding, run, several
from gpuwatch.agent.evidence.files import processes
from gpuwatch.agent.evidence.settings import SlurmSettings
from gpuwatch.model.activity import Evidence, State
from gpuwatch.model.slurm import SlurmNode
from gpuwatch.model.slurm_listing import ALL, FORMAT, NODE_FORMAT, STATES, QueuedJob, node_in_slurm, parse_queue
from gpuwatch.model.slurm_queue import held_nodes
from gpuwatch.runtime.printable import legible

_JOB = re.compile(r"\d+([_+]\S+)?")  # 12, 12_3 and 12_[4-9] of an array, 12+1 of a heterogeneous job
_LONGEST_STATES = 200  # characters
_LONGEST_REASON = 40

# sinfo(1), NODE STATE CODES: one word, or several joined by "+" (as scontrol and StateComplete write them), and flags
# behind. Draining and failing nodes still run jobs; a planned one is reserved for a job that is about to start.
_STATE = re.compile(r"([a-z_]+(?:\+[a-z_]+)*)([*~#!%$@^+-]*)", re.IGNORECASE | re.ASCII)
_WORKS = frozenset(
    "allocated alloc mixed mix completing comp draining drng failing failg planned plnd".split()  # noqa: SIM905  a table
)
_WORKS_FLAGS = frozenset("+-")  # a job completes; a job is planned
# Only these, without any flag, mean that there is no job. All others are unknown: down, maint, reserved, powering up
# or down, rebooting, not responding (`*`), and words to come.
_RESTS = frozenset({"idle", "drained", "drain"})
_TAKES_NONE = frozenset({"drained", "drain"})
_SAYS_NOTHING = frozenset({"cloud", "dynamic_norm"})  # how the node was configured, in addition to its state


_DAEMONS = frozenset({"slurmd", "slurmstepd"})


class Slurm:
    """Busy while a job starts, runs, is suspended or completes on this node, whether or not this user may see it.

    Also while one is pending that needs this node, by the rules of `gpuwatch.model.slurm_queue`: all agents and the
    controller name the same nodes.

    With PrivateData=jobs squeue lists only the agent's own jobs. If it lists none, the node's state decides.
    """

    name = "slurm"
    source = "squeue"

    def __init__(self, settings: SlurmSettings, roots: Roots, deadline_seconds: float) -> None:
        self._roots = roots
        self._node = settings.node_name or socket.gethostname().partition(".")[0]
        self._deadline_seconds = deadline_seconds

    def find_evidence(self, now: Moment) -> tuple[Evidence, ...]:
        """One finding over all jobs; none where neither slurmd nor squeue is installed, and no slurmd runs."""
        squeue = shutil.which("squeue")
        if squeue is None:
            if shutil.which("slurmd") is None and not any(name in _DAEMONS for _, name in processes(self._roots.proc)):
                return ()
            raise UnseenError("slurmd is here, and squeue is not on the PATH: put its folder there")
        # A suspended job gives its CPUs back, so that the node may be idle to Slurm.
        argv = (squeue, "--noheader", "--states=R,CG,CF,S", f"--nodelist={self._node}", "--format=%i", ALL)
        ended = run(argv, self._deadline_seconds)
        if ended.status != 0:
            raise UnseenError(f"squeue failed with status {ended.status} for node {self._node}")
        jobs = ended.output.decode("utf-8", "replace").split()
        if not all(_JOB.fullmatch(job) for job in jobs):
            raise UnseenError("squeue's output is not a list of jobs")
        if jobs:
            return (make_finding(self, State.BUSY, f"jobs {several(jobs)}", observed=len(jobs), limit=1, unit="jobs"),)
        lines = self._node_lines()
        states = sorted({line.partition("|")[0] for line in lines})
        says = {state_says(state) for state in states}
        if State.BUSY in says:
            note = f"no job is shown, and {self._node} is {several(states)}"
            return (make_finding(self, State.BUSY, note, observed=1, limit=1, unit="jobs"),)
        if says != {State.IDLE}:
            shown = legible(several(states), _LONGEST_STATES)
            raise UnseenError(f"squeue lists no job, and {self._node} is {shown}, so there may be hidden jobs")
        takes_jobs = any(not set(state.lower().split("+")) & _TAKES_NONE for state in states)
        if takes_jobs and (pending := self._pending(squeue, node_in_slurm(self._node, lines), now)) is not None:
            name = f"{pending.job} ({legible(pending.reason, _LONGEST_REASON)})"
            note = f"no job on {self._node}; pending, and could start here: {name}"
            return (make_finding(self, State.BUSY, note, observed=1, limit=1, unit="jobs"),)
        return (make_finding(self, State.IDLE, f"no job on {self._node}", observed=0, limit=1, unit="jobs"),)

    def _pending(self, squeue: str, node: SlurmNode, now: Moment) -> QueuedJob | None:
        """The job that waits for something, and needs this node; others may have enough of the other idle ones."""
        partitions = () if node.partitions is None else (f"--partition={','.join(sorted(node.partitions))}",)
        argv = (squeue, "--noheader", f"--states={STATES}", *partitions, f"--format={FORMAT}", ALL)
        ended = run(argv, self._deadline_seconds)
        if ended.status != 0:
            raise UnseenError(f"squeue failed with status {ended.status} for pending jobs")
        try:
            jobs = parse_queue(ended.output.decode("utf-8", "replace"))
        except ValueError as error:
            raise UnseenError(str(error)) from None
        alone = held_nodes(jobs, [node], now.at.astimezone()).get(node.name)
        if alone is None:
            return None
        idle = self._idle_nodes()
        return alone if node.name not in idle else held_nodes(jobs, idle.values(), now.at.astimezone()).get(node.name)

    def _idle_nodes(self) -> dict[str, SlurmNode]:
        """The nodes that Slurm shows idle, and that take jobs, by their names; none where sinfo does not say that."""
        sinfo = shutil.which("sinfo")
        if sinfo is None:
            return {}
        ended = run((sinfo, "--Node", "--noheader", f"--format=%N|{NODE_FORMAT}", ALL), self._deadline_seconds)
        found: dict[str, list[str]] = {}
        for line in ended.output.decode("utf-8", "replace").split() if ended.status == 0 else ():
            name, _, rest = line.partition("|")
            if state_says(state := rest.partition("|")[0]) is State.IDLE and state.lower() not in _TAKES_NONE:
                found.setdefault(name, []).append(rest)
        return {name: node_in_slurm(name, lines) for name, lines in found.items()}

    def _node_lines(self) -> list[str]:
        """What sinfo says of the node, one line for each of its partitions."""
        sinfo = shutil.which("sinfo")
        if sinfo is None:
            raise UnseenError("squeue lists no job, and sinfo, which shows signs of hidden jobs, is not on the PATH")
        ended = run(
            (sinfo, "--noheader", f"--nodes={self._node}", f"--format={NODE_FORMAT}", ALL), self._deadline_seconds
        )
        lines = sorted(set(ended.output.decode("utf-8", "replace").split()))
        if ended.status != 0 or not lines:
            raise UnseenError(f"sinfo gave no state of node {self._node}")
        return lines


def state_says(state: str) -> State:
    """A node state of Slurm without a listed job: any sign of a job is busy, any doubt unknown."""
    found = _STATE.fullmatch(state)
    if found is None:
        return State.UNKNOWN
    words, flags = set(found[1].lower().split("+")), set(found[2])
    if words & _WORKS or flags & _WORKS_FLAGS:
        return State.BUSY
    rests = words & _RESTS and words <= _RESTS | _SAYS_NOTHING
    return State.IDLE if rests and not flags else State.UNKNOWN
