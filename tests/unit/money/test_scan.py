"""What `gpuwatch scan` makes of the machines of all clouds: whether they are known, what they cost, who owns them."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from gpuwatch.clouds import FLEET_TAG, OWNER_TAG
from gpuwatch.clouds.survey import CloudUse, Surveyed
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.model.money import Price
from gpuwatch.money.prices.price_book import NoPrice
from gpuwatch.money.scan import Looked, ScanDocument, ScanSum, owner_of, scan_document
from gpuwatch.runtime.json_document import json_text
from tests.support.builders.fleet import a_node

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def a_machine(node_id: str, **more: Any) -> Node:  # noqa: ANN401  any field of a node
    """Nobody's, running for a day."""
    fields = {"enrolled": False, "tags": {}, "region": "here", "launched_at": NOW - timedelta(days=1), "gpu_count": 8}
    return replace(a_node(node_id), **{**fields, **more})


OURS = a_machine("i-ours", enrolled=True, pool="train", tags={FLEET_TAG: "lab"})
NOBODYS = a_machine("i-nobodys")


def looked(*places: Surveyed, usd: str | None = "2.5", **more: Any) -> Looked:  # noqa: ANN401  any field
    """One cloud in which every machine has that price."""
    price = NoPrice(why="x") if usd is None else Price(usd_per_hour=Decimal(usd), as_of=NOW.date(), source="x")
    fields: dict[str, Any] = {"use": {}, "unmonitored": {}, "cloud": "", "provider": "aws", "price": lambda _: price}
    return Looked(places=places, **{**fields, **more})


def at(region: str, *nodes: Node, watched: bool = True, **more: Any) -> Surveyed:  # noqa: ANN401  any field
    """A place with these machines."""
    moved = tuple(replace(node, region=region) for node in nodes)
    return Surveyed(where=region, region=region, watched=watched, nodes=moved, **more)


def document(*clouds: Looked, regions: tuple[str, ...] = ()) -> ScanDocument:
    """Of these clouds."""
    return scan_document(clouds, fleet="lab", now=NOW, days=7, regions=regions)


@pytest.mark.parametrize(
    ("node", "watched", "known", "why"),
    [
        (OURS, True, True, "pool train"),
        (OURS, False, False, "pool train; region not watched"),
        (NOBODYS, True, False, "not enrolled"),
        (NOBODYS, False, False, "not enrolled; region not watched"),
        (replace(NOBODYS, managed_by="EKS cluster prod"), True, False, "not enrolled, managed by EKS cluster prod"),
        (replace(NOBODYS, tags={FLEET_TAG: "other"}), True, False, "of fleet other, not lab"),
    ],
)
def test_known_is_what_is_enrolled_where_the_controller_looks(node: Node, watched: bool, known: bool, why: str) -> None:
    """An enrolled machine in a region that the settings do not name is stopped by nobody."""
    (row,) = document(looked(at("here", node, watched=watched))).machines

    assert (row.known, row.why, row.watched) == (known, why, watched)


def test_the_dearest_unknown_machine_comes_first() -> None:
    """Known machines come last, whatever they cost."""
    prices = {"i-ours": "9", "i-a": "1", "i-b": "3"}

    def price(node: Node) -> Price:
        return Price(usd_per_hour=Decimal(prices[node.id]), as_of=NOW.date(), source="x")

    found = document(looked(at("here", OURS, a_machine("i-a"), a_machine("i-b")), price=price))

    assert [row.id for row in found.machines] == ["i-b", "i-a", "i-ours"]


@pytest.mark.parametrize(
    ("state", "still_billed", "usd"),
    [
        (NodeState.RUNNING, None, "2.5"),
        (NodeState.PENDING, None, "2.5"),
        (NodeState.UNKNOWN, None, "2.5"),
        (NodeState.STOPPED, None, None),
        (NodeState.STOPPED, "prepaid", "2.5"),
        (NodeState.TERMINATING, None, None),
    ],
)
def test_a_machine_costs_while_its_cloud_bills_it(state: NodeState, still_billed: str | None, usd: str | None) -> None:
    """A stopped one costs nothing by the hour, unless its cloud goes on billing it."""
    (row,) = document(looked(at("here", replace(NOBODYS, state=state, still_billed=still_billed)))).machines

    assert row.usd_per_hour == (None if usd is None else Decimal(usd))
    assert row.billed is (usd is not None)


def test_the_sums_are_of_known_and_of_unknown() -> None:
    """A machine without a price is counted, and is in no sum."""
    found = document(looked(at("here", OURS, NOBODYS)), looked(at("far", a_machine("i-x")), usd=None))

    usd = Decimal("2.5")
    assert found.known == ScanSum(machines=1, gpus=8, usd_per_hour=usd, usd_per_day=24 * usd, unpriced=0)
    assert found.unknown == ScanSum(machines=2, gpus=16, usd_per_hour=usd, usd_per_day=24 * usd, unpriced=1)


def test_a_region_is_chosen_by_its_name() -> None:
    """A trouble that is of no region stays: what it hides is not known."""
    nowhere = Surveyed(where="other regions", region="", watched=False, trouble="no answer")

    found = document(looked(at("here", OURS), at("far", NOBODYS), nowhere), regions=("far",))

    assert [row.id for row in found.machines] == ["i-nobodys"]
    assert [place.where for place in found.places] == ["far", "other regions"]


@pytest.mark.parametrize(
    ("place", "complete"),
    [(at("x"), True), (at("x", refused="No"), False), (at("x", trouble="no answer"), False)],
)
def test_a_place_without_a_list_makes_the_scan_incomplete(place: Surveyed, complete: bool) -> None:
    """Nobody knows what runs there."""
    assert document(looked(at("here", OURS), place)).complete is complete


@pytest.mark.parametrize(
    ("tags", "owner"),
    [
        ({}, None),
        ({OWNER_TAG: "anna", "Owner": "bob"}, "anna"),
        ({"Owner": "bob", "Team": "ml"}, "bob"),
        ({"created_by": "carl"}, "carl"),
        ({"Owner": "", "team": "ml"}, "ml"),
        ({"colour": "red"}, None),
    ],
)
def test_an_owner_is_looked_for_in_common_tags(tags: dict[str, str], owner: str | None) -> None:
    """Gpuwatch's own tag wins."""
    assert owner_of(a_machine("i-1", owner=tags.get(OWNER_TAG), tags=tags)) == owner


def test_what_the_monitor_says_is_with_its_machine() -> None:
    """Where it says nothing, the place says why, and the machine has null."""
    use = CloudUse(cpu_mean_ratio=0.02, cpu_max_ratio=0.3, received_bytes_per_second=7.0)
    found = document(
        looked(at("here", OURS), at("far", NOBODYS), use={"i-ours": use}, unmonitored={"far": "not allowed"})
    )
    by_id = {row.id: row.use for row in found.machines}

    assert by_id["i-nobodys"] is None
    assert by_id["i-ours"] == use
    assert [place.unmonitored for place in found.places] == [None, "not allowed"]


def test_the_document_is_json_with_times_and_ages() -> None:
    """As `--json` prints it."""
    (row,) = json.loads(json_text("scan", document(looked(at("here", OURS)))))["machines"]

    assert (row["launched_at"], row["age_seconds"]) == ("2026-02-28T00:00:00Z", 86400.0)
