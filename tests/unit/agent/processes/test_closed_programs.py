"""Where the kernel does not show a program's file, the process itself says what it runs: that protects, and no more."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gpuwatch.agent.processes.kinds import AGENT, PACKAGED, VIEWER
from gpuwatch.agent.processes.process import Kind, Process
from gpuwatch.agent.processes.table import ProcessTable
from tests.lives.rights import Sight, nobody
from tests.support.fakes.proc_files import CONTAINER, USER_SESSION, put_process
from tests.support.nightly import examples

TTY = 34816
STARTS = {"vector": "/usr/bin/vector", "train": "/opt/train/run", "guard": "/opt/rapid7/guard/agent"}


def unit(name: str) -> str:
    """The group of a system service."""
    return f"/system.slice/{name}.service"


class Host:
    """A made host with units of packages and of the administrator, and one process."""

    def __init__(self, root: Path) -> None:
        """It, with its units."""
        self.root = root
        for place in ("usr/lib/systemd/system/shipped-", "etc/systemd/system/"):
            for name, program in STARTS.items():
                file = root / f"{place}{name}.service"
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(f"[Service]\nExecStart=-{program} --config /etc/{name}.conf\n")
        (root / "proc/self/ns").mkdir(parents=True)
        (root / "proc/uptime").write_text("9000.00 0.00\n")

    def judged(self, *closed: str) -> Process:
        """The process, to an agent for which these are closed."""
        roots = [self.root / name for name in ("proc", "etc", "usr", "run", "pods")]
        with Sight(nobody(), self.root, own=1, closed=closed or ("nothing",)).applied():
            return ProcessTable(*roots).read_processes(1.0).processes[77]

    def put(self, name: str, file: str, words: tuple[str, ...], cgroup: str, uid: int, tty: int, cwd: str) -> None:
        """Its process."""
        put_process(
            self.root / "proc", 77, name, cgroup=cgroup, uid=uid, executable=file, arguments=words, tty=tty, parent=1
        )
        link = self.root / "proc/77/cwd"
        link.unlink(missing_ok=True)
        link.symlink_to(cwd)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """It, without the process."""
    return Host(tmp_path)


# What it says that it runs · where its program lies · its group · its user · the kind that it has without that file.
SAID: list[tuple[str, str, str, int, Kind]] = [
    # somebody's own, by a path that no package has
    ("/home/carol/bin/screen", "/home/carol/bin/screen", USER_SESSION, 1000, Kind.PEOPLE),
    ("./screen", "/home/carol/bin/screen", USER_SESSION, 1000, Kind.PEOPLE),
    ("bin/ps", "/home/bob/fed/bin/ps", USER_SESSION, 1000, Kind.PEOPLE),
    ("/app/release/vector", "/app/release/vector", CONTAINER, 0, Kind.PEOPLE),
    ("/opt/llama.cpp/bin/rpc-server", "/opt/llama.cpp/bin/rpc-server", unit("rpc-server"), 0, Kind.PEOPLE),
    # found by PATH, or by a link that lies where packages have theirs: doubt
    ("top", "/home/carol/bin/top", USER_SESSION, 1000, Kind.PEOPLE),
    ("top", "/usr/bin/top", USER_SESSION, 1000, Kind.PEOPLE),
    ("/usr/local/bin/top", "/home/carol/bin/top", USER_SESSION, 1000, Kind.PEOPLE),
    ("vector", "/usr/bin/vector", CONTAINER, 0, Kind.PEOPLE),
    # what nobody calls a program of theirs, and what lies in an image's root
    ("htop", "/usr/bin/htop", USER_SESSION, 1000, Kind.SESSION),
    ("/pause", "/pause", CONTAINER, 0, Kind.SERVICE),
    # what the unit starts, by its path or under its name; another program there is not that
    ("/usr/bin/vector", "/usr/bin/vector", unit("shipped-vector"), 0, Kind.SERVICE),
    ("vector: main", "/usr/bin/vector", unit("shipped-vector"), 0, Kind.SERVICE),
    ("/usr/bin/worker", "/srv/worker", unit("shipped-vector"), 0, Kind.PEOPLE),
    ("/opt/rapid7/guard/agent", "/opt/rapid7/guard/agent", unit("guard"), 0, Kind.SERVICE),
    ("/opt/rapid7/guard/7.1/worker", "/opt/rapid7/guard/7.1/worker", unit("guard"), 0, Kind.SERVICE),
    ("/opt/rapid7/guard/agent", "/home/x/agent", unit("train"), 0, Kind.PEOPLE),
]


@pytest.mark.parametrize("case", SAID, ids=lambda case: f"{case[0]} in {case[2][-24:]}")
def test_a_file_that_is_not_shown_is_somebodys_own_or_doubt(host: Host, case: tuple[str, str, str, int, Kind]) -> None:
    """Unless its unit starts the same: never a viewer, and never the machine's own."""
    said, file, cgroup, uid, expected = case
    host.put(file.rpartition("/")[2], file, (said, "--all"), cgroup, uid, TTY if uid else 0, "/")
    found = host.judged("exe", "cwd")
    assert (found.kind, found.rule) == (expected, found.rule)


def test_a_persons_script_is_work_whatever_its_name(host: Host) -> None:
    """One that is called like a viewer, too: the kernel puts its shell before it."""
    host.put("nvtop", "/usr/bin/bash", ("/bin/bash", "./nvtop"), USER_SESSION, 1000, 0, "/")

    assert host.judged("exe").rule == host.judged().rule == "script"


def test_a_script_that_the_unit_starts_is_what_its_interpreter_runs(host: Host) -> None:
    """The kernel puts the interpreter before it."""
    file = host.root / "usr/lib/systemd/system/shipped-watcher.service"
    file.write_text("[Service]\nExecStart=@/usr/lib/watcher/run watcher\n")
    words = ("/usr/bin/python3", "-u", "/usr/lib/watcher/run")
    host.put("run", "/usr/bin/python3.11", words, unit("shipped-watcher"), 0, 0, "/")

    assert host.judged("exe").rule == host.judged().rule == PACKAGED


def test_a_unit_of_the_administrator_comes_before_the_packages(host: Host) -> None:
    """What systemd takes, not what lies below it."""
    (host.root / "usr/lib/systemd/system/train.service").write_text("[Service]\nExecStart=/opt/rapid7/train/run\n")
    host.put("run", "/opt/rapid7/train/run", ("/opt/rapid7/train/run",), unit("train"), 0, 0, "/")

    assert host.judged().rule == AGENT
    assert host.judged("exe").kind is Kind.PEOPLE


NAMES = (
    "top",
    "screen",
    "vector",
    "telegraf",
    "htop",
    "kubelet",
    "tmux",
    "bash",
    "python3",
    "train",
    "ps",
    "su",
    "guard",
)
FOLDERS = ("/usr/bin/", "/usr/local/bin/", "/home/carol/bin/", "/opt/train/", "/opt/rapid7/guard/", "/srv/", "/")
GROUPS: tuple[str, ...] = (
    USER_SESSION,
    CONTAINER,
    "/",
    unit("cron"),
    unit("rpc-server"),
    unit("prometheus-x"),
    unit("unknown"),
)
GROUPS += tuple(unit(f"{place}{name}") for place in ("", "shipped-") for name in STARTS)
names, folders = st.sampled_from(NAMES), st.sampled_from(FOLDERS)
paths = st.builds(str.__add__, folders, names)
said = st.one_of(names, paths, st.builds("./{}".format, names), st.builds("{}: idle".format, names), st.just(""))
arguments = st.lists(st.one_of(paths, names, st.just("-u"), st.builds("bin/{}".format, names)), max_size=2)


@settings(max_examples=examples(120), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    name=names,
    file=paths,
    first=said,
    more=arguments,
    cgroup=st.sampled_from(GROUPS),
    uid=st.sampled_from((0, 998, 1000)),
    tty=st.sampled_from((0, TTY)),
    cwd=folders,
    closed=st.sampled_from((("exe",), ("cwd",), ("exe", "cwd"))),
)
@example("top", "/home/carol/bin/top", "top", [], USER_SESSION, 1000, 0, "/", ("exe",))
@example("train", "/opt/train/train", "/usr/bin/kubelet", [], unit("unknown"), 0, 0, "/", ("exe",))
@example(
    "guard", "/usr/bin/python3", "/usr/bin/python3", ["/home/carol/bin/kubelet"], unit("cron"), 0, 0, "/", ("exe",)
)
def test_what_is_closed_never_makes_a_process_count_for_less(  # noqa: PLR0913, PLR0917  a process has many sides
    host: Host, name: str, file: str, first: str, more: list[str], cgroup: str, uid: int, tty: int, cwd: str,
    closed: tuple[str, ...],
) -> None:  # fmt: skip
    """Of people's stays people's; what counts above a limit stays so; whatever a process says that it is called.

    One that says that it is what its unit starts, or is called so and says nothing, or lies beside it in an agent's
    folder, or in the root of an image, is believed. An interpreter with the name of its script has its own path before
    it: so the kernel starts scripts.
    """
    interpreter = file.rpartition("/")[2] in {"bash", "python3"} and name not in {"bash", "python3"}
    words = (file, first, *more) if interpreter else (first, *more)
    beside = first.startswith("/opt/rapid7/guard/") and cgroup.endswith("guard.service")
    if "/" not in first and cgroup.endswith((f"/{name}.service", f"shipped-{name}.service")):
        file = STARTS.get(name, file)
    if beside or any(word in STARTS.values() for word in words) or (first.startswith("/") and first.count("/") == 1):
        file = first if first.startswith("/") else file
    host.put(name, file, words, cgroup, uid, tty, cwd)
    open_, shut = host.judged(), host.judged(*closed)

    assert weight(shut) >= weight(open_), (open_, shut)


def weight(process: Process) -> int:
    """How much a process counts: as people's work; above a higher limit; or never."""
    if process.kind is Kind.PEOPLE:
        return 2
    counts = process.rule == PACKAGED if process.kind is Kind.SERVICE else process.rule != VIEWER
    return int(counts and process.kind is not Kind.KERNEL)
