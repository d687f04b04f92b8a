"""How many volumes nodes take, which are attached to them, and what that says of pods that move."""

import json
from dataclasses import replace

import msgspec
import pytest

from gpuwatch.kubernetes.attachments import AttachmentFacts, Attachments, read_attachment, read_csi_node
from gpuwatch.kubernetes.claims import ClaimFacts, Disks, VolumeFacts
from gpuwatch.kubernetes.facts import NodeFacts, PodFacts, node_facts, pod_facts
from gpuwatch.kubernetes.objects import NodeObject, PodObject
from gpuwatch.kubernetes.picture import Picture
from gpuwatch.kubernetes.room import room_of
from gpuwatch.policies.kubernetes.elsewhere import why_stranded
from tests.support.builders.fleet import NOW
from tests.support.builders.kubernetes import node_object, pod_object

EBS = "ebs.csi.aws.com"


def a_node(name: str) -> NodeFacts:
    """With room for many pods."""
    return node_facts(msgspec.json.decode(json.dumps(node_object(name)), type=NodeObject), ())


def a_pod(name: str, node: str, *claims: str) -> PodFacts:
    """A running pod with these claims."""
    volumes = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims]
    made = pod_object("team", name, node=node, volumes=volumes)
    made["metadata"]["uid"] = name
    found = pod_facts(msgspec.json.decode(json.dumps(made), type=PodObject), ())
    assert found is not None
    return found


def disks(*claims: str, driver: str = EBS) -> Disks:
    """Each claim has its volume of that name, on a network disk."""
    volume = VolumeFacts(
        name="",
        uid="",
        version=1,
        phase="Bound",
        kept=False,
        claim=None,
        of_host=False,
        driver=driver,
        alternatives=(),
    )
    claim = ClaimFacts(
        namespace="team", name="", uid="", version=1, phase="Bound", volume="", one_node=True, annotations={}
    )
    return Disks(
        volumes={each: replace(volume, name=each) for each in claims},
        claims={("team", each): replace(claim, name=each, volume=each) for each in claims},
    )


def limits(**counts: object) -> Attachments:
    """What each node takes, as its CSINode says: a number, None for no limit, a text for another driver."""
    found = {}
    for name, count in counts.items():
        driver = count if isinstance(count, str) else EBS
        made = {"name": driver, "nodeID": name, **({"allocatable": {"count": count}} if isinstance(count, int) else {})}
        meta = {"name": name, "uid": name, "resourceVersion": "1"}
        facts = read_csi_node(json.dumps({"metadata": meta, "spec": {"drivers": [made]}}).encode())
        assert facts is not None
        found[name] = facts.limits
    return Attachments(limits=found)


def at(node: str, volume: str) -> AttachmentFacts:
    """A volume at a node, as the API server shows it."""
    spec = {"attacher": EBS, "nodeName": node, "source": {"persistentVolumeName": volume}}
    meta = {"name": f"csi-{volume}", "uid": f"csi-{volume}", "resourceVersion": "1"}
    found = read_attachment(json.dumps({"metadata": meta, "spec": spec, "status": {"attached": True}}).encode())
    assert found is not None
    return found


def stranded(known: Attachments, *others: PodFacts, claims: tuple[str, ...] = ("data",)) -> str | None:
    """Why the pod db of gpu-3 is not sure of a place on cpu-1."""
    pods = (a_pod("db", "gpu-3", *claims), *others)
    used = {claim for pod in pods for _, claim in pod.claims}
    room = room_of([a_node("gpu-3"), a_node("cpu-1")], pods, disks(*used), known)
    return why_stranded(room, [], [("gpu-3", frozenset({"db"}))], ()).get("db")


@pytest.mark.parametrize(
    ("count", "there", "fits"),
    [(1, (), True), (1, ("logs",), False), (2, ("logs",), True), (None, ("logs", "more"), True), (0, (), False)],
)
def test_a_node_takes_as_many_volumes_as_its_driver_says(
    count: int | None, there: tuple[str, ...], *, fits: bool
) -> None:
    """Those of its own pods count; a driver without a number takes all."""
    others = [a_pod(each, "cpu-1", each) for each in there]
    why = stranded(limits(**{"cpu-1": count, "gpu-3": 25}), *others)

    assert (why is None) == fits
    assert fits or f"volumes of {EBS} are asked for" in str(why)


def test_a_node_without_the_driver_takes_none_of_its_volumes() -> None:
    """It would wait there for ever."""
    assert stranded(limits(**{"cpu-1": "efs.csi.aws.com"})) is not None
    assert stranded(Attachments()) is not None


def test_a_volume_that_is_still_attached_takes_a_place_and_a_pod_needs_one_for_each_of_its_own() -> None:
    """Also one that no pod uses any more."""
    tight, left = limits(**{"cpu-1": 2}), {"cpu-1": [at("cpu-1", "old")]}

    assert stranded(tight, claims=("data", "logs")) is None
    assert stranded(replace(tight, on_node=left)) is None
    assert stranded(replace(tight, on_node=left), claims=("data", "logs")) is not None


def test_what_nobody_shows_is_a_doubt_for_pods_with_such_volumes_alone() -> None:
    """As with the role of an older chart."""
    blind = Attachments(doubt="the API server shows no csinodes (403)")

    assert stranded(blind) == ("how many volumes each node takes is not known: the API server shows no csinodes (403)")
    assert stranded(blind, claims=()) is None


def test_a_node_names_the_volumes_that_its_pods_have_left() -> None:
    """One that a pod of it uses, or that is of another node, is none."""
    attached = Attachments(on_node={"gpu-3": [at("gpu-3", "data"), at("gpu-3", "logs")], "cpu-1": [at("cpu-1", "old")]})
    picture = Picture(
        now=NOW,
        owners=lambda *_: None,
        namespaces={},
        system_namespaces=(),
        cluster="k",
        disks=disks("data", "logs"),
        attachments=attached,
    )
    pod = picture.pod(a_pod("db", "gpu-3", "logs"))

    assert picture.node(a_node("gpu-3"), [pod], ()).attached == ("data",)


def test_objects_that_cannot_be_read_promise_nothing() -> None:
    """A node of which nobody knows what it takes takes nothing, and a volume that is nowhere holds up nobody."""
    meta = {"name": "n", "uid": "n", "resourceVersion": "1"}
    node = read_csi_node(json.dumps({"metadata": meta, "spec": {"drivers": "many"}}).encode())
    attachment = read_attachment(json.dumps({"metadata": meta, "spec": {"source": 7}}).encode())

    assert node is not None
    assert attachment is not None
    assert (dict(node.limits), attachment.node, attachment.volume) == ({}, "", "")
