"""The settings of the cloud's metadata. `agent.settings` composes this as `agent.metadata`."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt, Le, MinLen

from gpuwatch.model.duration import Seconds
from gpuwatch.model.setting import STRICT, Setting


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataSettings:
    """The cloud's metadata of the machine: instance, type, zone, and notices that it will be taken away."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    provider: Annotated[
        Literal["auto", "aws", "azure", "gcp", "alibaba", "tencent", "none"],
        Setting("The cloud with the metadata service; `auto` reads it off the board (DMI), `none` asks no service."),
    ] = "auto"
    endpoint: Annotated[
        Annotated[str, MinLen(1)] | None,
        Setting(
            "Base URL of the metadata service in place of the cloud's own: http, a link-local or loopback address."
        ),
    ] = None
    interval: Annotated[Seconds, Ge(0.1), Le(60), Setting("From look to look for notices.")] = 5.0
    timeout: Annotated[Seconds, Ge(0.05), Le(30), Setting("A request that takes longer has failed.")] = 1.0
    on_interruption: Annotated[
        tuple[Annotated[str, MinLen(1)], ...],
        Setting("Program and arguments, run once per notice without a shell, such as a checkpoint; empty: none."),
    ] = ()
    on_interruption_lead: Annotated[
        Seconds, Gt(0), Setting("The program starts this long before the deadline at the earliest, and runs no longer.")
    ] = 3600.0
    state: Annotated[
        str, MinLen(1), Setting("File that remembers for which notices the program ran; it must not outlive a reboot.")
    ] = "/run/gpuwatch/notices.json"
