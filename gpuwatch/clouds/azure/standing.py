"""What Azure says of our own standing: which actions our roles allow at a scope, keys, limits. Nothing is carried out.

Azure has no trial of a call. It lists the actions that a caller's roles allow at a scope, and those are compared with
the actions that the calls need. Deny assignments, policies and locks are not in that answer.
"""

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any

from azure.core.credentials import TokenCredential
from azure.core.exceptions import AzureError

from gpuwatch.clouds import AuthFailedError, CloudError
from gpuwatch.clouds.azure.client import Line, Renewing
from gpuwatch.clouds.azure.iam import ACT, END, GROUPS, LAUNCH, READ, WRITE
from gpuwatch.clouds.azure.instances import Sizes
from gpuwatch.clouds.azure.places import Subscription
from gpuwatch.clouds.azure.settings import GRAPHS
from gpuwatch.clouds.keys import AccessKey, Credentials
from gpuwatch.clouds.permissions import (
    NO_MACHINE,
    Identity,
    Permission,
    Quota,
    permissions_by_answer,
    server_time,
    untried_permission,
)
from gpuwatch.clouds.places import gather_from
from gpuwatch.model.fleet import Node
from gpuwatch.runtime.clock import Clock

_PATH = "/providers/Microsoft.Authorization/permissions"


def may_read(place: Subscription) -> Iterator[Permission]:
    """What every role needs, at the subscription."""
    yield from _held_permissions(place, place.root, READ, place.name)


def may_act(place: Subscription, path: str | None, *, terminate: bool) -> Iterator[Permission]:
    """What stops, starts, tags and ends need, asked of one of the fleet's own machines."""
    wanted = (*ACT, *(END if terminate else ()))
    if path is None:
        yield untried_permission(wanted, place.name, NO_MACHINE)
        return
    yield from _held_permissions(place, path, wanted, place.name)


def may_change(place: Subscription, path: str) -> Iterator[Permission]:
    """What would stop, end, tag or write a machine that is not the fleet's."""
    return _held_permissions(place, path, (*ACT, *END, WRITE), f"{place.name}, machine {path}")


def may_change_groups(place: Subscription) -> Iterator[Permission]:
    """What members of scale sets need."""
    yield from _held_permissions(place, place.root, GROUPS, place.name)


def may_launch(place: Subscription, resource_group: str) -> Iterator[Permission]:
    """What launches need, at their resource group."""
    scope = f"{place.root}/resourceGroups/{resource_group}"
    yield from _held_permissions(place, scope, LAUNCH, f"{place.name}, resource group {resource_group}")


def identity(place: Subscription, credential: TokenCredential, scope: str) -> Identity:
    """Who the token says we are, and the Date of an answer. Source: Subscriptions Get, the token's claims.

    Raises:
        CloudError: no answer.

    """
    answer = place.get(place.root, version="subscriptions")
    name = str(answer.body.get("displayName") or place.id)
    at = server_time(answer.headers.get("date", ""))
    return Identity(name=f"{_principal(credential, scope)} in the subscription {name}", at=at)


def is_allowed(action: str, permissions: Sequence[Mapping[str, Any]]) -> bool:
    """Whether roles allow an action: one of them names it, by a pattern too, and does not take it out again."""
    wanted = action.lower()

    def named(patterns: object) -> bool:
        return any(fnmatchcase(wanted, str(each).lower()) for each in patterns) if isinstance(patterns, list) else False

    return any(named(each.get("actions")) and not named(each.get("notActions")) for each in permissions)


def _held_permissions(place: Subscription, scope: str, actions: Sequence[str], where: str) -> Iterator[Permission]:
    """Source: Permissions ListForResource, ListForResourceGroup; of the subscription the same path."""
    return permissions_by_answer(
        actions,
        where,
        lambda: place.list_all(f"{scope}{_PATH}", version="permissions"),
        lambda action, held: "" if is_allowed(action, held) else "AuthorizationFailed",
    )


def claims_of(credential: TokenCredential, scope: str) -> Mapping[str, Any]:
    """What the token says of its user; empty where it cannot be read, or Azure gives no token."""
    try:
        payload = credential.get_token(scope).token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (AzureError, IndexError, ValueError):
        return {}
    return claims if isinstance(claims, dict) else {}


def _principal(credential: TokenCredential, scope: str) -> str:
    """The application or user that the token is for; a token that cannot be read names nobody."""
    claims = claims_of(credential, scope)
    return str(claims.get("upn") or claims.get("appid") or claims.get("oid") or "an identity with an unreadable token")


_SECRET, _CERTIFICATE = "1", "2"  # appidacr (azpacr): how the application proved who it is; 2 is a federated token, too
_PASSWORDS, _CERTIFICATES = "passwordCredentials", "keyCredentials"
_NAME = "Application.Read.All of Microsoft Graph"


def graph(
    credential: Renewing,
    national_cloud: str,
    endpoint_url: str | None,
    *,
    clock: Clock,
    options: Mapping[str, Any],
) -> Line:
    """The way to Microsoft Graph, which wants a token of its own; nothing is sent yet."""
    host = GRAPHS[national_cloud]
    return Line(credential, endpoint_url or host, scope=f"{host}/.default", clock=clock, options=options)


def credentials(way: Line, claims: Mapping[str, Any], now: datetime) -> Credentials:
    """By the claims of our token. Source: Graph, Get application: each secret and certificate that has not ended."""
    application = claims.get("appid") or claims.get("azp")
    name = str(claims.get("upn") or application or claims.get("oid") or "an identity with an unreadable token")
    how = str(claims.get("appidacr") or claims.get("azpacr") or "")
    if claims.get("xms_mirid"):
        return Credentials(name=name, lasting=False)
    if claims.get("upn") or claims.get("idtyp") == "user":
        return Credentials(name=name, lasting=None, unknown="it is a person's login, and Azure does not say how old")
    if not application or how not in {_SECRET, _CERTIFICATE}:
        return Credentials(name=name, lasting=None, unknown="the token does not say how we proved who we are")
    try:
        found = way.get(
            f"/v1.0/applications(appId='{application}')",
            version="graph",
            where="Microsoft Graph",
            select=f"{_PASSWORDS},{_CERTIFICATES}",
        ).body
        own, other = (_PASSWORDS, _CERTIFICATES) if how == _SECRET else (_CERTIFICATES, _PASSWORDS)
        keys = (*_keys(found[own], now, of_ours=True), *_keys(found[other], now, of_ours=False))
    except (KeyError, TypeError, ValueError) as error:
        unusable = f"Microsoft Graph: no usable answer ({type(error).__name__})"
        return Credentials(name=name, lasting=None, unknown=unusable)
    except CloudError as error:
        missing = f"{_NAME} is not allowed" if isinstance(error, AuthFailedError) else str(error)
        return Credentials(name=name, lasting=None, unknown=missing)
    return Credentials(name=name, lasting=how == _SECRET or bool(keys), keys=keys)


def _keys(listed: list[Mapping[str, Any]], now: datetime, *, of_ours: bool) -> Iterator[AccessKey]:
    """Azure does not say by which of them we proved who we are; a federated token needs none of them."""
    for each in listed:
        made, ends = datetime.fromisoformat(each["startDateTime"]), datetime.fromisoformat(each["endDateTime"])
        if ends > now:
            yield AccessKey(id=str(each["keyId"]), made=made, ends=ends, ours=None if of_ours else False)


_ALL_SPOT, _ALL = "lowprioritycores", "cores"


def _quotas_of(place: Subscription, sizes: Sizes, regions: Iterable[str]) -> Iterator[Quota]:
    """Of the families with GPUs, and of all machines of a region together; families with a limit of zero are left out.

    Raises:
        CloudError: they could not be had whole.

    """
    for region in sorted(regions):
        families = sizes.families(place, region)
        path = f"{place.root}/providers/Microsoft.Compute/locations/{region}/usages"
        for usage in place.list_all(path):
            name = str((usage.get("name") or {}).get("value", ""))
            limit = float(usage.get("limit") or 0)
            if name.lower() in {_ALL, _ALL_SPOT} or (name.lower() in families and limit > 0):
                used = usage.get("currentValue")
                yield Quota(
                    name=name,
                    region=region,
                    limit=limit,
                    used=None if used is None else float(used),
                    unit="vCPUs",
                )


def quotas(places: Sequence[Subscription], sizes: Sizes, nodes: Iterable[Node]) -> Sequence[Quota]:
    """Of all subscriptions; where one looks at all regions, those of its machines; raises CloudError."""
    seen = {(node.account, node.region) for node in nodes}

    def ask(place: Subscription) -> Iterator[Quota]:
        return _quotas_of(place, sizes, place.regions or {region for account, region in seen if account == place.id})

    return tuple(sorted(gather_from(places, ask), key=lambda each: (each.region, each.name)))
