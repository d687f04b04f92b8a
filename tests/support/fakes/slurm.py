"""A simulated Slurm cluster: it drains, resumes and refuses as scontrol(1) on a real slurmctld does."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from gpuwatch.clouds import CloudError, NotFoundError
from gpuwatch.clouds.permit import Permit
from gpuwatch.controller.slurm import Queue
from gpuwatch.model.slurm import SlurmJob, SlurmNode, reason_of


@dataclass(slots=True)
class FakeSlurm:
    """`known` are its nodes by name; `calls` are all changes, each with the key that it was about.

    `fault(call)` may raise before a call has its effect, `lose(call)` after it.
    """

    pools: Collection[str] = ("default",)
    program: str | None = None  # what powers its nodes
    held: Mapping[str, tuple[SlurmJob, ...]] | None = None  # by its jobs, on each node
    waits: Queue = field(default_factory=Queue)
    known: dict[str, SlurmNode] = field(default_factory=dict)
    calls: list[tuple[str, str, str]] = field(default_factory=list)
    fault: Callable[[str], CloudError | None] = lambda _: None
    lose: Callable[[str], CloudError | None] = lambda _: None

    def put(self, name: str, *states: str, reason: str | None = None, address: str = "") -> None:
        """A node in these states, `IDLE` where none is named."""
        states = states or ("IDLE",)
        self.known[name] = SlurmNode(name=name, host=name, address=address, states=states, reason=reason, gpus=1)

    def nodes(self) -> tuple[SlurmNode, ...]:
        """All of them."""
        self._raise(self.fault, "nodes")
        return tuple(self.known.values())

    def power(self) -> str | None:
        """As slurm.conf says."""
        self._raise(self.fault, "power")
        return self.program

    def jobs(self) -> Mapping[str, tuple[SlurmJob, ...]] | None:
        """Those of `held`."""
        self._raise(self.fault, "jobs")
        return self.held

    def queue(self) -> Queue:
        """What waits, as it was set."""
        self._raise(self.fault, "queue")
        return self.waits

    def node(self, name: str) -> SlurmNode | None:
        """By its name."""
        self._raise(self.fault, "node")
        return self.known.get(name)

    def drain(self, name: str, cause: str, key: str, *, permit: Permit) -> None:
        """Not what somebody else has taken out."""
        self._raise(self.fault, "drain")
        known = self.known.get(name)
        if known is None or known.drained or not known.sound:
            raise NotFoundError("Slurm has no such node, or it is somebody else's")
        permit.check()
        self.calls.append(("drain", name, key))
        self.known[name] = replace(known, states=(*known.states, "DRAIN"), reason=reason_of(cause, key))
        self._raise(self.lose, "drain")

    def resume(self, name: str, undoes: str, *, permit: Permit) -> None:
        """Only under that drain; the reason goes with it."""
        self._raise(self.fault, "resume")
        known = self.known.get(name)
        if known is None or known.drained_by != undoes or not known.resumable:
            raise NotFoundError("Slurm has no such node, or not under that drain")
        permit.check()
        self.calls.append(("resume", name, undoes))
        self.undrain(name)
        self._raise(self.lose, "resume")

    def undrain(self, name: str) -> None:
        """`scontrol update NodeName=... State=RESUME`, by somebody; it ends DOWN as well."""
        known = self.known[name]
        states = tuple("IDLE" if each == "DOWN" else each for each in known.states if each != "DRAIN")
        self.known[name] = replace(known, states=states, reason=None)

    def _raise(self, hook: Callable[[str], CloudError | None], call: str) -> None:
        if (error := hook(call)) is not None:
            raise error
