"""A machine's node in Slurm, as `scontrol show node` reports it, and the reason that shows a drain as our own."""

import re
from dataclasses import dataclass
from datetime import datetime

# On a machine: the name of its node in Slurm, where neither its name nor its address says that.
NODE_TAG = "gpuwatch:slurm-node"

_OURS = re.compile(r"gpuwatch: .* (?P<key>gpuwatch-[0-9A-Za-z]+-[0-9]+-[0-9a-f]{8})")
_LONGEST_CAUSE = 120  # characters
# The cause of a drain that comes before the end of a machine, as `sinfo -R` shows it.
LEAVES = "idle, and about to be stopped"
# In these, and in no others, Slurm gives a node jobs, or would if it were not drained.
_WORKS = frozenset({"IDLE", "ALLOCATED", "MIXED"})
# Flags beside them: somebody, or Slurm, has taken the node out, or it is on its way up or down.
_SILENT = "NOT_RESPONDING"
_TAKEN_OUT = ("DRAIN", "FAIL", "MAINT", "REBOOT", "POWER", "INVALID")
# Flags beside IDLE that say nothing of jobs: how the node was configured, and its drain.
_SAYS_NOTHING = frozenset({"DRAIN", "CLOUD", "DYNAMIC_NORM"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmJob:
    """A running job on one node: so many of the node's GPUs are its own there.

    `indexes` are their numbers on the node; None: Slurm does not say which they are.
    """

    id: str
    user: str
    gpus: int
    indexes: tuple[int, ...] | None = None
    started_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmNode:
    """One node of Slurm; with `doubt` nobody knows which node it is, or what it does, and nothing else is set.

    `states` are the words of `State=`, the base state first (`IDLE`, `DRAIN`, ...).
    """

    name: str = ""
    host: str = ""  # NodeHostName
    address: str = ""  # NodeAddr
    states: tuple[str, ...] = ()
    reason: str | None = None
    doubt: str | None = None
    gpus: int | None = None  # whole ones that Slurm can give to jobs
    jobs: tuple[SlurmJob, ...] = ()  # those that hold GPUs on it, where Slurm is asked for jobs
    # What jobs may ask for; where a round has looked at it, it is left out of what is kept.
    partitions: tuple[str, ...] | None = None
    features: tuple[str, ...] | None = None
    gpu_kinds: tuple[tuple[str, int], ...] | None = None
    megabytes: float | None = None
    cpus: int | None = None
    wanted_by: str | None = None  # which waiting job, or reservation, may need it, as a sentence
    wanted_for: str | None = None  # of one that is off: the number of the job that it is to be started for
    slurmd_since: datetime | None = None  # when the slurmd that has answered last was started, by its own clock

    @property
    def drained(self) -> bool:
        """Whether Slurm gives it no new jobs because somebody has drained it; jobs may still run there."""
        return "DRAIN" in self.states

    @property
    def sound(self) -> bool:
        """Whether nothing but a drain keeps jobs from it."""
        flags = [flag for flag in self.states[1:] if flag != "DRAIN"]
        return self.states[:1] != () and self.states[0] in _WORKS and not any(map(_takes_out, flags))

    @property
    def leaves(self) -> bool:
        """Whether our drain of it comes before the end of its machine; the other drains are for its health."""
        return self.drained_by is not None and (self.reason or "").startswith(f"gpuwatch: {LEAVES} ")

    @property
    def answers(self) -> bool:
        """Whether its slurmd answers: what Slurm has set down for its silence stays down after that (DOWN)."""
        return self.states[:1] != () and _SILENT not in self.states

    @property
    def resumable(self) -> bool:
        """Whether State=RESUME ends a drain of ours there, and what its machine's stop has left: DOWN."""
        down = self.states[:1] == ("DOWN",) and not any(
            map(_takes_out, (each for each in self.states if each != "DRAIN"))
        )
        return self.sound or down

    @property
    def takes_jobs(self) -> bool:
        """Whether Slurm gives it jobs; of a node in doubt nobody knows better."""
        return self.doubt is not None or (self.sound and not self.drained)

    @property
    def rests(self) -> bool:
        """Whether it has no job, and none is planned for it."""
        return self.states[:1] == ("IDLE",) and _SAYS_NOTHING.issuperset(self.states[1:])

    @property
    def drained_by(self) -> str | None:
        """The key of the intent that drained it, by the reason that Slurm shows; None: not drained, or by others."""
        found = _OURS.fullmatch(self.reason or "")
        return None if found is None or not self.drained else found["key"]

    @property
    def state(self) -> str:
        """As scontrol writes it."""
        return "+".join(self.states)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmView:
    """The Slurm cluster of one round; with `doubt` it gave no usable answer, and nothing else is set.

    `power` is what of slurm.conf makes Slurm itself power nodes down and up (`SuspendProgram=...`); None: nothing does.
    `sees_jobs` is whether the nodes' jobs are known; `jobs_doubt` why they are not, where Slurm was asked for them.
    """

    pools: tuple[str, ...] = ()  # those whose machines are its nodes
    power: str | None = None
    doubt: str | None = None
    sees_jobs: bool = False
    jobs_doubt: str | None = None
    queue_doubt: str | None = None  # why nobody knows which jobs wait


def _takes_out(flag: str) -> bool:
    """Whether a state's flag means that the node gets no jobs."""
    return flag.startswith(_TAKEN_OUT)


def reason_of(cause: str, key: str) -> str:
    """What a drain of ours leaves as `Reason=`: the cause in one line of plain characters, and the intent's key."""
    plain = " ".join(re.sub(r"[^ -~]|[\"'\\\[\]]", " ", cause).split())
    return f"gpuwatch: {plain[:_LONGEST_CAUSE].strip() or 'a GPU is failing'} {key}"
