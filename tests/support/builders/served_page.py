"""A served page over a Desk: fleets as large as a test wants, and requests to it over real HTTP."""

import http.client
import json
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

import bcrypt

from gpuwatch.controller.metrics import ControllerMetrics
from gpuwatch.controller.observe.settings import ObserveSettings
from gpuwatch.controller.round import step
from gpuwatch.controller.web.app import Web
from gpuwatch.controller.web.serve import Discovery, Observers, make_server
from gpuwatch.controller.web.settings import ControllerSettings
from gpuwatch.controller.web.snooze_page import SnoozeLinks
from gpuwatch.controller.web.state import State as Told
from gpuwatch.model.activity import Activity, GpuUse, State
from gpuwatch.model.fleet import GpuVerdict, NodeReport, NodeState
from gpuwatch.model.health import GpuHealth, Health
from gpuwatch.model.money import Price
from gpuwatch.money.accounting.metering import Metering
from gpuwatch.money.accounting.settings import EnergySettings
from gpuwatch.money.accounting.store import SpendBook
from gpuwatch.runtime.reloading_file import ReloadingFile
from tests.support.builders.fleet import NOW, Desk, a_node, a_verdict, an_activity

HOUR = 3600.0
STATES = (*[State.BUSY] * 6, State.IDLE, State.IDLE, State.PARKED, State.UNKNOWN, State.BUSY, State.STALLED)
POOLS = ("inference", "training", "research", "default")
PRICE = Price(usd_per_hour=Decimal("5.672"), source="test", as_of=NOW.date())


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401  JSON
        """The body read."""
        return json.loads(self.body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A served page with the controller behind it."""

    desk: Desk
    web: Web
    url: str

    def round(self, seconds: float = 60.0) -> None:
        """One round, which the page is told of."""
        done = step(self.desk.parts)
        SpendBook(self.desk.ledger).meter(done.observation, METERING)
        self.web.state.update(done, leading=True)
        self.desk.clock.advance(seconds)
        fleet = self.desk.fleet
        for node in [each for each in fleet.nodes_.values() if each.verdict is not None]:  # whose agents count on
            verdict = node.signal.verdict
            assert verdict is not None
            activity = replace(verdict.activity, held_seconds=verdict.activity.held_seconds + seconds)
            fleet.put(replace(node, signal=NodeReport(verdict=replace(verdict, activity=activity))))

    def ask(self, target: str, method: str = "GET", body: bytes | None = None, **headers: str) -> Answer:
        """One request; underscores in headers' names are dashes."""
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=20)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, target, body, named)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(status=answer.status, headers=found, body=answer.read())
        finally:
            connection.close()


METERING = Metering(zone=ZoneInfo("UTC"), tags=(), silent_after_seconds=300.0)


@contextmanager
def a_site(desk: Desk, settings: ControllerSettings | None = None, *, secret: bytes | None = None) -> Iterator[Site]:
    """The controller's server over a desk that has seen no round yet; with a secret it knows snooze links."""
    settings = replace(settings or ControllerSettings(), port=0)
    state = Told(
        fleet="test",
        interval_seconds=60.0,
        rules=desk.rulebook,
        ledger=desk.ledger,
        clock=desk.clock,
        zone=ZoneInfo("UTC"),
        energy=EnergySettings(),
    )
    links = (
        None
        if secret is None
        else SnoozeLinks(state=state, key=ReloadingFile([], lambda: secret), insecure=settings.insecure)
    )
    web = Web(
        state=state, operators=frozenset(settings.operators), names=frozenset(settings.allowed_hosts), links=links
    )
    metrics = ControllerMetrics("enforce", "test", desk.clock, rules=desk.rulebook)
    observers = Observers(discovery=Discovery(signals=ObserveSettings()), metrics=metrics, web=web)
    server = make_server(settings, observers, desk.clock)
    assert server is not None
    server.start()
    try:
        yield Site(desk=desk, web=web, url=server.url)
    finally:
        server.close()


def with_users(folder: Path, *operators: str) -> ControllerSettings:
    """Settings with the users ann and bob, whose passwords are their names."""
    users = folder / "users"
    lines = [f"{name}:{bcrypt.hashpw(name.encode(), bcrypt.gensalt(4)).decode()}" for name in ("ann", "bob")]
    users.write_text("\n".join(lines), encoding="utf-8")
    return ControllerSettings(users_file=str(users), operators=operators)


def populate(desk: Desk, count: int, gpus: int = 8) -> None:
    """A fleet with everything in it; node k is always the same."""
    desk.prices["p4d.24xlarge"] = PRICE
    for number in range(count):
        state, name = STATES[number % len(STATES)], f"gpu-{number:04}"
        node_id = f"i-{number:08x}"
        node = a_node(
            node_id,
            name=name,
            pool=POOLS[number % 7 % len(POOLS)],
            instance_type="p4d.24xlarge",
            gpu_count=gpus,
            owner=("ann", "bob", None)[number % 3],
        )
        if number % 29 == 28:
            desk.fleet.put(replace(node, state=NodeState.STOPPED, signal=NodeReport()))
            continue
        held = 200.0 + 60 * (number % 50)
        verdict = a_verdict(node_id, state, held, gpus=gpus)
        cells = tuple(_cell(each, number, index, held) for index, each in enumerate(verdict.gpus))
        desk.fleet.put(replace(node, signal=NodeReport(verdict=replace(verdict, gpus=cells))))


def _cell(gpu: GpuVerdict, number: int, index: int, held: float) -> GpuVerdict:
    """A GPU of a node: some of a busy one are idle, some are not well."""
    activity: Activity = gpu.activity
    if activity.state is State.BUSY and (number + index) % 11 == 0:
        activity = an_activity(State.IDLE, held)
    used = 0.0 if activity.state is not State.BUSY else 0.35 + 0.65 * ((number * 7 + index * 3) % 10) / 10
    bad = Health.FAILING if (number * 8 + index) % 401 == 400 else Health.HEALTHY
    return replace(
        gpu,
        activity=activity,
        health=GpuHealth(state=bad, since=None),
        use=GpuUse(over_seconds=60.0, utilization_ratio=used, memory_used_ratio=min(1.0, used + 0.1)),
    )


def known(name: str) -> str:
    """The header of a user whose password is the name."""
    return "Basic " + b64encode(f"{name}:{name}".encode()).decode()
