"""One object that cannot be read costs what depends on it, and no other: it is kept as protected, with the reason.

Anybody who may make a pod decides what most of its fields say. The API server checks them by its own version's rules,
which are not the ones here. A whole list is not given up for one of its objects; only an object that does not even say
which one it is ends the list, as nobody knows then what is missing.
"""

import logging
import re
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import msgspec

from gpuwatch.kubernetes.claims import ClaimFacts, VolumeFacts
from gpuwatch.kubernetes.disruptions import BudgetFacts
from gpuwatch.kubernetes.facts import NodeFacts, OwnerFacts, PodFacts, version_number
from gpuwatch.kubernetes.objects import LabelSelector
from gpuwatch.model.bounds import BoundedText, bounded_text
from gpuwatch.model.kubernetes import PROTECT, Pod, PodPhase

_LOG = logging.getLogger(__name__)

_Facts = TypeVar("_Facts")
# What decoding others' JSON, and making facts of it, may raise.
UNREADABLE = (msgspec.MsgspecError, UnicodeError, ArithmeticError, LookupError, RecursionError, TypeError, ValueError)

_MOST_DEPTH = 100  # of an object; a pod's own fields are some fifteen deep
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
_HIGH, _LOW = rb"[dD][89abAB][0-9a-fA-F]{2}", rb"[dD][c-fC-F][0-9a-fA-F]{2}"
_ESCAPE = re.compile(rb"\\u" + _HIGH + rb"\\u" + _LOW + rb"|\\u(?:" + _HIGH + rb"|" + _LOW + rb")|\\.", re.DOTALL)
_HALF = len(rb"\ud800")


class _Who(msgspec.Struct, rename="camel"):
    """The least that has to be known of an object."""

    name: BoundedText
    uid: BoundedText
    namespace: BoundedText = ""
    resource_version: BoundedText = ""


class _Where(msgspec.Struct, rename={"node": "nodeName", "provider_id": "providerID"}):
    """The place of a pod, or the machine of a node."""

    node: BoundedText = ""
    provider_id: BoundedText = ""


class _Least(msgspec.Struct):
    """An object of any kind."""

    metadata: _Who
    spec: _Where | None = None


_LEAST = msgspec.json.Decoder(_Least)


def read_or_protect(
    item: bytes, read: Callable[[bytes], _Facts | None], protect: Callable[[bytes, str], _Facts]
) -> _Facts | None:
    """The facts of an object; where they cannot be read, those by which it is left alone.

    Raises:
        CloudError, or one of UNREADABLE: it does not say which object it is.

    """
    try:
        return read(item)
    except UNREADABLE as error:
        why = bounded_text(f"{type(error).__name__}: {error}")
        found = protect(item, why)
        _LOG.warning("An object of the cluster cannot be read, and is left alone: %s (%s)", found, why)
        return found


def decode_whole(body: bytes, decoder: msgspec.json.Decoder[_Facts]) -> _Facts:
    """Read an answer with many objects, also where one of them would make all of it unreadable.

    Who may make objects of a kind that takes any fields decides how deep they are, and one list holds others' objects,
    too.

    Raises:
        msgspec.MsgspecError, UnicodeDecodeError, RecursionError: it is not what was asked for.

    """
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return decoder.decode(_mend_json(body))


def _mend_json(body: bytes) -> bytes:
    """The same JSON with null in the place of what is too deep, and a question mark in that of half a character."""
    kept: list[bytes] = []
    depth = begin = 0
    for found in _TOKEN.finditer(body):
        if found[0] in {b"[", b"{"}:
            depth += 1
            if depth == _MOST_DEPTH + 1:
                kept += [body[begin : found.start()], b"null"]
        elif found[0] in {b"]", b"}"}:
            begin = found.end() if depth == _MOST_DEPTH + 1 else begin
            depth -= 1
    shallow = b"".join([*kept, body[begin:]])
    return _ESCAPE.sub(lambda found: b"?" if len(found[0]) == _HALF else found[0], shallow)


def least_of(item: bytes) -> tuple[str, str, str, int]:
    """Name, namespace, uid and version of an object, whatever else it says."""
    who = _LEAST.decode(item).metadata
    return who.name, who.namespace, who.uid, version_number(who.resource_version)


def draw_or_protect(draw: Callable[[PodFacts], Pod], pod: PodFacts) -> Pod:
    """A pod with what stands above it; where that makes no sense, the pod alone, which is left alone."""
    try:
        return draw(pod)
    except UNREADABLE as error:
        why = bounded_text(f"{type(error).__name__}: {error}")
        _LOG.warning(
            "What stands above the pod %s/%s cannot be read, and it is left alone: %s", pod.namespace, pod.name, why
        )
        bare = replace(pod, owner=None, created_at=None, ends_at=None, placement=None, annotations=_protection(why))
        return draw(bare)


def protected_pod(item: bytes, why: str) -> PodFacts:
    """A pod that may hold a GPU of its node, and is not to be touched."""
    least = _LEAST.decode(item)
    who = least.metadata
    return PodFacts(
        namespace=who.namespace,
        name=who.name,
        uid=who.uid,
        version=version_number(who.resource_version),
        phase=PodPhase.UNKNOWN,
        node=(least.spec or _Where()).node or None,
        gpus=1.0,
        created_at=None,
        ends_at=None,
        owner=None,
        mirror=False,
        local_data=None,
        unschedulable=None,
        placement=None,
        annotations=_protection(why),
        ready=False,
    )


def protected_node(item: bytes, why: str) -> NodeFacts:
    """A node that is not to be touched, by all that names its machine."""
    least = _LEAST.decode(item)
    who = least.metadata
    return NodeFacts(
        name=who.name,
        uid=who.uid,
        version=version_number(who.resource_version),
        provider_id=(least.spec or _Where()).provider_id,
        system_uuid="",
        addresses=(),
        ready=False,
        unschedulable=False,
        gpus=None,
        labels={},
        taints=(),
        annotations=_protection(why),
    )


def protected_owner(item: bytes, why: str) -> OwnerFacts:
    """Make an owner, or a namespace, that protects all its pods."""
    who = _LEAST.decode(item).metadata
    return OwnerFacts(
        namespace=who.namespace,
        name=who.name,
        uid=who.uid,
        version=version_number(who.resource_version),
        owner=None,
        annotations=_protection(why),
    )


def refusing_budget(item: bytes, why: str) -> BudgetFacts:
    """Make a budget that allows no eviction in its namespace, as its own pods are not known."""
    del why
    who = _LEAST.decode(item).metadata
    return BudgetFacts(
        namespace=who.namespace,
        name=who.name,
        uid=who.uid,
        version=version_number(who.resource_version),
        selector=LabelSelector(),
        allowed=0,
        healthy=0,
        needed=0,
        unhealthy_may_go=False,
    )


def doubtful_volume(item: bytes, why: str) -> VolumeFacts:
    """Make a volume of a machine's disk."""
    del why
    who = _LEAST.decode(item).metadata
    return VolumeFacts(
        name=who.name,
        uid=who.uid,
        version=version_number(who.resource_version),
        phase="Unknown",
        kept=True,
        claim=None,
        of_host=True,
        driver="",
        alternatives=(),
    )


def doubtful_claim(item: bytes, why: str) -> ClaimFacts:
    """Make a claim that is not known to be bound."""
    del why
    who = _LEAST.decode(item).metadata
    return ClaimFacts(
        namespace=who.namespace,
        name=who.name,
        uid=who.uid,
        version=version_number(who.resource_version),
        phase="Unknown",
        volume="",
        one_node=True,
        annotations={},
    )


def _protection(why: str) -> dict[str, str]:
    return {PROTECT: f"it cannot be read ({why})"}
