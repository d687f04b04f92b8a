"""The pretended clouds are held to the real ones: they show each member that was seen there and that gpuwatch reads.

`tests/support/clouds/seen/` has what was seen, as facts. Where recorded answers are at hand, the facts are held to
them.
"""

import re
from collections import defaultdict
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.cli.doctor.record import record_clouds
from gpuwatch.clouds import CloudError
from gpuwatch.model.fleet import NodeState
from tests.support.builders.fleet import a_permit
from tests.support.clouds.emitted import answers_of
from tests.support.clouds.recorded import needs_recordings, recorded
from tests.support.clouds.replay import Replay, look_at, replaying
from tests.support.clouds.seen import (
    ANY,
    CLOUDS,
    Member,
    Table,
    errors_in,
    errors_seen,
    links_in,
    links_seen,
    read_table,
    recorded_table,
    rows_of,
    table_of,
    things_in,
    unread_members,
)
from tests.support.components import loaded
from tests.support.fakes.cloud_worlds import FLEET, MINE, a_world

# moto stands in for AWS, and has nothing of these.
_NOT_BY_MOTO = re.compile(
    r".*(CapacityReservationSpecification|IamInstanceProfile(\.Arn)?|Operator(\.Managed)?|Volumes\[\]\.Throughput)"
)


@cache
def emitted(cloud: str) -> Table:
    """What the pretended cloud shows in one life."""
    return table_of(cloud, things_in(cloud, answers_of(cloud)))


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_fake_shows_what_its_cloud_was_seen_to_show(cloud: str) -> None:
    """Each member that gpuwatch reads, by the same name in the same case, with a value of the same type."""
    shown, wrong = emitted(cloud), list[str]()
    for member, seen in read_table(cloud).items():
        types = shown[member].types if member in shown else None
        if types is None and not (cloud == "aws" and _NOT_BY_MOTO.fullmatch(member.path)):
            wrong.append(f"{member.kind}: there is no {member.path}")
        elif types is not None and not (types & seen.types or ANY in seen.types):
            wrong.append(f"{member.kind}: {member.path} is {types}, and was seen as {seen.types}")
    assert wrong == []


@needs_recordings
@pytest.mark.parametrize("cloud", CLOUDS)
def test_the_facts_are_those_of_the_recorded_answers(cloud: str) -> None:
    """No member is unknown or in another type than the facts have, and none is missing that is always there by them.

    `python -m tests.support.clouds.seen` renews them.
    """
    facts, wrong = read_table(cloud), list[str]()
    for member, seen in recorded_table(cloud).items():
        fact = facts.get(member)
        if fact is None and member not in unread_members(cloud):
            wrong.append(f"{member.kind}: the facts do not know {member.path}")
        if fact is not None and not (seen.types <= fact.types or ANY in fact.types):
            wrong.append(f"{member.kind}: {member.path} is {seen.types}, by the facts {fact.types}")
        elif fact is not None and seen.missing and not fact.missing:
            wrong.append(f"{member.kind}: {member.path} is missing sometimes, by the facts never")
    assert wrong == []


# How lists go on, and what is refused.


@pytest.mark.parametrize("cloud", CLOUDS)
def test_the_lists_of_a_fake_go_on_as_those_of_its_cloud(cloud: str) -> None:
    """With the same members, whose links name a port and have the same parameters: the adapter follows them."""
    good = [each for each in answers_of(cloud) if links_seen(cloud) and not getattr(each, "refused", False)]
    ours = {(member, re.sub(r"https?://\*:\d+", "https://*:443", shape)) for member, shape in links_in(good)}
    assert links_seen(cloud) - ours == set()


@needs_recordings
@pytest.mark.parametrize("cloud", CLOUDS)
def test_links_and_codes_that_are_recorded_are_facts(cloud: str) -> None:
    """`python -m tests.support.clouds.seen` renews them."""
    answers: list[Any] = recorded(cloud, loaded(f"tests.support.clouds.{cloud}.recorded").Answer)
    good = [each for each in answers if not getattr(each, "refused", False)]
    assert links_in(good) - links_seen(cloud) == set()
    assert errors_in(cloud, answers) - errors_seen(cloud) == set()


def refuse(cloud: str, world: Any, verb: str, status: int, code: str) -> None:  # noqa: ANN401  a world
    """Have the pretended cloud refuse the next such call with this status and code."""
    call = _CALLS[cloud][verb]
    if cloud == "aws":
        world.ec2.refuse(call, code, status=status)
    elif cloud == "azure":
        world.fake.refused[call] = (status, code, "why")
    elif cloud == "gcp":
        world.fake.refuse(call, status, code)
    elif cloud == "tencent":
        world.fake.refusals[call] = [code]
    else:
        world.fake.refuse(call, status, code)


_CALLS = {
    "alibaba": {"list": "DescribeInstances", "stop": "StopInstance"},
    "aws": {"list": "DescribeInstances", "stop": "StopInstances"},
    "azure": {"list": "VirtualMachines_ListAll", "stop": "VirtualMachines_Deallocate"},
    "gcp": {"list": "compute.instances.aggregatedList", "stop": "compute.instances.stop"},
    "tencent": {"list": "DescribeInstances", "stop": "StopInstances"},
}


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_code_that_was_seen_is_what_the_facts_say_and_loses_no_machine(cloud: str) -> None:
    """In place of a list, and of a stop; the machine is there and runs after it."""
    wrong: list[str] = []
    with a_world(cloud) as world:
        node_id = world.launch(MINE)
        world.clock.advance(120)
        world.cloud.nodes()
        for each, status, code, means, _ in rows_of("errors"):
            if each != cloud:
                continue
            found = ""
            refuse(cloud, world, "list", int(status), code)
            with suppress(CloudError):
                found += "" if [node.id for node in world.cloud.nodes()] == [node_id] else "not listed; "
            world.cloud.nodes()
            refuse(cloud, world, "stop", int(status), code)
            try:
                world.cloud.stop(node_id, f"key-{code}", permit=a_permit())
                found += "carried out"
            except CloudError as error:
                found += type(error).__name__ if error.code else "no code"
            found += "" if [node.state for node in world.cloud.nodes()] == [NodeState.RUNNING] else "; it does not run"
            wrong += [] if found == means else [f"{status} {code}: {found}, by the facts {means}"]
            world.clock.advance(60)
    assert wrong == []


# What reality leaves out may be left out.


@pytest.fixture(scope="module", params=CLOUDS)
def recording(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The pretended cloud with a few machines, as the doctor records it."""
    folder: Path = tmp_path_factory.mktemp("recordings") / request.param
    with a_world(request.param) as world:
        world.launch(MINE)
        world.launch({})
        world.add_group("train", MINE, size=1)
        world.add_volume()
        world.clock.advance(120)
        record_clouds({"": lambda: world.cloud}, FLEET, folder)
    return request.param, folder


def nodes_of(cloud: str, folder: Path, members: list[Member]) -> tuple[int | str, list[str]]:
    """How many machines the adapter sees without these members, and what broke it; "" where it asks for more."""
    with replaying(cloud, folder) as (adapter, replay):
        _leave_out(cloud, replay, members)
        try:
            troubles = look_at(adapter, replay)
            wrong = [why for why in troubles.values() if "an error of gpuwatch itself" in why]
            return len(adapter.nodes()), wrong
        except CloudError as error:
            return "" if replay.missed else str(error), []


def test_what_a_cloud_leaves_out_sometimes_breaks_nothing_and_loses_no_machine(recording: tuple[str, Path]) -> None:
    """All such members of a kind of things at once, and of all kinds."""
    cloud, folder = recording
    (whole, _), wrong = nodes_of(cloud, folder, []), list[str]()
    left_out = [
        member
        for member, seen in read_table(cloud).items()
        if seen.missing and not _SAYS_SOMETHING.fullmatch(member.path)
    ]
    for kind in [*dict.fromkeys(member.kind for member in left_out), ""]:
        found, broken = nodes_of(cloud, folder, [each for each in left_out if kind in {each.kind, ""}])
        if found not in {whole, ""} or broken:
            wrong.append(f"{kind or 'all'}: {found} of {whole} machines, {broken}")
    assert wrong == []


# A type without GPUs has no accelerators. What follows was cut out of recordings by the people who keep them.
_SAYS_SOMETHING = re.compile(r"accelerators|Reservations\[\]\.(OwnerId|Instances\[\]\.(InstanceType|State|Placement))")


def _leave_out(cloud: str, replay: Replay, members: list[Member]) -> None:
    """Take these members out of the recorded answers."""
    adapter = loaded(f"tests.support.clouds.{cloud}.recorded")
    paths = defaultdict[str, list[list[str]]](list)
    for member in members:
        paths[member.kind].append(member.path.replace("[]", "").split("."))
    for number, line in enumerate(replay.lines):
        answer = adapter.Answer(number=number, line=line.told)
        if sum(_drop(thing, path) for kind, thing in adapter.things_of(answer) for path in paths[kind]):
            replay.lines[number] = replace(line, told={**line.told, "body": answer.rewritten()})


def _drop(value: object, path: list[str]) -> int:
    """Take a member out of a value, wherever its path leads; gives how often it was there."""
    if isinstance(value, list):
        return sum(_drop(each, path) for each in value)
    if not isinstance(value, dict) or path[0] not in value:
        return 0
    if len(path) > 1:
        return _drop(value[path[0]], path[1:])
    del value[path[0]]
    return 1
