"""Who asks an agent or a controller and is not meant: browsers led there by a name, others' users and certificates."""

import http.client
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuwatch.agent.posted import posted_app
from gpuwatch.agent.settings import AgentSettings
from gpuwatch.agent.wall import PATH, notices
from gpuwatch.config.settings import Settings
from gpuwatch.config.settings import contradictions as of_settings
from gpuwatch.runtime.clock import SystemClock
from gpuwatch.runtime.http.access import is_known
from gpuwatch.runtime.http.auth import make_auth
from gpuwatch.runtime.http.request import Request, Response
from gpuwatch.runtime.http.server import HttpServer, ServerAuth
from gpuwatch.runtime.tls import TlsFiles, client_context
from tests.support.builders.authenticator import ALICE, header
from tests.support.real.certificates import Authority

Ask = Callable[..., http.client.HTTPResponse]


@pytest.fixture
def opened() -> Iterator[Callable[..., HttpServer]]:
    """Servers with one route, by their settings."""
    made: list[HttpServer] = []

    def make(host: str = "127.0.0.1", **settings: object) -> HttpServer:
        clock = SystemClock()
        door = make_auth(AgentSettings(host=host, **settings), clock, "agent")  # type: ignore[arg-type]  # of the fields' types
        page = {"/metrics": lambda _: Response(body=b"up 1\n", content_type="text/plain")}
        server = HttpServer(host, 0, page, clock=clock, max_connections=8, timeout_seconds=5.0, door=door)
        server.start()
        made.append(server)
        return server

    yield make
    for server in made:
        server.close()


def asked(server: HttpServer, host: str | None, **headers: str) -> http.client.HTTPResponse:
    """One request with that Host header."""
    connection = http.client.HTTPConnection("127.0.0.1", int(server.server_address[1]), timeout=10)
    connection.putrequest("GET", "/metrics", skip_host=True)
    for name, value in ({} if host is None else {"Host": host} | headers).items():
        connection.putheader(name, value)
    connection.endheaders()
    response = connection.getresponse()
    response.read()
    connection.close()
    return response


NAMED = {
    "localhost:9460": 200,
    "127.0.0.1:9460": 200,
    "[::1]:9460": 200,
    "10.0.0.7": 200,
    "gpu-7.example.com": 200,
    "evil.example": 421,
    "localhost.evil.example": 421,
    "127.0.0.1.evil.example": 421,
    "evil.example:9460": 421,
    "gpu-7.example.com.evil.example": 421,
    "": 421,
    "[": 421,
    None: 200,  # no browser leaves it out
}


@pytest.mark.parametrize(("host", "status"), NAMED.items())
def test_a_made_up_name_leads_to_no_metrics(opened: Callable[..., HttpServer], host: str | None, status: int) -> None:
    """A site whose name server says 127.0.0.1 has its script read them, by the site's own name."""
    assert asked(opened(allowed_hosts=("gpu-7.example.com",)), host).status == status


def test_where_a_password_is_asked_for_any_name_will_do(opened: Callable[..., HttpServer]) -> None:
    """The browser has none for that name; proxies and tunnels ask by whatever they are called."""
    server = opened(basic_auth_users={"alice": ALICE})

    assert asked(server, "evil.example").status == 401
    assert asked(server, "a-proxy.example", Authorization=header("alice", "apple")).status == 200


def test_beyond_loopback_prometheus_asks_by_any_name(opened: Callable[..., HttpServer]) -> None:
    """There the settings have said that whoever gets there may ask."""
    assert asked(opened("0.0.0.0", insecure=True), "gpu-7.example.com:9460").status == 200  # noqa: S104  the point


@pytest.mark.parametrize("headers", [{"origin": "http://evil.example"}, {"sec-fetch-site": "same-origin"}])
def test_no_browser_writes_on_terminals(headers: dict[str, str]) -> None:
    """Whatever name led it there, and also where the agent is open to a network."""
    app = posted_app({PATH: notices(None)}, ())  # type: ignore[arg-type]  # terminals that nobody gets to
    request = Request(
        method="POST", target=PATH, client="127.0.0.1", headers={"content-type": "application/json", **headers}
    )

    assert app(request).status == 403


@pytest.mark.parametrize(("user", "status"), [("controller", 400), ("prometheus", 403), (None, 403)])
def test_who_may_scrape_need_not_raise_alarms(user: str | None, status: int) -> None:
    """`agent.notice_users` says who may; the order itself is then looked at."""
    app = posted_app({PATH: notices(None)}, (), ("controller",))  # type: ignore[arg-type]  # as above
    headers = {"content-type": "application/json"}
    request = Request(method="POST", target=PATH, client="10.0.0.1", user=user, headers=headers, body=b"{")

    assert app(request).status == status


@pytest.mark.parametrize(
    ("names", "status"),
    [
        ((), 200),
        (("client.test",), 200),
        (("another", "client.test"), 200),
        (("another",), 403),
        (("CN=client.test",), 403),
    ],
)
def test_of_one_ca_only_the_named_certificates(
    opened: Callable[..., HttpServer], tmp_path: Path, names: tuple[str, ...], status: int
) -> None:
    """A CA signs for many; `tls_client_names` says who of them is meant."""
    authority = Authority(tmp_path / "ca")
    agent, client = authority.issue("agent"), authority.issue("client", "client.test")
    server = opened(
        tls_certificate=str(agent.certificate),
        tls_key=str(agent.key),
        tls_client_ca=str(authority.ca),
        tls_client_names=names,
    )
    context = client_context(
        TlsFiles(section="x", certificate=client.certificate, key=client.key, ca=authority.ca, ca_key="ca")
    )
    context.check_hostname = False
    connection = http.client.HTTPSConnection("127.0.0.1", int(server.server_address[1]), timeout=10, context=context)
    connection.request("GET", "/metrics")
    response = connection.getresponse()
    response.read()
    connection.close()

    assert isinstance(context, ssl.SSLContext)
    assert response.status == status
    assert response.headers["Strict-Transport-Security"] == "max-age=31536000"


def test_every_answer_forbids_to_guess_its_type(opened: Callable[..., HttpServer]) -> None:
    """Pages, refusals and errors, each header once; and over plain http nothing of https."""
    server = opened()
    address = ("127.0.0.1", int(server.server_address[1]))
    for line in (b"GET /metrics", b"GET /none", b"PUT /metrics", b"GET  x"):
        connection = http.client.HTTPConnection(*address, timeout=10)
        connection.connect()
        connection.sock.sendall(line + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
        response = http.client.HTTPResponse(connection.sock)
        response.begin()

        assert response.headers.get_all("X-Content-Type-Options") == ["nosniff"]
        assert response.headers["Strict-Transport-Security"] is None
        response.close()
        connection.close()


def test_settings_that_name_whom_nobody_can_prove_to_be() -> None:
    """Without a CA nobody shows a certificate, and without users nobody says who he is."""
    agent = AgentSettings(tls_client_names=("a",), notice_users=("b",))
    wrong = [each.wrong for each in of_settings(Settings(agent=agent))]

    assert ["agent.tls_client_names" in wrong[0], "agent.notice_users" in wrong[1]] == [True, True]
    assert list(of_settings(Settings(agent=AgentSettings(notice_users=("b",), users_file="/u")))) == []


def test_a_door_without_names_knows_addresses() -> None:
    """As a server has it that was told nothing."""
    assert ServerAuth().names == frozenset()
    assert is_known("192.0.2.1:1", ()) is True
