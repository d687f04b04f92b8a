"""`gpuwatch snooze`: a user states for how long the machine is needed, and why.

A snooze is a file of its owner in a directory where all may write, but not delete others' files (mode 1777). The
file's owner is the snooze's owner. It is timed on the monotonic clock, which all processes of one boot
share, so no jump of the wall clock ends or prolongs it; the boot id ends it with the boot.
"""

import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from gpuwatch.agent.attribution.process import user_name
from gpuwatch.agent.evidence.base import Moment, Roots, UnseenError, make_finding, several
from gpuwatch.agent.evidence.files import list_paths, read_small
from gpuwatch.agent.evidence.settings import EvidenceSettings, SnoozeSettings
from gpuwatch.model.activity import Evidence, State
from gpuwatch.model.bounds import BoundedFloat
from gpuwatch.model.duration import format_duration
from gpuwatch.model.orders import Snooze as WorkloadSnooze
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.printable import legible

_BOOT_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NAME = re.compile(r"\d{1,10}\.json", re.ASCII)  # anybody may leave other files there, and they are nothing
_LARGEST_BYTES = 4096
_LONGEST_REASON = 200
_EARLIEST_SECONDS = 1.0  # a snooze may be this much newer than the look that finds it


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """What a snooze file holds."""

    boot_id: str
    from_monotonic_seconds: BoundedFloat
    until_monotonic_seconds: BoundedFloat
    reason: str


_DECODER = msgspec.json.Decoder(_Written)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snooze:
    """A snooze that holds; `expires_at` is for people, who live by the wall clock."""

    user: str
    reason: str
    expires_at: datetime
    left_seconds: float


class SnoozeError(Exception):
    """A snooze could not be written, read or ended; the message says what would help."""


class Snoozes:
    """Busy while a snooze of any user holds."""

    name = "snooze"
    source = "snoozes of `gpuwatch snooze`"

    def __init__(self, settings: SnoozeSettings, roots: Roots) -> None:
        self._directory = Path(settings.directory)
        self._longest = settings.max
        self._roots = roots
        self._seen = False  # the directory was there once
        self.current: tuple[Snooze, ...] = ()

    def find_evidence(self, now: Moment) -> tuple[Evidence, ...]:
        """One finding for each snooze, and one for all that cannot be read.

        Without a directory there can be no snooze. If the directory has disappeared, the snoozes are unknown.

        Raises:
            OSError: the directory is there and cannot be listed.
            UnseenError: the directory has disappeared or holds too many files, or the boot id cannot be read.

        """
        try:
            paths = list_paths(self._directory, _NAME)
        except OSError as error:
            self.current = ()
            if not isinstance(error, FileNotFoundError):
                raise
            if self._seen:
                why = f"{self._directory} is gone, with the snoozes in it: {_remedy(self._directory)}"
                raise UnseenError(why) from None
            note = f"`gpuwatch snooze` does not work yet: {self._directory} is missing ({_remedy(self._directory)})"
            return (make_finding(self, State.IDLE, note),)
        self._seen = True
        snoozes, broken = self.read(paths, now)
        self.current = snoozes
        found = [
            make_finding(
                self,
                State.BUSY,
                f"{snooze.user} until {snooze.expires_at:%Y-%m-%d %H:%M} UTC: {snooze.reason}",
                observed=snooze.left_seconds,
                limit=0.0,
                unit="seconds left",
            )
            for snooze in snoozes
        ]
        if broken:
            found.append(make_finding(self, State.UNKNOWN, several(broken)))
        if not found:
            found.append(make_finding(self, State.IDLE, "no snooze holds"))
        return tuple(found)

    def read(self, paths: Iterable[Path], now: Moment) -> tuple[tuple[Snooze, ...], list[str]]:
        """Of these files the snoozes that hold, the longest first, and what is wrong with those that cannot be read.

        Raises:
            OSError, UnseenError: the boot id cannot be read.

        """
        boot = _boot_id(self._roots)
        snoozes: list[Snooze] = []
        broken: list[str] = []
        for path in paths:
            name = legible(path.name, 40)
            try:
                snooze = self._one(path, boot, now)
            except FileNotFoundError:
                continue  # ended while we looked
            except OSError as error:
                broken.append(f"{name}: {error.strerror}")
            except UnseenError as error:
                broken.append(f"{name}: {error}")
            else:
                snoozes += [] if snooze is None else [snooze]
        return tuple(sorted(snoozes, key=lambda each: -each.left_seconds)), broken

    def _one(self, path: Path, boot: str, now: Moment) -> Snooze | None:
        """The snooze in a file; None if it has ended."""
        contents = read_small(path, _LARGEST_BYTES)
        if path.name != _file_name(contents.owner_uid):
            raise UnseenError(f"it belongs to {user_name(contents.owner_uid)} and has another user's name")
        try:
            written = _DECODER.decode(contents.data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise UnseenError("it is not a snooze") from None
        if not _BOOT_ID.fullmatch(written.boot_id):
            raise UnseenError("it has no boot id")
        # A container is shown a boot id of its own, and a service in a sandbox there may be shown another than the
        # person who asks it for a snooze: only a file that is older than this boot has ended with the boot before.
        older = now.at.timestamp() - contents.written_seconds > now.monotonic_seconds
        if written.boot_id != boot and older:
            return None
        if written.from_monotonic_seconds > now.monotonic_seconds + _EARLIEST_SECONDS:
            raise UnseenError("it begins in the future")
        until = min(written.until_monotonic_seconds, written.from_monotonic_seconds + self._longest)
        left = until - now.monotonic_seconds
        if left <= 0:
            return None
        return Snooze(
            user=user_name(contents.owner_uid),
            reason=legible(written.reason, _LONGEST_REASON),
            expires_at=now.at + timedelta(seconds=left),
            left_seconds=left,
        )


def make_directory(path: Path) -> None:
    """Make the directory of snoozes, where all may write, but not delete others' files.

    Raises:
        OSError: it cannot be made.

    """
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        path.mkdir()
        path.chmod(0o1777)


def snooze(settings: EvidenceSettings, seconds: float, reason: str, clock: Clock) -> str:
    """Write the caller's snooze in place of any before it; says until when it holds.

    Raises:
        SnoozeError: snoozes are switched off, the reason is empty, or the snooze cannot be written.

    """
    if not (settings.enabled and settings.snooze.enabled):
        raise SnoozeError(
            "This machine's agent ignores snoozes (agent.evidence.snooze.enabled): ask its administrator."
        )
    reason = " ".join(reason.split())
    if not reason:
        raise SnoozeError('A snooze needs a reason, such as --reason "evaluation runs overnight".')
    granted = min(seconds, settings.snooze.max)
    begin = clock.monotonic()
    directory = Path(settings.snooze.directory)
    try:
        snooze = _Written(
            boot_id=_boot_id(Roots()),
            from_monotonic_seconds=begin,
            until_monotonic_seconds=begin + granted,
            reason=legible(reason, _LONGEST_REASON),
        )
        _write(directory, msgspec.json.encode(snooze))
    except (OSError, UnseenError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise SnoozeError(
            f"The snooze cannot be written: {why}: {directory}. An agent that runs as root, or by its systemd unit,"
            f" makes the directory; so may an administrator: {_remedy(directory)}"
        ) from error
    until = clock.now() + timedelta(seconds=granted)
    longest = (
        f" {format_duration(settings.snooze.max)} is the longest that is allowed here." if granted < seconds else ""
    )
    return f"Kept until {until:%Y-%m-%d %H:%M} UTC.{longest} To end it sooner: gpuwatch snooze --end"


def snoozes_in_force(settings: SnoozeSettings, clock: Clock) -> tuple[list[Snooze], list[str]]:
    """The snoozes that hold, and what is wrong with the others.

    Raises:
        SnoozeError: they cannot be read.

    """
    now = Moment(at=clock.now(), monotonic_seconds=clock.monotonic())
    directory = Path(settings.directory)
    try:
        snoozes, broken = Snoozes(settings, Roots()).read(
            list_paths(directory, _NAME) if directory.exists() else (), now
        )
    except (OSError, UnseenError) as error:
        raise SnoozeError(f"The snoozes cannot be read: {error}") from error
    return list(snoozes), list(broken)


def listing(snoozes: Sequence[Snooze], broken: Sequence[str]) -> str:
    """The snoozes as text, one a line."""
    lines = [
        f"{each.user} until {each.expires_at:%Y-%m-%d %H:%M} UTC ({format_duration(each.left_seconds)}): {each.reason}"
        for each in snoozes
    ]
    return "\n".join(map(legible, [*lines, *(f"Broken: {each}" for each in broken)])) or "No snooze holds."


@dataclass(frozen=True, slots=True, kw_only=True)
class SnoozesDocument:
    """The snoozes of this machine that hold, and what is wrong with files that could not be read.

    `workload` is the order that was given now, where it is about a workload of a cluster; then the lists are empty.
    """

    snoozes: Sequence[Snooze] = ()
    broken: Sequence[str] = ()
    workload: WorkloadSnooze | None = None


def end(settings: SnoozeSettings) -> bool:
    """Remove the caller's snooze; False if the caller had no snooze.

    Raises:
        SnoozeError: it cannot be removed.

    """
    try:
        (Path(settings.directory) / _file_name(os.geteuid())).unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise SnoozeError(f"The snooze cannot be removed: {error.strerror}: {error.filename}") from error
    return True


def _write(directory: Path, data: bytes) -> None:
    """Write the file in one step, so that half a snooze is never read."""
    temporary = directory / f".{os.geteuid()}.{os.getpid()}.new"
    opened = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        with os.fdopen(opened, "wb") as file:
            os.fchmod(opened, 0o644)  # whatever the caller's umask
            file.write(data)
        temporary.replace(directory / _file_name(os.geteuid()))
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def _remedy(directory: Path) -> str:
    """How an administrator makes the directory."""
    return f"mkdir -p {directory} && chmod 1777 {directory}"


def _file_name(uid: int) -> str:
    """The name of a user's snooze file."""
    return f"{uid}.json"


def _boot_id(roots: Roots) -> str:
    """Linux's name for this boot.

    Raises:
        OSError: it cannot be read.
        UnseenError: it is not a boot id.

    """
    path = roots.proc / "sys/kernel/random/boot_id"
    boot = read_small(path).text.strip()
    if not _BOOT_ID.fullmatch(boot):
        raise UnseenError(f"{path} does not hold a boot id")
    return boot
