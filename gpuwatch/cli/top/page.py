"""The document of `gpuwatch top --json`."""

from dataclasses import dataclass

from gpuwatch.model.host_page import HostPage


@dataclass(frozen=True, slots=True, kw_only=True)
class TopPage(HostPage):
    """What the agent answers at /v1/host. `note` is what is particular about where it comes from, or empty."""

    note: str
