"""What a round saw and said, as bytes: encoded piece by piece, so that memory does not grow with the fleet's text."""

import hashlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from io import BytesIO
from itertools import accumulate, chain, islice
from typing import Any, TypeVar

import msgspec

from gpuwatch.guard.settings import Rulebook
from gpuwatch.ledger.former_rounds import PROFILES, decode_observation, decode_proposals, decode_rulebook
from gpuwatch.ledger.records import LedgerError, PastRound, with_present_code
from gpuwatch.ledger.unchanged import Line, node_of, step_of, stored_node, stored_view, whole_view
from gpuwatch.model.activity import Evidence, State
from gpuwatch.model.decision import Decision, Observation, Proposal, Reason, Review, Step
from gpuwatch.model.evidence_text import newest_reset
from gpuwatch.model.fleet import Fleet, Node

V1 = 1  # of schema 1: zlib over JSON of the observation, and of the reviews, each after its length
V2 = 2  # as PIECES, with the field names in _FORMER_NAMES
ON_BASE = 4  # as PIECES; machines that the last piece does not name have the node objects of its base
CHANGES = 5  # as ON_BASE; machines that work as they did are lines, after the last piece
PIECES = 3  # zlib over MessagePack pieces, each after its length: the observation without nodes, the rules, nodes, …
_IN_PIECES = frozenset({V2, PIECES, ON_BASE, CHANGES})
_NODES_PER_PIECE = 100
_LINES_PER_PIECE = 1000
_LENGTH_BYTES = 4
_SAID = 3  # pieces after the nodes: proposals, decisions, reviews; then the digests of the gaps
_LEVEL = 1  # of zlib: 3 takes a third longer for 3 % less

_Said = TypeVar("_Said", Proposal, Decision)
_Kept = TypeVar("_Kept", Node, Step)
_BY_ITS_NODE = (
    Evidence(name="=", says=State.UNKNOWN, observed=None, limit=None, unit="", source="its node's evidence"),
)
_LONG_ARRAY = b"\xdd"  # of MessagePack; its length follows in four bytes


Said = tuple[Sequence[Proposal], Sequence[Decision], Sequence[Review], Mapping[str, str]]  # what `encode` takes


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """The round that a body rests on, the machines of which that one alone has the node objects, and the lines."""

    base: int
    shared: frozenset[str]
    lines: Mapping[str, Line]


class _Order(msgspec.Struct, array_like=True):
    """The places of steps that are kept whole; the others are those of lines, each so many lines after the last."""

    whole: list[int]
    lines: list[int]


class _LastPiece(msgspec.Struct):
    """Of ON_BASE: the round that it rests on, and the places of machines that do not. The rest is of CHANGES.

    `whole` are the places of machines without a line, `proposed` and `decided` the order of the steps.
    """

    base: int
    own: list[int]
    whole: list[int] = []
    proposed: list[_Order] = []
    decided: list[_Order] = []


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
    """A round's body; `gaps` are the digests of what pools know of their gaps after it. With a `rest` it is CHANGES."""
    rest = rest or Rest(base=0, shared=frozenset(), lines={})
    numbers = {node_id: number for number, node_id in enumerate(rest.lines)}
    of_lines = {id(step): numbers[step.node_id] for each in decisions for step in each.steps if step.node_id in numbers}
    orders: dict[int, _Order] = {}  # of the steps with that id: one policy's are those that were decided, untouched
    proposed, decided = (
        [orders.get(id(each.steps)) or orders.setdefault(id(each.steps), _order(each.steps, of_lines)) for each in said]
        for said in (proposals, decisions)
    )
    said = _whole(proposals, proposed), _whole(decisions, decided)
    squeeze, content = zlib.compressobj(_LEVEL), BytesIO()  # whose value is no copy
    for piece in chain(
        _pieces(observation, rulebook, *said, reviews, rest),
        [[msgspec.msgpack.encode(dict(gaps or {}))]],
        _line_pieces(observation, rest, proposed, decided) if rest.base else (),
    ):
        for part in (_length_of(piece), *piece):  # a piece may be large, and is never put together
            content.write(squeeze.compress(part))
    content.write(squeeze.flush())
    return content.getvalue()


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
        proposals = decode_proposals(next(pieces), former_names=codec == V2)
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
    round_id: int, at: datetime, codec: int, body: bytes, base_of: Callable[[int], PastRound] | None = None
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
    rest: Rest,
) -> Iterator[Sequence[bytes]]:
    """MessagePack, one piece at a time; what its parts are does not matter to who reads it."""
    encode_ = msgspec.msgpack.Encoder().encode
    fleet, shared = observation.fleet, rest.shared
    nodes = fleet.nodes
    yield [encode_(replace(observation, fleet=replace(fleet, nodes=(), cluster=stored_view(fleet.cluster, nodes))))]
    yield [encode_(None if rulebook is None else {**msgspec.to_builtins(rulebook), PROFILES: True})]
    whole = [node for node in nodes if node.id not in rest.lines] if rest.lines else nodes
    for first in range(0, len(whole), _NODES_PER_PIECE):
        part = whole[first : first + _NODES_PER_PIECE]
        made = [_node_to_store(replace(node, kubernetes=None) if node.id in shared else node) for node in part]
        yield [encode_(made)]
    yield []
    encoded: dict[int, Any] = {}  # each step of a body that rests on another; of whole bodies there are too many

    def written(step: Step) -> Any:  # noqa: ANN401  MessagePack in its place, or the step
        known = encoded.get(id(step))
        if known is None:
            known = _without_evidence(step, fleet)
            if rest.base:
                known = encoded[id(step)] = msgspec.Raw(encode_(known))
        return known

    yield _array(replace(each, steps=tuple(map(written, each.steps))) for each in proposals)
    yield _array(replace(each, steps=tuple(map(written, each.steps))) for each in decisions)
    yield _array(replace(each, step=written(each.step)) for each in reviews)


def _array(values: Iterable[object]) -> list[bytes]:
    """The MessagePack of a list of these: each is made and encoded before the next, so that few of them are there."""
    parts = list(map(msgspec.msgpack.Encoder().encode, values))
    return [_LONG_ARRAY + len(parts).to_bytes(_LENGTH_BYTES, "big"), *parts]


def _line_pieces(
    observation: Observation, rest: Rest, proposed: list[_Order], decided: list[_Order]
) -> Iterator[Sequence[bytes]]:
    """What a body that rests on another holds besides: where everything belongs, and the lines."""
    nodes = observation.fleet.nodes
    last = _LastPiece(
        base=rest.base,
        own=[place for place, node in enumerate(nodes) if node.id not in rest.shared],
        whole=[place for place, node in enumerate(nodes) if node.id not in rest.lines],
        proposed=proposed,
        decided=decided,
    )
    yield [msgspec.msgpack.encode(last)]
    lines = list(rest.lines.values())
    for first in range(0, len(lines), _LINES_PER_PIECE):
        yield [msgspec.msgpack.encode(lines[first : first + _LINES_PER_PIECE])]


def _order(steps: Sequence[Step], of_lines: Mapping[int, int]) -> _Order:
    """Which of the steps are those of lines: the very steps that were decided about their machines."""
    whole, lines, last = [], [], -1
    for place, number in enumerate(map(of_lines.get, map(id, steps))):
        if number is None:
            whole.append(place)
        else:
            lines.append(number - last)
            last = number
    return _Order(whole=whole, lines=lines)


def _whole(said: Sequence[_Said], orders: Sequence[_Order]) -> list[_Said]:
    """What was said, without the steps of lines."""
    return [
        replace(each, steps=tuple([each.steps[place] for place in order.whole])) if order.lines else each
        for each, order in zip(said, orders, strict=True)
    ]


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
    reason = step.reason
    if node is None or not reason.evidence or reason.evidence != node.activity.evidence:
        return step
    # By name: `replace` takes three times as long, and this is of each machine that is kept whole.
    said = Reason(code=reason.code, sentence=reason.sentence, evidence=_BY_ITS_NODE)
    return Step(node_id=step.node_id, verb=step.verb, reason=said, change=step.change, arguments=step.arguments)


def _with_evidence(step: Step, fleet: Fleet) -> Step:
    """The step as it was, by the name that its reason's code has today."""
    step = _with_present_code(step)
    node = fleet.find(step.node_id)
    if node is None or step.reason.evidence != _BY_ITS_NODE:
        return step
    return replace(step, reason=replace(step.reason, evidence=node.activity.evidence))


def _with_present_code(step: Step) -> Step:
    """The same step, unless its reason's code has another name by now: most are let through as they are."""
    reason = with_present_code(step.reason)
    return step if reason is step.reason else replace(step, reason=reason)


def decode_base(round_id: int, at: datetime, codec: int, body: bytes) -> PastRound:
    """The round of a whole body, on which others rest; raises as `decode`."""
    if codec != PIECES:
        raise LedgerError(f"round {round_id} is in codec {codec}, and later ones rest on it; restore the ledger")
    return decode(round_id, at, codec, body)


def _decode_pieces(
    round_id: int, at: datetime, codec: int, body: bytes, base_of: Callable[[int], PastRound] | None
) -> PastRound:
    """Of any codec in pieces."""
    pieces, former = _unframe_pieces(zlib.decompress(body)), codec == V2
    observation = decode_observation(next(pieces), former_names=former)
    rulebook = decode_rulebook(next(pieces), former_names=former)
    machines: list[Node] = []
    for piece in iter(lambda: next(pieces), b""):
        machines.extend(msgspec.msgpack.decode(piece, type=list[Node]))
    proposals = decode_proposals(next(pieces), former_names=former)
    decisions = msgspec.msgpack.decode(next(pieces), type=tuple[Decision, ...])
    reviews = msgspec.msgpack.decode(next(pieces), type=tuple[Review, ...])
    if codec in {ON_BASE, CHANGES}:
        next(pieces)  # the digests
        rest = msgspec.msgpack.decode(next(pieces), type=_LastPiece)
        if base_of is None:
            raise LedgerError(f"round {round_id} rests on round {rest.base}, which is not at hand")
        base = base_of(rest.base)
        lines = [line for piece in pieces for line in msgspec.msgpack.decode(piece, type=list[Line])]
        if codec == CHANGES:
            same, machines = _with_lines(machines, rest.whole, lines, base)
            proposals = tuple(map(partial(_with_steps, same), proposals, rest.proposed))
            decisions = tuple(map(partial(_with_steps, same), decisions, rest.decided))
        own, objects = frozenset(rest.own), {node.id: node.kubernetes for node in base.observation.fleet.nodes}
        machines = [
            node if place in own else replace(node, kubernetes=objects.get(node.id))
            for place, node in enumerate(machines)
        ]
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


def _with_lines(
    whole: Sequence[Node], places: Sequence[int], lines: Sequence[Line], base: PastRound
) -> tuple[list[Step], list[Node]]:
    """The steps of the machines that have lines, and all machines in their order."""
    before = base.observation.fleet.nodes
    said = {step.node_id: step for each in base.decisions for step in each.steps}
    same = [node_of(line, before[line.place]) for line in lines]
    steps = [
        step_of(said[node.id], before[line.place].activity, node.activity)
        for line, node in zip(lines, same, strict=True)
    ]
    return steps, _merge_in_order(whole, places, iter(same))


def _with_steps(same: Sequence[Step], said: _Said, order: _Order) -> _Said:
    """What was said, with the steps of lines in their places."""
    numbers = accumulate(order.lines, initial=-1)
    next(numbers)
    return replace(said, steps=tuple(_merge_in_order(said.steps, order.whole, (same[number] for number in numbers))))


def _merge_in_order(whole: Sequence[_Kept], places: Sequence[int], others: Iterator[_Kept]) -> list[_Kept]:
    """All of these in their order: `places` are those of the whole ones."""
    merged: list[_Kept] = []
    for each, place in zip(whole, places, strict=True):
        merged.extend(islice(others, place - len(merged)))
        merged.append(each)
    merged.extend(others)
    return merged


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
    return _length_of([piece]) + piece


def _length_of(piece: Sequence[bytes]) -> bytes:
    return sum(map(len, piece)).to_bytes(_LENGTH_BYTES, "big")


def _unframe_pieces(raw: bytes) -> Iterator[bytes]:
    """The pieces of a text of pieces."""
    at = 0
    while at < len(raw):
        size = int.from_bytes(raw[at : at + _LENGTH_BYTES], "big")
        at += _LENGTH_BYTES
        yield raw[at : at + size]
        at += size
