"""The runner of the test suite: nothing that a test starts outlives the run."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.real.agents import eventually

# A worker that starts a daemon as PostgreSQL's pg_ctl does, says its number, and goes on as told.
_WORKER = """
import os, sys
ready, told = os.pipe()
if os.fork() == 0:
    os.setsid()
    daemon = os.fork()
    if daemon == 0:
        os.close(0), os.close(1), os.close(2)
        os.execvp("sleep", ["sleep", "600"])
    os.write(told, str(daemon).encode())
    os._exit(0)
os.wait()
daemon = int(os.read(ready, 100))
open(sys.argv[1], "w").write(str(daemon))
{then}
"""


def _run(folder: Path, then: str) -> tuple["subprocess.CompletedProcess[str]", int]:
    """Run that worker contained; also gives its daemon's number."""
    noted = folder / "pid"
    code = "import sys; from tests.support.contained import contained; sys.exit(contained(sys.argv[1:], 0.2))"
    worker = [sys.executable, "-c", _WORKER.format(then=then), str(noted)]
    done = subprocess.run(
        [sys.executable, "-c", code, *worker], capture_output=True, text=True, timeout=60, cwd=ROOT, check=False
    )
    return done, int(noted.read_text())


def _gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("then", ["sys.exit(0)", "os.kill(os.getpid(), 9)"], ids=["it ends", "it is killed"])
def test_a_daemon_that_a_worker_leaves_is_ended_and_named(tmp_path: Path, then: str) -> None:
    """However the worker ends, the run fails and says what was left."""
    done, daemon = _run(tmp_path, then)

    assert _gone(daemon)
    assert done.returncode != 0
    assert f"process {daemon} was left running by the tests and is ended now: sleep 600" in done.stderr


def test_a_run_that_leaves_nothing_keeps_its_status(tmp_path: Path) -> None:
    """Success and failure come through, and nothing is said."""
    ended, _ = _run(tmp_path, f"os.kill(daemon, {signal.SIGKILL:d}); sys.exit(0)")
    failed, _ = _run(tmp_path, f"os.kill(daemon, {signal.SIGKILL:d}); sys.exit(5)")

    assert (ended.returncode, ended.stderr) == (0, "")
    assert (failed.returncode, failed.stderr) == (5, "")


def test_a_run_that_is_terminated_ends_its_tests_first(tmp_path: Path) -> None:
    """SIGTERM, as of a CI that has waited for too long, reaches the command; its daemon goes with it."""
    noted = tmp_path / "pid"
    worker = [sys.executable, "-c", _WORKER.format(then="import time; time.sleep(600)"), str(noted)]
    code = "import sys; from tests.support.contained import contained; sys.exit(contained(sys.argv[1:], 0.2))"
    with subprocess.Popen([sys.executable, "-c", code, *worker], cwd=ROOT, stderr=subprocess.PIPE) as running:
        eventually(lambda: noted.exists() and noted.read_text())
        running.terminate()
        status = running.wait(30)

    assert status == 128 + signal.SIGTERM
    assert _gone(int(noted.read_text()))


@pytest.mark.component("pg_ctl")
def test_the_tests_postgresql_does_not_outlive_a_killed_worker() -> None:
    """Also where nothing contains the run: the kernel tells the server that its test process is gone."""
    code = "from tests.support.real.postgresql import postgresql as p; print(p().folder, flush=True); input()"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as worker:
        assert worker.stdout is not None
        folder = Path(worker.stdout.readline().strip())
        server = int((folder / "data/postmaster.pid").read_text().splitlines()[0])
        assert not _gone(server)
        worker.kill()
    eventually(lambda: _gone(server))
    shutil.rmtree(folder)
