"""Lists in pages as ECS, ESS and VPC cut them."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.clouds.alibaba.errors import Refusal


def page_of(found: Sequence[Any], query: Mapping[str, str], *, largest: int) -> tuple[list[Any], dict[str, Any]]:
    """The entries of the page that is asked for, and what an answer says of pages.

    With MaxResults there is a token, empty on the last page, and a TotalCount that means nothing.
    """
    if "MaxResults" in query:
        size, begin = int(query["MaxResults"]), int(query.get("NextToken", "token-0").partition("-")[2])
        if not 1 <= size <= largest:
            raise Refusal(400, "InvalidParameter.MaxResults", "The specified MaxResults is not valid.")
        more = begin + size < len(found)
        token = f"token-{begin + size}" if more else ""
        return list(found[begin : begin + size]), {"NextToken": token, "TotalCount": 0, "PageNumber": 0, "PageSize": 0}
    size, number = int(query.get("PageSize", "10")), int(query.get("PageNumber", "1"))
    if not 1 <= size <= largest:
        raise Refusal(400, "InvalidParameter", "The specified PageSize is not valid.")
    begin = (number - 1) * size
    counted = {"TotalCount": len(found), "PageNumber": number, "PageSize": size}
    return list(found[begin : begin + size]), counted


def values(query: Mapping[str, str], name: str) -> list[str]:
    """A list of the request, such as InstanceId.1, InstanceId.2."""
    found: list[str] = []
    while f"{name}.{len(found) + 1}" in query:
        found.append(query[f"{name}.{len(found) + 1}"])
    return found


def tags(query: Mapping[str, str]) -> dict[str, str]:
    """Tag.1.Key and Tag.1.Value."""
    found: dict[str, str] = {}
    while f"Tag.{len(found) + 1}.Key" in query:
        index = len(found) + 1
        found[query[f"Tag.{index}.Key"]] = query.get(f"Tag.{index}.Value", "")
    return found
