"""People: who is logged in (utmp and logind), and the time of their last input (access time of their terminals).

A terminal's access time moves with input, its modification time with output; so a progress bar is not activity. A
session without a terminal (a desktop, VS Code over SSH) cannot be timed: it occupies the node as long as it lasts, and
its programs show what it does. Where the processes are not seen, it is unknown. Where no list has the terminal of an
SSH login (no utmp), its processes have. A person who is logged in and has typed within hours may sit there and read:
that occupies the node, too. A window of tmux has a record of its own in utmp, and nobody sits there. A terminal that is
open without a login (Session Manager of AWS, mosh, a remote editor's shell, `docker exec`) counts from its first key:
its access time is later than its change time, which is that of its opening. In a container, too.
Who came over the network and has left occupies the node while they may come back (`visits`).
"""

import errno
import os
import re
import struct
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpuwatch.agent.attribution.process import user_name
from gpuwatch.agent.evidence.base import IdleClock, Moment, Roots, UnseenError, make_finding, several
from gpuwatch.agent.evidence.files import fields, list_paths, read_small, surely_dead
from gpuwatch.agent.evidence.past import UNWATCHED_SECONDS, Past
from gpuwatch.agent.evidence.settings import SessionSettings
from gpuwatch.agent.processes.process import Process, ProcessView
from gpuwatch.agent.processes.shells import terminal_name
from gpuwatch.model.activity import Evidence, State, WorkOwner
from gpuwatch.model.duration import format_duration
from gpuwatch.runtime.printable import legible

# struct utmp of glibc (utmp(5)): what is needed lies at the same place everywhere, only the rest differs in size.
_HEAD = struct.Struct("=h2xi32s4x32s")
_USER_PROCESS = 7
_LAST_KIND = 9  # ACCOUNTING
_RECORD_BYTES = {"x86_64": 384, "ppc64le": 384, "s390x": 384}
_RECORD_BYTES_ELSEWHERE = 400  # aarch64, riscv64: 64-bit session and times

_TERMINAL = re.compile(r"[A-Za-z]+\w*(/\d+)?")
_PRESENT_SECONDS = 4 * 3600.0  # somebody reads a log, sits before `watch nvidia-smi`, is at a meeting
_DAEMONS = 3
_FIRST_PERSON = 1000
_STOP_DELAY_SECONDS = 10.0  # UserStopDelaySec of logind.conf(5)
_BOOT_SECONDS = 60.0
_KEEPERS = re.compile(r"tmux.*|screen|SCREEN|zellij|dtach|abduco")  # of terminals, with or without a person
_DESKTOPS = frozenset({"x11", "wayland", "mir"})  # their input does not touch the terminal they run on


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Somebody who is logged in; `terminal` is relative to /dev, None if there is no terminal with a time of input."""

    user: str
    terminal: str | None
    leader: int
    remote: bool = field(default=False, compare=False)  # over the network, as far as logind says

    @property
    def called(self) -> str:
        """The session in a message."""
        return f"{self.user} on {self.terminal}" if self.terminal else f"{self.user} without a terminal"


class People:
    """Busy while somebody who is logged in has typed within `silent_after`."""

    name = "people"
    source = "utmp, logind sessions and the last input of their terminals"

    def __init__(self, settings: SessionSettings, roots: Roots, past: Past | None = None) -> None:
        self._silent_after = settings.silent_after
        self._roots = roots
        self._silence = IdleClock()
        self._past, self._first = past or Past(roots), True
        self._visits = self._past.visits

    def find_evidence(self, now: Moment) -> tuple[Evidence, ...]:
        """One finding: the person who typed last."""
        sessions, doubts = self.present()
        sessions = _with_terminals(sessions, now.processes)
        self._note_visits(sessions, now)
        silent, untimed = self._silences(sessions, doubts, now)
        try:
            for session in self._open({session.terminal for session in sessions}):
                with suppress(FileNotFoundError):  # closed while we looked
                    silent[session] = self._silent_seconds(session, now)
            for session, terminal in self._in_containers(now):
                with suppress(FileNotFoundError, ProcessLookupError):
                    silent[session] = self._silence.seconds(str(session.terminal), terminal.stat().st_atime, now)
        except OSError as error:
            doubts.append(f"{error.strerror}: {error.filename}")
        windows = _windows(now.processes)
        there = {each: seconds for each, seconds in silent.items() if each.terminal not in windows}
        self._silence.forget_all_but({session.terminal or "" for session in silent})
        least = min(silent.values(), default=None)
        at_work = [session.called for session in silent if silent[session] < self._silent_after]
        if at_work:
            return (self._say(State.BUSY, several(at_work), least),)
        if doubts:
            return (self._say(State.UNKNOWN, several(doubts), least),)
        if untimed:
            owner = WorkOwner(user=untimed[0].user, pid=untimed[0].leader or None)
            note = f"logged in: {several([session.called for session in untimed])}"
            return (self._say(State.OCCUPIED, note, least, owner),)
        present = {each: seconds for each, seconds in there.items() if seconds < _PRESENT_SECONDS}
        if present:
            newest = min(present, key=lambda each: present[each])
            note = f"logged in: {several([each.called for each in present])}"
            return (self._say(State.OCCUPIED, note, least, WorkOwner(user=newest.user, pid=newest.leader or None)),)
        at = now.monotonic_seconds
        if (away := self._visits.find_expected(at)) is not None:
            ago, within = away.stays_away_for(at), away.comes_back_within
            how = "by SSH without a terminal" if away.program else "over the network"
            who = f"{away.user} was here {how}" if away.user else "somebody was here before this agent looked,"
            note = f"{who} {format_duration(ago)} ago, and may come again within {format_duration(within - ago)}"
            return (self._say(State.OCCUPIED, note, least, WorkOwner(user=away.user) if away.user else None),)
        note = f"silent: {several([session.called for session in silent])}"
        return (self._say(State.IDLE, note if silent else "no user is logged in", least),)

    def _note_visits(self, sessions: Iterable[Session], now: Moment) -> None:
        """Take who is here from another machine, or has just left: a copy may last for less than a look's interval."""
        if self._first:
            self._first = False
            if (ago := self._unseen_ago(now)) is not None:
                self._visits.note_unseen(now.monotonic_seconds - ago)
        here: dict[str, bool] = dict.fromkeys(self._just_left(), True)
        remote = [each for each in sessions if each.remote]
        leaders = {each.leader for each in sessions if each.terminal is not None}
        for each in remote:
            here[each.user] = here.get(each.user, True) and each.leader not in leaders
        self._visits.note(here, now.monotonic_seconds)

    def _unseen_ago(self, now: Moment) -> float | None:
        """How long ago the newest login began or ended that no agent has seen; None: not since the boot.

        logind writes into its folders then. It makes them in the first minute after the boot.
        """
        up = now.monotonic_seconds
        unwatched = up if self._past.looked_at is None else up - self._past.looked_at
        folders = (self._roots.run / "systemd/sessions", self._roots.run / "systemd/users")
        stamps = []
        for folder in folders:
            with suppress(OSError):
                stamps.append(folder.stat().st_mtime)
        if not stamps or unwatched <= _STOP_DELAY_SECONDS or up <= UNWATCHED_SECONDS:
            return None
        ago = max(0.0, now.at.timestamp() - max(stamps))  # a clock that was set back makes it younger
        return ago if ago <= min(unwatched, up - _BOOT_SECONDS) else None

    def _just_left(self) -> Iterator[str]:
        """Users without a session any more: logind keeps them for ten seconds. A daemon's user has jobs of cron."""
        folder = self._roots.run / "systemd/users"
        with suppress(OSError, UnseenError):
            for path in list_paths(folder):
                known = fields(read_small(path).text)
                is_person = path.name.isdecimal() and int(path.name) >= _FIRST_PERSON
                is_leaving = known.get("STATE") == "closing" and not known.get("SESSIONS")
                if is_person and is_leaving and "NAME" in known:
                    yield legible(known["NAME"], 32)

    def _silences(
        self, sessions: Iterable[Session], doubts: list[str], now: Moment
    ) -> tuple[dict[Session, float], list[Session]]:
        """Seconds of silence of those with a terminal, and those who cannot be timed while their programs are seen."""
        silent: dict[Session, float] = {}
        untimed: list[Session] = []
        seen = now.processes is not None and now.processes.doubt is None
        sessions = list(sessions)
        timed = {session.leader for session in sessions if session.terminal is not None}
        for session in sessions:
            if session.terminal is None and session.leader in timed and seen:
                continue  # logind writes the terminal of an SSH login into no file, and utmp has it
            try:
                silent[session] = self._silent_seconds(session, now)
            except OSError as error:
                if surely_dead(session.leader, self._roots):
                    continue  # its end was not recorded
                if seen:
                    untimed.append(session)
                else:
                    doubts.append(f"{session.called}, silent for an unknown time ({error.strerror})")
        return silent, untimed

    def present(self) -> tuple[tuple[Session, ...], list[str]]:
        """Everybody who is logged in, and why more may be."""
        sessions: dict[Session, None] = {}
        doubts: list[str] = []
        for source in (self._utmp, self._logind):
            try:
                for session in source():
                    sessions[session] = None
            except UnseenError as error:
                doubts.append(str(error))
            except OSError as error:
                doubts.append(f"{error.strerror}: {error.filename}")
        return tuple(sessions), doubts

    def _say(self, says: State, note: str, least: float | None, owner: WorkOwner | None = None) -> Evidence:
        unit = "seconds since input"
        return make_finding(self, says, note, observed=least, limit=self._silent_after, unit=unit, owner=owner)

    def _silent_seconds(self, session: Session, now: Moment) -> float:
        """Since its last input.

        Raises:
            OSError: that leaves no trace.

        """
        if session.terminal is None:
            raise OSError(errno.ENOTTY, "its input leaves no trace")
        status = (self._roots.dev / session.terminal).stat()
        return self._silence.seconds(session.terminal, status.st_atime, now)

    def _open(self, known: Collection[str | None]) -> Iterator[Session]:
        """Pseudo terminals with input, but without a known login."""
        folder = self._roots.dev / "pts"
        for path in list_paths(folder) if folder.exists() else ():
            terminal = f"pts/{path.name}"
            if path.name.isdecimal() and terminal not in known:
                with suppress(FileNotFoundError):  # closed meanwhile
                    status = path.stat()
                    if int(status.st_atime) > int(status.st_ctime):  # the kernel counts input in whole seconds
                        yield Session(user=user_name(status.st_uid), terminal=terminal, leader=0)

    def _in_containers(self, now: Moment) -> Iterator[tuple[Session, Path]]:
        """Terminals of programs in containers, which have a /dev/pts of their own."""
        seen: set[tuple[str, str]] = set()
        for process in () if now.processes is None else now.processes.people():
            container = process.placement.container_id or process.placement.pod_uid
            terminal = terminal_name(process.tty)
            if container is None or terminal is None or (container, terminal) in seen:
                continue
            seen.add((container, terminal))
            path = self._roots.proc / str(process.pid) / f"root/dev/{terminal}"
            try:
                if not path.exists():
                    continue
            except PermissionError:
                continue  # the process itself occupies the node
            called = Session(user=user_name(process.uid), terminal=_terminal_of(process), leader=process.pid)
            yield called, path

    def _utmp(self) -> Iterator[Session]:
        """Sessions that utmp lists; newer systems do not write it."""
        path = self._roots.run / "utmp"
        try:
            data = read_small(path).data
        except FileNotFoundError:
            if not (self._roots.run / "systemd/sessions").is_dir():
                raise UnseenError(
                    f"there is neither {path} nor {path.parent}/systemd/sessions; let the agent see the host's /run"
                ) from None
            return
        size = _RECORD_BYTES.get(os.uname().machine, _RECORD_BYTES_ELSEWHERE)
        if len(data) % size:
            raise UnseenError(f"{path} holds {len(data)} bytes, which is no multiple of a record's {size}")
        for start in range(0, len(data), size):
            kind, pid, line, user = _HEAD.unpack_from(data, start)
            if not 0 <= kind <= _LAST_KIND:
                raise UnseenError(f"{path} holds a record of kind {kind}, which does not exist")
            if kind == _USER_PROCESS:
                yield Session(user=_word(user), terminal=_terminal(_word(line)), leader=pid)

    def _logind(self) -> Iterator[Session]:
        """Sessions of systemd-logind; empty if it does not run."""
        folder = self._roots.run / "systemd/sessions"
        try:
            paths = list_paths(folder)
        except FileNotFoundError:
            return
        for path in paths:
            try:
                known = fields(read_small(path).text)
            except FileNotFoundError:
                continue  # it ended while we looked
            if "USER" not in known or not known.get("LEADER", "").isdigit():
                raise UnseenError(f"{path} does not name the session's user")
            if known.get("STATE") == "closing" or not known.get("CLASS", "user").startswith("user"):
                continue  # its person has left; a greeter, a service manager, cron
            timed = known.get("TYPE") not in _DESKTOPS
            terminal = _terminal(known.get("TTY", "")) if timed else None
            yield Session(
                user=legible(known["USER"], 32),
                terminal=terminal,
                leader=int(known["LEADER"]),
                remote=known.get("REMOTE") == "1",
            )


def _windows(view: ProcessView | None) -> frozenset[str | None]:
    """The terminals of tmux and screen: a person there sits at another one."""
    processes = {} if view is None else view.processes
    firsts = (each for each in processes.values() if each.tty and each.pid == each.session)
    kept = ((each, processes.get(each.parent)) for each in firsts)
    return frozenset(_terminal_of(each) for each, above in kept if above is not None and _KEEPERS.fullmatch(above.name))


def _terminal_of(process: Process) -> str | None:
    """Its terminal; containers have a /dev/pts of their own."""
    terminal, container = terminal_name(process.tty), process.placement.container_id or process.placement.pod_uid
    return terminal if terminal is None or container is None else f"{terminal} in {container}"


def _with_terminals(sessions: Collection[Session], view: ProcessView | None) -> tuple[Session, ...]:
    """The sessions, each with the terminals that its daemon's children have, where no list knows of one."""
    timed = {session.leader for session in sessions if session.terminal is not None}
    without = {session.leader for session in sessions if session.terminal is None} - timed
    if view is None or not without:
        return tuple(sessions)
    begun: dict[int, set[str | None]] = {leader: set() for leader in without}
    for process in view.processes.values():
        daemon = view.processes.get(process.parent)
        at = daemon
        for _ in range(_DAEMONS):  # sshd has a child of its own for its user
            if at is None or daemon is None or at.name != daemon.name or process.name == daemon.name:
                break
            if at.pid in begun:
                begun[at.pid].add(terminal_name(process.tty))
                break
            at = view.processes.get(at.parent)
    found: list[Session] = []
    for session in sessions:
        terminals = [each for each in begun.get(session.leader, ()) if each is not None]
        whole = terminals and None not in begun[session.leader] and session.terminal is None
        found += [replace(session, terminal=each) for each in sorted(terminals)] if whole else [session]
    return tuple(found)


def _word(raw: bytes) -> str:
    """A field of utmp: ended by a zero byte, or full."""
    return legible(raw.partition(b"\0")[0].decode("utf-8", "replace"))


def _terminal(name: str) -> str | None:
    """A terminal's name below /dev; None for an X display and the like."""
    return name if _TERMINAL.fullmatch(name) else None
