"""The doctor at the door: ports, certificates, secrets' files."""

import contextlib
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import trustme
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuwatch.agent.settings import AgentSettings
from gpuwatch.cli.doctor import certificates, ports
from gpuwatch.cli.doctor.controller import identity
from gpuwatch.controller.join.serve import open_authority
from gpuwatch.controller.join.settings import SECRETS, JoinSettings, with_authority
from gpuwatch.controller.observe.settings import ObserveSettings
from gpuwatch.controller.web.settings import ControllerSettings
from gpuwatch.runtime.certificates import Read, Validity, by_handshake
from gpuwatch.runtime.clock import ManualClock, SystemClock
from gpuwatch.runtime.http.auth import make_auth
from gpuwatch.runtime.http.request import Response
from gpuwatch.runtime.http.server import HttpServer
from gpuwatch.runtime.tls import TlsFiles
from gpuwatch.runtime.x509 import by_x509
from tests.support.builders.authenticator import hashed
from tests.support.builders.doctor_findings import a_controller, codes, the
from tests.support.nightly import examples
from tests.support.real.certificates import Authority

NOW = datetime(2026, 1, 5, tzinfo=UTC)


@contextlib.contextmanager
def served(settings: AgentSettings | None = None, status: HTTPStatus = HTTPStatus.OK) -> Iterator[int]:
    """A server of gpuwatch's behind the door of these settings; gives its port."""
    settings = settings or AgentSettings()
    page = Response(body=b"{}", content_type="application/json", status=status)
    clock = SystemClock()
    server = HttpServer(
        "127.0.0.1",
        0,
        {"/healthz": lambda _: page},
        clock=clock,
        max_connections=8,
        timeout_seconds=5.0,
        door=make_auth(settings, clock, "agent"),
    )
    server.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.close()


class Stranger(BaseHTTPRequestHandler):
    """Another program."""

    def do_GET(self) -> None:
        """It has nothing to say."""
        self.send_response(404)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class' signature
        """Quietly."""


@contextlib.contextmanager
def a_stranger() -> Iterator[int]:
    """Somebody else's server; gives its port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Stranger)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_port_is_free_served_or_taken() -> None:
    """By nobody, by gpuwatch, by a stranger."""
    with served() as port:
        assert "gpuwatch serves" in the(ports.port(AgentSettings(port=port), "agent"), "port").seen
        assert codes([ports.alive(AgentSettings(port=port), "agent")]) == []

    assert the(ports.port(AgentSettings(port=port), "agent"), "port").seen == "it is free"
    assert codes([ports.alive(AgentSettings(port=port), "agent")]) == ["running.down"]

    with a_stranger() as port:
        assert codes(ports.port(AgentSettings(port=port), "agent")) == ["port.taken"]
        assert codes([ports.alive(AgentSettings(port=port), "agent")]) == ["running.down"]


def test_an_agent_that_does_no_work_is_not_alive() -> None:
    """Its own health page says 503."""
    with served(status=HTTPStatus.SERVICE_UNAVAILABLE) as port:
        assert codes([ports.alive(AgentSettings(port=port), "agent")]) == ["running.ill"]


@pytest.mark.parametrize("demanding", [False, True])
def test_gpuwatch_is_known_behind_its_own_tls(tmp_path: Path, *, demanding: bool) -> None:
    """Also where it wants a client's certificate, which the doctor does not have to show."""
    authority = Authority(tmp_path)
    issued = authority.issue("agent")
    settings = AgentSettings(
        tls_certificate=str(issued.certificate),
        tls_key=str(issued.key),
        tls_client_ca=str(authority.ca) if demanding else None,
    )
    with served(settings) as port:
        result = AgentSettings(port=port, tls_certificate=settings.tls_certificate, tls_key=settings.tls_key)

        assert codes([ports.alive(result, "agent")]) == []
        assert codes(ports.port(result, "agent")) == []


def test_an_address_of_another_machine_is_told() -> None:
    """Nothing could listen there."""
    assert codes([ports._free(AgentSettings(host="192.0.2.1"), "there")]) == ["port.address"]


def test_a_door_that_is_open_to_the_network_is_told() -> None:
    """`insecure` allows it; the doctor says it all the same."""
    settings = AgentSettings(host="0.0.0.0", port=0, insecure=True)  # noqa: S104  what the finding is about

    assert codes(ports.port(settings, "agent")) == ["port.open"]


def files(folder: Path, begin: datetime, end: datetime) -> TlsFiles:
    """A certificate and its key."""
    made = trustme.CA().issue_cert("here", not_before=begin, not_after=end)
    made.private_key_and_cert_chain_pem.write_to_path(str(folder / "both.pem"))
    return TlsFiles(section="agent", certificate=folder / "both.pem", key=folder / "both.pem")


READERS = pytest.mark.parametrize("read", [by_handshake, by_x509])


@READERS
@pytest.mark.parametrize(
    ("begins", "ends", "expected"),
    [
        (-10, 70, []),
        (-10, 29, ["certificate.expires"]),
        (-80, -1, ["certificate.expired"]),
        (1, 60, ["certificate.expired"]),
        (-10, 355, ["certificate.long_lived"]),
        (-350, 15, ["certificate.expires", "certificate.long_lived"]),
    ],
)
def test_a_certificates_time_is_judged(tmp_path: Path, begins: int, ends: int, expected: list[str], read: Read) -> None:
    """Over, not yet begun, within 30 days of its end, good for more than 90 days."""
    shown = files(tmp_path, NOW + timedelta(days=begins), NOW + timedelta(days=ends))
    findings = list(certificates.certificates(shown, ManualClock(NOW), read))

    assert codes(findings) == expected
    assert f"to {NOW + timedelta(days=ends):%Y-%m-%d}" in findings[0].seen


@READERS
def test_a_certificate_of_another_machine_is_told(tmp_path: Path, read: Read) -> None:
    """A server's by the names that clients ask; a client's has no such names."""
    shown = files(tmp_path, NOW - timedelta(days=10), NOW + timedelta(days=70))  # for the name `here`

    for hosts, expected in ((("here",), []), (None, []), (("there",), ["certificate.names"])):
        assert codes(certificates.certificates(shown, ManualClock(NOW), read, hosts)) == expected


def test_an_authority_may_be_good_for_years(tmp_path: Path) -> None:
    """Only its end is looked at."""
    shown = files(tmp_path, NOW - timedelta(days=1), NOW + timedelta(days=3650))
    believed = TlsFiles(section="agent", ca=shown.certificate, ca_key="tls_client_ca")

    assert codes(certificates.certificates(believed, ManualClock(NOW), by_x509)) == []


@READERS
@pytest.mark.parametrize("text", ["", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "no PEM"])
def test_what_is_no_certificate_is_told(tmp_path: Path, text: str, read: Read) -> None:
    """An empty file, garbage in PEM, something else; and a file that is not there."""
    file = tmp_path / "c.pem"
    file.write_text(text)

    for path in (file, tmp_path / "none"):
        named = TlsFiles(section="agent", certificate=path, key=path, ca=path)

        assert codes(certificates.certificates(named, ManualClock(), read)) == ["certificate.unusable"] * 2


@READERS
@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    begin=st.datetimes(datetime(1950, 1, 2), datetime(2999, 1, 1)),  # noqa: DTZ001  the zone is put on below
    days=st.integers(1, 9000),
)
def test_any_validity_is_read_as_it_was_written(tmp_path: Path, begin: datetime, days: int, read: Read) -> None:
    """Both of ASN.1's forms of time: two digits of the year to 2049, four after it."""
    begin = begin.replace(microsecond=0, tzinfo=UTC)
    end = begin + timedelta(days=days)

    assert read(files(tmp_path, begin, end)) == {"agent.tls_certificate": [Validity(begin=begin, end=end)]}


@READERS
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(garbage=st.binary(max_size=200), framed=st.booleans())
def test_no_bytes_break_the_reader(tmp_path: Path, garbage: bytes, framed: bool, read: Read) -> None:
    """Whatever is in the file, or in its PEM, the reader says that it is no certificate."""
    file = tmp_path / "garbage.pem"
    file.write_bytes(ssl.DER_cert_to_PEM_cert(garbage).encode() if framed else garbage)

    with pytest.raises((ValueError, OSError)):
        read(TlsFiles(section="agent", ca=file))


def test_an_empty_file_is_no_secret(tmp_path: Path) -> None:
    """The robot's address that somebody still has to write in is missed before the first message is."""
    waiting = tmp_path / "dingtalk-url"
    waiting.touch(0o600)

    (found,) = certificates.secrets({"notify.receivers.ops.dingtalk.url_file": str(waiting)})

    assert (found.code, found.seen) == ("certificate.unusable", "it is empty")


def test_files_with_secrets_are_closed_to_others(tmp_path: Path) -> None:
    """A key that everybody may read is told, and what is in it is not."""
    key = tmp_path / "key.pem"
    key.write_text("hunter2")
    for mode, expected in ((0o600, []), (0o640, []), (0o644, ["secret.open"])):
        key.chmod(mode)
        findings = list(certificates.secrets({"agent.tls_key": str(key), "agent.users_file": None}))

        assert codes(findings) == expected
        assert "hunter2" not in str(findings)


def test_the_authority_of_hosts_that_join_is_closed_to_others(tmp_path: Path) -> None:
    """Whoever reads its key can pose as every agent: each open file of the folder is named."""
    join, clock = JoinSettings(host="127.0.0.1", folder=str(tmp_path)), SystemClock()
    open_authority(join, "lab", clock)
    settings = {"controller": ControllerSettings(join=join), "signals": with_authority(ObserveSettings(), join)}
    case = a_controller(OSError("it is not asked"), clock, settings)
    assert codes(list(identity(case))) == []
    for name in SECRETS:
        (tmp_path / name).chmod(0o644)
    found = [each.looked_at for each in identity(case) if each.code == "secret.open"]
    assert found == [f"controller.join.folder, {name}: {tmp_path / name}" for name in SECRETS]


def test_hashes_that_are_quick_to_guess_are_told(tmp_path: Path) -> None:
    """With the users' names and without the hashes; without users there is nothing to tell."""
    users = tmp_path / "users"
    users.write_text(f"ann:{hashed('apple', 10)}\nbob:{hashed('banana', 5)}\n")
    (finding,) = ports.passwords(AgentSettings(users_file=str(users)), "agent")

    assert (finding.code, finding.seen) == ("passwords.cheap", "bob")
    assert list(ports.passwords(AgentSettings(), "agent")) == []
    assert list(ports.passwords(AgentSettings(users_file="/none"), "agent")) == []
