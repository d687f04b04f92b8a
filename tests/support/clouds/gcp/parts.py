"""Parts of answers of the fake of Google Cloud: pages, filters, scopes."""

import re
from collections.abc import Mapping
from typing import Any

from tests.support.clouds.gcp.machines import RefusedError, Resource

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
