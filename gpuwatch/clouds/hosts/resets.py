"""Whether a host that is off was switched on meanwhile, by what its BMC says of its last reset, also over an outage.

Rules, all of them:

1. The times of BMCs are compared with each other alone: many of their clocks are wrong. The same time means that there
   was no reset between two looks.
2. A BMC that shows the time must have changed it at the newest start that was watched, within a time in which no host
   boots and restarts itself: some change it at warm resets alone. One that never does, or shows none, proves nothing.
3. The chain begins where the host was seen to go off, or where the time is the same as when it ran. It ends where the
   time is another one, until the host runs again.
"""

import re
from dataclasses import dataclass, replace

from gpuwatch.model.fleet import NodeState
from gpuwatch.model.sight import BLIND_SECONDS
from gpuwatch.runtime.clock import Clock

_TIME = re.compile(r"[0-9TZ:.+-]{10,40}")
_NONE, _BROKEN = "-", "?"
_BOOT_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chain:
    """The time at the last look; when it went off, and when it was off before it ran; whether starts change it."""

    now: str
    off: str = _NONE
    before: str = _NONE
    moves: bool = False
    looked: float | None = None  # by this process
    off_at: float | None = None  # when this process saw it off last


class Resets:
    """Several threads may ask, each about another host."""

    def __init__(self, clock: Clock) -> None:
        """Nothing was looked at yet."""
        self._clock = clock
        self._chains: dict[str, _Chain] = {}

    def recall(self, node_id: str, text: str | None) -> None:
        """What an earlier process knew, as `remember` wrote it."""
        parts = (text or "").split()
        if len(parts) == 4:  # noqa: PLR2004  as below
            self._chains[node_id] = _Chain(now=parts[0], off=parts[1], before=parts[2], moves=parts[3] == "moves")

    def remember(self, node_id: str) -> str | None:
        """What is known, for the next process."""
        found = self._chains.get(node_id)
        return (
            None if found is None else f"{found.now} {found.off} {found.before} {'moves' if found.moves else 'still'}"
        )

    def note(self, node_id: str, state: NodeState, shown: str | None) -> bool:
        """Its BMC shows this time; whether that proves that it was not switched on since it went off."""
        if state not in {NodeState.RUNNING, NodeState.STOPPED}:
            return False
        if shown is None or _TIME.fullmatch(shown) is None:
            self._chains.pop(node_id, None)
            return False
        last, uptime = self._chains.get(node_id, _Chain(now=_BROKEN, off=_BROKEN)), self._clock.uptime()
        if state is NodeState.RUNNING:
            before = last.before if last.off == _NONE else last.now
            watched = (
                last.off_at is not None and uptime - last.off_at <= _BOOT_SECONDS and before not in {_NONE, _BROKEN}
            )
            chain = replace(last, off=_NONE, before=before, moves=before != shown if watched else last.moves)
        elif last.off == _NONE:
            watched = last.looked is not None and uptime - last.looked <= BLIND_SECONDS
            off = shown if watched or last.now == shown else _BROKEN
            chain = replace(last, off=off, moves=last.moves and last.now != last.before)
        else:
            chain = last if last.off == shown else replace(last, off=_BROKEN)
        off_at = uptime if state is NodeState.STOPPED else chain.off_at
        self._chains[node_id] = replace(chain, now=shown, looked=uptime, off_at=off_at)
        return state is NodeState.STOPPED and chain.moves and chain.off == shown
