"""A list that lacks a machine once is no proof that the machine is gone."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from gpuwatch.clouds import CloudError, CloudUnavailableError, NotFoundError
from gpuwatch.controller.round import step
from gpuwatch.guard import Limits
from gpuwatch.model.decision import Status, Verb
from gpuwatch.model.fleet import Node, NodeReport, NodeState
from gpuwatch.policies import PoolRules
from gpuwatch.policies.idle import IdleRules
from tests.support.builders.fleet import Desk, a_node

SOON = PoolRules(warm_up=0.0, idle=IdleRules(timeout=300.0, grace_period=1200.0))
_IDLE = replace(SOON.idle, grace_period=120.0, terminate_after=7200.0, terminate_grace_period=120.0)
TERMINATE_AFTER = replace(SOON, idle=_IDLE)


@dataclass(slots=True)
class Hiding:
    """A desk's cloud whose lists lack some machines; asked by their ids it says `error`, or what is true."""

    desk: Desk
    ids: set[str] = field(default_factory=set)
    error: CloudError | None = None

    def __getattr__(self, name: str) -> Callable[..., object]:
        """All else is the fleet's."""
        return getattr(self.desk.fleet, name)  # type: ignore[no-any-return]

    def nodes(self) -> tuple[Node, ...]:
        """The list."""
        return tuple(node for node in self.desk.fleet.nodes() if node.id not in self.ids)

    def node(self, node_id: str) -> Node | None:
        """One machine."""
        if node_id in self.ids and self.error is not None:
            raise self.error
        return self.desk.fleet.node(node_id)

    def rounds(self, count: int) -> None:
        """So many, a minute apart."""
        for _ in range(count):
            step(replace(self.desk.parts, cloud=self))  # type: ignore[arg-type]
            self.desk.rest(60.0)


def a_cloud(rules: PoolRules) -> Hiding:
    """One idle machine."""
    desk = Desk(rules=rules, limits=Limits(max_stops_per_hour_ratio=1.0))
    desk.fleet.put(a_node("i-1", held=0.0))
    return Hiding(desk)


def noticed(cloud: Hiding) -> bool:
    """Whether the machine has its notice."""
    return cloud.desk.ledger.view(cloud.desk.clock.now()).notice("i-1") is not None


def stopped(cloud: Hiding) -> list[str]:
    """What the ledger knows as our stops."""
    return [each.node_id for each in cloud.desk.ledger.view(cloud.desk.clock.now()).stopped]


@pytest.mark.parametrize("error", [None, NotFoundError("unknown"), CloudUnavailableError("silence")])
def test_a_notice_outlives_a_list_that_lacks_its_machine(error: CloudError | None) -> None:
    """Missing for half an hour and there again: the notice is held, and nothing is said to its owner."""
    cloud = a_cloud(SOON)
    cloud.rounds(8)
    assert noticed(cloud)
    cloud.ids, cloud.error = {"i-1"}, error
    cloud.rounds(30)
    held = noticed(cloud)
    cloud.ids = set()
    cloud.rounds(1)

    assert held
    assert not [entry for entry in cloud.desk.ledger.history("i-1")[2:] if entry.intent.verb is Verb.WITHDRAW]


@pytest.mark.parametrize("error", [None, NotFoundError("unknown")])
def test_a_stop_of_ours_outlives_a_list_that_lacks_its_machine(error: CloudError | None) -> None:
    """terminate_after goes on as if nothing had been: it is terminated when its time is over."""
    cloud = a_cloud(TERMINATE_AFTER)
    cloud.rounds(15)
    assert stopped(cloud) == ["i-1"]
    cloud.ids, cloud.error = {"i-1"}, error
    cloud.rounds(1)
    held = stopped(cloud)
    cloud.ids = set()
    cloud.rounds(130)

    assert held == ["i-1"]
    assert cloud.desk.fleet.nodes_["i-1"].state is NodeState.TERMINATED


def test_an_old_list_that_shows_it_running_ends_no_stop() -> None:
    """It is shown as it was before its stop: with the launch time of then, and without an answer of its agent."""
    cloud = a_cloud(TERMINATE_AFTER)
    cloud.rounds(15)
    before = cloud.desk.fleet.nodes_["i-1"]
    old = replace(before, state=NodeState.RUNNING, signal=NodeReport(failure="no answer"))
    cloud.desk.fleet.nodes_["i-1"] = old
    cloud.desk.fleet.answer = lambda _: NodeReport(failure="no answer")
    cloud.rounds(1)
    cloud.desk.fleet.nodes_["i-1"] = before

    assert stopped(cloud) == ["i-1"]


def test_a_machine_that_is_gone_has_its_notice_closed_with_a_record() -> None:
    """The cloud shows it terminated: the withdrawal is on record, so that whoever had the notice is told."""
    cloud = a_cloud(SOON)
    cloud.rounds(8)
    cloud.desk.fleet.put(replace(cloud.desk.fleet.nodes_["i-1"], state=NodeState.TERMINATED))
    cloud.rounds(2)
    last = cloud.desk.ledger.history("i-1")[0]

    assert not noticed(cloud)
    assert (last.intent.verb, last.intent.pool, last.intent.reason.code) == (Verb.WITHDRAW, "default", "gone")
    assert [outcome.status for outcome in last.outcomes] == [Status.SETTLED]
    assert len(cloud.desk.ledger.history("i-1")) == 2, "and once"


@pytest.mark.parametrize(("rules", "kept"), [(SOON, noticed), (TERMINATE_AFTER, stopped)])
def test_what_the_cloud_has_not_known_for_an_hour_is_gone(rules: PoolRules, kept: Callable[[Hiding], object]) -> None:
    """Clouds forget terminated machines: neither the list nor the id is known for an hour, and then it is forgotten."""
    cloud = a_cloud(rules)
    cloud.rounds(15)
    cloud.ids, cloud.error = {"i-1"}, NotFoundError("unknown")
    cloud.rounds(59)
    held = kept(cloud)
    cloud.rounds(3)

    assert held
    assert not kept(cloud)


def test_not_all_that_is_missing_is_asked_for_in_one_round() -> None:
    """A list that lacks a whole region costs a bounded number of calls, and each machine has its turn."""
    cloud = a_cloud(SOON)
    names = [f"i-{n:02}" for n in range(50)]
    for name in names:
        cloud.desk.fleet.put(a_node(name, held=0.0))
    cloud.desk.limits = Limits(mass_idleness_nodes=999)
    cloud.rounds(8)
    cloud.ids = set(names)
    asked: list[str] = []
    cloud.desk.fleet.fault = lambda call, node_id: asked.append(node_id) if call == "node" else None
    cloud.rounds(1)
    first = len(asked)
    cloud.rounds(2)

    assert first == 20
    assert set(names) == set(asked)
