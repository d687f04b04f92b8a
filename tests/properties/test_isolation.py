"""P22: whatever one agent, machine, group, tag, pod or measure says, all others are decided about as without it."""

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpuwatch.controller.observe.scrape import read_answer
from gpuwatch.model.activity import WorkOwner
from gpuwatch.model.cloud_notice import CloudNotice
from gpuwatch.model.fleet import Node, NodeGroup, NodeReport, NodeState
from gpuwatch.model.health import GpuHealth, Health
from tests.support.builders.fleet import LIVES, NOW, a_node, a_verdict
from tests.support.builders.last_busy import busy_last, cpu_evidence
from tests.support.builders.sick_parts import NASTY, SICK, World, places, spoiled
from tests.support.fakes.scraped_agent import encoded

WORD = encoded(busy_last(a_verdict("i-sick"), (cpu_evidence(), 9000.0)))
BODIES = (
    *(WORD.replace(b'"index":0', b'"index":' + number) for number in (b"9" * 400, b"1e400", b"-18446744073709551616")),
    *(
        WORD.replace(b'"schema":1', b'"x":' + depth + b',"schema":1')
        for depth in (b"[" * 10_000, b"[" * 9000 + b"]" * 9000)
    ),
    *(
        WORD.replace(b'"schema":1', more + b'"schema":1')
        for more in (b'"schema":1,"node_id":"i-busy-0",', b'"schema":2,')
    ),
    *(
        WORD.replace(b'"i-sick"', name)
        for name in (b'"i-idle-0"', b'"\\u0000"', b'"\\ud800"', b'"' + b"x" * 1_000_000 + b'"')
    ),
    *(WORD + WORD, b"", b"null", b"[]", b"\xff\xfe" + WORD, b"{" * 100_000),
)


def a_full_verdict() -> NodeReport:
    """A word of an agent with all that there is in one."""
    verdict = busy_last(a_verdict(SICK), (replace(cpu_evidence(), owner=WorkOwner(user="ann", pid=1)), 9000.0))
    notice = CloudNotice(kind="maintenance", action="reboot", deadline=NOW, seen_at=NOW, checkpoint_at=NOW)
    health = GpuHealth(state=Health.FAILING, since=NOW)
    gpus = tuple(replace(gpu, health=health) for gpu in verdict.gpus)
    return NodeReport(verdict=replace(verdict, gpus=gpus, cloud_notices=(notice,)), received_at=NOW)


SILENT = World.with_sick(a_node(SICK), lambda _: NodeReport(failure="its agent does not answer")).rounds()


ALONE = World.with_sick(None).rounds()


def test_the_neighbours_are_noticed_and_stopped() -> None:
    """Or the comparisons below would compare nothing."""
    assert "i-idle-0" in str(SILENT[0])
    assert "'stop'" in str(SILENT) or "STOP" in str(SILENT)


@settings(max_examples=LIVES * 2)
@given(path=st.sampled_from(sorted(places(a_full_verdict()), key=str)), by=st.sampled_from(NASTY))
@example(path=("verdict", "agent_version"), by="\ud800")  # of which there is a record besides the round's
def test_anything_in_any_place_of_an_agents_word_changes_nothing_about_the_others(
    path: tuple[str | int, ...], by: object
) -> None:
    """Also past the door, where it could stand only by a mistake of ours: the round finds it, and goes on."""
    sick = spoiled(a_full_verdict(), path, by)

    assert World.with_sick(a_node(SICK), lambda _: sick).rounds() == SILENT


@settings(max_examples=LIVES)
@given(
    field=st.sampled_from([each.name for each in fields(Node) if each.name not in {"id", "signal"}]),
    by=st.sampled_from(NASTY),
)
def test_anything_that_a_cloud_says_of_one_machine_changes_nothing_about_the_others(field: str, by: Any) -> None:  # noqa: ANN401  of any type
    """A tag of it, too: the pool, the owner and the protection are tags."""
    mute = replace(a_node(SICK), signal=NodeReport(failure="silent"))
    world = World.with_sick(replace(mute, **{field: by}), lambda node: node.signal)
    alone = World.with_sick(replace(mute, state=NodeState.UNKNOWN), lambda node: node.signal)

    assert world.rounds() in (SILENT, alone.rounds(), ALONE)


@settings(max_examples=LIVES // 2 + 1)
@given(
    field=st.sampled_from([each.name for each in fields(NodeGroup) if each.name not in {"id", "pool"}]),
    by=st.sampled_from(NASTY),
)
def test_anything_that_a_cloud_says_of_one_group_changes_nothing_about_the_others(field: str, by: Any) -> None:  # noqa: ANN401  of any type
    """Of a pool of its own: a group is a part of its pool's size."""
    world = World.with_sick(None)
    group = NodeGroup(id="asg-1", name="asg-1", pool="groups", min_size=0, max_size=4, desired=0, region="eu-1")
    odd = replace(group, **{field: by})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(world.desk.fleet), "groups", lambda _: (odd,))

        assert world.rounds() == ALONE


@settings(max_examples=LIVES)
@given(body=st.binary(max_size=60) | st.sampled_from(BODIES) | st.integers(0, len(WORD)).map(lambda end: WORD[:end]))
def test_any_bytes_of_one_agent_change_nothing_about_the_others(body: bytes) -> None:
    """Through the door: not JSON, half of it, nested 10,000 deep, with a key twice, or an integer of 400 digits."""
    said = World.with_sick(a_node(SICK), lambda node: read_answer(body, node, NOW, 1e9))

    assert said.rounds() == SILENT


def test_a_part_that_could_not_be_judged_is_named_once_and_judged_again_when_it_is_well(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A log that says it every minute is read by nobody; a machine that is left alone for ever is paid for."""
    well: list[bool] = []
    good = a_full_verdict()
    bad = spoiled(good, ("verdict", "gpus", 0, "index"), 2**64)
    world = World.with_sick(a_node(SICK), lambda _: good if well else bad)
    world.rounds()
    named = [each for each in caplog.messages if SICK in each and "cannot be judged" in each]
    well.append(True)
    world.desk.round()

    assert len(named) == 1
    assert "serialize" in named[0]
    assert [each for each in caplog.messages if "looked for" in each]
    assert not any(world.desk.memory.sick.values())
