"""PURE: what was said of nodes in an earlier look, said again where nothing that it follows from has changed.

A round asks for each node, and each removal once more for the whole pool; most nodes are the very same values then.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from gpuwatch.model.decision import Advice, Observation, Reason, Step, Stopped, Verb, Wait
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.model.promise import Notice

_WHOLE = ""  # a note of the pool: no node has this id
Made = tuple[Step, tuple[Advice, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCache:
    """What follows from a node and what is known `about` it; `at` is the only moment at which it does, None: any."""

    node: Node
    about: tuple[Notice | None, Stopped | None, Wait | None]
    at: datetime | None
    step: Step
    advice: tuple[Advice, ...]


def of_pool(
    observation: Observation, pool: str, about: object, make: Callable[[Node], Made], *, ages: bool, ladder: bool
) -> list[StepCache]:
    """Every node's step and advice: made anew only of nodes that are not the very same values as before.

    They must follow from the node, its notice, its wait, and from `about`, which is noted with them; of nodes with a
    notice, of all where `ages`, and, where there is a `ladder`, of stopped ones and when gpuwatch stopped them, also
    from the time.
    """
    nodes, ledger, now = observation.fleet.roster(pool).nodes, observation.ledger, observation.now
    notes = observation.fleet.notes(("said", pool), (about, ages, ladder))

    def said(node: Node) -> StepCache:
        notice, known = ledger.notice(node.id), notes.get(node.id)
        of_it = (notice, ledger.stop_of(node.id), observation.waits.get(node.id))
        if isinstance(known, StepCache) and known.node is node and known.at in {None, now} and known.about == of_it:
            return known
        timed = ages or notice is not None or (ladder and node.state is NodeState.STOPPED)
        step, advice = make(node)
        made = StepCache(node=node, about=of_it, at=now if timed else None, step=step, advice=advice)
        notes[node.id] = made
        return made

    waits, stopped = observation.waits, ledger.stopped if ladder else ()
    notices = frozenset(ledger.notices)
    (notices_then, stopped_then, waits_then), then = notes.get(_WHOLE, ((frozenset(), (), {}), []))
    if stopped_then == stopped and len(then) == len(nodes):
        changed = {each.node_id for each in notices_then ^ notices}
        changed.update(name for name in waits_then.keys() | waits.keys() if waits_then.get(name) != waits.get(name))
        all_said = [
            one if one.node is node and (one.at is None or one.at == now) and node.id not in changed else said(node)
            for one, node in zip(then, nodes, strict=True)
        ]
    else:
        all_said = [said(node) for node in nodes]
    notes[_WHOLE] = ((notices, stopped, waits), all_said)
    return all_said


def counted(steps: tuple[Step, ...]) -> Reason:
    """One sentence for the pool: how many nodes get what."""
    verbs = [step.verb for step in steps if step.verb is not Verb.HOLD]  # most hold, and hashing them all takes longer
    counts: Counter[Verb] = Counter(verbs)
    counts[Verb.HOLD] = len(steps) - len(verbs)
    said = ", ".join(f"{counts[verb]} {verb.value}" for verb in Verb if counts[verb])
    return Reason(code="idle", sentence=said or "the pool has no nodes")
