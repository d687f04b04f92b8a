"""agent/evidence/model_servers.py and loopback.py: servers asked over real connections, honest ones and others."""

import os
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.agent.attribution.process import user_name
from gpuwatch.agent.evidence import loopback
from gpuwatch.agent.evidence.model_servers import ModelServers
from gpuwatch.agent.evidence.settings import ModelServerSettings
from gpuwatch.config.reader import load
from gpuwatch.config.yaml_file import ConfigError
from gpuwatch.model.activity import Evidence, State
from gpuwatch.runtime.clock import SystemClock
from tests.support.fakes.host import FolderHost
from tests.support.fakes.page_server import HEAD, PageServer, page
from tests.support.real.certificates import Authority


@pytest.fixture
def server() -> Iterator[PageServer]:
    """A server that runs."""
    made = PageServer()
    yield made
    made.stop()


@pytest.fixture
def host(tmp_path: Path) -> FolderHost:
    """A host."""
    return FolderHost(tmp_path)


def signal(host: FolderHost, deadline_seconds: float = 5.0, **endpoints: str) -> ModelServers:
    """The signal on these endpoints; silent after 30 minutes."""
    return ModelServers(ModelServerSettings(endpoints=endpoints), host.roots, deadline_seconds)


def after(host: FolderHost, signal: ModelServers, seconds: float) -> Evidence:
    """What it says so much later."""
    host.pass_time(seconds)
    return host.tells(signal)


def test_a_server_that_is_asked_is_busy_for_half_an_hour(host: FolderHost, server: PageServer) -> None:
    """And then silent, and says since when; the first look knows nothing of what was before."""
    servers = signal(host, llama=server.url)
    server.shows(requests=7)
    first, never = host.tells(servers), after(host, servers, 3600)
    server.shows(requests=8)
    asked, lately = after(host, servers, 30), after(host, servers, 1790)
    silent = after(host, servers, 3 * 3600)

    assert [each.says for each in (first, never, asked, lately, silent)] == [
        *(State.UNKNOWN, State.IDLE, State.BUSY, State.BUSY, State.IDLE)
    ]
    assert never.note == "llama: vLLM, not asked for 1h, since the agent looks"
    assert lately.note == "llama: vLLM, asked last 29m50s ago"
    assert silent.note == "llama: vLLM, asked last 3h29m ago"
    assert lately.setting == "agent.evidence.model_servers.silent_after"


def test_busy_evidence_names_who_listens_there(host: FolderHost, server: PageServer) -> None:
    """The user by the kernel's tables, and the kind of server."""
    server.shows(running=1)
    found = host.tells(signal(host, a=server.url))

    assert found.owner is not None
    assert (found.owner.user, found.owner.process) == (user_name(os.geteuid()), "vLLM")


@pytest.mark.parametrize("running", [1, 40])
def test_a_request_that_runs_is_busy_at_once(host: FolderHost, server: PageServer, running: int) -> None:
    """Also at the first look, and however long it takes."""
    server.shows(running=running)
    servers = signal(host, a=server.url)

    assert host.tells(servers).says is State.BUSY
    assert after(host, servers, 7200).says is State.BUSY


def test_a_server_that_does_not_run_is_idle_and_its_start_is_use(host: FolderHost, server: PageServer) -> None:
    """Only where nobody listens; whoever starts it wants something."""
    servers = signal(host, a=server.url)
    server.stop()
    gone = host.tells(servers)
    again = PageServer(server.port)
    try:
        found = after(host, servers, 30)
    finally:
        again.stop()

    assert (gone.says, gone.note) == (State.IDLE, "a: it does not run")
    assert found.says is State.BUSY


def test_a_gap_in_the_answers_hides_no_request(host: FolderHost, server: PageServer) -> None:
    """What was asked while it did not answer counts when it does again."""
    servers = signal(host, a=server.url)
    host.tells(servers)
    server.raw = b"HTTP/1.1 503 Service Unavailable\r\n\r\n"
    broken = after(host, servers, 30)
    server.shows(requests=1)

    assert (broken.says, broken.note) == (State.UNKNOWN, "a: it answers HTTP 503")
    assert after(host, servers, 30).says is State.BUSY


def test_of_several_servers_a_busy_one_wins_and_then_a_doubt(host: FolderHost, server: PageServer) -> None:
    """Each is told of by its name."""
    other = PageServer()
    try:
        servers = signal(host, a=server.url, b=other.url)
        host.tells(servers)
        other.raw = b"garbage"
        doubt = after(host, servers, 3600)
        server.shows(requests=1)
        busy = after(host, servers, 30)
    finally:
        other.stop()

    assert (doubt.says, doubt.note) == (State.UNKNOWN, "b: it does not speak HTTP")
    assert (busy.says, busy.note) == (State.BUSY, "a: vLLM, asked last 0s ago")


@pytest.mark.parametrize(
    ("raw", "note"),
    [
        (b"", "it does not speak HTTP"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "it does not speak HTTP"),
        (b"\x16\x03\x01" * 500, "it does not speak HTTP"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\n\r\n", "it answers HTTP 302"),
        (b"HTTP/1.1 401 Unauthorized\r\n\r\n", "it answers HTTP 401"),
        (HEAD + b"<html>", "its page shows no request counter of a server that gpuwatch knows"),
        (HEAD + page() * 200_000, "its page is larger than it can rightly be"),
        (b"HTTP/1.1 200 OK\r\n" + b"X-Filler: 1\r\n" * 5000 + b"\r\n", "it does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nvllm", "it does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n" + page(), "it does not speak HTTP"),
    ],
    ids=["empty", "ssh", "tls", "redirect", "forbidden", "html", "huge", "headers", "bad chunks", "cut off"],
)
def test_an_answer_that_is_no_page_is_unknown(host: FolderHost, server: PageServer, raw: bytes, note: str) -> None:
    """It was expected; nothing of it is repeated, and no redirect is followed."""
    server.raw = raw
    found = host.tells(signal(host, a=server.url))

    assert (found.says, found.note) == (State.UNKNOWN, f"a: {note}")
    assert len(server.asked) == 1


@pytest.mark.parametrize("drip", [b"", b"H", HEAD + page()], ids=["silence", "a letter", "no end"])
def test_a_server_that_does_not_end_is_given_up(host: FolderHost, server: PageServer, drip: bytes) -> None:
    """The time is that of the whole answer: a byte now and then does not extend it."""
    ended = threading.Event()

    def never_ends(connection: socket.socket) -> None:
        while not ended.wait(0.02):
            connection.sendall(drip or b"")

    server.raw = never_ends
    clock = SystemClock()
    began = clock.monotonic()
    found = host.tells(signal(host, a=server.url, deadline_seconds=0.6))
    took = clock.monotonic() - began
    ended.set()

    assert (found.says, found.note) == (State.UNKNOWN, "a: it does not answer (timed out)")
    assert took < 3


def test_a_chunked_page_is_read(host: FolderHost, server: PageServer) -> None:
    """As uvicorn sends it, under vLLM and SGLang."""
    body = page(running=1)
    chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    server.raw = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunks

    assert host.tells(signal(host, a=server.url)).says is State.BUSY


@pytest.mark.parametrize("speaks", ["https", "http"])
def test_a_server_behind_tls_is_asked_whatever_its_certificate_says(
    host: FolderHost, server: PageServer, tmp_path: Path, speaks: str
) -> None:
    """On loopback it names nobody, and nothing secret is sent. One that does not speak TLS is unknown."""
    issued = Authority(tmp_path / "ca").issue("server", "vllm.example.com")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(issued.certificate, issued.key)

    def answers(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as secured:
            secured.recv(65536)
            secured.sendall(HEAD + page(running=1))

    server.listens_first = speaks == "http"
    server.raw = HEAD + page(running=1) if speaks == "http" else answers
    found = host.tells(signal(host, a=server.url.replace("http:", "https:")))

    assert found.says is (State.UNKNOWN if speaks == "http" else State.BUSY)


def test_localhost_is_both_of_its_addresses(host: FolderHost, server: PageServer) -> None:
    """Whatever a resolver says, and over IPv6 where nobody listens on the other."""
    url = server.url.replace("127.0.0.1", "localhost")
    server.shows(running=1)

    assert host.tells(signal(host, a=url)).says is State.BUSY
    assert server.asked[0].startswith(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:")


@pytest.mark.parametrize(
    ("url", "wrong"),
    [
        ("http://10.0.0.5:8000/metrics", "'http://10.0.0.5:8000/metrics' is not on loopback"),
        ("http://vllm.example.com/metrics", "is not on loopback"),
        ("http://127.0.0.1.example.com/", "is not on loopback"),
        ("http://[::2]:80/", "is not on loopback"),
        ("http://0.0.0.0:8000/metrics", "is not on loopback"),
        ("http://2130706433:8000/metrics", "is not on loopback"),
        ("127.0.0.1:8000/metrics", "is no URL of HTTP"),
        ("ftp://127.0.0.1/metrics", "is no URL of HTTP"),
        ("http://127.0.0.1:99999/", "is no URL"),
        ("http://127.0.0.1/a b", "is no URL of HTTP"),
        ("http://127.0.0.1/a\\r\\nX: y", "is no URL of HTTP"),
        ("http://alice:secret@127.0.0.1/", "'127.0.0.1/' names a user"),
        ("http://127.0.0.1/\u00e4", "has letters that a URL must write as %XX"),
    ],
)
def test_only_pages_on_loopback_may_be_named(tmp_path: Path, url: str, wrong: str) -> None:
    """The mistake names key, value and what is expected; a password is not repeated."""
    file = tmp_path / "gpuwatch.yaml"
    text = f'agent: {{evidence: {{model_servers: {{endpoints: {{chat: "{url}"}}}}}}}}\n'
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load(file, {})
    told = str(caught.value)

    assert "agent.evidence.model_servers.endpoints.chat: " in told
    assert wrong in told
    assert "http://127.0.0.1:8000/metrics" in told
    assert "secret" not in told


@pytest.mark.parametrize(
    ("url", "page"),
    [
        ("http://127.0.0.1:8000/metrics", (("127.0.0.1",), 8000, "/metrics", False)),
        ("http://127.0.0.53", (("127.0.0.53",), 80, "/", False)),
        ("https://[::1]:8443/metrics?model=a", (("::1",), 8443, "/metrics?model=a", True)),
        ("http://localhost:11434/api/ps", (("127.0.0.1", "::1"), 11434, "/api/ps", False)),
    ],
)
def test_a_page_on_loopback(url: str, page: tuple[tuple[str, ...], int, str, bool]) -> None:
    """By address, or as localhost."""
    found = loopback.parse(url)

    assert (found.addresses, found.port, found.target, found.secure) == page
