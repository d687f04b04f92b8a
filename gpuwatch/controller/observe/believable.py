"""PURE: what clouds say of machines and groups, held to what one can be: each is judged by itself, and no other pays.

A cloud's adapter reads an answer, and who may tag a machine writes a part of it. Names and tags are cut to what the
ledger, an index and a page can hold. A machine with a number that none can have is left alone, in an unknown state. One
without a usable id cannot be called by it, and a group without usable sizes cannot be counted: they are left out, under
their names in the log. One that a list has twice counts once.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from typing import Any, TypeVar

from gpuwatch.clouds.silence import as_last_seen
from gpuwatch.model.bounds import (
    MOST_GPUS,
    MOST_IN_A_NAME,
    MOST_NODES,
    MOST_TAGS,
    bounded_name,
    bounded_text,
    bounded_time,
    is_count,
    is_storable,
)
from gpuwatch.model.fleet import DEFAULT_POOL, Node, NodeGroup, NodeState

_NAMES = ("name", "pool", "instance_type", "region", "zone", "cloud")
_OPTIONAL_NAMES = ("address", "owner", "account", "group")
_TEXTS = (
    *("protected", "snoozed", "managed_by", "cannot_stop", "cannot_terminate"),
    *("may_not_start", "failed_start", "still_billed", "unseen"),
)
_GROUP_NAMES = ("name", "pool", "region", "cloud")
_of_names, _of_words, _of_group = attrgetter(*_NAMES), attrgetter(*_OPTIONAL_NAMES, *_TEXTS), attrgetter(*_GROUP_NAMES)
_ODD = (TypeError, ValueError, AttributeError, ArithmeticError, LookupError)

_TWICE = "its cloud lists it twice, and each time otherwise"

Thing = TypeVar("Thing", Node, NodeGroup)


@dataclass(slots=True, kw_only=True)
class Listing:
    """What was left out or is left alone, and why, by id: for the log, in which each stands once."""

    doubts: dict[str, str] = field(default_factory=dict)

    def nodes(self, listed: Iterable[Node]) -> tuple[Node, ...]:
        """The machines as they can be judged."""
        return self._each(listed, _believable_node, partial(unjudged_node, why=_TWICE))

    def groups(self, listed: Iterable[NodeGroup]) -> tuple[NodeGroup, ...]:
        """The groups as they can be judged."""
        return self._each(listed, _believable_group, lambda group: group)

    def _each(
        self,
        listed: Iterable[Thing],
        believe: Callable[[Thing], tuple[Thing | None, str | None]],
        of_two: Callable[[Thing], Thing],
    ) -> tuple[Thing, ...]:
        """Each by its id once; `of_two` is what is known where a list has two that differ: pages may shift."""
        kept: dict[str, Thing] = {}
        for each in listed:
            try:
                found, doubt = believe(each)
            except _ODD as error:
                found, doubt = None, f"{type(error).__name__}: {error}"
            if doubt is not None:
                self.doubts[bounded_name(str(getattr(each, "id", "?")))] = bounded_text(doubt)
            if found is not None and (before := kept.get(found.id)) is not None and before != found:
                self.doubts[bounded_name(found.id)] = _TWICE
                found = of_two(found)
            if found is not None:
                kept[found.id] = found
        return tuple(kept.values())


def _believable_node(node: Node) -> tuple[Node | None, str | None]:
    """The machine, and what is in doubt about it; None in its place: it cannot be named."""
    if not _is_usable_id(node.id):
        return None, "no cloud gives such an id"
    try:
        return _judged_node(node)
    except _ODD as error:
        doubt = bounded_text(f"what its cloud says of it cannot be read ({type(error).__name__}: {error})")
        return unjudged_node(node, doubt), doubt


def unjudged_node(node: Node, why: str) -> Node:
    """The machine as one of which no more is known than that it is there: it counts, and is left alone."""
    known: dict[str, Any] = {name: _text_or_nothing(getattr(node, name)) for name in _NAMES}
    group, account = _text_or_nothing(node.group) or None, _text_or_nothing(node.account) or None
    state = _known_state(node.state)
    return Node(
        id=node.id,
        **(known | {"pool": known["pool"] or DEFAULT_POOL}),
        state=NodeState.UNKNOWN,
        gpu_count=node.gpu_count if is_count(node.gpu_count, MOST_GPUS) else None,
        group=group,
        account=account,
        enrolled=node.enrolled is True,
        protected=why,
        unseen=why,
        last_shown=state if state is not NodeState.UNKNOWN else _known_state(node.last_shown),
    )


def _known_state(said: Any) -> NodeState | None:  # noqa: ANN401  an adapter's word for it, of any type
    return said if isinstance(said, NodeState) else None


def _text_or_nothing(value: object) -> str:
    return bounded_name(value) if isinstance(value, str) else ""


def _judged_node(node: Node) -> tuple[Node, str | None]:
    told = "".join([*_of_names(node), *filter(None, _of_words(node)), *node.tags, *node.tags.values()])
    if len(told) > MOST_IN_A_NAME or not told.isascii():
        node = _with_bounded_texts(node)
    doubt = _node_doubt(node)
    if doubt is None:
        return node, None
    gpus = node.gpu_count if node.gpu_count is None or is_count(node.gpu_count, MOST_GPUS) else None
    announced = None if node.announced is None else tuple(each for each in node.announced if _is_dated(each))
    launched = bounded_time(node.launched_at)
    state, shown = _known_state(node.state) or NodeState.UNKNOWN, _known_state(node.last_shown)
    left_alone = replace(node, gpu_count=gpus, announced=announced, launched_at=launched, state=state, last_shown=shown)
    return as_last_seen(left_alone, f"its cloud says what no machine can be: {doubt}"), doubt


def _node_doubt(node: Node) -> str | None:
    """Why no machine can be as its cloud says."""
    if node.gpu_count is not None and not is_count(node.gpu_count, MOST_GPUS):
        return f"its type has {bounded_name(repr(node.gpu_count))[:40]} GPUs"
    if not isinstance(node.state, NodeState):
        return "its state has no name that is known"
    if node.launched_at is not None and bounded_time(node.launched_at) is None:
        return "the time of its launch has no zone, or leaves the calendar"
    if node.announced and not all(map(_is_dated, node.announced)):
        return "a time of its notices has no zone, or leaves the calendar"
    return None


def _is_dated(notice: Any) -> bool:  # noqa: ANN401  whatever an adapter has made
    times = (notice.deadline, notice.checkpoint_at)
    return bounded_time(notice.seen_at) is not None and all(at is None or bounded_time(at) for at in times)


def _is_usable_id(name: Any) -> bool:  # noqa: ANN401  whatever an adapter has made
    return isinstance(name, str) and 0 < len(name) <= MOST_IN_A_NAME and is_storable(name)


def _with_bounded_texts(node: Node) -> Node:
    """The machine with names, sentences and tags as they can be stored."""
    tags = dict(node.tags)
    if len(tags) > MOST_TAGS:  # gpuwatch's own come first: they enrol, protect and postpone
        own = sorted(tags, key=lambda key: (not key.startswith("gpuwatch"), key))
        tags = {key: tags[key] for key in own[:MOST_TAGS]}
    names: dict[str, Any] = {name: bounded_name(getattr(node, name)) for name in _NAMES}
    names |= {name: bounded_name(known) for name in _OPTIONAL_NAMES if (known := getattr(node, name)) is not None}
    texts: dict[str, Any] = {name: bounded_text(known) for name in _TEXTS if (known := getattr(node, name)) is not None}
    held = {bounded_name(key): bounded_text(value) for key, value in tags.items()}
    return replace(node, **names, **texts, tags=held)


def _believable_group(group: NodeGroup) -> tuple[NodeGroup | None, str | None]:
    """The group, and what is in doubt about it; None in its place: it cannot be named or counted."""
    if not _is_usable_id(group.id):
        return None, "no cloud gives such an id"
    sizes = (group.min_size, group.max_size, group.desired)
    if not all(is_count(size, MOST_NODES) for size in sizes):
        return None, f"its sizes are {bounded_name(repr(sizes))[:80]}"
    if group.refused is not None and bounded_time(group.refused.at) is None:
        return None, "the time of its refusal has no zone, or leaves the calendar"
    told = "".join(_of_group(group)) + (group.protected or "")
    if len(told) <= MOST_IN_A_NAME and told.isascii() and group.refused is None:
        return group, None
    names: dict[str, Any] = {name: bounded_name(getattr(group, name)) for name in _GROUP_NAMES}
    protected = None if group.protected is None else bounded_text(group.protected)
    refused = None if group.refused is None else replace(group.refused, why=bounded_text(group.refused.why))
    return replace(group, **names, protected=protected, refused=refused), None
