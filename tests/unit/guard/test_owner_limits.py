"""How many nodes and GPUs an owner may have: gpuwatch adds nothing beyond it, and names those who have more."""

from dataclasses import replace
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.guard import Case, Limits, judge, review
from gpuwatch.guard.owner_limits import beyond
from gpuwatch.guard.settings import OwnerLimit, OwnerLimits
from gpuwatch.model.decision import Decision
from gpuwatch.model.fleet import Node, NodeReport, NodeState
from tests.support.builders.fleet import NOW, RULES, a_node, a_stop, an_observation
from tests.support.builders.guard_cases import a_case, a_launch, a_rulebook, a_start
from tests.support.builders.guard_cases_growth import rationed


def objects(case: Case) -> bool:
    """Whether the rule does."""
    return "owner_limit" in {answer.rule for answer in judge(case).refusals}


def stopped_node(node_id: str, owner: str) -> Node:
    """A node of theirs with eight GPUs that gpuwatch stopped."""
    signal = NodeReport(failure="it is stopped")
    return replace(a_node(node_id, owner=owner, gpu_count=8, signal=signal), state=NodeState.STOPPED)


def test_up_to_the_limit_an_owner_gets_nodes() -> None:
    """The one that is started counts as one, not as two."""
    assert not objects(rationed(a_start(a_case()), 1, max_nodes=2))
    assert not objects(rationed(a_start(a_case()), 1, max_gpus=16))
    assert objects(rationed(a_start(a_case()), 2, max_nodes=2))


def test_an_owner_may_have_a_limit_of_its_own() -> None:
    """What it does not give is as for all owners."""
    case = rationed(a_start(a_case()), 1, max_nodes=1)
    own = OwnerLimits(max_nodes=1, max_gpus=99, owners={"ann": OwnerLimit(max_nodes=4)})
    tight = OwnerLimits(max_nodes=1, max_gpus=8, owners={"ann": OwnerLimit(max_nodes=4)})

    assert not objects(replace(case, limits=replace(case.limits, per_owner=own)))
    assert objects(replace(case, limits=replace(case.limits, per_owner=tight)))


def test_nobodys_node_and_a_launch_into_a_mixed_pool_have_no_limit() -> None:
    """Whose a launched node will be is not known there."""
    case = a_start(a_case())
    nobody = replace(case, limits=Limits(per_owner=OwnerLimits(max_nodes=0)))
    launch = rationed(a_launch(a_case()), 1, max_nodes=1)
    fleet = launch.observation.fleet
    mixed = replace(fleet, nodes=(*fleet.nodes, a_node("i-bob", owner="bob")))

    assert nobody.node is not None
    assert nobody.node.owner is None
    assert not objects(nobody)
    assert objects(launch)
    assert not objects(replace(launch, observation=replace(launch.observation, fleet=mixed)))


@given(limit=st.integers(0, 6), stopped=st.integers(1, 6), running=st.integers(0, 4))
def test_a_round_never_starts_more_than_the_limit_leaves(limit: int, stopped: int, running: int) -> None:
    """What is allowed counts against the next step of the same round (P4), and what fits is allowed (P21)."""
    asleep = [stopped_node(f"i-s{number}", "ann") for number in range(stopped)]
    awake = [a_node(f"i-r{number}", owner="ann") for number in range(running)]
    stops = tuple(a_stop(node.id, at=NOW - timedelta(days=1)) for node in asleep)
    seen = an_observation(*asleep, *awake)
    seen = replace(seen, ledger=replace(seen.ledger, stopped=stops))
    case = a_start(a_case())
    steps = tuple(replace(case.step, node_id=node.id) for node in asleep)
    rules = a_rulebook(RULES, Limits(per_owner=OwnerLimits(max_nodes=limit), max_additions_per_round=99))
    decision = Decision(pool="default", steps=steps)
    found = review(seen, [decision], rules)
    allowed = sum(each.allowed for each in found)

    assert {answer.rule for each in found for answer in each.refusals} <= {"owner_limit"}
    assert allowed == min(stopped, max(0, limit - running))


def test_who_has_more_than_allowed_is_named() -> None:
    """Machines that people started themselves count; a stopped one does not."""
    nodes = [a_node(f"i-{number}", owner="ann", gpu_count=8) for number in range(3)]
    fleet = an_observation(*nodes, stopped_node("i-9", "bob")).fleet

    assert list(beyond(fleet, OwnerLimits(max_nodes=2, max_gpus=16))) == [
        "ann has 3 nodes; limits.per_owner allows 2.",
        "ann has 24 GPUs; limits.per_owner allows 16.",
    ]
    assert list(beyond(fleet, OwnerLimits(max_nodes=3))) == []
