"""Every place of a cloud, as each cloud can tell it: one without an answer hides no other."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from gpuwatch.clouds import AuthFailedError, Cloud, CloudError, CloudUnavailableError
from gpuwatch.clouds.survey import CloudUse, Surveyed, elsewhere, every_place, survey_cloud, use_by_place
from gpuwatch.model.fleet import Node
from tests.support.builders.fleet import a_node

HERE = replace(a_node("i-1"), region="here")
FAR = replace(a_node("i-2"), region="far", account="7")
NOW = datetime(2026, 11, 1, tzinfo=UTC)


class Listing:
    """A cloud that lists its own regions and those beyond."""

    def __init__(self, own: Sequence[Node] | CloudError, others: Sequence[Surveyed] | CloudError) -> None:
        self._own, self._others = own, others

    def nodes(self) -> Sequence[Node]:
        """Of the settings' regions."""
        if isinstance(self._own, CloudError):
            raise self._own
        return self._own

    def elsewhere(self) -> Sequence[Surveyed]:
        """The others."""
        if isinstance(self._others, CloudError):
            raise self._others
        return self._others


def of(own: Sequence[Node] | CloudError, others: Sequence[Surveyed] | CloudError) -> list[Surveyed]:
    """What is found of such a cloud."""
    return survey_cloud(cast("Cloud", Listing(own, others)))


def test_the_list_and_the_other_regions_are_all_places() -> None:
    """The settings' own places are watched, by region and account."""
    there = Surveyed(where="east", region="east", nodes=(replace(HERE, id="i-3", region="east"),))

    found = of([HERE, FAR], [there, Surveyed(where="west", refused="No")])

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
    there = Surveyed(where="east", nodes=(FAR,))

    found = of(error if silent == "own" else [HERE], error if silent == "others" else [there])

    assert [each.trouble for each in found] == (["no answer", None] if silent == "own" else [None, "no answer"])
    assert sum(len(each.nodes) for each in found) == 1


class Place:
    """A region of an account that shows machines, or an error."""

    def __init__(self, account: str, region: str, shown: "dict[str, list[Node] | CloudError]") -> None:
        self.account, self.region, self.shown = account, region, shown
        self.name = f"{region} of account {account}"
        self.closed: CloudError | None = None

    def enabled_regions(self) -> list[str]:
        """The regions that show anything."""
        if self.closed is not None:
            raise self.closed
        return sorted(self.shown)

    def beside(self, region: str) -> "Place":
        """Another region."""
        return Place(self.account, region, self.shown)

    def machines(self) -> list[Node]:
        """Those of the region."""
        shown = self.shown[self.region]
        if isinstance(shown, CloudError):
            raise shown
        return shown


class Places:
    """A region of two accounts each."""

    def __init__(self) -> None:
        shown: dict[str, list[Node] | CloudError] = {"here": [HERE], "far": [FAR]}
        self.all = [Place("a", "here", shown), Place("b", "here", {**shown, "far": AuthFailedError("no", code="No")})]
        self.homes = self.all


def test_regions_of_an_account_that_cannot_be_listed_hide_no_other_account() -> None:
    """They are an entry, which says whether it was refused; for a search beyond the settings it is an error."""
    places = Places()
    places.all[0].closed = AuthFailedError("not allowed", code="Closed")

    found = every_place(places, Place.machines)

    assert [(each.where, each.watched, [node.id for node in each.nodes], each.refused) for each in found] == [
        ("here of account a", True, ["i-1"], None),
        ("here of account b", True, ["i-1"], None),
        ("other regions of account a", False, [], "Closed"),
        ("far of account b", False, [], "No"),
    ]
    with pytest.raises(AuthFailedError):
        elsewhere(places, Place.machines)


def test_use_is_asked_for_in_the_region_and_account_of_each_machine() -> None:
    """Also beyond the settings; of an account that is not ours nothing is asked."""
    asked = []

    def ask(place: Place, ids: Sequence[str], begin: datetime, end: datetime) -> dict[str, CloudUse]:
        asked.append((place.name, *ids, end - begin))
        return {node_id: CloudUse(cpu_mean_ratio=0.5) for node_id in ids}

    nodes = [replace(HERE, account="b"), replace(FAR, account="a"), replace(FAR, id="i-3", account="c")]
    found = use_by_place(Places(), nodes, ask, NOW, 60.0)

    assert asked == [
        ("far of account a", "i-2", timedelta(minutes=1)),
        ("here of account b", "i-1", timedelta(minutes=1)),
    ]
    assert sorted(found) == ["i-1", "i-2"]


def test_a_cloud_that_surveys_itself_is_asked_for_that_alone() -> None:
    """Its own answer says which place failed."""
    own = [Surveyed(where="here", region="here", watched=True, trouble="no")]
    cloud: Any = type("Own", (), {"survey": lambda _: own})()

    assert survey_cloud(cloud) == own
