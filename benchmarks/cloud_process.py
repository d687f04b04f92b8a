"""The process that `benchmarks.clouds` measures: `start` loads one cloud's client, `rounds` asks it for its fleet.

It prints one JSON object a line. After each round it waits for a line; what is written there last are the requests of
a round, which it sends again by http.client.
"""

import base64
import json
import ssl
import sys
import time
from collections.abc import Mapping, Sequence
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

_BEGIN = time.perf_counter()

from benchmarks.processes import peak_rss_bytes  # noqa: E402  what is imported is measured
from gpuwatch.cli.parts import cloud_of  # noqa: E402  likewise
from gpuwatch.config import load  # noqa: E402  likewise
from gpuwatch.controller.context import LiveParts  # noqa: E402  likewise
from gpuwatch.controller.round import step  # noqa: E402  likewise
from gpuwatch.guard import Limits, Rulebook  # noqa: E402  likewise
from gpuwatch.ledger import Ledger  # noqa: E402  likewise
from gpuwatch.model.fleet import Fleet, Node, NodeReport  # noqa: E402  likewise
from gpuwatch.model.measurement import MetricQuery, MetricValue  # noqa: E402  likewise
from gpuwatch.runtime.clock import SystemClock  # noqa: E402  likewise

_IMPORTED = time.perf_counter()
_INTERVAL_SECONDS = 60.0


class _Clock(SystemClock):
    """Real time, plus the time between rounds, in which the clients' own buckets of calls fill again."""

    skipped = 0.0

    def monotonic(self) -> float:
        """Real seconds and skipped ones."""
        return super().monotonic() + self.skipped


class _Silent:
    """No agent answers: what the cloud's part of a round costs is measured, not that of the agents."""

    def observe(self, nodes: Sequence[Node]) -> Fleet:
        """As the cloud told them."""
        return Fleet(observed_at=SystemClock().now(), nodes=tuple(nodes))

    def measure(self, fleet: Fleet, queries: Sequence[MetricQuery]) -> tuple[MetricValue, ...]:
        """Nobody asks for numbers."""
        del fleet, queries
        return ()

    def confirm(self, node: Node) -> NodeReport:
        """Nobody asks."""
        del node
        return NodeReport()


def main(config: Path, runs: int) -> None:
    """The client, then rounds, then the same requests without it."""
    bare, clock = peak_rss_bytes(), _Clock()
    settings = load(config, {})
    begin = time.perf_counter()
    cloud = cloud_of(settings, clock)
    cloud.groups()
    seconds, rss = time.perf_counter() - begin, peak_rss_bytes()
    _say(seconds=seconds, imported=_IMPORTED - _BEGIN, bare=bare, rss=rss, interval=settings.interval)
    rules = Rulebook(pools={}, limits=Limits(), enforce=False)
    parts = LiveParts(clock=clock, cloud=cloud, signals=_Silent(), ledger=Ledger.in_memory(), rules=rules)
    line = sys.stdin.readline()
    for _ in range(runs):
        begin = time.perf_counter()
        done = step(parts)
        seconds = time.perf_counter() - begin
        _say(seconds=seconds, nodes=len(done.observation.fleet.nodes), trouble=done.trouble, rss=peak_rss_bytes())
        clock.skipped += _INTERVAL_SECONDS
        line = sys.stdin.readline()
    asked = json.loads(line)
    for _ in range(runs):
        _say(seconds=_sent(asked["url"], asked["authority"], asked["requests"]))


def _sent(url: str, authority: str | None, requests: Sequence[Mapping[str, Any]]) -> float:
    """The time of these requests on one connection, one after the other, with no look at the answers."""
    address = urlsplit(url).netloc
    connection = HTTPConnection(address)
    if authority is not None:
        connection = HTTPSConnection(address, context=ssl.create_default_context(cafile=authority))
    begin = time.perf_counter()
    for each in requests:
        connection.request(each["method"], each["target"], base64.b64decode(each["body"]), each["headers"])
        connection.getresponse().read()
    connection.close()
    return time.perf_counter() - begin


def _say(**what: object) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
