"""Attacks on the port at which hosts join, and mishaps, on real sockets."""

import json
import shutil
import ssl
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuwatch.cli.join_host import JoinError, Joining
from gpuwatch.controller.join.authority import Issued
from gpuwatch.controller.join.register import Book, Host, RefusedError
from gpuwatch.controller.join.settings import TRUST, JoinSettings
from gpuwatch.runtime import joined
from gpuwatch.runtime.clock import ManualClock, SystemClock
from gpuwatch.runtime.http.request import Request, Response
from gpuwatch.runtime.tls import TlsFiles, server_context
from tests.support.nightly import examples
from tests.support.real.joining import (
    DAY,
    P256,
    Controller,
    JoiningHost,
    a_controller,
    a_request,
    renewal_context,
    world_clock,
)

NOTHING_ELSE = {HealthCheck.function_scoped_fixture}


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    """One that listens."""
    with a_controller(tmp_path / "controller") as made:
        yield made


@pytest.fixture
def host(tmp_path: Path) -> JoiningHost:
    """A host that has not joined."""
    return JoiningHost(folder=tmp_path / "host")


def names(certificate: x509.Certificate) -> list[str]:
    """Its subjectAltNames."""
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return found.get_values_for_type(x509.DNSName)


def test_a_stolen_token_gives_its_own_certificate_and_nobody_elses(controller: Controller, host: JoiningHost) -> None:
    """It gets a name that nobody has, never that of a host that has joined, and never the controller's."""
    assert host.join(controller.url, controller.token()).exit_code == 0
    stolen = controller.token(hosts=5)
    status, words = controller.ask_to_join(stolen, "i-1")
    assert (status, "has joined already" in words) == (409, True)
    status, answer = controller.ask_to_join(stolen, joined.CONTROLLER)
    assert status == 200
    made = x509.load_pem_x509_certificate(json.loads(answer)["certificate"].encode())
    assert names(made) == [joined.server_name_of(joined.CONTROLLER), joined.ANY_AGENT]
    assert made.subject.rfc4514_string() == "CN=node:controller.gpuwatch"
    assert not made.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_what_a_request_asks_for_is_not_certified(controller: Controller) -> None:
    """Of a request for a certificate its key counts: no name, no right to certify others."""
    key = ec.generate_private_key(P256)
    greedy = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "gpuwatch-controller")]))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(joined.CONTROLLER)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    )
    request = greedy.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()
    status, answer = controller.ask_to_join(controller.token(), "i-9", request)
    made = x509.load_pem_x509_certificate(json.loads(answer)["certificate"].encode())
    assert (status, joined.CONTROLLER in names(made)) == (200, False)
    assert not made.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_a_token_that_was_used_is_of_no_use_to_who_replays_it(controller: Controller, host: JoiningHost) -> None:
    """Another key gets nothing; the host itself, whose answer was lost, gets a certificate for its own key again."""
    token = controller.token()
    assert host.join(controller.url, token).exit_code == 0
    first = host.certificate()
    assert controller.ask_to_join(token, "i-2")[0] == 403
    again = host.join(controller.url, token)
    assert again.exit_code == 0, again.output
    assert host.certificate().public_key() == first.public_key()
    assert controller.book.tokens[token[:8]].used == 1


def test_two_hosts_of_one_name_or_of_one_key_do_not_both_join(controller: Controller, tmp_path: Path) -> None:
    """The second one is told what to do; a key that came with an image joins once."""
    one, other = JoiningHost(folder=tmp_path / "a"), JoiningHost(folder=tmp_path / "b")
    token = controller.token(hosts=9)
    assert one.join(controller.url, token).exit_code == 0
    second = other.join(controller.url, token)
    assert (second.exit_code, "join token --node i-1" in second.output) == (1, True)
    assert not other.config.exists()
    copied = JoiningHost(folder=tmp_path / "c", node_id="i-3")
    shutil.copytree(one.folder, copied.folder)
    copied.config.unlink()
    third = copied.join(controller.url, token)
    assert (third.exit_code, "another node has joined with this key" in third.output) == (1, True)


def test_a_host_that_was_installed_again_comes_back_by_a_token_for_it_alone(
    controller: Controller, tmp_path: Path
) -> None:
    """Its old certificate is on the list of revoked ones from then on; the token is for no other node."""
    before, after = JoiningHost(folder=tmp_path / "a"), JoiningHost(folder=tmp_path / "b")
    assert before.join(controller.url, controller.token()).exit_code == 0
    token = controller.token(node_id="i-1")
    assert controller.ask_to_join(token, "i-2")[0] == 403
    assert after.join(controller.url, token).exit_code == 0
    trusted = (Path(controller.join.folder) / TRUST).read_bytes()
    revoked = x509.load_pem_x509_crl(trusted[trusted.index(b"-----BEGIN X509 CRL") :])
    assert [each.serial_number for each in revoked] == [before.certificate().serial_number]


@pytest.mark.parametrize("days", [-40, 40])
def test_a_host_with_a_wrong_clock_is_told_to_compare_clocks(tmp_path: Path, days: int, host: JoiningHost) -> None:
    """The controller is 40 days behind or ahead of the host: what is not valid yet or any more is not believed."""
    join = JoinSettings(host="127.0.0.1", port=0, folder=str(tmp_path / "controller"), lifetime=30 * 86400.0)
    skewed = Controller(join=join, clock=world_clock(days))
    skewed.begin()
    result = host.join(skewed.url, skewed.token())
    skewed.end()
    assert (result.exit_code, "compare the clocks" in result.output) == (1, True)
    assert not host.config.exists()


def test_an_hour_of_skew_is_no_reason_to_fail(tmp_path: Path, host: JoiningHost) -> None:
    """The certificates of a controller that is 50 minutes ahead are valid on the host at once."""
    join = JoinSettings(host="127.0.0.1", port=0, folder=str(tmp_path / "controller"))
    ahead = Controller(join=join, clock=world_clock(50 / 1440))
    ahead.begin()
    assert host.join(ahead.url, ahead.token()).exit_code == 0
    ahead.end()


def test_a_replaced_controller_goes_on_with_the_folder_and_without_it_is_another_one(
    controller: Controller, host: JoiningHost, tmp_path: Path
) -> None:
    """With a copy of the folder a host renews as before; without it nobody believes the new one."""
    assert host.join(controller.url, controller.token()).exit_code == 0
    token = controller.token()
    moved = Controller(join=JoinSettings(host="127.0.0.1", port=0, folder=str(tmp_path / "moved")))
    shutil.copytree(controller.join.folder, moved.join.folder)
    moved.begin()
    assert moved.post(joined.RENEW_PATH, b"{}", renewal_context(host))[0] == 200
    moved.end()

    other = Controller(join=JoinSettings(host="127.0.0.1", port=0, folder=str(tmp_path / "other")))
    other.begin()
    with pytest.raises(ssl.SSLCertVerificationError):
        other.post(joined.RENEW_PATH, b"{}", renewal_context(host))
    late = JoiningHost(folder=tmp_path / "late", node_id="i-2").join(other.url, token)
    assert (late.exit_code, "another authority than the token names" in late.output) == (1, True)
    other.end()


def test_no_certificate_outlives_its_authority(tmp_path: Path, host: JoiningHost) -> None:
    """Twenty days before the authority ends, a host gets twenty days."""
    join = JoinSettings(host="127.0.0.1", port=0, folder=str(tmp_path / "controller"))
    old = Controller(join=join, clock=world_clock(-3630))
    end = old.authority.end
    old.clock.jump(3630 * 86400.0)
    old.begin()
    assert host.join(old.url, old.token()).exit_code == 0
    old.end()
    assert host.certificate().not_valid_after_utc == end
    assert end - old.clock.now() <= 20 * DAY


def test_a_revoked_host_renews_nothing_and_is_told_so(controller: Controller, host: JoiningHost) -> None:
    """Its certificate is still valid by its dates; the words say how to come back."""
    assert host.join(controller.url, controller.token()).exit_code == 0
    controller.revoke("i-1")
    status, words = controller.post(joined.RENEW_PATH, b"{}", renewal_context(host))
    assert (status, words) == (403, "this certificate was revoked; join again with a new token")
    assert controller.ask_to_join(controller.token(), "i-1")[0] == 409


def test_somebody_in_between_never_sees_the_token(controller: Controller, host: JoiningHost, tmp_path: Path) -> None:
    """One with an authority of its own is found out by the first answer; the token is not sent to it."""
    between = Controller(join=JoinSettings(host="127.0.0.1", port=0, folder=str(tmp_path / "between")))
    between.begin()
    heard: list[str] = []
    assert between.server is not None
    app = between.server.app
    assert app is not None

    def hears(request: Request) -> Response:
        heard.append(request.target)
        return app(request)

    between.server.app = hears
    result = host.join(between.url, controller.token())
    between.end()
    assert (result.exit_code, heard) == (1, [joined.CA_PATH])
    assert "somebody between it and this host" in result.output
    assert not host.config.exists()


def test_somebody_in_between_who_shows_the_right_authority_cannot_be_it(
    controller: Controller, host: JoiningHost
) -> None:
    """The authority's certificate is public; who shows it, and another host's certificate, is not the controller."""
    thief = JoiningHost(folder=host.folder.parent / "thief", node_id="i-7")
    assert thief.join(controller.url, controller.token()).exit_code == 0
    token, folder = controller.token(), thief.folder / "join"
    files = TlsFiles(section="thief", certificate=folder / "agent.pem", key=folder / "agent.key")
    assert controller.server is not None
    controller.server.door = type(controller.server.door)(secure=lambda: server_context(files))
    result = host.join(controller.url, token)
    assert (result.exit_code, "is not believed" in result.output) == (1, True)
    assert controller.book.tokens[token[:8]].used == 0


@pytest.mark.parametrize(
    "request_text",
    [
        "",
        "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n",
        "\0" * 100,
        "\ud800",
        "x" * 15000,
        a_request(rsa.generate_private_key(65537, 2048)),
        a_request(ec.generate_private_key(ec.SECP384R1())),
    ],
    ids=["empty", "broken", "nul", "half a character", "large", "RSA", "P-384"],
)
def test_a_request_that_is_garbage_gets_400_and_uses_nothing_up(controller: Controller, request_text: str) -> None:
    """Whatever it is, no error of ours, and the token still works."""
    token = controller.token()
    status, _ = controller.ask_to_join(token, request=request_text or " ")
    assert status == 400
    assert controller.ask_to_join(token)[0] == 200


def test_a_request_signed_by_another_key_is_refused(controller: Controller) -> None:
    """A request proves that its sender has the private key: one whose signature was changed is none."""
    lines = a_request().splitlines()
    lines[-2] = lines[-2][:8] + ("A" if lines[-2][8] != "A" else "B") + lines[-2][9:]
    assert controller.ask_to_join(controller.token(), request="\n".join(lines))[0] == 400


def test_a_body_that_is_too_large_is_not_read(controller: Controller) -> None:
    """16 KiB is the most: the connection may be cut before all of it is sent, and the token still works."""
    token = controller.token()
    with suppress(OSError):
        assert controller.ask_to_join(token, request="x" * 20000)[0] == 400
    assert controller.ask_to_join(token)[0] == 200


@settings(max_examples=examples(60), deadline=None, suppress_health_check=NOTHING_ELSE)
@given(body=st.one_of(st.binary(max_size=300), st.recursive(st.none() | st.text(), st.lists).map(str).map(str.encode)))
def test_no_body_is_an_error_of_ours(controller: Controller, body: bytes) -> None:
    """Any bytes get an answer below 500, on each path."""
    for path in (joined.JOIN_PATH, joined.RENEW_PATH, "/", joined.CA_PATH):
        assert controller.post(path, body)[0] in {400, 403, 404, 405, 429}


def test_guessing_is_limited_also_for_the_right_token(controller: Controller) -> None:
    """Five wrong ones at once from an address, then one each ten seconds; waiting helps."""
    token = controller.token()
    wrong = f"{token[:9]}{'A' * 32}{token[41:]}"
    assert [controller.ask_to_join(wrong)[0] for _ in range(7)] == [403] * 5 + [429] * 2
    assert controller.ask_to_join(token)[0] == 429
    controller.clock.advance(60)
    assert controller.ask_to_join(token)[0] == 200


def test_a_token_ends_and_can_be_revoked(controller: Controller) -> None:
    """After its time, and after `gpuwatch join revoke`, it lets nobody in; the register has no secret."""
    token, other = controller.token(hours=1), controller.token(hours=9)
    controller.clock.advance(3601)
    assert controller.ask_to_join(token)[1] == "this token is ended; ask for a new one"
    controller.revoke(other[:8])
    assert controller.ask_to_join(other)[1] == "this token is revoked; ask for a new one"
    folder = Path(controller.join.folder)
    assert not [path for path in folder.iterdir() if token.split(".")[1].encode() in path.read_bytes()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


@dataclass(slots=True)
class LateClock(ManualClock):
    """A host's clock; after a hundred seconds of its waiting the controller is there."""

    then: Callable[[], None] = lambda: None

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.advance(seconds)
        if self.elapsed_seconds > 100:
            self.then()


def test_a_controller_that_is_away_is_said_and_waited_for(controller: Controller, host: JoiningHost) -> None:
    """Without --wait there is one try, and no settings; with it the host joins once the controller is there."""
    url, token = controller.url, controller.token()
    controller.end()
    result = host.join(url, token)
    assert (result.exit_code, "gives no answer" in result.output) == (1, True)
    assert not host.config.exists()

    def begin() -> None:
        controller.join = replace(controller.join, port=int(url.rpartition(":")[2]))
        controller.begin()

    clock = LateClock(wall=world_clock().now(), then=begin)
    patient = Joining(url=url, token=joined.read_token(token), node_id="i-1", folder=host.folder / "join", clock=clock)
    with pytest.raises(JoinError, match="gives no answer"):
        patient.join(60)
    patient.join(600)
    assert set(controller.book.hosts) == {"i-1"}


def test_a_host_joins_over_ipv6_and_from_any_of_its_addresses(tmp_path: Path) -> None:
    """A certificate has no address in it, so it holds behind NAT and with several interfaces."""
    six = Controller(join=JoinSettings(host="::1", port=0, folder=str(tmp_path / "controller")))
    six.begin()
    host = JoiningHost(folder=tmp_path / "host")
    result = host.join(six.url, six.token())
    six.end()
    assert result.exit_code == 0, result.output
    assert six.book.hosts["i-1"].address == "::1"
    assert host.agent.host == "::"
    found = host.certificate().extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert found.get_values_for_type(x509.IPAddress) == []


def test_a_key_of_another_kind_is_no_key_of_ours(controller: Controller, host: JoiningHost) -> None:
    """A file that somebody else has put there is named, and not used."""
    (host.folder / "join").mkdir(parents=True)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (host.folder / "join/agent.key").write_bytes(ed25519.Ed25519PrivateKey.generate().private_bytes(*form))
    result = host.join(controller.url, controller.token())
    assert (result.exit_code, "is no key that gpuwatch has made" in result.output) == (1, True)


@settings(max_examples=examples(200), deadline=None)
@given(
    uses=st.integers(1, 4),
    asked=st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz")), max_size=12),
)
def test_whatever_is_asked_a_node_keeps_its_key_and_a_token_its_limit(uses: int, asked: list[tuple[str, str]]) -> None:
    """Hosts of any names and keys, in any order, with one token: no more nodes than uses, one key for each."""
    now, book = world_clock().now(), Book(schema=1)
    made = book.make_token(now, until=now + DAY, hosts=uses, node_id=None, pin=bytes(32))
    first: dict[str, str] = {}
    for node, key in asked:
        held = book.check_token(made.id, made.secret, now)
        try:
            counts = book.admit(held, node, key, now)
        except RefusedError:
            continue
        host = Host(node_id=node, key=key, address="127.0.0.1", joined_at=now, token=made.id)
        book.note_joined(held, host, Issued(pem="", serial=1, end=now + DAY), counts=counts)
        assert first.setdefault(node, key) == key
    assert len(first) <= uses
    assert len(set(first.values())) == len(first)
    assert book.tokens[made.id].used == len(first)


def test_the_register_survives_a_second_writer(controller: Controller) -> None:
    """A token that is made while hosts join is not lost: the file is written by one at a time."""
    shared = controller.token(hosts=20)
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: controller.token(), range(8)))
        answers = list(pool.map(lambda number: controller.ask_to_join(shared, f"i-{number}")[0], range(20)))
    assert answers == [200] * 20
    assert {text[:8] for text in (*made, shared)} == set(controller.book.tokens)
    assert len(controller.book.hosts) == 20
    assert SystemClock().now() < controller.authority.end
