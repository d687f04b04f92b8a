"""Mishaps of a controller that lets hosts join, and of hosts: full disks, power cuts, clocks, lost and old files."""

import errno
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from apscheduler.schedulers.background import BackgroundScheduler
from cryptography import x509
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.controller.join import authority as authority_module
from gpuwatch.controller.join import register as register_module
from gpuwatch.controller.join.authority import Authority, Issued, write
from gpuwatch.controller.join.register import Book, Host, Register
from gpuwatch.controller.join.serve import Joins, open_authority
from gpuwatch.controller.join.settings import TRUST, JoinSettings
from gpuwatch.runtime import joined
from gpuwatch.runtime.tls import TlsFiles, client_context
from tests.support.nightly import examples
from tests.support.real.joining import (
    DAY,
    Controller,
    JoiningHost,
    a_controller,
    a_request,
    renewal_context,
    world_clock,
)


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    """One that listens."""
    with a_controller(tmp_path / "controller") as made:
        yield made


@pytest.fixture
def host(tmp_path: Path) -> JoiningHost:
    """A host that has not joined."""
    return JoiningHost(folder=tmp_path / "host")


WRITER = """
import sys
from datetime import timedelta
from pathlib import Path
from gpuwatch.controller.join.authority import Authority
from gpuwatch.controller.join.register import Register
from gpuwatch.controller.join.settings import JoinSettings
from gpuwatch.runtime.clock import SystemClock

register, now = Register(Path(sys.argv[1])), SystemClock().now()
authority = Authority(JoinSettings(folder=sys.argv[1]), now)
while True:
    with register.change(now, authority) as book:
        made = book.make_token(now, until=now + timedelta(days=1), hosts=1, node_id=None, pin=bytes(32))
    print(made.id, "valid", flush=True)
    with register.change(now, authority) as book:
        book.revoke(made.id, now)
    print(made.id, "revoked", flush=True)
"""


def revoked(controller: Controller) -> set[int]:
    """What is on the list in the file that the controller trusts."""
    text = (Path(controller.join.folder) / TRUST).read_bytes()
    return {each.serial_number for each in x509.load_pem_x509_crl(text[text.index(b"-----BEGIN X509 CRL") :])}


class FullDisk:
    """Files that cannot be written from the named one on."""

    def __init__(self, name: str) -> None:
        """Which one is the first."""
        self.name = name

    def __call__(self, path: Path, content: bytes) -> None:
        """As `write`."""
        if path.name == self.name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        write(path, content)


@pytest.mark.parametrize("name", ["register.json", TRUST])
def test_a_revocation_on_a_full_disk_is_an_error_and_never_half_forgotten(
    controller: Controller, host: JoiningHost, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Either nothing was revoked, and the command says that it failed; or it is in force at the next look."""
    assert host.join(controller.url, controller.token()).exit_code == 0
    with monkeypatch.context() as patch:
        for module in (register_module, authority_module):
            patch.setattr(module, "write", FullDisk(name))
        with pytest.raises(OSError, match="No space left"):
            controller.revoke("i-1")
    assert revoked(controller) == set()
    open_authority(controller.join, "lab", controller.clock, make=False)
    was_written = name == TRUST
    assert (revoked(controller) == {host.certificate().serial_number}) is was_written
    assert controller.post(joined.RENEW_PATH, b"{}", renewal_context(host))[0] == (403 if was_written else 200)


@pytest.mark.parametrize("name", ["register.json", TRUST])
def test_a_host_whose_joining_met_a_full_disk_joins_at_the_next_try(
    controller: Controller, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The token of one use is not lost, and the old certificate is believed until there is a new one."""
    assert controller.ask_to_join(controller.token(), "i-1")[0] == 200
    token, request = controller.token(node_id="i-1"), a_request()
    with monkeypatch.context() as patch:
        for module in (register_module, authority_module):
            patch.setattr(module, "write", FullDisk(name))
        assert controller.ask_to_join(token, "i-1", request)[0] == 503
    assert revoked(controller) == set()
    assert controller.ask_to_join(token, "i-1", request)[0] == 200
    assert len(revoked(controller)) == 1


@pytest.mark.parametrize(
    "content", ["{}", '{"schema": 2}', '{"a": 1}', "", "null", "[]", '{"schema": 1, "x": 1}', "\0" * 99]
)
def test_a_foreign_register_is_no_empty_one(controller: Controller, content: str) -> None:
    """An empty register would believe revoked hosts again, and give their names away: the words name the file."""
    token = controller.token()
    (Path(controller.join.folder) / "register.json").write_text(content, encoding="ascii")
    with pytest.raises(ValueError, match=r"register\.json is damaged"):
        controller.register.read()
    assert controller.ask_to_join(token)[0] == 503
    assert (Path(controller.join.folder) / "register.json").read_text(encoding="ascii") == content


def test_a_lost_register_is_no_empty_one(controller: Controller, host: JoiningHost) -> None:
    """The words say what to do; the revoked host stays revoked."""
    assert host.join(controller.url, controller.token()).exit_code == 0
    controller.revoke("i-1")
    (Path(controller.join.folder) / "register.json").unlink()
    with pytest.raises(ValueError, match="put back a copy of the folder"):
        controller.begin()
    assert revoked(controller) == {host.certificate().serial_number}


def test_a_lost_certificate_of_the_authority_gives_no_other_one_where_hosts_have_joined(
    controller: Controller, host: JoiningHost
) -> None:
    """Its key stays as it is, the words say what to do, and the certificate put back is believed as before."""
    assert host.join(controller.url, controller.token()).exit_code == 0
    folder = Path(controller.join.folder)
    lost, key = (folder / "ca.pem").read_bytes(), (folder / "ca.key").read_bytes()
    (folder / "ca.pem").unlink()
    with pytest.raises(
        ValueError, match=r"ca\.pem is missing, and hosts have joined \(1\): put back a copy of the folder"
    ):
        controller.begin()
    assert ((folder / "ca.pem").exists(), (folder / "ca.key").read_bytes()) == (False, key)
    (folder / "ca.pem").write_bytes(lost)
    controller.begin()


@pytest.mark.parametrize("name", ["controller.pem", "controller.key", "prometheus.pem", "prometheus.key", TRUST])
def test_a_file_that_follows_from_others_is_made_again(controller: Controller, host: JoiningHost, name: str) -> None:
    """Lost, of another pair, or damaged: the controller makes it at its next look, and revoked hosts stay revoked."""
    assert host.join(controller.url, controller.token()).exit_code == 0
    controller.revoke("i-1")
    path = Path(controller.join.folder) / name
    path.unlink()
    controller.begin()
    assert path.exists()
    if name.endswith(".pem"):
        path.write_text("damaged", encoding="ascii")
    else:
        other = next(each for each in ("controller.key", "prometheus.key") if each != name)
        shutil.copy(path.with_name(other), path)
    controller.begin()
    for own in ("controller", "prometheus"):
        client_context(
            TlsFiles(section="x", certificate=path.with_name(f"{own}.pem"), key=path.with_name(f"{own}.key"))
        )
    assert revoked(controller) == {host.certificate().serial_number}
    assert (
        JoiningHost(folder=host.folder.parent / "b", node_id="i-2").join(controller.url, controller.token()).exit_code
        == 0
    )


def test_what_a_kill_has_left_is_removed(controller: Controller) -> None:
    """Files that were begun hold keys and hashes; nothing else of the folder goes."""
    folder = Path(controller.join.folder)
    before = {each.name for each in folder.iterdir()}
    for name in (".ca.key.0123abcd", ".register.json.ffffffff"):
        (folder / name).touch()
    open_authority(controller.join, "lab", controller.clock, make=False)
    assert {each.name for each in folder.iterdir()} == before


def test_a_clock_that_is_wrong_for_a_minute_makes_nothing_forgotten(controller: Controller, host: JoiningHost) -> None:
    """Hosts, revocations and tokens are there when the clock is right again, although all had ended long ago by it."""
    assert host.join(controller.url, controller.token()).exit_code == 0
    assert controller.ask_to_join(controller.token(), "i-2")[0] == 200
    controller.revoke("i-2")
    before = controller.book
    controller.clock.jump(9 * 365 * 86400.0)
    late = controller.token()
    controller.clock.jump(-9 * 365 * 86400.0)
    after = controller.book
    assert (after.hosts, after.revoked) == (before.hosts, before.revoked)
    assert after.tokens.keys() - before.tokens.keys() == {late[:8]}
    assert len(revoked(controller)) == 1


@pytest.mark.parametrize("days", [400, -400])
def test_a_list_made_by_a_wrong_clock_hides_no_agent(controller: Controller, host: JoiningHost, days: int) -> None:
    """Somebody revokes one host while the controller's clock is wrong: all others are believed by the right one."""
    assert host.join(controller.url, controller.token()).exit_code == 0
    assert controller.ask_to_join(controller.token(), "i-2")[0] == 200
    controller.clock.jump(days * 86400.0)
    with Register(Path(controller.join.folder)).change(
        controller.clock.now(), Authority(controller.join, controller.clock.now())
    ) as book:
        assert book.revoke("i-2", controller.clock.now())
    trust, certificate = Path(controller.join.folder) / TRUST, host.folder / "join/agent.pem"
    words = ["openssl", "verify", "-crl_check", "-CAfile", str(trust), "-CRLfile", str(trust), str(certificate)]
    assert subprocess.run(words, capture_output=True, text=True, check=False).stderr == ""
    assert len(revoked(controller)) == 1


def test_the_port_opens_when_what_was_in_its_way_is_gone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A clock of 1970 at boot, or a port that is taken: the controller says so, and tries again without a restart."""
    folder = str(tmp_path / "controller")
    first = Controller(join=JoinSettings(host="127.0.0.1", port=0, folder=folder))
    first.begin()
    port = int(first.url.rpartition(":")[2])
    clock = world_clock(-20000)
    joins = Joins(JoinSettings(host="127.0.0.1", port=port, folder=folder), "lab", clock)
    joins.start(BackgroundScheduler())
    assert (joins.url, "set the clock" in caplog.text) == (None, True)
    clock.jump(20000 * 86400.0)
    joins.tick()
    assert (joins.url, "Address already in use" in caplog.text) == (None, True)
    first.end()
    joins.tick()
    assert joins.url is not None
    assert joined.ask_controller(joins.url, joined.CA_PATH, None, joined.unverified_context(), clock)
    joins.close()


def test_a_folder_that_is_gone_for_a_while_gives_no_other_authority(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A volume that is not mounted for a moment: the controller says so and makes nothing in its place."""
    folder = tmp_path / "controller"
    joins = Joins(JoinSettings(host="127.0.0.1", port=0, folder=str(folder)), "lab", world_clock())
    joins.start(BackgroundScheduler())
    before = (folder / "ca.pem").read_bytes()
    folder.rename(tmp_path / "away")
    joins.tick()
    assert (folder.exists(), "cannot be kept" in caplog.text) == (False, True)
    (tmp_path / "away").rename(folder)
    joins.tick()
    assert (folder / "ca.pem").read_bytes() == before
    joins.close()


def test_an_authority_that_has_ended_says_what_to_do(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Hosts get 503 in words and no traceback of ours; the controller's log names the folder and the remedy."""
    old = Controller(join=JoinSettings(host="127.0.0.1", port=0, folder=str(tmp_path / "controller")))
    old.begin()
    token = old.token(hours=90000)
    old.clock.jump(3651 * 86400.0)
    status, words = old.ask_to_join(token)
    assert (status, "see its log" in words) == (503, True)
    assert "move the folder away" in caplog.text
    assert "Traceback" not in caplog.text
    old.end()


def test_a_host_that_the_register_does_not_know_is_told_so(
    controller: Controller, host: JoiningHost, tmp_path: Path
) -> None:
    """A backup from before it joined was put back: it is not said to be revoked."""
    shutil.copytree(controller.join.folder, tmp_path / "backup")
    assert host.join(controller.url, controller.token()).exit_code == 0
    shutil.copy(tmp_path / "backup/register.json", Path(controller.join.folder) / "register.json")
    status, words = controller.post(joined.RENEW_PATH, b"{}", renewal_context(host))
    assert (status, words) == (403, "the controller knows no host with this key; join again with a new token")


def test_two_commands_on_one_host_at_once_both_succeed(controller: Controller, host: JoiningHost) -> None:
    """cloud-init and Ansible at the same moment: one key, one host in the register, no file left behind."""
    token = controller.token()
    own = ["--node", "i-1", "--folder", str(host.folder / "join"), "--config", str(host.config)]
    words = [sys.executable, "-m", "gpuwatch", "agent", "join", controller.url, *own]
    environment = {**os.environ, "GPUWATCH_JOIN_TOKEN": token}
    running = [
        subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(2)
    ]
    said = [each.communicate(timeout=120)[0] for each in running]
    assert [each.returncode for each in running] == [0, 0], said
    assert controller.book.tokens[token[:8]].used == 1
    assert not [each for each in host.folder.rglob("*") if each.name.startswith(".")]


def test_a_kill_at_any_moment_loses_nothing_that_was_said(controller: Controller) -> None:
    """A process that makes and revokes tokens is killed five times: each one that it has named is there."""
    for number in range(5):
        words = [sys.executable, "-c", WRITER, controller.join.folder]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            said = [writer.stdout.readline() for _ in range(3 * number + 1)]
            writer.kill()
            said += writer.stdout.read().splitlines()
        tokens = controller.book.tokens
        for token, state in map(str.split, said):
            assert tokens[token].state(controller.clock.now()) in {state, "revoked"}


def test_two_hosts_with_one_use_at_once_get_one_certificate(controller: Controller) -> None:
    """Eight hosts ask at the same moment with a token of one use, at two doors of one folder."""
    second = Controller(join=controller.join)
    second.begin()
    token, statuses = controller.token(), []

    def ask(number: int) -> None:
        statuses.append((controller, second)[number % 2].ask_to_join(token, f"i-{number}")[0])

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    second.end()
    assert sorted(statuses) == [200] + [403] * 7
    assert len(controller.book.hosts) == 1


def test_node_and_settings_that_contradict_each_other_are_told(controller: Controller, host: JoiningHost) -> None:
    """A certificate for one name and an agent that gives another one would be unknown for ever."""
    host.folder.mkdir()
    host.config.write_text("agent:\n  node_id: other\n", encoding="ascii")
    token = controller.token()
    result = host.join(controller.url, token)
    assert (result.exit_code, "agent.node_id has a value of its own" in result.output) == (1, True)
    assert controller.book.tokens[token[:8]].used == 0


@settings(max_examples=examples(100), deadline=None)
@given(ends=st.lists(st.integers(-4000, 4000), max_size=30), jump=st.integers(-4000, 4000))
def test_whatever_the_clock_says_few_things_are_never_forgotten(ends: list[int], jump: int) -> None:
    """Below its limits the register forgets nothing; what has not ended it never forgets."""
    now, book = world_clock().now(), Book(schema=1)
    for number, end in enumerate(ends):
        made = book.make_token(now, until=now + end * DAY, hosts=1, node_id=None, pin=bytes(32))
        new = Host(node_id=f"i-{number}", key=f"{number}", address="127.0.0.1", joined_at=now, token=made.id)
        book.note_joined(
            made_held := book.tokens[made.id], new, Issued(pem="", serial=number + 1, end=now + end * DAY), counts=True
        )
        assert made_held.used == 0
        if number % 2:
            book.revoke(new.node_id, now)
    before = (set(book.hosts), set(book.tokens), set(book.revoked_serials))
    book.prune(now + jump * DAY)
    assert (set(book.hosts), set(book.tokens), set(book.revoked_serials)) == before
