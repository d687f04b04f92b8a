"""What the controller serves, behind one door: metrics and fleet for Prometheus, the page and its API for people."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from urllib.parse import urlsplit

import msgspec

from gpuwatch.controller.metrics import ControllerMetrics
from gpuwatch.controller.observe.settings import ObserveSettings
from gpuwatch.controller.web.app import Web
from gpuwatch.controller.web.keep_link import KEEP
from gpuwatch.controller.web.settings import ControllerSettings
from gpuwatch.model.fleet import Fleet, Node, NodeState
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.http.auth import make_auth
from gpuwatch.runtime.http.request import TEXT, Response
from gpuwatch.runtime.http.server import HttpServer, Route

_FACTS = ("name", "pool", "instance_type", "region", "zone", "owner", "account")


@dataclass(slots=True, kw_only=True)
class Discovery:
    """The targets of the last round that saw the fleet."""

    signals: ObserveSettings
    _fleet: list[Fleet] = field(default_factory=list)

    def tell(self, fleet: Fleet) -> None:
        """Another round has seen the fleet."""
        self._fleet[:] = [fleet]

    def page(self, _accept: str = "") -> Response:
        """The targets as JSON; an error until a round has seen the fleet."""
        if not self._fleet:
            body = b"503 no round has seen the fleet yet\n"
            return Response(status=HTTPStatus.SERVICE_UNAVAILABLE, body=body, content_type=TEXT)
        found = [target for node in self._fleet[0].nodes for target in self._targets(node)]
        return Response(body=msgspec.json.encode(found), content_type="application/json")

    def _targets(self, node: Node) -> Iterator[Mapping[str, object]]:
        """A running node's agent, where it can be reached; also while the cloud does not say whether it runs."""
        base = self.signals.base_url(node)
        if node.state not in {NodeState.RUNNING, NodeState.UNKNOWN} or base is None:
            return
        facts = {f"__meta_gpuwatch_{name}": value for name in _FACTS if (value := getattr(node, name)) is not None}
        parts = urlsplit(base)
        labels = {
            "__scheme__": parts.scheme,
            "__meta_gpuwatch_node_id": node.id,
            "__meta_gpuwatch_enrolled": str(node.enrolled).lower(),
            **facts,
        }
        yield {"targets": [parts.netloc], "labels": labels}


def make_server(
    settings: ControllerSettings, discovery: Discovery, telling: ControllerMetrics, clock: Clock, web: Web | None = None
) -> HttpServer | None:
    """Bound and not yet started; None where nothing is to be served.

    Raises:
        OSError: the address cannot be had, or a file cannot be read.
        ValueError: a file is not what it should be.
        ImportError: passwords need bcrypt, and it is not installed.

    """
    routes: dict[str, Route] = {}
    if settings.metrics:
        routes["/metrics"] = telling.page
    if settings.http_sd:
        routes["/v1/http_sd"] = discovery.page
    app = web.answer if web is not None and settings.page else None
    if not routes and app is None:
        return None
    door = make_auth(settings, clock, "controller")
    telling.watch_logins(door.failures)
    return HttpServer(
        settings.host,
        settings.port,
        routes,
        clock=clock,
        max_connections=settings.max_connections,
        timeout_seconds=settings.connection_timeout,
        door=replace(
            door,
            names=door.names | (frozenset() if web is None else web.names),
            open=None if web is None or web.links is None else KEEP,
        ),
        app=app,
    )
