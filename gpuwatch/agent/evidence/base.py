"""What a signal of the host is: it looks, and says busy, idle, or unknown with a note on why."""

import pwd
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from gpuwatch.model.fleet import Evidence, State


class UnseenError(Exception):
    """What a signal looks at could not be seen; the message, for people, says why. It is never idleness."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """When a look happens, and the processes that hold a GPU then; None while those are not known."""

    at: datetime
    monotonic_seconds: float
    gpu_pids: frozenset[int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Roots:
    """Where the host's own file systems are; an agent in a container, and every test, may have them elsewhere."""

    proc: Path = Path("/proc")
    run: Path = Path("/run")
    dev: Path = Path("/dev")
    sys: Path = Path("/sys")
    homes: tuple[Path, ...] = (Path("/home"), Path("/root"))  # /home holds one folder per user, /root is one


class HostSignal(Protocol):
    """One signal. `name` is its key in the configuration, `source` says where it looks."""

    name: str
    source: str

    def look(self, now: Moment) -> tuple[Evidence, ...]:
        """What is to be seen now; nothing at all where this host has no such thing.

        Raises:
            OSError: a file or a connection failed; the signal is unknown.
            UnseenError: likewise.

        """
        ...


def say(
    signal: HostSignal,
    says: State,
    note: str | None,
    *,
    observed: float | None = None,
    limit: float | None = None,
    unit: str = "",
) -> Evidence:
    """A signal's finding."""
    return Evidence(
        name=signal.name, says=says, observed=observed, limit=limit, unit=unit, source=signal.source, note=note
    )


def several(words: list[str], most: int = 5) -> str:
    """The first few of them, and how many more there are."""
    more = [f"{len(words) - most} more"] if len(words) > most else []
    return ", ".join(words[:most] + more)


def user_name(uid: int) -> str:
    """A user's name; the number where it has none here."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
