"""What a driver may do wrong, what must happen then, and who would be hurt if it did not.

| the driver | gpuwatch | else |
| --- | --- | --- |
| crashes, is killed, says nothing, no JSON, too much | doubt | a stop that happened is never counted |
| answers another version, call, machine or key | doubt | a busy machine passes for the stopped one |
| says success and fails | doubt | a machine that runs counts as saved |
| misspells a member of a machine | this machine is unknown | a protection is passed over |
| lists a machine twice | this machine is unknown | the wrong one of two states holds |
| leaves a machine out of its list | it is asked for, and stays | a machine that runs counts as gone |
| does not end | it is killed with its children at the permit's end | a stop of a machine that is busy by then |
| outlives gpuwatch | timeout(1) kills it at the same moment | the same |
| is written by somebody else | it is not run | whoever writes it has gpuwatch's rights |
| prints a secret in its error | the secret is masked | it stands in logs and on pages |
"""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.clouds import CloudError, CloudUnavailableError, NotFoundError
from gpuwatch.clouds.driver.line import NOT_OFFERED
from gpuwatch.clouds.driver.process import MOST_OUTPUT_BYTES
from gpuwatch.clouds.driver.protocol import CALLS, MACHINE, doubt_of, node_of, read_answer
from gpuwatch.clouds.driver.settings import DriverSettings
from gpuwatch.model.fleet import NodeState
from gpuwatch.runtime.clock import SystemClock
from tests.support.builders.fleet import NOW
from tests.support.clouds.driver.scripted import MACHINES, Driver, a_permit, states


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    """One that does nothing wrong yet."""
    return Driver(tmp_path)


GOOD = {"gpuwatch": 1, "call": "stop", "id": "m-1"}
NONSENSE: dict[str, object] = {
    "nothing": "",
    "no JSON": "stopped m-1",
    "a list": [GOOD],
    "two answers": json.dumps(GOOD) * 2,
    "no version": {"call": "stop", "id": "m-1"},
    "another version": {**GOOD, "gpuwatch": 2},
    "a version that is no number": {**GOOD, "gpuwatch": True},
    "another call": {**GOOD, "call": "start"},
    "another machine": {**GOOD, "id": "m-2"},
    "no machine": {"gpuwatch": 1, "call": "stop"},
    "a number for a machine": {**GOOD, "id": 7},
    "an unknown member": {**GOOD, "done": True},
    "a member of another kind": {**GOOD, "ran": "yes"},
    "an error and more": {**GOOD, "error": {"kind": "refused", "message": "no"}},
    "an unknown kind of error": {"gpuwatch": 1, "call": "stop", "error": {"kind": "odd", "message": "no"}},
    "an error without words": {"gpuwatch": 1, "call": "stop", "error": {"kind": "refused"}},
    "too deep": "[" * 100_000,
    "bytes that are no text": b'{"gpuwatch": 1, "call": "stop", "id": "m-1\xff"}',
    "too much": " " * (MOST_OUTPUT_BYTES + 1) + json.dumps(GOOD),
}


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_after_a_stop_is_a_doubt(driver: Driver, name: str) -> None:
    """Nobody knows whether it happened; it is neither success nor refusal, and it is asked for once."""
    text = NONSENSE[name]
    driver.prints("stop", text if isinstance(text, str | bytes) else json.dumps(text))

    with pytest.raises(CloudUnavailableError) as caught:
        driver.cloud().stop("m-1", "key", permit=a_permit())

    assert len(driver.asked("stop")) == 1
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("end", ["exit 3", "kill -KILL $$", "kill -SEGV $$"])
def test_a_driver_that_fails_has_not_succeeded(driver: Driver, end: str) -> None:
    """Whatever it has printed before."""
    driver.does("stop", f"cat {driver.folder}/stop; {end}")

    with pytest.raises(CloudUnavailableError, match=r"stop m-1: the driver driver (failed|was killed)"):
        driver.cloud().stop("m-1", "key", permit=a_permit())


@pytest.mark.parametrize(
    "text", ["", "[]", '{"gpuwatch": 1, "call": "list"}', '{"gpuwatch": 1, "call": "list", "machines": 0}']
)
def test_a_list_that_is_no_list_takes_no_machine_away(driver: Driver, text: str) -> None:
    """The machines are unknown, as last seen, for as long as that lasts."""
    cloud = driver.cloud(regions=("north", "south"))
    driver.does("list", "case $request in *north*) sed s/m-/n-/g $0.list; exit;; esac")
    (driver.folder / "driver.list").write_text((driver.folder / "list").read_text(encoding="utf-8"), encoding="utf-8")
    assert len(states(cloud)) == 4
    driver.prints("list", text)

    found = states(cloud)

    assert found == {"m-1": "unknown", "m-2": "unknown", "n-1": "running", "n-2": "running"}


def test_a_misspelt_member_makes_one_machine_unknown(driver: Driver) -> None:
    """One that was meant to protect would be passed over; the other machine is as it is."""
    cloud = driver.cloud()
    assert states(cloud) == {"m-1": NodeState.RUNNING, "m-2": NodeState.RUNNING}
    driver.says("list", machines=[MACHINES[0], {**MACHINES[1], "protectd": "a course runs on it"}])

    first, second = cloud.nodes()

    assert first.state is NodeState.RUNNING
    assert (second.state, second.last_shown, second.instance_type) == (NodeState.UNKNOWN, NodeState.RUNNING, "gpu-1")
    assert "protectd" in (second.unseen or "")


def test_a_machine_that_is_listed_twice_is_unknown(driver: Driver) -> None:
    """Nobody knows which of the two holds."""
    driver.says("list", machines=[*MACHINES, {**MACHINES[0], "state": "stopped"}])

    assert states(driver.cloud()) == {"m-1": NodeState.UNKNOWN, "m-2": NodeState.RUNNING}


@pytest.mark.parametrize(
    ("answer", "there"),
    [
        ({"gone": "m-2"}, False),
        ({"machine": {**MACHINES[1], "state": "terminated"}}, False),
        ({"machine": MACHINES[1]}, True),
        ({"gone": "m-1"}, True),
        ({"machine": MACHINES[0]}, True),
        ({}, True),
        ({"machine": MACHINES[1], "gone": "m-2"}, True),
        ({"error": {"kind": "not_found", "message": "no such machine"}}, True),
        ({"error": {"kind": "unavailable", "message": "later"}}, True),
    ],
)
def test_a_machine_that_a_list_leaves_out_is_gone_only_by_its_own_answer(
    driver: Driver, answer: dict[str, object], there: bool
) -> None:
    """Also where the answer is another machine's, or says both."""
    cloud = driver.cloud()
    cloud.nodes()
    driver.says("list", machines=MACHINES[:1])
    driver.says("get", **answer)

    found = states(cloud)

    assert ("m-2" in found) is there
    assert found.get("m-2") in {
        None,
        NodeState.UNKNOWN,
        *([NodeState.RUNNING] if answer == {"machine": MACHINES[1]} else []),
    }


def test_a_machine_of_another_region_is_unknown(driver: Driver) -> None:
    """It is not where the driver was asked to look."""
    driver.says("list", machines=[{**MACHINES[0], "region": "south"}, {**MACHINES[1], "region": "north"}])

    assert states(driver.cloud(regions=("north",))) == {"m-1": NodeState.UNKNOWN, "m-2": NodeState.RUNNING}


def test_a_machine_of_a_driver_is_no_host_of_ones_own(driver: Driver) -> None:
    """Such a host costs its price whether it runs or not, and has a guard rule of its own."""
    driver.says("list", machines=[{**MACHINES[0], "capacity": "own"}, {**MACHINES[1], "capacity": "spot"}])

    assert states(driver.cloud()) == {"m-1": NodeState.UNKNOWN, "m-2": NodeState.RUNNING}


# What a driver offers


def test_a_call_that_is_not_offered_is_refused_before_anything_is_run(driver: Driver) -> None:
    """And its machines say why they cannot be stopped."""
    driver.says("describe", name="Nowhere", calls=["list", "get"])
    cloud = driver.cloud()

    with pytest.raises(CloudError) as caught:
        cloud.stop("m-1", "key", permit=a_permit())

    assert caught.value.code == NOT_OFFERED
    assert cloud.nodes()[0].cannot_stop == "its driver driver does not offer stop"


def test_another_driver_in_the_same_place_is_asked_what_it_offers(driver: Driver) -> None:
    """Once for each file."""
    cloud = driver.cloud()
    cloud.nodes()
    cloud.nodes()
    assert len(driver.asked("describe")) == 1
    driver.says("describe", name="Nowhere", calls=["list", "get"])
    driver.script(driver.path.read_text(encoding="utf-8") + "# newer")

    assert cloud.nodes()[0].cannot_stop is not None


@pytest.mark.parametrize("calls", [[], ["list"], ["list", "get", "launch"], ["list", "get", "jump"], "list get"])
def test_a_driver_that_offers_what_cannot_be_is_not_used(driver: Driver, calls: object) -> None:
    """A launch without find could never be looked for."""
    driver.says("describe", name="Nowhere", calls=calls)

    with pytest.raises(CloudUnavailableError, match="calls is"):
        driver.cloud().nodes()


# Any bytes


@given(st.sampled_from(list(CALLS)), st.binary(max_size=200))
def test_any_bytes_are_an_answer_or_a_cloud_error(call: str, output: bytes) -> None:
    """P22: never an error of ours."""
    with contextlib.suppress(CloudError):
        read_answer(call, output, call)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(list(MACHINE)), JSON), st.sampled_from([None, "north"]))
def test_any_description_is_a_machine_or_a_doubt(described: dict[str, Any], region: str | None) -> None:
    """A doubt is never another state than unknown, and is never enrolled."""
    described |= {"id": "m-1"}

    node = node_of(described, region=region, account=None, fleet="lab", now=NOW)

    if doubt_of(described, region) is not None:
        assert (node.state, node.enrolled) == (NodeState.UNKNOWN, False)
    else:
        assert node.state == described["state"]


@given(
    st.sampled_from(list(CALLS)), st.dictionaries(st.sampled_from(["id", "key", "machine", "gone", "machines"]), JSON)
)
def test_any_object_is_an_answer_or_a_cloud_error(call: str, members: dict[str, Any]) -> None:
    """The same of JSON."""
    with contextlib.suppress(CloudError):
        read_answer(call, json.dumps({"gpuwatch": 1, "call": call, **members}).encode(), call)


# Settings


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        (DriverSettings(), "cloud.driver.executable is not set"),
        (DriverSettings(executable="driver.py"), "'driver.py' is not an absolute path"),
        (DriverSettings(executable="/d", environment=("GPUWATCH_X",)), "'GPUWATCH_X' is not a variable"),
        (DriverSettings(executable="/d", environment=("A=B",)), "'A=B' is not a variable"),
    ],
)
def test_settings_of_a_driver_that_cannot_work_are_said(settings: DriverSettings, wrong: str) -> None:
    """Before it is run."""
    (found,) = settings.contradictions()

    assert found.wrong.startswith(wrong)


def test_a_call_that_a_driver_refuses_is_typed(driver: Driver) -> None:
    """By the kind that it names."""
    driver.says("get", error={"kind": "not_found", "message": "there is none"})

    with pytest.raises(NotFoundError):
        driver.cloud(clock=SystemClock()).node("m-9")
