"""Where hosts are named: settings, a file, DNS, the register of those that joined. Each source is read by itself.

Rules, all of them:

1. A source that cannot be read, or is damaged, keeps what it said last. The reason is shown, and no host leaves.
2. A host that a source no longer names stays for `LEAVES_SECONDS`: a file may be half written, an answer of DNS cut.
3. Two sources that name one host describe one machine; what the first says of it holds.
"""

import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import msgspec
import yaml

from gpuwatch.clouds import OWNER_TAG, POOL_TAG, PROTECT_TAG
from gpuwatch.clouds.hosts.settings import HostSettings, HostsSettings, is_address, is_bmc, is_host_name, is_mac
from gpuwatch.runtime.bounded_text import text_of
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.json_document import read_json
from gpuwatch.runtime.reloading_file import signatures

log = logging.getLogger(__name__)

LEAVES_SECONDS = 60.0
DEFAULT_TYPE = "host"
_DNS_SECONDS = 5.0  # for all names of a round; a slower answer counts in the next one
_REGISTER = "register.json"
_MOST_HOSTS = 20_000
_TAGS = {"pool": POOL_TAG, "owner": OWNER_TAG, "protect": PROTECT_TAG}  # labels of a file that are tags of ours
_NO_TAGS = frozenset({"node", "type", "bmc", "mac"})
_FORM = 'a list such as [{"targets": ["gpu-1"], "labels": {"pool": "train"}}]'


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A host as a source names it."""

    id: str
    address: str | None = None
    type: str | None = None
    bmc: str | None = None
    mac: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its host name without the domain, by which its agent may answer; an IP address is whole."""
        with suppress(ValueError):
            return str(ip_address(self.id))
        return self.id.partition(".")[0] or self.id

    def with_facts_of(self, other: "Named") -> "Named":
        """The same host, with what another source knows besides."""
        return replace(
            self,
            address=self.address or other.address,
            type=self.type or other.type,
            bmc=self.bmc or other.bmc,
            mac=self.mac or other.mac,
            tags={**other.tags, **self.tags},
        )


Hosts = Mapping[str, Named]


class Source:
    """One source, what it said last, and why it cannot be read now; None: it can."""

    def __init__(self, where: str, read: Callable[[], Sequence[Named]], clock: Clock) -> None:
        """Nothing is read yet."""
        self.where, self._read, self._clock = where, read, clock
        self.hosts: dict[str, Named] | None = None
        self.trouble: str | None = None
        self._seen: dict[str, float] = {}

    def read(self) -> None:
        """Read what it says now; after a mistake what it said last stays."""
        try:
            found = {each.id: each for each in self._read()}
        except (OSError, ValueError) as error:
            why = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
            if self.trouble != why:
                log.warning("%s cannot be used: %s; its hosts stay as they were", self.where, why)
            self.trouble = why
            return
        if self.trouble is not None:
            log.warning("%s can be used again", self.where)
        now, self.trouble = self._clock.monotonic(), None
        self._seen |= dict.fromkeys(found, now)
        missing = {name: each for name, each in (self.hosts or {}).items() if name not in found}
        kept = {name: each for name, each in missing.items() if now - self._seen[name] < LEAVES_SECONDS}
        for name in missing.keys() - kept.keys():
            log.warning("%s is no longer named in %s: it leaves the fleet", name, self.where)
            del self._seen[name]
        self.hosts = found | kept


def sources_of(named: HostsSettings, clock: Clock) -> list[Source]:
    """The sources of the settings, in the order in which they hold."""
    found: list[tuple[str, Callable[[], Sequence[Named]]]] = []
    if named.machines:
        machines = [_of_settings(name, each) for name, each in named.machines.items()]
        found.append(("the settings", lambda: machines))
    if named.file is not None:
        path = Path(named.file)
        found.append((f"the file {path}", Watched(path, read_targets)))
    if named.joined is not None:
        path = Path(named.joined) / _REGISTER
        found.append((f"the register {path}", Watched(path, read_register)))
    if named.dns:
        names = Names(named.dns)
        found.extend((f"DNS for {name}", lambda name=name: names.hosts_of(name)) for name in named.dns)  # type: ignore[misc]
    return [Source(where, read, clock) for where, read in found]


def _of_settings(name: str, each: HostSettings) -> Named:
    tags = {POOL_TAG: each.pool, OWNER_TAG: each.owner}
    return Named(
        id=name,
        address=each.address,
        type=each.type,
        bmc=each.bmc,
        mac=each.mac,
        tags={key: text for key, text in tags.items() if text is not None},
    )


@dataclass(slots=True)
class Watched:
    """A file that is read again when it has changed; after a mistake each time, for it may be half written."""

    path: Path
    read: Callable[[Path], Sequence[Named]]
    _version: object = None
    _hosts: Sequence[Named] = ()

    def __call__(self) -> Sequence[Named]:
        """What it says; raises OSError and ValueError."""
        version = signatures([self.path])
        if version != self._version or None in version:
            self._version = None
            self._hosts = self.read(self.path)
            self._version = version
        return self._hosts


def read_targets(path: Path) -> Sequence[Named]:
    """The hosts of a file in Prometheus' file_sd form.

    Raises:
        OSError: it cannot be read.
        ValueError: it is damaged; the text says where, and what would be right.

    """
    text = text_of(path)
    try:
        groups = read_json(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValueError(f"it is not {'JSON' if path.suffix == '.json' else 'YAML'} ({_one_line(error)})") from error
    if not isinstance(groups, list):
        raise ValueError(f"it holds no list; right is {_FORM}")  # noqa: TRY004  a mistake in a file
    found: list[Named] = []
    for number, group in enumerate(groups, 1):
        targets = group.get("targets") if isinstance(group, dict) else None
        labels = group.get("labels") or {} if isinstance(group, dict) else None
        if not isinstance(targets, list) or not isinstance(labels, dict):
            raise ValueError(  # noqa: TRY004  a mistake in a file
                f"entry {number} has no list `targets`, or its `labels` are no group; right is {_FORM}"
            )
        told = {str(key): str(value) for key, value in labels.items() if value is not None}
        single = next((each for each in ("node", "bmc", "mac") if each in told), None)
        if single is not None and len(targets) != 1:
            raise ValueError(f"entry {number} has a label `{single}`, which names one host, and {len(targets)} targets")
        found += [_of_target(each, told, number) for each in targets]
    if len(found) > _MOST_HOSTS:
        raise ValueError(f"it names {len(found)} hosts, and {_MOST_HOSTS} are the most")
    return found


def _of_target(target: Any, labels: Mapping[str, str], number: int) -> Named:  # noqa: ANN401  whatever the file holds
    host = _without_port(target) if isinstance(target, str) and "/" not in target else ""
    name = labels.get("node", host)
    if not host or not is_address(host) or not is_host_name(name):
        raise ValueError(f"entry {number}: {target!r} is not a target; right is such as gpu-1 or 10.0.0.11:9460")
    bmc, mac = labels.get("bmc"), labels.get("mac")
    if bmc is not None and not is_bmc(bmc):
        raise ValueError(f"entry {number}: {bmc!r} is not the address of a BMC; right is such as 10.0.1.11")
    if mac is not None and not is_mac(mac):
        raise ValueError(f"entry {number}: {mac!r} is not a MAC address; right is such as 52:54:00:12:34:56")
    own = {key: value for key, value in labels.items() if key not in _NO_TAGS}
    return Named(
        id=name,
        address=host,
        type=labels.get("type"),
        bmc=bmc,
        mac=mac,
        tags={_TAGS.get(key, key): value for key, value in own.items()},
    )


def _without_port(target: str) -> str:
    """The host of `gpu-1:9460`, `[fd00::1]:9460` or `fd00::1`."""
    if target.startswith("["):
        return target[1:].partition("]")[0]
    return target if target.count(":") > 1 else target.partition(":")[0]


class _Host(msgspec.Struct, kw_only=True):
    """A host of the register, as far as it is read here."""

    node_id: str
    address: str
    revoked_at: str | None = None


class _Register(msgspec.Struct, kw_only=True):
    """The register of `gpuwatch agent join` (controller/join/register.py), as far as it is read here."""

    hosts: dict[str, _Host]


def read_register(path: Path) -> Sequence[Named]:
    """The hosts that have joined, without those that were revoked; raises OSError and ValueError."""
    try:
        book = msgspec.json.decode(path.read_bytes(), type=_Register)
    except msgspec.MsgspecError as error:
        raise ValueError(f"it is damaged ({_one_line(error)})") from error
    return [
        Named(id=each.node_id, address=each.address or None) for each in book.hosts.values() if each.revoked_at is None
    ]


class Names:
    """What DNS says of names; each is asked in a thread, so that a slow resolver holds up no round for long."""

    def __init__(self, names: Sequence[str]) -> None:
        """Nothing is asked yet."""
        self._asked: dict[str, Future[Sequence[Named]]] = {}
        self._threads = ThreadPoolExecutor(max_workers=max(1, min(8, len(names))), thread_name_prefix="dns")

    def hosts_of(self, name: str) -> Sequence[Named]:
        """The hosts of a name; raises OSError."""
        asked = self._asked.pop(name, None) or self._threads.submit(resolve, name)
        try:
            return asked.result(_DNS_SECONDS)
        except TimeoutError:
            self._asked[name] = asked
            raise OSError(f"no answer within {_DNS_SECONDS:.0f} s") from None


def resolve(name: str) -> Sequence[Named]:
    """Each address of a name, called as reverse DNS says; where it says nothing, by the address.

    Raises:
        OSError: there is no answer.

    """
    found: dict[str, Named] = {}
    for address in sorted({str(each[4][0]) for each in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)}):
        try:
            host = socket.gethostbyaddr(address)[0]
        except OSError:
            host = address
        found.setdefault(host, Named(id=host, address=address))
    return list(found.values())


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
