"""Power cuts at every boundary of a story: after each, the rest of the story with a controller that begins anew."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from copy import copy, deepcopy
from dataclasses import dataclass, field, replace

from gpuwatch.controller.round import ControllerContext, step
from gpuwatch.ledger import Ledger
from tests.support.builders.clusters import ClusterDesk, ClusterFleet
from tests.support.builders.fleet import Desk

_OF_A_WAIT = 11  # one in so many boundaries of a round in which nothing is new
_CHANGES = frozenset({"stop", "start", "terminate", "launch", "grow", "shrink"})  # never left out


class PowerCut(BaseException):
    """The process is gone: nothing catches this."""


@dataclass(slots=True)
class Mortal:
    """Passes calls on and dies at the given one, right before or right after its effect."""

    inner: object
    die: Callable[[str], None]

    def __getattr__(self, name: str) -> object:
        """Each method of the inner object, with a chance to die around it."""
        method = getattr(self.inner, name)

        def call(*args: object, **kwargs: object) -> object:
            self.die(f"before {name}")
            result = method(*args, **kwargs)
            self.die(f"after {name}")
            return result

        return call if callable(method) else method


@dataclass(slots=True)
class Fate:
    """Counts the boundaries that are passed, and cuts the power at one of them: by its number, or by name and turn."""

    fatal: int = 0
    passed: list[str] = field(default_factory=list)
    at: tuple[str, int] = ("", 0)

    def die(self, where: str) -> None:
        """One boundary."""
        self.passed.append(where)
        if len(self.passed) == self.fatal or (where, self.passed.count(where)) == self.at:
            raise PowerCut(where)


def a_mortal(desk: Desk, fate: Fate) -> ControllerContext:
    """The desk's parts with death around every call that leaves the process or is written down."""
    parts = desk.parts
    return replace(
        parts,
        cloud=Mortal(parts.cloud, fate.die),  # type: ignore[arg-type]
        signals=Mortal(parts.signals, fate.die),  # type: ignore[arg-type]
        ledger=Mortal(parts.ledger, fate.die),  # type: ignore[arg-type]
        cluster=None if parts.cluster is None else Mortal(parts.cluster, fate.die),  # type: ignore[arg-type]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """So many rounds of a minute over a desk; `befalls` is what happens before the round of that number.

    After a cut come so many `more` rounds: what may have happened takes its time to show, and notices begin again.
    """

    desk: Desk
    rounds: int
    more: int = 0
    befalls: Callable[[Desk, int], None] = lambda _desk, _number: None


def every_cut(
    story: Story, downtime: float, *, pace: int = 1, begin: int = 0, around: str | None = None
) -> Iterator[tuple[str, Desk]]:
    """The story's end after a cut at each boundary that there is, or at each second, third, … of them.

    With a `pace` those are cut that leave `begin` when they are divided by it, those of a call that changes machines
    always, and of a round that passes the same boundaries as the round before far fewer: it waits. With `around` those
    alone of the rounds that make this call, and of the round after each. With NIGHTLY_LIVES in the environment, as in
    `make nightly`, all are.

    What the ledger acknowledged survives (test_ledger proves that with kill -9), all else of the controller is lost:
    between two rounds it has nothing else. So stories that share a beginning are told together up to their cut.
    """
    base, before, last, cuts = story.desk, 0, Fate(0), 0
    whole_story = "NIGHTLY_LIVES" in os.environ
    for number in range(story.rounds):
        story.befalls(base, number)
        whole, fate = copied(base), Fate(0)
        step(a_mortal(whole, fate))
        near = around is None or f"before {around}" in (*last.passed, *fate.passed)
        rarely = pace * _OF_A_WAIT if fate.passed == last.passed else pace
        for boundary, where in enumerate(fate.passed, 1):
            cut = before + boundary
            chosen = where.split()[1] in _CHANGES or cut % rarely == begin % rarely
            if whole_story or (near and chosen):
                cuts += 1
                yield f"cut {cut} ({where})", _ended(story, copied(base), number, boundary, downtime)
        before += len(fate.passed)
        whole.rest(60.0)
        base, last = whole, fate
    assert cuts > 5, f"the story was cut at {cuts} boundaries alone"


def _ended(story: Story, desk: Desk, first: int, boundary: int, downtime: float) -> Desk:
    """The story from that round on, with the power cut at that boundary of it."""
    fate = Fate(boundary)
    for number in range(first, story.rounds + story.more):
        if number > first:
            story.befalls(desk, number)
        try:
            step(a_mortal(desk, fate))
        except PowerCut:
            desk.rest(downtime)
        desk.rest(60.0)
    return desk


def copied(desk: Desk) -> Desk:
    """The same fleet, cluster, clock and ledger once more."""
    twin = type(desk)(clock=copy(desk.clock), rules=desk.rules, limits=desk.limits)
    twin.fleet = deepcopy(desk.fleet, {id(desk.clock): twin.clock})
    if isinstance(twin, ClusterDesk) and isinstance(twin.fleet, ClusterFleet) and twin.fleet.cluster is not None:
        twin.cluster = twin.fleet.cluster
    _database(desk.ledger).backup(_database(twin.ledger))
    return twin


def _database(ledger: Ledger) -> sqlite3.Connection:
    connection = ledger.store._db().connection.dbapi_connection
    assert isinstance(connection, sqlite3.Connection)
    return connection
