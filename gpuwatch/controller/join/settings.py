"""Settings of the port at which hosts join, and what follows from them for how agents are asked."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar

from annotated_types import Ge, Le, MinLen

from gpuwatch.controller.observe.settings import ObserveSettings
from gpuwatch.model.duration import Seconds
from gpuwatch.model.setting import STRICT, Setting
from gpuwatch.runtime.joined import PER_NODE, PORT

_DAY = 86400.0
SECRETS = ("ca.key", "prometheus.key", "register.json")  # in the folder, beside the controller's key
AUTHORITY, TRUST, CONTROLLER, PROMETHEUS = "ca", "trust.pem", "controller", "prometheus"  # files in the folder


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinSettings:
    """Where `gpuwatch agent join` finds this controller, and how long its certificates are valid."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    host: Annotated[
        Annotated[str, MinLen(1)] | None,
        Setting(
            "Address at which hosts join and renew, over TLS alone, such as 0.0.0.0. None: no host can (docs/join.md)."
        ),
    ] = None
    port: Annotated[int, Ge(0), Le(65535), Setting("TCP port for them; 0 takes any free one.")] = PORT
    folder: Annotated[
        str,
        MinLen(1),
        Setting(
            "The authority's key, tokens and hosts, from this file's folder if relative. A reader of it can pose as "
            "every agent: keep it, and back it up, as a password."
        ),
    ] = "/var/lib/gpuwatch/join"
    lifetime: Annotated[
        Seconds,
        Ge(30 * _DAY),
        Le(90 * _DAY),
        Setting("How long a host's certificate is valid; its agent renews it when a third of that is left."),
    ] = 90 * _DAY

    def file(self, name: str) -> Path:
        """A file in the folder."""
        return Path(self.folder) / name


def with_authority(signals: ObserveSettings, join: JoinSettings) -> ObserveSettings:
    """How agents are asked where hosts join: by certificates of the authority, unless they have others."""
    if join.host is None or signals.tls_ca is not None:
        return signals
    return replace(
        signals,
        scheme="https",
        tls_ca=str(join.file(TRUST)),
        tls_certificate=str(join.file(f"{CONTROLLER}.pem")),
        tls_key=str(join.file(f"{CONTROLLER}.key")),
        tls_server_name=PER_NODE,
    )
