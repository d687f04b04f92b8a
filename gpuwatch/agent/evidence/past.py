"""What an earlier agent of this host saw in use, which a new one does not see: so a restart makes no machine idle.

Signals remember: who came by SSH, which clients a server had, what comes again and again. Rules, all of them; times are
of the monotonic clock, so no wall clock counts:

1. Who came over the network is kept with the days (`habits_file`), and is expected as before (`visits`).
2. What a signal found busy or occupied occupies the node for an hour after that, connections for four: no signal
   remembers for longer.
3. If no agent watched for a quarter of an hour before this one, or the file does not say what was seen, all of it
   counts as in use when this agent began. Without any file no agent has run here.
4. While the machine was off nobody could come: after a boot only the time since then has passed.
5. A file of another machine, which an image brought along, says nothing.
"""

import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace

from gpuwatch.agent.evidence.base import Roots
from gpuwatch.agent.evidence.visits import Visitor, Visits
from gpuwatch.model.activity import Evidence, State
from gpuwatch.model.bounds import BoundedFloat
from gpuwatch.model.duration import format_duration
from gpuwatch.model.hashes import blake2b

UNWATCHED_SECONDS = 900.0
_HELD_SECONDS, _HELD_LONGER_SECONDS = 3600.0, {"connections": 4 * 3600.0}
_ANEW_SECONDS = 600.0
_OWN_MEMORY = frozenset({"people"})  # all that it remembers is in its visits
_IN_USE = frozenset({State.BUSY, State.OCCUPIED})
MOST_SIGNALS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What one agent had seen at `at`: who came, and when each signal last found the node in use.

    `looked_at` is when it looked for people last; None in the file of an older agent.
    """

    boot: str
    machine: str
    at: BoundedFloat
    looked_at: BoundedFloat | None = None
    visitors: tuple[Visitor, ...] = ()
    in_use: Mapping[str, BoundedFloat]


class Past:
    """The memory of one host over the restarts of its agent."""

    def __init__(self, roots: Roots) -> None:
        """No agent has run here yet."""
        self._boot, self._machine = _read_word(roots.proc / "sys/kernel/random/boot_id"), _machine(roots)
        self.visits = Visits()
        self.looked_at: float | None = None  # when the earlier agent looked for people last
        self._earlier: Mapping[str, float] = {}
        self._unknown_since: float | None = None  # what was in use before then is not known
        self._in_use: dict[str, float] = {}
        self._news = 0

    @property
    def news(self) -> int:
        """How often somebody came, and how often something was found in use that had not been for ten minutes."""
        return self._news + self.visits.news

    def take_up(self, seen: Seen | None, at: float) -> None:
        """Go on at `at` with what an earlier agent kept; None: there was one, and what it saw is not known."""
        if seen is None:
            self._unknown_since = at
            return
        if seen.boot != self._boot and seen.machine != self._machine:
            return
        passed = at - seen.at if seen.boot == self._boot and seen.at <= at else at
        later = at - passed - seen.at
        self.looked_at = later + (seen.at if seen.looked_at is None else seen.looked_at)
        self.visits.take_up(each.later_by(later) for each in seen.visitors)
        self._earlier = {name: later + each for name, each in seen.in_use.items()}
        if passed > UNWATCHED_SECONDS:
            self._unknown_since = at

    def keep(self, at: float) -> Seen:
        """What a later agent is to know."""
        found = {**self._earlier, **self._in_use}
        young = {name: round(each, 1) for name, each in found.items() if at - each <= _held_seconds(name)}
        if self._unknown_since is not None:
            for name in _HELD_LONGER_SECONDS:
                young.setdefault(name, self._unknown_since)
        visitors = tuple(each.later_by(0.0) for each in self.visits.visitors)
        looked_at = self.looked_at if self.visits.looked_at is None else self.visits.looked_at
        times = (*young.values(), *(each.seen_at for each in visitors), *(() if looked_at is None else (looked_at,)))
        newest = max((at, *times))  # other threads look, too
        return Seen(
            boot=self._boot, machine=self._machine, at=newest, looked_at=looked_at, visitors=visitors, in_use=young
        )

    def judge(self, found: tuple[Evidence, ...], at: float) -> tuple[Evidence, ...]:
        """The evidence of a moment, occupied where an earlier agent saw the node in use and this one sees nothing."""
        for each in found:
            if each.says in _IN_USE and each.name not in _OWN_MEMORY:
                self._news += at - self._in_use.get(each.name, -_ANEW_SECONDS) >= _ANEW_SECONDS
                self._in_use[each.name] = at
        return tuple(self._hold_entry(each, at) if each.says is State.IDLE else each for each in found)

    def _hold_entry(self, entry: Evidence, at: float) -> Evidence:
        """An idle finding as it is with what was seen before."""
        if entry.name in _OWN_MEMORY:
            return entry
        since = self._earlier.get(entry.name)
        if self._unknown_since is not None:
            since = self._unknown_since if since is None else max(since, self._unknown_since)
        if since is None or at - since >= _held_seconds(entry.name):
            return entry
        when = f"{format_duration(at - since)} ago"
        note = f"an agent before this one found the node in use {when}"
        if since == self._unknown_since:
            note = f"what was in use before this agent began, {when}, is not known"
        return replace(entry, says=State.OCCUPIED, note=note)


def _held_seconds(name: str) -> float:
    return _HELD_LONGER_SECONDS.get(name, _HELD_SECONDS)


def _machine(roots: Roots) -> str:
    """Which machine this is, without saying its names."""
    words = f"{_read_word(roots.etc / 'machine-id')} {socket.gethostname()}"
    return blake2b(words.encode(), digest_size=8).hexdigest()


def _read_word(path: object) -> str:
    try:
        with open(str(path), encoding="ascii", errors="replace") as file:  # noqa: PTH123  a file of the kernel's or root's
            return file.read(64).strip()
    except OSError:
        return ""
