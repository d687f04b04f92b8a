"""Each answer of Azure Resource Manager that somebody recorded, given to `AzureCloud` in the place of the server."""

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
from tests.support.clouds.azure.recorded import (
    DISKS,
    LOOP,
    OWN,
    RUNNING,
    SETS,
    VMS,
    Answer,
    a_machine,
    as_list,
    azure,
    of_kind,
    one_machine,
)
from tests.support.clouds.recorded import Path, Unread, left_out, needs_recordings, play_recording, played

# The words of an instance view, as the page "States and billing status" has them.
POWERS = {
    "starting": NodeState.PENDING,
    "running": NodeState.RUNNING,
    "stopping": NodeState.STOPPING,
    "stopped": NodeState.STOPPED,
    "deallocating": NodeState.STOPPING,
    "deallocated": NodeState.STOPPED,
}
GONE = frozenset({NodeState.TERMINATED, NodeState.TERMINATING})


def power_in(view: Mapping[str, Any] | None) -> str:
    """The word of its power state; "" without one."""
    codes = [str(each.get("code", "")) for each in (view or {}).get("statuses") or ()]
    return next((code.partition("/")[2] for code in codes if code.startswith("PowerState/")), "")


def has_id(machine: dict[str, Any]) -> bool:
    """Whether Azure has given it one."""
    return bool((machine.get("properties") or {}).get("vmId"))


# What plays an answer.


def play_machines(answer: Answer) -> None:
    """Every machine of the answer is a node, in its state, in every list and by itself, and none is gone."""
    arm = as_list(answer)
    with azure(arm) as cloud:
        if LOOP in answer.source:
            with pytest.raises(CloudUnavailableError, match=r"leads back|is on two pages"):
                cloud.nodes()
            return
        nodes = cloud.nodes()
        surveyed = [node.id for place in cloud.survey() for node in place.nodes]
        again = {node.id: cloud.node(node.id) for node in nodes}
        cloud.groups()
        cloud.leftovers()
    machines = {str(each["properties"]["vmId"]).lower(): each for each in arm.things if has_id(each)}
    assert {node.id for node in nodes} == set(surveyed) == set(machines)
    for key, each in machines.items():
        word = power_in(each["properties"].get("instanceView"))
        leaves = str(each["properties"].get("provisioningState")).lower() == "deleting"
        assert again[key].state is POWERS[word] if word else again[key].state not in GONE or leaves


def of_states(answer: Answer) -> bool:
    """Whether it is the list of all states, without what else the machines have."""
    return of_kind(VMS)(answer) and "statusOnly=true" in str(answer.line.get("uri"))


def play_states(answer: Answer) -> None:
    """The list of states alone makes no machine, and none of another list gone."""
    with azure(as_list(answer)) as cloud:
        assert [node for node in cloud.nodes() if node.state in GONE] == []


def play_view(answer: Answer) -> None:
    """A machine with that instance view is in its state."""
    with azure(one_machine(instanceView=answer.body)) as cloud:
        (node,) = cloud.nodes()
    assert node.state is POWERS[power_in(answer.body)]


def play_scale_sets(answer: Answer) -> None:
    """Each is a group."""
    with azure(as_list(answer)) as cloud:
        groups = cloud.groups()
        cloud.nodes()
    assert {group.id for group in groups} == {str(each["id"]).lower() for each in answer.items}


def play_disks(answer: Answer) -> None:
    """Those that Azure calls unattached are left over."""
    with azure(as_list(answer)) as cloud:
        found = [each for each in cloud.leftovers() if each.kind is LeftoverKind.UNATTACHED_VOLUME]
        cloud.disks()
    free = [each for each in answer.items if (each.get("properties") or {}).get("diskState") == "Unattached"]
    assert {each.id for each in found} == {each["id"] for each in free if not each.get("managedBy")}


def play_snapshots(answer: Answer) -> None:
    """Those of a disk, none of which is there, are left over."""
    with azure(as_list(answer)) as cloud:
        found = [each.id for each in cloud.leftovers() if each.kind is LeftoverKind.SNAPSHOT]
    sources = {each["id"]: json.dumps(each["properties"].get("creationData") or {}) for each in answer.items}
    assert set(found) == {key for key, source in sources.items() if "/disks/" in source}


def play_interfaces(answer: Answer) -> None:
    """Its machine has its address."""
    holders = {
        str(each["properties"]["virtualMachine"]["id"]): each["properties"]["ipConfigurations"][0]["properties"]
        for each in answer.items
        if (each["properties"].get("virtualMachine") or {}).get("id")
    }
    path = next(iter(holders), OWN)
    with azure(as_list(answer, virtualmachines=a_machine(path))) as cloud:
        nodes = cloud.nodes()
        cloud.leftovers()
    (node,) = nodes
    assert node.address == holders.get(path, {}).get("privateIPAddress")


def play_addresses(answer: Answer) -> None:
    """Those that nothing holds are left over."""
    with azure(as_list(answer)) as cloud:
        found = [each.id for each in cloud.leftovers() if each.kind is LeftoverKind.UNUSED_ADDRESS]
    assert set(found) == {each["id"] for each in answer.items if not each["properties"].get("ipConfiguration")}


def play_locks(answer: Answer) -> None:
    """What is locked against its end cannot be terminated."""
    scopes = [str(each["id"]).lower().partition("/providers/microsoft.authorization/")[0] for each in answer.items]
    with azure(as_list(answer, virtualmachines=a_machine(next(iter(scopes), OWN)))) as cloud:
        (node,) = cloud.nodes()
    assert (node.cannot_terminate is not None) == bool(answer.items)


def play_metrics(answer: Answer) -> None:
    """What it says of the CPU is the machine's use; an answer about something else is no use."""
    with azure(as_list(answer, virtualmachines=a_machine(OWN, instanceView=RUNNING))) as cloud:
        nodes = cloud.nodes()
        use = cloud.use_of(nodes, 3600.0)
    known = {each["name"]["value"]: each for each in answer.items}
    values = [
        hour["average"]
        for series in (known.get("Percentage CPU") or {}).get("timeseries") or ()
        for hour in series["data"]
        if "average" in hour
    ]
    told = use[nodes[0].id].cpu_mean_ratio if use else None
    assert told == (pytest.approx(sum(values) / len(values) / 100) if values else None)


def play_tags(answer: Answer) -> None:
    """The answer to new tags is a success."""
    arm = one_machine(instanceView=RUNNING)
    with azure(arm) as cloud:
        (node,) = cloud.nodes()
        arm.tagged = answer
        cloud.tag(node.id, {"gpuwatch:decision-id": "d"}, "key")


KINDS_OF_STATUS: Mapping[int, type[CloudError]] = {
    401: AuthFailedError,
    403: AuthFailedError,
    404: NotFoundError,
    429: ThrottledError,
}


def play_refusal(answer: Answer) -> None:
    """A typed error with Azure's own code, of every read and of a change: never an empty list, and never a success."""
    arm = one_machine(instanceView=RUNNING)
    with azure(arm) as cloud:
        (node,) = cloud.nodes()
        arm.refusal = answer
        refused = [ask_in_vain(ask) for ask in (cloud.groups, cloud.leftovers, cloud.identity)]
        refused.append(ask_in_vain(lambda: cloud.use_of([node], 3600.0)))
        refused.append(ask_in_vain(lambda: cloud.stop(node.id, "key", permit=a_permit())))
        places = cloud.survey()
    assert all(place.trouble or place.refused for place in places)
    for error in refused:
        assert error.code in json.dumps(answer.body) or error.code == f"HTTP {answer.status}"
        usual = CloudUnavailableError if answer.status >= _SERVER_ERROR else KINDS_OF_STATUS.get(answer.status)
        lost = error.code == "SubscriptionNotFound"
        assert isinstance(error, AuthFailedError if lost else usual or CloudError)
        assert usual is not None or not isinstance(error, CloudUnavailableError)


_SERVER_ERROR = 500


def ask_in_vain(ask: Callable[[], object]) -> CloudError:
    """The error that is to come."""
    with pytest.raises(CloudError) as caught:
        ask()
    return caught.value


PATHS: tuple[Path[Answer], ...] = (
    Path(name="machines", fits=lambda it: of_kind(VMS)(it) and not of_states(it), play=play_machines),
    Path(name="states of all", fits=of_states, play=play_states),
    Path(name="states", fits=of_kind("instanceview"), play=play_view),
    Path(name="scale sets", fits=of_kind(SETS), play=play_scale_sets),
    Path(name="disks", fits=of_kind(DISKS), play=play_disks),
    Path(name="snapshots", fits=of_kind("snapshots"), play=play_snapshots),
    Path(name="interfaces", fits=of_kind("networkinterfaces"), play=play_interfaces),
    Path(name="addresses", fits=of_kind("publicipaddresses"), play=play_addresses),
    Path(name="locks", fits=of_kind("locks"), play=play_locks),
    Path(name="metrics", fits=of_kind("metrics"), play=play_metrics),
    Path(name="tags", fits=lambda it: it.kind == "tags" and not it.refused, play=play_tags),
    Path(name="refusals", fits=lambda it: it.refused, play=play_refusal),
)
UNREAD: tuple[Unread[Answer], ...] = (
    Unread(name="a directory's token, which azure-identity reads", fits=lambda it: "oauth2_token" in it.source),
    Unread(name="a resource provider", fits=of_kind("microsoft.compute")),
    Unread(name="who did what", fits=of_kind("values")),
    Unread(name="free addresses of a network", fits=of_kind("checkipaddressavailability")),
)


@pytest.mark.parametrize(("path", "answer"), played("azure", PATHS, Answer))
def test_a_recorded_answer_is_read_for_what_it_is(path: Path[Answer], answer: Answer) -> None:
    """No machine is lost, none is gone that is listed, and a refusal has a type."""
    path.play(answer)


@needs_recordings
def test_every_recorded_answer_is_read_or_known_as_unread() -> None:
    """An answer of a kind that nobody thought of is not passed over."""
    assert left_out("azure", PATHS, UNREAD, Answer) == []


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (401, "InvalidAuthenticationTokenTenant"),
        (403, "AuthorizationFailed"),
        (404, "ResourceGroupNotFound"),
        (404, "SubscriptionNotFound"),
        (400, "InvalidParameter"),
        (409, "Conflict"),
        (429, "OperationNotAllowed"),
        (500, "InternalServerError"),
        (503, ""),
    ],
)
def test_what_plays_a_refusal_holds_it_to_its_status(status: int, code: str) -> None:
    """Few refusals were recorded, and these have the same form."""
    body: object = {"error": {"code": code, "message": "No."}} if code else "<html>"
    play_refusal(Answer(number=0, line={"status": {"code": status}, "body": body}))


def test_what_the_doctor_records_is_played_like_it(tmp_path: Folder) -> None:
    """The answers of a recording, in which names are replaced, are read as what they say."""
    played = {name for name, _ in play_recording("azure", tmp_path / "new", PATHS, Answer)}
    assert {"machines", "scale sets", "disks"} <= played
