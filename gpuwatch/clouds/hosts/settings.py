"""The section `cloud.hosts`: machines of one's own, where they are named, and which pools have power control."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import MinLen

from gpuwatch.clouds.provider import ProviderSettings
from gpuwatch.model.setting import STRICT, Contradiction, Setting
from gpuwatch.runtime.joined import LONGEST_NODE_ID

_Text = Annotated[str, MinLen(1)]
_NOT_IN_ADDRESSES = frozenset("/@?#[] ")
_BMC = re.compile(r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>\d{1,5}))?")

_MAC = re.compile(r"[0-9A-Fa-f]{2}(?:[:-][0-9A-Fa-f]{2}){5}")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings:
    """One host; its name is the one that its agent answers with, which is its host name unless set otherwise."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    address: Annotated[
        _Text | None, Setting("IP address or DNS name, without a port. None: the one it joined from, else its name.")
    ] = None
    pool: Annotated[_Text | None, Setting("Its pool. None: default.")] = None
    owner: Annotated[_Text | None, Setting("Its owner, who has its cost in reports.")] = None
    type: Annotated[
        _Text | None, Setting("A name of your choice for hosts that cost the same, for prices.file. None: host.")
    ] = None
    bmc: Annotated[
        _Text | None,
        Setting("Its BMC: IP address or DNS name, with a port if not 443 (Redfish) or 623 (IPMI)."),
    ] = None
    mac: Annotated[_Text | None, Setting("The MAC address of the card that wakes it, for Wake-on-LAN.")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerSettings:
    """How hosts of a pool are switched off and on (docs/clouds/hosts-power.md)."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    stop_by: Annotated[
        Literal["agent", "redfish", "ipmi"],
        Setting(
            "How a host is switched off, by a clean shutdown. agent: by its own agent (agent.poweroff). redfish, ipmi: "
            "by its BMC."
        ),
    ] = "redfish"
    start_by: Annotated[
        Literal["redfish", "ipmi", "wake"],
        Setting("How it is switched on. redfish, ipmi: by its BMC, which says whether it is on. wake: Wake-on-LAN."),
    ] = "redfish"
    user: Annotated[
        _Text | None, Setting("The user of the BMCs; one that may only see and switch power is enough.")
    ] = None
    password_file: Annotated[_Text | None, Setting("File with the password of the BMCs.")] = None
    ca: Annotated[
        _Text | None, Setting("File of CA certificates, or of BMCs' own ones, for Redfish. None: those of the system.")
    ] = None
    broadcast: Annotated[
        _Text,
        Setting("Where Wake-on-LAN goes: the broadcast address of the hosts' network, with a port if not 9."),
    ] = "255.255.255.255"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostsSettings(ProviderSettings):
    """Hosts without a cloud. One that is named in two places is one host; `machines` holds before `file`."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT
    adapter: ClassVar[str] = "gpuwatch.clouds.hosts.cloud:HostsCloud"
    launches_name_regions: ClassVar[bool] = False

    machines: Annotated[dict[str, HostSettings], Setting("Hosts by their names.")] = field(default_factory=dict)
    file: Annotated[
        _Text | None,
        Setting(
            "Hosts in Prometheus' file_sd form, JSON or YAML, from this file's folder if relative; read again when it "
            "changes. Ports are ignored (signals.port holds)."
        ),
    ] = None
    dns: Annotated[
        tuple[_Text, ...], Setting("DNS names; each address that such a name has is a host, called as in reverse DNS.")
    ] = ()
    joined: Annotated[
        _Text | None,
        Setting("Hosts that have joined: the folder of controller.join, such as /var/lib/gpuwatch/join."),
    ] = None
    power: Annotated[
        dict[str, PowerSettings], Setting("The pools of which hosts may be switched off, by their names. Empty: none.")
    ] = field(default_factory=dict)

    def _options(self) -> Mapping[str, Any]:
        return {"named": self}

    def contradictions(self) -> Iterator[Contradiction]:
        """Hosts must be named somewhere, by names and addresses that can be asked; a BMC has a user and a password."""
        here = ("cloud", "hosts")
        if not (self.machines or self.file or self.dns or self.joined):
            yield Contradiction(
                keys=(here, ("cloud", "provider")),
                wrong="cloud.hosts names no host",
                right="machines, file, dns or joined, such as `machines: {gpu-1: {address: 10.0.0.11}}`",
            )
        for name, each in self.machines.items():
            yield from _of_host(name, each, (*here, "machines", name))
        for name in self.dns:
            if not is_address(name):
                yield Contradiction(
                    keys=((*here, "dns"),), wrong=f"{name!r} is not a DNS name", right="such as gpu.lab.example"
                )
        for pool, power in self.power.items():
            yield from _of_pool(power, (*here, "power", pool))


def _of_pool(power: PowerSettings, path: tuple[str, ...]) -> Iterator[Contradiction]:
    name = ".".join(path)
    if power.stop_by not in {"agent", power.start_by}:
        yield Contradiction(
            keys=((*path, "stop_by"), (*path, "start_by")),
            wrong=f"{name}.stop_by is {power.stop_by}, and {name}.start_by is {power.start_by}",
            right="stop_by: agent, or the same twice: one BMC has one language, and says whether its host is on",
        )
    for key in ("user", "password_file") if power.start_by != "wake" else ():
        if getattr(power, key) is None:
            yield Contradiction(
                keys=((*path, key),), wrong=f"{name}.{key} is not set", right="BMCs take a user and a password"
            )
    if bmc_of(power.broadcast) is None:
        yield Contradiction(
            keys=((*path, "broadcast"),),
            wrong=f"{power.broadcast!r} is not a broadcast address",
            right="such as 10.0.0.255",
        )


def _of_host(name: str, each: HostSettings, path: tuple[str, ...]) -> Iterator[Contradiction]:
    if not is_host_name(name):
        yield Contradiction(keys=(path,), wrong=f"{name!r} is not a host's name", right="such as gpu-1")
    checks: tuple[tuple[str, str | None, Callable[[str], bool], str, str], ...] = (
        ("address", each.address, is_address, "an address",
         "an IP address or a DNS name without scheme and port; signals.port is the port of all agents"),
        ("bmc", each.bmc, is_bmc, "the address of a BMC",
         "an IP address or a DNS name without a scheme, such as 10.0.1.11"),
        ("mac", each.mac, is_mac, "a MAC address", "such as 52:54:00:12:34:56"),
    )  # fmt: skip
    for key, text, fits, what, right in checks:
        if text is not None and not fits(text):
            yield Contradiction(keys=((*path, key),), wrong=f"{text!r} is not {what}", right=right)


def is_mac(text: str) -> bool:
    """Whether it is the address of a network card."""
    return _MAC.fullmatch(text) is not None


def is_host_name(text: str) -> bool:
    """Whether a host can be called that."""
    return 0 < len(text) <= LONGEST_NODE_ID and text.isprintable() and text == text.strip()


def is_address(text: str) -> bool:
    """Whether it is a name or an IP address, and no URL, and has no port."""
    one_colon = text.count(":") == 1
    return text.isprintable() and not one_colon and not _NOT_IN_ADDRESSES & set(text)


def is_bmc(text: str) -> bool:
    """Whether it is a name or an IP address, with or without a port; an IPv6 address stands in brackets."""
    return bmc_of(text) is not None


def bmc_of(text: str) -> tuple[str, int | None] | None:
    """The host and the port of a BMC's address; None: it is no such address."""
    found = _BMC.fullmatch(text)
    if found is None:
        return None
    port = None if found["port"] is None else int(found["port"])
    return None if port is not None and not 0 < port < 1 << 16 else (found["host"].strip("[]"), port)
