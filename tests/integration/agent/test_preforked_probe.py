"""agent/probe/preforked.py: the first probe is a fork of the agent, every later one a program of its own."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.fakes.nvml import VERSION_MISMATCH, StubDriver
from tests.support.paths import ROOT
from tests.support.real.agents import RunningAgent, eventually, is_running

BEGIN = """
import os, signal, sys, time
from gpuwatch.agent.probe.preforked import PreforkedProbe
"""


def up(agent: RunningAgent) -> dict[str, str]:
    """gpuwatch_gpu_up by index."""
    return dict(re.findall(r'^gpuwatch_gpu_up\{gpu="(\d+)".*\} (\S+)$', agent.get("/metrics"), re.MULTILINE))


def probe_of(agent: RunningAgent) -> int:
    """The pid of its only child, once it reads the GPU."""
    eventually(lambda: up(agent) == {"0": "1.0"} and len(agent.children()) == 1, lambda: agent.log)
    return agent.children()[0]


def text(pid: int, name: str) -> str:
    """A file of /proc about a process."""
    return Path(f"/proc/{pid}/{name}").read_text(encoding="utf-8", errors="replace")


def library(pid: int) -> set[int]:
    """The inodes of the driver's library that it has mapped."""
    return {int(line.split()[4]) for line in text(pid, "maps").splitlines() if "libnvidia-ml" in line}


def program(pid: int) -> bool:
    """Whether it was started as `gpuwatch probe`."""
    return "probe" in text(pid, "cmdline").split("\0")


def test_the_first_probe_is_a_fork_and_has_the_driver_to_itself(driver: StubDriver) -> None:
    """It leads a session of its own, holds none of the agent's descriptors, and alone has the library mapped."""
    with RunningAgent(driver.environment) as agent:
        probe = probe_of(agent)
        inode = (driver.library / "libnvidia-ml.so.1").stat().st_ino
        sockets = [each for each in Path(f"/proc/{probe}/fd").iterdir() if "socket" in str(each.readlink())]

        assert (text(probe, "comm"), program(probe)) == ("gpuwatch-probe\n", False)
        assert os.getsid(probe) == probe
        assert (library(probe), library(agent.process.pid)) == ({inode}, set())
        assert sockets == []


def test_another_one_takes_its_place(driver: StubDriver) -> None:
    """A killed first probe is a failure like any other, and its successor is a program."""
    with RunningAgent(driver.environment, restart_min=0.05) as agent:
        first = probe_of(agent)
        os.kill(first, signal.SIGKILL)
        eventually(lambda: "it was killed by SIGKILL" in agent.log, lambda: agent.log)
        second = probe_of(agent)

        assert (first != second, program(second)) == (True, True)
        assert 'gpuwatch_probe_restarts_total{cause="exit"} 1.0' in agent.get("/metrics")


def test_after_an_upgrade_the_next_probe_has_the_new_library(driver: StubDriver, tmp_path: Path) -> None:
    """Nothing of the old one is left in any process of the agent."""
    folder = tmp_path / "lib"
    shutil.copytree(driver.library, folder)
    driver.library = folder
    with RunningAgent(driver.environment) as agent:
        first = probe_of(agent)
        before = library(first)
        shutil.copy(folder / "libnvidia-ml.so.1", folder / "new")
        (folder / "new").replace(folder / "libnvidia-ml.so.1")
        driver.remove(VERSION_MISMATCH)
        eventually(lambda: agent.children() not in ([], [first]), lambda: agent.log)
        driver.load()
        after = library(probe_of(agent))

        assert after == {(folder / "libnvidia-ml.so.1").stat().st_ino}
        assert before.isdisjoint(after)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_no_probe_outlives_its_agent(driver: StubDriver, number: signal.Signals) -> None:
    """Whether the agent was asked to end, or could do nothing about it."""
    with RunningAgent(driver.environment) as agent:
        probe = probe_of(agent)
        agent.process.send_signal(number)
        agent.process.wait(10)
        eventually(lambda: not is_running(probe))


def test_a_restart_with_new_settings_leaves_nothing_behind(driver: StubDriver) -> None:
    """After SIGHUP the agent is a fresh process with a probe that is forked from that one."""
    with RunningAgent(driver.environment) as agent:
        first = probe_of(agent)
        agent.process.send_signal(signal.SIGHUP)
        eventually(lambda: agent.log.count("serves http") == 2 and not is_running(first), lambda: agent.log)
        url = re.findall(r"serves (\S+)/metrics", agent.log)[-1]
        agent.url = str(url)
        second = probe_of(agent)

        assert (text(second, "comm"), program(second)) == ("gpuwatch-probe\n", False)


def test_wrong_settings_end_it_before_it_has_begun(driver: StubDriver) -> None:
    """It never reaches the driver."""
    environment = {**driver.environment, "GPUWATCH_AGENT__INTERVAL": "never"}
    command = [sys.executable, "-m", "gpuwatch", "agent"]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 2
    assert not driver.counts_file.exists()


def test_a_source_with_files_is_told_to_it(driver: StubDriver) -> None:
    """Paths and numbers arrive as its command line would give them."""
    script = ROOT / "docs/examples/simulated.yaml"
    with RunningAgent(driver.environment, source="simulated", script=script, seed=3) as agent:
        eventually(lambda: agent.health()["gpus_up"] > 0, lambda: agent.log)
        (probe,) = agent.children()

        assert (program(probe), library(probe)) == (False, set())


# The process by itself.


def ended(code: str) -> str:
    """What a fresh interpreter prints that parks a probe."""
    done = subprocess.run([sys.executable, "-c", BEGIN + code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("run", "status"),
    [
        ("lambda told: 3", 3),
        ("lambda told: sys.exit(5)", 5),
        ("lambda told: 1 / 0", 1),
        ("lambda told: os.kill(os.getpid(), 9)", -9),
        ("lambda told: int(told[0]) + (os.getppid() != agent)", 7),
    ],
)
def test_its_end_is_known(run: str, status: int) -> None:
    """Its result is its exit status; an error is 1, and a signal negative, as of any child."""
    code = f"""
agent = os.getpid()
p = PreforkedProbe({run})
print(p.poll())
p.begin(['7'])
print(p.wait(20), p.poll())
"""

    assert ended(code) == f"None\n{status} {status}\n"


def test_what_only_a_probe_needs_is_loaded_in_the_probe_alone() -> None:
    """It is there when the probe runs, and never in the agent; of the agent's own probe that is pynvml."""
    code = """
def load(): import colorsys
p = PreforkedProbe(lambda told: 3 if 'colorsys' in sys.modules else 4, load)
p.begin([])
print(p.wait(20), 'colorsys' in sys.modules)
from gpuwatch.agent import launch
p = launch._prefork()
print('pynvml' in sys.modules)
p.dismiss()
"""

    assert ended(code) == "3 False\nFalse\n"


def test_an_error_is_told_on_its_standard_error() -> None:
    """With the traceback, which the agent writes into its log."""
    code = "p = PreforkedProbe(lambda told: 1 / 0)\np.begin([])\nprint(p.stderr.read().decode())"

    assert ended(code).rstrip().endswith("ZeroDivisionError: division by zero")


def test_without_a_word_from_the_agent_it_ends() -> None:
    """Its agent is gone, or has no settings for it."""
    code = "p = PreforkedProbe(lambda told: 9)\np.stdin.close()\nprint(p.wait(20))"

    assert ended(code) == "0\n"


def test_it_writes_and_reads_by_its_pipes() -> None:
    """What follows the first line of its input is left for the probe, and nothing of the agent's output comes twice."""
    code = """
sys.stdout.write("agent ")
def run(told):
    sys.stdout.buffer.write(os.read(0, 4)); sys.stdout.buffer.flush(); return 0
p = PreforkedProbe(run)
p.begin([]); p.stdin.write(b"more"); p.stdin.flush()
print(p.stdout.read(), p.wait(20))
"""

    assert ended(code) == "agent b'more' 0\n"


def test_a_child_takes_a_process_of_its_own_command_line_alone() -> None:
    """The next child has it; where that is to run anything else, the process is ended, and a program is started."""
    code = """
from gpuwatch.agent.probe.child import ProbeChild
p = PreforkedProbe(lambda told: time.sleep(60))
q = PreforkedProbe(lambda told: time.sleep(60))
ProbeChild.runs(("/bin/sleep", "9"), p)
first = ProbeChild(["/bin/sleep", "9"])
print(first.process is p, p.poll(), first.end(), p.poll() in (0, -15))
ProbeChild.runs(("/bin/sleep", "9"), q)
second = ProbeChild(["/bin/sleep", "8"])
print(second.process is q, q.poll() is None, second.end(), second.process.poll())
"""

    assert ended(code) == "True None True True\nFalse False True -15\n"


def test_a_process_that_has_no_group_yet_is_ended_all_the_same() -> None:
    """On a busy host it may not have run at all when its command line turns out to be another one."""
    code = """
from gpuwatch.agent.probe.child import ProbeChild
setsid, os.setsid = os.setsid, lambda: time.sleep(60)
p = PreforkedProbe(lambda told: time.sleep(60))
ProbeChild.runs(("/bin/sleep", "9"), p)
first = ProbeChild(["/bin/sleep", "9"])
print(first.process is p, first.end(), p.poll())
"""

    assert ended(code) == "True True -15\n"


def test_a_process_with_threads_is_not_forked() -> None:
    """Somebody else could hold a lock there, for ever."""
    code = """
import threading
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
try: PreforkedProbe(lambda told: 0)
except RuntimeError as error: print(error)
"""

    assert ended(code) == "a process with threads cannot be forked safely\n"


@pytest.mark.parametrize("how", ["p.kill()", "p.dismiss()"])
def test_it_can_be_ended(how: str) -> None:
    """Whatever it does, and also a second time; a wait that is too short says so."""
    code = f"""
import subprocess
p = PreforkedProbe(lambda told: time.sleep(60))
p.begin([])
try: p.wait(0.05)
except subprocess.TimeoutExpired: print("still there")
{how}
print(p.wait(20))
{how}
"""

    assert ended(code) == "still there\n-9\n"
