"""Real shells in real terminals: the kernel tells one at its prompt from one that waits for something else."""

import fcntl
import os
import pty
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from gpuwatch.agent.processes.process import Kind
from gpuwatch.agent.processes.shells import SUBSHELL, WAITS, HostsShells
from gpuwatch.agent.processes.table import ProcessTable
from gpuwatch.runtime.clock import SystemClock
from tests.support.paths import ROOT

BASH, DASH = ["bash", "--norc", "-i"], ["dash", "-i"]
PATIENCE = 500
_NUMBER = 0x80045430  # TIOCGPTN
AT_REST: set[str] = set()

CASES = [
    (BASH, "", AT_REST),
    (BASH, "tail -f /dev/null", AT_REST),
    (BASH, "read -t 36000; true", {WAITS}),
    (BASH, "read -n 1 -t 36000; true", {WAITS}),
    (BASH, "sleep 1000 & wait; true", {WAITS}),
    (BASH, "while read f; do true; done < <(tail -f /dev/null)", {WAITS}),
    (BASH, "tail -f /dev/null | while read f; do true; done", {SUBSHELL}),
    (BASH, "(tail -f /dev/null; true) &", {SUBSHELL}),
    (DASH, "", AT_REST),
    (DASH, "tail -f /dev/null", AT_REST),
    (DASH, "sleep 1000 & wait; true", {WAITS}),
    (DASH, "tail -f /dev/null | while read f; do true; done", {SUBSHELL}),
]


@contextmanager
def a_terminal(words: list[str]) -> Iterator[tuple[int, int, int]]:
    """A shell in a terminal of its own: its pid, our end, and the terminal's number; all of it ends with the block."""
    if shutil.which(words[0]) is None:
        pytest.skip(f"there is no {words[0]} here")
    pid, ours = pty.fork()
    if pid == 0:
        try:
            os.environ.pop("INSIDE_EMACS", None)
            os.environ["TERM"] = "xterm"
            os.execvp(words[0], words)  # noqa: S606  a shell, as a login starts it
        finally:
            os._exit(1)
    try:
        number = int.from_bytes(fcntl.ioctl(ours, _NUMBER, b"\0" * 4), sys.byteorder)
        yield pid, ours, number
    finally:
        for each in of_session(pid):
            with suppress(ProcessLookupError):  # it ends with the one before it
                os.kill(each, signal.SIGKILL)
        os.close(ours)
        os.waitpid(pid, 0)


def of_session(session: int) -> list[int]:
    """The living processes of a terminal's session."""
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdecimal():
            try:
                fields = (each / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(each.name))
    return found


def said(session: int) -> set[str]:
    """By which rules shells of a session are work, with the host's own terminals."""
    proc, etc, usr, run = map(Path, ("/proc", "/etc", "/usr", "/run"))
    table = ProcessTable(proc, etc, usr, run, shells=HostsShells(proc, Path("/dev")))
    found = table.read_processes(1.0).processes
    theirs = [found[pid] for pid in of_session(session) if pid in found]
    return {each.rule for each in theirs if each.kind is Kind.PEOPLE and each.rule in {WAITS, SUBSHELL}}


def becomes(session: int, ours: int, rules: set[str]) -> set[str]:
    """What is said at last: what is expected twice in a row, or whatever it is when patience ends."""
    answers: list[set[str]] = []
    while len(answers) < PATIENCE and answers[-2:] != [rules, rules]:
        os.set_blocking(ours, False)
        with suppress(BlockingIOError):
            os.read(ours, 1 << 16)  # what the shell writes, or it would wait for a reader
        SystemClock().sleep(0.05)
        answers.append(said(session))
    return answers[-1]


@pytest.mark.skipif(os.geteuid() != 0, reason="a shell of another user may not be looked into")
@pytest.mark.parametrize(("words", "typed", "rules"), CASES, ids=[f"{words[0]}: {typed}" for words, typed, _ in CASES])
def test_the_kernel_tells_what_a_shell_waits_for(words: list[str], typed: str, rules: set[str]) -> None:
    """Whatever is typed at its prompt; the look leaves the terminal's times alone."""
    with a_terminal(words) as (pid, ours, number):
        assert becomes(pid, ours, AT_REST) == AT_REST
        if typed:
            os.write(ours, f"{typed}\n".encode())
            found = becomes(pid, ours, rules)
        else:
            found = said(pid)
        before = Path(f"/dev/pts/{number}").stat()
        said(pid)
        after = Path(f"/dev/pts/{number}").stat()

    assert found == rules
    assert (before.st_atime_ns, before.st_mtime_ns) == (after.st_atime_ns, after.st_mtime_ns)


LOOK = """
import sys, termios
from gpuwatch.agent import closed_reader
from gpuwatch.agent.processes.shells import HostsShells
from pathlib import Path
closed_reader.begin()
closed_reader.allow([])
looks = HostsShells(Path("/proc"), Path("/dev"))
looks.begin()
modes, waits = looks.modes(136 << 8 | int(sys.argv[1])), looks.waits_in(int(sys.argv[2]))
print(None if modes is None else modes & 0o12, waits is not None and "0" not in waits.split("_"))
"""


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="root gives the capabilities of the unit, by setpriv"
)
@pytest.mark.parametrize(
    ("mode", "group", "gives", "expected"),
    [
        (0o620, True, "", "0 False"),  # as the chart's pod
        (0o600, True, "", "None False"),
        (0o600, True, "+dac_read_search,+sys_ptrace", "0 True"),  # as the unit, after `mesg n`
        (0o620, False, "", "None False"),
    ],
)
def test_whoever_may_not_open_a_terminal_does_not_know(mode: int, group: bool, gives: str, expected: str) -> None:
    """The group tty may ask; after `mesg n` the agent's reader does; without either it is not known."""
    with a_terminal(BASH) as (pid, ours, number):
        assert becomes(pid, ours, AT_REST) == AT_REST
        terminal = Path(f"/dev/pts/{number}")
        terminal.chmod(mode)
        os.chown(terminal, 0, 5)
        groups = ["--groups=5"] if group else ["--clear-groups"]
        rights = [f"--inh-caps={gives}", f"--ambient-caps={gives}"] if gives else []
        command = ["setpriv", "--reuid=12099", "--regid=12099", *groups, *rights, "--no-new-privs", sys.executable]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            [*command, "-c", LOOK, str(number), str(pid)],
            capture_output=True, text=True, check=False, env=environment, timeout=60, cwd="/",
        )  # fmt: skip

    assert done.stdout.strip() == expected, done.stderr
