"""agent/evidence/connections.py with real programs, real connections and a real cable between two hosts."""

import json
import os
import select
import socket
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest

from gpuwatch.agent.evidence.base import Roots
from gpuwatch.agent.evidence.connections import Connections
from gpuwatch.agent.evidence.settings import ConnectionSettings
from gpuwatch.agent.processes.process import Kind, ProcessView
from tests.support.real.two_hosts import HERE, THERE, TwoHosts, can_be_made, inside

MUCH = 200_000
NOBODY = 65534


class Looking:
    """The signal at its defaults (1 kB/s, mean of a minute) on this host."""

    def __init__(self, hosts: TwoHosts) -> None:
        """Before its first look."""
        self._hosts = hosts
        self._signal = Connections(ConnectionSettings(), Roots())
        self.said: list[dict[str, Any]] = []

    def look(self, seconds: float, view: ProcessView | None) -> dict[str, Any]:
        """What it says so much later."""
        (found,) = self._signal.find_evidence(self._hosts.moment(seconds, view))
        self.said.append(asdict(found))
        return self.said[-1]

    def wait_for_an_end(self) -> None:
        """The kernel shows the end of a connection a moment after it."""
        shown = self._signal._ended._channel
        assert shown is not None
        assert select.select([shown], [], [], 60)[0]


def serves() -> Any:  # noqa: ANN401  JSON
    """Somebody's server is asked from the other host, and then no more."""
    with TwoHosts() as hosts:
        server, client = hosts.served()
        looking = Looking(hosts)
        looking.look(0, hosts.view(server))
        client.moves(server, MUCH)
        looking.look(10, hosts.view(server))
        looking.look(70, hosts.view(server))
        looking.look(70, hosts.view(server))
        return [*looking.said, {"pid": server.pid}]


def asks() -> Any:  # noqa: ANN401  JSON
    """Somebody's program asks a server elsewhere, a little at a time."""
    with TwoHosts() as hosts:
        server, client = hosts.there(), hosts.here()
        port = server.do("listen")
        client.do("connect", THERE, port)
        server.do("accept")
        looking = Looking(hosts)
        looking.look(0, hosts.view(client))
        for number in (100, 100, 100_000):
            server.moves(client, number)
            looking.look(60, hosts.view(client))
        return looking.said


def of_services() -> Any:  # noqa: ANN401  JSON
    """A service moves much elsewhere, and a person's program little."""
    with TwoHosts() as hosts:
        server, client = hosts.asking(Kind.SERVICE)
        person, other = hosts.served()
        looking = Looking(hosts)
        view = hosts.view(client, person)
        looking.look(0, view)
        client.moves(server, MUCH)
        other.moves(person, 2_000)
        looking.look(10, view)
        return looking.said


def of_a_server() -> Any:  # noqa: ANN401  JSON
    """Another machine has much of a service here."""
    with TwoHosts() as hosts:
        server, client = hosts.served(Kind.SERVICE)
        looking = Looking(hosts)
        view = hosts.view(server)
        looking.look(0, view)
        client.moves(server, MUCH)
        looking.look(10, view)
        return looking.said


def within() -> Any:  # noqa: ANN401  JSON
    """Somebody's two programs talk with each other, by loopback and by the host's own address."""
    with TwoHosts() as hosts:
        pairs = [hosts.served_within(at) for at in ("127.0.0.1", HERE)]
        looking = Looking(hosts)
        looking.look(0, hosts.view(*hosts.programs))
        for one, other in pairs:
            one.moves(other, MUCH)
        looking.look(10, hosts.view(*hosts.programs))
        return looking.said


def in_a_container() -> Any:  # noqa: ANN401  JSON
    """Somebody's program in a network of its own is asked by this host."""
    with TwoHosts() as hosts:
        program, service = hosts.there(), hosts.here(Kind.SERVICE)
        service.do("connect", THERE, program.do("listen"))
        program.do("accept")
        looking = Looking(hosts)
        looking.look(0, hosts.view(program, service))
        service.moves(program, MUCH)
        looking.look(10, hosts.view(program, service))
        return [*looking.said, {"pid": program.pid}]


def without_rights() -> Any:  # noqa: ANN401  JSON
    """An agent that may not look into other users' processes: only services run, and then a person's program, too."""
    with TwoHosts() as hosts:
        server, client = hosts.asking(Kind.SERVICE)
        person = hosts.here()
        os.setuid(NOBODY)
        of_service, of_person = Looking(hosts), Looking(hosts)
        of_service.look(0, hosts.view(client))
        of_person.look(0, hosts.view(client, person))
        client.moves(server, MUCH)
        of_service.look(10, hosts.view(client))
        of_person.look(10, hosts.view(client, person))
        os._exit(_told([*of_service.said, *of_person.said]))  # it may not end the programs; its own end does


def of_the_agent() -> Any:  # noqa: ANN401  JSON
    """The agent itself moves much, and nobody knows whose any process is."""
    with TwoHosts() as hosts:
        server = hosts.there()
        port = server.do("listen")
        with socket.create_connection((THERE, port)) as own:
            server.do("accept")
            looking = Looking(hosts)
            looking.look(0, None)
            own.sendall(b"x" * MUCH)
            server.do("receive", MUCH)
            looking.look(10, None)
        return looking.said


def reports() -> Any:  # noqa: ANN401  JSON
    """Another machine comes between two looks, and is gone at the next one: a probe, and two reports."""
    return [_visited(number, first) for number, first in ((0, "client"), (400, "client"), (400, "server"))]


def _visited(number: int, first: str) -> list[dict[str, Any]]:
    """A service is brought so much, looked at each five seconds; who closes first keeps the connection for a minute."""
    with TwoHosts() as hosts:
        server, client = hosts.here(Kind.SERVICE), hosts.there()
        port = server.do("listen")
        looking = Looking(hosts)
        looking.look(0, hosts.view(server))
        client.do("connect", HERE, port)
        server.do("accept")
        if number:
            client.moves(server, number)
        for each in (client, server) if first == "client" else (server, client):
            each.do("close")
        looking.wait_for_an_end()
        for _ in range(14):
            looking.look(5, hosts.view(server))
        return looking.said


def unattributed() -> Any:  # noqa: ANN401  JSON
    """Nobody knows whose any process is."""
    with TwoHosts() as hosts:
        server, client = hosts.served()
        looking = Looking(hosts)
        looking.look(0, None)
        client.moves(server, MUCH)
        looking.look(10, None)
        return looking.said


SCENARIOS: dict[str, Callable[[], Any]] = {
    each.__name__: each
    for each in (
        *(serves, asks, of_services, of_a_server, within),
        *(in_a_container, without_rights, of_the_agent, unattributed, reports),
    )
}


@pytest.fixture(scope="module")
def told() -> Callable[[str], Any]:
    """Runs a scenario on two hosts of its own."""
    if not can_be_made():
        pytest.skip("only root makes network namespaces, and not in every container")
    return lambda scenario: inside(__name__, scenario)


def says(told: list[dict[str, Any]]) -> list[str]:
    """What each look said."""
    return [each["says"] for each in told if "says" in each]


def test_a_server_that_is_asked_from_elsewhere_is_busy_until_it_is_silent(told: Callable[[str], Any]) -> None:
    """Its process and user are named, and the setting; the connection alone is silence."""
    found = told("serves")
    busy, silent = found[1], found[3]

    assert says(found) == ["unknown", "busy", "idle", "idle"]
    assert (busy["note"], busy["owner"]["pid"]) == ("serves 1 client", found[-1]["pid"])
    assert busy["setting"] == "agent.evidence.connections.busy_bytes_per_second"
    assert silent["note"] == "1 connection, silent"


def test_a_program_that_asks_elsewhere_is_busy_above_the_limit_alone(told: Callable[[str], Any]) -> None:
    """Keep-alives are no work; 100 kB in a minute are."""
    found = told("asks")

    assert says(found) == ["unknown", "idle", "idle", "busy"]
    assert found[-1]["note"] == "asks over 1 connection"


def test_a_services_bytes_are_no_work(told: Callable[[str], Any]) -> None:
    """However many it asks for elsewhere; a person's program moved little meanwhile."""
    assert says(told("of_services")) == ["unknown", "idle"]


def test_a_service_that_another_machine_has_much_of_is_in_use(told: Callable[[str], Any]) -> None:
    """Who asks decides, and not who has made the server."""
    assert says(told("of_a_server")) == ["unknown", "busy"]


def test_programs_of_one_host_that_talk_with_each_other_leave_it_idle(told: Callable[[str], Any]) -> None:
    """Nobody elsewhere is there."""
    assert says(told("within")) == ["unknown", "idle"]


def test_a_container_that_is_asked_is_busy(told: Callable[[str], Any]) -> None:
    """Its connections are not the host's, and its cards count them."""
    found = told("in_a_container")

    assert says(found) == ["unknown", "busy"]
    assert found[1]["owner"]["pid"] == found[-1]["pid"]


def test_a_machine_that_reports_between_two_looks_is_seen(told: Callable[[str], Any]) -> None:
    """Whoever closes first; a probe that brings nothing is nobody's."""
    probe, *reported = map(says, told("reports"))

    assert set(probe[1:]) == {"idle"}
    for found in reported:
        assert (found.count("busy"), found[-1]) == (1, "occupied")


def test_an_agent_without_rights_knows_the_control_group(told: Callable[[str], Any]) -> None:
    """What a group of services moves is theirs; what one with a person's program moves may be the person's."""
    assert says(told("without_rights")) == ["unknown", "idle", "unknown", "busy"]


def test_the_agents_own_traffic_is_no_work(told: Callable[[str], Any]) -> None:
    """Whatever is known of processes."""
    assert says(told("of_the_agent")) == ["unknown", "idle"]


def test_traffic_of_unknown_processes_is_work(told: Callable[[str], Any]) -> None:
    """In doubt it is somebody's."""
    assert says(told("unattributed")) == ["unknown", "busy"]


def _told(found: Any) -> int:  # noqa: ANN401  JSON
    sys.stdout.write(json.dumps(found))
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    _told(SCENARIOS[sys.argv[1]]())
