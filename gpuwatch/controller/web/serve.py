"""What the controller serves on its port: metrics and fleet for Prometheus, the page and its API for people."""

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from zoneinfo import ZoneInfo

import msgspec

from gpuwatch.controller.context import ControllerContext, Round
from gpuwatch.controller.metrics import ControllerMetrics
from gpuwatch.controller.observe.credentials import files_of as client_files_of
from gpuwatch.controller.observe.settings import ObserveSettings
from gpuwatch.controller.web.app import Web
from gpuwatch.controller.web.settings import ControllerSettings
from gpuwatch.controller.web.snooze_link import SNOOZE
from gpuwatch.controller.web.snooze_page import links_of
from gpuwatch.controller.web.state import State
from gpuwatch.guard import Rulebook
from gpuwatch.ledger import Ledger
from gpuwatch.model.fleet import Fleet, Node, NodeState
from gpuwatch.money.accounting.settings import CostSettings
from gpuwatch.money.blocked.blocked import blocked_money
from gpuwatch.money.blocked.text import observed_line
from gpuwatch.runtime.certificates import Ends, Watched
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.http.address import host_and_port
from gpuwatch.runtime.http.auth import files_of, make_auth
from gpuwatch.runtime.http.request import TEXT, Response, probe_routes
from gpuwatch.runtime.http.server import HttpServer, Route
from gpuwatch.runtime.tls import TlsFiles
from gpuwatch.runtime.x509 import by_x509

log = logging.getLogger(__name__)

# Half of the time that a connection has. Prometheus asks once a minute, so an error here would cost it that minute.
_FIRST_SECONDS = 10.0
_FACTS = ("name", "pool", "instance_type", "region", "zone", "owner", "account")


@dataclass(slots=True, kw_only=True)
class Discovery:
    """The targets of the last round that saw the fleet."""

    signals: ObserveSettings
    fleet: str = ""  # its name, for the label of the targets
    first_seconds: float = _FIRST_SECONDS  # how long a request waits for the first round
    _fleet: list[Fleet] = field(default_factory=list)
    _seen: threading.Event = field(default_factory=threading.Event)

    def update(self, fleet: Fleet) -> None:
        """Another round has seen the fleet."""
        self._fleet[:] = [fleet]
        self._seen.set()

    def page(self, _accept: str = "") -> Response:
        """The targets as JSON; at the start it waits for the first round, and is an error if that takes longer."""
        if not self._seen.wait(self.first_seconds):
            body = b"503 no round has seen the fleet yet\n"
            return Response(status=HTTPStatus.SERVICE_UNAVAILABLE, body=body, content_type=TEXT)
        found: list[msgspec.Raw] = []
        for node in self._fleet[0].nodes:
            with _by_itself(f"http_sd, of {node.id},"):
                found += [msgspec.Raw(msgspec.json.encode(target)) for target in self._targets(node)]
        return Response(body=msgspec.json.encode(found), content_type="application/json")

    def _targets(self, node: Node) -> Iterator[Mapping[str, object]]:
        """A running node's agent, where it can be reached; also while the cloud does not say whether it runs."""
        base = self.signals.base_url(node)
        if node.state not in {NodeState.RUNNING, NodeState.UNKNOWN} or base is None:
            return
        facts = {f"__meta_gpuwatch_{name}": value for name in _FACTS if (value := getattr(node, name)) is not None}
        labels = {
            "__scheme__": base.partition("://")[0],
            "__meta_gpuwatch_node_id": node.id,
            "__meta_gpuwatch_enrolled": str(node.enrolled).lower(),
            "__meta_gpuwatch_fleet": self.fleet,
            **facts,
        }
        yield {"targets": [host_and_port(base)], "labels": labels}


@contextmanager
def _by_itself(what: str) -> Iterator[None]:
    """Let one that cannot show a round cost itself that round, and the others nothing."""
    try:
        yield
    except Exception:
        log.exception("%s cannot show this round", what)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observers:
    """What shows each round: metrics for Prometheus, the fleet as its scrape targets, page and API for people."""

    discovery: Discovery
    metrics: ControllerMetrics
    web: Web | None = None
    unknown_pools: set[str] = field(default_factory=set)  # those that the log has named
    told: list[str] = field(default_factory=list)  # what the log has said of money while nothing is done

    def update(self, done: Round | None, seconds: float, *, leading: bool = True, trouble: str | None = None) -> None:
        """A round is over; a fleet that it could not see is not passed on. `trouble` is the ledger's."""
        with _by_itself("The metrics"):
            self.metrics.round(done, seconds, leading=leading, ledger_ok=trouble is None)
        if self.web is not None:
            with _by_itself("The page"):
                self.web.state.update(done, leading=leading, trouble=trouble)
        if done is not None and done.trouble is None:
            self.discovery.update(done.observation.fleet)

    def warn(self, done: Round, rules: Rulebook) -> None:
        """Name pools that the settings do not have in the log, once for as long as machines are in them.

        A controller that only observes says once what it would save, and what holds most of the rest.
        """
        with _by_itself("The log"):
            self._warn(done, rules)

    def _warn(self, done: Round, rules: Rulebook) -> None:
        pools = rules.unknown(done.observation.fleet.pools)
        for pool in set(pools) - self.unknown_pools:
            log.warning("Warning: %s What is in it is left alone.", rules.doubt(pool))
        self.unknown_pools.clear()
        self.unknown_pools.update(pools)
        if not rules.enforce and not self.told:
            text = observed_line(blocked_money(done.observation, done.decisions, done.reviews, rules))
            if text is not None:
                self.told.append(text)
                log.info("%s", text)


def make_observers(  # noqa: PLR0913  what it shows, and the settings of that
    parts: ControllerContext,
    ledger: Ledger,
    fleet: str,
    *,
    server: ControllerSettings,
    signals: ObserveSettings,
    cost: CostSettings,
    link_key_file: str | None = None,
    believed: Iterable[TlsFiles | Watched] = (),
) -> Observers:
    """Metrics, page and API of a controller, before its first round; `believed` are certificates of other settings."""
    state = State(
        fleet=fleet,
        interval_seconds=parts.interval_seconds,
        rules=parts.rules,
        ledger=ledger,
        clock=parts.clock,
        zone=ZoneInfo(cost.timezone),
        energy=cost.energy,
    )
    certificates = Ends(
        [files_of(server, "controller"), client_files_of(signals), client_files_of(signals.promql), *believed],
        by_x509,
        parts.clock,
    )
    mode = "enforce" if parts.rules.enforce else "observe"
    return Observers(
        discovery=Discovery(signals=signals, fleet=fleet),
        metrics=ControllerMetrics(
            mode,
            fleet,
            parts.clock,
            certificates.by_setting,
            timings=parts.timings,
            rules=parts.rules,
            own_process=True,
        ),
        web=Web(
            state=state,
            operators=frozenset(server.operators),
            names=frozenset((server.host, *server.allowed_hosts)) - {""},
            links=links_of(link_key_file, state, insecure=server.insecure),
        ),
    )


def make_server(settings: ControllerSettings, observers: Observers, clock: Clock) -> HttpServer | None:
    """Bound and not yet started; None where nothing is to be served.

    Raises:
        OSError: the address is not available, or a file cannot be read.
        ValueError: a file is not what it should be.
        ImportError: passwords need bcrypt, and it is not installed.

    """
    web = observers.web
    app = web.answer if web is not None and settings.page else None
    if not settings.metrics and not settings.http_sd and app is None:
        return None
    routes: dict[str, Route] = {
        "/metrics": observers.metrics.page if settings.metrics else _switched_off("metrics"),
        "/v1/http_sd": observers.discovery.page if settings.http_sd else _switched_off("http_sd"),
        # Ready once a round is over, or has waited for another controller that leads.
        **probe_routes(lambda: True, lambda: observers.metrics.rounds > 0),
    }
    auth = make_auth(settings, clock, "controller")
    observers.metrics.watch_logins(auth.failures)
    return HttpServer(
        settings.host,
        settings.port,
        routes,
        clock=clock,
        max_connections=settings.max_connections,
        timeout_seconds=settings.connection_timeout,
        door=replace(
            auth,
            names=auth.names | (frozenset() if web is None else web.names),
            open=None if web is None or web.links is None else SNOOZE,
        ),
        app=app,
    )


def _switched_off(setting: str) -> Route:
    """What a path answers that a setting has switched off."""
    text = f"404 the setting controller.{setting} is false; set it to true, and reload the controller\n"

    def answer(_accept: str) -> Response:
        return Response(status=HTTPStatus.NOT_FOUND, body=text.encode(), content_type=TEXT)

    return answer
