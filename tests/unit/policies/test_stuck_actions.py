"""Advice about what does not finish: a machine that its cloud shows pending for long is told."""

from dataclasses import replace
from datetime import timedelta

import pytest

from gpuwatch.model.fleet import NodeReport, NodeState
from gpuwatch.policies.stuck_actions import advice
from tests.support.builders.fleet import NOW, a_node, an_observation


@pytest.mark.parametrize(("minutes", "told"), [(5, False), (30, True), (3 * 1440, True)])
def test_a_machine_that_is_pending_for_long_is_told(minutes: int, *, told: bool) -> None:
    """It counts as one that is there, so nothing comes in its place: its people look at it."""
    node = replace(a_node(), state=NodeState.PENDING, signal=NodeReport(), launched_at=NOW - timedelta(minutes=minutes))

    found = list(advice(an_observation(node, a_node("i-2")), "default"))

    assert [each.target for each in found] == ["i-1"] * told
    assert all("The cloud shows it pending" in each.reason.sentence for each in found)


def test_a_machine_of_others_is_theirs() -> None:
    """Who does not enroll it asks for no advice."""
    node = replace(a_node(enrolled=False), state=NodeState.PENDING, launched_at=NOW - timedelta(days=1))

    assert list(advice(an_observation(node), "default")) == []
