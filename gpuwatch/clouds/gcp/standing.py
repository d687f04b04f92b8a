"""What Google says of our own standing: reads are tried, changes asked for by testIamPermissions; keys and limits."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from gpuwatch.clouds import AuthFailedError, CloudError, CloudUnavailableError
from gpuwatch.clouds.gcp.actions import Home
from gpuwatch.clouds.gcp.client import Client, Json
from gpuwatch.clouds.gcp.credentials import Credentials as Given
from gpuwatch.clouds.gcp.iam import (
    DELETE,
    DELETE_MEMBERS,
    GET_PROJECT,
    INSERT,
    LIST_ADDRESSES,
    LIST_AUTOSCALERS,
    LIST_DISKS,
    LIST_GROUPS,
    LIST_INSTANCES,
    LIST_KEYS,
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
from gpuwatch.clouds.keys import AccessKey, Credentials
from gpuwatch.clouds.permissions import Identity, Permission, Quota, permissions_by_answer, try_permission

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
# Changes of a machine; the last two, of which a launch needs the permissions, make somebody root there.
_CHANGES = {
    f"compute.instances.{each}": (f"compute.instances.{each}",)
    for each in ("stop", "delete", "setLabels", "setMetadata", "setServiceAccount")
}


def may_read(client: Client) -> Iterator[Permission]:
    """What every role needs."""
    for call in _READS:
        query = None if call is GET_PROJECT else {"maxResults": "1"}
        yield try_permission(call.name, client.name, partial(client.read, call, query=query))


def may_act(client: Client, homes: Mapping[str, Home], *, terminate: bool) -> Iterator[Permission]:
    """What the role `reclaim` needs, asked for one of the fleet's own machines; else for the whole project."""
    calls = _permissions((*_ACTS, DELETE) if terminate else _ACTS)
    home = next((home for home in homes.values() if home.client is client), None)
    if home is None:
        yield from _in_project(client, calls)
        return
    yield from _test_calls(client, calls, lambda body: _test_machine(client, home, body))


def may_change(client: Client, home: Home) -> Iterator[Permission]:
    """What would stop, delete, label or configure a machine that is not the fleet's."""
    for each in _test_calls(client, _CHANGES, lambda body: _test_machine(client, home, body)):
        yield replace(each, where=f"{client.name}, machine {home.name}")


def may_change_groups(client: Client) -> Iterator[Permission]:
    """What the roles need for members of groups."""
    yield from _in_project(client, _permissions((DELETE_MEMBERS, RESIZE)))


def may_launch(client: Client) -> Permission:
    """What the role `scale` needs."""
    return next(_in_project(client, _permissions((INSERT,))))


def identity(client: Client, given: Given) -> Identity:
    """The service account, or that the credentials are a person's; with the Date of an answer."""
    at = client.now(GET_PROJECT)
    return Identity(name=given.name or f"a person's credentials in {client}", at=at)


def _permissions(calls: Iterable[Call]) -> dict[str, tuple[str, ...]]:
    return {call.name: call.permissions for call in calls}


def _in_project(client: Client, needed: Mapping[str, tuple[str, ...]]) -> Iterator[Permission]:
    """By the Resource Manager's API, which may be switched off in a project."""
    return _test_calls(client, needed, lambda body: client.read(TEST_PROJECT, body=body))


def _test_machine(client: Client, home: Home, body: object) -> Json:
    return client.read(TEST_INSTANCE, body=body, zone=home.zone, instance=home.name)


def _test_calls(
    client: Client, needed: Mapping[str, tuple[str, ...]], ask: Callable[[object], Mapping[str, object]]
) -> Iterator[Permission]:
    """What the answer says of each call; any error says nothing of the permission."""
    wanted = sorted({permission for each in needed.values() for permission in each})

    def held() -> set[str]:
        answer = ask({"permissions": wanted}).get("permissions", ())
        return set(answer) if isinstance(answer, list) else set()

    def refusal(call: str, granted: set[str]) -> str:
        missing = sorted(set(needed[call]) - granted)
        return f"missing: {', '.join(missing)}" if missing else ""

    return permissions_by_answer(needed, client.name, held, refusal)


_NEVER = 9999  # the year in which keys end that do not


def credentials(client: Client, given: Given) -> Credentials:
    """Of the service account. Source: projects.serviceAccounts.keys.list, those that people manage.

    Raises:
        CloudError: there are no credentials.

    """
    proof = given.proof
    name = proof.account or "credentials of Google Cloud"
    if proof.unknown:
        return Credentials(name=name, lasting=None, unknown=proof.unknown)
    if proof.key_id is None or proof.account is None:
        return Credentials(name=name, lasting=False)
    try:
        answer = client.read(LIST_KEYS, query={"keyTypes": "USER_MANAGED"}, account=proof.account)
        keys = tuple(
            AccessKey(
                id=each["name"].rpartition("/")[2],
                made=datetime.fromisoformat(each["validAfterTime"]),
                ends=_end(each["validBeforeTime"]),
                ours=each["name"].endswith(f"/{proof.key_id}"),
            )
            for each in answer.get("keys", ())
            if not each.get("disabled")
        )
    except AuthFailedError:
        missing = "iam.serviceAccountKeys.list is not allowed, or the IAM API is switched off"
        return Credentials(name=name, lasting=True, unknown=missing)
    except (KeyError, TypeError, ValueError) as error:
        unusable = f"{LIST_KEYS.name}: no usable answer ({type(error).__name__})"
        return Credentials(name=name, lasting=True, unknown=unusable)
    except CloudError as error:
        return Credentials(name=name, lasting=True, unknown=str(error))
    return Credentials(name=name, lasting=True, keys=keys)


def _end(text: str) -> datetime | None:
    if text.startswith(str(_NEVER)):
        return None
    return datetime.fromisoformat(text).astimezone(UTC)


_GLOBAL = "global"  # the quota of all regions together


def quotas(client: Client, wanted: Callable[[str], bool]) -> list[Quota]:
    """Each limit on GPUs of the wanted regions that is not zero, and the project's own.

    Raises:
        CloudError: they could not be had whole.

    """
    found: list[Quota] = []
    for region in client.items(LIST_REGIONS):
        if not wanted(region["name"]):
            continue
        if "quotas" not in region:
            raise CloudUnavailableError(f"{client} gave no quotas of {region['name']}", code="QUOTA_INFO_UNAVAILABLE")
        found += _of_gpus(region["name"], region["quotas"])
    return [*found, *_of_gpus(_GLOBAL, client.read(GET_PROJECT).get("quotas", ()))]


def _of_gpus(region: str, quotas: Iterable[Json]) -> Iterator[Quota]:
    """Commitments are bought and are not used up by machines, so they are left out."""
    for quota in quotas:
        name = str(quota.get("metric", ""))
        if "GPUS" in name and not name.startswith("COMMITTED") and quota.get("limit"):
            used = quota.get("usage")
            yield Quota(
                name=name,
                region=region,
                limit=float(quota["limit"]),
                used=None if used is None else float(used),
                unit="GPUs",
            )
