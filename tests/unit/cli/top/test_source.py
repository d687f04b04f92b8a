"""cli/top/source: whom `gpuwatch top` asks, and what it makes of an answer."""

import socket
import ssl
import threading
from contextlib import suppress

import msgspec
import pytest

from gpuwatch.agent.evidence.settings import EvidenceSettings
from gpuwatch.agent.settings import AgentSettings
from gpuwatch.cli.top import source
from gpuwatch.cli.top.source import AgentSource, DirectSource, Login, NoAgentError, RefusedError, find_source, own_agent
from gpuwatch.model.host_page import HOST_SCHEMA
from gpuwatch.runtime.clock import SystemClock
from tests.support.builders.gpu import a_reading
from tests.support.builders.host_page import a_page

PAGE = a_page(a_reading())
SERVER = "gpuwatch/1.0.0rc1"
QUIET = EvidenceSettings(enabled=False)
NOBODY = 1  # nobody listens at port 1


def answering(monkeypatch: pytest.MonkeyPatch, status: int, body: bytes = b"", server: str = SERVER) -> AgentSource:
    """An agent that answers that."""
    monkeypatch.setattr(AgentSource, "_ask", lambda _: (status, server, body))
    return AgentSource("http://127.0.0.1:9460")


def test_an_agents_page_is_shown_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """With nothing to say about where it comes from."""
    agent = answering(monkeypatch, 200, msgspec.json.encode(PAGE))

    assert agent.page() == PAGE
    assert agent.note == ""


@pytest.mark.parametrize(
    ("status", "words"),
    [(401, "--user NAME"), (403, "certificate"), (404, "older version"), (503, "HTTP 503")],
)
def test_an_agent_that_refuses_is_told_with_what_would_help(
    monkeypatch: pytest.MonkeyPatch, status: int, words: str
) -> None:
    """Not the same as no agent."""
    with pytest.raises(RefusedError, match=words):
        answering(monkeypatch, status).page()


@pytest.mark.parametrize("body", [b"", b"{}", b"<html>", b"\xff\x00"])
def test_an_answer_that_is_no_page_is_refused(monkeypatch: pytest.MonkeyPatch, body: bytes) -> None:
    """Whatever came: no traceback."""
    with pytest.raises(RefusedError, match="not what this version expects"):
        answering(monkeypatch, 200, body).page()


def test_a_newer_page_asks_for_a_newer_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its fields may mean something else."""
    document = msgspec.to_builtins(PAGE) | {"schema": HOST_SCHEMA + 1}
    with pytest.raises(RefusedError, match="newer"):
        answering(monkeypatch, 200, msgspec.json.encode(document)).page()


def test_fields_that_a_newer_agent_adds_do_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    """The schema stays the same as long as old readers are right."""
    document = msgspec.to_builtins(PAGE) | {"fans": 4}

    assert answering(monkeypatch, 200, msgspec.json.encode(document)).page() == PAGE


def test_another_program_at_the_port_is_no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """And its name cannot move the cursor."""
    with pytest.raises(NoAgentError, match=r"another program answers at .*: nginx\\x1b"):
        answering(monkeypatch, 200, b"", "nginx\x1b[2J").page()


def test_a_port_where_nobody_listens_has_no_agent() -> None:
    """A refused connection."""
    with pytest.raises(NoAgentError, match=r"no agent answers at http://127\.0\.0\.1:1"):
        AgentSource(f"http://127.0.0.1:{NOBODY}").page()


def test_an_agent_that_never_answers_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a bounded time."""
    monkeypatch.setattr(source, "_ANSWER_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(RefusedError, match="has not answered"):
            AgentSource(url).page()


@pytest.mark.parametrize("begin", [b"", b"HTTP/1.1 200 OK\r\nServer: gpuwatch\r\nContent-Length: 100000\r\n\r\n"])
def test_an_agent_that_drips_has_one_deadline_for_its_whole_answer(
    monkeypatch: pytest.MonkeyPatch, begin: bytes
) -> None:
    """A byte now and then keeps no screen waiting, in the head or in the body."""
    monkeypatch.setattr(source, "_ANSWER_SECONDS", 0.5)
    over = threading.Event()

    def drip(server: socket.socket) -> None:
        with server.accept()[0] as connection, suppress(OSError):
            connection.sendall(begin)
            for _ in range(200):
                if over.wait(0.05):
                    return
                connection.sendall(b"H")

    with socket.create_server(("127.0.0.1", 0)) as server:
        dripping = threading.Thread(target=drip, args=(server,))
        dripping.start()
        with pytest.raises(RefusedError, match="has not answered"):
            AgentSource(f"http://127.0.0.1:{server.getsockname()[1]}").page()
        over.set()
        dripping.join()


def test_no_tls_where_it_was_expected_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """In OpenSSL's words."""

    def broken(_: AgentSource) -> tuple[int, str, bytes]:
        raise ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number")

    monkeypatch.setattr(AgentSource, "_ask", broken)
    with pytest.raises(RefusedError, match=r"no TLS with https://127\.0\.0\.1:9460"):
        AgentSource("https://127.0.0.1:9460").page()


@pytest.mark.parametrize(
    "url", ["ftp://host", "http://", "http://user:secret@host:9460", "", "host:x", "http://host:99999", "http://[::1"]
)
def test_what_is_no_url_of_an_agent_is_refused(url: str) -> None:
    """A password in a URL would be seen in the process list."""
    with pytest.raises(ValueError, match="is not the URL of an agent"):
        AgentSource(url)


@pytest.mark.parametrize(
    "url", ["127.0.0.1", "127.0.0.1:", "127.0.0.1:9460", "//127.0.0.1:9460", "http://127.0.0.1:9460"]
)
def test_a_url_may_be_short(url: str) -> None:
    """As people type it."""
    assert AgentSource(url).url == "http://127.0.0.1:9460"


def test_a_password_goes_out_encrypted_or_to_this_host() -> None:
    """Never over a network in the clear; and it is in no text."""
    login = Login(user="ann", password="secret")  # noqa: S106  of this test
    with pytest.raises(ValueError, match="https or to this host only"):
        AgentSource("http://gpu-7.example.com:9460", login)

    assert AgentSource("http://127.0.0.1:9460", login)._headers["Authorization"] == "Basic YW5uOnNlY3JldA=="
    assert "secret" not in repr(login)


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:9460"),
        ("0.0.0.0", "http://127.0.0.1:9460"),  # noqa: S104  not bound
        ("::", "http://[::1]:9460"),
        ("10.0.0.7", "http://10.0.0.7:9460"),
    ],
)
def test_the_agent_is_asked_where_its_settings_say(host: str, url: str) -> None:
    """One that listens everywhere is asked on loopback."""
    assert own_agent(AgentSettings(host=host), None).url == url


def test_without_an_agent_this_process_reads_and_says_so() -> None:
    """With the same code; idle times begin now."""
    settings = AgentSettings(port=NOBODY, source="simulated", interval=0.1, evidence=QUIET)
    here = find_source(settings, None, SystemClock())
    try:
        here.settle()
        page = here.page()
    finally:
        here.close()

    assert isinstance(here, DirectSource)
    assert here.note == "no agent runs here: read directly; idle times begin now"
    assert [gpu.down for gpu in page.gpus] == [None] * len(page.gpus)
    assert page.gpus


def test_an_agent_that_refuses_is_named_and_this_process_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """People who may use the GPUs may look at them."""
    monkeypatch.setattr(AgentSource, "_ask", lambda _: (401, SERVER, b""))
    here = find_source(AgentSettings(source="simulated", interval=0.1, evidence=QUIET), None, SystemClock())
    here.close()

    assert isinstance(here, DirectSource)
    assert "--user NAME: read directly" in here.note


def test_a_certificate_that_cannot_be_read_is_no_reason_to_show_nothing() -> None:
    """The file of the agent's certificate may be closed to this user."""
    settings = AgentSettings(
        tls_certificate="/nowhere/cert.pem",
        tls_key="/nowhere/key.pem",
        source="simulated",
        interval=0.1,
        evidence=QUIET,
    )
    here = find_source(settings, None, SystemClock())
    here.close()

    assert here.note.startswith("the agent cannot be asked (")
