"""What Azure says of our own standing: which actions our roles allow at a scope. Nothing is carried out.

Azure has no trial of a call. It lists the actions that a caller's roles allow at a scope, and those are compared with
the actions that the calls need. Deny assignments, policies and locks are not in that answer.
"""

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from email.utils import parsedate_to_datetime
from fnmatch import fnmatchcase
from typing import Any

from azure.core.credentials import TokenCredential
from azure.core.exceptions import AzureError

from gpuwatch.clouds import CloudError
from gpuwatch.clouds.azure.iam import ACT, END, GROUPS, LAUNCH, READ
from gpuwatch.clouds.azure.places import Subscription
from gpuwatch.clouds.permissions import Identity, Permission

_PATH = "/providers/Microsoft.Authorization/permissions"


def reads(place: Subscription) -> Iterator[Permission]:
    """What every role needs, at the subscription."""
    yield from _held(place, place.root, READ, place.name)


def acts(place: Subscription, path: str | None, *, terminate: bool) -> Iterator[Permission]:
    """What stops, starts, tags and ends need, asked of one of the fleet's own machines."""
    wanted = (*ACT, *(END if terminate else ()))
    if path is None:
        reason = "the fleet has no enrolled, unprotected machine there to ask it of"
        yield Permission(call=", ".join(wanted), where=place.name, allowed=None, reason=reason)
        return
    yield from _held(place, path, wanted, place.name)


def of_groups(place: Subscription) -> Iterator[Permission]:
    """What members of scale sets need."""
    yield from _held(place, place.root, GROUPS, place.name)


def launch(place: Subscription, resource_group: str) -> Iterator[Permission]:
    """What launches need, at their resource group."""
    scope = f"{place.root}/resourceGroups/{resource_group}"
    yield from _held(place, scope, LAUNCH, f"{place.name}, resource group {resource_group}")


def identity(place: Subscription, credential: TokenCredential, scope: str) -> Identity:
    """Who the token says we are, and the Date of an answer. Source: Subscriptions Get, the token's claims.

    Raises:
        CloudError: no answer.

    """
    answer = place.get(place.root, version="subscriptions")
    date = answer.headers.get("date", "")
    try:
        at = parsedate_to_datetime(date)
    except ValueError:
        at = None
    name = str(answer.body.get("displayName") or place.id)
    return Identity(name=f"{_principal(credential, scope)} in the subscription {name}", at=at)


def allowed(action: str, permissions: Sequence[Mapping[str, Any]]) -> bool:
    """Whether roles allow an action: one of them names it, by a pattern too, and does not take it out again."""
    wanted = action.lower()

    def named(patterns: object) -> bool:
        return any(fnmatchcase(wanted, str(each).lower()) for each in patterns) if isinstance(patterns, list) else False

    return any(named(each.get("actions")) and not named(each.get("notActions")) for each in permissions)


def _held(place: Subscription, scope: str, actions: Sequence[str], where: str) -> Iterator[Permission]:
    """Source: Permissions ListForResource, ListForResourceGroup; of the subscription the same path."""
    try:
        held = place.listed(f"{scope}{_PATH}", version="permissions")
    except CloudError as error:
        for action in actions:
            yield Permission(call=action, where=where, allowed=None, reason=str(error))
        return
    for action in actions:
        yes = allowed(action, held)
        yield Permission(call=action, where=where, allowed=yes, reason="" if yes else "AuthorizationFailed")


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
