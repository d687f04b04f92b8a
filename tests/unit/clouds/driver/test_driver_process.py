"""One run of a driver: what it gets, what runs, and that its end is certain; `test_driver.py` has the table."""

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from gpuwatch.clouds import AuthFailedError, CloudError, CloudUnavailableError, PermitExpiredError
from gpuwatch.clouds.driver.process import NOT_RUN, Ended, check_executable, run
from gpuwatch.clouds.permit import Permit
from tests.support.builders.fleet import NOW
from tests.support.clouds.driver.scripted import MACHINES, SECRET, Driver, a_permit
from tests.support.real.agents import eventually


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    """One that does nothing wrong yet."""
    return Driver(tmp_path)


def has_ended(process: str) -> bool:
    """Whether a process runs no more; whoever took it over may not have waited for it."""
    try:
        return not Path(f"/proc/{process}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return True


# The end of a permit


def test_a_driver_is_killed_with_its_children_at_the_end_of_the_permit(driver: Driver) -> None:
    """It catches what can be caught; what became of the stop is not known."""
    driver.does("stop", f"trap '' TERM INT HUP; sleep 1000 & echo $$ $! >{driver.folder}/running; wait")
    cloud, running = driver.cloud(), driver.folder / "running"
    cloud.nodes()
    for seconds in (0.3, 1.0, 5.0, 30.0):  # on a busy machine it has not begun by then
        # Where this process has no turn for a fifth of a second, timeout(1) kills it first, with status 137.
        with pytest.raises(CloudUnavailableError, match=r"did not end within|status -9|status 137"):
            cloud.stop("m-1", "key", permit=a_permit(seconds))
        if running.exists() and running.read_text(encoding="utf-8").split():
            break

    for process in running.read_text(encoding="utf-8").split():
        eventually(lambda process=process: has_ended(process))  # type: ignore[misc]


def test_a_driver_does_not_outlive_its_permit_where_gpuwatch_ends(driver: Driver) -> None:
    """Killed in the middle of a change, gpuwatch kills nobody: timeout(1) does."""
    running = driver.folder / "running"
    driver.script(f"cat >/dev/null; echo $$ >{running}; exec sleep 1000")
    for seconds in (1.0, 5.0, 30.0):  # a busy machine may not have begun by then
        code = (
            "from pathlib import Path; from gpuwatch.clouds.driver.process import run; "
            f"run(Path({str(driver.path)!r}), b'{{}}', environment={{}}, seconds={seconds}, before=lambda: None)"
        )
        ours = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
        eventually(lambda ours=ours: ours.poll() is not None or running.exists())  # type: ignore[misc]
        ours.kill()
        if ours.wait() == -signal.SIGKILL and running.exists():
            break

    eventually(lambda: has_ended(running.read_text(encoding="utf-8").strip() or "self"))


def test_a_process_that_a_driver_leaves_behind_is_killed_and_not_waited_for(driver: Driver) -> None:
    """It holds the output open; the answer was whole before."""
    driver.does("stop", f"sleep 1000 & echo $! >{driver.folder}/left")

    assert driver.cloud().stop("m-1", "key", permit=a_permit()).ran

    left = (driver.folder / "left").read_text(encoding="utf-8").strip()
    eventually(lambda: has_ended(left))


@pytest.mark.parametrize("permit", [a_permit(leads=False), a_permit(-1.0)])
def test_without_a_permit_that_holds_a_driver_gets_no_request(driver: Driver, permit: Permit) -> None:
    """It is killed before it can read one."""
    with pytest.raises(PermitExpiredError):
        driver.cloud().stop("m-1", "key", permit=permit)

    assert driver.asked("stop") == []


def test_a_change_carries_its_key_and_the_end_of_its_permit(driver: Driver) -> None:
    """Once, and after a look at the machine."""
    driver.cloud().stop("m-1", "key-7", permit=a_permit(4.0))

    (asked,) = driver.asked("stop")
    assert (asked["id"], asked["key"], asked["deadline"]) == ("m-1", "key-7", (NOW + timedelta(seconds=4)).isoformat())
    assert len(driver.asked("get")) == 1


def test_a_machine_that_is_stopped_already_is_not_stopped_again(driver: Driver) -> None:
    """It is success, and no stop of ours."""
    driver.says("get", machine={**MACHINES[0], "state": "stopping"})

    assert not driver.cloud().stop("m-1", "key", permit=a_permit()).ran
    assert driver.asked("stop") == []


# What a driver gets


def test_a_driver_gets_secrets_by_its_input_alone(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by arguments nor by variables; of our environment it gets what the settings name."""
    monkeypatch.setenv("GPUWATCH_LEDGER_URL", "secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("NO_PROXY", "little.example")
    driver.cloud(environment=("NO_PROXY", "HTTPS_PROXY"), options={"color": "red"}).nodes()

    (asked,) = driver.asked("list")
    variables = (driver.folder / "environment").read_text(encoding="utf-8")
    names = {line.partition("=")[0] for line in variables.splitlines()}
    assert (asked["secrets"], asked["options"], asked["fleet"]) == ({"token": SECRET}, {"color": "red"}, "lab")
    assert names - {"PWD", "OLDPWD", "SHLVL", "_"} == {"PATH", "LC_ALL", "TZ", "NO_PROXY"}
    assert (driver.folder / "arguments").read_text(encoding="utf-8").splitlines() == [str(driver.path)]


def test_the_first_lines_of_a_complaint_are_shown_without_secrets(driver: Driver) -> None:
    """On one line, without control characters."""
    driver.does("get", f"printf 'Traceback\\n  with {SECRET}\\n\\033[31m\\nKeyError\\n' >&2; exit 1")

    with pytest.raises(CloudUnavailableError) as caught:
        driver.cloud().node("m-1")

    assert str(caught.value) == "get m-1: the driver driver failed with status 1: Traceback / with *** / … / KeyError"


def test_a_refusal_is_shown_without_secrets(driver: Driver) -> None:
    """A cloud may quote the request."""
    driver.says("get", error={"kind": "auth", "code": "Denied", "message": f"the token {SECRET} is not known"})

    with pytest.raises(AuthFailedError, match=r"^get m-1: the token \*\*\* is not known \(Denied\)$") as caught:
        driver.cloud().node("m-1")
    assert caught.value.code == "Denied"


def test_a_secret_that_cannot_be_read_is_said(driver: Driver) -> None:
    """By its file; nothing is run."""
    (driver.folder / "secret").unlink()

    with pytest.raises(AuthFailedError, match="secret: No such file"):
        driver.cloud().nodes()
    assert not (driver.folder / "asked").exists()


def test_at_most_four_runs_at_once(driver: Driver) -> None:
    """However many threads ask."""
    folder = driver.folder / "now"
    folder.mkdir()
    counts = driver.folder / "counts"
    driver.does("get", f"mkdir {folder}/$$; ls {folder} | wc -l >>{counts}; sleep 0.05; rmdir {folder}/$$")
    cloud = driver.cloud()
    cloud.nodes()

    with ThreadPoolExecutor(12) as threads:
        list(threads.map(cloud.node, ["m-1"] * 12))

    assert max(map(int, counts.read_text(encoding="utf-8").split())) <= 4
    assert threading.active_count() < 50


# What is run


def test_a_driver_that_others_can_write_is_not_run(driver: Driver) -> None:
    """Also when that comes later; the message says what would be right."""
    cloud = driver.cloud()
    driver.path.chmod(0o777)

    with pytest.raises(CloudError, match="others than its owner can write it; chmod go-w") as caught:
        cloud.nodes()
    with pytest.raises(CloudError):
        driver.cloud()
    assert caught.value.code == NOT_RUN


def test_a_driver_in_a_folder_that_others_can_write_is_not_run(driver: Driver) -> None:
    """Whoever writes there can put another file in its place."""
    driver.folder.chmod(0o777)

    with pytest.raises(CloudError, match=f"others can write its folder {driver.folder}"):
        driver.cloud()
    driver.folder.chmod(0o1777)
    check_executable(driver.path)


def test_a_driver_of_another_user_is_not_run(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root and this user are trusted, and nobody else."""
    if os.geteuid() == 0:
        os.chown(driver.path, 12345, 12345)
    monkeypatch.setattr("os.geteuid", lambda: 54321)

    with pytest.raises(CloudError, match="it belongs to the user"):
        driver.cloud()


@pytest.mark.parametrize(("wrong", "why"), [("missing", "No such file"), ("folder", "not a file"), ("plain", "chmod")])
def test_what_is_no_executable_is_not_run(driver: Driver, wrong: str, why: str) -> None:
    """Before anything is asked."""
    driver.path.unlink()
    if wrong == "folder":
        driver.path.mkdir()
    elif wrong == "plain":
        driver.path.write_text("#!/bin/sh\n", encoding="utf-8")
        driver.path.chmod(0o644)

    with pytest.raises(CloudError, match=why):
        driver.cloud()


def test_a_file_that_no_kernel_runs_has_not_been_asked(driver: Driver) -> None:
    """Its interpreter is not there: the guard's status says so, and that is a doubt of a read alone."""
    driver.path.write_text("#!/nowhere/python\n", encoding="utf-8")

    with pytest.raises(CloudUnavailableError, match="status 12"):
        driver.cloud().nodes()


def test_a_run_gives_status_output_and_complaints(driver: Driver) -> None:
    """As they were, however large within the bounds."""
    driver.script("cat; printf no >&2; exit 4")

    ended = run(driver.path, b"x" * 40_000, environment={}, seconds=60.0, before=lambda: None)

    assert ended == Ended(status=4, output=b"x" * 40_000, complaints=b"no")
