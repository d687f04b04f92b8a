"""A pool under load whose cloud takes nodes: cooldowns hold no replacement back, and none comes twice."""

from dataclasses import replace
from datetime import timedelta

import pytest

from gpuwatch.model.cloud_notice import CloudNotice, Interruption
from gpuwatch.model.decision import Done, Observation, Status, Verb
from gpuwatch.model.fleet import Node
from gpuwatch.policies import machines
from gpuwatch.policies.scaling import ScalingRules
from tests.support.builders.fleet import NOW
from tests.support.builders.scaled_pools import QUEUE, a_measure, nodes, proposed, seen

RULES = ScalingRules(metrics={"queue": QUEUE}, cooldown_out=1800.0, cooldown_in=1800.0)
TAKEN = CloudNotice(kind="spot_interruption", action="terminate", deadline=NOW + timedelta(minutes=2), seen_at=NOW)


def a_pool(wish: int, *, taken: int = 1, added: int = 0, known: bool = True, minutes: float = 1.0) -> Observation:
    """Four nodes and so many additions since the first record a minute ago; within all cooldowns."""
    found: list[Node] = nodes(4 + added)
    found = [replace(node, cloud_notice=TAKEN) for node in found[:taken]] + found[taken:]
    since = NOW - timedelta(minutes=minutes)
    records = tuple(
        Interruption(
            node_id=node.id, key="k", pool="default", at=NOW, notice=TAKEN, arguments={"since": since.isoformat()}
        )
        for node in found[:taken]
    )
    launches = tuple(
        Done(
            key=f"k-{number}",
            verb=Verb.LAUNCH,
            node_id="new:default:1",
            pool="default",
            status=Status.SETTLED,
            at=NOW - timedelta(seconds=30.0) if number < added else NOW - timedelta(minutes=10),
        )
        for number in range(added + 1)
    )
    measure = a_measure("queue", 10.0 * wish if known else None)
    return seen(found, measure, recent=launches, interruptions=records)


@pytest.mark.parametrize(
    ("wish", "taken", "added", "wanted", "kept"),
    [
        (4, 1, 0, 4, None),  # replaced in spite of the cooldown
        (4, 1, 1, 4, None),  # and once
        (4, 2, 1, 4, None),
        (6, 1, 0, 4, None),  # growth waits for its cooldown
        (3, 1, 0, 3, 4),  # the loss makes the pool as small as the load wants it
        (2, 1, 0, 2, 4),  # what is left stays for the cooldown
        (3, 1, 1, 3, 4),
    ],
)
def test_what_is_taken_is_replaced_as_far_as_it_is_needed(
    wish: int, taken: int, added: int, wanted: int, kept: int | None
) -> None:
    """What is kept is a floor alone: nodes that stay are not removed before their time, and none is bought for it."""
    proposal = proposed(a_pool(wish, taken=taken, added=added), RULES)
    assert (proposal.desired_nodes, proposal.kept_nodes, proposal.grows) == (wanted, kept, True)


def test_a_load_that_is_not_known_buys_nothing() -> None:
    """The nodes stay, and what runs is a floor; nobody knows whether more is needed."""
    assert proposed(a_pool(4, known=False), RULES).grows is False


@pytest.mark.parametrize(("taken", "added", "left"), [(0, 0, 0), (1, 0, 1), (2, 1, 1), (2, 2, 0), (1, 3, 0)])
def test_what_was_added_since_the_first_notice_counts_as_a_replacement(taken: int, added: int, left: int) -> None:
    """Whatever it was added for: doubt adds nothing."""
    assert machines.unreplaced_count(a_pool(4, taken=taken, added=added), "default") == left
