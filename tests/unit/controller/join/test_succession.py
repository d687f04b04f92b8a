"""An authority gets its successor before it ends, and no host has to join again for that (ADR 70)."""

import socket
import ssl
import subprocess
import threading
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from click.testing import CliRunner
from cryptography import x509
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.agent.renewal import Renewal
from gpuwatch.cli.join import token as token_command
from gpuwatch.cli.join_host import TOKEN_VARIABLE, agent_join
from gpuwatch.controller.join.authority import Authority
from gpuwatch.controller.join.serve import open_authority
from gpuwatch.controller.join.settings import TRUST, JoinSettings
from gpuwatch.controller.observe.credentials import failure_of
from gpuwatch.runtime.clock import ManualClock, SystemClock
from gpuwatch.runtime.joined import Token, server_name_of
from gpuwatch.runtime.tls import TlsFiles, client_context, server_context
from tests.support.nightly import examples
from tests.support.real.joining import DAY, Controller, JoiningHost, a_controller, world_clock

YEARS, LIFETIME = 3650, 90


def an_old_controller(folder: Path) -> Controller:
    """Its successor was made 160 days ago, and so signs since ten days."""
    made = Controller(join=JoinSettings(host="127.0.0.1", port=0, folder=str(folder)), clock=world_clock(-160 - 3250))
    made.begin()
    made.clock.jump(3250 * 86400.0)
    made.begin()
    return made


def at_port_of(controller: Controller, host: JoiningHost) -> Renewal:
    """The host's renewal; the controller's port is another one after its restart."""
    renewal = Renewal(host.agent, world_clock())
    renewal._url = controller.url
    return renewal


def is_believed(certificate: Path, by: Path) -> bool:
    """Whether OpenSSL believes it, revocations heeded."""
    words = ["openssl", "verify", "-crl_check", "-CAfile", str(by), "-CRLfile", str(by), str(certificate)]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def test_hosts_move_to_the_next_authority_by_renewal_alone(tmp_path: Path) -> None:
    """Controller and hosts believe both authorities meanwhile; a renewal leaves nothing of the old one."""
    controller = an_old_controller(tmp_path / "controller")
    first, second = (JoiningHost(folder=tmp_path / name, node_id=name) for name in ("i-1", "i-2"))
    controller.clock.jump(99 * 86400.0)  # 61 days ago the old one signed
    controller.begin()
    for host in (first, second):
        assert host.join(controller.url, controller.token()).exit_code == 0
    old, trust = controller.authority, tmp_path / "controller" / TRUST
    assert (first.folder / "join/ca.pem").read_text() == old.believed_pem
    controller.clock.jump(61 * 86400.0)
    controller.begin()
    assert controller.authority.pem != old.pem
    assert at_port_of(controller, first).step()
    issuer = x509.load_pem_x509_certificate(controller.authority.pem.encode())
    first.certificate().verify_directly_issued_by(issuer)
    assert all(is_believed(host.folder / "join/agent.pem", trust) for host in (first, second))
    assert is_believed(tmp_path / "controller/controller.pem", trust)
    controller.revoke("i-2")
    controller.revoke("i-1")
    assert not any(is_believed(host.folder / "join/agent.pem", trust) for host in (first, second))
    controller.end()
    later = Authority(controller.join, controller.clock.now() + 101 * DAY)
    assert later.believed_pem == later.pem == controller.authority.pem


def test_the_controller_says_that_a_certificate_was_revoked(tmp_path: Path) -> None:
    """And how the host joins again; nobody need look at the CA."""
    with a_controller(tmp_path / "controller") as controller:
        host = JoiningHost(folder=tmp_path / "host")
        assert host.join(controller.url, controller.token()).exit_code == 0
        controller.revoke("i-1")
    folder = host.folder / "join"
    files = TlsFiles(section="agent", certificate=folder / "agent.pem", key=folder / "agent.key")
    believed = TlsFiles(section="signals", ca=tmp_path / "controller" / TRUST)
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context(believed).wrap_bio(to_client, to_server, server_hostname=server_name_of("i-1"))
    server = server_context(files).wrap_bio(to_server, to_client, server_side=True)
    for side in (client, server):
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()
    with pytest.raises(ssl.SSLCertVerificationError) as found:
        client.do_handshake()
    assert failure_of(found.value).startswith("its agent's certificate was revoked; `gpuwatch join token --node`")


def test_what_answers_at_the_wrong_port_is_told_as_that(tmp_path: Path) -> None:
    """A port that speaks no TLS, and one where nothing listens: both in words, with the port where hosts join."""
    host, token = JoiningHost(folder=tmp_path / "host"), Token(id="0" * 8, secret="s" * 32, pin=bytes(32)).text()
    with socket.create_server(("127.0.0.1", 0)) as plain:
        port = plain.getsockname()[1]
        answers = threading.Thread(target=answer_in_plain_http, args=(plain,))
        answers.start()
        spoken = host.join(f"127.0.0.1:{port}", token)
        answers.join()
    silent = host.join(f"127.0.0.1:{port}", token)
    for answer, words in ((spoken, "does not speak TLS"), (silent, "refuses connections")):
        assert answer.exit_code == 1
        assert words in answer.output
        assert "Hosts join at port 9462 of the controller, where its controller.join.host is set." in answer.output
        assert "_ssl.c" not in answer.output


def answer_in_plain_http(listening: socket.socket) -> None:
    """As a program without TLS does."""
    one, _ = listening.accept()
    with one:
        one.recv(4096)
        one.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def test_settings_that_cannot_be_written_are_told_by_their_name(tmp_path: Path) -> None:
    """The words name the file of the settings, never the temporary one beside it."""
    with a_controller(tmp_path / "controller") as controller:
        settings = tmp_path / ("g" * 250)  # so the temporary name is too long
        words = ["--node", "i-1", "--folder", str(tmp_path / "j"), "--config", str(settings)]
        answer = CliRunner().invoke(agent_join, [controller.url, *words], env={TOKEN_VARIABLE: controller.token()})
    assert answer.exit_code == 1
    assert answer.output == f"This host has not joined: {settings}: File name too long.\n"


def test_a_host_that_joins_after_the_change_trusts_the_new_authority(tmp_path: Path) -> None:
    """A token of today names the one that signs today, and is of use."""
    controller = an_old_controller(tmp_path / "controller")
    controller.clock.jump(160 * 86400.0)
    controller.begin()
    host = JoiningHost(folder=tmp_path / "host")
    answer = host.join(controller.url, controller.token())
    controller.end()
    assert answer.exit_code == 0, answer.output
    assert controller.authority.pem in (host.folder / "join/ca.pem").read_text()


def test_an_agent_believes_no_authorities_that_leave_out_its_own(tmp_path: Path) -> None:
    """Whoever answers for a minute with another authority does not become the one that it believes."""
    controller = an_old_controller(tmp_path / "controller")
    controller.clock.jump(99 * 86400.0)
    controller.begin()
    host = JoiningHost(folder=tmp_path / "host")
    assert host.join(controller.url, controller.token()).exit_code == 0
    stranger = Controller(join=JoinSettings(host="127.0.0.1", port=0, folder=str(tmp_path / "stranger")))
    before = (host.folder / "join/ca.pem").read_text()
    Renewal(host.agent, world_clock())._believe(stranger.authority.pem)
    assert (host.folder / "join/ca.pem").read_text() == before
    controller.end()


def test_another_program_s_authority_in_an_agent_s_file_stays(tmp_path: Path) -> None:
    """A company's, for its own Prometheus: a renewal writes nothing for it, and a successor is put beside it."""
    controller, company = an_old_controller(tmp_path / "controller"), Path(ssl_file(tmp_path / "company"))
    controller.clock.jump(99 * 86400.0)
    controller.begin()
    host = JoiningHost(folder=tmp_path / "host")
    assert host.join(controller.url, controller.token()).exit_code == 0
    controller.end()
    path, renewal, both = host.folder / "join/ca.pem", Renewal(host.agent, world_clock()), controller.authority
    path.write_text(f"# Größe\n{path.read_text()}{company.read_text()}", encoding="utf-8")
    before = path.read_bytes()
    renewal._believe(both.believed_pem)
    assert path.read_bytes() == before
    only = Authority(controller.join, controller.clock.now() + 200 * DAY).believed_pem
    renewal._believe(only)
    assert path.read_text() == only + company.read_text()


def ssl_file(folder: Path) -> str:
    """An authority that OpenSSL makes."""
    folder.mkdir()
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=company -keyout key.pem -out ca.pem"
    subprocess.run(["openssl", *words.split()], cwd=folder, capture_output=True, check=True)
    return str(folder / "ca.pem")


def test_a_token_does_not_outlive_the_authority_that_it_names(tmp_path: Path) -> None:
    """`gpuwatch join token --for 90d` a week before the change says that it ends then."""
    folder, now = tmp_path / "controller", SystemClock().now()
    join = JoinSettings(host="127.0.0.1", port=0, folder=str(folder))
    for days in (-143 - 3250, -143):
        open_authority(join, "lab", world_clock(days))
    config = tmp_path / "gpuwatch.yaml"
    config.write_text(
        "cloud: {provider: hosts, hosts: {joined: /var/lib/x}}\n"
        f"controller: {{join: {{host: 127.0.0.1, folder: {folder}}}}}\n"
    )
    answer = CliRunner().invoke(token_command, ["--for", "90d", "--config", str(config)])
    assert answer.exit_code == 0, answer.output
    assert "the controller's next authority takes over" in answer.stderr
    changes = Authority(join, now).changes_at
    assert now + 5 * DAY < changes < now + 8 * DAY
    assert f"{changes:%Y-%m-%d %H:%M} UTC" in answer.stderr


@settings(max_examples=examples(5), deadline=None)
@given(
    wrong=st.lists(st.tuples(st.integers(3200, 3800), st.integers(-400, 2 * YEARS)), max_size=3),
    looks=st.lists(st.tuples(st.integers(3200, 3800), st.integers(0, LIFETIME)), min_size=4, max_size=12),
)
def test_two_days_within_a_certificates_life_believe_each_other(
    wrong: list[tuple[int, int]], looks: list[tuple[int, int]]
) -> None:
    """What a host got on any day is of use for 90 days, whatever clock was wrong for a minute."""
    begin = datetime.fromisoformat("2026-01-01T00:00:00+00:00")
    days = sorted({0, *range(3200, 3800, 30), *(day for later, before in looks for day in (later, later - before))})
    jumps = dict(wrong)
    seen = {}
    with TemporaryDirectory() as folder:
        join = JoinSettings(host="127.0.0.1", port=0, folder=folder)
        for day in days:
            if day in jumps:
                tick(join, begin + jumps[day] * DAY)
            seen[day] = tick(join, begin + day * DAY)
    for later, before in looks:
        (signed, believed), (signs, believes) = seen[later - before], seen[later]
        assert signs in believed
        assert signed in believes


def tick(join: JoinSettings, now: datetime) -> tuple[str, str]:
    """Who signs, and who is believed, after a look at the folder; with a clock that cannot be right, nothing."""
    try:
        found = open_authority(join, "lab", ManualClock(wall=now))
    except ValueError:
        return "", ""
    return found.pem, found.believed_pem
