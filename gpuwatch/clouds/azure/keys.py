"""The secret or certificate of the application by which Azure knows us, with its end; it is only read.

A managed identity and a federated identity need none. Microsoft Graph has the application, not Resource Manager, and
its permission Application.Read.All is given by an administrator of the directory.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from azure.core.credentials import TokenCredential

from gpuwatch.clouds import AuthFailedError, CloudError
from gpuwatch.clouds.azure.client import Line
from gpuwatch.clouds.azure.settings import GRAPHS
from gpuwatch.clouds.keys import AccessKey, Credentials
from gpuwatch.runtime.clock import Clock

_SECRET, _CERTIFICATE = "1", "2"  # appidacr (azpacr): how the application proved who it is; 2 is a federated token, too
_PASSWORDS, _CERTIFICATES = "passwordCredentials", "keyCredentials"
_NAME = "Application.Read.All of Microsoft Graph"


def graph(
    credential: TokenCredential,
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


def _keys(told: list[Mapping[str, Any]], now: datetime, *, of_ours: bool) -> Iterator[AccessKey]:
    """Azure does not say by which of them we proved who we are; a federated token needs none of them."""
    for each in told:
        made, ends = datetime.fromisoformat(each["startDateTime"]), datetime.fromisoformat(each["endDateTime"])
        if ends > now:
            yield AccessKey(id=str(each["keyId"]), made=made, ends=ends, ours=None if of_ours else False)
