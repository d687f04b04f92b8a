"""When certificates end: what agents and controllers tell of those that they show and believe."""

import base64
import os
import re
import socket
import ssl
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from prometheus_client.parser import text_string_to_metric_families as parse

from gpuwatch.agent.certificate import certificate_ends
from gpuwatch.agent.settings import AgentSettings
from gpuwatch.cli.controller import observers_of
from gpuwatch.cli.doctor.certificates import certificates_elsewhere
from gpuwatch.config import load
from gpuwatch.config.settings import Settings
from gpuwatch.controller.observe.settings import ObserveSettings, PromqlSettings
from gpuwatch.controller.web.settings import ControllerSettings
from gpuwatch.runtime.certificates import RENEW, Ends, Read, Validity, by_handshake
from gpuwatch.runtime.clock import ManualClock
from gpuwatch.runtime.http.auth import files_of
from gpuwatch.runtime.metrics.family import CERTIFICATE
from gpuwatch.runtime.secrets import secrets_named, warn_of_open
from gpuwatch.runtime.tls import TlsFiles
from gpuwatch.runtime.x509 import by_x509, validities_of
from tests.support.builders.fleet import Desk
from tests.support.real.agents import RunningAgent, eventually
from tests.support.real.certificates import Authority, Issued

NOW, BEGIN = datetime(2034, 1, 5, tzinfo=UTC), datetime(2033, 1, 5, tzinfo=UTC)
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

    ends = dict(Ends([files_of(settings_of(issued, authority.ca), "agent")], read, ManualClock(NOW)).by_setting())

    assert ends == {"agent.tls_certificate": LATER, "agent.tls_client_ca": SOON}
    assert [each.end for each in validities_of(authority.ca)][1] == SOON
    assert validities_of(authority.ca)[0].end != SOON


def test_one_that_is_believed_for_itself_alone_is_told_by_controllers(tmp_path: Path) -> None:
    """The standard library lists authorities alone, so that an agent does not know of it."""
    files = TlsFiles(section="signals", ca=Authority(tmp_path).issue("agent", until=SOON).certificate)

    assert dict(Ends([files], by_x509, ManualClock(NOW)).by_setting()) == {"signals.tls_ca": SOON}
    assert dict(Ends([files], by_handshake, ManualClock(NOW)).by_setting()) == {}


@READERS
def test_without_a_file_nothing_is_told(read: Read) -> None:
    """Absent, never zero."""
    assert dict(Ends([files_of(AgentSettings(), "agent")], read, ManualClock(NOW)).by_setting()) == {}


@READERS
def test_a_renewed_certificate_is_told_at_once_and_one_that_cannot_be_used_is_not(tmp_path: Path, read: Read) -> None:
    """What the server goes on to show is what counts: another's key, or a file that is gone, changes nothing."""
    authority = Authority(tmp_path)
    issued = authority.issue("agent", until=SOON)
    ends = Ends([files_of(settings_of(issued), "agent")], read, ManualClock(NOW))
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
    ends = Ends([files_of(settings_of(issued), "agent")], read, ManualClock(NOW))
    before = dict(ends.by_setting())
    authority.issue("agent", until=LATER)

    assert before == {}
    assert dict(ends.by_setting()) == {"agent.tls_certificate": LATER}


def a_certificate(folder: Path, begin: datetime, end: datetime, *hosts: str) -> Issued:
    """One that is valid from `begin` to `end`."""
    made = trustme.CA().issue_cert(*(hosts or ("localhost",)), not_before=begin, not_after=end)
    issued = Issued(certificate=folder / "agent.pem", key=folder / "agent.key")
    made.cert_chain_pems[0].write_to_path(str(issued.certificate))
    made.private_key_pem.write_to_path(str(issued.key))
    issued.key.chmod(0o600)
    return issued


@READERS
@pytest.mark.parametrize(
    ("begin", "end", "words"),
    [
        (BEGIN, NOW, "it ended on 2034-01-05 00:00 UTC"),
        (SOON, LATER, "it is valid from 2035-01-05 00:00 UTC on, and not yet"),
    ],
)
def test_the_log_says_at_the_start_what_is_not_valid_and_again_after_a_renewal(
    tmp_path: Path, begin: datetime, end: datetime, words: str, read: Read, caplog: pytest.LogCaptureFixture
) -> None:
    """Setting, file, day and what to do, once; a good one is no word, and one that ends while it is in use is."""
    clock, files = ManualClock(NOW), files_of(settings_of(a_certificate(tmp_path, begin, end)), "agent")
    ends = Ends([files], read, clock)
    first = caplog.messages.copy()
    list(ends.by_setting())
    a_certificate(tmp_path, BEGIN, SOON)
    list(ends.by_setting())
    good = caplog.messages.copy()
    clock.advance((SOON - NOW).total_seconds())
    list(ends.by_setting())

    assert first == good == [f"agent.tls_certificate: {tmp_path}/agent.pem is not valid: {words}; {RENEW}"]
    assert caplog.messages[1:] == [first[0].replace(words, "it ended on 2035-01-05 00:00 UTC")]


@READERS
def test_a_list_of_authorities_is_wrong_where_none_is_valid(
    tmp_path: Path, read: Read, caplog: pytest.LogCaptureFixture
) -> None:
    """An old one beside its successor is what a change of authorities looks like."""
    ca = tmp_path / "ca.pem"
    for several, expected in (((BEGIN, NOW + timedelta(days=5)), 0), ((BEGIN,), 1)):
        ca.write_bytes(b"".join(an_authority(until=until) for until in several))
        caplog.clear()
        Ends([TlsFiles(section="signals", ca=ca)], read, ManualClock(NOW))

        assert len(caplog.messages) == expected


@pytest.mark.parametrize(
    ("names", "hosts", "words"),
    [
        (("gpu-1",), ("gpu-1",), None),
        (("GPU-1.corp",), ("gpu-1",), None),
        (("gpu-1",), ("gpu-1.corp", "10.0.0.1"), None),
        (("*.corp",), ("gpu-1",), None),
        (("10.0.0.1",), ("gpu-1", "10.0.0.1"), None),
        (("10.0.0.1",), ("gpu-1",), None),
        (("10.0.0.2",), ("gpu-1", "10.0.0.1"), "it is for 10.0.0.2, and this machine is gpu-1, 10.0.0.1"),
        (("gpu-2", "fe80::2"), ("gpu-1", "fe80::1"), "it is for gpu-2, fe80::2, and this machine is gpu-1, fe80::1"),
        ((), ("gpu-1",), "it names no host (subjectAltName)"),
    ],
)
def test_a_certificate_of_another_machine_is_known(
    names: tuple[str, ...], hosts: tuple[str, ...], words: str | None
) -> None:
    """By a name, with or without its domain, or by an address, where those of the machine are known."""
    assert Validity(begin=BEGIN, end=SOON, names=names).not_of(hosts) == words


@READERS
def test_names_are_read(tmp_path: Path, read: Read) -> None:
    """Hosts and addresses of either kind."""
    issued = a_certificate(tmp_path, BEGIN, SOON, "gpu-1", "10.0.0.1", "fe80::1")
    (found,) = read(files_of(settings_of(issued), "agent"))["agent.tls_certificate"]

    assert set(found.names) == {"gpu-1", "10.0.0.1", "fe80::1"}


def test_an_agent_says_at_its_start_that_its_certificate_is_another_machine_s(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And nothing of one for it or for every host, or of one that it has joined with, which names its node."""
    stranger = settings_of(a_certificate(tmp_path, BEGIN, SOON, "stranger.invalid"))
    certificate_ends(stranger, ManualClock(NOW))
    told = caplog.messages.copy()
    certificate_ends(replace(stranger, controller="https://controller.invalid"), ManualClock(NOW))
    for name in (socket.gethostname(), "gpuwatch-agent"):
        certificate_ends(settings_of(a_certificate(tmp_path, BEGIN, SOON, name)), ManualClock(NOW))

    assert caplog.messages == told
    assert re.fullmatch(
        f"agent.tls_certificate: {tmp_path}/agent.pem: it is for stranger.invalid, and this machine is .*; issue .*",
        "".join(told),
    )


def test_a_key_that_everybody_may_read_is_a_warning_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of an agent, and of a controller's settings, wherever in them the file is named."""
    issued = a_certificate(tmp_path, BEGIN, SOON, socket.gethostname())
    issued.key.chmod(0o644)
    certificate_ends(settings_of(issued), ManualClock(NOW))
    warn_of_open(secrets_named(Settings(signals=ObserveSettings(promql=PromqlSettings(bearer_file=str(issued.key))))))
    told = caplog.messages.copy()
    issued.key.chmod(0o640)
    certificate_ends(settings_of(issued), ManualClock(NOW))

    words = f"every user of this machine may read {issued.key}; `chmod 600` it"
    assert caplog.messages == told == [f"agent.tls_key: {words}", f"signals.promql.bearer_file: {words}"]


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


def test_the_certificates_of_kubernetes_and_of_the_ledger_are_told(tmp_path: Path) -> None:
    """Of a kubeconfig the used context's, as data or as files; of PostgreSQL's URL those that libpq is given."""
    authority = Authority(tmp_path)
    issued = authority.issue("client", until=SOON)
    data = base64.b64encode(issued.certificate.read_bytes()).decode()
    kubeconfig: dict[str, Any] = {
        "current-context": "ours",
        "contexts": [{"name": "ours", "context": {"cluster": "a", "user": "us"}}],
        "clusters": [
            {"name": "a", "cluster": {"server": "https://127.0.0.1:6443", "certificate-authority": str(authority.ca)}}
        ],
        "users": [
            {"name": "us", "user": {"client-certificate-data": data, "client-key": str(issued.key)}},
            {"name": "nobody", "user": {"client-certificate-data": "bm9uZQ=="}},
        ],
    }
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
    url = f"postgresql://us@db.internal/gpuwatch?sslrootcert={authority.ca}&sslcert={issued.certificate}"
    (tmp_path / "gpuwatch.yaml").write_text(
        f"kubernetes: {{kubeconfig: {tmp_path / 'kubeconfig'}}}\nledger: {{url: '{url}'}}\n"
    )
    settings = load(tmp_path / "gpuwatch.yaml", {})
    ends = Ends(certificates_elsewhere(settings), by_x509, ManualClock(NOW))

    told = dict(ends.by_setting())

    assert {name for name, end in told.items() if end == SOON} == {
        "kubernetes.kubeconfig (client-certificate)",
        "ledger.url (sslcert)",
    }
    assert told.keys() >= {"kubernetes.kubeconfig (certificate-authority)", "ledger.url (sslrootcert)"}
    kubeconfig["users"][0]["user"]["client-certificate-data"] = base64.b64encode(authority.ca.read_bytes()).decode()
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
    assert dict(ends.by_setting())["kubernetes.kubeconfig (client-certificate)"] > SOON
    settings = replace(settings, kubernetes=replace(settings.kubernetes, kubeconfig=str(tmp_path / "missing")))
    assert list(Ends(certificates_elsewhere(settings)[-1:], by_x509, ManualClock(NOW)).by_setting()) == []
