"""What a thief, or somebody in the same network, tries at the port at which hosts join: on real sockets."""

import json
import os
import shutil
import socket
import ssl
import stat
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.cli import join_folder
from gpuwatch.controller.join.authority import Authority
from gpuwatch.controller.join.settings import TRUST, JoinSettings
from gpuwatch.runtime import joined
from gpuwatch.runtime.clock import SystemClock
from gpuwatch.runtime.http.auth import make_auth
from gpuwatch.runtime.http.request import Request, Response
from gpuwatch.runtime.http.server import HttpServer
from gpuwatch.runtime.tls import TlsFiles, client_context
from tests.support.real.joining import P256, Controller, JoiningHost, a_controller, a_request, renewal_context

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="root gives files to another user")


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    """One that listens."""
    with a_controller(tmp_path / "controller") as made:
        yield made


@pytest.fixture
def host(tmp_path: Path) -> JoiningHost:
    """A host that has not joined."""
    return JoiningHost(folder=tmp_path / "host")


@pytest.fixture
def thief(tmp_path: Path) -> Iterator[Controller]:
    """Somebody with an authority and a port of his own."""
    with a_controller(tmp_path / "thief") as made:
        yield made


@pytest.mark.parametrize("fleet", ["lab", "lab1", "lab12"])
def test_an_authority_behind_the_right_one_is_not_believed(
    thief: Controller, host: JoiningHost, tmp_path: Path, fleet: str
) -> None:
    """Who shows the right authority's certificate and his own behind it never hears the token.

    Python's reader of PEM ends at the padding, which two certificates of three have: hence three lengths.
    """
    right = Controller(join=JoinSettings(host="127.0.0.1", port=0, folder=str(tmp_path / "right")), fleet=fleet)
    token, both = right.token(), (right.authority.pem + thief.authority.pem).encode()
    heard: list[str] = []
    assert thief.server is not None
    app = thief.server.app
    assert app is not None

    def shows_both(request: Request) -> Response:
        heard.append(request.target)
        return Response(body=both, content_type="text/plain") if request.target == joined.CA_PATH else app(request)

    thief.server.app = shows_both
    result = host.join(thief.url, token)
    assert (result.exit_code, set(heard)) == (1, {joined.CA_PATH})
    assert not host.config.exists()


@given(behind=st.text(max_size=200), before=st.sampled_from(["", " ", "\n", "\r\n"]))
def test_whatever_is_shown_only_the_pinned_bytes_are_believed(behind: str, before: str) -> None:
    """What is believed has the SHA-256 of the token, and nothing more is in it than one certificate."""
    certificate = bytes(range(100))
    pem = ssl.DER_cert_to_PEM_cert(certificate)
    found = joined.read_pinned(f"{before}{pem}{behind}{pem}", sha256_of(certificate))
    assert found in {None, pem}
    assert joined.read_pinned(pem, sha256_of(certificate)) == pem


def sha256_of(certificate: bytes) -> bytes:
    """The SHA-256."""
    digest = hashes.Hash(hashes.SHA256())
    digest.update(certificate)
    return digest.finalize()


def test_words_of_who_is_no_controller_cannot_steer_the_terminal(thief: Controller, host: JoiningHost) -> None:
    """Escape sequences in an answer of anybody in the network are shown as text."""
    assert thief.server is not None
    thief.server.app = lambda _: Response(body=b"\x1b[2J\x1b]0;x\x07", content_type="text/plain", status=403)  # type: ignore[arg-type]
    result = host.join(thief.url, thief.token())
    assert (result.exit_code, "\x1b" in result.output, "\x07" in result.output) == (1, False, False)


def test_a_node_with_the_name_of_a_token_does_not_protect_the_token(controller: Controller) -> None:
    """A thief may call his node as his token's id; `join revoke ID` takes both back."""
    token = controller.token(hosts=3)
    assert controller.ask_to_join(token, token[:8])[0] == 200
    controller.revoke(token[:8])
    assert controller.ask_to_join(token, "i-2")[0] == 403
    assert controller.book.hosts[token[:8]].revoked_at is not None


def test_a_revoked_key_never_comes_back(controller: Controller, host: JoiningHost) -> None:
    """Else who has stolen it could renew with the old certificate, as soon as the host has joined again with it."""
    assert host.join(controller.url, controller.token()).exit_code == 0
    stolen = renewal_context(host)
    controller.revoke("i-1")
    again = host.join(controller.url, controller.token(node_id="i-1"))
    assert (again.exit_code, "move its file agent.key away" in again.output) == (1, True)
    (host.folder / "join/agent.key").unlink()
    assert host.join(controller.url, controller.token(node_id="i-1")).exit_code == 0
    assert controller.post(joined.RENEW_PATH, b"{}", stolen)[0] == 403
    assert controller.post(joined.RENEW_PATH, b"{}", renewal_context(host))[0] == 200


def test_somebody_behind_the_same_nat_does_not_keep_hosts_from_joining(controller: Controller) -> None:
    """Wrong tokens of no known id from an address hold up no host from there with a token; nor one that renews."""
    token = controller.token()
    wrong = f"{'0' * 8}.{'A' * 32}.{token[42:]}"
    assert [controller.ask_to_join(wrong)[0] for _ in range(7)] == [403] * 5 + [429] * 2
    assert controller.ask_to_join(token)[0] == 200


def test_a_token_does_not_fill_the_register(controller: Controller) -> None:
    """Who asks again and again with one key gets eight certificates in a day, and one more on the next."""
    token, request = controller.token(hours=999), a_request()
    statuses = [controller.ask_to_join(token, "i-1", request)[0] for _ in range(12)]
    assert statuses == [200] * 8 + [429] * 4
    controller.clock.advance(86400)
    assert [controller.ask_to_join(token, "i-1", request)[0] for _ in range(2)] == [200, 429]
    assert len(controller.book.hosts["i-1"].certificates) == 9


@pytest.mark.parametrize(
    "node_id",
    [
        *("*", "*.gpuwatch", "localhost", "127.0.0.1", "::1", "controller", "controller.gpuwatch", "gpuwatch-agent"),
        *("../../etc/passwd", "/etc/shadow", "a/../b", "C:\\x", "I-1", "%00", "${HOME}"),
        *("节点" * 20, "é" * 128, "x" * 256),
    ],
)
def test_a_name_is_a_name_and_nothing_else(controller: Controller, node_id: str) -> None:
    """Whatever a node is called, its certificate has its own name and that of all agents; no file is made for it."""
    before = sorted(each.name for each in Path(controller.join.folder).iterdir())
    status, answer = controller.ask_to_join(controller.token(), node_id)
    assert status == 200
    made = x509.load_pem_x509_certificate(json.loads(answer)["certificate"].encode())
    found = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [each.value for each in found] == [joined.server_name_of(node_id), joined.ANY_AGENT]
    assert str(made.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0].value).startswith("node:")
    assert sorted(each.name for each in Path(controller.join.folder).iterdir()) == before


@pytest.mark.parametrize("node_id", ["", " ", "a ", "\ta", "a\nb", "a\x00b", "a\x1b[2J", "\u202eb", "x" * 257])
def test_a_name_that_could_mislead_people_is_refused(controller: Controller, node_id: str) -> None:
    """Control characters, spaces at its ends and directions of writing are no part of an id; the token is not used."""
    token = controller.token()
    assert controller.ask_to_join(token, node_id)[0] == 400
    assert controller.book.tokens[token[:8]].used == 0


@pytest.mark.parametrize(
    "name",
    [x509.DNSName("example.com"), x509.DNSName("gpuwatch.example.com"), x509.DNSName("xgpuwatch")]
    + [x509.IPAddress(ip_address(each)) for each in ("1.1.1.1", "::1")]
    + [x509.RFC822Name("root@example.com"), x509.UniformResourceIdentifier("spiffe://example.com/x")],
    ids=str,
)
def test_a_stolen_authority_is_of_no_use_elsewhere(
    controller: Controller, tmp_path: Path, name: x509.GeneralName
) -> None:
    """OpenSSL refuses what its key signs for names of other kinds and places; our own names pass."""
    assert verified(controller.authority, x509.DNSName(joined.CONTROLLER), tmp_path)
    assert not verified(controller.authority, name, tmp_path)


def verified(authority: Authority, name: x509.GeneralName, folder: Path) -> bool:
    """Whether `openssl verify` believes a certificate of that name."""
    parent, now = x509.load_pem_x509_certificate(authority.pem.encode()), SystemClock().now()
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(parent.subject)
        .public_key(ec.generate_private_key(P256).public_key())
        .serial_number(7)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([name]), critical=True)
        .sign(authority._one.key, hashes.SHA256())  # what a thief would do
    )
    (folder / "made.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "parent.pem").write_text(authority.pem, encoding="ascii")
    words = ["openssl", "verify", "-CAfile", str(folder / "parent.pem"), str(folder / "made.pem")]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


@contextmanager
def an_agent(host: JoiningHost) -> Iterator[int]:
    """What the agent of a host opens to the network, by the settings that joining has written; gives its port."""
    page = Response(body=b"page", content_type="text/plain")
    door, routes = make_auth(host.agent, SystemClock(), "agent"), {"/metrics": lambda _: page}
    server = HttpServer("127.0.0.1", 0, routes, clock=SystemClock(), max_connections=8, timeout_seconds=9, door=door)
    server.start()
    yield int(server.url.rpartition(":")[2])
    server.close()


def ask(port: int, name: str, folder: Path, own: str | None) -> str:
    """The status of an agent's page, for a client with that certificate; or why there is none."""
    pair = (None, None) if own is None else (folder / f"{own}.pem", folder / f"{own}.key")
    context = client_context(TlsFiles(section="x", certificate=pair[0], key=pair[1], ca=folder / "ca.pem"))
    try:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=9) as plain,
            context.wrap_socket(plain, server_hostname=name) as line,
        ):
            line.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            return line.recv(100).decode().split(" ")[1]
    except OSError as error:
        return type(error).__name__


def test_a_hosts_certificate_opens_no_door_of_others(controller: Controller, thief: Controller, tmp_path: Path) -> None:
    """An agent lets the controller and Prometheus in; no agent, and nobody of another authority with the same names."""
    one, other = JoiningHost(folder=tmp_path / "1"), JoiningHost(folder=tmp_path / "2", node_id="i-2")
    assert [each.join(controller.url, controller.token()).exit_code for each in (one, other)] == [0, 0]
    ours, name = Path(controller.join.folder), joined.server_name_of("i-1")
    theirs = tmp_path / "mixed"
    theirs.mkdir()
    for file in ("controller.pem", "controller.key"):
        shutil.copy(Path(thief.join.folder) / file, theirs)
    shutil.copy(ours / "ca.pem", theirs)
    with an_agent(one) as port:
        assert [ask(port, name, ours, own) for own in ("controller", "prometheus")] == ["200", "200"]
        assert [ask(port, name, each.folder / "join", "agent") for each in (one, other)] == ["403", "403"]
        assert ask(port, name, ours, None) == "SSLError"
        assert ask(port, name, theirs, "controller") == "SSLError"
        for wrong in (joined.server_name_of("i-2"), joined.CONTROLLER, joined.PROMETHEUS, "localhost"):
            assert ask(port, wrong, ours, "controller") == "SSLCertVerificationError"


def test_prometheus_certificate_is_no_servers(controller: Controller) -> None:
    """It is copied to another machine: whoever takes it there cannot pose as controller or agent."""
    usages = {}
    for file in ("controller", "prometheus"):
        made = x509.load_pem_x509_certificate((Path(controller.join.folder) / f"{file}.pem").read_bytes())
        usages[file] = (
            ExtendedKeyUsageOID.SERVER_AUTH in made.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        )
    assert usages == {"controller": True, "prometheus": False}


def test_idle_connections_behind_the_same_nat_make_room(controller: Controller) -> None:
    """Somebody holds 300 of them from the address of hosts: these join all the same, at once."""
    port = int(controller.url.rpartition(":")[2])
    with ExitStack() as held:
        for _ in range(300):
            held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=9))
        assert controller.ask_to_join(controller.token())[0] == 200


def test_whoever_knocks_does_not_fill_the_log(controller: Controller, caplog: pytest.LogCaptureFixture) -> None:
    """Sixty refusals a minute are logged; the last line says that there were more."""
    for number in range(70):
        assert controller.post(f"/{number}", b"")[0] == 404
    said = [each.getMessage() for each in caplog.records if "is not let in" in each.getMessage()]
    assert (len(said), "no more of these in this minute" in said[-1]) == (60, True)
    controller.clock.advance(60)
    controller.post("/again", b"")
    assert len([each for each in caplog.records if "is not let in" in each.getMessage()]) == 61


def test_a_file_with_a_token_that_others_may_read_is_said(
    controller: Controller, host: JoiningHost, tmp_path: Path
) -> None:
    """The host joins all the same; a file of mode 0600 is no reason for words."""
    file, token = tmp_path / "token", controller.token()
    file.write_text(token, encoding="ascii")
    file.chmod(0o644)
    result = host.join(controller.url, token, "--token-file", str(file), env={})
    assert (result.exit_code, f"Warning: other users of this host may read {file}" in result.output) == (0, True)
    file.chmod(0o600)
    assert "Warning" not in host.join(controller.url, token, "--token-file", str(file), env={}).output


def test_tls_1_2_is_not_spoken(controller: Controller) -> None:
    """A client that can do no better is turned away in the handshake."""
    old = joined.unverified_context()
    old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        controller.post(joined.CA_PATH, b"", old)


def test_a_folder_that_is_a_link_is_not_written_through(controller: Controller, host: JoiningHost) -> None:
    """The agent's user owns the place, root joins: a link there would let him have files of root's."""
    elsewhere = host.folder.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "shadow").write_text("secret", encoding="ascii")
    host.folder.mkdir()
    (host.folder / "join").symlink_to(elsewhere)
    result = host.join(controller.url, controller.token())
    assert (result.exit_code, "is a link or a file" in result.output) == (1, True)
    assert [each.name for each in elsewhere.iterdir()] == ["shadow"]


@pytest.mark.parametrize("name", ["agent.key", "agent.pem", "ca.pem"])
def test_a_file_that_is_a_link_is_not_written_through(controller: Controller, host: JoiningHost, name: str) -> None:
    """A link in place of the key is an error; one in place of a certificate is replaced, and leads nowhere."""
    target = host.folder.parent / "target"
    target.write_text("precious", encoding="ascii")
    (host.folder / "join").mkdir(parents=True)
    (host.folder / "join" / name).symlink_to(target)
    result = host.join(controller.url, controller.token())
    assert target.read_text(encoding="ascii") == "precious"
    assert result.exit_code == (1 if name == "agent.key" else 0), result.output


@AS_ROOT
def test_only_what_was_made_is_given_to_the_agent(
    controller: Controller, host: JoiningHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of root's in the folder stay root's; a folder of another user is named, and nothing is asked."""
    monkeypatch.setattr(join_folder, "USER", "nobody")
    assert host.join(controller.url, controller.token()).exit_code == 0
    folder = host.folder / "join"
    agent = folder.stat().st_uid
    assert agent != 0
    assert {each.stat().st_uid for each in folder.iterdir()} == {agent}
    (folder / "roots").touch()
    assert host.join(controller.url, controller.token()).exit_code == 0
    assert (folder / "roots").stat().st_uid == 0
    os.chown(folder, 0, 0)
    result = host.join(controller.url, controller.token())
    assert (result.exit_code, "is not the folder of nobody" in result.output) == (1, True)


@AS_ROOT
def test_the_controllers_lock_is_no_way_to_a_file_of_roots(controller: Controller, tmp_path: Path) -> None:
    """Root runs `join token` in a folder of the controller's user, who may put a link where the lock is."""
    folder, target = Path(controller.join.folder), tmp_path / "shadow"
    target.write_text("secret", encoding="ascii")
    os.chown(folder, 65534, 65534)
    (folder / ".lock").unlink()
    (folder / ".lock").symlink_to(target)
    with pytest.raises(OSError, match="symbolic links"):
        controller.token()
    assert target.stat().st_uid == 0
    (folder / ".lock").unlink()
    controller.token()
    assert {(folder / name).stat().st_uid for name in (".lock", "register.json")} == {65534}


def test_settings_are_never_open_to_others_and_a_new_file_is_the_agents_to_read(
    controller: Controller, host: JoiningHost
) -> None:
    """The mode of a file that was there stays; a new one can be read by the agent whatever the umask is."""
    before = os.umask(0o077)
    try:
        assert host.join(controller.url, controller.token()).exit_code == 0
        assert stat.S_IMODE(host.config.stat().st_mode) == 0o644
        host.config.chmod(0o640)
        host.config.write_text("# mine\n", encoding="ascii")
        assert host.join(controller.url, controller.token()).exit_code == 0
        assert stat.S_IMODE(host.config.stat().st_mode) == 0o640
    finally:
        os.umask(before)
    assert {stat.S_IMODE(each.stat().st_mode) for each in (host.folder / "join").iterdir()} == {0o600}
    assert (Path(controller.join.folder) / TRUST).exists()
