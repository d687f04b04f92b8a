"""One part that cannot be judged never stops the rest: it is found, left alone, and named in the log.

A round decides on all it sees at once. Values are bounded where they are read; this is for the value that nobody
thought of. Where the round cannot be decided, the parts are tried by halves: first without what agents say, then
without the machines, groups and pods themselves. What fails by itself is blinded: a machine stays in the fleet, counts,
and is unknown; a group, a measure or a waiting pod is left out. All others are decided about as if it had said nothing.
A part that was blinded is tried again in each round.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from gpuwatch.clouds import CloudError
from gpuwatch.controller.observe.believable import unjudged_node
from gpuwatch.ledger import LedgerError, LedgerValueError
from gpuwatch.model.bounds import bounded_text
from gpuwatch.model.decision import Observation
from gpuwatch.model.fleet import Node, NodeReport

log = logging.getLogger(__name__)

_MOST_TRIALS = 100  # in one search: half a minute of a large fleet; what is not reached stays blinded for this round

Judged = TypeVar("Judged")
Part = tuple[str, str]  # its kind, and its name
WORD, MACHINE, GROUP, MEASURE, POD = "What the agent says of", "Machine", "Group", "Measure", "Waiting pod"


def judge_apart(seen: Observation, judge: Callable[[Observation], Judged], sick: dict[str, str]) -> Judged:
    """Judge all that was seen; what makes that impossible is blinded, and named in `sick` with the reason.

    `sick` is kept from round to round: each stands in the log once.

    Raises:
        LedgerError: the ledger cannot be asked.
        Exception: no part by itself is to blame.

    """
    try:
        judged = judge(seen)
    except CloudError:
        raise
    except Exception as error:
        if isinstance(error, LedgerError) and not isinstance(error, LedgerValueError):
            raise
        if not sick:
            log.exception("The round cannot be decided as a whole; the part that is to blame is looked for")
        return _without_the_sick(seen, judge, sick, error)
    for name in sick:
        log.info("%s can be judged again", name)
    sick.clear()
    return judged


def _without_the_sick(
    seen: Observation, judge: Callable[[Observation], Judged], sick: dict[str, str], error: Exception
) -> Judged:
    """Search among the words of agents, and where these are not to blame among all parts."""
    for parts, blinded in ((_words_of_agents(seen), _without_words), (_whole_parts(seen), _without_parts)):
        search = _Search(judge=lambda without, blinded=blinded: judge(blinded(seen, without)), all=frozenset(parts))  # type: ignore[misc]
        if not search.passes(frozenset()):
            continue
        # Those that were to blame before come last: then one trial is enough for all others.
        before = [part for part in parts if _name(part) in sick]
        sound = search.sound_of([part for part in parts if _name(part) not in sick], frozenset())
        sound |= search.sound_of(before, sound)
        judged = search.judge(search.all - sound)
        _name_in_log(sick, {_name(part): search.why(part) for part in search.all - sound})
        return judged
    raise error


def _name_in_log(sick: dict[str, str], found: dict[str, str]) -> None:
    """Name each in the log once."""
    for name, why in found.items():
        if sick.get(name) != why:
            log.warning("%s cannot be judged, and is left alone in this round: %s", name, why)
    for name in sick.keys() - found.keys():
        log.info("%s can be judged again", name)
    sick.clear()
    sick |= found


@dataclass(slots=True, kw_only=True)
class _Search(Generic[Judged]):
    """Which of all parts can be judged together; `judge` is given those that are blinded."""

    judge: Callable[[frozenset[Part]], Judged]
    all: frozenset[Part]
    errors: dict[Part, Exception] = field(default_factory=dict)
    last: Exception = field(default_factory=Exception)
    trials: int = 0

    def passes(self, sound: frozenset[Part]) -> bool:
        """Whether these parts can be judged, with all others blinded."""
        self.trials += 1
        try:
            self.judge(self.all - sound)
        except Exception as error:
            if isinstance(error, LedgerError) and not isinstance(error, LedgerValueError):
                raise
            self.last = error
            return False
        return True

    def sound_of(self, parts: Sequence[Part], sound: frozenset[Part]) -> frozenset[Part]:
        """Those of these parts that can be judged along with what is sound already."""
        if not parts or self.trials >= _MOST_TRIALS:
            return frozenset()
        if self.passes(sound | frozenset(parts)):
            return frozenset(parts)
        if len(parts) == 1:
            self.errors[parts[0]] = self.last
            return frozenset()
        half = len(parts) // 2
        first = self.sound_of(parts[:half], sound)
        return first | self.sound_of(parts[half:], sound | first)

    def why(self, part: Part) -> str:
        """Why a part is blinded."""
        error = self.errors.get(part)
        return "there was no time to try it" if error is None else _words(error)


def _name(part: Part) -> str:
    return " ".join(part)


def _words(error: Exception) -> str:
    return bounded_text(f"{type(error).__name__}: {error}")


def _words_of_agents(seen: Observation) -> list[Part]:
    return [(WORD, node.id) for node in seen.fleet.nodes if node.signal.verdict is not None]


def _without_words(seen: Observation, blinded: frozenset[Part]) -> Observation:
    """The same, with machines of which nobody has said anything."""
    why = NodeReport(failure="what its agent says cannot be judged; the controller's log says why")

    def mute(node: Node) -> Node:
        return replace(node, signal=why) if (WORD, node.id) in blinded else node

    return replace(seen, fleet=replace(seen.fleet, nodes=tuple(map(mute, seen.fleet.nodes))))


def _whole_parts(seen: Observation) -> list[Part]:
    return list(dict.fromkeys(_each_part(seen)))


def _each_part(seen: Observation) -> Iterator[Part]:
    yield from ((MACHINE, node.id) for node in seen.fleet.nodes)
    yield from ((GROUP, group.id) for group in seen.fleet.groups)
    yield from ((MEASURE, f"{each.name} of pool {each.pool}") for each in seen.measures)
    pending = () if seen.fleet.cluster is None else seen.fleet.cluster.pending
    yield from ((POD, f"{pod.namespace}/{pod.name}") for pod in pending)


def _without_parts(seen: Observation, blinded: frozenset[Part]) -> Observation:
    """The same, with machines of which it is known that they are there, and without the others."""
    fleet, why = seen.fleet, "it cannot be judged; the controller's log says why"
    nodes = [unjudged_node(node, why) if (MACHINE, node.id) in blinded else node for node in fleet.nodes]
    cluster = fleet.cluster
    if cluster is not None:
        waiting = [pod for pod in cluster.pending if (POD, f"{pod.namespace}/{pod.name}") not in blinded]
        cluster = replace(cluster, pending=tuple(waiting))
    groups = [group for group in fleet.groups if (GROUP, group.id) not in blinded]
    measures = [each for each in seen.measures if (MEASURE, f"{each.name} of pool {each.pool}") not in blinded]
    fleet = replace(fleet, nodes=tuple(nodes), groups=tuple(groups), cluster=cluster)
    return replace(seen, fleet=fleet, measures=tuple(measures))
