"""What people type by mistake, and what an answer to it must be: for the tables of mistakes in tests/unit/cli/."""

import gzip
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuwatch.cli.main import commands
from gpuwatch.ledger import Ledger, LedgerSettings

_MOST_LINES = 4  # of an answer, without click's two lines of usage
_LONGEST_LINE = 500
# Words of libraries and of Python in answers for people.
_FOREIGN = ("Traceback", "[Errno", "codec can't", "object at 0x", "ssl:default", "valid integer range", "Exception")

SETTINGS = """
fleet: lab
ledger: {path: FOLDER/ledger.db}
pools: {training: {idle: {action: stop, timeout: 10m}}}
notify: {receivers: {chat: {webhook: {url: "http://127.0.0.1:1/"}}}}
agent: {source: simulated, port: 1, evidence: {snooze: {directory: FOLDER/snoozes}}}
cloud: {regions: [us-east-1], endpoint_url: "http://127.0.0.1:1"}
"""
FILES: dict[str, bytes] = {
    "bill.csv": b"a,b\n1,2\n",
    "binary.csv": bytes(range(256)),
    "broken.db": b"this is not a database, and it is long enough to be read as one" * 20,
    "cut.csv.gz": b"\x1f\x8b\x08\x00\x00\x00\x00\x00",
    "days.csv": b"2026-30-01T00:00Z,1\n",
    "empty.csv": b"",
    "far.csv": b"2026-01-01T00:00Z,1\n2206-01-02T00:00Z,1\n",
    "huge.csv": b"2026-01-01T00:00Z,1e308\n",
    "last.csv": b"9999-12-31T00:00Z,1\n",
    "bill-nan.csv": b"node,start,cost\ni-1,2026-03-20T00:00:00Z,NaN\n",
    "bill-huge.csv": b"node,start,cost\ni-1,2026-03-20T00:00:00Z,1e400\n",
    "bill-small.csv": b"node,start,cost\ni-1,2026-03-20T00:00:00Z,1E-99999999\n",
    "bill-last.csv": b"node,start,cost\ni-1,9999-12-31T00:00:00Z,1\n",
    "latin.csv": "zeit,wert\nMärz,1\n".encode("latin-1"),
    "long.csv": b"a" * 200_000,
    "broken.csv.gz": gzip.compress(b"a")[:10] + b"\xff" * 30,
    "milliseconds.csv": b"node,busy_from_s,busy_to_s\na,1767225600000,1767229200000\n",
    "load.csv": b"node,busy_from_s,busy_to_s\na,0,900\na,7200,9000\n",
    "overlap.csv": b"node,busy_from_s,busy_to_s\na,0,900\na,800,1000\n",
    "reversed.csv": b"node,busy_from_s,busy_to_s\na,900,0\n",
    "semicolon.csv": b"node;busy_from_s;busy_to_s\na;0;900\n",
    "series.csv": b"".join(b"2026-01-%02dT00:00Z,%d\n" % (day, day) for day in range(1, 31)),
    "words.csv": b"2026-01-01T00:00Z,many\n",
}


@dataclass(frozen=True, slots=True)
class Mistake:
    """A line as it is typed after `gpuwatch`, variables before it; the exit status; words of the answer."""

    line: str
    words: tuple[str, ...]
    status: int = 2


def mistakes(rows: Mapping[str, str | tuple[str, ...]], status: int = 2) -> list[Mistake]:
    """A table: what is typed, and the words that its answer must have."""
    return [Mistake(line, (words,) if isinstance(words, str) else words, status) for line, words in rows.items()]


def a_folder(folder: Path) -> Path:
    """The files of somebody who has just begun: settings, a ledger without a round, and files that are wrong."""
    for name, body in FILES.items():
        (folder / name).write_bytes(body)
    (folder / "gpuwatch.yaml").write_text(SETTINGS.replace("FOLDER", str(folder)), encoding="utf-8")
    ledger = Ledger.connect(LedgerSettings(path=str(folder / "ledger.db")))
    ledger.lead()
    ledger.close()
    (folder / "snoozes").mkdir()
    return folder


def in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in the folder, with its settings and no cloud's credentials."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("GPUWATCH_CONFIG", str(folder / "gpuwatch.yaml"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    return folder


def answer(mistake: Mistake, monkeypatch: pytest.MonkeyPatch, most_lines: int = _MOST_LINES) -> str:
    """What is answered, once it was found to be an answer at all: the status, no traceback, few and plain lines."""
    words = shlex.split(mistake.line)
    while words and "=" in words[0] and not words[0].startswith("-"):
        name, _, value = words.pop(0).partition("=")
        monkeypatch.setenv(name, value)
    done = CliRunner().invoke(commands, words, prog_name="gpuwatch")
    assert done.exception is None or isinstance(done.exception, SystemExit), repr(done.exception)
    assert done.exit_code == mistake.status, done.output
    lines = list(_told(done.output))
    assert 0 < len(lines) <= most_lines, done.output
    assert max(map(len, lines)) <= _LONGEST_LINE, done.output
    assert [word for word in _FOREIGN if word in done.output] == []
    assert done.output.replace("\n", "").replace("\t", "").isprintable(), done.output
    return done.output


def _told(output: str) -> Iterator[str]:
    """The lines without how the command is used, which precedes some answers."""
    usage = False
    for line in output.splitlines():
        usage = (usage or line.lower().startswith("usage: ")) and not line.startswith(("Try ", "gpuwatch "))
        if line and not usage and not line.startswith("Try "):
            yield line
