"""Scrapes while a thousand slow clients, each from an address of its own, want the places of agent and controller."""

import os
import time
from collections.abc import Iterator
from http import HTTPStatus
from http.client import HTTPConnection
from urllib.parse import urlsplit

from benchmarks.figures import Figure
from benchmarks.processes import PROMETHEUS
from tests.support.builders.fleet import Desk
from tests.support.builders.served_page import a_site, populate
from tests.support.fakes.slow_clients import KINDS, slow_clients
from tests.support.real.agents import RunningAgent, eventually

_CLIENTS = 1_000
_NODES = 100
_SCRAPES = 20


def measure() -> Iterator[Figure]:
    """Both servers, each kind of slow client; a scrape that is refused or cut ends the benchmark."""
    with RunningAgent(dict(os.environ), source="simulated", interval=1) as agent:
        eventually(lambda: agent.health()["gpus_up"], lambda: agent.log)
        yield from _figures("agent", agent.url)
    desk = Desk()
    populate(desk, _NODES)
    with a_site(desk) as site:
        site.round()
        yield from _figures("controller", site.url)


def _figures(who: str, url: str) -> Iterator[Figure]:
    alone = _scrapes(url)
    for kind in KINDS:
        with slow_clients(url, _CLIENTS, kind):
            runs = _scrapes(url)
        name = f"scrape of the {who}, {_CLIENTS:,} clients {kind}"
        yield Figure(name=name, unit="ms", runs=runs, floor="nobody else", floor_runs=alone)


def _scrapes(url: str) -> list[float]:
    """How long each takes, on a connection of its own, in milliseconds."""
    runs = []
    for _ in range(_SCRAPES):
        begin = time.perf_counter()
        connection = HTTPConnection(urlsplit(url).netloc, timeout=10)
        connection.request("GET", "/metrics", headers=PROMETHEUS)
        answer = connection.getresponse()
        answer.read()
        connection.close()
        if answer.status != HTTPStatus.OK:
            message = f"a scrape was answered with {answer.status}"
            raise RuntimeError(message)
        runs.append((time.perf_counter() - begin) * 1e3)
    return runs
