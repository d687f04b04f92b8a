"""A cloud that fails now and then: throttled, silent after the deed, without capacity, slow. The same seed fails alike.

What fails is drawn for each call, target and minute, not for each call in turn, so that it does not depend on how
often anybody asks.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpuwatch.clouds import CloudError, CloudUnavailableError, InsufficientCapacityError, ThrottledError
from gpuwatch.clouds.permit import Permit
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.model.stops import StopAnswer
from gpuwatch.runtime.clock import Clock
from gpuwatch.simulate.cloud import INCORRECT_STATE
from gpuwatch.simulate.cloud_proxy import PassedOn

_MINUTE = 60.0
_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRates:
    """How likely each fault is: of one call for one target within a minute, or (spells) of an hour."""

    throttled: float = 0.05
    lost_answer: float = 0.05
    no_capacity: float = 0.1
    slow_stop: float = 0.1
    slow_stop_seconds: float = 900.0
    blind_spell: float = 0.02  # for the first five minutes of the hour no list of machines is to be had
    blind_seconds: float = 300.0


@dataclass(frozen=True)
class FaultyCloud(PassedOn):
    """The cloud behind it, with faults drawn from `seed`."""

    clock: Clock
    seed: int
    rates: FaultRates = field(default_factory=FaultRates)
    _slow: dict[str, float] = field(default_factory=dict)  # shown as stopping, until then

    def nodes(self) -> Sequence[Node]:
        """All machines; none of it during a blind spell."""
        now = self.clock.monotonic()
        if now % _HOUR < self.rates.blind_seconds and self._strikes("blind", "", self.rates.blind_spell, _HOUR):
            raise CloudUnavailableError("the list of machines cannot be had for the moment", code="InternalError")
        listed = self.cloud.nodes()
        return tuple(map(self._shown, listed)) if self._slow else listed

    def node(self, node_id: str) -> Node | None:
        """One machine."""
        self._throttle("node", node_id)
        node = self.cloud.node(node_id)
        return None if node is None else self._shown(node)

    def stop(self, node_id: str, key: str, *, permit: Permit) -> StopAnswer:
        """Throttled before, slow after, or its answer is lost."""
        self._throttle("stop", node_id)
        answer = self.cloud.stop(node_id, key, permit=permit)
        if self._strikes("slow", node_id, self.rates.slow_stop):
            self._slow[node_id] = self.clock.monotonic() + self.rates.slow_stop_seconds
        self._lose("stop", node_id)
        return answer

    def start(self, node_id: str, key: str) -> None:
        """Throttled, without capacity, still stopping, or its answer is lost."""
        self._throttle("start", node_id)
        if self._strikes("capacity", node_id, self.rates.no_capacity):
            raise InsufficientCapacityError("there is no such machine to be had now", code="InsufficientCapacity")
        node = self.node(node_id)
        if node is not None and node.state is NodeState.STOPPING:
            raise CloudError(f"{node_id} is stopping and cannot be started now", code=INCORRECT_STATE)
        self.cloud.start(node_id, key)

    def terminate(self, node_id: str, key: str, *, permit: Permit, group: str | None = None) -> None:
        """Throttled, or its answer is lost."""
        self._throttle("terminate", node_id)
        self.cloud.terminate(node_id, key, permit=permit, group=group)
        self._lose("terminate", node_id)

    def tag(self, node_id: str, tags: Mapping[str, str], key: str) -> None:
        """Throttled, or its answer is lost."""
        self._throttle("tag", node_id)
        self.cloud.tag(node_id, tags, key)
        self._lose("tag", node_id)

    def _shown(self, node: Node) -> Node:
        """A slow machine is stopping for a while yet."""
        until = self._slow.get(node.id)
        if until is None or node.state is not NodeState.STOPPED:
            return node
        if self.clock.monotonic() >= until:
            del self._slow[node.id]
            return node
        return replace(node, state=NodeState.STOPPING)

    def _throttle(self, call: str, node_id: str) -> None:
        if self._strikes(f"throttled {call}", node_id, self.rates.throttled):
            raise ThrottledError(f"too many calls: {call}", code="RequestLimitExceeded")

    def _lose(self, call: str, node_id: str) -> None:
        if self._strikes(f"lost {call}", node_id, self.rates.lost_answer):
            raise CloudUnavailableError(f"the answer to {call} was lost", code="RequestTimeout")

    def _strikes(self, fault: str, target: str, rate: float, seconds: float = _MINUTE) -> bool:
        """Whether a fault strikes a target at this time: always the same answer within a minute, or an hour."""
        drawn = f"{self.seed}\n{fault}\n{target}\n{self.clock.monotonic() // seconds:.0f}"
        return int.from_bytes(hashlib.blake2b(drawn.encode(), digest_size=4).digest()) < rate * 2**32
