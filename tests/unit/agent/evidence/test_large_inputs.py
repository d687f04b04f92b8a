"""Whoever may write somewhere may write a lot: what the agent reads there is bounded, and more than that is unknown."""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.agent.evidence import files
from gpuwatch.agent.evidence.base import HostSignal, UnseenError
from gpuwatch.agent.evidence.files import list_paths, processes, read_small
from gpuwatch.agent.evidence.inhibitors import Inhibitors
from gpuwatch.agent.evidence.jupyter import _KERNELS, Jupyter
from gpuwatch.agent.evidence.sessions import People
from gpuwatch.agent.evidence.settings import InhibitorSettings, JupyterSettings, SessionSettings, SnoozeSettings
from gpuwatch.agent.evidence.snoozes import Snoozes, make_directory
from gpuwatch.model.activity import State
from tests.support.fakes.host import FolderHost

RUNTIME = "home/mallory/.local/share/jupyter/runtime"
ENDLESS = 10_000_000


@dataclass(slots=True)
class _Entry:
    name: str


class Flood:
    """Makes one folder hold more names than anybody can count, and counts how many are looked at."""

    def __init__(self, folder: Path, pattern: str) -> None:
        """The names are the pattern with a number in it."""
        self.folder, self.pattern, self.looked_at = folder, pattern, 0
        self._scandir = os.scandir

    def __call__(self, folder: Path) -> Any:  # noqa: ANN401  what os.scandir gives
        """As os.scandir."""
        return _Scan(self) if Path(folder) == self.folder else self._scandir(folder)

    def names(self) -> Iterator[_Entry]:
        """One after the other."""
        for number in range(ENDLESS):
            self.looked_at += 1
            yield _Entry(self.pattern.format(number))


class _Scan:
    def __init__(self, flood: Flood) -> None:
        self._names = flood.names()

    def __enter__(self) -> Iterator[_Entry]:
        return self._names

    def __exit__(self, *_: object) -> None:
        self._names.close()  # type: ignore[attr-defined]  # a generator


@pytest.fixture
def host(tmp_path: Path) -> FolderHost:
    """A host on which process 42 runs."""
    made = FolderHost(tmp_path)
    made.process(42)
    make_directory(made.root / "run/gpuwatch/snoozes")
    (made.root / RUNTIME).mkdir(parents=True)
    (made.root / "srv").mkdir()
    return made


def jupyter(host: FolderHost, **settings: Any) -> HostSignal:  # noqa: ANN401  any setting
    """The signal."""
    return Jupyter(JupyterSettings(**settings), host.roots, deadline_seconds=2.0)


FLOODED = {
    "snoozes": ("run/gpuwatch/snoozes", "{}.json", files.MOST_NAMES),
    "other files among snoozes": ("run/gpuwatch/snoozes", "x{}", files.MOST_NAMES),
    "Jupyter's files": (RUNTIME, "jpserver-{}.json", files.MOST_NAMES),
    "other files among Jupyter's": (RUNTIME, "x{}", files.MOST_NAMES),
    "a folder of the settings": ("srv", "jpserver-{}.json", files.MOST_NAMES),
    "homes": ("home", "u{}", 1 << 16),
    "inhibitors": ("run/systemd/inhibit", "{}", files.MOST_NAMES),
    "sessions": ("run/systemd/sessions", "{}", files.MOST_NAMES),
    "terminals": ("dev/pts", "{}", files.MOST_NAMES),
}


@pytest.mark.parametrize(("folder", "pattern", "most"), FLOODED.values(), ids=FLOODED.keys())
def test_a_folder_without_end_is_unknown_and_not_read(
    host: FolderHost, monkeypatch: pytest.MonkeyPatch, folder: str, pattern: str, most: int
) -> None:
    """Neither its names nor its files are collected first and counted then."""
    signals: dict[str, HostSignal] = {
        "run/gpuwatch/snoozes": Snoozes(SnoozeSettings(directory=str(host.root / "run/gpuwatch/snoozes")), host.roots),
        "run/systemd/inhibit": Inhibitors(InhibitorSettings(), host.roots),
        "run/systemd/sessions": People(SessionSettings(), host.roots),
        "dev/pts": People(SessionSettings(), host.roots),
    }
    signal = signals.get(folder, jupyter(host, runtime_dirs=(str(host.root / "srv"),)))
    flood = Flood(host.root / folder, pattern)
    monkeypatch.setattr(os, "scandir", flood)

    assert [each.says for each in host.told(signal)] == [State.UNKNOWN]
    assert flood.looked_at <= 3 * (most + 1)


def test_processes_are_not_collected(host: FolderHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that starts millions of them costs the agent no memory, and is given up."""
    monkeypatch.setattr(files, "_MOST_PROCESSES", 1000)
    flood = Flood(host.roots.proc, "{}")
    monkeypatch.setattr(os, "scandir", flood)

    with pytest.raises(UnseenError, match="more than 1000 processes"):
        list(processes(host.roots.proc))
    assert flood.looked_at <= 1002


def test_too_many_servers_are_not_asked(host: FolderHost) -> None:
    """Of one user; none of their files is read."""
    for number in range(70):
        host.write(f"{RUNTIME}/jpserver-{number}.json", "{}")
    found = host.tells(jupyter(host))

    assert (found.says, found.note) == (State.UNKNOWN, "more servers are listed than the 64 that are asked")


def test_too_many_kernels_are_not_kept(host: FolderHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer may be small and list thousands, and each of 64 servers may: they are not remembered."""
    kernel = {"execution_state": "idle", "last_activity": "2020-01-01T00:00:00Z"}
    answers = [json.dumps([{**kernel, "id": f"{server}-{number}"} for number in range(600)]) for server in range(3)]
    for server in range(3):
        host.write(f"{RUNTIME}/jpserver-{server}.json", json.dumps({"pid": 42, "port": server + 1}))
    signal = Jupyter(JupyterSettings(), host.roots, deadline_seconds=2.0)
    monkeypatch.setattr(signal, "_ask", lambda server, _: _KERNELS.decode(answers[server.port - 1]))
    found = host.tells(signal)

    assert found.says is State.UNKNOWN
    assert "more than 1024 kernels" in (found.note or "")
    assert len(signal._silence._silent_from) == 600


@pytest.mark.parametrize(("size", "read"), [(4096, True), (4097, False)])
def test_a_file_is_read_as_far_as_it_may_be_large(tmp_path: Path, size: int, read: bool) -> None:
    """A byte more, and it is unseen."""
    (tmp_path / "file").write_bytes(b"x" * size)
    try:
        contents = read_small(tmp_path / "file", 4096)
    except UnseenError:
        assert not read
    else:
        assert read
        assert len(contents.data) == size


def test_a_lease_as_large_as_a_file_can_be_is_not_read(host: FolderHost) -> None:
    """A real one is a line."""
    host.write(f"run/gpuwatch/snoozes/{os.geteuid()}.json", " " * 5000)
    found = host.tells(Snoozes(SnoozeSettings(directory=str(host.root / "run/gpuwatch/snoozes")), host.roots))

    assert found.says is State.UNKNOWN
    assert "larger than it can rightly be" in (found.note or "")


def test_a_lease_among_much_else_holds(host: FolderHost) -> None:
    """What anybody leaves in the folder beside it is nothing."""
    folder = host.root / "run/gpuwatch/snoozes"
    for name in ("notes.txt", "x", "7.json.bak", "-7.json", "٣.json", "7.json\n"):
        (folder / name).touch()

    assert list_paths(folder, re.compile(r"\d+\.json", re.ASCII)) == []
    assert host.tells(Snoozes(SnoozeSettings(directory=str(folder)), host.roots)).says is State.IDLE
