"""P22: one object of a cluster that cannot be read costs what depends on it, and is left alone; the list is whole."""

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from gpuwatch.kubernetes.facts import PodFacts, node_facts, owner_facts, pod_facts, time_of, version_number
from gpuwatch.kubernetes.marks import kept_by
from gpuwatch.kubernetes.objects import Described, NodeObject, PodObject
from gpuwatch.kubernetes.picture import Picture
from gpuwatch.kubernetes.unreadable import (
    draw_or_protect,
    protected_node,
    protected_owner,
    protected_pod,
    read_or_protect,
    refusing_budget,
)
from gpuwatch.model.kubernetes import OWNER, PROTECT, Pod
from tests.support.builders.kubernetes import node_object, pod_object

NOW = datetime(2026, 3, 2, 10, tzinfo=UTC)
GPUS = ("nvidia.com/gpu",)
NODE, POD = node_object("n-1"), pod_object("team-a", "train-0", node="n-1", gpus=4)


def read_pod(item: bytes) -> PodFacts | None:
    """As a cluster reads it."""
    return read_or_protect(item, lambda each: pod_facts(msgspec.json.decode(each, type=PodObject), GPUS), protected_pod)


def picture() -> Picture:
    """Of a cluster with the pod's namespace, where nothing owns it."""
    namespace = owner_facts(msgspec.convert({"metadata": {"name": "team-a", "uid": "ns"}}, Described))
    spaces = {"team-a": namespace}
    return Picture(now=NOW, owners=lambda *_: None, namespaces=spaces, system_namespaces=(), cluster="prod")


def spoiled(thing: dict[str, Any], **fields: object) -> bytes:
    """The object as the API server has it, with other parts."""
    made = {**thing, "metadata": {**thing["metadata"], "uid": "u-1", "resourceVersion": "7"}}
    return json.dumps({**made, **fields}).encode()


@pytest.mark.parametrize("containers", [7, "many", [None], [{"resources": {"requests": {"nvidia.com/gpu": []}}}]])
def test_a_pod_that_cannot_be_read_may_hold_a_gpu_of_its_node_and_is_protected(containers: object) -> None:
    """Its node is known, and what it does there is not."""
    spec = {"nodeName": "n-1", "containers": containers}
    pod = read_pod(spoiled(POD, spec=spec))

    assert pod is not None
    assert (pod.name, pod.node, pod.gpus > 0) == ("train-0", "n-1", True)
    assert picture().pod(pod).protected is not None


def test_an_object_that_does_not_say_which_it_is_ends_the_list() -> None:
    """Nobody knows what is missing then."""
    with pytest.raises(msgspec.MsgspecError):
        read_pod(b'{"metadata": 7}')


def test_a_node_that_cannot_be_read_is_still_its_machines_and_is_kept() -> None:
    """Without its object the machine would count as one of no cluster, and be stopped without a drain."""
    item = spoiled(NODE, spec={"providerID": "aws:///z/i-1"}, status=7)
    node = read_or_protect(
        item, lambda each: node_facts(msgspec.json.decode(each, type=NodeObject), GPUS), protected_node
    )

    assert node is not None
    assert node.provider_id == "aws:///z/i-1"
    assert kept_by(node, NOW) is not None


def test_an_owner_and_a_budget_that_cannot_be_read_let_no_pod_go() -> None:
    """They may hold a protection, or allow nothing."""
    item = b'{"metadata": {"name": "x", "namespace": "team-a", "uid": "u", "resourceVersion": "7", "labels": 1}}'
    owner, budget = protected_owner(item, "why"), refusing_budget(item, "why")

    assert (set(owner.annotations), owner.version) == ({PROTECT}, 7)
    pod = read_pod(spoiled(POD, status={"phase": "Running"}))
    assert pod is not None
    assert budget.refuses(pod) is not None


def test_a_pod_whose_owners_make_no_sense_is_drawn_alone_and_protected() -> None:
    """Instead of the whole view, which would leave every node of the cluster unknown."""
    pod = read_pod(spoiled(POD))
    assert pod is not None
    asked: list[PodFacts] = []

    def draw(each: PodFacts) -> Pod:
        asked.append(each)
        if len(asked) == 1:
            raise OverflowError("date value out of range")
        return picture().pod(each)

    assert draw_or_protect(draw, pod).protected is not None


def test_what_people_write_on_a_pod_is_held_to_a_bound() -> None:
    """An annotation takes 256 kB, of any characters; a page, a mail and a ledger take a name."""
    metadata = {
        **POD["metadata"],
        "annotations": {OWNER: "al\x00ice" + "x" * 200_000, "gpuwatch.io/odd": "y" * 200_000},
    }
    metadata["annotations"] |= {f"gpuwatch.io/slip-{number}": "z" for number in range(1000)}
    pod = read_pod(spoiled(POD, metadata=metadata))

    assert pod is not None
    assert pod.annotations[OWNER].startswith("al\x00ice")
    assert len(pod.annotations[OWNER]) <= 512
    assert max(map(len, pod.annotations.values())) <= 10_000
    assert len(pod.annotations) <= 65


@pytest.mark.parametrize("text", ["9" * 5000, "-1", "1e5", "", "x"])
def test_a_version_that_is_no_number_of_the_api_servers_is_older_than_all(text: str) -> None:
    """Python refuses to make an integer of 5,000 digits, and a list would end there."""
    assert version_number(text) == 0


@pytest.mark.parametrize("amount", [".", "1.2.3", "9" * 400, "1" * 19 + "G"])
def test_an_amount_that_cannot_be_read_holds_something(amount: str) -> None:
    """A pod with it is one that holds a GPU."""
    container = {"resources": {"requests": {"nvidia.com/gpu": amount}}}
    pod = read_pod(spoiled(POD, spec={"nodeName": "n-1", "containers": [container]}))

    assert pod is not None
    assert pod.gpus == 1.0


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "9999-12-31T23:59:59-14:00"])
def test_a_time_at_the_ends_of_the_calendar_is_none(time: str) -> None:
    """Nothing can be added to it, and nothing taken away."""
    assert time_of(time) is None
