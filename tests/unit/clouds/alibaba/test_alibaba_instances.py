"""Descriptions of instances in our words: what has holes is a doubt about that machine alone."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpuwatch.clouds import FLEET_TAG
from gpuwatch.clouds.alibaba.instances import Instance, Translator
from gpuwatch.model.fleet import Node, NodeState

NOW = datetime(2026, 1, 5, tzinfo=UTC)
PLACE: Any = SimpleNamespace(
    region="cn-shanghai", account="1", name="cn-shanghai", reading=SimpleNamespace(name_call=lambda call: call)
)
WHOLE: dict[str, Any] = {
    "InstanceId": "i-1",
    "InstanceName": "gpu-1",
    "Status": "Running",
    "InstanceType": "ecs.gn7i-c8g1.2xlarge",
    "ZoneId": "cn-shanghai-b",
    "InstanceChargeType": "PostPaid",
    "CreationTime": "2026-01-04T00:00Z",
    "StartTime": "2026-01-04T08:00Z",
    "GPUAmount": 1,
    "GPUSpec": "NVIDIA A10",
    "Tags": {"Tag": [{"TagKey": FLEET_TAG, "TagValue": "lab"}]},
}


def nodes(described: dict[str, Any]) -> list[Node]:
    """As the list has them."""
    return Translator(fleet="lab").nodes(PLACE, [Instance(described=described)], {}, NOW)


def test_a_whole_description_is_a_node() -> None:
    """Its start is in UTC."""
    (node,) = nodes(WHOLE)

    assert (node.state, node.enrolled, node.gpu_count, node.name) == (NodeState.RUNNING, True, 1, "gpu-1")
    assert node.launched_at == datetime(2026, 1, 4, 8, tzinfo=UTC)


@pytest.mark.parametrize(
    "changed",
    [
        {"Status": "Hibernated"},
        {"Status": None},
        {"InstanceType": ""},
        {"ZoneId": None},
        {"InstanceChargeType": None},
        {"CreationTime": None, "StartTime": None},
        {"CreationTime": "yesterday", "StartTime": "2026-01-04T08:00"},
        {"Tags": {"Tag": [{"TagKey": FLEET_TAG, "TagValue": "lab"}, {"TagKey": "gpuwatch:protect"}]}},
    ],
)
def test_a_description_with_holes_is_a_machine_that_is_left_alone(changed: dict[str, object]) -> None:
    """It is in the list, in the state unknown."""
    (node,) = nodes({**WHOLE, **changed})

    assert node.state is NodeState.UNKNOWN


def test_a_machine_whose_gpus_are_not_told_counts_where_it_is_ours() -> None:
    """One of nobody is left out."""
    (node,) = nodes({**WHOLE, "GPUAmount": None})

    assert node.gpu_count is None
    assert nodes({**WHOLE, "GPUAmount": None, "Tags": None}) == []


ODD = st.none() | st.text(max_size=12) | st.dictionaries(st.sampled_from(["Tag", "LockReason"]), st.lists(st.none()))


@given(st.dictionaries(st.sampled_from(sorted(set(WHOLE) - {"InstanceId"})), ODD))
@example({"GPUAmount": "INFINITY"})
def test_no_odd_member_hides_the_other_machines_or_looks_sound(changed: dict[str, Any]) -> None:
    """What cannot be read is a doubt, and never an error that takes the whole region away."""
    described = {**WHOLE, **changed}

    for node in nodes(described):
        if node.state is not NodeState.UNKNOWN:
            assert described["Status"] in {"Running", "Stopped", "Stopping", "Starting", "Pending"}
            assert node.launched_at is not None
            assert node.zone


@pytest.mark.parametrize(
    ("text", "minutes"), [("2026-01-05T00:30Z", [30.0]), ("2026-01-05T00:30:00Z", [30.0]), ("", []), ("soon", [])]
)
def test_an_automatic_release_is_a_notice(text: str, minutes: list[float]) -> None:
    """Somebody has set it; it ends the machine."""
    (node,) = nodes({**WHOLE, "AutoReleaseTime": text})

    assert [(each.at - NOW).total_seconds() / 60 for each in node.announced or ()] == minutes
    assert all(each.ends for each in node.announced or ())


@pytest.mark.parametrize("mode", ["KeepCharging", "Not-applicable", None])
@pytest.mark.parametrize(
    ("lock", "state", "refused"),
    [
        ("financial", NodeState.STOPPED, "Alibaba Cloud has locked it (financial)"),
        ("security", NodeState.STOPPED, "Alibaba Cloud has locked it (security)"),
        ("Recycling", NodeState.TERMINATING, None),
        (None, NodeState.STOPPED, None),
    ],
)
def test_what_alibaba_itself_has_stopped_is_told_by_its_locks(
    mode: str | None, lock: str | None, state: NodeState, refused: str | None
) -> None:
    """For debts or an attack nobody else may stop or end it; a spot machine that is recycled is already leaving."""
    locks = {"LockReason": [{"LockReason": lock}] if lock else []}
    (node,) = nodes({**WHOLE, "Status": "Stopped", "OperationLocks": locks, "StoppedMode": mode})

    assert (node.state, node.cannot_stop, node.cannot_terminate) == (state, refused, refused)
    assert "not StopCharging" in (node.still_billed or ""), "none of these modes ends the bill"
