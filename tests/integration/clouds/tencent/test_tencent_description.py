"""The fake and the code against Tencent Cloud's own description and its documented examples."""

from typing import Any

import pytest

from gpuwatch.clouds.tencent.client import VERSIONS
from gpuwatch.clouds.tencent.groups import one_group
from gpuwatch.clouds.tencent.instances import Instance
from gpuwatch.model.fleet import CapacityType, NodeState
from gpuwatch.runtime.clock import ManualClock
from tests.support.clouds.tencent.cvm import Cvm, described
from tests.support.clouds.tencent.description import FOLDERS, description, examples, versions
from tests.support.clouds.tencent.others import Others
from tests.support.clouds.tencent.scaling import Scaling
from tests.support.clouds.tencent.state import State
from tests.support.each import for_each

ANSWERED = sorted(
    (service, action)
    for service in FOLDERS
    for action in description(service).actions
    for part in (Cvm, Scaling, Others)
    if hasattr(part, "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in action)[1:])
)
# Where the documented examples do not say all that the description of the same API has.
KNOWN_GAPS = {"DescribeSubnets": ["DescribeSubnets: NextToken is missing"]}
EXAMPLES = [
    (service, action, number, answer)
    for service, action in ANSWERED
    for number, (_, answer) in enumerate(examples(service, action))
]


def test_the_versions_are_those_of_the_description() -> None:
    """What the code asks for is what the tests hold it to."""
    assert versions() == VERSIONS


def test_the_fake_answers_nothing_but_described_actions() -> None:
    """Eighteen at least."""
    assert {action for _, action in ANSWERED} >= {"StopInstances", "RemoveInstances", "TagResources", "DescribeDisks"}


@for_each(EXAMPLES, lambda example: f"{example[1]}-{example[2]}")
def test_documented_answers_fit_the_description(example: tuple[str, str, int, dict[str, Any]]) -> None:
    """So a fake that fits it says what the cloud says."""
    service, action, _, answer = example
    assert description(service).wrong_answer(action, answer) == KNOWN_GAPS.get(action, [])


@pytest.mark.parametrize("number", range(len(examples("cvm", "DescribeInstances"))))
def test_the_documented_machines_are_read(number: int) -> None:
    """Each example of DescribeInstances becomes a machine without doubt, and not one member is misread."""
    _, answer = examples("cvm", "DescribeInstances")[number]

    for each in answer["InstanceSet"]:
        instance = Instance(described=each, id=each["InstanceId"])
        assert instance.whole
        isolated = each.get("RestrictState") == "PROTECTIVELY_ISOLATED"
        stands = {NodeState.RUNNING, NodeState.STOPPED} if not isolated else {NodeState.TERMINATING}
        assert instance.state in {NodeState.STOPPING, *stands}
        assert instance.made_at is not None
        assert instance.zone.startswith("ap-")
        assert instance.capacity_type in {CapacityType.ON_DEMAND, CapacityType.PREPAID}
        assert instance.gpus is None


def test_the_fakes_machine_has_no_member_that_no_example_has() -> None:
    """Neither GPUInfo nor anything else is made up: of GPUInfo alone there is no example."""
    documented = {
        key for _, answer in examples("cvm", "DescribeInstances") for each in answer["InstanceSet"] for key in each
    }
    state = State(ManualClock())

    made = described(state.add_machine("ap-guangzhou", "GN10X.2XLARGE40"))

    assert set(made) - documented <= {"GPUInfo"}


class Replayed:
    """A line that answers with the documented example."""

    def name_call(self, action: str) -> str:
        """Its name."""
        return action

    def ask(self, service: str, action: str, **_: object) -> Any:  # noqa: ANN401  an answer
        """The first example."""
        return examples(service, action)[0][1]

    def list_all(self, service: str, action: str, items: str, item_id: str, **_: object) -> Any:  # noqa: ANN401  a list
        """The first example's items."""
        del item_id
        return examples(service, action)[0][1][items]


def test_the_documented_group_is_read() -> None:
    """Sizes, zone and switch; its members are another group's."""
    line: Any = Replayed()

    group = one_group(line, "asg-pts6qcgp")

    assert (group.id, group.name, group.min_size, group.max_size, group.desired) == (
        "asg-pts6qcgp",
        "product-asg-001",
        0,
        1,
        0,
    )
    assert (group.suspended, group.tags, dict(group.members)) == (frozenset(), {}, {})


# The checker itself


@pytest.mark.parametrize(
    ("request_", "wrong"),
    [
        ({}, ["StopInstances.InstanceIds is missing"]),
        ({"InstanceIds": "ins-1"}, ["StopInstances.InstanceIds is no list"]),
        ({"InstanceIds": [7]}, ["StopInstances.InstanceIds[0] is no text: 7"]),
        ({"InstanceIds": ["ins-1"], "Force": True}, ["StopInstances.Force is not described"]),
        ({"InstanceIds": ["ins-1"], "ForceStop": True}, ["StopInstances.ForceStop is out of use"]),
        ({"InstanceIds": ["ins-1"], "StopType": None}, ["StopInstances.StopType may not be null"]),
    ],
)
def test_a_request_that_is_not_described_is_told(request_: dict[str, Any], wrong: list[str]) -> None:
    """Missing, unknown, out of use, or of another type."""
    assert description("cvm").wrong_request("StopInstances", request_) == wrong


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        ({}, ["StopInstances: RequestId is missing"]),
        ({"RequestId": 7}, ["StopInstances.RequestId is no text: 7"]),
        ({"RequestId": "id", "Stopped": True}, ["StopInstances.Stopped is not described"]),
    ],
)
def test_an_answer_that_is_not_described_is_told(answer: dict[str, Any], wrong: list[str]) -> None:
    """Likewise."""
    assert description("cvm").wrong_answer("StopInstances", answer) == wrong
