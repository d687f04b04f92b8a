"""Every source of signals with the same cast of nodes: agents over HTTP, and exporters in a real Prometheus."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import msgspec

from gpuwatch.controller.observe import NodeReportSource
from gpuwatch.controller.observe.scrape import ScrapeSource
from gpuwatch.controller.observe.settings import ObserveSettings
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import Node, NodeReport, NodeState
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders import exporters
from tests.support.builders.exporters import MAX_AGE, NOW, WORK, Change, a_machine, during, unchanged
from tests.support.builders.fleet import a_verdict
from tests.support.fakes.mute_servers import nobody
from tests.support.fakes.scraped_agent import an_agent
from tests.support.real.tsdb import History, prometheus

AT = datetime.fromtimestamp(NOW, UTC)
PATIENT = 30.0  # where something answers, however busy this machine is
TWIN = "10.0.1.200"  # the address that two nodes have


def _shifted(seconds: float) -> Change:
    return lambda _sign, _gpu, points: [(at + seconds, value) for at, value in points]


def _lost(begin: float, end: float) -> Change:
    return lambda _sign, _gpu, points: [(at, value) for at, value in points if not begin <= at - NOW < end]


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """One node of the cast: what is thought of it, and how its agent or its exporter comes to say so.

    `late` is how old its newest word is in seconds.
    """

    state: State
    says: State | None = State.IDLE  # None: nothing is there to say anything
    late: float = 0.0
    change: Change = unchanged
    node: dict[str, object] | None = None


CAST = {
    "i-idle": Role(state=State.IDLE),
    "i-busy": Role(state=State.BUSY, says=State.BUSY, change=during(-60, 1, WORK)),
    "i-gone": Role(state=State.UNKNOWN, says=None),
    "i-late": Role(state=State.UNKNOWN, late=120.0, change=_lost(-120, 1)),
    "i-future": Role(state=State.UNKNOWN, late=-90.0, change=_shifted(90)),
    "i-doubtful": Role(state=State.UNKNOWN, says=State.UNKNOWN, change=_lost(-1800, -1200)),
    "i-stopped": Role(state=State.UNKNOWN, node={"state": NodeState.STOPPED}),
    "i-twin": Role(state=State.UNKNOWN, node={"name": "twin", "address": TWIN}),
    "i-other-twin": Role(state=State.UNKNOWN, node={"name": "twin", "address": TWIN}),
    "i-nowhere": Role(state=State.UNKNOWN, says=None, node={"address": None, "name": "nowhere"}),
}


def the_nodes() -> list[Node]:
    """The cast, none of which has been asked yet."""
    return [
        replace(a_machine(node_id, f"10.0.1.{number}", signal=NodeReport()), **(role.node or {}))  # type: ignore[arg-type]
        for number, (node_id, role) in enumerate(CAST.items())
    ]


@contextmanager
def _agents() -> Iterator[dict[str, str]]:
    """Where the cast's agents answer; they confirm what they are asked to."""

    def respond(request: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(request.path)
        name = parts.path.split("/")[1]
        role = CAST["i-twin" if name == "twin" else name]
        nonce = next(iter(parse_qs(parts.query).get("confirm", ())), None)
        verdict = a_verdict(name, role.says or State.UNKNOWN, gpus=2, at=AT - timedelta(seconds=role.late))
        if nonce is not None:
            verdict = replace(verdict, confirm=nonce, looked_seconds=0.0)
        body = msgspec.json.encode(verdict)
        request.send_response(200)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    with an_agent(respond) as url, nobody() as unused:
        known = {name: f"{url}/{name}" for name, role in CAST.items() if role.says is not None and "twin" not in name}
        yield {**known, "twin": f"{url}/twin", "i-gone": f"http://127.0.0.1:{unused}"}


def _history() -> History:
    """What a Prometheus has scraped of the cast: our agents, and DCGM's exporter."""
    history = History()
    for number, (node_id, role) in enumerate(CAST.items()):
        if role.says is None or node_id == "i-other-twin":
            continue
        address = TWIN if node_id == "i-twin" else f"10.0.1.{number}"
        name = "twin" if node_id == "i-twin" else node_id
        exporters.an_agent(history, f"{address}:9460", name, role.says, newest=-role.late)
        exporters.an_exporter(history, "dcgm", f"{address}:9400", role.change)
    return history


def _scraping(targets: dict[str, str], timeout: float) -> ScrapeSource:
    settings = ObserveSettings(timeout=timeout, targets=targets)
    return ScrapeSource(settings=settings, clock=ManualClock(wall=AT), max_age_seconds=MAX_AGE)


def _all_at(url: str) -> dict[str, str]:
    return dict.fromkeys(CAST, url)


def _promql(url: str, dialect: str, targets: dict[str, str], timeout: float) -> NodeReportSource:
    scrape = ObserveSettings(timeout=timeout, targets=targets, act_without_confirm=True)
    return exporters.a_source(url, dialect, scrape=scrape, timeout=timeout)


SOURCES = ["agents", "prometheus of agents", "prometheus of dcgm-exporter"]


def nowhere(name: str, url: str, timeout: float) -> NodeReportSource:
    """A source with that time-out; all its questions go to that URL."""
    if name == "agents":
        return _scraping(_all_at(url), timeout)
    return _promql(url, "gpuwatch" if name == "prometheus of agents" else "dcgm", _all_at(url), timeout)


@contextmanager
def every_source(folder: Path) -> Iterator[dict[str, NodeReportSource]]:
    """All of them, with the same cast."""
    with _agents() as targets, prometheus(folder / "engine", _history()) as url:
        yield {
            "agents": _scraping(targets, PATIENT),
            "prometheus of agents": _promql(url, "gpuwatch", targets, PATIENT),
            "prometheus of dcgm-exporter": _promql(url, "dcgm", targets, PATIENT),
        }
