"""The interface of a host signal: a look gives busy, idle, or unknown with a note on why."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from gpuwatch.agent import command
from gpuwatch.agent.processes.process import ProcessView
from gpuwatch.model.activity import Evidence, State, WorkOwner


class UnseenError(Exception):
    """What a signal looks at could not be seen; the message says why. The signal is then unknown, never idle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """When a look happens, people's processes that hold a GPU then, and all processes at their newest look.

    None while those are not known.
    """

    at: datetime
    monotonic_seconds: float
    gpu_pids: frozenset[int] | None = None
    processes: ProcessView | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Roots:
    """Where the host's own file systems are; an agent in a container, and every test, may have them elsewhere."""

    proc: Path = Path("/proc")
    run: Path = Path("/run")
    dev: Path = Path("/dev")
    sys: Path = Path("/sys")
    homes: tuple[Path, ...] = (Path("/home"), Path("/root"))  # /home holds one folder per user, /root is one
    etc: Path = Path("/etc")
    var: Path = Path("/var")
    usr: Path = Path("/usr")


class Origin(Protocol):
    """What a finding is of: `name` is a signal's key in the configuration, `source` says where it looks."""

    name: str
    source: str


class HostSignal(Origin, Protocol):
    """One kind of evidence that a host gives."""

    def find_evidence(self, now: Moment) -> tuple[Evidence, ...]:
        """What is seen now; empty if this host does not have what the signal looks at.

        Raises:
            OSError: a file or a connection failed; the signal is unknown.
            UnseenError: something else hides it; the signal is unknown.

        """
        ...


class IdleClock:
    """Stamps of last activity by key. Only the first stamp of a key is compared with the wall clock.

    From then on a new stamp means activity just now, and an unchanged one ages on the monotonic clock: a wall clock
    that jumps ahead does not make anything silent.
    """

    def __init__(self) -> None:
        self._silent_from: dict[str, tuple[float, float]] = {}

    def seconds(self, key: str, stamp_seconds: float, now: Moment) -> float:
        """Seconds of silence, given the Unix time of the last activity; 0 for a stamp in the future."""
        known = self._silent_from.get(key)
        if known is None:
            behind = max(0.0, now.at.timestamp() - stamp_seconds)
            known = (stamp_seconds, now.monotonic_seconds - behind)
        elif known[0] != stamp_seconds:
            known = (stamp_seconds, now.monotonic_seconds)
        self._silent_from[key] = known
        return now.monotonic_seconds - known[1]

    def forget_all_but(self, keys: Collection[str]) -> None:
        """Drop what is gone; a key that returns is new."""
        self._silent_from = {key: known for key, known in self._silent_from.items() if key in keys}


def make_finding(  # noqa: PLR0913  the fields of one finding
    signal: Origin,
    says: State,
    note: str | None,
    *,
    observed: float | None = None,
    limit: float | None = None,
    unit: str = "",
    owner: WorkOwner | None = None,
    setting: str | None = None,
) -> Evidence:
    """Make a finding of a signal."""
    return Evidence(
        name=signal.name,
        says=says,
        observed=observed,
        limit=limit,
        unit=unit,
        source=signal.source,
        note=note,
        owner=owner,
        setting=setting,
    )


def run(argv: Sequence[str], deadline_seconds: float) -> command.CommandResult:
    """Run a program that answers what a signal asks.

    Raises:
        UnseenError: the program could not be started, missed its deadline, or wrote too much.

    """
    try:
        return command.run(argv, deadline_seconds)
    except command.CommandError as error:
        raise UnseenError(str(error)) from None


def several(words: list[str], most: int = 5, *, of: int | None = None) -> str:
    """The first few of them, and how many more there are: `of` is the number of all, if not all are given."""
    rest = (len(words) if of is None else of) - most
    more = [f"{rest} more"] if rest > 0 else []
    return ", ".join(words[:most] + more)
