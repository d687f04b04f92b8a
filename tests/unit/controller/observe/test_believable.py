"""P22: what a cloud says of one machine or group changes nothing about the others, whatever it is."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.controller.observe.believable import Listing
from gpuwatch.model.cloud_notice import CloudNotice
from gpuwatch.model.fleet import Node, NodeGroup, NodeState
from tests.support.builders.fleet import NOW, a_node

FIRST, LAST = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))), datetime(9999, 12, 31, 23, 59, tzinfo=UTC)
ANY_TEXT = st.text(st.characters(), max_size=30) | st.sampled_from(["\x00", "\ud800", "x" * 1_000_000, "\u202e", ""])
TEXT_FIELDS = ("name", "pool", "instance_type", "region", "zone", "owner", "account", "group", "address", "protected")
ODD: st.SearchStrategy[Any] = st.sampled_from(
    [2**64, -1, 10**30, float("nan"), float("inf"), "8", True, None, [], {}, b"x", FIRST]
)
GROUP = NodeGroup(id="asg-1", name="asg-1", pool="default", min_size=0, max_size=4, desired=2, region="eu-1")


def believed(*nodes: Node) -> tuple[tuple[Node, ...], dict[str, str]]:
    """These machines at the door, and what is said in the log."""
    listing = Listing()
    return listing.nodes(nodes), listing.doubts


def with_fields(node: Node, **fields: Any) -> Node:  # noqa: ANN401  of any type, as an adapter may make them
    """The machine with other values, whatever their types are."""
    return replace(node, **fields)


def in_any_ledger(value: object) -> bool:
    """Whether the ledger reads back what it writes, and an index of it has room."""
    kept = msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=type(value))
    return kept == value


@given(texts=st.dictionaries(st.sampled_from(TEXT_FIELDS), ANY_TEXT), tags=st.dictionaries(ANY_TEXT, ANY_TEXT))
def test_any_text_of_a_machine_is_held_to_what_can_be_stored(texts: dict[str, str], tags: dict[str, str]) -> None:
    """It stays the machine that it is, and is judged."""
    node = with_fields(a_node(), **texts, tags=tags)
    (found,), doubts = believed(node)

    assert (found.id, found.state, doubts) == (node.id, node.state, {})
    assert in_any_ledger(found)
    assert max(len(getattr(found, name) or "") for name in TEXT_FIELDS if name != "protected") <= 512
    assert all(len(key) <= 512 and len(value) <= 10_000 for key, value in found.tags.items())


def test_a_machine_that_a_list_has_twice_counts_once() -> None:
    """Pages shift while a list is read. If the two differ, nobody knows which one is true."""
    nodes = (a_node("i-1"), a_node("i-2"), a_node("i-1"))
    assert believed(*nodes) == (nodes[:2], {})

    (one, other), doubts = believed(*nodes[:2], replace(nodes[0], state=NodeState.STOPPING))
    assert (one.id, one.state, one.last_shown) == ("i-1", NodeState.UNKNOWN, NodeState.STOPPING)
    assert one.protected == doubts["i-1"] == "its cloud lists it twice, and each time otherwise"
    assert other == nodes[1]


def test_a_group_that_a_list_has_twice_counts_once() -> None:
    """The later page is the newer one."""
    listing = Listing()
    assert listing.groups([GROUP, replace(GROUP, desired=3)]) == (replace(GROUP, desired=3),)


def test_honest_machines_are_left_as_they_are() -> None:
    """In the very same object: nothing is made anew in a round of 100,000 machines."""
    node = a_node(owner="Zoë", tags={"team": "größe", "nul": "\x00"}, launched_at=NOW)

    assert believed(node)[0][0] == node
    assert believed(a_node())[0][0] is not None
    plain = a_node(owner="ann", tags={"team": "nlp"})
    assert believed(plain)[0][0] is plain


@given(field=st.sampled_from([each for each in Node.__slots__ if each not in {"id", "signal"}]), value=ODD)
def test_a_value_of_any_type_in_one_field_makes_that_machine_unknown_at_most(field: str, value: Any) -> None:  # noqa: ANN401  as it says
    """It stays in the fleet, as capacity, and is left alone; its neighbour is as it was."""
    odd, honest = with_fields(a_node("i-odd"), **{field: value}), a_node("i-honest")
    (found, other), doubts = believed(odd, honest)

    assert other is honest
    assert found.id == "i-odd"
    assert doubts.keys() <= {"i-odd"}
    assert found.gpu_count is None or 0 <= found.gpu_count <= 4096
    if "i-odd" in doubts:
        assert found.state is NodeState.UNKNOWN
        assert found.unseen is not None


@pytest.mark.parametrize("count", [2**64, -1, 10**9, True, "8", 4097])
def test_a_number_of_gpus_that_no_machine_has_leaves_it_unknown(count: Any) -> None:  # noqa: ANN401  as it says
    """A billion of them is a list of a billion in the books."""
    (found,), doubts = believed(a_node("i-1", gpu_count=count))

    assert (found.state, found.last_shown, found.gpu_count) == (NodeState.UNKNOWN, NodeState.RUNNING, None)
    assert "GPUs" in doubts["i-1"]


@pytest.mark.parametrize("at", [FIRST, LAST, NOW.replace(tzinfo=None)])
def test_a_time_that_cannot_be_shown_leaves_it_unknown(at: datetime) -> None:
    """Of its launch, or of a notice."""
    notice = CloudNotice(kind="maintenance", action="reboot", deadline=at, seen_at=NOW)
    (launched, noticed), doubts = believed(a_node("i-1", launched_at=at), a_node("i-2", announced=(notice,)))

    assert (launched.state, launched.launched_at) == (NodeState.UNKNOWN, None)
    assert (noticed.state, noticed.announced) == (NodeState.UNKNOWN, ())
    assert doubts.keys() == {"i-1", "i-2"}


@pytest.mark.parametrize("name", ["", "x" * 513, "i-\ud800", None, 7])
def test_a_machine_without_a_usable_id_is_left_out_with_a_sentence(name: Any) -> None:  # noqa: ANN401  as it says
    """Nobody could call it by it, and the ledger could not find it again."""
    found, doubts = believed(replace(a_node(), id=name), a_node("i-1"))

    assert [each.id for each in found] == ["i-1"]
    assert len(doubts) == 1


@given(field=st.sampled_from(NodeGroup.__slots__), value=ODD | ANY_TEXT)
def test_a_group_with_anything_in_one_field_is_held_to_it_or_left_out(field: str, value: Any) -> None:  # noqa: ANN401  as it says
    """Its neighbour is as it was."""
    listing, honest = Listing(), replace(GROUP, id="asg-2")
    found = listing.groups([replace(GROUP, **{field: value}), honest])

    assert found[-1] is honest
    assert all(0 <= each.desired <= 1_000_000 for each in found)
