"""PURE: what the machines of a pool run in common, counted from what each of them hands over.

Rules, all of them:

1. A machine hands over a key of each service, a hash that is the same on all machines of a fleet, and the ports on
   which it may be asked. Keys say nothing of what a service is; the machine itself knows that.
2. Common is a service on at least 80 % of the running machines of a pool, ten or more. Eight of them at least must have
   watched it for a day, without work and without a GPU: what began on all machines today is somebody's.
3. A port is unusual if fewer than 20 % of the machines that hand over have it.
4. With fewer than ten machines that hand over there is no census at all.
5. A machine has one vote, whatever it says. One that says what cannot be has no vote, and still counts as a machine.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuwatch.model.bounds import BoundedInt, BoundedText
from gpuwatch.model.hashes import blake2b

FEWEST_MACHINES = 10
WATCHED_SECONDS = 86400.0
MOST_PROGRAMS = 96  # of a machine
MOST_PORTS = 32
_COMMON, _UNUSUAL = (4, 5), (1, 5)  # shares: at least four of five, fewer than one of five
_KEY = 12  # letters of a key
_KEYS = re.compile(r"([A-Za-z0-9_-]{12})*", re.ASCII)
_CENSUS = re.compile(r"(\d{1,7})((?:~[A-Za-z0-9_-]{12}\d{1,7})*)((?:~\.\d{1,5}\.\d{1,7})*)", re.ASCII)
_MOST_LETTERS = 12_000  # of a census; a request's head may have 16 KiB
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPrograms:
    """What a machine hands over of its services, as keys one after the other, and by which census it judges them.

    `lasting` were there for a day, without work and without a GPU; `recent` are the others. `census` is the id of the
    census of its pool by which its verdict was made; None: by none. `ports` are None where nothing was asked for.
    """

    census: BoundedText | None = None
    lasting: BoundedText = ""
    recent: BoundedText = ""
    ports: tuple[BoundedInt, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPrograms:
    """What a pool says of itself: how many machines it has, and of how many each common service and usual port is."""

    machines: int
    common: Mapping[str, int] = field(default_factory=dict)
    ports: Mapping[int, int] = field(default_factory=dict)

    def has_common_port(self, port: int) -> bool:
        """Whether at least 80 % of the machines may be asked on that port."""
        return _is_share(self.ports.get(port, 0), self.machines, _COMMON)

    def is_nearly(self, other: "PoolPrograms") -> bool:
        """Whether both say the same of services and ports, of numbers of machines that differ by a tenth at most."""
        same = self.common.keys() == other.common.keys() and self.ports.keys() == other.ports.keys()
        same = same and all(self.has_common_port(port) is other.has_common_port(port) for port in self.ports)
        return same and abs(self.machines - other.machines) * 10 <= other.machines

    @property
    def text(self) -> str:
        """The census as it is sent; the same for the same content."""
        keys = (f"~{key}{count}" for key, count in sorted(self.common.items()))
        ports = (f"~.{port}.{count}" for port, count in sorted(self.ports.items()))
        return "".join((str(self.machines), *keys, *ports))

    @classmethod
    def from_text(cls, text: str) -> "PoolPrograms":
        """The census that was sent.

        Raises:
            ValueError: it is no census.

        """
        found = _CENSUS.fullmatch(text) if len(text) <= _MOST_LETTERS else None
        if found is None:
            raise ValueError("this is no census about the programs of a pool")
        machines, keys, ports = found.groups()
        counts = (part.split(".") for part in ports.split("~.")[1:])
        return cls(
            machines=int(machines),
            common={part[:_KEY]: int(part[_KEY:]) for part in keys.split("~")[1:]},
            ports={int(port): int(count) for port, count in counts},
        )


class PoolTally:
    """Counts the machines of one pool, by key: nothing is kept of a single machine."""

    def __init__(self) -> None:
        """No machine has answered."""
        self._machines = self._handing = 0
        self._keys: Counter[str] = Counter()
        self._lasting: Counter[str] = Counter()
        self._ports: Counter[int] = Counter()

    def add(self, handed: HostPrograms | None) -> None:
        """Count a machine that answered; None: it hands nothing over, as an agent of an earlier version."""
        self._machines += 1
        if handed is None or handed.ports is None or not _is_possible(handed):
            return
        self._handing += 1
        lasting, recent = set(_split_keys(handed.lasting)), set(_split_keys(handed.recent))
        self._lasting.update(lasting)
        self._keys.update(lasting | recent)
        self._ports.update(set(handed.ports))

    def census(self) -> PoolPrograms | None:
        """What the pool says; None: too few machines hand anything over."""
        if self._handing < FEWEST_MACHINES:
            return None
        return PoolPrograms(
            machines=self._machines,
            common={
                key: count
                for key, count in self._keys.items()
                if _is_share(self._lasting[key], FEWEST_MACHINES, _COMMON) and _is_share(count, self._machines, _COMMON)
            },
            ports={port: count for port, count in self._ports.items() if _is_share(count, self._handing, _UNUSUAL)},
        )


def key_of(salt: str, words: str) -> str:
    """The key of what these words say; the same salt and words make the same key on every machine."""
    made = blake2b(words.encode("utf-8", "replace"), digest_size=9, key=salt.encode()[:64])
    return _in_letters(made.digest())


def salt_of(fleet: str) -> str:
    """What all keys of a fleet are made with."""
    return key_of("gpuwatch", fleet)


def census_id(text: str) -> str:
    """The id of a census of this text."""
    return key_of("census", text)


def _is_possible(handed: HostPrograms) -> bool:
    """Whether a machine can have said that."""
    ports = handed.ports or ()
    texts = (handed.lasting, handed.recent)
    return (
        sum(map(len, texts)) <= MOST_PROGRAMS * _KEY
        and all(_KEYS.fullmatch(text) for text in texts)
        and len(ports) <= MOST_PORTS
        and all(0 < port < 65536 for port in ports)  # noqa: PLR2004  a port
    )


def _split_keys(keys: str) -> list[str]:
    return [keys[at : at + _KEY] for at in range(0, len(keys), _KEY)]


def _is_share(count: int, machines: int, share: tuple[int, int]) -> bool:
    """Whether so many are at least that share of the machines; in whole numbers, so that 80 % is 80 %."""
    part, whole = share
    return count * whole >= machines * part


def _in_letters(data: bytes) -> str:
    """Nine bytes as twelve letters that a URL takes."""
    number = int.from_bytes(data, "big")
    return "".join(_LETTERS[number >> shift & 63] for shift in range(66, -1, -6))
