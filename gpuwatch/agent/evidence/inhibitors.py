"""systemd's inhibitor locks: a program asked that the machine is not shut down, suspended, or called idle.

logind keeps each lock in a file of its own under /run/systemd/inhibit. Locks of mode `delay` do not count: they ask for
a moment to put things in order, which half the programs of a host hold for ever. `block` and `block-weak` do, and what
may be added to them.
"""

from gpuwatch.agent.evidence.base import Moment, Roots, UnseenError, make_finding, several
from gpuwatch.agent.evidence.files import fields, list_paths, read_small, surely_dead
from gpuwatch.agent.evidence.settings import InhibitorSettings
from gpuwatch.model.activity import Evidence, State
from gpuwatch.runtime.printable import legible

_MEANT = frozenset({"shutdown", "sleep", "idle"})  # not the handle-* ones: they are about keys and lids


class Inhibitors:
    """Busy while a lock against shutdown, sleep or idleness is held."""

    name = "inhibitors"
    source = "/run/systemd/inhibit"

    def __init__(self, _: InhibitorSettings, roots: Roots) -> None:
        self._roots = roots

    def find_evidence(self, now: Moment) -> tuple[Evidence, ...]:
        """One finding over all locks: who holds them, not why, which may say anything. None without systemd."""
        del now
        systemd = self._roots.run / "systemd"
        if not systemd.is_dir():
            return ()
        try:
            paths = list_paths(systemd / "inhibit")
        except FileNotFoundError:  # logind makes it with the first lock
            paths = []
        holders: list[str] = []
        doubts: list[str] = []
        for path in paths:
            try:
                holder = self._holder(fields(read_small(path).text))
            except FileNotFoundError:
                continue  # released meanwhile
            except OSError as error:
                doubts.append(f"lock {legible(path.name, 40)}: {error.strerror}")
            except UnseenError as error:
                doubts.append(f"lock {legible(path.name, 40)}: {error}")
            else:
                holders += [] if holder is None else [holder]
        if holders:
            return (self._say(State.BUSY, several(holders), len(holders)),)
        if doubts:
            return (self._say(State.UNKNOWN, several(doubts), None),)
        return (self._say(State.IDLE, "no lock is held", 0),)

    def _holder(self, lock: dict[str, str]) -> str | None:
        """Who holds a lock; None if it does not count. logind removes a lock without a holder."""
        if not {"WHAT", "MODE", "WHO", "PID"} <= lock.keys() or not lock["PID"].isdigit():
            raise UnseenError("it does not say what it is")
        if lock["MODE"].startswith("delay") or not _MEANT & set(lock["WHAT"].split(":")):
            return None
        who = legible(lock["WHO"], 60)
        if surely_dead(int(lock["PID"]), self._roots):
            raise UnseenError(f"{who} took it and is gone, and it is still there")
        return who

    def _say(self, says: State, note: str, held: int | None) -> Evidence:
        return make_finding(self, says, note, observed=held, limit=1, unit="locks")
