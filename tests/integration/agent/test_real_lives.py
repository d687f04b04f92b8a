"""Lives of a GPU host as real processes: real logins, tmux, at, cron, systemd, containers, and the agent as it ships.

Each life is played on one booted systemd, one after another: somebody does something and leaves, the agent is asked as
the controller asks before a stop, and what was begun is ended. `tests/lives` plays whole days on made hosts; these say
whether real programs look as those days have them.
"""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import pytest

from gpuwatch.model.activity import Activity, State
from gpuwatch.model.fleet import NodeVerdict
from gpuwatch.runtime.clock import SystemClock
from tests.support.components import require
from tests.support.fakes.nvml import StubDriver, build
from tests.support.nightly import NIGHTLY, by_night
from tests.support.real.agents import eventually
from tests.support.real.lived_host import AGENT, ID, THERE, LivedHost
from tests.support.real.systemd_container import LIBRARIES
from tests.support.real.two_hosts import can_be_made

pytestmark = pytest.mark.component("systemd-nspawn")

BUSY, PARKED, OCCUPIED, IDLE, UNKNOWN = State.BUSY, State.PARKED, State.OCCUPIED, State.IDLE, State.UNKNOWN
PATIENCE = 12  # questions until an answer must be right: what works shows within a few seconds
SETTINGS = """
agent:
  interval: 200ms
  deadline: 1s
  start_deadline: 8s
  restart_max: 1s
  metadata: {provider: none}
  evidence:
    people: {interval: 300s}  # looked at when the test asks, and never while a life is being arranged
    processes: {interval: 300ms}
    gpu_process_cpu: {interval: 300ms}
    connections: {interval: 300ms}
    inhibitors: {interval: 300ms}
    jupyter: {interval: 300ms}
    scheduled: {interval: 300ms}
    snooze: {interval: 300ms}
    model_servers: {interval: 300ms, endpoints: {chat: "http://127.0.0.1:8000/metrics"}}
    cpu: {enabled: false}      # this machine computes, its own disks turn, and a cable has no real card
    disk: {enabled: false}
    network: {enabled: false}
"""
SERVICE = f"""
Environment=LD_LIBRARY_PATH=/srv/nvml:{LIBRARIES} NVML_STUB_STATE=/srv/driver/state
"""
AN_HOUR_PASSES = ("root", "touch -a -d '1 hour ago' /dev/pts/[0-9]*")  # since anybody typed
FIVE_HOURS_PASS = ("root", "touch -a -d '5 hours ago' /dev/pts/[0-9]*")
TYPE = "sleep 0.5; tmux send-keys '{}' Enter; sleep 1"
READ_LOOP = "tail -F /tmp/drop.log | while read f; do true; done"
LINGER = ("root", "loginctl enable-linger alice; until [ -e /run/user/1000/systemd/private ]; do sleep 0.02; done")
SLEEPS = "python -S -c 'import time; time.sleep(1000)'"  # it reads little as it begins
SPINS = "sh -c 'while :; do :; done'"
SERVER = "import socket, time; s = socket.create_server((str(), 29500)); s.accept()"
CONTAINER, SESSION = "container 0123456789ab", "session-*.scope"
POD = "kubepods-besteffort-pod0a1b2c3d_0001_0002_0003_0a1b2c3d4e5f.slice"
RUN_POD = f"/opt/bin/container-run {POD} cri-containerd-{ID}.scope sleep inf"
RUN_MACHINE = "/opt/bin/container-run machine.slice machine-ubuntu.scope sleep inf"
RUN = f"/opt/bin/container-run system.slice docker-{ID}.scope"
EXEC = "setsid /opt/bin/container-exec"
UNIT = '[Service]\\nExecStart=/opt/bin/python -S -c "import time; time.sleep(1000)"\\n'
START_MODEL = "systemd-run --quiet --collect --unit=lived-vllm -p User=alice /opt/bin/python /opt/model.py"
MODEL = ("root", f"{START_MODEL}; until curl -fs http://127.0.0.1:8000/metrics >/dev/null; do sleep 0.05; done")
TENTH = (
    "import time\nwhile True:\n e = time.thread_time() + 0.01\n while time.thread_time() < e: pass\n time.sleep(0.09)"
)


@dataclass(frozen=True, kw_only=True)
class Life:
    """Who does what, and what the host is then by the truth. `by` is the signal that must say so, of this owner.

    `fresh`: the agent starts after them. `looks`: so many answers in a row must be right. `on_gpu`: this program's
    process holds 20 GiB of the GPU.
    """

    title: str
    does: tuple[tuple[str, str], ...]
    truth: State
    by: str = "processes"
    user: str | None = None
    program: str | None = None
    unit: str | None = None
    fresh: bool = False
    looks: int = 1
    on_gpu: str = ""


def busy(title: str, *does: tuple[str, str], **more: Any) -> Life:  # noqa: ANN401  fields of Life
    """Somebody would miss the host."""
    return Life(title=title, does=does, truth=BUSY, **more)


def occupied(title: str, *does: tuple[str, str], **more: Any) -> Life:  # noqa: ANN401  fields of Life
    """A program of somebody is alive and does nothing."""
    return Life(title=title, does=does, truth=OCCUPIED, **more)


def idle(title: str, *does: tuple[str, str], **more: Any) -> Life:  # noqa: ANN401  fields of Life
    """Nobody would miss it, and nothing of theirs is alive."""
    return Life(title=title, does=does, truth=IDLE, **more)


def alice(program: str, unit: str | None = SESSION) -> dict[str, Any]:
    """Her program, there."""
    return {"user": "alice", "program": program, "unit": unit}


def root(program: str, unit: str) -> dict[str, Any]:
    """A program of root, there."""
    return {"user": "root", "program": program, "unit": unit}


LIVES = (
    idle("nobody has logged in yet: sshd, cron, atd, logind"),
    # work; it is soon more than the limit, as long as the minute over which it is judged has just begun
    busy(
        "a tokeniser at a tenth of a core",
        ("alice@tty", f"nohup python -c '{TENTH}' >/dev/null 2>&1 & sleep 0.1"),
        AN_HOUR_PASSES, **alice("python3.*"),
    ),
    busy("nohup, and gone", ("alice@tty", f"nohup {SPINS} >/dev/null & sleep 0.1"), AN_HOUR_PASSES, **alice("sh")),
    # what logins leave behind
    busy(
        "a run that begins in six hours, in a detached tmux",
        ("alice@tty", "tmux new -d 'sleep 6h; python train.py'"), AN_HOUR_PASSES, **alice("sleep"),
    ),
    busy(
        "the same in screen", ("alice@tty", "screen -dmS x sh -c 'sleep 6h; python train.py'; sleep 0.2"),
        AN_HOUR_PASSES, **alice("sleep"),
    ),
    idle("a tmux with an idle shell", ("alice@tty", "tmux new -d"), AN_HOUR_PASSES),
    idle("a screen with an idle shell", ("alice@tty", "screen -dmS x; sleep 0.2"), AN_HOUR_PASSES),
    idle(
        "a tmux with watch, whose pipe is alive for most of a second",
        ("alice@tty", "tmux new -d \"watch -n 1 'nvidia-smi | cat'\""), AN_HOUR_PASSES, looks=3,
    ),
    busy("somebody typed lately", ("alice@tty…", "exec bash -i"), by="people"),
    occupied("a login that has been silent for an hour", ("alice@tty…", "exec bash -i"), AN_HOUR_PASSES, by="people",
             user="alice"),
    idle("a login that has been silent for five hours", ("alice@tty…", "exec bash -i"), FIVE_HOURS_PASS),
    # shells that wait by themselves
    occupied("a loop that reads what tail finds", ("alice@tty", f"tmux new -d; {TYPE.format(READ_LOOP)}"),
             AN_HOUR_PASSES, **alice("bash")),
    occupied("a read with a time limit, and a run after it",
             ("alice@tty", f"tmux new -d; {TYPE.format('read -t 36000; true')}"), AN_HOUR_PASSES, **alice("bash")),
    occupied("root's wait, on a terminal that is closed to others",
             ("root@tty", f"tmux new -d; {TYPE.format('mesg n; read -t 36000')}"), AN_HOUR_PASSES,
             **root("bash", SESSION)),
    idle("root's prompt, on a terminal that is closed to others",
         ("root@tty", f"tmux new -d; {TYPE.format('mesg n')}"), AN_HOUR_PASSES),
    idle("a shell that edits no lines, at its prompt", ("alice@tty", "tmux new -d dash"), AN_HOUR_PASSES),
    idle("tail in the foreground", ("alice@tty", f"tmux new -d; {TYPE.format('tail -f /dev/null')}"), AN_HOUR_PASSES),
    occupied("a login without a terminal, an editor's", ("alice…", "exec sleep 1000"), by="people", **alice("sshd")),
    occupied(
        "nohup of a program that waits", ("alice@tty", f"nohup {SLEEPS} >/dev/null 2>&1 & sleep 0.1"), AN_HOUR_PASSES,
        **alice("python3.*"),
    ),
    occupied(
        "a stopped job", ("alice@tty", "nohup sh -c 'kill -STOP $$; true' >/dev/null 2>&1 & sleep 0.1"), AN_HOUR_PASSES,
        **alice("sh"),
    ),
    occupied(
        "rank 0 waits for its peers", ("alice@tty", f"tmux new -d 'python -S -c \"{SERVER}\"'"), AN_HOUR_PASSES,
        **alice("python3.*"),
    ),
    occupied(
        "a loop that writes down what nvidia-smi says",
        ("alice@tty", "tmux new -d 'while :; do nvidia-smi; sleep 60; done'"), AN_HOUR_PASSES, **alice("*"),
    ),
    occupied("the administrator's own nohup", ("root@tty", f"nohup {SLEEPS} >/dev/null 2>&1 & sleep 0.1"),
             AN_HOUR_PASSES, **root("python3.*", SESSION)),
    busy(
        "a download at 0.9 MB/s in a tmux", ("alice@tty", f"tmux new -d 'curl -so /dev/null http://{THERE}/x'"),
        AN_HOUR_PASSES, by="connections", **alice("curl"),
    ),
    # queued work, and work that was queued
    busy("an at job in eight hours", ("alice", "echo true | at now + 8 hours"), by="scheduled", user="alice"),
    occupied("an at job that runs", ("alice", "echo sleep 1000 | at now"), **alice("s*", "atd.service")),
    busy("a cron job each night", ("alice", "echo '0 3 * * * true' | crontab -"), by="scheduled", user="alice"),
    occupied(
        "a cron job each quarter of an hour", ("alice", "echo '*/15 * * * * true' | crontab -"), by="scheduled",
        user="alice",
    ),
    occupied(
        "a cron job that runs", ("alice", "echo '@reboot sleep 1000' | crontab -"),
        ("root", "rm -f /run/crond.reboot; systemctl restart cron"), **alice("s*", "cron.service"),
    ),
    Life(
        title="a job of root's cron that has just begun", truth=UNKNOWN, user="root", unit="cron.service",
        does=(("root", "echo '@reboot sleep 1000' | crontab -; rm -f /run/crond.reboot; systemctl restart cron"),),
    ),
    idle("a user who lingers", LINGER),
    occupied("her service", LINGER, ("alice", "systemd-run -q --user --unit=eval sleep 1000"),
             **alice("sleep", "eval.service")),
    busy("her timer", LINGER, ("alice", "systemd-run -q --user --on-active=8h --unit=eval true"), by="scheduled",
         user="alice", unit="eval.timer"),
    occupied(
        "an administrator's unit",
        ("root", f"printf '{UNIT}' >/etc/systemd/system/lived.service; systemctl daemon-reload; systemctl start lived"),
        fresh=True,  # what systemd and Python read before it rests counts for a minute
        **root("python3.*", "lived.service"),
    ),
    # containers
    occupied("a container at rest", ("root", f"{RUN} sleep inf"), **root("sleep", CONTAINER)),
    busy("a run that begins in six hours, in a container", ("root", f"{RUN} sh -c 'sleep 6h; true'"),
         **root("sleep", CONTAINER)),
    Life(title="a container that holds the GPU", does=(("root", f"{RUN} sleep inf"),), truth=PARKED, on_gpu="sleep inf",
         by="gpu0.compute_processes", **root("sleep", CONTAINER)),
    occupied("a pod at rest", ("root", RUN_POD), **root("sleep", "pod 0a1b2c3d-*")),
    occupied("a machine at rest", ("root", RUN_MACHINE), **root("sleep", "machine-ubuntu.scope")),
    # model servers
    occupied("a model server that nobody asks", MODEL, fresh=True, **alice("python3.*", "lived-vllm.service")),
    busy("docker exec of a program", ("root", f"{RUN} sleep inf"), ("root", f"{EXEC} {SPINS} &"),
         **root("sh", CONTAINER)),
    busy("a model server that is asked", MODEL, ("root", "curl -s -d x http://127.0.0.1:8000/v1"), by="model_servers",
         user="alice", program="vLLM"),
)  # fmt: skip

# More of a kind of which another one is played each day.
BY_NIGHT = frozenset({
    "a tokeniser at a tenth of a core", "the same in screen", "a screen with an idle shell",
    "a tmux with watch, whose pipe is alive for most of a second", "a login that has been silent for five hours",
    "a read with a time limit, and a run after it", "root's prompt, on a terminal that is closed to others",
    "a shell that edits no lines, at its prompt", "tail in the foreground", "nohup of a program that waits",
    "rank 0 waits for its peers", "a loop that writes down what nvidia-smi says", "the administrator's own nohup",
    "an at job that runs", "a cron job each quarter of an hour", "a user who lingers", "an administrator's unit",
    "a run that begins in six hours, in a container", "a machine at rest", "a model server that nobody asks",
})  # fmt: skip


@pytest.fixture
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LivedHost]:
    """It, booted, with a stand-in NVIDIA driver and another machine."""
    require("cc")
    if not can_be_made():
        pytest.skip("there is no cable to another machine where no network cards may be made")
    folder = tmp_path_factory.mktemp("booted")
    library, state = build(folder / "nvml"), folder / "driver"
    driver = StubDriver(state, library)
    with LivedHost(folder, {library: "/srv/nvml", state: "/srv/driver"}) as made:
        made.driver, made.settings_text = driver, SETTINGS
        made.settle(SERVICE)
        try:
            made.connect()
            made.restart()
            yield made
        finally:
            made.leave()


@dataclass
class Played:
    """What the agent answered in a life."""

    life: Life
    answers: list[NodeVerdict | None] = field(default_factory=list)

    @property
    def right(self) -> bool:
        """Whether the last answers were."""
        last = self.answers[-self.life.looks :]
        return len(last) == self.life.looks and all(map(self._is_right, last))

    def _is_right(self, verdict: NodeVerdict | None) -> bool:
        """Whether it is the truth, by that signal and of that owner."""
        life = self.life
        if verdict is None or verdict.activity.state is not life.truth:
            return False
        for each in verdict.activity.evidence:
            if each.name == life.by and each.says is life.truth:
                owner = each.owner
                known = (None,) * 3 if owner is None else (owner.user, owner.process, owner.unit)
                expected = (life.user, life.program, life.unit)
                return all(
                    want is None or fnmatchcase(str(is_), want) for want, is_ in zip(expected, known, strict=True)
                )
        return False

    def __str__(self) -> str:
        """The last answer, for whoever has to find out why."""
        verdict = self.answers[-1] if self.answers else None
        if verdict is None:
            return f"{self.life.title}: no answer"
        seen = [
            f"{each.name} {each.says}: {each.note}, {each.owner}"
            for each in verdict.activity.evidence
            if each.says is not IDLE or each.name == self.life.by
        ]
        return f"{self.life.title}: {verdict.activity.state} and not {self.life.truth}, by {self.life.by} ({seen})"


def play(host: LivedHost, life: Life) -> Played:
    """Play it until the answer is right, or for as long as it may take; then end all that was begun."""
    played = Played(life)
    stay: list[subprocess.Popen[bytes]] = []
    try:
        for who, command in life.does:
            host.does(who, command, stay)
        if life.on_gpu:
            pid = int(host.run("pgrep", "--newest", "--full", life.on_gpu))
            host.driver.gpu(0).processes({pid: 20 << 30})
        if life.fresh:
            host.restart()
        for _ in range(1 if life.truth is not IDLE else 2):
            asked = len(played.answers)
            while not played.right and len(played.answers) - asked < PATIENCE:
                played.answers.append(host.ask())
            if not played.right and life.truth is IDLE:
                host.restart()  # to the agent of three lives before it, what comes and goes is there all the time
    finally:
        host.tidy()
        host.driver.gpu(0).processes({})
        for each in stay:
            each.kill()
            each.communicate()
    return played


def rests(host: LivedHost, life: Life) -> bool:
    """Whether it becomes idle again. An agent that counts the minute before, or a visit, is replaced by a new one."""
    people = any("@tty" in who or "…" in who for who, _ in life.does)  # they are looked at in confirmations alone
    came = people or any(who != "root" for who, _ in life.does)  # a login over the network may come again for an hour
    for attempt in range(4 * PATIENCE):
        verdict = host.ask(confirm=people)
        if verdict is not None and verdict.activity.state is IDLE:
            return True
        if attempt == (1 if came else 2 * PATIENCE):
            host.restart()
        SystemClock().sleep(0.1)
    return False


def test_the_agent_says_the_truth_about_each_life(host: LivedHost) -> None:
    """State, signal and owner; and idle again when it is over. All mistakes are listed."""
    assert {life.title for life in LIVES} > BY_NIGHT
    wrong = []
    for life in LIVES if NIGHTLY else [each for each in LIVES if each.title not in BY_NIGHT]:
        played = play(host, life)
        if not played.right:
            wrong.append(str(played))
        if not rests(host, life):
            wrong.append(f"{life.title}: not idle when it was over: {host.ask()}")

    assert wrong == [], "\n".join([*wrong, host.journal(AGENT, "--priority=warning")])


@pytest.mark.parametrize("file", ["lost", *by_night("kept")])
def test_who_came_by_ssh_outlives_the_agent(host: LivedHost, file: str) -> None:
    """A copy has come and gone, and the agent is restarted: by its file or by logind's folders somebody is expected."""
    here: list[subprocess.Popen[bytes]] = []
    host.does("alice…", "exec cat", here)  # this logind keeps nobody who has left: the agent sees her here
    host.ask()
    here[0].communicate(timeout=60)  # her input ends, and so does the copy
    if file == "lost":
        host.run("systemctl", "stop", AGENT)
        host.run("rm", "/var/lib/gpuwatch-agent/days.json")
    host.restart_unit(AGENT)
    said: list[Activity] = []

    def somebody_is_expected() -> bool:
        verdict = host.ask()
        said.extend(() if verdict is None else (verdict.activity,))
        return bool(said) and said[-1].state is OCCUPIED and "may come again" in str(said[-1])

    eventually(somebody_is_expected, lambda: said[-1:])
    # Which of the two it is depends on the restart: after a slow one her end was perhaps seen by no agent.
    assert any(each in str(said[-1]) for each in ("somebody was here before this agent", "alice was here by SSH"))
