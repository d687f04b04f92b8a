"""Every provider under every fault of the wire: no action goes out twice, no doubt is taken for an answer.

Each cloud of `tests/support/clouds/fault_worlds.py:FAULT_WORLDS` is played, by its real SDK over HTTP.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from gpuwatch.clouds import (
    START_IS_DONE,
    STOP_AT,
    STOP_IS_DONE,
    TERMINATE_IS_DONE,
    AuthFailedError,
    ClockSkewError,
    CloudError,
    CloudUnavailableError,
    NotFoundError,
    NotSentError,
    ThrottledError,
)
from gpuwatch.clouds.permit import in_force
from gpuwatch.model.fleet import NodeState
from tests.support.builders.fleet import a_permit
from tests.support.clouds.fault_worlds import (
    FAULT_WORLDS,
    MINE,
    FaultWorld,
    InAProcessOfItsOwn,
    a_fault_world,
    reason_against,
    without_leftovers,
)
from tests.support.clouds.faults import AFTER_EFFECT, SILENT, UNKNOWN_OUTCOME, Fault, when

CHANGES: dict[str, Callable[[FaultWorld, str], object]] = {
    "stop": lambda world, node_id: world.cloud.stop(node_id, "key", permit=a_permit(world.clock)),
    "start": lambda world, node_id: world.cloud.start(node_id, "key"),
    "terminate": lambda world, node_id: world.cloud.terminate(node_id, "key", permit=a_permit(world.clock)),
    "tag": lambda world, node_id: world.cloud.tag(node_id, {STOP_AT: "2026-01-05T12:00:00+00:00"}, "key"),
    "launch": lambda world, _: world.cloud.launch(world.arguments, "key"),
}
DONE = {"stop": STOP_IS_DONE, "start": START_IS_DONE, "terminate": TERMINATE_IS_DONE}
REFUSALS = {
    Fault.THROTTLED: ThrottledError,
    Fault.THROTTLED_FOR: ThrottledError,
    Fault.EXPIRED: AuthFailedError,
    Fault.SKEW: ClockSkewError,
}
NO_LIST = [*(fault for fault in UNKNOWN_OUTCOME if fault is not Fault.SILENT_AFTER), *REFUSALS]
PAGES = [Fault.LOST_TOKEN, Fault.REPEATED_PAGE]


@pytest.fixture(params=FAULT_WORLDS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FaultWorld]:
    """Each provider in turn, on an empty cloud; what it cannot have is left out, with its reason."""
    if reason := reason_against(request.node.callspec.params):
        pytest.skip(f"{request.param}: {reason}")
    with a_fault_world(request.param, tmp_path) as world:
        yield world


def ready(world: FaultWorld, verb: str) -> str:
    """A machine for which the change is something to do; the cloud has seen it."""
    node_id = world.launch(MINE, region=world.regions[0])
    world.cloud.nodes()
    if verb == "start":
        CHANGES["stop"](world, node_id)
        world.settle(node_id)
    return node_id


def happened(world: FaultWorld, verb: str, node_id: str) -> bool:
    """What the cloud itself says of it."""
    if verb == "launch":
        return len(world.ids()) == 2
    return STOP_AT in world.tags(node_id) if verb == "tag" else world.state(node_id) in DONE[verb]


def filled(world: FaultWorld) -> dict[str, list[str]]:
    """More machines than a page has, in each region; region -> ids."""
    return {
        region: sorted(world.launch(MINE, region=region) for _ in range(world.page + 1)) for region in world.regions
    }


def states(world: FaultWorld) -> dict[str, NodeState]:
    """The list; no id comes twice."""
    nodes = world.cloud.nodes()
    assert len({node.id for node in nodes}) == len(nodes)
    return {node.id: node.state for node in nodes}


def all_in(world: FaultWorld, ids: dict[str, list[str]], there: NodeState) -> dict[str, NodeState]:
    """Every machine; those of the second region in that state."""
    first, second = world.regions
    return dict.fromkeys(ids[first], NodeState.RUNNING) | dict.fromkeys(ids[second], there)


# Changes


@pytest.mark.pairwise
@pytest.mark.parametrize("fault", UNKNOWN_OUTCOME)
@pytest.mark.parametrize("verb", CHANGES)
def test_a_change_without_a_usable_answer_goes_out_once_and_is_unknown(
    world: FaultWorld, verb: str, fault: Fault
) -> None:
    """No SDK tries it again by itself; asked again by us, with the same key, it is the same change."""
    node_id = ready(world, verb)
    call = world.calls[verb]
    sent = world.server.count(call)
    world.server.plan.strike(fault, when(operation=call), times=None)

    with pytest.raises(CloudUnavailableError) as caught:
        CHANGES[verb](world, node_id)

    assert not isinstance(caught.value, NotSentError), "what was sent may have happened"
    assert world.server.count(call) == sent + 1
    assert happened(world, verb, node_id) is (fault in AFTER_EFFECT)

    world.server.plan.clear()
    CHANGES[verb](world, node_id)
    assert happened(world, verb, node_id)


def test_an_end_without_an_answer_shows_no_state_that_the_cloud_never_showed(world: FaultWorld) -> None:
    """Stopped first, and its end never reaches the cloud: what the cloud shows, or a doubt; never that it ends."""
    node_id = ready(world, "stop")
    CHANGES["stop"](world, node_id)
    world.server.plan.strike(Fault.RESET_BEFORE, when(operation=world.calls["terminate"]), times=None)
    with suppress(CloudError):  # while it stops, some clouds are not asked for an end at all
        CHANGES["terminate"](world, node_id)
    world.server.plan.clear()

    for _ in range(3):
        assert states(world)[node_id] in {NodeState.UNKNOWN, world.state(node_id)}
        world.settle(node_id)
    assert world.state(node_id) is NodeState.STOPPED


def test_an_end_without_an_answer_is_never_taken_for_a_machine_that_stays(world: FaultWorld) -> None:
    """It had its effect: what shows is the end, or a doubt, until the machine is gone; asked again it is success."""
    node_id = ready(world, "terminate")
    world.server.plan.strike(Fault.RESET_AFTER, when(operation=world.calls["terminate"]), times=None)
    with pytest.raises(CloudUnavailableError):
        CHANGES["terminate"](world, node_id)
    world.server.plan.clear()

    assert states(world).get(node_id, NodeState.TERMINATED) in TERMINATE_IS_DONE | {NodeState.UNKNOWN}
    CHANGES["terminate"](world, node_id)
    world.settle(node_id)
    assert node_id not in states(world)


@pytest.mark.parametrize("verb", CHANGES)
def test_a_change_without_a_connection_is_known_not_to_have_been_sent(world: FaultWorld, verb: str) -> None:
    """Nobody listens: what is asked before the change fails, or the change itself, of which no byte was written."""
    node_id = ready(world, verb)
    world.cloud = world.anew()
    permit = a_permit(world.clock)

    def refused(*_args: object, **_options: object) -> None:
        raise ConnectionRefusedError("nobody listens there")

    with pytest.MonkeyPatch.context() as patch, in_force(permit):
        if isinstance(world, InAProcessOfItsOwn):
            world.unreachable()
        patch.setattr("urllib3.util.connection.create_connection", refused)
        with pytest.raises(CloudUnavailableError) as caught:
            CHANGES[verb](world, node_id)

    assert isinstance(caught.value, NotSentError) or not permit.checks
    assert not happened(world, verb, node_id)


@pytest.mark.pairwise
@pytest.mark.parametrize("fault", REFUSALS)
@pytest.mark.parametrize("verb", CHANGES)
def test_a_refused_change_goes_out_once_and_has_no_effect(world: FaultWorld, verb: str, fault: Fault) -> None:
    """The refusal is typed, and carries the cloud's own code."""
    node_id = ready(world, verb)
    call = world.calls[verb]
    sent = world.server.count(call)
    world.server.plan.strike(fault, when(operation=call), times=None)

    with pytest.raises(CloudError) as caught:
        CHANGES[verb](world, node_id)

    assert (type(caught.value), bool(caught.value.code)) == (REFUSALS[fault], True)
    assert world.server.count(call) == sent + 1
    assert not happened(world, verb, node_id)


def test_a_launch_with_a_lost_answer_is_found_by_its_key(world: FaultWorld) -> None:
    """One machine comes of it, however often it is asked for."""
    world.server.plan.strike(Fault.RESET_AFTER, when(operation=world.calls["launch"]))

    with pytest.raises(CloudUnavailableError):
        CHANGES["launch"](world, "")

    (made,) = world.ids()
    found = world.cloud.find("key")
    assert found is not None
    assert found.id == made
    assert CHANGES["launch"](world, "") == made
    assert len(world.ids()) == 1


@pytest.mark.pairwise("reads")
@pytest.mark.parametrize("fault", NO_LIST)
def test_a_launch_is_never_denied_on_a_read_that_failed(world: FaultWorld, fault: Fault) -> None:
    """None would mean that nothing was launched, and another machine would follow."""
    made = CHANGES["launch"](world, "")
    world.server.plan.strike(fault, when(change=False, region=world.regions[0]), times=None)

    try:
        found = world.cloud.find("key")
    except CloudError:
        found = None
    else:
        assert found is not None
        assert found.id == made
    if found is None:
        world.server.plan.clear()
        again = world.cloud.find("key")
        assert again is not None
        assert again.id == made


@pytest.mark.pairwise("reads")
@pytest.mark.parametrize("fault", [Fault.RESET_BEFORE, Fault.GARBLED, Fault.CUT, Fault.EXPIRED, Fault.THROTTLED])
def test_what_is_left_over_is_listed_whole_or_not_at_all(world: FaultWorld, fault: Fault) -> None:
    """A region that does not answer may hide the dearest of it."""
    if without_leftovers(world):
        pytest.skip("it shows nothing that is left over, and says so")
    world.server.plan.strike(fault, when(change=False, region=world.regions[1]), times=None)

    with pytest.raises(CloudError):
        world.cloud.leftovers()


# The list


@pytest.mark.pairwise("reads")
@pytest.mark.parametrize("fault", NO_LIST)
def test_a_region_without_an_answer_is_unknown_and_nothing_of_it_is_gone(world: FaultWorld, fault: Fault) -> None:
    """The other region's machines are as they are; when the region answers again, so are its own."""
    ids = filled(world)
    assert states(world) == all_in(world, ids, NodeState.RUNNING)
    world.server.plan.strike(fault, when(operation=world.calls["nodes"], region=world.regions[1]), times=None)

    assert states(world) == all_in(world, ids, NodeState.UNKNOWN)
    if fault not in SILENT:
        world.clock.advance(7200)
        assert states(world) == all_in(world, ids, NodeState.UNKNOWN)

    world.server.plan.clear()
    assert states(world) == all_in(world, ids, NodeState.RUNNING)


@pytest.mark.pairwise("reads")
@pytest.mark.parametrize("fault", [Fault.RESET_BEFORE, Fault.GARBLED, Fault.CUT, Fault.EXPIRED, Fault.THROTTLED])
def test_a_list_that_breaks_after_its_first_page_is_unknown_as_a_whole(world: FaultWorld, fault: Fault) -> None:
    """Half a list is no list: credentials that end in the middle leave no machine in the state that they showed."""
    ids = filled(world)
    states(world)
    second = when(operation=world.calls["nodes"], region=world.regions[1])
    world.server.plan.strike(fault, second, skip=1, times=None)

    assert states(world) == all_in(world, ids, NodeState.UNKNOWN)


@pytest.mark.pairwise("reads")
@pytest.mark.parametrize("fault", [Fault.RESET_BEFORE, Fault.GARBLED, Fault.CUT, Fault.EXPIRED])
@pytest.mark.parametrize("pages", [0, 1])
def test_a_region_that_never_answered_makes_no_part_of_a_list(world: FaultWorld, fault: Fault, pages: int) -> None:
    """Of a region that has shown nothing yet nobody knows what is there: that is an error."""
    filled(world)
    second = when(operation=world.calls["nodes"], region=world.regions[1])
    world.server.plan.strike(fault, second, skip=pages, times=None)

    with pytest.raises(CloudError):
        world.cloud.nodes()


@pytest.mark.pairwise("reads")
@pytest.mark.parametrize("fault", [*UNKNOWN_OUTCOME, Fault.THROTTLED, Fault.THROTTLED_FOR])
def test_a_list_with_one_bad_answer_is_whole_or_unknown(world: FaultWorld, fault: Fault) -> None:
    """A read may be tried again: then it is whole."""
    ids = filled(world)
    states(world)
    world.server.plan.strike(fault, when(operation=world.calls["nodes"], region=world.regions[1]))

    assert states(world) in [all_in(world, ids, state) for state in (NodeState.RUNNING, NodeState.UNKNOWN)]


@pytest.mark.pairwise("reads")
@pytest.mark.parametrize("times", [1, None])
@pytest.mark.parametrize("fault", PAGES)
def test_a_page_too_few_or_too_often_takes_no_machine_away(world: FaultWorld, fault: Fault, times: int | None) -> None:
    """The list ends; no machine comes twice, and none is missing."""
    ids = filled(world)
    states(world)
    world.server.plan.strike(fault, when(region=world.regions[1]), times=times)

    shown = states(world)

    assert shown.keys() == all_in(world, ids, NodeState.RUNNING).keys()
    assert {shown[node_id] for node_id in ids[world.regions[0]]} == {NodeState.RUNNING}
    assert {shown[node_id] for node_id in ids[world.regions[1]]} <= {NodeState.RUNNING, NodeState.UNKNOWN}


@pytest.mark.parametrize("fault", PAGES)
def test_the_first_list_of_all_is_whole_or_an_error(world: FaultWorld, fault: Fault) -> None:
    """Where an answer says how many there are, a lost page shows; a page that comes again shows everywhere."""
    if fault is Fault.LOST_TOKEN and not world.totals:
        pytest.skip("its answers do not say how many machines there are")
    ids = filled(world)
    world.server.plan.strike(fault, when(operation=world.calls["nodes"], region=world.regions[1]))

    try:
        shown = states(world)
    except CloudError:
        return
    assert shown == all_in(world, ids, NodeState.RUNNING)


def test_a_cloud_that_is_down_is_no_empty_fleet(world: FaultWorld) -> None:
    """Connections are refused: nobody sees anything, and that is an error."""
    filled(world)
    states(world)
    world.server.down()

    with pytest.raises(CloudUnavailableError):
        world.cloud.nodes()


# One machine


@pytest.mark.pairwise("reads")
@pytest.mark.parametrize("fault", NO_LIST)
def test_one_machine_without_an_answer_is_an_error_and_never_gone(world: FaultWorld, fault: Fault) -> None:
    """No answer is neither None nor a state."""
    node_id = ready(world, "stop")
    world.server.plan.strike(fault, when(change=False), times=None)

    with pytest.raises(CloudError) as caught:
        world.cloud.node(node_id)

    assert type(caught.value) is REFUSALS.get(fault, CloudUnavailableError)


def test_reads_that_are_late_after_a_launch_take_nothing_for_gone(world: FaultWorld) -> None:
    """The new machine is not there yet: it is not found, and never a machine that is gone."""
    old = ready(world, "stop")
    world.server.plan.strike(Fault.STALE, when(change=False), times=None)
    made = world.cloud.launch(world.arguments, "key")

    assert old in states(world)
    assert world.cloud.find("key") is None
    with pytest.raises(NotFoundError):
        world.cloud.node(made)

    world.server.plan.clear()
    assert set(states(world)) == {old, made}
    found = world.cloud.find("key")
    assert found is not None
    assert found.id == made


def test_reads_that_are_late_after_an_end_change_nothing(world: FaultWorld) -> None:
    """The machine still shows as running; asked for its end again, nothing more happens."""
    node_id = ready(world, "terminate")
    world.server.plan.strike(Fault.STALE, when(change=False), times=None)
    CHANGES["terminate"](world, node_id)

    assert states(world) == {node_id: NodeState.RUNNING}
    CHANGES["terminate"](world, node_id)

    world.server.plan.clear()
    assert world.state(node_id) in TERMINATE_IS_DONE
    assert states(world).get(node_id, NodeState.TERMINATED) in TERMINATE_IS_DONE
