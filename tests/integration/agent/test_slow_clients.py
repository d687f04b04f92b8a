"""A thousand slow clients from a thousand addresses, many times what the servers have places for, stop no scrape."""

import http.client
import os
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.support.builders.fleet import Desk
from tests.support.builders.served_page import a_site, populate
from tests.support.fakes.slow_clients import KINDS, slow_clients
from tests.support.real.agents import RunningAgent, eventually

CLIENTS = 1000
SCRAPES = 10
DEADLINE_SECONDS = 10.0  # Prometheus' own scrape_timeout


@pytest.fixture(scope="module")
def agent() -> Iterator[str]:
    """A real agent's URL."""
    with RunningAgent(dict(os.environ), source="simulated") as agent:
        eventually(lambda: agent.health()["gpus_up"], lambda: agent.log)
        yield agent.url


@pytest.fixture(scope="module")
def controller() -> Iterator[str]:
    """The URL of a controller's server after a round over a hundred nodes."""
    desk = Desk()
    populate(desk, 100)
    with a_site(desk) as site:
        site.round()
        yield site.url


def scraped(url: str, path: str) -> int:
    """The status of one request on a connection of its own; no answer within the deadline raises."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=DEADLINE_SECONDS)
    try:
        connection.request("GET", path, headers={"Accept-Encoding": "gzip"})
        response = connection.getresponse()
        response.read()
        return response.status
    finally:
        connection.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("who", "path"), [("agent", "/v1/verdict"), ("controller", "/api/v1/fleet")])
def test_no_scrape_is_turned_away(who: str, path: str, kind: str, request: pytest.FixtureRequest) -> None:
    """Every scrape, and every question beside it, is answered at its first try, whatever the slow ones do."""
    url: str = request.getfixturevalue(who)
    with slow_clients(url, CLIENTS, kind):
        statuses = [(scraped(url, "/metrics"), scraped(url, path)) for _ in range(SCRAPES)]

    assert set(statuses) == {(200, 200)}
