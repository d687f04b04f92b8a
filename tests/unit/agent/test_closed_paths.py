"""agent/closed_paths: which closed files may be opened at all, and that no link leads out of a home."""

import errno
import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent import closed_paths
from gpuwatch.agent.closed_paths import FILE, FOLDER, STATUS, Rule, open_closed

ALLOWED = {
    FILE: [
        "/var/spool/cron/crontabs/alice",
        "/var/spool/cron/alice",
        "/var/spool/incron/alice",
        "/etc/cron.d/own",
        "/etc/crontab",
        "/run/user/1000/systemd/transient/run-1.timer",
        "/run/user/1000/systemd/transient/run-1.timer.d/own.conf",
        "/home/alice/.config/systemd/user/train.timer",
        "/home/alice/.config/systemd/user/timers.target.wants/train.timer",
        "/home/alice/.local/share/jupyter/runtime/jpserver-1.json",
        "/root/.config/systemd/user/train.timer",
        "/proc/net/nf_conntrack",
    ],
    FOLDER: ["/var/spool/at", "/var/spool/cron/atjobs", "/home", "/root", "/var/log/pods", "/etc/cron.d"],
    STATUS: ["/var/spool/cron/atjobs/a0000101e3c4d5", "/home/alice", "/root/alice"],
}
REFUSED = {
    FILE: [
        "/etc/shadow",
        "/etc/ssh/ssh_host_ed25519_key",
        "/home/alice/.ssh/id_ed25519",
        "/home/alice/.aws/credentials",
        "/home/alice/.config/gcloud/credentials.db",
        "/home/alice/notes",
        "/root/.kube/config",
        "/var/lib/gpuwatch/ledger.db",
        "/home/alice/.config/systemd/user/a/b/c",
        "/home/alice/.config/systemd/user/../../../.ssh/id_ed25519",
        "/home/alice//.config/systemd/user/a.timer",
        "/var/spool/cron/crontabs/../../../etc/shadow",
        "/proc/1/environ",
        "/proc/net/nf_conntrack_expect",
        "home/alice",
        "/var/log/pods/team_pod_uid/0.log",
    ],
    FOLDER: ["/home/alice", "/home/alice/.ssh", "/root/work", "/etc", "/var/log", "/home/alice/.config"],
    STATUS: ["/home/alice/.ssh", "/root/alice/key", "/etc/shadow"],
}


@pytest.mark.parametrize(("kind", "path"), [(kind, path) for kind in ALLOWED for path in ALLOWED[kind]])
def test_what_the_signals_read_is_on_the_list(kind: str, path: str) -> None:
    """Else it would be a doubt for ever."""
    assert closed_paths._splits(path, kind, ())


@pytest.mark.parametrize(("kind", "path"), [(kind, path) for kind in REFUSED for path in REFUSED[kind]])
def test_nothing_else_is_opened(kind: str, path: str) -> None:
    """Whatever its mode is: keys, credentials, a home's own files."""
    with pytest.raises(PermissionError):
        os.close(open_closed(path, kind))


@given(st.text(st.sampled_from("ab./~\0\\ hometrs"), max_size=40))
def test_no_path_that_is_made_up_leaves_its_folder(tail: str) -> None:
    """Below a home only two folders are open, however the rest is written."""
    path = f"/home/alice/{tail}"
    for base, below, _ in closed_paths._splits(path, FILE, ()):
        assert base in {"/home", "/home/alice"}
        assert re.match(r"(?:alice/)?\.(config/systemd/user|local/share/jupyter/runtime)(/|\Z)", below)


@pytest.fixture(params=["openat2", "an older kernel"])
def home(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of alice's next to bob's, under the rules of homes, by both ways to open."""
    if request.param != "openat2":

        def refuse(*_: object) -> int:
            raise OSError(errno.ENOSYS, "Function not implemented")

        monkeypatch.setattr(closed_paths, "_openat2", refuse)
    rule = Rule(f"{re.escape(str(tmp_path))}/[^/]+", r"\.config/systemd/user(?:/[^/]+){0,2}")
    monkeypatch.setattr(closed_paths, "RULES", (rule,))
    secret = tmp_path / "bob/secret"
    secret.mkdir(parents=True)
    (secret / "diary.timer").write_text("dear diary")
    made = tmp_path / "alice"
    (made / ".config/systemd").mkdir(parents=True)
    return made


def content(path: Path) -> str:
    """What is in it, by the reader's door."""
    opened = open_closed(str(path), FILE)
    with os.fdopen(opened, encoding="utf-8") as file:
        return file.read()


def test_a_users_timer_is_read(home: Path) -> None:
    """The file, the folder, and what the file is."""
    units = home / ".config/systemd/user"
    units.mkdir()
    (units / "a.timer").write_text("[Timer]")
    opened = [open_closed(str(units), FOLDER), open_closed(str(units / "a.timer"), STATUS)]
    try:
        assert content(units / "a.timer") == "[Timer]"
        assert os.listdir(opened[0]) == ["a.timer"]  # noqa: PTH208  of a descriptor
        assert os.fstat(opened[1]).st_size == len("[Timer]")
    finally:
        for each in opened:
            os.close(each)


def test_no_link_leads_into_another_home(home: Path) -> None:
    """Neither the folder itself, nor one above it, nor a file in it: no name and no word of bob's is shown."""
    secret = home.parent / "bob/secret"
    units = home / ".config/systemd/user"
    units.symlink_to(secret)
    for path, kind in ((units, FOLDER), (units / "diary.timer", FILE), (units / "diary.timer", STATUS)):
        with pytest.raises(OSError, match=r"symbolic|directory"):
            os.close(open_closed(str(path), kind))
    units.unlink()
    units.mkdir()
    (units / "mine.timer").symlink_to(secret / "diary.timer")
    with pytest.raises(OSError, match="symbolic"):
        content(units / "mine.timer")


def test_a_link_itself_can_be_looked_at(home: Path) -> None:
    """Where it leads to tells a package's unit from somebody's own."""
    units = home / ".config/systemd/user"
    units.mkdir()
    (units / "mine.timer").symlink_to("/usr/lib/systemd/user/theirs.timer")
    opened = open_closed(str(units / "mine.timer"), STATUS)
    try:
        assert os.readlink("", dir_fd=opened) == "/usr/lib/systemd/user/theirs.timer"
    finally:
        os.close(opened)


def test_a_pipe_is_no_file(home: Path) -> None:
    """It would hold up the reader, and a device could do anything."""
    units = home / ".config/systemd/user"
    units.mkdir()
    os.mkfifo(units / "a.timer")
    with pytest.raises(PermissionError):
        content(units / "a.timer")


def test_a_folder_that_an_administrator_names_is_open(tmp_path: Path) -> None:
    """Its files, and nothing below them."""
    (tmp_path / "jpserver-1.json").write_text("{}")

    os.close(open_closed(str(tmp_path / "jpserver-1.json"), FILE, [str(tmp_path)]))
    with pytest.raises(PermissionError):
        os.close(open_closed(str(tmp_path / "sub/jpserver-1.json"), FILE, [str(tmp_path)]))


def test_the_root_of_a_mounted_disk_can_be_listed() -> None:
    """Whether it is empty decides whether a stop loses data."""
    os.close(open_closed("/proc", FOLDER))
    with pytest.raises(PermissionError):
        os.close(open_closed("/proc/1", FOLDER))
