"""PURE: what gpuwatch and a driver say to each other, version 1: one JSON object in, one out.

The tables are the schema: docs/clouds/driver.schema.json is made from them. Whatever is not in them is a doubt, also a
member that is only misspelt: one that protects a machine must not be passed over. A doubt in a machine's description
makes this machine UNKNOWN, and leaves the others as they are; any other doubt is no answer.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from gpuwatch.clouds import NO_GPU
from gpuwatch.clouds.errors import (
    AuthFailedError,
    BusyError,
    ClockSkewError,
    CloudError,
    CloudUnavailableError,
    InsufficientCapacityError,
    NotFoundError,
    NotSentError,
    ProtectedError,
    QuotaExceededError,
    ThrottledError,
)
from gpuwatch.clouds.tags import claims
from gpuwatch.model.fleet import CapacityType, Node, NodeState
from gpuwatch.model.readable import legible
from gpuwatch.model.stops import LastStop
from gpuwatch.runtime.json_document import read_json

VERSION = 1
NONSENSE = "DriverAnswer"  # our own code: what the driver said is no answer
_LONGEST = 1024  # characters of a text
_LONGEST_WORDS = 300  # of an error
_MOST_TAGS = 200
_MOST_USD = 100_000  # for an hour of one machine
_ID = re.compile(r"[!-~]{1,200}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One member of an object: of which kind it is, what it says, whether it must be there."""

    kind: str
    says: str
    needed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call: what it asks for, the members of its request and of its answer besides those that all have."""

    does: str
    request: Mapping[str, Member]
    answer: Mapping[str, Member]
    change: bool = False


MACHINE: Mapping[str, Member] = {
    "id": Member(kind="id", says="The cloud's id of the machine: 1 to 200 visible ASCII characters.", needed=True),
    "state": Member(kind="state", says="Its state; unknown where the cloud's word has no such meaning.", needed=True),
    "type": Member(kind="text", says="The cloud's name of its type, as `prices` has it.", needed=True),
    "gpus": Member(kind="count", says="How many GPUs it has; 0 leaves it out, without it the number is not known."),
    "name": Member(kind="text", says="Its name for people."),
    "region": Member(kind="text", says="Its region; that of the request where one was asked for."),
    "zone": Member(kind="text", says="Its zone."),
    "tags": Member(kind="tags", says="All its tags, people's and gpuwatch's."),
    "address": Member(kind="text", says="The address at which the controller reaches it."),
    "started_at": Member(kind="time", says="Its last start; leave it out if the cloud only says when it was made."),
    "capacity": Member(kind="capacity", says="How it was bought; on_demand without it."),
    "image": Member(kind="text", says="What it was made from."),
    "local_disks": Member(kind="flag", says="Whether a stop loses data of its disks."),
    "owned_by": Member(kind="text", says="The other system that owns it, such as a cluster's autoscaler."),
    "protected": Member(kind="text", says="Why nobody may touch it."),
    "cannot_stop": Member(kind="text", says="Why the cloud would refuse a stop."),
    "cannot_terminate": Member(kind="text", says="Why the cloud would refuse its end."),
    "may_not_start": Member(kind="text", says="Why it might not start again after a stop."),
    "failed_start": Member(kind="text", says="What the cloud says of a start that failed."),
    "still_billed": Member(kind="text", says="Why a stop does not end what it costs by the hour."),
    "last_stop": Member(kind="stop", says="What the cloud shows of its last stop while it is down."),
}
# Those that a node has under the same name.
_REASONS = ("cannot_stop", "cannot_terminate", "may_not_start", "failed_start", "still_billed", "address", "image")
LAST_STOP: Mapping[str, Member] = {
    "at": Member(kind="time", says="When it was, by the cloud's clock."),
    "request": Member(kind="text", says="The cloud's id of the request that stopped it, as the answer to stop has it."),
    "other": Member(kind="text", says="Why no request of gpuwatch can have been its cause."),
}
PRICE: Mapping[str, Member] = {
    "type": Member(kind="text", says="The cloud's name of the type.", needed=True),
    "region": Member(kind="text", says="The region; without it the price holds in all regions of the request."),
    "capacity": Member(kind="capacity", says="on_demand, where it is left out, or spot."),
    "usd_per_hour": Member(kind="money", says="US dollars for an hour of one machine, as text or number.", needed=True),
}
ERROR: Mapping[str, Member] = {
    "kind": Member(kind="kind", says="What it means: one of the kinds.", needed=True),
    "code": Member(kind="text", says="The cloud's own code."),
    "message": Member(kind="text", says="The cloud's words, for people.", needed=True),
}
_MACHINE_ID = Member(kind="id", says="The machine that it is about.", needed=True)
_KEY = Member(kind="text", says="The ledger's key: the same key is the same change.", needed=True)
_DEADLINE = Member(kind="time", says="When the driver is killed: begin nothing that may end later.", needed=True)
_ACCOUNT = Member(kind="text", says="The account that has them, if the cloud says so.")
_CHANGE = {"id": _MACHINE_ID, "key": _KEY, "deadline": _DEADLINE}
_TAGS = Member(kind="tags", says="Tags to set; the others stay.", needed=True)

CALLS: Mapping[str, Call] = {
    "describe": Call(
        does="Say what the driver offers.",
        request={},
        answer={
            "name": Member(kind="text", says="The cloud's name for people.", needed=True),
            "calls": Member(kind="calls", says="The calls that the driver offers; list and get always.", needed=True),
        },
    ),
    "list": Call(
        does="List all machines of the region, whole or not at all; null: of all regions.",
        request={},
        answer={
            "machines": Member(kind="machines", says="The machines, in any order.", needed=True),
            "account": _ACCOUNT,
        },
    ),
    "get": Call(
        does="Look at one machine now.",
        request={"id": _MACHINE_ID},
        answer={
            "machine": Member(kind="machine", says="The machine; one that has ended is in the state terminated."),
            "gone": Member(kind="id", says="In place of machine: its id, where the cloud says that it has ended."),
            "account": _ACCOUNT,
        },
    ),
    "stop": Call(
        does="Ask for a stop that ends the costs by the hour; answer when the cloud has accepted it.",
        request=_CHANGE,
        answer={
            "id": _MACHINE_ID,
            "ran": Member(kind="flag", says="Whether it ran until this call, if the cloud says so."),
            "request": Member(kind="text", says="The cloud's id of this request, if last_stop shows it."),
        },
        change=True,
    ),
    "start": Call(does="Ask for a start.", request=_CHANGE, answer={"id": _MACHINE_ID}, change=True),
    "terminate": Call(does="Ask for the end of a machine.", request=_CHANGE, answer={"id": _MACHINE_ID}, change=True),
    "launch": Call(
        does="Ask for one machine with these tags from its first moment.",
        request={
            "arguments": Member(kind="tags", says="The pool's `launch`: template, version and others.", needed=True),
            "tags": _TAGS,
            "key": _KEY,
            "deadline": _DEADLINE,
        },
        answer={"key": _KEY, "id": _MACHINE_ID},
        change=True,
    ),
    "find": Call(
        does="Look for the machine that was launched with a key, by what the cloud knows of the launch.",
        request={"key": _KEY},
        answer={
            "key": _KEY,
            "machine": Member(kind="machine", says="The machine; without it the cloud shows none."),
            "account": _ACCOUNT,
        },
    ),
    "tag": Call(
        does="Set tags on one machine.", request={**_CHANGE, "tags": _TAGS}, answer={"id": _MACHINE_ID}, change=True
    ),
    "prices": Call(
        does="Say what types cost.",
        request={"types": Member(kind="texts", says="The types that are asked for.", needed=True)},
        answer={"prices": Member(kind="prices", says="What is known about them.", needed=True)},
    ),
}
ALWAYS = ("describe", "list", "get")
NEEDS = {"launch": "find"}  # an outcome that is not known could not be looked for

KINDS: Mapping[str, tuple[type[CloudError], str]] = {
    "not_found": (NotFoundError, "The cloud does not know the machine; that proves nothing."),
    "no_capacity": (InsufficientCapacityError, "There is no such machine to be had now."),
    "quota": (QuotaExceededError, "The account's own limit."),
    "throttled": (ThrottledError, "Too many calls; nothing was done."),
    "busy": (BusyError, "The machine's state does not allow it now; nothing was done."),
    "protected": (ProtectedError, "The cloud protects the machine."),
    "auth": (AuthFailedError, "Credentials missing, expired, or without the right."),
    "clock": (ClockSkewError, "The cloud does not take the request because of this machine's clock."),
    "not_sent": (NotSentError, "No connection: nothing of the request was sent."),
    "no_gpu": (CloudError, "The template makes machines without a GPU."),
    "refused": (CloudError, "Any other refusal: nothing was done."),
    "unavailable": (CloudUnavailableError, "No usable answer: nobody knows whether it was done."),
}


class _Doubt(Exception):  # noqa: N818  it is what the answer is in
    """What is wrong with an object, as the rest of a sentence about it."""


def read_answer(call: str, output: bytes, asked: str) -> dict[str, Any]:
    """The answer in a driver's output, held to the tables but for the machines in it; `asked` names the call.

    Raises:
        CloudError: the driver's own error, by its kind.
        CloudUnavailableError: it is no answer to this call.

    """
    try:
        found, error = _members_of(call, output)
    except (_Doubt, ValueError) as doubt:
        raise nonsense(asked, str(doubt)) from None
    if error is None:
        return found
    code = error.get("code", error["kind"])
    text = f"{asked}: {legible(error['message'], _LONGEST_WORDS)} ({legible(code, _LONGEST_WORDS)})"
    raise KINDS[error["kind"]][0](text, code=NO_GPU if error["kind"] == "no_gpu" else code)


def _members_of(call: str, output: bytes) -> tuple[dict[str, Any], Mapping[str, str] | None]:
    """The members of an answer, or its error; raises _Doubt, and ValueError where it is no JSON."""
    found = read_json(output)
    if not isinstance(found, dict):
        raise _Doubt("it is no JSON object")
    told, said = found.pop("gpuwatch", None), found.pop("call", None)
    if isinstance(told, bool) or told != VERSION:
        raise _Doubt(f"gpuwatch is {_show_value(told)}, and this is version {VERSION}")
    if said != call:
        raise _Doubt(f"call is {_show_value(said)}, and the call was {call!r}")
    if "error" not in found:
        _check(found, CALLS[call].answer)
        return found, None
    if set(found) != {"error"}:
        raise _Doubt("it has an error, and more")
    _check(found["error"], ERROR)
    return found, found["error"]


def nonsense(asked: str, why: str) -> CloudUnavailableError:
    """The error of an answer that cannot be believed."""
    return CloudUnavailableError(
        f"{asked}: the driver's answer cannot be used: {legible(why, _LONGEST_WORDS)}", code=NONSENSE
    )


def _check(found: object, members: Mapping[str, Member]) -> None:
    if not isinstance(found, dict):
        raise _Doubt(f"{_show_value(found)} is no object")
    for name in found:
        if name not in members:
            raise _Doubt(f"{_show_value(name)} is no member; members are: {', '.join(members)}")
    for name, member in members.items():
        if name not in found:
            if member.needed:
                raise _Doubt(f"{name} is missing")
        elif not FORMS[member.kind][0](found[name]):
            raise _Doubt(f"{name} is {_show_value(found[name])}, and not {FORMS[member.kind][1]}")


def _is_number(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def _is_text(value: object, least: int = 1) -> bool:
    return isinstance(value, str) and least <= len(value) <= _LONGEST


def _are_tags(value: object) -> bool:
    if not isinstance(value, dict) or len(value) > _MOST_TAGS:
        return False
    return all(_is_text(name) and _is_text(text, 0) for name, text in value.items())


def _is_stop(value: object) -> bool:
    _check(value, LAST_STOP)
    return True


def _is_machine(value: object) -> bool:
    """Whether it is a description with an id; all else of it is judged by `doubt_of`."""
    return isinstance(value, dict) and _is_id(value.get("id"))


def _is_id(value: object) -> bool:
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def _are_calls(value: object) -> bool:
    """Whether a list of calls has those that are always needed, and what others need."""
    if not isinstance(value, list) or not all(isinstance(each, str) and each in CALLS for each in value):
        return False
    return {"list", "get"} <= set(value) and all(other in value for each, other in NEEDS.items() if each in value)


def _is_price(value: object) -> bool:
    """Whether it is dollars above zero: a price that is not known is left out, never 0."""
    try:
        return not isinstance(value, bool) and 0 < Decimal(str(value)) <= _MOST_USD
    except ArithmeticError:
        return False


def _is_word(value: object, words: Iterable[str]) -> bool:
    return isinstance(value, str) and value in list(words)


# Hosts of one's own are of the provider `hosts`: they cost their price for as long as they are named.
CAPACITIES = tuple(each for each in CapacityType if each is not CapacityType.OWN)

# The kinds of members: whether a value is of it, and what it should be, for people.
FORMS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "id": (_is_id, "1 to 200 visible ASCII characters"),
    "text": (_is_text, f"a text of 1 to {_LONGEST} characters"),
    "flag": (lambda value: isinstance(value, bool), "true or false"),
    "count": (lambda value: _is_number(value, _LONGEST), f"a number from 0 to {_LONGEST}"),
    "time": (lambda value: _time(value) is not None, "a time with its zone, such as 2026-01-31T18:00:00Z"),
    "tags": (_are_tags, f"an object of at most {_MOST_TAGS} texts"),
    "state": (lambda value: _is_word(value, NodeState), f"one of {', '.join(NodeState)}"),
    "capacity": (lambda value: _is_word(value, CAPACITIES), f"one of {', '.join(CAPACITIES)}"),
    "kind": (lambda value: _is_word(value, KINDS), f"one of {', '.join(KINDS)}"),
    "calls": (_are_calls, f"a list of {', '.join(CALLS)}, with list and get, and find if there is launch"),
    "stop": (_is_stop, "an object"),
    "machine": (_is_machine, "a machine with its id"),
    "machines": (lambda value: isinstance(value, list) and all(map(_is_machine, value)), "a list of machines with ids"),
    "money": (_is_price, f"dollars above 0, and at most {_MOST_USD}"),
    "prices": (lambda value: isinstance(value, list), "a list of prices"),
}


def _time(value: object) -> datetime | None:
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return None if found is None or found.tzinfo is None else found


def _show_value(value: object) -> str:
    """A value for people, short."""
    return legible(repr(value), 60)


def doubt_of(said: Any, region: str | None = None, members: Mapping[str, Member] = MACHINE) -> str | None:  # noqa: ANN401  JSON
    """What is wrong with the description of a machine or a price, as the rest of a sentence; None: nothing is."""
    try:
        _check(said, members)
    except _Doubt as doubt:
        return str(doubt)
    if region is not None and said.get("region", region) != region:
        return f"it is in {said['region']}, and {region} was asked for"
    return None


def node_of(machine: Mapping[str, Any], *, region: str | None, account: str | None, fleet: str, now: datetime) -> Node:
    """A machine in our words; in the state UNKNOWN where its description is in doubt."""
    doubt = doubt_of(machine, region)
    if doubt is not None:
        return Node(
            id=machine["id"],
            name=machine["id"],
            pool=claims({}, fleet=fleet, now=now)["pool"],
            state=NodeState.UNKNOWN,
            instance_type="",
            gpu_count=None,
            region=region or "",
            zone="",
            account=account,
            announced=None,
            unseen=f"the driver's description of it cannot be used: {doubt}",
        )
    tags: Mapping[str, str] = machine.get("tags", {})
    claimed = claims(tags, fleet=fleet, now=now)
    claimed["protected"] = claimed["protected"] or machine.get("protected")
    started, stop = machine.get("started_at"), machine.get("last_stop")
    reasons: dict[str, Any] = {name: machine.get(name) for name in _REASONS}
    return Node(
        id=machine["id"],
        name=machine.get("name", machine["id"]),
        state=NodeState(machine["state"]),
        instance_type=machine["type"],
        gpu_count=machine.get("gpus"),
        region=machine.get("region", region or ""),
        zone=machine.get("zone", ""),
        account=account,
        tags=dict(tags),
        launched_at=None if started is None else _time(started),
        capacity_type=CapacityType(machine.get("capacity", CapacityType.ON_DEMAND)),
        instance_store=machine.get("local_disks", False),
        managed_by=machine.get("owned_by"),
        last_stop=None if stop is None else LastStop(**(stop | {"at": _time(stop.get("at"))})),
        announced=None,
        **reasons,
        **claimed,
    )
