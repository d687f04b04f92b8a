"""Settings of the controller's page, API and metrics."""

from dataclasses import dataclass, field
from typing import Annotated

from annotated_types import Ge, Le, MinLen

from gpuwatch.controller.join.settings import JoinSettings
from gpuwatch.model.setting import Setting
from gpuwatch.runtime.http.settings import ServerSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings(ServerSettings):
    """What the controller serves of itself."""

    metrics: Annotated[
        bool, Setting("Serve what the rounds saw, decided, refused and did at /metrics, for Prometheus.")
    ] = True
    page: Annotated[
        bool,
        Setting("Serve the fleet's page at / and its API under /api/v1; without users only to this machine itself."),
    ] = True
    operators: Annotated[
        tuple[Annotated[str, MinLen(1)], ...],
        Setting("Users (by password, or by their certificate's common name) who may pause, resume, keep and approve."),
    ] = ()
    http_sd: Annotated[
        bool, Setting("Serve the fleet of the last round at /v1/http_sd, for Prometheus' http_sd_configs.")
    ] = True
    port: Annotated[int, Ge(0), Le(65535), Setting("TCP port to listen on; 0 takes any free one.")] = 9461
    max_connections: Annotated[
        int, Ge(1), Le(10_000), Setting("Connections served at once; those beyond get 503. Browsers keep several each.")
    ] = 256
    join: JoinSettings = field(default_factory=JoinSettings)
