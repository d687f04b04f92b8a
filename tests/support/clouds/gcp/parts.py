"""Parts of answers of the fake of Google Cloud: pages, filters, scopes."""

import re
from collections.abc import Mapping
from typing import Any

from tests.support.clouds.gcp.machines import RefusedError, Resource
from tests.support.clouds.policy_languages import GoogleResource
from tests.support.clouds.server import Request

_TERM = re.compile(r'\(?(\w+) (=|!=|eq) (?:"([^"]*)"|(\w+))\)?')


def page_of(
    found: list[Resource], query: Mapping[str, str], parameter: str = "maxResults"
) -> tuple[list[Resource], Resource]:
    """The page that is asked for, and the way to the next one."""
    begin, size = int(query.get("pageToken", "page-0").removeprefix("page-")), int(query.get(parameter, "500"))
    more = begin + size < len(found)
    return found[begin : begin + size], {"nextPageToken": f"page-{begin + size}"} if more else {}


def fits(resource: Mapping[str, Any], wanted: str) -> bool:
    """Google's filters, as far as the code writes them."""
    terms = list(_TERM.finditer(wanted))
    assert bool(terms) == bool(wanted), f"Google may take the filter {wanted!r}, the fake does not"
    for key, sign, text, word in (match.groups() for match in terms):
        value, expected = str(resource.get(key, "")), text if text is not None else word
        same = re.fullmatch(expected, value) is not None if sign == "eq" else value == expected
        if same == (sign == "!="):
            return False
    return True


def scope_of(resource: Mapping[str, Any]) -> str:
    """Where a thing is: zones/Z, regions/R, global."""
    for kind in ("zone", "region"):
        if kind in resource:
            return f"{kind}s/{resource[kind].rpartition('/')[2]}"
    return "global"


def named(known: Mapping[str, Resource], name: str) -> Resource:
    """The thing of that name; refuses as Compute Engine does where there is none."""
    if name not in known:
        raise RefusedError(404, "notFound", f"The resource '{name}' was not found")
    return known[name]


def catalogue(skus: list[Resource], request: Request) -> Resource:
    """What Compute Engine sells."""
    page, token = page_of(skus, request.query, "pageSize")
    return {"skus": page, **token}


_ASKED = re.compile(r"/compute/v1/(?P<name>projects/[^/]+/(?:zones|regions)/[^/]+/(?P<kind>\w+))(?:/(?P<own>[^/]+))?")
_TYPES = {"instances": "Instance", "instanceGroupManagers": "InstanceGroupManager"}


def resource_of(permission: str, request: Request, tags: Mapping[str, Mapping[str, str]]) -> GoogleResource:
    """What a permission is asked of: the machine or group in the path, the one that is made, else the project."""
    found = _ASKED.match(request.path)
    kind = permission.split(".")[1]
    if found is None or kind not in _TYPES or found["kind"] != kind:
        return GoogleResource(type="cloudresourcemanager.googleapis.com/Project")
    own = found["own"] or request.json["name"]
    return GoogleResource(
        type=f"compute.googleapis.com/{_TYPES[kind]}", name=f"{found['name']}/{own}", tags=tags.get(own, {})
    )


def method_key(name: str) -> str:
    """The method's name without its API; the twins for regions answer as the zones' do."""
    own = name.partition(".")[2]
    return own[6].lower() + own[7:] if own.startswith("region") and own[6].isupper() else own
