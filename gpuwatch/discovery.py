"""What the controller serves: the fleet of its last round, so that Prometheus finds what is to be scraped.

https://prometheus.io/docs/prometheus/latest/http_sd/ ; a Prometheus keeps what it had while the answer is an error.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import urlsplit

import msgspec

from gpuwatch.agent.server import TEXT, Response
from gpuwatch.model.fleet import Fleet, Node, NodeState
from gpuwatch.signals.knobs import ScrapeKnobs

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
