"""Lists to their last page, whole or not at all. ECS gives a token for the next page, ESS and VPC count pages.

An empty list is believed only where the right to it is proven. To a user without the right ECS answered an empty list
and HTTP 200 until December 2025, and nobody says of which calls that still holds. DryRun shows which it is.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpuwatch.clouds import CloudError, CloudUnavailableError
from gpuwatch.clouds.alibaba.client import Client
from gpuwatch.clouds.errors import reading

_MOST_PAGES = 2000
_PROVEN_SECONDS = 3600.0  # for which a list that stays empty is not proven again
WOULD_DO = ("DryRunOperation", "DRYRUN.SUCCESS")  # what DryRun answers where the call would be carried out
_TORN = "TornList"  # our own word


@dataclass(frozen=True, slots=True, kw_only=True)
class List:
    """One list: the call, the way to the entries within an answer, the member by which an entry is known.

    `dry`: the call has DryRun, by which the right to it is proven where the list is empty.
    """

    call: str
    path: tuple[str, ...]
    identity: str
    dry: bool = False


def by_token(client: Client, what: List, parameters: Mapping[str, object], *, size: int) -> list[dict[str, Any]]:
    """All entries of a list with tokens.

    The total of such an answer means nothing (DescribeInstances says so). So where the last page is a full one, the
    number of entries is asked for by itself: the token may have been lost.

    Raises:
        CloudError: a page could not be had, or the pages do not fit together, also when asked once more.

    """
    return _believe_list(client, what, parameters, _whole(lambda: _tokens(client, what, parameters, size)))


def _believe_list(
    client: Client, what: List, parameters: Mapping[str, object], found: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The list; an empty one only where the right to it is proven; raises CloudError."""
    if not what.dry:
        return found
    asked = (what.call, repr(sorted(parameters.items())))
    if found:
        client.empty.pop(asked, None)
    elif not client.empty.get(asked, 0.0) > client.uptime():
        _prove_right(client, what, parameters)
        client.empty[asked] = client.uptime() + _PROVEN_SECONDS
    return found


def _prove_right(client: Client, what: List, parameters: Mapping[str, object]) -> None:
    """Ask by DryRun whether we may ask for a list at all; raises CloudError: we may not, or nobody knows."""
    asked = client.name_call(what.call)
    try:
        client.ask(what.call, {**parameters, "DryRun": True})
    except CloudError as error:
        if error.code in WOULD_DO:
            return
        raise
    raise CloudUnavailableError(f"{asked}: it is not known whether the empty list is all", code="NotProven")


def by_number(client: Client, what: List, parameters: Mapping[str, object], *, size: int) -> list[dict[str, Any]]:
    """All entries of a list with page numbers and a total; raises CloudError."""
    return _believe_list(client, what, parameters, _whole(lambda: _numbers(client, what, parameters, size)))


def _whole(ask: Callable[[], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """What comes or goes while pages are asked for tears a list: it is asked for once more."""
    try:
        return ask()
    except CloudUnavailableError as error:
        if error.code != _TORN:
            raise
        return ask()


def _tokens(client: Client, what: List, parameters: Mapping[str, object], size: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    tokens: set[str] = set()
    asked = client.name_call(what.call)
    more: dict[str, object] = {}
    for _ in range(_MOST_PAGES):
        answer = client.ask(what.call, {**parameters, "MaxResults": size, **more})
        entries = _entries(asked, answer, what.path)
        found += entries
        token = answer.get("NextToken") or ""
        if token in tokens:
            raise _torn(asked, "a page names itself as the next one")
        if not token:
            if len(entries) >= size:
                _count(client, what, parameters, len(found))
            return _once(asked, found, what.identity)
        tokens.add(token)
        more = {"NextToken": token}
    raise _torn(asked, f"the list has more than {_MOST_PAGES} pages")


def _count(client: Client, what: List, parameters: Mapping[str, object], found: int) -> None:
    """Hold a list to the cloud's own count."""
    asked = client.name_call(what.call)
    answer = client.ask(what.call, {**parameters, "PageNumber": 1, "PageSize": 1})
    with reading(asked):
        total = int(answer["TotalCount"])
    if total != found:
        raise _torn(asked, f"{found} of {total} entries came")


def _numbers(client: Client, what: List, parameters: Mapping[str, object], size: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    asked = client.name_call(what.call)
    for page in range(1, _MOST_PAGES + 1):
        answer = client.ask(what.call, {**parameters, "PageSize": size, "PageNumber": page})
        with reading(asked):
            total, told = int(answer["TotalCount"]), int(answer.get("PageNumber", page))
        if told != page:
            raise _torn(asked, f"page {told} came for page {page}")
        entries = _entries(asked, answer, what.path)
        found += entries
        if len(found) >= total or not entries:
            break
    if len(found) != total:
        raise _torn(asked, f"{len(found)} of {total} entries came")
    return _once(asked, found, what.identity)


def _entries(asked: str, answer: dict[str, Any], path: tuple[str, ...]) -> list[dict[str, Any]]:
    with reading(asked):
        found: Any = answer
        for step in path:
            found = found[step]
        if not isinstance(found, list):
            raise TypeError
        return found


def _once(asked: str, found: list[dict[str, Any]], identity: str) -> list[dict[str, Any]]:
    """The entries, each of them once."""
    with reading(asked):
        names = [entry[identity] for entry in found]
    if len(set(names)) != len(names):
        raise _torn(asked, "an entry came twice: a page was repeated, or the list moved")
    return found


def _torn(asked: str, why: str) -> CloudUnavailableError:
    return CloudUnavailableError(f"{asked}: the list could not be had whole: {why}", code=_TORN)


def member_at(document: Mapping[str, Any], *path: str) -> Any:  # noqa: ANN401  any part of an answer
    """A member within members; None where it is not there."""
    found: Any = document
    for step in path:
        found = found.get(step) if isinstance(found, Mapping) else None
    return found


def first(values: Any) -> str | None:  # noqa: ANN401  a list of an answer
    """The first text of a list."""
    return next(iter(_texts(values)), None)


def _texts(values: Any) -> Iterator[str]:  # noqa: ANN401  likewise
    return (each for each in values or () if isinstance(each, str) and each)
