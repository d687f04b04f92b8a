"""What the controller serves: the fleet of its last round, so that Prometheus finds what is to be scraped.

https://prometheus.io/docs/prometheus/latest/http_sd/ ; a Prometheus keeps what it had while the answer is an error.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import urlsplit

import msgspec

from gpuwatch.agent.security import door_of
from gpuwatch.agent.server import TEXT, AgentServer, Response
from gpuwatch.clock import Clock
from gpuwatch.model.fleet import Fleet, Node, NodeState
from gpuwatch.settings import ControllerKnobs
from gpuwatch.signals.knobs import ScrapeKnobs

_CONNECTIONS = 64
_CONNECTION_SECONDS = 20.0
_FACTS = ("name", "pool", "instance_type", "region", "zone", "owner", "account")


@dataclass(slots=True, kw_only=True)
class Discovery:
    """The targets of the last round that saw the fleet."""

    signals: ScrapeKnobs
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
        """A running node's agent, where it can be reached."""
        base = self.signals.base_url(node)
        if node.state is not NodeState.RUNNING or base is None:
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


def served(knobs: ControllerKnobs, discovery: Discovery, clock: Clock) -> AgentServer | None:
    """Bound and not yet started; None where nothing is to be served.

    Raises:
        OSError: the address cannot be had, or a file cannot be read.
        ValueError: a file is not what it should be.
        ImportError: passwords need bcrypt, and it is not installed.

    """
    if not knobs.http_sd:
        return None
    return AgentServer(
        knobs.host,
        knobs.port,
        {"/v1/http_sd": discovery.page},
        clock=clock,
        max_connections=_CONNECTIONS,
        timeout_seconds=_CONNECTION_SECONDS,
        door=door_of(knobs.door, clock, "controller"),
    )
