"""Each answer of Compute Engine that somebody recorded, given to `GcpCloud` in the place of the server."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path as Folder
from typing import Any

import pytest

from gpuwatch.clouds import (
    AuthFailedError,
    CloudError,
    CloudUnavailableError,
    LeftoverKind,
    NotFoundError,
    ThrottledError,
)
from gpuwatch.model.fleet import NodeState
from tests.support.builders.fleet import a_permit
from tests.support.clouds.gcp.recorded import (
    ZONE,
    Answer,
    Compute,
    an_instance,
    compute_engine,
    link_to,
    place_of,
)
from tests.support.clouds.recorded import Path, Unread, left_out, needs_recordings, play_recording, played

# The page "VM instance lifecycle".
STATES = {
    "PROVISIONING": NodeState.PENDING,
    "STAGING": NodeState.PENDING,
    "RUNNING": NodeState.RUNNING,
    "PENDING_STOP": NodeState.STOPPING,
    "STOPPING": NodeState.STOPPING,
    "SUSPENDING": NodeState.STOPPING,
    "SUSPENDED": NodeState.STOPPED,
    "TERMINATED": NodeState.STOPPED,
    "STOPPED": NodeState.STOPPED,
    "REPAIRING": NodeState.UNKNOWN,
}
# What Compute Engine has besides what gpuwatch reads.
_OTHERS = frozenset(
    {
        *("acceleratorType", "backendBucket", "backendService", "backendServiceGroupHealth", "commitment", "diskType"),
        *("externalVpnGateway", "firewall", "firewallPolicy", "forwardingRule", "guestAttributes", "healthCheck"),
        *("httpHealthCheck", "httpsHealthCheck", "instanceGroup", "instanceGroupsListInstances", "interconnect"),
        *("interconnectAttachment", "interconnectLocation", "license", "machineImage", "network", "nodeGroup"),
        *("networkEndpointGroup", "nodeTemplate", "nodeType", "packetMirroring", "reservation", "resourcePolicy"),
        *("route", "router", "routerStatusResponse", "securityPolicy", "serialPortOutput", "serviceAttachment"),
        *("sslCertificate", "sslPolicy", "subnetwork", "targetGrpcProxy", "targetHttpProxy", "targetHttpsProxy"),
        *("targetInstance", "targetPool", "targetPoolInstanceHealth", "targetSslProxy", "targetTcpProxy", "xpnHost"),
        *("targetVpnGateway", "urlMap", "vpnGateway", "vpnTunnel", "zone"),
    }
)


def of_kind(*kinds: str) -> Callable[[Answer], bool]:
    """Good answers about these."""
    return lambda it: it.kind in kinds and not it.refused


def play_machines(answer: Answer) -> None:
    """Every machine of the answer is a node, in its state, in the list and by itself, and none is gone."""
    machines = {str(each["id"]): each for each in answer.items}
    compute = Compute.of(answer)
    with compute_engine(compute) as cloud:
        nodes = {node.id: node for node in cloud.nodes()}
        again = {node_id: cloud.node(node_id) for node_id in nodes}
        cloud.leftovers()
        cloud.groups()
    names = {place_of(each)[1].removeprefix("zones/").rpartition("-")[0] for each in answer.items}
    compute.things["regions"] = [{"name": name, "selfLink": link_to(f"regions/{name}")} for name in sorted(names)]
    with compute_engine(compute, regions=("mars",)) as other:
        surveyed = {node.id for place in other.elsewhere() for node in place.nodes}
        assert other.nodes() == ()
    assert set(nodes) == surveyed == set(machines)
    for node_id, told in machines.items():
        assert nodes[node_id].state is again[node_id].state is STATES[told["status"]]
        assert nodes[node_id].name == told["name"]


def play_groups(answer: Answer) -> None:
    """Each managed group is one, with the size that it wants."""
    with compute_engine(Compute.of(answer)) as cloud:
        groups = {group.id: group for group in cloud.groups()}
    told = {each["selfLink"].rpartition("/compute/v1/")[2]: each for each in answer.items}
    assert {group_id: group.desired for group_id, group in groups.items()} == {
        path: each["targetSize"] for path, each in told.items()
    }


def play_autoscalers(answer: Answer) -> None:
    """A group that one drives is its own, within its bounds."""
    targets = [(each["target"].partition("/compute/v1/")[2], each) for each in answer.items]
    groups = [
        {
            "name": path.rpartition("/")[2],
            "selfLink": f"https://www.googleapis.com/compute/v1/{path}",
            "instanceTemplate": link_to("global/instanceTemplates/t"),
            "targetSize": 0,
            "status": {"autoscaler": each["selfLink"]},
            "zone": each.get("zone", ""),
        }
        for path, each in targets
    ]
    with compute_engine(Compute.of(answer, instanceGroupManagers=groups)) as cloud:
        found = {group.id: group for group in cloud.groups()}
        for path, each in targets:
            policy = each["autoscalingPolicy"]
            assert (found[path].min_size, found[path].max_size) == (policy["minNumReplicas"], policy["maxNumReplicas"])
            with pytest.raises(CloudError, match=f"belongs to autoscaler {each['name']}"):
                cloud.grow(path, policy["maxNumReplicas"], "key")


def play_disks(answer: Answer) -> None:
    """Those that nothing uses are left over."""
    with compute_engine(Compute.of(answer)) as cloud:
        found = {each.id for each in cloud.leftovers() if each.kind is LeftoverKind.UNATTACHED_VOLUME}
        cloud.disks()
    assert found == {str(each["id"]) for each in answer.items if not each.get("users")}


def play_addresses(answer: Answer) -> None:
    """External ones that are only reserved are left over."""
    with compute_engine(Compute.of(answer)) as cloud:
        found = {each.id for each in cloud.leftovers() if each.kind is LeftoverKind.UNUSED_ADDRESS}
    free = [each for each in answer.items if each["status"] == "RESERVED"]
    assert found == {str(each["id"]) for each in free if each.get("addressType", "EXTERNAL") == "EXTERNAL"}


def play_snapshots(answer: Answer) -> None:
    """Of disks that are gone, as all are here: each is left over."""
    with compute_engine(Compute.of(answer)) as cloud:
        found = {each.id for each in cloud.leftovers() if each.kind is LeftoverKind.SNAPSHOT}
    assert found == {str(each["id"]) for each in answer.items}


def play_images(answer: Answer) -> None:
    """An old one of no family is left over, and nothing that is not there."""
    with compute_engine(Compute.of(answer)) as cloud:
        found = {each.id for each in cloud.leftovers() if each.kind is LeftoverKind.IMAGE}
    ready = [each for each in answer.items if each.get("status") == "READY"]
    alone = {str(each["id"]) for each in ready if not each.get("family") and each["creationTimestamp"] < "2025-12"}
    assert alone <= found <= {str(each["id"]) for each in ready}


_ENDS = frozenset({"delete", "compute.instances.preempted"})


def play_operation_as_proof(answer: Answer) -> None:
    """A machine that nothing shows is gone only where its deletion is done and did not fail."""
    (told,) = answer.items
    node_id = str(told.get("targetId", "1234567890123456789"))
    compute = Compute.of(answer)
    on_machine = "/instances/" in told.get("targetLink", "") and "targetId" in told
    ended = told.get("operationType") in _ENDS and "error" not in told
    never_made = told.get("operationType") == "insert" and "error" in told
    with compute_engine(compute) as cloud:
        assert cloud.nodes() == ()
        if on_machine and told["status"] == "DONE" and (ended or never_made):
            assert cloud.node(node_id).state is NodeState.TERMINATED
            return
        with pytest.raises(NotFoundError):
            cloud.node(node_id)


def play_operation_as_answer(answer: Answer) -> None:
    """A change that it answers is accepted, or has failed with the operation's own code."""
    (told,) = answer.items
    machine = an_instance(node_id=str(told.get("targetId", "1234567890123456789")))
    with compute_engine(Compute(things={"instances": [machine]}, changed=answer)) as cloud:
        (node,) = cloud.nodes()
        errors = (told.get("error") or {}).get("errors") or ()
        if errors:
            with pytest.raises(CloudError) as caught:
                cloud.stop(node.id, "key", permit=a_permit())
            assert caught.value.code == errors[0]["code"]
            assert not isinstance(caught.value, CloudUnavailableError), "it has failed, so nothing is in doubt"
            return
        assert cloud.stop(node.id, "key", permit=a_permit()).ran


def play_types(answer: Answer) -> None:
    """A machine of a type has that type's GPUs."""
    machines = [
        an_instance(
            name=f"own-{number}",
            node_id=str(10**18 + number),
            labels={"gpuwatch-fleet": "lab"},
            machineType=each["selfLink"],
            zone=link_to(f"zones/{ZONE}"),
        )
        for number, each in enumerate(answer.items)
    ]
    for each in answer.items:
        each["selfLink"] = link_to(f"zones/{ZONE}/machineTypes/{each['name']}")
    with compute_engine(Compute.of(answer, instances=machines)) as cloud:
        cloud.nodes()
        counts = {str(each["id"]): cloud.node(str(each["id"])).gpu_count for each in machines}
    wanted = [each.get("accelerators") or [] for each in answer.items]
    assert list(counts.values()) == [sum(one["guestAcceleratorCount"] for one in each) for each in wanted]


def play_templates(answer: Answer) -> None:
    """A group that is made of it is of its machine type."""
    (told, *_) = answer.items
    group = {
        "name": "g",
        "selfLink": link_to(f"zones/{ZONE}/instanceGroupManagers/g"),
        "instanceTemplate": told["selfLink"],
        "targetSize": 0,
        "zone": link_to(f"zones/{ZONE}"),
    }
    with compute_engine(Compute.of(answer, instanceGroupManagers=[group])) as cloud:
        (found,) = cloud.groups()
        cloud.leftovers()
    assert found.instance_type == told["properties"]["machineType"].rpartition("/")[2]


def play_regions(answer: Answer) -> None:
    """Limits on GPUs are quotas, and a region without such limits has none."""
    with compute_engine(Compute.of(answer)) as cloud:
        found = {(each.region, each.name): each.limit for each in cloud.quotas()}
    assert found == {(each["name"], metric): limit for each in answer.items for metric, limit in gpu_limits(each)}


def play_project(answer: Answer) -> None:
    """Its limits on GPUs are quotas."""
    with compute_engine(Compute(project=answer.body)) as cloud:
        found = [(each.name, each.limit) for each in cloud.quotas()]
        assert cloud.identity().at is not None
    assert found == list(gpu_limits(answer.body))


def gpu_limits(told: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Those on GPUs that can be used, without commitments."""
    limits = [(each["metric"], each["limit"]) for each in told.get("quotas", ())]
    return [(name, limit) for name, limit in limits if "GPUS" in name and limit and not name.startswith("COMMITTED")]


_SERVER_ERROR = 500
KINDS_OF_STATUS: Mapping[int, type[CloudError]] = {401: AuthFailedError, 404: NotFoundError, 429: ThrottledError}


def play_refusal(answer: Answer) -> None:
    """A typed error with Google's own reason, of every read and of a change: no empty list, and no success."""
    compute = Compute(things={"instances": [an_instance()]})
    with compute_engine(compute) as cloud:
        (node,) = cloud.nodes()
        compute.refusal = answer
        stop = lambda: cloud.stop(node.id, "key", permit=a_permit())  # noqa: E731  one of the questions
        asks = (cloud.groups, cloud.leftovers, cloud.elsewhere, cloud.quotas, cloud.identity)
        refused = [ask_in_vain(ask) for ask in (*asks, lambda: cloud.use_of([node], 3600.0), stop)]
    for error in refused:
        assert error.code in json.dumps(answer.body) or error.code == str(answer.status)
        usual = CloudUnavailableError if answer.status >= _SERVER_ERROR else KINDS_OF_STATUS.get(answer.status)
        assert isinstance(error, usual or CloudError)
        assert usual is not None or not isinstance(error, CloudUnavailableError)


def ask_in_vain(ask: Callable[[], object]) -> CloudError:
    """The error that is to come."""
    with pytest.raises(CloudError) as caught:
        ask()
    return caught.value


PATHS: tuple[Path[Answer], ...] = (
    Path(name="machines", fits=of_kind("instance"), play=play_machines),
    Path(name="groups", fits=of_kind("instanceGroupManager"), play=play_groups),
    Path(name="autoscalers", fits=of_kind("autoscaler"), play=play_autoscalers),
    Path(name="disks", fits=of_kind("disk"), play=play_disks),
    Path(name="addresses", fits=of_kind("address"), play=play_addresses),
    Path(name="snapshots", fits=of_kind("snapshot"), play=play_snapshots),
    Path(name="images", fits=of_kind("image"), play=play_images),
    Path(name="proof", fits=of_kind("operation"), play=play_operation_as_proof),
    Path(name="changes", fits=of_kind("operation"), play=play_operation_as_answer),
    Path(name="types", fits=of_kind("machineType"), play=play_types),
    Path(name="templates", fits=of_kind("instanceTemplate"), play=play_templates),
    Path(name="regions", fits=of_kind("region"), play=play_regions),
    Path(name="projects", fits=of_kind("project"), play=play_project),
    Path(name="refusals", fits=lambda it: it.refused, play=play_refusal),
)
UNREAD: tuple[Unread[Answer], ...] = (
    Unread(name="networks, load balancers and other things", fits=lambda it: it.kind in _OTHERS and not it.refused),
    Unread(name="who may do what with one thing", fits=lambda it: "getIamPolicy" in it.source and not it.refused),
)


@pytest.mark.parametrize(("path", "answer"), played("gcp", PATHS, Answer))
def test_a_recorded_answer_is_read_for_what_it_is(path: Path[Answer], answer: Answer) -> None:
    """No machine is lost, none is gone that is listed, and a refusal has a type."""
    path.play(answer)


@needs_recordings
def test_every_recorded_answer_is_read_or_known_as_unread() -> None:
    """An answer of a kind that nobody thought of is not passed over."""
    assert left_out("gcp", PATHS, UNREAD, Answer) == []


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (401, "authError"),
        (403, "forbidden"),
        (403, "quotaExceeded"),
        (404, "notFound"),
        (400, "invalidResourceUsage"),
        (412, "conditionNotMet"),
        (429, "rateLimitExceeded"),
        (503, "backendError"),
        (500, ""),
    ],
)
def test_what_plays_a_refusal_holds_it_to_its_status(status: int, reason: str) -> None:
    """Few refusals were recorded, and these have the same form."""
    errors = [{"reason": reason, "message": "No."}] if reason else []
    play_refusal(Answer(number=0, line={"text": json.dumps({"error": {"code": status, "errors": errors}})}))


def test_what_the_doctor_records_is_played_like_it(tmp_path: Folder) -> None:
    """The answers of a recording, in which names are replaced, are read as what they say."""
    played = {name for name, _ in play_recording("gcp", tmp_path / "new", PATHS, Answer)}
    assert {"machines", "regions"} <= played
