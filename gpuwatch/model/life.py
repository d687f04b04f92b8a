"""The life of a machine that gpuwatch or a group launched or started, and all machines of a pool, each in one place."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from gpuwatch.model.fleet import Node

# What is asked for with a start: the id of its machine; with what a group makes: the id of the group.
STARTED, MEMBER_OF = "started", "member_of"
# With a start: the number of the job, or the name of the pod, that waited for it.
WOKEN_FOR = "woken_for"


class End(StrEnum):
    """How a machine's life ended, or why it is over for its pool."""

    REMOVED = "removed"  # by gpuwatch
    TAKEN = "taken"  # by its cloud, which had announced it
    STOPPED = "stopped"  # by itself or by somebody; it is still there, and its disks are paid for
    ENDED = "ended"  # by itself, by somebody, or by its cloud without a word


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """A machine that was launched for a pool, or started for it, or made by its group, or that is about to come.

    `asked` is what the launch asked for; of a start, which machine (`STARTED`); of a member, which group (`MEMBER_OF`)
    and its launch time. `at` is when it became a node of the
    pool, or ran again; of one that is not yet a node, when it was asked for. `node_id` is None until its cloud has
    shown it. `surplus` is whether it was launched on top of what is wanted, in the place of another that has not gone
    yet. `end` None: it is there. `why` is what its cloud says of an end, where it says something. `answered` is whether
    its agent ever answered, `worked` whether it ever had work; None: nobody looked all the time. `recorded` is whether
    its end is in the ledger.
    """

    key: str
    pool: str
    at: datetime
    asked: Mapping[str, str] = field(default_factory=dict)
    node_id: str | None = None
    surplus: bool = False
    end: End | None = None
    ended_at: datetime | None = None
    why: str | None = None
    answered: bool = False
    worked: bool | None = None
    recorded: bool = False

    @property
    def started(self) -> bool:
        """Whether it began with the start of a machine that was there."""
        return STARTED in self.asked

    @property
    def member(self) -> bool:
        """Whether its group has made it."""
        return MEMBER_OF in self.asked

    @property
    def fell_back(self) -> bool:
        """Whether its cloud accepted the start and says why it did not run."""
        return self.started and self.end is End.STOPPED and self.why is not None

    @property
    def lasted(self) -> timedelta | None:
        """For how long it was a node of the pool; None: it still is."""
        return None if self.ended_at is None else max(timedelta(0), self.ended_at - self.at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """A machine that was asked for and that no list shows yet as a running node of its pool.

    `name` is what was asked: a launch's name, the stopped node, the group. `kind` is its machine type, None where that
    is not known; `spot` is False where that is not known. `key` is its intent's, `asked` what a launch asked for.
    """

    name: str
    kind: str | None
    spot: bool = False
    key: str | None = None
    asked: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """A group's places (policies/places.py says how they are counted).

    `size` is how many there are to be, `shown` how many its cloud's list says, of which `missing` have no member.
    `stopped` are kept by members that stopped by themselves. `late` are no longer waited for, the stopped ones among
    them. `why_left` says why those that are missing are not waited for, as a clause; None: they are, or none is.
    `on_trial` is whether a member is coming that is to show first that it lasts.
    """

    size: int
    shown: int
    missing: int
    stopped: int
    late: int
    why_left: str | None
    on_trial: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolMachines:
    """A pool's machines, and those that it expects, each in one place (policies/machines.py says in which).

    Nodes are `present`, or `taken` (they run, and their cloud is about to take them), or `leaving` (their removal is
    under way, or may be), or `stopped` (by themselves, after gpuwatch had launched them). Of those that are present the
    `unseen` are not shown by their cloud now. `may_leave` are the ids of all of which a step of a removal is open, also
    where it was refused. Expected are those that are
    `coming`, that are in doubt (`doubtful`: launches that may have happened), and that are no longer waited for and may
    come all the same (`late`). `shown` are nodes of launches that are not settled yet, by the keys of their intents.
    """

    present: tuple[Node, ...] = ()
    unseen: tuple[Node, ...] = ()
    taken: tuple[Node, ...] = ()
    leaving: tuple[Node, ...] = ()
    stopped: tuple[Node, ...] = ()
    coming: tuple[Expected, ...] = ()
    doubtful: tuple[Expected, ...] = ()
    late: tuple[Expected, ...] = ()
    shown: Mapping[str, str] = field(default_factory=dict)
    may_leave: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What policies have counted of one observation: its pools, its groups, and its lives by what they came from."""

    machines: dict[str, PoolMachines] = field(default_factory=dict)  # by pool (policies/machines.py)
    places: dict[str, Places] = field(default_factory=dict)  # by group (policies/places.py)
    sources: dict[frozenset[tuple[str, str]], list[Life]] = field(default_factory=dict)  # (policies/lasting.py)
