"""A machine that a list lacks counts for ten minutes after its launch, unless its cloud says that it has ended."""

from dataclasses import replace

import pytest

from gpuwatch.clouds import CloudError, CloudUnavailableError, NotFoundError
from gpuwatch.model.fleet import NodeState
from gpuwatch.policies.schedule import Window
from tests.support.builders.fleet import RULES, Desk
from tests.support.builders.offers import OFFERS
from tests.support.fakes.spot_market import SpotMarket

POOL = replace(RULES, offers=OFFERS, interruptible="any", schedule={"always": Window(min_nodes=1)})


def a_desk() -> tuple[Desk, SpotMarket, str]:
    """One node was launched from spot-a, and shown, a minute ago."""
    desk = Desk()
    market = SpotMarket(clock=desk.clock)
    desk.fleet = market
    desk.pools = {"default": POOL}
    desk.round()
    desk.round()
    (node_id,) = market.alive()
    return desk, market, node_id


@pytest.mark.parametrize("state", [NodeState.TERMINATED, NodeState.TERMINATING])
def test_what_its_cloud_has_ended_is_replaced_in_the_same_round(state: NodeState) -> None:
    """And counts as a loss of its offer."""
    desk, market, node_id = a_desk()
    market.put(replace(market.nodes_[node_id], state=state))
    market.listed = lambda node: node.id != node_id
    done = desk.round()

    assert done.observation.fleet.ended == (node_id,)
    assert done.observation.offers["default"].offers["spot-a"].losses == 1
    assert len([each for each in market.alive() if each != node_id]) == 1


@pytest.mark.parametrize(
    "error", [None, CloudUnavailableError("no answer"), NotFoundError("too new")], ids=["late", "no answer", "too new"]
)
def test_what_may_be_there_counts(error: CloudError | None) -> None:
    """A late list, no answer and an unknown id prove nothing (P17)."""
    desk, market, node_id = a_desk()
    market.listed = lambda node: node.id != node_id
    market.fault = lambda call, target: error if (call, target) == ("node", node_id) else None
    for _ in range(8):
        assert desk.round().observation.fleet.ended == ()

    assert market.alive() == [node_id]


def test_nothing_is_asked_of_what_the_list_shows() -> None:
    """No call in an ordinary round."""
    desk, market, _ = a_desk()
    asked: list[str] = []
    market.fault = lambda call, _: asked.append(call)
    desk.round()

    assert "node" not in asked
