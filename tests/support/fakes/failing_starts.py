"""A cloud whose starts fail: it accepts them, and the machine falls back to stopped, as for want of a key."""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from gpuwatch.model.fleet import Node, NodeReport, NodeState
from gpuwatch.model.stops import LastStop
from tests.support.builders.fleet import FakeFleet

WHY = "Client.InternalError: Client error on launch"


@dataclass(slots=True)
class FailingStarts(FakeFleet):
    """What it starts is pending for `pending` seconds; then it falls back, or runs for `runs` seconds and then stops.

    None: it runs on. `told` is whether the cloud says why a machine fell back, and shows who stopped one. Those in
    `sound` start as usual, and the agent of none of those in `mute` answers after its start.
    """

    pending: float = 40.0
    runs: float | None = None
    falls_back: bool = True
    told: bool = True
    sound: set[str] = field(default_factory=set)
    mute: set[str] = field(default_factory=set)
    starts: list[str] = field(default_factory=list)
    _begun: dict[str, float] = field(default_factory=dict)

    def start(self, node_id: str, key: str) -> None:
        """Accepted at once."""
        FakeFleet.start(self, node_id, key)
        self.starts.append(node_id)
        node = replace(self.nodes_[node_id], failed_start=None)
        if node_id in self.mute:
            node = replace(node, signal=NodeReport(failure="its agent did not answer"))
        if node_id not in self.sound:
            self._begun[node_id] = self.clock.monotonic()
            node = replace(node, state=NodeState.PENDING)
        self.put(node)

    def nodes(self) -> tuple[Node, ...]:
        """The list, as it is by now."""
        self.go()
        return FakeFleet.nodes(self)

    def node(self, node_id: str) -> Node | None:
        """One machine, as it is by now."""
        self.go()
        return FakeFleet.node(self, node_id)

    def go(self) -> None:
        """What is due fails, or runs, or stops by itself."""
        for node_id, begun in list(self._begun.items()):
            age, node = self.clock.monotonic() - begun, self.nodes_[node_id]
            if age < self.pending:
                continue
            if self.falls_back:
                del self._begun[node_id]
                stop = LastStop(at=self._at(age - self.pending), other=f"EC2 names another cause than a call, {WHY}")
                fell = replace(node, state=NodeState.STOPPED, last_stop=stop, failed_start=WHY)
                self.put(fell if self.told else replace(fell, last_stop=None, failed_start=None))
            elif self.runs is None or age < self.pending + self.runs:
                self.put(replace(node, state=NodeState.RUNNING))
            else:
                del self._begun[node_id]
                stop = LastStop(at=self._at(age - self.pending - self.runs), other="its machine has shut itself down")
                self.put(replace(node, state=NodeState.STOPPED, last_stop=stop if self.told else None))

    def _at(self, seconds_ago: float) -> datetime:
        return (self.clock.now() - timedelta(seconds=seconds_ago)).replace(microsecond=0)
