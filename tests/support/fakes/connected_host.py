"""A made host whose processes hold sockets and have networks of their own, and the signal that looks at them."""

from dataclasses import replace
from pathlib import Path

from gpuwatch.agent.attribution.cgroup import Placement
from gpuwatch.agent.evidence.connections import Connections
from gpuwatch.agent.evidence.settings import ConnectionSettings
from gpuwatch.agent.processes.process import Kind, Process, ProcessView
from gpuwatch.model.activity import Evidence
from tests.support.fakes.host import FolderHost

OWN_NETWORK, CONTAINER_NETWORK = "net:[4026531840]", "net:[4026532999]"


class ConnectedHost(FolderHost):
    """A host whose processes hold sockets and have networks."""

    def __init__(self, root: Path) -> None:
        """With an agent and nobody else."""
        super().__init__(root)
        self.running: dict[int, Process] = {}
        self.doubt: str | None = None
        self.known = True
        self.sockets()
        self.link("proc/self/ns/net", OWN_NETWORK)
        self.link("proc/1/ns/net", OWN_NETWORK)
        self.signal = Connections(ConnectionSettings(), self.roots)

    def link(self, name: str, target: str) -> None:
        """A link as /proc has them."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(target)

    def runs(
        self, pid: int, kind: Kind, *inodes: int, name: str = "python", network: str = OWN_NETWORK, uid: int = 12_001
    ) -> None:
        """A process that holds these sockets, in that network; in another one than the host's it is in a container."""
        placement = Placement(container_id=None if network == OWN_NETWORK else "0123456789ab")
        self.running[pid] = Process(
            pid=pid,
            started_ticks=pid,
            parent=1,
            group=pid,
            session=pid,
            tty=0,
            state="S",
            name=name,
            executable=name,
            uid=uid,
            placement=placement,
            kind=kind,
        )
        (self.root / f"proc/{pid}/fd").mkdir(parents=True, exist_ok=True)
        for number, inode in enumerate(inodes, start=3):
            self.link(f"proc/{pid}/fd/{number}", f"socket:[{inode}]")
        self.link(f"proc/{pid}/fd/0", "/dev/null")
        self.link(f"proc/{pid}/ns/net", network)

    def cards(self, pid: int, **moved: int) -> None:
        """What the cards of a process's network have received; half as much as they have sent."""
        rows = "".join(f"{card:>6}: {each // 2} 0 0 0 0 0 0 0 {each - each // 2} 0\n" for card, each in moved.items())
        self.write(f"proc/{pid}/net/dev", f"Inter-| Receive\n face |bytes\n{rows}")

    def view(self) -> ProcessView | None:
        """The newest look at the processes."""
        if not self.known:
            return None
        return ProcessView(monotonic_seconds=self.clock.monotonic(), processes=dict(self.running), doubt=self.doubt)

    def look(self, seconds: float = 10.0) -> Evidence:
        """What the signal says so much later."""
        self.pass_time(seconds)
        (found,) = self.signal.find_evidence(replace(self.moment(), processes=self.view()))
        return found
