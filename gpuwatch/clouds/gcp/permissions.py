"""What Google says of our own standing: reads are tried, changes are asked for by testIamPermissions."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from gpuwatch.clouds import AuthFailedError, CloudError
from gpuwatch.clouds.gcp.actions import Home
from gpuwatch.clouds.gcp.calls import (
    DELETE,
    DELETE_MEMBERS,
    GET_PROJECT,
    INSERT,
    LIST_ADDRESSES,
    LIST_AUTOSCALERS,
    LIST_DISKS,
    LIST_GROUPS,
    LIST_INSTANCES,
    LIST_OPERATIONS,
    LIST_REGIONS,
    LIST_SNAPSHOTS,
    RESIZE,
    SET_LABELS,
    START,
    STOP,
    TEST_INSTANCE,
    TEST_PROJECT,
    Call,
)
from gpuwatch.clouds.gcp.client import Client
from gpuwatch.clouds.gcp.credentials import Credentials
from gpuwatch.clouds.gcp.instances import Instance, Translator
from gpuwatch.clouds.gcp.machine_types import region_of
from gpuwatch.clouds.gcp.places import Listing
from gpuwatch.clouds.permissions import Identity, OtherRegion, Permission
from gpuwatch.model.fleet import Node

_READS = (
    LIST_INSTANCES,
    LIST_GROUPS,
    LIST_AUTOSCALERS,
    LIST_OPERATIONS,
    LIST_DISKS,
    LIST_ADDRESSES,
    LIST_SNAPSHOTS,
    LIST_REGIONS,
    GET_PROJECT,
)
_ACTS = (STOP, START, SET_LABELS)


def reads(client: Client) -> Iterator[Permission]:
    """What every role needs."""
    for call in _READS:
        query = None if call is GET_PROJECT else {"maxResults": "1"}
        try:
            client.read(call, query=query)
        except AuthFailedError as error:
            yield Permission(call=call.name, where=client.name, allowed=False, reason=error.code)
        except CloudError as error:
            yield Permission(call=call.name, where=client.name, allowed=None, reason=str(error))
        else:
            yield Permission(call=call.name, where=client.name, allowed=True)


def acts(client: Client, homes: Mapping[str, Home], *, terminate: bool) -> Iterator[Permission]:
    """What the role `reclaim` needs, asked for one of the fleet's own machines; else for the whole project."""
    calls = (*_ACTS, DELETE) if terminate else _ACTS
    home = next((home for home in homes.values() if home.client is client), None)
    if home is None:
        yield from _in_project(client, calls)
        return
    yield from _tested(
        client, calls, lambda body: client.read(TEST_INSTANCE, body=body, zone=home.zone, instance=home.name)
    )


def of_groups(client: Client) -> Iterator[Permission]:
    """What the roles need for members of groups."""
    yield from _in_project(client, (DELETE_MEMBERS, RESIZE))


def launch(client: Client) -> Permission:
    """What the role `scale` needs."""
    return next(_in_project(client, (INSERT,)))


def identity(client: Client, credentials: Credentials) -> Identity:
    """The service account, or that the credentials are a person's; with the Date of an answer."""
    at = client.now(GET_PROJECT)
    return Identity(name=credentials.name or f"a person's credentials in {client}", at=at)


def elsewhere(listing: Listing, apart: Translator) -> Iterator[OtherRegion]:
    """Every region of a project that the settings do not name, with the GPU machines in it.

    Sources: regions.list, instances.aggregatedList.

    Raises:
        CloudError: they cannot be listed.

    """
    client = listing.client
    names = sorted(each["name"] for each in client.items(LIST_REGIONS) if not listing.wanted(each["name"]))
    machines: dict[str, list[Node]] = {name: [] for name in names}
    trouble: dict[str, str] = {}
    for scope, content in client.scopes(LIST_INSTANCES).items():
        region = region_of(scope.removeprefix("zones/"))
        if region not in machines:
            continue
        if isinstance(content, CloudError):
            trouble[region] = str(content)
            continue
        for each in content:
            node = apart.node(client, Instance(described=each, project=client.project), {}, leaving=False)
            if node.known_gpus > 0:
                machines[region].append(node)
    for name in names:
        nodes = tuple(sorted(machines[name], key=lambda node: node.id))
        yield OtherRegion(
            where=f"{name} of {client}",
            machines=tuple(f"{node.id} ({node.instance_type})" for node in nodes),
            nodes=nodes,
            region=name,
            trouble=trouble.get(name),
        )


def _in_project(client: Client, calls: Iterable[Call]) -> Iterator[Permission]:
    """By the Resource Manager's API, which may be switched off in a project."""
    return _tested(client, calls, lambda body: client.read(TEST_PROJECT, body=body))


def _tested(
    client: Client, calls: Iterable[Call], ask: Callable[[object], Mapping[str, object]]
) -> Iterator[Permission]:
    """What the answer says of each call; any error says nothing of the permission."""
    calls = tuple(calls)
    wanted = sorted({permission for call in calls for permission in call.permissions})
    try:
        answer = ask({"permissions": wanted}).get("permissions", ())
        held = set(answer) if isinstance(answer, list) else set()
    except CloudError as error:
        for call in calls:
            yield Permission(call=call.name, where=client.name, allowed=None, reason=str(error))
        return
    for call in calls:
        missing = sorted(set(call.permissions) - held)
        reason = f"missing: {', '.join(missing)}" if missing else ""
        yield Permission(call=call.name, where=client.name, allowed=not missing, reason=reason)
