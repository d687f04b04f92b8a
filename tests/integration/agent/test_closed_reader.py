"""The reader of closed files as a real process, under a user with the unit's rights; every program without any."""

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT

as_the_unit = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="root gives the capabilities of the unit, by setpriv"
)
USER = 12099
BEGIN = """
import os, signal, socket, subprocess, sys, threading, time
from pathlib import Path
from gpuwatch.agent import capabilities, closed_reader, command
from gpuwatch.agent.evidence.files import list_paths, read_small
from gpuwatch.agent.probe.child import ProbeChild
from gpuwatch.agent.probe.preforked import PreforkedProbe

def mask(pid):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {line.split(":")[0]: int(line.split()[1], 16) for line in lines if line.startswith("Cap")}

def children(pid):
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

def outcome(path, read=read_small):
    try:
        read(Path(path))
    except OSError as error:
        return type(error).__name__
    return "read"

closed_reader.begin()
"""


def under_the_unit(script: str, gives: str = "+dac_read_search,+syslog") -> str:
    """What a script prints that has what the agent's unit gives it, or a part of that."""
    options = ("--clear-groups", f"--inh-caps={gives}", f"--ambient-caps={gives}", "--no-new-privs")
    command = ["setpriv", f"--reuid={USER}", f"--regid={USER}", *options, sys.executable, "-c", BEGIN + script]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=60, cwd="/")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """A folder that root alone may enter, with a file."""
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o700)
    (folder / "jpserver-1.json").write_text("{}")
    for each in (tmp_path, *tmp_path.parents[:-2]):
        each.chmod(0o755)
    return folder


@as_the_unit
def test_the_agent_itself_reads_no_closed_file() -> None:
    """It keeps the right to read the kernel's log; the reader alone has the other one, for its list."""
    told = under_the_unit("""
closed_reader.allow([])
print(mask("self")["CapPrm"] == mask("self")["CapEff"] == 1 << 34, mask("self")["CapAmb"])
print(outcome("/root", list_paths), outcome("/etc/shadow"), outcome("/root/.ssh", list_paths))
(keeper,) = children(os.getpid())
(worker,) = children(keeper)
print([mask(each)["CapEff"] == 1 << 2 and mask(each)["CapAmb"] == 0 for each in (keeper, worker)])
""").splitlines()

    assert told == ["True 0", "read PermissionError PermissionError", "[True, True]"]


@as_the_unit
def test_every_program_that_it_starts_has_no_right_at_all() -> None:
    """By each way to start one: a command, as a hook is, from any thread, and a probe."""
    told = under_the_unit("""
looks = ["grep", "^Cap[EPA]", "/proc/self/status"]
found = [command.run(looks, 10.0).output.decode()]
thread = threading.Thread(target=lambda: found.append(subprocess.check_output(looks, text=True)))
thread.start()
thread.join()
child = ProbeChild(looks)
lines = []
while (line := child.lines.get(timeout=20)) is not None:
    lines.append(line.decode().strip())
found.append("\\n".join(lines))
print([[int(line.split()[1], 16) for line in each.splitlines()] for each in found])
""")

    assert told == "[[0, 0, 0], [0, 0, 0], [0, 0, 0]]"


@as_the_unit
def test_a_forked_probe_has_not_the_right_to_read() -> None:
    """It shares the agent's memory, and NVIDIA's closed library runs in it."""
    told = under_the_unit("""
def run(arguments):
    print(mask("self")["CapEff"] & 1 << 2, flush=True)
    return 0

probe = PreforkedProbe(run)
probe.begin(["x"])
print(probe.stdout.read().decode().strip(), probe.wait(10))
""")

    assert told == "0 0"


@as_the_unit
def test_a_reader_that_dies_is_doubt_and_another_takes_its_place(closed: Path) -> None:
    """What was asked meanwhile is unknown: an error, and never an empty folder."""
    told = under_the_unit(f"""
closed = {str(closed)!r}
closed_reader.allow([closed])
print(outcome(closed, list_paths))
(keeper,) = children(os.getpid())
before = children(keeper)
os.kill(before[0], signal.SIGKILL)
until = time.monotonic() + 20
answers = set()
while children(keeper) in ([], before) and time.monotonic() < until:
    answers.add(outcome(closed, list_paths))
print(outcome(closed, list_paths), children(keeper) != before, answers <= {{"OSError", "read"}})
""")

    assert told.splitlines() == ["read", "read True True"]


@as_the_unit
def test_without_any_reader_the_agent_knows_nothing(closed: Path) -> None:
    """Both of its processes are gone: each closed file is an error, as soon as it is asked for."""
    told = under_the_unit(f"""
closed_reader.allow([{str(closed)!r}])
print(outcome({str(closed)!r}, list_paths))
(keeper,) = children(os.getpid())
(worker,) = children(keeper)
os.kill(keeper, signal.SIGKILL)
os.kill(worker, signal.SIGKILL)
print(outcome({str(closed)!r}, list_paths))
""")

    assert told.split() == ["read", "OSError"]


@as_the_unit
def test_no_later_word_opens_more(closed: Path) -> None:
    """What the agent names at its start is all: one that is broken into afterwards names no folder."""
    told = under_the_unit(f"""
closed_reader.allow([])
print(outcome({str(closed)!r}, list_paths))
closed_reader.allow([{str(closed)!r}])
print(outcome({str(closed)!r}, list_paths))
""")

    assert told.split() == ["PermissionError", "PermissionError"]


@as_the_unit
def test_the_one_that_reads_calls_nobody() -> None:
    """No connection and no program: it answers the agent alone."""
    told = under_the_unit("""
capabilities.refuse_network()
for act in (socket.socket, lambda: os.execv("/bin/true", ["true"]), lambda: open("/etc/passwd").close()):
    try:
        act()
    except OSError as error:
        print(type(error).__name__)
    else:
        print("done")
""")

    assert told.split() == ["PermissionError", "PermissionError", "done"]


@as_the_unit
@pytest.mark.skipif(
    any(not each.stat().st_mode & 1 for each in Path(sys.executable).resolve().parents),
    reason="this Python lies in a folder that root alone may enter; test_agent_unit.py reloads the unit itself",
)
def test_a_reload_keeps_reader_and_rights(closed: Path) -> None:
    """The agent begins again under its pid: the kernel's log can be read, and closed files by the same reader."""
    told = under_the_unit(f"""
closed_reader.allow([{str(closed)!r}])
print(outcome({str(closed)!r}, list_paths), flush=True)
again = {BEGIN!r} + '''
print(outcome({str(closed)!r}, list_paths), mask("self")["CapEff"] == 1 << 34, mask("self")["CapAmb"])
print(command.run(["grep", "-c", "^CapEff:.0*$", "/proc/self/status"], 10.0).output.decode().strip())
'''
closed_reader.before_exec()
os.execv(sys.executable, [sys.executable, "-c", again])
""")

    assert told.splitlines() == ["read", "read True 0", "1"]


LOOKS = """
closed_reader.allow([])
def look(name, pid=OTHER):
    try:
        return closed_reader.look_into(f"/proc/{pid}/{name}")
    except OSError as error:
        return type(error).__name__.encode()
"""
ALL = "+dac_read_search,+syslog,+sys_ptrace"


@pytest.fixture
def looks() -> Iterator[str]:
    """The way to look into a process of root's, for a script."""
    with subprocess.Popen(["sleep", "60"]) as other:
        yield f"OTHER = {other.pid}\n{LOOKS}"
        other.kill()


@as_the_unit
def test_one_part_of_the_reader_looks_into_processes_and_the_other_opens_files(looks: str) -> None:
    """Four questions about a process of root's; the agent has neither right, and who opens files cannot look."""
    told = under_the_unit(
        looks
        + """
print(look("exe")[-6:], look("cwd")[:1], look("root"), b"rchar" in look("io"))
print(outcome("/root", list_paths), outcome(f"/proc/{OTHER}/io"), outcome(f"/proc/{OTHER}/environ"))
(keeper,) = children(os.getpid())
print(sorted(mask(each)["CapEff"] for each in children(keeper)) == [1 << 2, 1 << 2 | 1 << 19], mask(keeper)["CapAmb"])
print(mask("self")["CapPrm"] == 1 << 34, mask("self")["CapAmb"])
""",
        ALL,
    ).splitlines()

    assert told == ["b'/sleep' b'/' b'/' True", "read PermissionError PermissionError", "True 0", "True 0"]


@as_the_unit
@pytest.mark.parametrize("name", ["environ", "mem", "maps", "fd/0", "ns/net", "root/etc/shadow", "cwd/x", "../1/exe"])
def test_nothing_else_of_a_process_is_answered(looks: str, name: str) -> None:
    """No memory, no environment, no open file and no way through a link."""
    told = under_the_unit(f"{looks}print(look({name!r}), look('exe', 999999999), look('exe', '1/task/1'))", ALL)
    assert told == "b'PermissionError' b'FileNotFoundError' b'PermissionError'"


@as_the_unit
def test_without_the_right_a_look_is_refused(looks: str) -> None:
    """As the kernel refuses it; and as soon as nobody answers."""
    assert under_the_unit(f"{looks}print(look('exe'))") == "b'PermissionError'"
    ended = """
print(look("root"))
(keeper,) = children(os.getpid())
for each in (keeper, *children(keeper)):
    os.kill(each, signal.SIGKILL)
print(look("cwd"))
"""
    assert under_the_unit(looks + ended, ALL).split() == ["b'/'", "b'PermissionError'"]


@as_the_unit
def test_the_one_that_looks_writes_nothing() -> None:
    """It could reach into others' memory: it opens nothing to write, and may not use the calls for that, either."""
    told = under_the_unit("""
import ctypes
capabilities.refuse_network(writing=True)
acts = [lambda: os.open("/proc/self/mem", os.O_RDWR), lambda: os.open("/tmp/x", os.O_RDONLY | os.O_CREAT)]
acts += [lambda: open("/proc/self/comm", "wb"), lambda: open("/etc/passwd").close()]
for act in acts:
    try:
        act()
    except OSError as error:
        print(type(error).__name__)
    else:
        print("done")
libc = ctypes.CDLL(None, use_errno=True)
numbers = {"x86_64": (101, 310, 311, 437, 438, 0x40000000 | 257), "aarch64": (117, 270, 271, 437, 438)}
numbers = numbers[os.uname().machine]
print({(libc.syscall(number, 0, 0, 0, 0, 0, 0), ctypes.get_errno()) for number in numbers})
""")

    assert told.splitlines() == ["PermissionError"] * 3 + ["done", "{(-1, 1)}"]


# Every place that starts a program, or forks: what is new here must be shown to have no right, as above.
STARTS = {
    "agent/closed_reader.py": {"fork", "execv"},  # the reader, with its right
    "agent/closed_server.py": {"fork"},  # which then forbids itself to start anything
    "agent/command.py": {"Popen"},
    "agent/launch.py": {"Popen", "execv"},
    "agent/metadata/hook.py": {"Popen"},
    "agent/probe/child.py": {"Popen"},
    "agent/probe/preforked.py": {"fork"},
}
WAYS = {
    *("Popen", "run", "call", "check_call", "check_output", "getoutput", "system", "popen", "fork", "forkpty"),
    *("execl", "execle", "execlp", "execv", "execve", "execvp", "execvpe", "posix_spawn", "posix_spawnp", "spawnv"),
    *("spawnl", "spawnve", "create_subprocess_exec", "create_subprocess_shell", "spawn"),
}


def test_no_other_place_of_the_agent_starts_a_program() -> None:
    """The list is what the tests above and the order in `launch.main` are about."""
    found: dict[str, set[str]] = {}
    for path in sorted(path for room in ("agent", "runtime") for path in (ROOT / "gpuwatch" / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            call = node.func if isinstance(node, ast.Call) else None
            if not isinstance(call, ast.Attribute) or not isinstance(call.value, ast.Name):
                continue
            if call.attr in WAYS and call.value.id in {"os", "subprocess", "asyncio", "pty", "multiprocessing"}:
                found.setdefault(str(path.relative_to(ROOT / "gpuwatch")), set()).add(call.attr)

    assert found == STARTS


def test_the_right_is_given_up_before_anything_is_started() -> None:
    """In `gpuwatch agent`, the reader comes before the judge of the settings, the probe and every thread."""
    source = (ROOT / "gpuwatch/agent/launch.py").read_text(encoding="utf-8")
    main = source.partition("def main(")[2].partition("\ndef ")[0]

    assert main.index("closed_reader.begin()") < min(main.index(each) for each in ("_judge(", "_prefork(", ".start()"))
