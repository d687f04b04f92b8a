"""What a round saw and said, as bytes: encoded piece by piece, so that memory does not grow with the fleet's text."""

import hashlib
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import msgspec

from gpuwatch.guard.settings import Rulebook
from gpuwatch.ledger.cluster_snapshots import Base, stored_node, stored_view, whole_view
from gpuwatch.ledger.records import LedgerError, PastRound, with_present_code
from gpuwatch.model.activity import Evidence, State
from gpuwatch.model.decision import Decision, Observation, Proposal, Review, Step
from gpuwatch.model.evidence_text import newest_reset
from gpuwatch.model.fleet import DEFAULT_POOL, Fleet, Node

V1 = 1  # of schema 1: zlib over JSON of the observation, and of the reviews, each after its length
V2 = 2  # as PIECES, with the field names in _FORMER_NAMES
ON_BASE = 4  # as PIECES; machines that the last piece does not name have the node objects of its base
PIECES = 3  # zlib over MessagePack pieces, each after its length: the observation without nodes, the rules, nodes, …
_IN_PIECES = frozenset({V2, PIECES, ON_BASE})
_NODES_PER_PIECE = 100
_LENGTH_BYTES = 4
_SAID = 3  # pieces after the nodes: proposals, decisions, reviews; then the digests of the gaps
_LEVEL = 1  # of zlib: 3 takes a third longer for 3 % less

# Former names of fields, by what holds them, and former values of actions.
_FORMER_NAMES: dict[str, dict[str, str]] = {
    "ledger": {"keeps": "snoozes"},
    "limits": {"require_told": "require_notification"},
    "idle": {
        "after": "timeout",
        "then": "action",
        "notice": "grace_period",
        "requires": "required_evidence",
        "snooze_max": "max_snooze",
        "parked_after": "parked_timeout",
        "stalled_after": "stalled_timeout",
    },
    "window": {"at_least": "min_nodes", "at_most": "max_nodes", "after": "idle_timeout"},
    "proposal": {
        "want": "desired_nodes",
        "wish": "raw_desired_nodes",
        "at_least": "min_nodes",
        "at_most": "max_nodes",
    },
}
_FORMER_ACTIONS = {"tell": "report"}
_PROFILES = "profiles"  # in rules that were written since pools have profiles
# What was in force before that where nothing else is written; idle nodes of the pool `default` were always stopped.
_FORMER_IDLE = {
    "timeout": 1800.0,
    "grace_period": 600.0,
    "occupied": "report",
    "parked": "report",
    "parked_timeout": 14400.0,
    "stalled": "report",
    "stalled_timeout": 14400.0,
}

_ITS_NODES = Evidence(name="=", says=State.UNKNOWN, observed=None, limit=None, unit="", source="its node's evidence")


Said = tuple[Sequence[Proposal], Sequence[Decision], Sequence[Review], Mapping[str, str]]  # what `encode` takes


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """The round that a body rests on, and the machines of which that one alone has the node objects."""

    base: int
    shared: frozenset[str]


class _LastPiece(msgspec.Struct):
    """Of ON_BASE: the round that it rests on, and the places of machines that do not."""

    base: int
    own: list[int]


def encode(
    observation: Observation,
    rulebook: Rulebook | None,
    proposals: Sequence[Proposal],
    decisions: Sequence[Decision],
    reviews: Sequence[Review],
    gaps: Mapping[str, str] | None = None,
    *,
    rest: Rest | None = None,
) -> bytes:
    """A round's body; `gaps` are the digests of what pools know of their gaps after it. With a `rest` it is ON_BASE."""
    squeeze = zlib.compressobj(_LEVEL)
    pieces = [
        *_pieces(
            observation, rulebook, proposals, decisions, reviews, rest.shared if rest is not None else frozenset()
        ),
        msgspec.msgpack.encode(dict(gaps or {})),
    ]
    if rest is not None:
        own = [place for place, node in enumerate(observation.fleet.nodes) if node.id not in rest.shared]
        pieces.append(msgspec.msgpack.encode(_LastPiece(base=rest.base, own=own)))
    return b"".join([*(squeeze.compress(_frame_piece(piece)) for piece in pieces), squeeze.flush()])


def digest(gaps: bytes) -> str:
    """Of what a pool knows."""
    return hashlib.sha256(gaps).hexdigest()


def wishes(round_id: int, codec: int, body: bytes) -> Iterator[tuple[str, str, int]]:
    """Pool, policy and number of each wish in a round; raises as `decode`."""
    if codec not in _IN_PIECES:
        return
    try:
        pieces = _unframe_pieces(zlib.decompress(body))
        for _ in iter(lambda: next(pieces), b""):
            pass
        proposals = _decode_proposals(next(pieces), codec)
    except (zlib.error, msgspec.MsgspecError, StopIteration) as error:
        raise _unreadable(round_id, error) from error
    yield from (
        (each.pool, each.policy, each.raw_desired_nodes) for each in proposals if each.raw_desired_nodes is not None
    )


def gaps(codec: int, body: bytes) -> dict[str, str] | None:
    """The digests of what pools knew after a round; None of a round of an older gpuwatch."""
    if codec not in _IN_PIECES:
        return None
    pieces = _unframe_pieces(zlib.decompress(body))
    for _ in iter(lambda: next(pieces), b""):
        pass
    parts = list(pieces)
    return msgspec.msgpack.decode(parts[_SAID], type=dict[str, str]) if len(parts) > _SAID else None


def decode(
    round_id: int, at: datetime, codec: int, body: bytes, base_of: Callable[[int], Base] | None = None
) -> PastRound:
    """The round of a body; `base_of` gives what bodies ON_BASE rest on.

    Raises:
        LedgerError: a later gpuwatch wrote it, it is damaged, or what it rests on is gone.

    """
    try:
        if codec == V1:
            return _decode_v1(round_id, at, body)
        if codec in _IN_PIECES:
            return _decode_pieces(round_id, at, codec, body, base_of)
    except (zlib.error, msgspec.MsgspecError, StopIteration) as error:
        raise _unreadable(round_id, error) from error
    raise LedgerError(
        f"round {round_id} is written in codec {codec}, which this gpuwatch does not know; use a later one"
    )


def _unreadable(round_id: int, error: Exception) -> LedgerError:
    return LedgerError(f"round {round_id} cannot be read: {error}; `gpuwatch audit verify` says more")


def frame_v1(observation: bytes, reviews: bytes) -> bytes:
    """The two bodies of a round of schema 1 as one."""
    return _frame_piece(observation) + _frame_piece(reviews)


def _pieces(
    observation: Observation,
    rulebook: Rulebook | None,
    proposals: Sequence[Proposal],
    decisions: Sequence[Decision],
    reviews: Sequence[Review],
    shared: Collection[str],
) -> Iterator[bytes]:
    """MessagePack, one piece at a time."""
    encode_ = msgspec.msgpack.Encoder().encode
    fleet = observation.fleet
    nodes = fleet.nodes
    yield encode_(replace(observation, fleet=replace(fleet, nodes=(), cluster=stored_view(fleet.cluster, nodes))))
    yield encode_(None if rulebook is None else {**msgspec.to_builtins(rulebook), _PROFILES: True})
    for first in range(0, len(nodes), _NODES_PER_PIECE):
        part = nodes[first : first + _NODES_PER_PIECE]
        yield encode_([_node_to_store(replace(node, kubernetes=None) if node.id in shared else node) for node in part])
    yield b""
    yield encode_([replace(each, steps=_steps(each.steps, _without_evidence, fleet)) for each in proposals])
    yield encode_([replace(each, steps=_steps(each.steps, _without_evidence, fleet)) for each in decisions])
    yield encode_([replace(each, step=_without_evidence(each.step, fleet)) for each in reviews])


def _node_to_store(node: Node) -> Node:
    """The node with the newest of what was busy on it: all 16 would make a round two and a half times as large."""
    node = stored_node(node)
    verdict = node.verdict
    if verdict is None or len(verdict.last_busy) < 2:  # noqa: PLR2004  more than the newest
        return node
    newest = newest_reset(verdict.last_busy)
    kept = replace(verdict, last_busy=() if newest is None else (newest,))
    return replace(node, signal=replace(node.signal, verdict=kept))


def _steps(steps: Sequence[Step], change: Callable[[Step, Fleet], Step], fleet: Fleet) -> tuple[Step, ...]:
    return tuple(change(step, fleet) for step in steps)


def _without_evidence(step: Step, fleet: Fleet) -> Step:
    """The step without the evidence that its node holds already: most of a round, and three times over."""
    node = fleet.find(step.node_id)
    if node is None or not step.reason.evidence or step.reason.evidence != node.activity.evidence:
        return step
    return replace(step, reason=replace(step.reason, evidence=(_ITS_NODES,)))


def _with_evidence(step: Step, fleet: Fleet) -> Step:
    """The step as it was, by the name that its reason's code has today."""
    step = _with_present_code(step)
    node = fleet.find(step.node_id)
    if node is None or step.reason.evidence != (_ITS_NODES,):
        return step
    return replace(step, reason=replace(step.reason, evidence=node.activity.evidence))


def _with_present_code(step: Step) -> Step:
    """The same step, unless its reason's code has another name by now: most are let through as they are."""
    reason = with_present_code(step.reason)
    return step if reason is step.reason else replace(step, reason=reason)


def nodes(round_id: int, codec: int, body: bytes) -> list[Node]:
    """The machines of a whole body; raises as `decode`."""
    if codec != PIECES:
        raise LedgerError(f"round {round_id} is in codec {codec}, and later ones rest on it; restore the ledger")
    try:
        pieces = _unframe_pieces(zlib.decompress(body))
        next(pieces)
        next(pieces)
        found: list[Node] = []
        for piece in iter(lambda: next(pieces), b""):
            found.extend(msgspec.msgpack.decode(piece, type=list[Node]))
    except (zlib.error, msgspec.MsgspecError, StopIteration) as error:
        raise _unreadable(round_id, error) from error
    return found


def _decode_pieces(
    round_id: int, at: datetime, codec: int, body: bytes, base_of: Callable[[int], Base] | None
) -> PastRound:
    """Of codec V2, PIECES or ON_BASE."""
    pieces = _unframe_pieces(zlib.decompress(body))
    observation = msgspec.msgpack.decode(_piece(next(pieces), codec, _rename_in_observation), type=Observation)
    rulebook = _decode_rulebook(next(pieces), codec)
    machines: list[Node] = []
    for piece in iter(lambda: next(pieces), b""):
        machines.extend(msgspec.msgpack.decode(piece, type=list[Node]))
    proposals = _decode_proposals(next(pieces), codec)
    decisions = msgspec.msgpack.decode(next(pieces), type=tuple[Decision, ...])
    reviews = msgspec.msgpack.decode(next(pieces), type=tuple[Review, ...])
    if codec == ON_BASE:
        machines = _rest_on_base(round_id, machines, list(pieces)[-1], base_of)
    fleet = replace(observation.fleet, nodes=tuple(machines), cluster=whole_view(observation.fleet.cluster, machines))
    return PastRound(
        id=round_id,
        at=at,
        observation=replace(observation, fleet=fleet),
        rulebook=rulebook,
        proposals=tuple(replace(each, steps=_steps(each.steps, _with_evidence, fleet)) for each in proposals),
        decisions=tuple(replace(each, steps=_steps(each.steps, _with_evidence, fleet)) for each in decisions),
        reviews=tuple(replace(each, step=_with_evidence(each.step, fleet)) for each in reviews),
    )


def _rest_on_base(
    round_id: int, machines: list[Node], piece: bytes, base_of: Callable[[int], Base] | None
) -> list[Node]:
    """The machines with the node objects of the base, but for those with their own."""
    rest = msgspec.msgpack.decode(piece, type=_LastPiece)
    if base_of is None:
        raise LedgerError(f"round {round_id} rests on round {rest.base}, which is not at hand")
    base, own = base_of(rest.base), frozenset(rest.own)
    return [
        node if place in own else replace(node, kubernetes=base.nodes.get(node.id))
        for place, node in enumerate(machines)
    ]


def _decode_rulebook(piece: bytes, codec: int) -> Rulebook | None:
    """The rules of a round; None: it had none."""
    kind: Any = Rulebook | None  # a union is no type to the type checker
    content = msgspec.msgpack.decode(_piece(piece, codec, _rename_in_rulebook))
    if content is not None and _PROFILES not in content:
        _before_profiles(content)
    _before_fresh_pools(content)
    rulebook: Rulebook | None = msgspec.msgpack.decode(msgspec.msgpack.encode(content), type=kind)
    return rulebook


def _before_profiles(rulebook: dict[str, Any]) -> None:
    """The rules as they were meant: somebody's nodes were reported, and had no grace of their own."""
    pools = rulebook.setdefault("pools", {})
    pools.setdefault(DEFAULT_POOL, {})
    for rules in pools.values():
        rules["profile"] = "cautious"
        idle = rules["idle"] = _FORMER_IDLE | rules.get("idle", {})
        idle["owner_grace_period"] = idle["grace_period"]


def _before_fresh_pools(rulebook: dict[str, Any] | None) -> None:
    """The rules as they were meant: waits did not depend on what the pool had shown, nor graces on the wait."""
    for rules in ({} if rulebook is None else rulebook.get("pools", {})).values():
        idle = rules.get("idle", {})
        idle.setdefault("fresh_timeout", None)
        idle.setdefault("timeout", 1800.0)
        idle.setdefault("unattended_grace_period", idle.get("grace_period", 600.0))
        rules["idle"] = idle


def _decode_proposals(piece: bytes, codec: int) -> tuple[Proposal, ...]:
    """The proposals of a round."""
    return msgspec.msgpack.decode(_piece(piece, codec, _rename_in_proposals), type=tuple[Proposal, ...])


def _piece(piece: bytes, codec: int, rename: Callable[[Any], None]) -> bytes:
    """The piece with the present names of its fields."""
    if codec == PIECES:
        return piece
    content = msgspec.msgpack.decode(piece)
    rename(content)
    return msgspec.msgpack.encode(content)


def _rename_in_observation(observation: dict[str, Any]) -> None:
    _rename(observation.get("ledger"), "ledger")


def _rename_in_rulebook(rulebook: dict[str, Any] | None) -> None:
    if rulebook is None:
        return
    _rename(rulebook.get("limits"), "limits")
    for rules in rulebook.get("pools", {}).values():
        idle = rules.get("idle", {})
        _rename(idle, "idle")
        for key in {"action", "parked", "stalled"} & idle.keys():
            idle[key] = _FORMER_ACTIONS.get(idle[key], idle[key])
        for window in rules.get("schedule", {}).values():
            _rename(window, "window")


def _rename_in_proposals(proposals: list[dict[str, Any]]) -> None:
    for proposal in proposals:
        _rename(proposal, "proposal")


def _rename(fields: dict[str, Any] | None, kind: str) -> None:
    """Former names become the present ones."""
    for old, new in _FORMER_NAMES[kind].items():
        if fields is not None and old in fields:
            fields[new] = fields.pop(old)


def _decode_v1(round_id: int, at: datetime, body: bytes) -> PastRound:
    """Of codec V1: proposals and decisions were not kept."""
    seen, decided = (zlib.decompress(part) for part in _unframe_pieces(body))
    reviews = msgspec.json.decode(decided, type=tuple[Review, ...])
    return PastRound(
        id=round_id,
        at=at,
        observation=msgspec.json.decode(seen, type=Observation),
        rulebook=None,
        proposals=(),
        decisions=(),
        reviews=tuple(replace(each, step=_with_present_code(each.step)) for each in reviews),
    )


def _frame_piece(piece: bytes) -> bytes:
    """A piece after its length."""
    return len(piece).to_bytes(_LENGTH_BYTES, "big") + piece


def _unframe_pieces(raw: bytes) -> Iterator[bytes]:
    """The pieces of a text of pieces."""
    at = 0
    while at < len(raw):
        size = int.from_bytes(raw[at : at + _LENGTH_BYTES], "big")
        at += _LENGTH_BYTES
        yield raw[at : at + size]
        at += size
