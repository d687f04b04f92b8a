"""Mistakes in files, addresses, ledgers, variables: missing, unreadable, unreachable, or of another kind."""

import errno
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch import __main__ as entry
from gpuwatch.cli.controller import why_not_served
from gpuwatch.ledger.records import LedgerError
from gpuwatch.ledger.sqlite_files import HeldFile
from tests.support.mistakes import Mistake, a_folder, answer, in_folder, mistakes
from tests.support.paths import ROOT

FILES = mistakes(
    {
        "--config no.yaml status": ("no.yaml", "No such file", "--config or GPUWATCH_CONFIG"),
        "config check --config .": ("cannot be read", "Is a directory"),
        "cost reconcile": "'--bill'",
        "cost reconcile --bill no.csv": ("no.csv cannot be read", "No such file"),
        "cost reconcile --bill .": ("cannot be read", "Is a directory"),
        "cost reconcile --bill bill.csv": ("bill.csv", "no columns node, start, cost", "it has a, b", "--column"),
        "cost reconcile --bill empty.csv": ("empty.csv", "no columns", "it has none"),
        "cost reconcile --bill binary.csv": ("binary.csv", "byte 0x80", "UTF-8"),
        "cost reconcile --bill cut.csv.gz": ("cut.csv.gz", "not a CSV file, or not a whole one"),
        "cost reconcile --bill broken.csv.gz": ("broken.csv.gz", "not a CSV file, or not a whole one"),
        "cost reconcile --bill bill.csv --column node": ("--column 'node'", "node=Instance"),
        **{
            f"cost reconcile --bill bill-{name}.csv --column node=node --column start=start --column cost=cost": words
            for name, words in {
                "nan": ("line 2", "cost is 'NaN'", "no amount"),
                "small": ("line 2", "cost is '1E-99999999'", "no amount"),
                "huge": ("line 2", "cost is '1e400'", "no amount"),
                "last": ("line 2", "start is '9999-12-31T00:00:00Z'", "no time"),
            }.items()
        },
        "forecast --csv far.csv": ("far.csv", "from 2026-01-01 to 2206-01-02", "a century"),
        "forecast --csv huge.csv": ("huge.csv: line 1", "'1e308'", "1e+15 at most"),
        "forecast --csv last.csv": ("last.csv", "'9999-12-31T00:00Z' is not a time"),
        "recommend commitments --csv far.csv --price 3": ("far.csv", "a century"),
        "recommend ownership --csv huge.csv --price 9 --rent 3": ("huge.csv: line 1", "1e+15 at most"),
        "backtest --trace milliseconds.csv": ("milliseconds.csv:2", "busy_from_s is 1767225600000", "divided by 1000"),
        f"config init {'x' * 300}": "File name too long",
        f"export alerts {'x' * 300}": "File name too long",
        "forecast --csv no.csv": ("'--csv'", "'no.csv' does not exist"),
        "forecast --csv words.csv": ("words.csv", "line 1", "'many'"),
        "forecast --csv days.csv": ("days.csv", "line 1", "'2026-30-01T00:00Z' is not a time", "2026-11-01T00:00:00Z"),
        "forecast --csv empty.csv": ("empty.csv", "no value", "2026-11-01T00:00:00Z,42.5"),
        "forecast --csv latin.csv": ("latin.csv", "byte 0xe4", "save it as UTF-8"),
        "forecast --csv bill.csv": ("bill.csv", "'a,b'", "time and value"),
        "backtest": ("--trace FILE", "--prometheus", "--ledger"),
        "backtest --trace no.csv": ("'--trace'", "'no.csv' does not exist"),
        "backtest --trace empty.csv": ("empty.csv: is empty", "time_s"),
        "backtest --trace latin.csv": ("latin.csv", "byte 0xe4", "save it as UTF-8"),
        "backtest --trace semicolon.csv": ("semicolon.csv:1", "semicolons", "node,busy_from_s,busy_to_s"),
        "backtest --trace reversed.csv": ("reversed.csv:2", "busy_to_s is 0"),
        "backtest --trace overlap.csv": ("overlap.csv:3", "800", "900"),
        "backtest --trace load.csv --prometheus http://x": "--trace and --prometheus are both given",
        "backtest --trace load.csv --from 30d": "--from says nothing about --trace",
        "backtest --trace load.csv --compare sometimes": ("--compare", "'sometimes'", "timeout=10m"),
        "backtest --trace load.csv --compare timeout=10": ("--compare", "'timeout=10'", "no unit", "timeout=10m"),
        "backtest --trace load.csv --compare pool": "--pool is missing",
        "backtest --trace load.csv --compare pool --pool trainig": ("--pool 'trainig'", "'training'"),
        "backtest --trace load.csv --restart-cost 10": ("'--restart-cost'", "'10' has no unit"),
        "backtest --trace load.csv --restart-cost cheap": ("'--restart-cost'", "'cheap'"),
        "backtest --trace load.csv --gpus-per-node 0": ("'--gpus-per-node'", "1<=x<=64"),
        "backtest --trace load.csv --stops few": ("'--stops'", "'few'", "'all'"),
        "backtest --ledger no.db": "no.db does not exist",
        "backtest --ledger broken.db": "broken.db is no ledger",
        "backtest --ledger .": (". is a directory", "ledger.path"),
        "demo --headless --trace bill.csv": ("bill.csv:1", "time_s"),
        "export alerts": "'DIR'",
        "export alerts bill.csv": "'bill.csv' is a file",
        "export alerts out --format yaml": ("'--format'", "'yaml'", "'operator'"),
        "export alerts out --runbooks docs": ("'--runbooks'", "'docs'", "https://"),
        "export iam /proc/x": "/proc/x cannot be written",
        "top --user x --once --agent http://127.0.0.1:1 --password-file no": ("--password-file", "No such file"),
        "top --user x --once --agent http://127.0.0.1:1 --password-file latin.csv": ("--password-file", "byte 0xe4"),
    }
)
PLACES = mistakes(
    {
        "backtest --prometheus 127.0.0.1:9090": ("--prometheus", "http://127.0.0.1:9090"),
        "backtest --prometheus http://127.0.0.1:1": ("http://127.0.0.1:1", "refuses connections"),
        "backtest --prometheus http://127.0.0.1:1 --from 2999-01-01": ("'2999-01-01' lies in the future", "30d"),
        "backtest --prometheus http://127.0.0.1:1 --step 1h": ("--step", "15s to 5m"),
        "backtest --prometheus http://127.0.0.1:1 --dialect nvml": ("'--dialect'", "'nvml'", "'dcgm'"),
        "backtest --prometheus": ("signals.promql.url", "--prometheus URL"),
        "top --once --agent http://127.0.0.1:1": ("no agent answers at http://127.0.0.1:1", "refuses"),
        "GPUWATCH_LEDGER__PATH=. rounds": (". is a directory", "ledger.db", "ledger.path"),
        "GPUWATCH_LEDGER__PATH=/ cost": ("/ is a directory", "ledger.path"),
        "GPUWATCH_LEDGER__PATH=no.db resume": ("no.db does not exist", "`gpuwatch controller`"),
        "GPUWATCH_LEDGER__PATH=broken.db audit log": ("broken.db is no ledger", "ledger.path"),
        "GPUWATCH_LEDGER__PATH=bill.csv/x.db audit log": "bill.csv/x.db",
        "GPUWATCH_PRICES__FILE=/nonexistent prices": ("/nonexistent", "No such file", "prices.file"),
        "GPUWATCH_PRICES__FILE=binary.csv prices": ("binary.csv", "byte 0x80", "YAML or CSV"),
    }
)
# These questions were understood, and the answer is no.
ANSWERED = mistakes(
    {
        "status": ("no usable AWS credentials", "AWS_PROFILE", "a role"),
        "plan": "no usable AWS credentials",
        "explain nope": "no usable AWS credentials",
        "blocked --pool training": "no usable AWS credentials",
        "notify test": ("chat", "refuses"),
    },
    status=1,
)
VARIABLES = mistakes(
    {
        "GPUWATCH_CONFIG=/nonexistent.yaml config check": ("/nonexistent.yaml", "No such file"),
        "GPUWATCH_MODE=enforced config check": ("GPUWATCH_MODE", '"enforced"', "observe, enforce"),
        "GPUWATCH_INTERVAL=soon config check": ("GPUWATCH_INTERVAL", '"soon"', "30m"),
        "GPUWATCH_INTERVAL=5 config check": ("GPUWATCH_INTERVAL", '"5" has no unit', "5m"),
        "GPUWATCH_LEDGER_PATH=/x config check": ("GPUWATCH_LEDGER_PATH", "GPUWATCH_LEDGER__PATH"),
        "GPUWATCH_LIMITS__MAX_STOPS_PER_HUOR=3 status": "GPUWATCH_LIMITS__MAX_STOPS_PER_HOUR",
        "GPUWATCH_LIMITS=3 config check": ("GPUWATCH_LIMITS", "one key of it"),
        "GPUWATCH_CLOUD__REGIONS=us-east-9 status": ("GPUWATCH_CLOUD__REGIONS", "'us-east-9'", "us-east-1"),
        "GPU_WATCH_MODE=enforce config check": ("GPU_WATCH_MODE", "GPUWATCH_MODE"),
    }
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder, made once."""
    return a_folder(tmp_path_factory.mktemp("begun"))


@pytest.fixture
def taken() -> Iterator[int]:
    """A port where somebody else listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("mistake", FILES + PLACES + ANSWERED + VARIABLES, ids=lambda mistake: mistake.line)
def test_a_mistake_is_answered_by_what_would_be_right(
    mistake: Mistake, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer names the file, the address or the variable, and what is wrong with it."""
    in_folder(made, monkeypatch)
    told = answer(mistake, monkeypatch)

    assert [words for words in mistake.words if words not in " ".join(told.split())] == [], told


def test_a_port_that_is_taken_is_named(taken: int, made: Path) -> None:
    """The agent ends with 2, and says which setting chooses another port."""
    command = [sys.executable, "-m", "gpuwatch", "agent", "--source", "simulated", "--listen", f"127.0.0.1:{taken}"]
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(ROOT), "GPUWATCH_CONFIG": str(made / "gpuwatch.yaml")},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.returncode == 2, done.stderr
    assert f"cannot listen on 127.0.0.1 port {taken}: Address already in use; end what listens there" in done.stderr
    assert "or choose another agent.port" in done.stderr
    assert "Errno" not in done.stderr


def test_a_controllers_port_that_is_taken_is_told() -> None:
    """With what chooses another one, and what is missing until then."""
    why = why_not_served(OSError(errno.EADDRINUSE, "Address already in use"))

    assert why.startswith("Address already in use; end what listens there, or choose another controller.port.")
    assert "this machine has no such address (controller.host)" in why_not_served(OSError(errno.EADDRNOTAVAIL, "x"))
    assert "choose a controller.port from 1024 on" in why_not_served(OSError(errno.EACCES, "Permission denied"))
    assert why_not_served(ValueError("no certificate")) == "no certificate"


def test_a_ledger_in_a_folder_that_is_closed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an ordinary mistake, for the controller, too."""

    def closed(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_dir", closed)
    with pytest.raises(
        LedgerError, match=r"ledger.db cannot be opened \(Permission denied\); run this as root or as the"
    ):
        HeldFile(tmp_path / "ledger.db")


@pytest.mark.parametrize("words", [["--config", "closed.yaml", "status"], ["status", "--config", "closed.yaml"]])
def test_settings_that_may_not_be_read_are_told_as_that(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever call fails, also where not even the folder may be entered: no line speaks of a traceback."""
    monkeypatch.chdir(tmp_path)
    true = Path.exists

    def closed(path: Path) -> bool:
        if path.name == "closed.yaml":
            raise PermissionError(13, "Permission denied", str(path))
        return true(path)

    monkeypatch.setattr(Path, "exists", closed)
    told = answer(Mistake(" ".join(words), ()), monkeypatch)

    assert told.startswith("closed.yaml: cannot be read: Permission denied\n    expected: a readable file")


def test_an_error_of_the_machine_names_its_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An option before the command is none."""

    def fails() -> int:
        raise OSError(errno.ENOSPC, "No space left on device", "/x")

    monkeypatch.setattr(entry, "_run", fails)
    monkeypatch.setattr(sys, "argv", ["gpuwatch", "--config", "a.yaml", "status"])

    assert entry.main() == 2
    assert capsys.readouterr().err.startswith("gpuwatch status: /x: No space left on device.")


def test_a_full_disk_is_told_as_that(tmp_path: Path) -> None:
    """A ledger that cannot be begun for want of room is not called another file."""
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192));"
        "from gpuwatch.ledger import Ledger, LedgerSettings; Ledger.connect(LedgerSettings(path=sys.argv[1]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "ledger.db")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert "ledger.db cannot be written: the disk is full or fails; make room there" in done.stderr
    assert "is no ledger" not in done.stderr


def test_what_a_check_finds_missing_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that settings name may lie on another machine; a file of settings that says nothing is told, too."""
    monkeypatch.chdir(tmp_path)
    written = "tls_certificate: no.pem, tls_key: key.pem, health_file: new.json"  # the agent writes the last one itself
    (tmp_path / "a.yaml").write_text(f"agent: {{{written}}}\n", encoding="utf-8")
    (tmp_path / "key.pem").touch()
    (tmp_path / "empty.yaml").write_text("# nothing yet\n", encoding="utf-8")
    told = answer(Mistake("config check --config a.yaml", (), status=0), monkeypatch, most_lines=9)
    empty = answer(Mistake("config check --config empty.yaml", (), status=0), monkeypatch, most_lines=9)

    assert "Warning: agent.tls_certificate: this machine has no file no.pem\n" in told
    assert "key.pem" not in told
    assert "new.json" not in told
    assert empty.startswith("OK: empty.yaml sets nothing, so all defaults hold: mode observe")
