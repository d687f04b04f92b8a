"""Which other system owns a machine on Alibaba Cloud."""

import pytest

from gpuwatch.clouds.alibaba.owners import GROUP_TAG, managed_by


@pytest.mark.parametrize(
    ("tags", "owner"),
    [
        ({}, None),
        ({"Name": "gpu-1", "gpuwatch:fleet": "lab", "acs:rm:rgId": "rg-1", "acs:tag:createdby": "sub:1"}, None),
        ({"ack.aliyun.com": "c1a2"}, "Container Service (ACK) cluster c1a2"),
        ({"kubernetes.io/cluster/prod": "owned"}, "Kubernetes cluster prod"),
        ({GROUP_TAG: "asg-1"}, "Auto Scaling group asg-1"),
        ({"acs:ros:stackId": "s-1"}, "ROS stack s-1"),
        ({"acs:emr:clusterId": "C-1"}, "EMR C-1"),
        ({"acs:something:new": "x"}, "an Alibaba Cloud service x"),
    ],
)
def test_tags_of_other_systems_make_a_machine_theirs(tags: dict[str, str], owner: str | None) -> None:
    """Any tag of a service of Alibaba that is not known to be harmless, too."""
    assert managed_by(tags) == owner


def test_a_group_with_consent_is_no_foreign_owner_nor_the_stack_that_made_it() -> None:
    """The tags that the group left on its member do not count."""
    group = {"gpuwatch:fleet": "lab", "acs:ros:stackId": "s-1"}

    assert managed_by({GROUP_TAG: "asg-1", "acs:ros:stackId": "s-1"}, group=group) is None
    assert managed_by({GROUP_TAG: "asg-1", "acs:ros:stackId": "s-2"}, group=group) == "ROS stack s-2"


def test_a_system_that_drives_the_group_owns_its_members() -> None:
    """A node pool of ACK is a scaling group: the consent of its tag does not overrule ACK."""
    assert managed_by({GROUP_TAG: "asg-1"}, group={"ack.aliyun.com": "c1a2"}) == "Container Service (ACK) cluster c1a2"


@pytest.mark.parametrize(
    ("name", "tags", "owner"),
    [
        ("worker-k8s-for-cs-c1a2b3", {}, "Container Service (ACK) cluster c1a2b3"),
        ("worker-k8s-for-cs-c1a2b3", {GROUP_TAG: "asg-1"}, "Container Service (ACK) cluster c1a2b3"),
        ("node-k8s-for-cs-", {}, "Container Service (ACK) cluster"),
        ("worker-k8s", {}, None),
    ],
)
def test_a_node_of_ack_is_known_by_its_name(name: str, tags: dict[str, str], owner: str | None) -> None:
    """Its cluster's tag may be missing."""
    assert managed_by(tags, name=name) == owner
