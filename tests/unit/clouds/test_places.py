"""Several places of one cloud: whatever one of them does, the others' answers are what they would be alone."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.clouds import CloudError, CloudUnavailableError
from gpuwatch.clouds.places import Views, anywhere, attempt, everywhere
from gpuwatch.model.fleet import Node, NodeGroup, NodeState
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import a_node

SILENT = CloudUnavailableError("no answer")


@dataclass(frozen=True)
class Place:
    """A region by its name."""

    name: str

    def holds(self, thing: Node | NodeGroup) -> bool:
        """By its region."""
        return thing.region == self.name


HERE, THERE = Place("here"), Place("there")


def node(node_id: str) -> Node:
    """A machine that runs."""
    return a_node(node_id)


def group(group_id: str) -> NodeGroup:
    """A group of one machine."""
    return NodeGroup(id=group_id, name=group_id, pool="default", min_size=0, max_size=2, desired=1, region="here")


@pytest.fixture
def views(hand: ManualClock) -> Views[Place]:
    """Nothing was seen yet."""
    return Views(hand, cloud="EC2")


@pytest.fixture
def hand() -> ManualClock:
    """Time that moves by hand."""
    return ManualClock()


def states(nodes: list[Node]) -> dict[str, NodeState]:
    """Each machine's state."""
    return {each.id: each.state for each in nodes}


# Asking


@given(st.lists(st.booleans(), min_size=1, max_size=20))
def test_every_place_is_asked_and_the_answers_keep_the_order_of_the_places(down: list[bool]) -> None:
    """A place that fails changes no other place's answer; only where all fail nobody sees anything."""
    places = [Place(f"r{number}") for number in range(len(down))]

    def ask(place: Place) -> list[str]:
        if down[places.index(place)]:
            raise SILENT
        return [place.name]

    found = anywhere(places, ask, lambda place, error: [f"{place.name} as last seen: {error}"])

    if all(down):
        with pytest.raises(CloudUnavailableError):
            list(found)
        return
    assert [(place.name, answer) for place, answer in found] == [
        (place.name, [f"{place.name} as last seen: no answer"] if silent else [place.name])
        for place, silent in zip(places, down, strict=True)
    ]


def test_where_a_whole_list_is_needed_one_failure_fails_it() -> None:
    """The error is that of the first place that failed, in the order of the places."""

    def ask(place: Place) -> str:
        raise CloudError(place.name)

    with pytest.raises(CloudError, match="here"):
        everywhere([HERE, THERE], ask)
    with pytest.raises(CloudError, match="there"):
        everywhere([THERE], ask)
    assert everywhere([], ask) == []


def test_an_attempt_is_the_answer_or_the_error() -> None:
    """Another exception is a mistake of ours in reading one place's answer: that place gave none, and no other pays."""

    def broken() -> str:
        raise KeyError("ours")

    def silent() -> str:
        raise SILENT

    assert attempt(lambda: "yes") == "yes"
    assert attempt(silent) is SILENT
    assert isinstance(attempt(broken), CloudUnavailableError)
    assert "KeyError" in str(attempt(broken))


# What was seen last


def test_a_silent_place_shows_what_it_showed_last_in_an_unknown_state(
    views: Views[Place], caplog: pytest.LogCaptureFixture
) -> None:
    """It is said once that it is silent, and once that it answers again."""
    views.keep(HERE, [node("i-1")], ["i-1"])

    for _ in range(2):
        assert states(views.last_nodes(HERE, SILENT)) == {"i-1": NodeState.UNKNOWN}
    assert states(views.keep(HERE, [node("i-1")], ["i-1"])) == {"i-1": NodeState.RUNNING}

    assert [record.getMessage() for record in caplog.records] == [
        "no answer; its machines count as they were and are left alone",
        "EC2 in here answers again",
    ]


def test_a_place_that_has_never_answered_fails(views: Views[Place]) -> None:
    """Nobody knows what runs there: that is no empty list."""
    views.keep(HERE, [node("i-1")], ["i-1"])
    views.keep_groups(HERE, [group("g")])

    with pytest.raises(CloudUnavailableError):
        views.last_nodes(THERE, SILENT)
    with pytest.raises(CloudUnavailableError):
        views.last_groups(THERE, SILENT)


def test_a_machine_that_a_list_leaves_out_counts_as_there_for_a_quarter_of_an_hour(
    views: Views[Place], hand: ManualClock
) -> None:
    """Then it counts as gone; the time begins anew with each answer that has it."""
    views.keep(HERE, [node("i-1"), node("i-2")], ["i-1", "i-2"])
    assert views.left_out(HERE, ["i-2"]) == ["i-1"]
    assert views.left_out(THERE, []) == []

    assert states(views.keep(HERE, [node("i-2")], ["i-2"])) == {"i-1": NodeState.UNKNOWN, "i-2": NodeState.RUNNING}
    hand.advance(900)
    assert "i-1" in states(views.keep(HERE, [node("i-2")], ["i-2"]))
    views.keep(HERE, [node("i-1"), node("i-2")], ["i-1", "i-2"])
    hand.advance(10)
    assert "i-1" in states(views.keep(HERE, [node("i-2")], ["i-2"]))
    hand.advance(901)
    assert states(views.keep(HERE, [node("i-2")], ["i-2"])) == {"i-2": NodeState.RUNNING}


def test_what_the_answer_says_has_ended_is_gone_at_once(views: Views[Place]) -> None:
    """An id in the answer that is no node any more (terminated) is not kept as missing."""
    views.keep(HERE, [node("i-1")], ["i-1"])

    assert views.keep(HERE, [], ["i-1"]) == []
    assert views.left_out(HERE, []) == []


def test_the_groups_of_a_silent_place_are_protected_from_every_change(views: Views[Place]) -> None:
    """With the reason, and whatever protected them before."""
    views.keep_groups(HERE, [group("g")])

    (last,) = views.last_groups(HERE, SILENT)

    assert last.protected == "its region gave no answer (no answer)"
    assert views.keep_groups(HERE, [group("h")]) == [group("h")]
