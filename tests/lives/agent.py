"""The real agent on a made host: its own signals, activity and verdict, driven by hand instead of by threads.

Only the outside is replaced: where files are (Roots and paths in settings), the users that `pwd` knows, the PATH, and
connections to loopback. This is the one module here that knows how the agent is put together.
"""

import os
import pwd
import termios
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, datetime
from inspect import signature
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec

from gpuwatch.agent.devices import pid_namespace
from gpuwatch.agent.devices.messages import Reading
from gpuwatch.agent.evidence.base import Roots
from gpuwatch.agent.evidence.registry import HostSignals
from gpuwatch.agent.evidence.settings import EvidenceSettings
from gpuwatch.agent.processes import packages
from gpuwatch.agent.processes.package_owners import find_owners
from gpuwatch.agent.processes.pool import Question
from gpuwatch.agent.settings import AgentSettings
from gpuwatch.agent.state import AgentCore
from gpuwatch.config import load
from gpuwatch.model.gpu import GpuReading
from gpuwatch.model.pool_programs import HostPrograms, PoolTally, census_id, key_of, salt_of
from gpuwatch.runtime.clock import ManualClock
from tests.lives.actors import UPTIME_SECONDS
from tests.lives.folder import BEGIN_UNIX
from tests.lives.host import MadeHost
from tests.lives.loopback import Loopback
from tests.lives.netlink import Kernel
from tests.lives.rates import duration
from tests.lives.rights import ROOT, Rights, Sight
from tests.lives.world import HOST_PIDS

NODE_ID = "i-0123456789abcdef0"
QUIET_SECONDS = 60.0  # from cycle to cycle while nothing changes; a real agent has one each second
ALERT_SECONDS = 10.0  # likewise near a change
DAY_SECONDS = 86400.0
_DAY_LOOK_SECONDS, _DAY_LOOKS = 300.0, 61  # five hours of each day before a life
_BEFORE, _AFTER = 10.0, 70.0
_BASE_PORTS = (22, 9100, 9400, 9460)  # of base.yaml


class PlayedAgent:
    """An agent whose cycles are made one by one."""

    def __init__(self, host: MadeHost, work: Path, rights: Rights = ROOT, closed: tuple[str, ...] = ()) -> None:
        """Nothing was looked at yet. `work` takes its configuration and the life's own commands.

        `closed`: of what others' processes have in /proc, only these are closed.
        """
        self._host = host
        self._sight = Sight(rights, host.at.root, host.agents_pid, closed)
        self._skew = duration(host.life.agent.get("clock", 0))
        begin = datetime.fromtimestamp(BEGIN_UNIX + self._skew, UTC)
        self._clock = ManualClock(wall=begin, elapsed_seconds=UPTIME_SECONDS)
        self._moment = 0.0
        self._readings: tuple[GpuReading, ...] = ()  # a real agent's are a second old at most
        self._loopback = Loopback(host)
        self._kernel = Kernel(host)
        self._commands = _commands(host.life.commands, work / "bin")
        self._agent_settings, self._days = self._settings(work), work / "days.json"
        self.begin_again()

    def begin_again(self) -> None:
        """The agent begins: all that it knows of before is what it has kept in its file."""
        settings, host = self._agent_settings, self._host
        roots = relocated(host.at.root)
        patterns = {name: getattr(settings, name, None) for name in ("workloads", "services")}
        self._signals = HostSignals(settings.evidence, self._clock, roots, **_taken(HostSignals, patterns))
        self._signals.keep_days(self._days)
        told = {name: getattr(self._signals, name, None) for name in ("local_disks", "service_pids", "owner")}
        told["blind"] = getattr(getattr(self._signals, "blind", None), "codes", None)
        self._core = AgentCore(
            node_id=NODE_ID,
            clock=self._clock,
            rules=settings.activity,
            interval_seconds=QUIET_SECONDS,
            stale_after_seconds=4 * QUIET_SECONDS,
            host=self._signals.evidence,
            **_taken(AgentCore, told),
        )
        with patch.object(threading.Thread, "start", lambda _: None):  # its threads' work is done in `cycle`
            self._signals.start(lambda: self._readings)

    def end(self) -> None:
        """The agent ends, and keeps what outlives it."""
        with patch.object(threading.Thread, "start", lambda _: None):
            self._signals.stop()

    def restart(self) -> None:
        """Another agent goes on: after an end, after a kill, or after one of a version that kept less (`was`)."""
        was = self._host.life.agent.get("was", "this")
        if was != "killed":
            self.end()
        if was == "older" and self._days.exists():
            content = msgspec.json.decode(self._days.read_bytes())
            content.pop("seen", None)
            self._days.write_bytes(msgspec.json.encode(content))
        self.begin_again()

    def cycle(self, moment: float) -> None:
        """One cycle at a moment of the life: the GPUs are read, then every signal looks."""
        self._clock.advance(moment - self._moment)
        self._moment = moment
        self._host.pass_to(moment)
        self._loopback.pass_to(moment)
        self._kernel.moment = moment
        messages = self._host.gpus.cycle(moment, self._clock.monotonic(), self._clock.now())
        self._readings = tuple(each.reading for each in messages if isinstance(each, Reading))
        watcher = self._signals.watcher
        self._hear_of_the_pool()
        with self._sight.applied():
            for watched in sorted(
                watcher._watched, key=lambda each: each.signal.name != "processes"
            ):  # others rest on it
                watcher.look_once(watched)
            self._core.ingest_messages(messages)

    def _hear_of_the_pool(self) -> None:
        """What a controller says that asks this agent and those of the life's other machines, if there are any."""
        pool, told = getattr(self._signals, "pool", None), self._host.life.fleet
        if pool is None or not told:
            return
        at, salt = self._clock.monotonic(), salt_of("default")
        services = "".join(key_of(salt, each) for each in told.get("services", ()))
        other = HostPrograms(lasting=services, ports=(*_BASE_PORTS, *told.get("ports", ())))
        tally = PoolTally()
        for _ in range(int(told["machines"]) - 1):
            tally.add(other)
        tally.add(pool.answer(self._core.verdict(at), Question(salt=salt, counts=True), None, at).programs)
        if (census := tally.census()) is not None:
            pool.hear(Question(salt=salt, census_id=census_id(census.text), census=census), at)

    def answer(self) -> bytes:
        """What it says at /v1/verdict now."""
        return msgspec.json.encode(self._core.verdict(self._clock.monotonic()))

    @contextmanager
    def on_its_host(self) -> Iterator[None]:
        """Within, users, commands, loopback and time zone are those of the made host."""
        with ExitStack() as stack:
            stack.enter_context(self._loopback.instead_of_sockets())
            stack.enter_context(self._kernel.instead())
            stack.enter_context(patch.object(pid_namespace, "_HOST_PIDS", HOST_PIDS))
            stack.enter_context(patch.object(packages, "ask_databases", find_owners))  # no program of its own
            stack.enter_context(patch.object(termios, "tcgetattr", self._modes))
            stack.enter_context(patch.dict(os.environ, {"PATH": str(self._commands), "TZ": "UTC"}))
            for name, function in _users(self._host.life.users).items():
                stack.enter_context(patch.object(pwd, name, function))
            time.tzset()
            yield
        time.tzset()

    def _modes(self, opened: int) -> list[int]:
        """What tcgetattr(3) says of a terminal of the made host."""
        path = Path(os.readlink(f"/proc/self/fd/{opened}"))  # noqa: PTH115  nothing to normalise
        return [0, 0, 0, self._host.terminal_modes(str(path.relative_to(self._host.at.root / "dev")))]

    def _settings(self, work: Path) -> AgentSettings:
        """The defaults, with what the life sets; looks as seldom as cycles are here, and paths of the made host."""
        file = work / "agent.json"  # JSON is YAML
        file.write_bytes(msgspec.json.encode({"agent": dict(self._host.life.settings)}))
        agent = load(file, {}).agent
        rules = replace(agent.activity, max_gap=QUIET_SECONDS + 30.0)
        return replace(agent, activity=rules, evidence=_slower(agent.evidence, self._host.at.root))


def relocated(root: Path) -> Roots:
    """Every root of the agent's, below a folder."""

    def below(value: Any) -> Any:  # noqa: ANN401  a path or several
        if isinstance(value, Path):
            return root / value.relative_to("/")
        return tuple(map(below, value)) if isinstance(value, tuple) else value

    usual = Roots()
    return Roots(**{each.name: below(getattr(usual, each.name)) for each in fields(Roots)})


def _slower(evidence: EvidenceSettings, root: Path) -> EvidenceSettings:
    """Each section with the interval of the cycles here, and with its absolute paths below the root."""
    changed: dict[str, Any] = {}
    for each in fields(evidence):
        section = getattr(evidence, each.name)
        if not is_dataclass(section) or isinstance(section, type):
            continue
        new: dict[str, Any] = {}
        for part in fields(section):
            value = getattr(section, part.name)
            if part.name == "interval":
                new["interval"] = max(value, QUIET_SECONDS)
            elif isinstance(value, str) and value.startswith("/"):
                new[part.name] = str(root / value[1:])
        changed[each.name] = replace(section, **new)
    return replace(evidence, **changed)


_WAITS = "PD||N/A|(null)|0|(null)||"


def _commands(told: Mapping[str, Any], folder: Path) -> Path:
    """A folder for PATH with the programs that the life has, each of which prints its text."""
    folder.mkdir(parents=True)
    for name, about in told.items():
        told_here = about if isinstance(about, Mapping) else {"prints": about}
        (folder / f".{name}").write_text(str(told_here.get("prints", "")))
        script = folder / name
        # A life tells of a waiting job what its rules ask first; its user and its dependencies are nobody's and none.
        pending = str(told_here.get("pending", "")).splitlines()
        lines = [line if line.count("|") > 13 else f"{_WAITS}{line}" for line in pending]
        (folder / f".{name}.pending").write_text("".join(f"{line}\n" for line in lines))
        choice = 'about=; case "$*" in *--states=PD*) about=.pending;; esac'
        show = f'while read -r line; do echo "$line"; done < "{folder}/.{name}$about"'
        script.write_text(f"#!/bin/sh\n{choice}\n{show}\n")
        script.chmod(0o755)
    return folder


def _taken(part: Callable[..., object], told: Mapping[str, Any]) -> dict[str, Any]:
    """What of this a part of the agent takes; it may be an older one."""
    known = signature(part).parameters
    return {name: value for name, value in told.items() if value is not None and name in known}


def _users(users: Mapping[str, int]) -> dict[str, Callable[..., object]]:
    """What replaces functions of `pwd`."""

    def entry(name: str, uid: int) -> pwd.struct_passwd:
        person = uid == 0 or (uid >= 1000 and uid < 65000)
        home = "/root" if uid == 0 else f"/home/{name}" if person else "/nonexistent"
        shell = "/bin/bash" if person else "/usr/sbin/nologin"
        return pwd.struct_passwd((name, "x", uid, uid, "", home, shell))

    by_uid = {uid: name for name, uid in users.items()}

    def getpwuid(uid: int) -> pwd.struct_passwd:
        return entry(by_uid[uid], uid)

    def getpwnam(name: str) -> pwd.struct_passwd:
        return entry(name, users[name])

    return {
        "getpwuid": getpwuid,
        "getpwnam": getpwnam,
        "getpwall": lambda: [entry(name, uid) for name, uid in users.items()],
    }


def days_moments(days: int) -> list[float]:
    """When to look on the days before a life: each five minutes of the first five hours."""
    return [day * DAY_SECONDS + look * _DAY_LOOK_SECONDS for day in range(days) for look in range(_DAY_LOOKS)]


def cycle_moments(changes: set[float], until: float) -> list[float]:
    """When to look: each minute, and each ten seconds near a change and at the beginning."""
    found = {QUIET_SECONDS * turn for turn in range(int(until / QUIET_SECONDS) + 1)}
    for change in (0.0, *changes):
        first = (change - _BEFORE) // ALERT_SECONDS
        turns = range(max(0, int(first)), int((change + _AFTER) // ALERT_SECONDS) + 1)
        found.update(ALERT_SECONDS * turn for turn in turns if ALERT_SECONDS * turn <= until)
    return sorted(found)
