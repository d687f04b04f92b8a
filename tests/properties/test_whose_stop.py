"""P24 in any life: what is ended, or started again, was stopped by gpuwatch's own call, by its cloud's own word."""

from dataclasses import dataclass, field, replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpuwatch.clouds import CloudError, CloudUnavailableError
from gpuwatch.clouds.permit import Permit
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import NodeReport, NodeState
from gpuwatch.model.stops import LastStop, StopAnswer
from gpuwatch.policies import PoolRules
from gpuwatch.policies.idle import IdleRules
from gpuwatch.policies.schedule import Window
from tests.support.builders.fleet import LIVES, Desk, FakeFleet, a_node
from tests.support.builders.light_desk import a_daily_ledger

_KEPT = 3600.0
_IDLE = IdleRules(timeout=300.0, grace_period=60.0, terminate_after=_KEPT, terminate_grace_period=60.0)
_RULES = PoolRules(warm_up=0.0, idle=_IDLE)
_WANTED = PoolRules(warm_up=0.0, idle=replace(_IDLE, terminate_after=None), schedule={"always": Window(min_nodes=1)})


class _Died(BaseException):
    """The controller's process ends here."""


@dataclass(slots=True)
class Witness(FakeFleet):
    """A cloud that remembers who stopped each machine last, and what was done to machines that others stopped."""

    fate: str = "nothing"  # of the next stop
    stopper: dict[str, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def by_owner(self, node_id: str = "i-1") -> None:
        """Its owner stops it."""
        node = self._now(self.nodes_[node_id])
        if node.state is NodeState.RUNNING:
            self.stopper[node_id] = "owner"
            shown = LastStop(at=self.clock.now().replace(microsecond=0))
            gone = NodeReport(failure="it is stopped")
            self.put(replace(node, state=NodeState.STOPPED, last_stop=shown, signal=gone))

    def stop(self, node_id: str, key: str, *, permit: Permit) -> StopAnswer:
        """Stop it, or what becomes of the call."""
        fate, self.fate = self.fate, "nothing"
        if fate == "dies before":
            raise _Died
        if fate == "request lost":
            raise CloudUnavailableError("silent")
        if fate == "owner before":
            self.by_owner(node_id)
        if self._now(self.nodes_[node_id]).state is NodeState.RUNNING:
            self.stopper[node_id] = "gpuwatch"
        answer = FakeFleet.stop(self, node_id, key, permit=permit)
        if fate == "dies after":
            raise _Died
        if fate == "answer lost":
            raise CloudUnavailableError("silent")
        return answer

    def start(self, node_id: str, key: str) -> None:
        """Note a start of what its owner stopped."""
        if self.stopper.get(node_id) == "owner":
            self.wrong.append(f"started {node_id}")
        FakeFleet.start(self, node_id, key)

    def terminate(self, node_id: str, key: str, *, permit: Permit, group: str | None = None) -> None:
        """Note the end of what its owner stopped."""
        stopped = self._now(self.nodes_[node_id]).state is NodeState.STOPPED
        if stopped and self.stopper.get(node_id) == "owner":
            self.wrong.append(f"terminated {node_id}")
        FakeFleet.terminate(self, node_id, key, permit=permit, group=group)


def a_desk() -> tuple[Desk, Witness]:
    """A controller of one machine that has been idle for hours."""
    desk = Desk(rules=_RULES, ledger=a_daily_ledger())
    cloud = desk.fleet = Witness(clock=desk.clock)
    cloud.put(a_node("i-1"))
    return desk, cloud


def live_through(desk: Desk, rounds: int) -> None:
    """So many rounds; a process that dies begins anew."""
    for _ in range(rounds):
        try:
            desk.round()
        except (_Died, CloudError):
            desk.rest(60.0)


FATES = st.sampled_from(["nothing", "owner before", "request lost", "answer lost", "dies before", "dies after"])
STEPS = st.lists(
    st.tuples(FATES, st.sampled_from(["waits", "stops", "starts", "uses"]), st.integers(3, 20), st.booleans()),
    min_size=1,
    max_size=4,
)


@settings(max_examples=LIVES, deadline=None)
@given(STEPS)
@example([("owner before", "waits", 6, False)])
@example([("request lost", "stops", 6, False)])
@example([("dies before", "stops", 6, False)])
@example([("answer lost", "uses", 6, False)])
def test_nothing_is_ended_or_started_that_its_owner_stopped(steps: list[tuple[str, str, int, bool]]) -> None:
    """Whatever became of our call, and whatever its owner did before and after it."""
    desk, cloud = a_desk()
    for fate, owner, rounds, wanted in steps:
        desk.rules = _WANTED if wanted else _RULES
        cloud.fate = fate
        live_through(desk, rounds)
        node = cloud.nodes_["i-1"]
        if owner == "stops":
            cloud.by_owner()
        elif owner in {"starts", "uses"} and cloud._now(node).state is NodeState.STOPPED:
            running = replace(node, state=NodeState.RUNNING, launched_at=desk.clock.now(), last_stop=None)
            cloud.put(running)
            cloud.show("i-1", State.BUSY)
            desk.rest(60.0)
            if owner == "uses":
                cloud.by_owner()
    desk.rules = _RULES
    live_through(desk, 80)
    desk.rules = _WANTED
    live_through(desk, 3)

    assert cloud.wrong == []


def test_what_gpuwatch_stopped_itself_is_ended_in_the_end() -> None:
    """The proof is there in the usual case: the rule holds nothing up."""
    desk, cloud = a_desk()
    live_through(desk, 100)

    assert cloud.wrong == []
    assert [call for call, *_ in cloud.calls if call in {"stop", "terminate"}] == ["stop", "terminate"]
