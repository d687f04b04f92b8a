"""Nodes in a cloud that their pool does not name are left alone, whatever the pool's rules say."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.activity import State
from gpuwatch.model.decision import Verb
from gpuwatch.policies import PoolRules, propose, resolve
from tests.support.builders.fleet import RULES, a_node, a_notice, an_observation

CLOUDS = ("", "bj", "us")


def verbs(rules: PoolRules, *clouds: str, noticed: tuple[str, ...] = ()) -> dict[str, Verb]:
    """What is decided about a long idle node in each of these clouds."""
    nodes = [a_node(f"i-{number}", cloud=cloud) for number, cloud in enumerate(clouds)]
    seen = an_observation(*nodes, notices=tuple(a_notice(node_id) for node_id in noticed))
    decision = resolve(seen, "default", propose(seen, "default", rules), rules)
    return {step.node_id: step.verb for step in decision.steps}


@given(st.lists(st.sampled_from(CLOUDS), max_size=8), st.lists(st.sampled_from(CLOUDS[1:]), unique=True))
def test_only_nodes_in_the_pools_clouds_get_a_notice(clouds: list[str], named: list[str]) -> None:
    """Without a name all clouds are the pool's; the nodes of the others are decided about as before."""
    found = verbs(replace(RULES, clouds=tuple(named)), *clouds)

    assert found == {
        f"i-{number}": Verb.NOTICE if not named or cloud in named else Verb.HOLD for number, cloud in enumerate(clouds)
    }


def test_a_notice_in_another_cloud_is_withdrawn() -> None:
    """Its grace must not have passed already when the pool takes that cloud again."""
    found = verbs(replace(RULES, clouds=("bj",)), "bj", "us", noticed=("i-0", "i-1"))

    assert found == {"i-0": Verb.STOP, "i-1": Verb.WITHDRAW}


@pytest.mark.parametrize("state", [State.IDLE, State.BUSY, State.UNKNOWN])
def test_the_reason_names_both_clouds(state: State) -> None:
    """Whatever the node does: people should not have to guess."""
    rules, node = replace(RULES, clouds=("bj",)), a_node("i-1", state, cloud="us")
    seen = an_observation(node)

    (step,) = resolve(seen, "default", propose(seen, "default", rules), rules).steps

    assert step.reason.sentence == "It is in the cloud us, and its pool is for bj."
    assert step.change == "Another tag gpuwatch:pool, or that cloud's name."
