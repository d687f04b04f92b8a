"""What the machines of this one's pool run, as its controller says, and what this machine hands over of its services.

Rules, all of them:

1. A service of a unit that at least 80 % of the pool's machines run is the machine's own, on whatever list it stands.
   No person, container or job runs it, no administrator's pattern names it, and it never held a GPU here. The ports on
   which other machines may ask it are the pool's, too. Much work of its own, and who asks for it, keep the machine.
2. The machine's own program is somebody's while it may be asked on a port that fewer than 20 % of the machines have.
3. The controller's census counts for 15 minutes after its last question; then rule 1 is off. Rule 2, which only
   protects, is for a day.
4. Handed over are keys of services that did not work and had no GPU, and the ports below those that the kernel gives to
   anybody. What a key stands for stays here.
"""

import os
import re
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import parse_qs

from gpuwatch.agent.processes import kinds
from gpuwatch.agent.processes.process import Kind, Process
from gpuwatch.model.pool_programs import (
    MOST_PORTS,
    MOST_PROGRAMS,
    WATCHED_SECONDS,
    HostPrograms,
    PoolPrograms,
    census_id,
    key_of,
)
from gpuwatch.model.verdict import NodeVerdict

COMMON = "common in its pool: "  # how the rules begin that this module gives
ALONE = "unusual in its pool: "
_HEARD_SECONDS = 900.0
_PROTECTS_SECONDS = 86400.0
_GAP_SECONDS = 600.0  # a service that is away for longer begins anew
_RESTING_CORES = 0.2  # mean of a process's life
_SHORTEST_LIFE_SECONDS = 60.0  # a start takes some
_MOST_KEPT = 4096
_FREE_PORTS = (32768, 60999)  # where the kernel does not say
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_LETTERS = re.compile(r"[A-Za-z0-9_-]{12}", re.ASCII)
_NONE = "none"

_Key = tuple[int, int]  # pid and start


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a controller says with its question: its fleet's salt, and which census of this machine's pool it made.

    `census_id` is None where it made none; `keeps`: it has not counted yet. `census` is what it counted, if that comes
    with the question. `counts` is whether it asks what this machine runs.
    """

    salt: str
    keeps: bool = False
    census_id: str | None = None
    census: PoolPrograms | None = None
    counts: bool = False

    @classmethod
    def in_query(cls, query: str) -> "Question | None":
        """The question of a query string; None: it names no fleet.

        Raises:
            ValueError: it is not one.

        """
        said = parse_qs(query, keep_blank_values=True)
        if "fleet" not in said:
            return None
        if any(len(said.get(name, ("",))) != 1 for name in ("fleet", "census", "pool", "count")):
            raise ValueError("fleet, census, pool and count must be given once")
        salt, named, text = (said.get(name, [None])[0] for name in ("fleet", "census", "pool"))
        if not _LETTERS.fullmatch(salt or "") or not (named in {None, _NONE} or _LETTERS.fullmatch(named or "")):
            raise ValueError("fleet and census must be 12 letters, digits, - or _")
        if text is not None and census_id(text) != named:
            raise ValueError("the id of that census is another one")
        return cls(
            salt=salt or "",
            keeps=named is None,
            census_id=None if named == _NONE else named,
            census=None if text is None else PoolPrograms.from_text(text),
            counts=said.get("count") == ["1"],
        )


@dataclass(frozen=True, slots=True)
class _Heard:
    """What was heard last, and when; `usual` are the ports of the last census that there was."""

    at: float
    salt: str
    census_id: str | None
    census: PoolPrograms | None
    usual: Collection[int]
    usual_at: float


@dataclass(frozen=True, slots=True)
class _Seen:
    """Since when a service is here without a long gap, and when it was seen last."""

    since: float
    last: float


class PoolMemory:
    """Hears what controllers say, in their threads, and judges each look at the processes in the agent's."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        """Nothing was heard so far."""
        self._heard: _Heard | None = None
        self._lock = threading.Lock()
        self._ports: Mapping[_Key, frozenset[int]] | None = None
        self._range = proc / "sys/net/ipv4/ip_local_port_range"
        self._free: tuple[int, int] | None = None
        self._with_gpu: set[str] = set()  # units
        self._services: dict[str, _Seen] = {}
        self._keys: dict[tuple[str, str], str] = {}

    def hear(self, question: Question, at: float) -> None:
        """Take what a controller says: what it counted, that it counted nothing, or that what was heard still holds."""
        with self._lock:
            before, census = self._heard, question.census
            if census is not None:
                usual: Collection[int] = census.ports
                self._heard = _Heard(at, question.salt, question.census_id, census, usual, at)
            elif before is None or question.keeps:
                return
            elif question.census_id is None:
                self._heard = replace(before, at=at, census_id=None, census=None)
            elif question.census_id == before.census_id:
                self._heard = replace(before, at=at, usual_at=at)

    def note_gpu(self, unit: str | None) -> None:
        """Remember that a process of that unit held a GPU: the unit is never common here again."""
        if unit is not None and len(self._with_gpu) < _MOST_KEPT:
            self._with_gpu.add(unit)

    def note_ports(self, ports: Mapping[_Key, frozenset[int]]) -> None:
        """Take the ports on which other machines may ask each process."""
        low, high = self._free = self._free or self._read_free_ports()
        self._ports = {
            key: kept
            for key, each in ports.items()
            if (kept := frozenset(port for port in each if not low <= port <= high))
        }

    def judge(
        self, found: Mapping[int, Process], at: float, uptime: float | None
    ) -> tuple[dict[int, Process], str | None]:
        """The processes that the pool decides about, and by which census; called once for each look."""
        self._note_services(found.values(), at, uptime)
        heard, listening = self._heard, self._ports
        if heard is None or listening is None:
            return {}, None
        is_heard = at - heard.at <= _HEARD_SECONDS
        census = heard.census if is_heard else None
        usual = heard.usual if at - heard.usual_at <= _PROTECTS_SECONDS else ()
        changed = {}
        for process in found.values():
            ports = listening.get((process.pid, process.started_ticks), frozenset())
            if process.rule.startswith(kinds.PATTERN):
                continue
            if census is not None and process.kind is Kind.PEOPLE and process.shared is not None:
                count = self._count_of(process, process.shared, ports, census, heard.salt)
                if count is not None:
                    rule = f"{COMMON}on {count} of {census.machines} machines"
                    changed[process.pid] = replace(process, kind=Kind.SERVICE, rule=rule)
            elif ports and usual and process.kind is Kind.SERVICE:
                odd = min((port for port in ports if port not in usual), default=None)
                if odd is not None:
                    rule = f"{ALONE}fewer than a fifth of the machines have port {odd}"
                    changed[process.pid] = replace(process, kind=Kind.PEOPLE, rule=rule)
        return changed, heard.census_id if is_heard else None

    def answer(self, verdict: NodeVerdict, question: Question | None, used: str | None, at: float) -> NodeVerdict:
        """The verdict with what a controller must know; `used` is the census by which it was made.

        Nothing is added where the question names that one.
        """
        if question is not None and question.counts:
            return replace(verdict, programs=replace(self._handed_over(question.salt, at), census=used))
        asked = None if question is None else question.census_id
        return verdict if used == asked else replace(verdict, programs=HostPrograms(census=used))

    def _count_of(
        self, process: Process, shared: str, ports: Collection[int], census: PoolPrograms, salt: str
    ) -> int | None:
        """On how many machines a service of people is that is the machine's own by rule 1; None: it is not."""
        if process.placement.systemd_unit in self._with_gpu or not all(map(census.has_common_port, ports)):
            return None
        return census.common.get(self._key(shared, salt))

    def _note_services(self, processes: Collection[Process], at: float, uptime: float | None) -> None:
        """Remember which services are here, and since when they have been at rest."""
        resting: dict[str, bool] = {}
        for process in processes:
            if (name := process.shared) is not None:
                rests = _rests(process, uptime) and process.placement.systemd_unit not in self._with_gpu
                resting[name] = resting.get(name, True) and rests
        kept = {
            name: seen
            for name, seen in self._services.items()
            if at - seen.last <= _GAP_SECONDS and resting.get(name, True)
        }
        for name in [name for name, rests in resting.items() if rests][:_MOST_KEPT]:
            kept[name] = _Seen(kept[name].since if name in kept else at, at)
        self._services = kept

    def _handed_over(self, salt: str, at: float) -> HostPrograms:
        """What this machine runs."""
        services, listening = self._services, self._ports
        if listening is None:
            return HostPrograms()
        newest = max((seen.last for seen in services.values()), default=at)
        here = sorted((self._key(name, salt), seen.since) for name, seen in services.items() if seen.last == newest)
        lasting = [key for key, since in here if at - since >= WATCHED_SECONDS][:MOST_PROGRAMS]
        recent = [key for key, since in here if at - since < WATCHED_SECONDS][: MOST_PROGRAMS - len(lasting)]
        ports = sorted({port for each in listening.values() for port in each})[:MOST_PORTS]
        return HostPrograms(lasting="".join(lasting), recent="".join(recent), ports=tuple(ports))

    def _key(self, name: str, salt: str) -> str:
        """The key of a service, made once."""
        known = self._keys.get((salt, name))
        if known is None:
            if len(self._keys) >= _MOST_KEPT:
                self._keys = {}
            known = self._keys[salt, name] = key_of(salt, name)
        return known

    def _read_free_ports(self) -> tuple[int, int]:
        """The ports that the kernel gives to programs which ask for any: each machine has others."""
        try:
            low, high = map(int, self._range.read_text(encoding="ascii").split())
        except (OSError, ValueError):
            return _FREE_PORTS
        return low, high


def said_of(processes: Collection[Process]) -> str | None:
    """Which of them are the machine's own because its pool has them; None: none is."""
    theirs = [each for each in processes if each.rule.startswith(COMMON)]
    if not theirs:
        return None
    first = min(theirs, key=lambda each: each.pid)
    more = f" and {len(theirs) - 1} more" if len(theirs) > 1 else ""
    where = first.rule.removeprefix(COMMON)
    return f"{first.name}{more} of {first.placement.systemd_unit or 'no unit'} runs {where} of the pool"


def may_work_for_people(process: Process) -> bool:
    """Whether a program of the machine's own is work when it works much: no list names it, or it pulls images."""
    named = process.rule != kinds.PACKAGED and not process.rule.startswith((COMMON, kinds.HUM))
    return not named or kinds.pulls_images((process.name, process.executable or ""))


def _rests(process: Process, uptime: float | None) -> bool:
    """Whether a process has done little in its life; with an age that is not known it has not."""
    if uptime is None:
        return False
    age = max(uptime - process.started_ticks / _TICKS_PER_SECOND, _SHORTEST_LIFE_SECONDS)
    return process.cpu_seconds + process.reaped_seconds <= _RESTING_CORES * age
