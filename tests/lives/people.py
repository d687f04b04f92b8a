"""Who is logged in, as utmp and logind write it, and the terminals with the time of their last input."""

import os
import struct
from bisect import bisect_right

from tests.lives.actors import UPTIME_SECONDS
from tests.lives.folder import BEGIN_UNIX, Folder
from tests.lives.rates import duration, moments
from tests.lives.story import Life, Login
from tests.lives.world import World

_UTMP = struct.Struct("hi32s4s32s256shhiii4i20s")  # struct utmp of glibc on x86_64, as a C compiler lays it out
_STARTED_SECONDS = 20.0  # logind, after the boot
_STOP_DELAY_SECONDS = 10.0  # UserStopDelaySec of logind.conf(5)
_BOOT_TIME, _USER_PROCESS, _DEAD_PROCESS = 2, 7, 8


class PeopleFiles:
    """Files of logins and terminals."""

    def __init__(self, life: Life, world: World, folder: Folder) -> None:
        """Nobody is shown yet."""
        self._life = life
        self._world = world
        self._folder = folder
        self._inputs: dict[str, float] = {}
        self._managed: set[int] = set()
        self._hidden = life.agent.get("run") == "hidden"
        self._typed = {login.id: login.typed for login in life.logins}
        self._typed_at = {name: moments(about.get("typed", []), life.seconds) for name, about in life.terminals.items()}
        if not self._hidden:
            for name in ("/run/systemd/sessions", "/run/systemd/users", "/run/systemd/inhibit", "/run/systemd/seats"):
                folder.folder(name)
        folder.folder("/dev/pts")

    def show(self, moment: float) -> None:
        """The logins, users' managers and terminals of a moment."""
        for name, member in self._world.by_name.items():
            if name.startswith("user@ ") and not self._hidden:
                self._manager(member.uid, there=self._world.turn(member, moment) is not None)
        records = [self._record(_BOOT_TIME, 0, "~", "reboot", "6.5.0-1020-aws", -UPTIME_SECONDS)]
        for login in self._life.logins:
            records += self._login(login, moment)
        if not self._hidden:
            for name in {login.user for login in self._life.logins}:
                self._user(name, [login for login in self._life.logins if login.user == name], moment)
            self._stamp(moment)
        kept = all(login.utmp or login.tty is None for login in self._life.logins)  # not by newer distributions
        if not self._hidden and kept:
            self._folder.put("/run/utmp", b"".join(records))
        for name, about in self._life.terminals.items():
            there = duration(about.get("from", "-1h")) <= moment
            there = there and ("to" not in about or moment < duration(about["to"]))
            uid = self._life.users[about.get("user", "alice")]
            self._terminal(name, self._typed_at[name], moment, uid=uid, there=there, closed=bool(about.get("closed")))
        known = {*self._life.terminals, *(login.tty for login in self._life.logins)}
        for name, members in self._world.on_terminal.items():
            if name not in known and name.startswith("pts/"):
                there = any(self._world.turn(each, moment) is not None for each in members)
                self._terminal(name, (), moment, uid=members[0].uid, there=there)

    def _login(self, login: Login, moment: float) -> list[bytes]:
        """One login's files; gives its records for utmp."""
        uid, there = self._life.users[login.user], login.begin <= moment < login.end
        scope = f"/user.slice/user-{uid}.slice/session-{login.id}.scope"
        left = any(process.member.cgroup == scope for process in self._world.alive(moment))
        path = f"/run/systemd/sessions/{login.id}"
        if not self._hidden:
            if there or (left and login.begin <= moment):
                self._folder.put(path, self._session(login, uid, closing=not there))
            else:
                self._folder.drop(path)
        if login.tty is not None and login.kind not in {"x11", "wayland"}:
            self._terminal(login.tty, self._typed[login.id], moment, uid=uid, there=there, closed=login.closed)
        if not login.utmp or moment < login.begin:
            return []
        pid = self._leader(login)
        kind = _USER_PROCESS if there else _DEAD_PROCESS
        name = login.user if there else ""
        return [self._record(kind, pid, login.tty or "", name, login.host if there else "", login.begin)]

    def _user(self, name: str, logins: list[Login], moment: float) -> None:
        """What logind says of a user with a session, with what is left of one, or for ten seconds after the last."""
        begun = [login for login in logins if login.begin <= moment]
        shown = [each.id for each in begun if (self._folder.root / f"run/systemd/sessions/{each.id}").exists()]
        there = any(moment < login.end for login in begun)
        leaves = any(moment - login.end < _STOP_DELAY_SECONDS for login in begun)
        path = f"/run/systemd/users/{self._life.users[name]}"
        if not shown and not leaves:
            self._folder.drop(path)
            return
        sessions = " ".join(map(str, shown))
        self._folder.put(path, f"NAME={name}\nSTATE={'active' if there else 'closing'}\nSESSIONS={sessions}\n")

    def _stamp(self, moment: float) -> None:
        """When logind wrote into its folders last: as a login began or ended, else as it started itself."""
        known = [each for login in self._life.logins for each in (login.begin, login.end) if each <= moment]
        stamp = BEGIN_UNIX + max(known, default=_STARTED_SECONDS - UPTIME_SECONDS)
        for name in ("sessions", "users"):
            os.utime(self._folder.root / "run/systemd" / name, (stamp, stamp))

    def _manager(self, uid: int, *, there: bool) -> None:
        """The runtime folder of a user, which is there as long as the user's manager is."""
        if there and uid not in self._managed:
            self._folder.folder(f"/run/user/{uid}/systemd/transient", uid=uid)
            self._managed.add(uid)
        if not there and uid in self._managed:
            self._folder.drop(f"/run/user/{uid}")
            self._managed.remove(uid)

    def _leader(self, login: Login) -> int:
        """The process that logind knows a session by."""
        found = self._world.by_name.get(f"sshd{login.id}")
        if found is None:
            found = next((each for each in self._world.members if each.actor.place == f"session {login.id}"), None)
        return 1 if found is None else self._world.pid(found, found.actor.begin)

    def _session(self, login: Login, uid: int, *, closing: bool) -> str:
        desktop = login.kind in {"x11", "wayland"}
        words = {
            "UID": uid, "USER": login.user, "ACTIVE": int(not closing), "IS_DISPLAY": int(desktop),
            "STATE": "closing" if closing else "active", "REMOTE": int(not desktop), "TYPE": login.kind,
            "ORIGINAL_TYPE": login.kind, "CLASS": "user", "SCOPE": f"session-{login.id}.scope",
            "FIFO": f"/run/systemd/sessions/{login.id}.ref", "TTY": login.tty if login.utmp else None,
            "REMOTE_HOST": None if desktop else login.host, "SERVICE": "gdm-password" if desktop else "sshd",
            "LEADER": self._leader(login), "AUDIT": login.id,
            "REALTIME": round((BEGIN_UNIX + login.begin) * 1e6),
            "MONOTONIC": round((UPTIME_SECONDS + login.begin) * 1e6),
        }  # fmt: skip
        text = "".join(f"{name}={value}\n" for name, value in words.items() if value is not None)
        return f"# This is private data. Do not parse.\n{text}"

    def _terminal(
        self, name: str, typed: tuple[float, ...], moment: float, *, uid: int, there: bool, closed: bool = False
    ) -> None:
        """A terminal: its access time is that of the last input; without any, that of its opening."""
        path = self._folder.root / "dev" / name
        if not there:
            if name in self._inputs:
                self._folder.drop(f"/dev/{name}")
                del self._inputs[name]
            return
        number = bisect_right(typed, moment)
        last = typed[number - 1] if number else -float("inf")
        if self._inputs.get(name) == last:
            return
        self._inputs[name] = last
        self._folder.put(f"/dev/{name}", b"", uid=uid)
        path.chmod(0o600 if closed else 0o620)  # `mesg n`
        stamp = path.stat().st_ctime - 1 if number == 0 else BEGIN_UNIX + last
        os.utime(path, (stamp, stamp))

    def _record(self, kind: int, pid: int, line: str, user: str, host: str, since: float) -> bytes:
        """A record of utmp."""
        words = (kind, pid, line.encode(), line.encode()[-4:], user.encode(), host.encode(), 0, 0, 0)
        record = _UTMP.pack(*words, int(BEGIN_UNIX + since) & 0x7FFFFFFF, 0, 0, 0, 0, 0, b"")
        return record + b"\0" * (-len(record) % 8)
