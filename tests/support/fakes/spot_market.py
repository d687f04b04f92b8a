"""A cloud with offers: each has room for so many machines, or says that it has; it takes back what it gave."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

from gpuwatch.clouds import InsufficientCapacityError, QuotaExceededError
from gpuwatch.clouds.permit import check_in_force
from gpuwatch.model.activity import State
from gpuwatch.model.cloud_notice import CloudNotice
from gpuwatch.model.decision import DECISION_TAG
from gpuwatch.model.fleet import Node, NodeReport, NodeState
from gpuwatch.policies.spot.settings import OfferRules
from tests.support.builders.fleet import FakeFleet
from tests.support.builders.offers import OFFERS, a_node_of

ALIVE = frozenset({NodeState.RUNNING, NodeState.PENDING})


@dataclass(slots=True)
class SpotMarket(FakeFleet):
    """Room by the offers' names; an offer that is not named has room for all.

    `lies` gives machines that end before any list shows them; `quota` refuses by the account's quota. `notices` are of
    machines; agents tell them, but for those that are `mute`. `tags` are what its templates write on each machine. Of
    machines that come while it is `untold`, it does not say how many GPUs they have.
    """

    room: dict[str, int] = field(default_factory=dict)
    lies: set[str] = field(default_factory=set)
    quota: set[str] = field(default_factory=set)
    tags: dict[str, str] = field(default_factory=dict)
    made: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)  # of this round, by offer
    offer_of: dict[str, str] = field(default_factory=dict)  # of each machine
    notices: dict[str, CloudNotice] = field(default_factory=dict)
    mute: set[str] = field(default_factory=set)
    untold: bool = False
    offers: Mapping[str, OfferRules] = field(default_factory=lambda: OFFERS)

    def launch(self, arguments: Mapping[str, str], key: str) -> str:
        """One machine of the offer, where it has room."""
        name, node_id = arguments["offer"], f"i-{key}"
        self._ask("launch", name)
        check_in_force()
        self.calls.append(("launch", name, key))
        if node_id in self.nodes_:
            self._answer("launch", name)
            return node_id
        if name in self.quota:
            self.refusals[name] += 1
            raise QuotaExceededError("the quota is used up", code="VcpuLimitExceeded")
        if len(self.alive(name)) >= self.room.get(name, 999):
            self.refusals[name] += 1
            raise InsufficientCapacityError("there is none now", code="InsufficientInstanceCapacity")
        node = a_node_of(self.offers[name], node_id, pool=arguments["pool"], tags={**self.tags, DECISION_TAG: key})
        gpus = self.offers[name].gpus or 1
        node = self.born(replace(node, launched_at=self.clock.now(), gpu_count=gpus))
        self.put(replace(node, state=NodeState.TERMINATED) if name in self.lies else node)
        self.show(node_id, State.BUSY)
        if self.untold:  # the cloud's table lacks the type: its agent alone tells
            self.put(replace(self.nodes_[node_id], gpu_count=None))
        self.offer_of[node_id] = name
        self.made[name] += 1
        self._answer("launch", name)
        return node_id

    def alive(self, name: str | None = None) -> list[str]:
        """The machines of an offer, or all, that run or come up."""
        return [
            node_id
            for node_id, node in self.nodes_.items()
            if node.state in ALIVE and (name is None or self.offer_of.get(node_id) == name)
        ]

    def gpus(self) -> int:
        """The GPUs of all machines that run or come up, whatever is told of them."""
        return sum(self.offers[self.offer_of[node_id]].gpus or 1 for node_id in self.alive())

    def take(self, name: str) -> None:
        """Take the oldest machine of an offer back, without a word."""
        for node_id in self.alive(name)[:1]:
            self.put(replace(self.nodes_[node_id], state=NodeState.TERMINATED))

    def confirm(self, node: Node) -> NodeReport:
        """One agent's answer, with the notices of its machine."""
        if node.id in self.mute:
            return NodeReport(failure="its agent did not answer within 5s")
        signal = FakeFleet.confirm(self, node)
        if signal.verdict is None:
            return signal
        notice = self.notices.get(node.id)
        told = () if notice is None else (notice,)
        return replace(signal, verdict=replace(signal.verdict, cloud_notices=told))

    def announce(self, node_id: str, *, minutes: float = 2.0, kind: str = "spot_interruption") -> CloudNotice:
        """Say that a machine will be taken; again, and the deadline moves."""
        before, now = self.notices.get(node_id), self.clock.now()
        seen = now if before is None else before.seen_at
        notice = CloudNotice(kind=kind, action="terminate", deadline=now + timedelta(minutes=minutes), seen_at=seen)
        self.notices[node_id] = notice
        return notice

    def carry_out(self) -> None:
        """Take every machine whose deadline is over."""
        for node_id, notice in list(self.notices.items()):
            if notice.at <= self.clock.now() and self.nodes_[node_id].state in ALIVE:
                self.put(replace(self.nodes_[node_id], state=NodeState.TERMINATED))
