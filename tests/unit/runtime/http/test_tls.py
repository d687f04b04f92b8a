"""TLS on the agent's port: real sockets and certificates, an authority made for each test."""

import gc
import http.client
import logging
import os
import socket
import ssl
import struct
import subprocess
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuwatch.agent.settings import AgentSettings
from gpuwatch.runtime.clock import SystemClock
from gpuwatch.runtime.http.auth import make_auth
from gpuwatch.runtime.http.connections import cut
from gpuwatch.runtime.http.request import Response
from gpuwatch.runtime.http.server import HttpServer, ServerAuth
from gpuwatch.runtime.tls import TlsFiles, client_context, server_context
from tests.support.real.agents import eventually
from tests.support.real.certificates import Authority, Issued

TIMEOUT = 1.0
PAGE = b"a page\n"

Serve = Callable[..., HttpServer]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """Who signs the agent's certificate."""
    return Authority(tmp_path / "ours")


@pytest.fixture
def issued(authority: Authority) -> Issued:
    """The agent's certificate."""
    return authority.issue("agent")


@pytest.fixture
def serve(issued: Issued) -> Iterator[Serve]:
    """Makes servers with that certificate and further settings."""
    made: list[HttpServer] = []

    def make(**settings: str) -> HttpServer:
        agent = AgentSettings(tls_certificate=str(issued.certificate), tls_key=str(issued.key), **settings)  # type: ignore[arg-type]
        clock = SystemClock()
        server = HttpServer(
            "127.0.0.1",
            0,
            {"/page": lambda _: Response(body=PAGE, content_type="text/plain")},
            clock=clock,
            max_connections=8,
            timeout_seconds=TIMEOUT,
            door=make_auth(agent, clock, "agent"),
        )
        server.start()
        made.append(server)
        return server

    yield make
    for server in made:
        server.close()


def connect(server: HttpServer, context: ssl.SSLContext) -> http.client.HTTPSConnection:
    """A client's connection."""
    return http.client.HTTPSConnection("127.0.0.1", server.server_address[1], timeout=10, context=context)


def ask(connection: http.client.HTTPSConnection) -> bytes:
    """One request on it."""
    connection.request("GET", "/page")
    return connection.getresponse().read()


def fetch(server: HttpServer, context: ssl.SSLContext) -> bytes:
    """One request on a connection of its own."""
    connection = connect(server, context)
    try:
        return ask(connection)
    finally:
        connection.close()


def shown(connection: http.client.HTTPSConnection) -> bytes:
    """The certificate that the server has shown on it."""
    assert isinstance(connection.sock, ssl.SSLSocket)
    return connection.sock.getpeercert(binary_form=True) or b""


# Which TLS.


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_clients_of_either_version_are_served(serve: Serve, authority: Authority, version: ssl.TLSVersion) -> None:
    """1.2 is served to those who have no more, with forward secrecy."""
    context = authority.client()
    context.maximum_version = version
    connection = connect(serve(), context)

    assert ask(connection) == PAGE
    assert isinstance(connection.sock, ssl.SSLSocket)
    assert connection.sock.version() == version.name.replace("_", ".")
    assert (connection.sock.cipher() or ("",))[0].startswith(("ECDHE-", "TLS_"))
    connection.close()


def test_who_has_both_gets_the_newer(serve: Serve, authority: Authority) -> None:
    """1.3 is preferred."""
    connection = connect(serve(), authority.client())
    ask(connection)

    assert isinstance(connection.sock, ssl.SSLSocket)
    assert connection.sock.version() == "TLSv1.3"
    connection.close()


def test_1_2_is_refused_where_the_settings_say_so(serve: Serve, authority: Authority) -> None:
    """tls_min: "1.3" serves those who have it, and nobody else."""
    server, context = serve(tls_min="1.3"), authority.client()

    assert fetch(server, context) == PAGE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises((ssl.SSLError, ConnectionError)):
        fetch(server, context)


def test_older_versions_are_refused(serve: Serve) -> None:
    """TLS 1.1, which openssl would speak if it were told to accept anything."""
    port = serve().server_address[1]
    result = subprocess.run(
        ["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-tls1_1", "-cipher", "DEFAULT@SECLEVEL=0"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )

    assert "alert protocol version" in result.stderr


def test_the_url_says_https(serve: Serve) -> None:
    """The address in the log can be opened as it stands."""
    assert serve().url.startswith("https://127.0.0.1:")


def test_a_client_that_speaks_http_is_told(serve: Serve) -> None:
    """A 400 in plain words and not a riddle."""
    with socket.create_connection(("127.0.0.1", serve().server_address[1]), timeout=10) as plain:
        plain.sendall(b"GET /page HTTP/1.1\r\n\r\n")
        answer = b"".join(iter(lambda: plain.recv(65536), b""))

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.endswith(b"400 this port speaks https\n")


# Nobody is held up.


def test_silent_clients_hold_nobody_up(serve: Serve, authority: Authority) -> None:
    """Handshakes are each connection's own business: others are served meanwhile, and the silent are cut in time."""
    server = serve()
    silent = [socket.create_connection(("127.0.0.1", server.server_address[1]), timeout=10) for _ in range(5)]
    silent[0].sendall(b"\x16\x03\x01\x02\x00\x01")  # the first bytes of a handshake, and no more
    served = [fetch(server, authority.client()) for _ in range(3)]
    ends = [connection.recv(65536) for connection in silent]
    for connection in silent:
        connection.close()

    assert served == [PAGE] * 3
    assert ends == [b""] * 5


def test_a_client_that_stops_reading_after_the_handshake_is_cut(serve: Serve, authority: Authority) -> None:
    """The time limit holds inside TLS too."""
    connection = connect(serve(), authority.client())
    connection.connect()
    assert isinstance(connection.sock, ssl.SSLSocket)
    end = connection.sock.recv(65536)
    connection.close()

    assert end == b""


def test_closing_cuts_encrypted_connections(serve: Serve, authority: Authority) -> None:
    """The end waits for nobody."""
    server = serve()
    connection = connect(server, authority.client())
    ask(connection)
    server.close()
    assert isinstance(connection.sock, ssl.SSLSocket)
    end = connection.sock.recv(65536)
    connection.close()

    assert end == b""


# Client certificates.


def test_a_client_with_a_certificate_of_the_right_ca_is_served(serve: Serve, authority: Authority) -> None:
    """Mutual TLS."""
    server, prometheus = serve(tls_client_ca=str(authority.ca)), authority.issue("prometheus")

    assert fetch(server, authority.client(prometheus)) == PAGE


@pytest.mark.parametrize("kind", ["none", "of another CA"])
def test_any_other_client_is_not(serve: Serve, authority: Authority, tmp_path: Path, kind: str) -> None:
    """Without a certificate, or with one of another CA, no page is to be had."""
    foreign = Authority(tmp_path / "theirs").issue("prometheus") if kind != "none" else None
    server = serve(tls_client_ca=str(authority.ca))

    with pytest.raises((ssl.SSLError, ConnectionError)):
        fetch(server, authority.client(foreign))


# Certificates change.


def test_a_renewed_certificate_is_used_without_dropping_anybody(
    serve: Serve, authority: Authority, issued: Issued
) -> None:
    """New connections see the new one; a connection that stands goes on with the old one."""
    server = serve()
    standing, before = connect(server, authority.client()), issued.certificate.read_bytes()
    ask(standing)
    authority.issue("agent")
    renewed = connect(server, authority.client())

    assert ask(renewed) == ask(standing) == PAGE
    assert shown(renewed) == ssl.PEM_cert_to_DER_cert(issued.certificate.read_text())
    assert shown(standing) == ssl.PEM_cert_to_DER_cert(before.decode())
    assert shown(renewed) != shown(standing)
    renewed.close()
    standing.close()


def test_a_broken_renewal_leaves_the_old_one_in_force(
    serve: Serve, authority: Authority, issued: Issued, caplog: pytest.LogCaptureFixture
) -> None:
    """Half a file is told once, whoever connects meanwhile is served with the old certificate; a whole one is taken."""
    server, whole = serve(), issued.certificate.read_bytes()
    issued.certificate.write_bytes(whole[: len(whole) // 2])
    served = [fetch(server, authority.client()) for _ in range(3)]
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    authority.issue("agent")
    connection = connect(server, authority.client())
    ask(connection)

    assert served == [PAGE] * 3
    assert len(warnings) == 1, warnings
    assert str(issued.certificate) in warnings[0]
    assert "the old content stays in force" in warnings[0]
    assert shown(connection) == ssl.PEM_cert_to_DER_cert(issued.certificate.read_text())
    connection.close()


def test_another_client_ca_counts_from_the_next_connection(serve: Serve, authority: Authority, tmp_path: Path) -> None:
    """Whoever the new CA does not know is no longer served."""
    trusted = tmp_path / "clients.pem"
    trusted.write_bytes(authority.ca.read_bytes())
    server, client = serve(tls_client_ca=str(trusted)), authority.client(authority.issue("prometheus"))
    before = fetch(server, client)
    trusted.write_bytes(Authority(tmp_path / "theirs").ca.read_bytes())

    assert before == PAGE
    with pytest.raises((ssl.SSLError, ConnectionError)):
        fetch(server, client)


# What cannot be used is told by key and file.


def test_a_file_that_is_not_there_is_told(issued: Issued, tmp_path: Path) -> None:
    """Key and path, which OpenSSL keeps to itself."""
    files = TlsFiles(section="agent", certificate=issued.certificate, key=tmp_path / "none.key")

    with pytest.raises(OSError, match=r"agent\.tls_key: .*none\.key cannot be read: No such file or directory"):
        server_context(files)


def test_another_certificates_key_is_told(issued: Issued, authority: Authority) -> None:
    """The commonest mistake of all."""
    other = authority.issue("other")

    with pytest.raises(ValueError, match=r"agent\.tls_key .*other\.key is not the key of agent\.tls_certificate"):
        server_context(TlsFiles(section="agent", certificate=issued.certificate, key=other.key))


def test_a_key_with_a_passphrase_is_told(issued: Issued, tmp_path: Path) -> None:
    """Nothing waits for somebody to type it."""
    locked = tmp_path / "locked.key"
    subprocess.run(
        ["openssl", "pkey", "-in", issued.key, "-aes256", "-passout", "pass:x", "-out", locked],
        check=True,
        capture_output=True,
    )

    with pytest.raises(ValueError, match=r"agent\.tls_key: .*locked\.key is encrypted"):
        server_context(TlsFiles(section="agent", certificate=issued.certificate, key=locked))


@pytest.mark.parametrize("side", [server_context, client_context])
def test_what_is_no_certificate_is_told(
    side: Callable[[TlsFiles], ssl.SSLContext], issued: Issued, tmp_path: Path
) -> None:
    """Neither as one's own nor as a CA."""
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("-----BEGIN CERTIFICATE-----\nno\n-----END CERTIFICATE-----\n")

    with pytest.raises(ValueError, match=r"signals\.tls_certificate, signals\.tls_key: .*garbage\.pem"):
        side(TlsFiles(section="signals", certificate=garbage, key=issued.key))
    with pytest.raises(ValueError, match=r"signals\.tls_ca: .*garbage\.pem holds no certificate in PEM"):
        side(TlsFiles(section="signals", certificate=issued.certificate, key=issued.key, ca=garbage))


def test_a_connection_that_never_begins_leaves_no_trace(serve: Serve, authority: Authority) -> None:
    """Connections that break in the handshake give their place back."""
    server = serve()
    for _ in range(20):
        socket.create_connection(("127.0.0.1", server.server_address[1]), timeout=10).close()

    eventually(lambda: not server.places.taken, lambda: server.places.taken)
    assert fetch(server, authority.client()) == PAGE


def _reset(client: socket.socket) -> None:
    """Close it as a port scanner does: with a reset instead of a farewell."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


@pytest.mark.parametrize("ends", ["it is cut to make room", "the client resets it", "it is cut, and then reset"])
def test_a_connection_that_ends_before_its_handshake_is_closed(issued: Issued, ends: str) -> None:
    """Whatever happens between accepting a connection and its TLS: no socket is left open, and no place is taken."""
    context = server_context(TlsFiles(section="agent", certificate=issued.certificate, key=issued.key))
    met: list[socket.socket] = []

    def secure() -> ssl.SSLContext:
        """The last moment before the connection gets its TLS."""
        if "cut" in ends:
            server.places.leave(met[0])
            cut(met[0])
        if "reset" in ends:
            _reset(client)
        return context

    server = HttpServer(
        "127.0.0.1",
        0,
        {},
        clock=SystemClock(),
        max_connections=1,
        timeout_seconds=TIMEOUT,
        door=ServerAuth(secure=secure),
    )
    client = socket.create_connection(("127.0.0.1", server.server_address[1]), timeout=10)
    accepted, address = server.get_request()
    met.append(accepted)
    descriptor = accepted.fileno()
    assert server.places.take(accepted, "127.0.0.1", plain=False) is None

    with warnings.catch_warnings(record=True) as rows:
        warnings.simplefilter("always", ResourceWarning)
        server.process_request_thread(accepted, address)
        gc.collect()
    server.server_close()
    client.close()

    assert [str(each.message) for each in rows] == []
    assert not server.places.taken
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
