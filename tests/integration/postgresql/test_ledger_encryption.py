"""PostgreSQL beyond this machine: no password and no record before a verified certificate."""

import os
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from gpuwatch.cli.doctor import ledger as doctor
from gpuwatch.clouds import CloudError
from gpuwatch.ledger import Ledger, LedgerError, LedgerSettings
from gpuwatch.ledger.postgresql_tls import guarded_parameters, is_local, weaker
from tests.support.builders.doctor_findings import a_controller, codes
from tests.support.real.postgresql import Cluster, postgresql

SECRET = "zebra-77"  # noqa: S105  of a server that lives as long as its test
ELSEWHERE = "0.0.0.0"  # noqa: S104  to connect to it leads to this machine, and its text does not say so
NEW, OLD = 160000, 150000


@contextmanager
def a_server(answer: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """One that answers each request for TLS so, then asks for the password in the clear; with all that it is sent."""
    heard: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client:
                client.settimeout(5)
                for reply in (answer, b"R\x00\x00\x00\x08\x00\x00\x00\x03", b""):
                    try:
                        heard.append(client.recv(4096))
                        client.sendall(reply)
                    except OSError:
                        break

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1], heard
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)


def refused(tmp_path: Path, url: str) -> str:
    """Why a ledger at that URL cannot be opened."""
    file = tmp_path / "url"
    file.write_text(url, encoding="utf-8")
    with pytest.raises(LedgerError) as caught:
        Ledger.connect(LedgerSettings(url_file=str(file)))
    return str(caught.value)


@pytest.mark.parametrize("environment", [{}, {"PGSSLMODE": "disable"}, {"PGSSLMODE": "prefer"}])
def test_a_server_without_tls_gets_no_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    """Whoever is in the middle says N, and is left."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with a_server(b"N") as (port, heard):
        text = refused(tmp_path, f"postgresql://gpuwatch:{SECRET}@{ELSEWHERE}:{port}/gpuwatch")

    assert heard
    assert SECRET not in text
    assert not [each for each in heard if SECRET.encode() in each]
    assert "docs/ledger.md, TLS" in text


def test_less_holds_where_the_url_says_so(tmp_path: Path) -> None:
    """It is somebody's own decision then; on this machine itself nobody listens in."""
    with a_server(b"N") as (port, heard):
        refused(tmp_path, f"postgresql://gpuwatch:{SECRET}@{ELSEWHERE}:{port}/gpuwatch?sslmode=prefer")
        refused(tmp_path, f"postgresql://gpuwatch:{SECRET}@127.0.0.1:{port}/gpuwatch")

    assert len([each for each in heard if SECRET.encode() in each]) == 2


@pytest.mark.parametrize(
    ("about", "environ", "local"),
    [
        ({}, {}, True),
        ({"host": "/run/postgresql"}, {}, True),
        ({"host": "@abstract"}, {}, True),
        ({"host": "localhost"}, {}, True),
        ({"host": "127.0.0.1,::1"}, {}, True),
        ({"host": "db.internal"}, {}, False),
        ({"host": "localhost,db.internal"}, {}, False),
        ({"host": "localhost.evil.example"}, {}, False),
        ({"host": "localhost", "hostaddr": "10.0.0.1"}, {}, False),
        ({"host": "db.internal", "hostaddr": "127.0.0.1"}, {}, True),
        ({}, {"PGHOST": "db.internal"}, False),
        ({}, {"PGHOSTADDR": "10.0.0.1"}, False),
        ({}, {"PGHOST": "/tmp"}, True),  # noqa: S108  a socket's folder
        ({"host": "localhost"}, {"PGHOST": "db.internal"}, True),
        ({"service": "ledger"}, {}, False),
        ({}, {"PGSERVICE": "ledger"}, False),
    ],
    ids=str,
)
def test_what_stays_on_this_machine(about: dict[str, str], environ: dict[str, str], local: bool) -> None:
    """By the URL, and by what libpq takes from the environment where the URL is silent."""
    assert is_local(about, environ) is local
    assert guarded_parameters(about, environ, NEW).get("sslmode") == (None if local else "verify-full")
    assert weaker({**about, "sslmode": "require"}, environ) == (None if local else "require")
    assert weaker(about, environ) is None


def test_which_authorities_are_believed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The URL's, libpq's own, the machine's; without any there is no connection."""
    away = {"host": "db.internal"}
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    (tmp_path / "ca.pem").touch()
    assert guarded_parameters(away, {}, OLD)["sslrootcert"] == str(tmp_path / "ca.pem")
    assert guarded_parameters({**away, "sslrootcert": "mine"}, {}, NEW)["sslrootcert"] == "mine"
    assert guarded_parameters({**away, "sslmode": "verify-ca"}, {}, NEW)["sslrootcert"] == str(tmp_path / "ca.pem")
    assert "sslrootcert" not in guarded_parameters({**away, "sslmode": "require"}, {}, NEW)
    assert "sslrootcert" not in guarded_parameters(away, {"PGSSLROOTCERT": "theirs"}, NEW)
    (tmp_path / ".postgresql").mkdir()
    (tmp_path / ".postgresql/root.crt").touch()
    assert "sslrootcert" not in guarded_parameters(away, {}, NEW)
    (tmp_path / ".postgresql/root.crt").unlink()
    none = ssl.DefaultVerifyPaths(None, None, "", "", "", "")  # type: ignore[arg-type]  # as where there are none
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: none)
    assert guarded_parameters(away, {}, NEW)["sslrootcert"] == "system"
    with pytest.raises(LedgerError, match="no list of certificate authorities"):
        guarded_parameters(away, {}, OLD)


@pytest.fixture
def encrypted(tmp_path: Path) -> Iterator[tuple[Cluster, Path]]:
    """The real server with a certificate for 0.0.0.0, and that certificate."""
    cluster = postgresql()
    data = cluster.folder / "data"
    key, certificate = data / "server.key", data / "server.crt"
    subject = ["-subj", "/CN=ledger", "-addext", f"subjectAltName=IP:{ELSEWHERE}"]
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    subprocess.run([*made, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    owner = data.stat()
    for each in (key, certificate):
        each.chmod(0o600)
        os.chown(each, owner.st_uid, owner.st_gid)
    cluster.execute("postgres", f"ALTER ROLE gpuwatch PASSWORD '{SECRET}'")
    cluster.execute("postgres", "ALTER SYSTEM SET ssl = on")
    cluster.execute("postgres", "SELECT pg_reload_conf()")
    authority = tmp_path / "ca.crt"
    authority.write_bytes(certificate.read_bytes())
    yield cluster, authority
    cluster.execute("postgres", "ALTER SYSTEM SET ssl = off")
    cluster.execute("postgres", "SELECT pg_reload_conf()")


@pytest.mark.component("pg_ctl")
def test_a_real_server_is_believed_by_its_certificate_alone(
    encrypted: tuple[Cluster, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an authority of one's own, or by the machine's; of another authority, or another name, nothing is told."""
    cluster, authority = encrypted
    name = cluster.database().partition("@/")[2].partition("?")[0]
    url = f"postgresql://gpuwatch:{SECRET}@{ELSEWHERE}:{cluster.port}/{name}"
    file = tmp_path / "url"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "certificate verify failed" in refused(tmp_path, url)
    for text, trusted in ((f"{url}?sslrootcert={authority}", None), (url, authority)):
        if trusted is not None:
            monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
        file.write_text(text, encoding="utf-8")
        with closing(Ledger.connect(LedgerSettings(url_file=str(file)))) as ledger:
            assert ledger.lead()
    other = url.replace(ELSEWHERE, "localhost") + f"?sslmode=verify-full&sslrootcert={authority}"
    assert "does not match host name" in refused(tmp_path, other)


def test_the_doctor_warns_of_less() -> None:
    """Where it is written in the URL, and the server is not on this machine."""

    def codes_for(query: str, host: str = "db.invalid") -> list[str]:
        settings = LedgerSettings(url=f"postgresql://gpuwatch@{host}:1/gpuwatch?connect_timeout=2{query}")
        case = a_controller(CloudError("not asked"), settings={"ledger": settings})
        return codes(doctor.ledger(case))

    assert codes_for("&sslmode=require", ELSEWHERE) == ["ledger.plain", "ledger.unusable"]
    assert codes_for("", ELSEWHERE) == ["ledger.unusable"]
    assert codes_for("&sslmode=disable", "127.0.0.1") == ["ledger.unusable"]
