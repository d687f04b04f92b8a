"""What reads the use of machines, and with which driver, agent and image they were seen at work. PURE nouns."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from gpuwatch.model.fleet import Node

# What machines may have in common that breaks what is read of them.
DRIVER, AGENT, IMAGE = "driver", "agent", "image"


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorUse:
    """What was seen of the machines of one pool and type that have one driver, version of the agent, or image.

    `since` is when they were first seen, `grown_at` when they were last more than ever before. `members`, `busy` and
    `computing` are the most at one time: all, those at work, those with a GPU at work. `busy_at` is the hour in which
    one was last at work; None: never. `known_at` is when somebody, or the record's begin, took them as they are.
    """

    pool: str
    kind: str
    of: str  # DRIVER, AGENT or IMAGE
    value: str
    since: datetime
    grown_at: datetime
    members: int
    busy: int = 0
    computing: int = 0
    busy_at: datetime | None = None
    known_at: datetime | None = None

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Its pool and type, and what it is of."""
        return (self.pool, self.kind, self.of, self.value)

    @property
    def change(self) -> tuple[str, str, str]:
        """The same in the fleet: its type, and what it is of."""
        return (self.kind, self.of, self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorRecord:
    """All of that, as it was known at `at`."""

    at: datetime
    uses: tuple[SensorUse, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Unproven:
    """A driver, version of the agent, or image with which machines of a type are not seen at work as others were.

    `pools` are those that had another, `before`. `nodes` have it, of which `busy` at most were at work at one time;
    `needed` at one time prove it. `since` is when it was first seen there, `until` how long it is suspected. `others`
    came to the same machines with it, in words.
    """

    kind: str
    of: str  # DRIVER, AGENT or IMAGE
    value: str
    before: str
    pools: tuple[str, ...]
    nodes: int
    busy: int
    needed: int
    since: datetime
    until: datetime
    others: tuple[str, ...] = ()

    def is_about(self, node: Node) -> bool:
        """Whether a machine of one of its pools has it."""
        verdict = node.signal.verdict
        if verdict is None or node.kind != self.kind:
            return False
        has = {DRIVER: verdict.driver_version, AGENT: verdict.agent_version, IMAGE: node.image}
        return has[self.of] == self.value

    @property
    def words(self) -> str:
        """Name all that is new."""
        return ", ".join([f"the {self.of} {self.value}", *self.others])


def unproven_by_pool(found: Iterable[Unproven]) -> dict[str, list[Unproven]]:
    """What is suspected in each pool."""
    pools: dict[str, list[Unproven]] = {}
    for each in found:
        for pool in each.pools:
            pools.setdefault(pool, []).append(each)
    return pools
