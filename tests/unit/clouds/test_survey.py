"""Every place of a cloud, as each cloud can tell it: one without an answer hides no other."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from gpuwatch.clouds import Cloud, CloudError, CloudUnavailableError
from gpuwatch.clouds.permissions import OtherRegion
from gpuwatch.clouds.survey import Surveyed, of_other, surveyed
from gpuwatch.model.fleet import Node, NodeState
from tests.support.builders.fleet import a_node

HERE = replace(a_node("i-1"), region="here")
FAR = replace(a_node("i-2"), region="far", account="7")


class Listing:
    """A cloud that lists its own regions and those beyond."""

    def __init__(self, own: Sequence[Node] | CloudError, others: Sequence[OtherRegion] | CloudError) -> None:
        self._own, self._others = own, others

    def nodes(self) -> Sequence[Node]:
        """Of the settings' regions."""
        if isinstance(self._own, CloudError):
            raise self._own
        return self._own

    def elsewhere(self) -> Sequence[OtherRegion]:
        """The others."""
        if isinstance(self._others, CloudError):
            raise self._others
        return self._others


def of(own: Sequence[Node] | CloudError, others: Sequence[OtherRegion] | CloudError) -> list[Surveyed]:
    """What is found of such a cloud."""
    return surveyed(cast("Cloud", Listing(own, others)))


def test_the_list_and_the_other_regions_are_all_places() -> None:
    """The settings' own places are watched, by region and account."""
    there = OtherRegion(where="east", region="east", nodes=(replace(HERE, id="i-3", region="east"),))

    found = of([HERE, FAR], [there, OtherRegion(where="west", refused="No")])

    assert [(each.where, each.watched, [node.id for node in each.nodes], each.refused) for each in found] == [
        ("here", True, ["i-1"], None),
        ("far of account 7", True, ["i-2"], None),
        ("east", False, ["i-3"], None),
        ("west", False, [], "No"),
    ]


@pytest.mark.parametrize("silent", ["own", "others"])
def test_a_part_without_an_answer_hides_no_other(silent: str) -> None:
    """It is a place with its trouble."""
    error = CloudUnavailableError("no answer")
    there = OtherRegion(where="east", nodes=(FAR,))

    found = of(error if silent == "own" else [HERE], error if silent == "others" else [there])

    assert [each.trouble for each in found] == (["no answer", None] if silent == "own" else [None, "no answer"])
    assert sum(len(each.nodes) for each in found) == 1


def test_a_machine_in_words_is_a_machine_of_which_little_is_known() -> None:
    """A provider that names machines alone is not left out."""
    found = of_other(OtherRegion(where="east of account x", machines=("i-1 (p4d.24xlarge)", "i-2")))

    assert found.region == "east"
    assert [(node.id, node.instance_type, node.state, node.gpu_count) for node in found.nodes] == [
        ("i-1", "p4d.24xlarge", NodeState.UNKNOWN, None),
        ("i-2", "", NodeState.UNKNOWN, None),
    ]


def test_a_cloud_that_surveys_itself_is_asked_for_that_alone() -> None:
    """Its own answer says which place failed."""
    own = [Surveyed(where="here", region="here", watched=True, trouble="no")]
    cloud: Any = type("Own", (), {"survey": lambda _: own})()

    assert surveyed(cloud) == own
