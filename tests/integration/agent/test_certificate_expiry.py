"""When certificates end: what agents and controllers tell of those that they show and believe."""

import os
import ssl
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from prometheus_client.parser import text_string_to_metric_families as parse

from gpuwatch.agent.settings import AgentSettings
from gpuwatch.cli.controller import observers_of
from gpuwatch.config.settings import Settings
from gpuwatch.controller.observe.settings import ObserveSettings, PromqlSettings
from gpuwatch.controller.web.settings import ControllerSettings
from gpuwatch.runtime.certificates import Ends, Read, by_handshake
from gpuwatch.runtime.http.auth import files_of
from gpuwatch.runtime.metrics.family import CERTIFICATE
from gpuwatch.runtime.tls import TlsFiles
from gpuwatch.runtime.x509 import by_x509, validities_of
from tests.support.builders.fleet import Desk
from tests.support.real.agents import RunningAgent, eventually
from tests.support.real.certificates import Authority, Issued

SOON, LATER = datetime(2035, 1, 5, tzinfo=UTC), datetime(2036, 1, 5, tzinfo=UTC)


def an_authority(*, until: datetime) -> bytes:
    """The certificate of an authority that ends then."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "another")])
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, until - timedelta(days=9), until)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    return made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def settings_of(issued: Issued, ca: Path | None = None) -> AgentSettings:
    """An agent that shows it."""
    return AgentSettings(
        tls_certificate=str(issued.certificate),
        tls_key=str(issued.key),
        tls_client_ca=None if ca is None else str(ca),
    )


def told(page: str) -> dict[str, float]:
    """The ends on a page of metrics, by setting."""
    samples = (sample for family in parse(page) for sample in family.samples)
    return {sample.labels["setting"]: sample.value for sample in samples if sample.name == CERTIFICATE}


READERS = pytest.mark.parametrize("read", [by_handshake, by_x509])


@READERS
def test_of_a_certificate_the_first_is_told_and_of_authorities_the_first_to_end(tmp_path: Path, read: Read) -> None:
    """What follows our own in its file is its issuer's; of two authorities either may be missed."""
    authority = Authority(tmp_path / "ours")
    issued = authority.issue("agent", until=LATER)
    authority.ca.write_bytes(authority.ca.read_bytes() + an_authority(until=SOON))

    ends = dict(Ends([files_of(settings_of(issued, authority.ca), "agent")], read).by_setting())

    assert ends == {"agent.tls_certificate": LATER, "agent.tls_client_ca": SOON}
    assert [each.end for each in validities_of(authority.ca)][1] == SOON
    assert validities_of(authority.ca)[0].end != SOON


def test_one_that_is_believed_for_itself_alone_is_told_by_controllers(tmp_path: Path) -> None:
    """The standard library lists authorities alone, so that an agent does not know of it."""
    files = TlsFiles(section="signals", ca=Authority(tmp_path).issue("agent", until=SOON).certificate)

    assert dict(Ends([files], by_x509).by_setting()) == {"signals.tls_ca": SOON}
    assert dict(Ends([files], by_handshake).by_setting()) == {}


@READERS
def test_without_a_file_nothing_is_told(read: Read) -> None:
    """Absent, never zero."""
    assert dict(Ends([files_of(AgentSettings(), "agent")], read).by_setting()) == {}


@READERS
def test_a_renewed_certificate_is_told_at_once_and_one_that_cannot_be_used_is_not(tmp_path: Path, read: Read) -> None:
    """What the server goes on to show is what counts: another's key, or a file that is gone, changes nothing."""
    authority = Authority(tmp_path)
    issued = authority.issue("agent", until=SOON)
    ends = Ends([files_of(settings_of(issued), "agent")], read)
    first = dict(ends.by_setting())
    stranger = authority.issue("stranger", until=LATER)
    stranger.certificate.rename(issued.certificate)
    mismatched = dict(ends.by_setting())
    authority.issue("agent", until=LATER)
    renewed = dict(ends.by_setting())
    issued.certificate.unlink()

    assert first == mismatched == {"agent.tls_certificate": SOON}
    assert renewed == dict(ends.by_setting()) == {"agent.tls_certificate": LATER}


@READERS
@pytest.mark.parametrize("spoil", [Path.unlink, lambda path: path.write_text("no certificate")], ids=["gone", "none"])
def test_what_never_could_be_used_is_absent(tmp_path: Path, spoil: Callable[[Path], object], read: Read) -> None:
    """The door says why; a number would be made up. Once it is mended, it is told."""
    authority = Authority(tmp_path)
    issued = authority.issue("agent", until=SOON)
    spoil(issued.certificate)
    ends = Ends([files_of(settings_of(issued), "agent")], read)
    before = dict(ends.by_setting())
    authority.issue("agent", until=LATER)

    assert before == {}
    assert dict(ends.by_setting()) == {"agent.tls_certificate": LATER}


def test_a_real_agent_tells_it_and_what_it_shows_after_a_renewal(tmp_path: Path) -> None:
    """Its metrics and the certificate of its port are of one mind, without a restart."""
    authority = Authority(tmp_path)
    issued = authority.issue("agent", until=SOON)
    settings = {"tls_certificate": issued.certificate, "tls_key": issued.key}

    def page(url: str) -> dict[str, float]:
        with urllib.request.urlopen(f"{url}/metrics", context=authority.client(), timeout=10) as answer:  # noqa: S310  loopback
            return told(answer.read().decode())

    with RunningAgent(dict(os.environ), source="simulated", **settings) as agent:
        first = page(agent.url)
        authority.issue("agent", until=LATER)
        renewed = {"agent.tls_certificate": LATER.timestamp()}
        eventually(lambda: page(agent.url) == renewed, lambda: page(agent.url))  # a page is kept for a second
        shown = ssl.get_server_certificate(("127.0.0.1", int(agent.url.rpartition(":")[2])))

    assert first == {"agent.tls_certificate": SOON.timestamp()}
    (tmp_path / "shown.pem").write_text(shown)
    assert validities_of(tmp_path / "shown.pem")[0].end == LATER


def test_a_controller_tells_those_that_it_shows_to_browsers_agents_and_prometheus(tmp_path: Path) -> None:
    """And the authorities that it believes, each by its setting, also before the first round."""
    authority = Authority(tmp_path)
    door, shown = authority.issue("page", until=SOON), authority.issue("client", until=LATER)
    tls = {"tls_certificate": str(shown.certificate), "tls_key": str(shown.key)}
    settings = Settings(
        controller=ControllerSettings(tls_certificate=str(door.certificate), tls_key=str(door.key)),
        signals=ObserveSettings(**tls, promql=PromqlSettings(**tls, tls_ca=str(authority.ca))),  # type: ignore[arg-type]  # all of them strings
    )
    page = observers_of(settings, Desk().parts).metrics.page().body.decode()

    assert told(page) == {
        "controller.tls_certificate": SOON.timestamp(),
        "signals.tls_certificate": LATER.timestamp(),
        "signals.promql.tls_certificate": LATER.timestamp(),
        "signals.promql.tls_ca": validities_of(authority.ca)[0].end.timestamp(),
    }
