"""What the controller serves, behind one door: metrics and fleet for Prometheus, the page and its API for people."""

from dataclasses import replace

from gpuwatch.agent.security import door_of
from gpuwatch.agent.server import AgentServer, Route
from gpuwatch.clock import Clock
from gpuwatch.discovery import Discovery
from gpuwatch.links import KEEP
from gpuwatch.settings import ControllerKnobs
from gpuwatch.telling import Telling
from gpuwatch.web.app import Web

_CONNECTIONS = 256  # browsers keep several each; of one address there are no more than max_per_client
_CONNECTION_SECONDS = 20.0


def served(
    knobs: ControllerKnobs, discovery: Discovery, telling: Telling, clock: Clock, web: Web | None = None
) -> AgentServer | None:
    """Bound and not yet started; None where nothing is to be served.

    Raises:
        OSError: the address cannot be had, or a file cannot be read.
        ValueError: a file is not what it should be.
        ImportError: passwords need bcrypt, and it is not installed.

    """
    routes: dict[str, Route] = {}
    if knobs.metrics:
        routes["/metrics"] = telling.page
    if knobs.http_sd:
        routes["/v1/http_sd"] = discovery.page
    app = web.answer if web is not None and knobs.page else None
    if not routes and app is None:
        return None
    door = door_of(knobs.door, clock, "controller")
    telling.watch_logins(door.failures)
    return AgentServer(
        knobs.host,
        knobs.port,
        routes,
        clock=clock,
        max_connections=_CONNECTIONS,
        timeout_seconds=_CONNECTION_SECONDS,
        door=replace(
            door,
            names=door.names | (frozenset() if web is None else web.names),
            open=None if web is None or web.links is None else KEEP,
        ),
        app=app,
    )
