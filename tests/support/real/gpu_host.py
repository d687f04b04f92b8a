"""A GPU host with the agent's unit on a really booted systemd, and a stand-in driver."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from gpuwatch.model.activity import Evidence, State
from gpuwatch.model.fleet import NodeVerdict
from tests.support.components import require
from tests.support.fakes.nvml import StubDriver, build
from tests.support.real.agents import eventually
from tests.support.real.systemd_container import LIBRARIES, PYTHON, UNITS, Booted

AGENT = "gpuwatch-agent"
URL = "http://127.0.0.1:9460"
SETTINGS = """
agent:
  interval: 200ms
  deadline: 1s
  start_deadline: 4s
  restart_max: 1s
  metadata: {provider: none}
  evidence:
    people: {interval: 200ms}
    gpu_process_cpu: {interval: 500ms}
    inhibitors: {interval: 200ms}
    jupyter: {interval: 500ms}
    scheduled: {interval: 200ms}
    snooze: {interval: 200ms}
    cpu: {enabled: false}      # this machine computes, and its own disks turn
    disk: {enabled: false}
    network: {enabled: false}
    slurm: {enabled: false}
    processes: {enabled: false}  # tests run commands here as users; one test turns it on
    connections: {enabled: false}
"""
# Faster than it is shipped, but a busy machine starts an agent in seconds; the rest is as it is shipped.
SERVICE = f"""
Environment=LD_LIBRARY_PATH=/srv/nvml:{LIBRARIES} NVML_STUB_STATE=/srv/driver/state
WatchdogSec=25s
RestartSec=200ms
"""
_POST = """
import sys, urllib.request as u
asked = u.Request(sys.argv[1], sys.argv[2].encode(), {"Content-Type": "application/json"})
print(u.urlopen(asked, timeout=5).read().decode())
"""


class Host(Booted):
    """A GPU host with the agent's unit."""

    driver: StubDriver

    def restart(self) -> int:
        """A fresh agent with the settings of these tests; its pid."""
        self.settings(SETTINGS)
        self.restart_fresh(AGENT)
        return self.agent

    def post(self, path: str, body: str) -> str:
        """What the agent answers to this order."""
        return self.run(PYTHON, "-c", _POST, f"{URL}{path}", body)

    @property
    def agent(self) -> int:
        """The agent's pid, 0 for none."""
        return int(self.show(AGENT, "MainPID"))

    def verdict(self) -> NodeVerdict | None:
        """What the agent says of the machine; None while nobody answers."""
        page = self.get(f"{URL}/v1/verdict")
        return msgspec.json.decode(page, type=NodeVerdict) if page else None

    def evidence(self) -> tuple[Evidence, ...]:
        """What speaks for that."""
        verdict = self.verdict()
        return () if verdict is None else verdict.activity.evidence

    def becomes(self, state: State, *names: str) -> None:
        """Wait for that verdict, because of these signals if there are any."""

        def so() -> bool:
            verdict = self.verdict()
            return (
                verdict is not None
                and verdict.activity.state is state
                and (not names or names == tuple(each.name for each in verdict.activity.evidence))
            )

        eventually(so, lambda: (self.verdict(), self.journal(AGENT)))


@contextmanager
def booted_host(folder: Path) -> Iterator[Host]:
    """It, booted, with a stand-in NVIDIA driver."""
    require("cc")
    library, state = build(folder / "nvml"), folder / "driver"
    driver = StubDriver(state, library)
    with Host(folder, {library: "/srv/nvml", state: "/srv/driver"}) as made:
        made.driver = driver
        shutil.copy(UNITS / "gpuwatch.sysusers.conf", made.root / "etc/sysusers.d/gpuwatch.conf")
        made.run("systemd-sysusers")
        made.install(f"{AGENT}.service", ["agent"], SERVICE)
        yield made
