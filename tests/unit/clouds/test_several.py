"""Several clouds as one: whatever one does, the others' answers stay, and every change reaches exactly one cloud."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.clouds import STOP_AT, Cloud, CloudError, CloudUnavailableError, NotFoundError
from gpuwatch.clouds.several import AMBIGUOUS, NOWHERE, SeveralClouds
from gpuwatch.model.fleet import NodeReport, NodeState
from tests.support.builders.fleet import a_permit
from tests.support.fakes.several_clouds import NAMES, TEMPLATE, Clouds, Region, a_group, machine, silent

CALLS: dict[str, Callable[[Cloud, str], object]] = {
    "stop": lambda cloud, name: cloud.stop(name, "key", permit=a_permit()),
    "start": lambda cloud, name: cloud.start(name, "key"),
    "terminate": lambda cloud, name: cloud.terminate(name, "key", permit=a_permit()),
    "tag": lambda cloud, name: cloud.tag(name, {STOP_AT: "then"}, "key"),
    "protect": lambda cloud, name: cloud.protect(name, "g", "key", on=True),
}


# Lists


@given(st.dictionaries(st.integers(0, 30), st.integers(0, 2)), st.sets(st.integers(0, 2)), st.booleans())
def test_whatever_one_cloud_does_the_others_answers_are_what_they_are_alone(
    homes: dict[int, int], down: set[int], broken: bool
) -> None:
    """A silent cloud, or one whose answer we cannot read, changes the state of its own machines alone."""
    clouds = Clouds()
    for number, home in homes.items():
        clouds[NAMES[home]].add(machine(f"i-{number:02}"))
    before = clouds.all.nodes()
    assert [(node.id, node.cloud) for node in before] == sorted(
        (f"i-{number:02}", NAMES[home]) for number, home in homes.items()
    )
    for home in down:
        clouds[NAMES[home]].down = KeyError("ours") if broken else silent()

    if len(down) == len(NAMES):
        with pytest.raises(CloudUnavailableError, match=r"^cloud bj: "):
            clouds.all.nodes()
        return
    quiet = {NAMES[home] for home in down}
    now = clouds.all.nodes()
    assert tuple(replace(node, unseen=None) for node in now) == tuple(
        replace(node, state=NodeState.UNKNOWN, last_shown=node.state, signal=NodeReport())
        if node.cloud in quiet
        else node
        for node in before
    )
    assert all((node.unseen is not None) == (node.cloud in quiet) for node in now)


def test_a_cloud_that_has_never_answered_fails_the_list() -> None:
    """Nobody knows what runs there: a part is never returned, and nothing counts as gone."""
    clouds = Clouds()
    clouds["us"].down = silent()

    with pytest.raises(CloudUnavailableError, match=r"^cloud us: no answer$") as caught:
        clouds.all.nodes()
    with pytest.raises(CloudUnavailableError):
        clouds.all.groups()
    assert caught.value.code == "TimedOut"


def test_silence_is_said_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    """Not in every round."""
    clouds = Clouds()
    clouds.all.nodes()
    for error in (silent(), silent(), None, None):
        clouds["us"].down = error
        clouds.all.nodes()

    assert [record.getMessage() for record in caplog.records] == [
        "cloud us: no answer; its machines count as they were and are left alone",
        "The cloud us answers again",
    ]


def test_the_groups_of_a_silent_cloud_are_protected() -> None:
    """The others are as before; each names its cloud."""
    clouds = Clouds()
    clouds["bj"].add_group(a_group("g-1"), machine(""))
    clouds["us"].add_group(a_group("g-2"), machine(""))
    first, second = clouds.all.groups()
    clouds["us"].down = silent()

    assert (first.cloud, second.cloud) == ("bj", "us")
    assert clouds.all.groups() == (
        first,
        replace(second, protected="its cloud gave no answer (cloud us: no answer)", seen_now=False),
    )


# One machine


@pytest.mark.parametrize("listed", [True, False])
def test_one_machine_is_asked_of_its_own_cloud(listed: bool) -> None:
    """Only where no list has shown it, of each."""
    clouds = Clouds()
    clouds["us"].add(machine("i-1"))
    if listed:
        clouds.all.nodes()
    for each in clouds.values():
        each.asked.clear()

    found = clouds.all.node("i-1")

    assert found is not None
    assert found.cloud == "us"
    assert {name for name, each in clouds.items() if each.asked} == ({"us"} if listed else set(NAMES))
    clouds.all.node("i-1")
    assert len(clouds["us"].asked) == 2
    assert len(clouds["bj"].asked) == (0 if listed else 1), "found once, its cloud is known"


def test_an_unknown_machine_is_not_found_or_not_known() -> None:
    """While one cloud is silent nobody can say that it does not exist; nothing is asked for then."""
    clouds = Clouds()
    with pytest.raises(NotFoundError, match="i-9"):
        clouds.all.node("i-9")
    clouds["us"].down = silent()

    with pytest.raises(CloudUnavailableError, match="cloud us"):
        clouds.all.node("i-9")
    for call in CALLS.values():
        with pytest.raises(CloudUnavailableError):
            call(clouds.all, "i-9")
    with pytest.raises(NotFoundError):
        Clouds("us").all.stop("i-9", "key", permit=a_permit())
    assert clouds.changes() == {}


def test_where_every_cloud_is_certain_there_is_no_such_machine() -> None:
    """None of each is None of all, and no change of it is asked for."""
    parts: dict[str, Any] = {name: Region(name) for name in NAMES}
    for each in parts.values():
        each.node = lambda _: None
    several = SeveralClouds(parts)

    assert several.node("i-1") is None
    with pytest.raises(NotFoundError, match="no cloud knows i-1") as caught:
        several.stop("i-1", "key", permit=a_permit())
    assert caught.value.code == NOWHERE


# Changes


@given(
    st.lists(st.sets(st.sampled_from(NAMES), min_size=1), min_size=1, max_size=6),
    st.lists(st.tuples(st.sampled_from(sorted(CALLS)), st.integers(0, 6)), max_size=12),
    st.booleans(),
    st.sets(st.sampled_from(NAMES), max_size=2),
)
def test_every_change_reaches_exactly_the_one_cloud_that_has_the_machine(
    homes: list[set[str]], calls: list[tuple[str, int]], listed: bool, down: set[str]
) -> None:
    """Never two, and none where two clouds show the id, or nobody does."""
    clouds = Clouds()
    for number, names in enumerate(homes):
        for name in names:
            clouds[name].add(machine(f"i-{number}"))
    if listed:
        clouds.all.nodes()
        for name in down:
            clouds[name].down = silent()
    expected: dict[str, list[str]] = {}
    for call, number in calls:
        here = homes[number] if number < len(homes) else set()
        for only in here if len(here) == 1 else ():
            expected.setdefault(only, []).append(f"{call} i-{number}")
        with suppress(CloudError):
            CALLS[call](clouds.all, f"i-{number}")

    assert clouds.changes() == expected


def test_an_id_in_two_clouds_is_in_doubt_and_left_alone() -> None:
    """Also while one of them is silent; it ends when one of them no longer shows it."""
    clouds = Clouds()
    clouds["bj"].add(machine("i-1"))
    clouds["us"].add(machine("i-1"))
    doubt = "the clouds bj and us both show its id i-1"

    def found() -> list[tuple[NodeState, str | None]]:
        one = clouds.all.node("i-1")
        assert one is not None
        return [(each.state, each.protected) for each in (*clouds.all.nodes(), one)]

    assert found() == [(NodeState.UNKNOWN, doubt)] * 2
    clouds["us"].down = silent()
    assert found() == [(NodeState.UNKNOWN, doubt)] * 2
    with pytest.raises(CloudError, match="bj and us both show i-1: nothing is done") as caught:
        clouds.all.stop("i-1", "key", permit=a_permit())
    assert (caught.value.code, clouds.changes()) == (AMBIGUOUS, {})
    clouds["us"].down = None
    clouds["us"].terminate("i-1", "key", permit=a_permit())
    clouds["us"].changes.clear()
    clouds["us"].hand.advance(600)
    clouds.all.nodes()
    clouds.all.stop("i-1", "key", permit=a_permit())
    assert clouds.changes() == {"bj": ["stop i-1"]}


def test_a_foreign_tag_is_refused_before_any_cloud_is_asked() -> None:
    """As each cloud does."""
    clouds = Clouds()
    with pytest.raises(ValueError, match="never writes"):
        clouds.all.tag("i-1", {"Name": "x"}, "key")
    assert all(not each.asked for each in clouds.values())


def test_a_group_grows_in_its_own_cloud() -> None:
    """Listed or not; one of two clouds' id, or of none, does not."""
    clouds = Clouds()
    clouds["us"].add_group(a_group("g-1"), machine(""))
    clouds.all.grow("g-1", 1, "key")
    assert clouds.all.group("g-1").cloud == "us"
    clouds.all.groups()
    clouds.all.grow("g-1", 2, "key")
    assert clouds.changes() == {"us": ["grow g-1", "grow g-1"]}
    with pytest.raises(NotFoundError):
        clouds.all.grow("g-9", 1, "key")

    clouds["eu"].add_group(a_group("g-1"), machine(""))
    (doubtful,) = clouds.all.groups()

    assert doubtful.protected == "the clouds us and eu both show its id g-1"
    with pytest.raises(CloudError, match="nothing is done"):
        clouds.all.grow("g-1", 3, "key")
    assert len(clouds["us"].changes) == 2


# Launches


def test_a_launch_goes_where_it_says_and_is_found_there() -> None:
    """Also while another cloud is silent; the cloud's name is not handed on."""
    clouds = Clouds()
    clouds.all.nodes()
    clouds["bj"].down = silent()

    node_id = clouds.all.launch({"template": TEMPLATE, "cloud": "us"}, "k-1")
    found = clouds.all.find("k-1")

    assert found is not None
    assert (found.id, found.cloud) == (node_id, "us")
    assert list(clouds.changes()) == ["us"]
    assert clouds["us"].launched("k-1") == {"template": TEMPLATE}


def test_after_a_restart_a_launch_is_looked_for_everywhere() -> None:
    """A silent cloud may have it: that is no answer, unless another one shows it."""
    clouds = Clouds()
    clouds["us"].launch({"template": TEMPLATE}, "k-1")

    assert clouds.all.find("k-2") is None
    clouds["bj"].down = silent()
    found = clouds.all.find("k-1")
    assert found is not None
    assert found.cloud == "us"
    with pytest.raises(CloudUnavailableError, match="cloud bj"):
        clouds.all.find("k-2")
    assert clouds.all.find("k-2", {"cloud": "us"}) is None, "its launch was asked of another cloud"


@pytest.mark.parametrize("arguments", [{}, {"cloud": ""}, {"cloud": "mars"}])
def test_a_launch_that_names_no_cloud_is_refused(arguments: dict[str, str]) -> None:
    """Of several; where there is one, it is that."""
    clouds = Clouds()
    with pytest.raises(CloudError, match="and there are: bj, us, eu") as caught:
        clouds.all.launch({"template": TEMPLATE, **arguments}, "k-1")
    assert (caught.value.code, clouds.changes()) == (NOWHERE, {})

    alone = Clouds("bj")
    if arguments.get("cloud") != "mars":
        alone.all.launch({"template": TEMPLATE, **arguments}, "k-1")
        assert list(alone.changes()) == ["bj"]
