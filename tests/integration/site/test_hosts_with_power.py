"""A night of two hosts without a cloud: idle, told, off by agent and by BMC, and on again by a schedule."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.clouds.hosts.bmc import MAC, ONE, TWO, UUIDS, FakeBmc
from tests.support.clouds.server import serving
from tests.support.fakes.nvml import StubDriver
from tests.support.real.agents import eventually, free_port
from tests.support.real.certificates import Authority
from tests.support.real.powered_host import start_host
from tests.support.real.two_hosts import HERE, THERE, TwoHosts, can_be_made, inside

SETTINGS = """
fleet: lab
mode: enforce
interval: 1s
cloud:
  provider: hosts
  hosts:
    joined: {folder}/join
    machines:
      gpu-1: {{type: rtx-box, pool: rack, bmc: "127.0.0.1:{bmc}"}}
      gpu-2: {{owner: ben, type: rtx-box, pool: desk, mac: "{mac}"}}
    power:
      rack: {{user: gpuwatch, password_file: {folder}/password, ca: {ca}}}
      desk: {{stop_by: agent, start_by: wake, broadcast: 10.99.0.255}}
controller:
  join: {{host: 0.0.0.0, folder: {folder}/join}}
  port: {web}
ledger: {{path: {folder}/ledger.db}}
limits: {{max_stops_per_hour_ratio: 1.0, allow_short_waits: true}}
pools:
  rack: &pool
    warm_up: 5s
    idle: {{timeout: 5s, grace_period: 3s, owner_grace_period: 3s, action: stop}}
    schedule: {{day: {{hours: 00:00-24:00, zone: UTC, min_nodes: {nodes}}}}}
  desk: *pool
prices: {{file: {folder}/prices.yaml}}
"""
PRICES = "prices: [{provider: hosts, instance_type: rtx-box, purchase: 24000, years: 4}]\n"
AGENT = {"control_socket": "none", "kernel_log": "none", "health_file": "none", "metadata__provider": "none"}
AGENT |= {"evidence__enabled": "false", "poweroff": "true", "interval": "0.2s", "port": "9460"}


class FileBmc(FakeBmc):
    """A BMC that has the mains of a host."""

    file: Path | None = None

    @property
    def power(self) -> str:
        """What the file says."""
        return "On" if self.file is None else self.file.read_text(encoding="utf-8")

    @power.setter
    def power(self, value: str) -> None:
        if self.file is not None:
            self.file.write_text(value, encoding="utf-8")


class Lab:
    """A controller and the first host here, the other host at the end of a cable."""

    def __init__(self, stack: ExitStack, folder: Path, library: Path) -> None:
        """Both hosts are on, have joined, and compute."""
        self.stack, self.folder, self.library, self.web = stack, folder, library, free_port()
        self.drivers: dict[str, StubDriver] = {}
        self.hosts, authority = stack.enter_context(TwoHosts()), Authority(folder)
        self.write("password", "let me in\n")
        self.write("prices.yaml", PRICES)
        for name in UUIDS:
            self.write(f"{name}.power", "On")
        self.bmc = FileBmc(UUIDS[ONE])
        self.bmc.file = folder / f"{ONE}.power"
        server = stack.enter_context(serving(self.bmc, authority=authority))
        self.told = {"folder": folder, "bmc": server.server_port, "mac": MAC, "ca": authority.ca, "web": self.web}
        self.write("gpuwatch.yaml", SETTINGS.format(**self.told, nodes=0))
        log = stack.enter_context((folder / "log").open("a"))
        command = [sys.executable, "-m", "gpuwatch", "controller", "--config", str(folder / "gpuwatch.yaml")]
        self.controller = subprocess.Popen(command, stdout=log, stderr=log)
        stack.callback(self.controller.wait, 30)
        stack.callback(self.controller.terminate)
        eventually((folder / "join/register.json").exists, self.log)
        token = self.run("join", "token", "--hosts", "2").strip()
        self.join(ONE, token, HERE)
        self.join(TWO, token, THERE)

    def write(self, name: str, text: str) -> None:
        """A file of the lab."""
        (self.folder / name).write_text(text, encoding="utf-8")

    def log(self) -> str:
        """What the controller said last."""
        return (self.folder / "log").read_text(encoding="utf-8")[-3000:]

    def run(self, *words: str, prefix: tuple[str, ...] = (), settings: str = "gpuwatch", **more: str) -> str:
        """A command."""
        command = [*prefix, sys.executable, "-m", "gpuwatch", *words, "--config", f"{self.folder}/{settings}.yaml"]
        done = subprocess.run(
            command,
            env={**os.environ, "COLUMNS": "400", **more},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr + self.log()
        return done.stdout

    def join(self, name: str, token: str, address: str) -> None:
        """A host joins by one line, and is on from now on."""
        prefix = self.hosts.enter() if address == THERE else ()
        words = ("agent", "join", HERE, "--node", name, "--folder", f"{self.folder}/{name}.join")
        self.run(*words, prefix=prefix, settings=name, GPUWATCH_JOIN_TOKEN=token)
        self.drivers[name] = StubDriver(self.folder / name, self.library)
        self.drivers[name].write({"gpu.0.uuid": f"GPU-0000000{name[-1]}-0000-4000-8000-000000000000"})
        self.computes(name, 0.9)
        own = {**AGENT, "node_id": name, "host": address}
        variables = {f"GPUWATCH_AGENT__{key.upper()}": text for key, text in own.items()}
        environment = {**self.drivers[name].environment, **variables, "GPUWATCH_CONFIG": f"{self.folder}/{name}.yaml"}
        card = "v1" if address == THERE else "-"
        made = start_host(name, self.folder / f"{name}.power", card, environment, prefix)
        self.stack.callback(made.wait)
        self.stack.callback(made.terminate)

    def computes(self, name: str, utilization: float) -> None:
        """How much its GPU does from now on."""
        self.drivers[name].gpu(0).utilization(utilization)

    def rows(self) -> dict[str, dict[str, object]]:
        """What the page shows of each host, by their names; nothing before the first round."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.web}/api/v1/nodes", timeout=30) as answer:
                return {row["id"]: row for row in json.loads(answer.read())["nodes"]}
        except OSError:
            return {}

    def wait(self, **wanted: str) -> None:
        """Until both hosts show that."""
        shown = {key: list(wanted.values()) for key in (ONE, TWO)}

        def so() -> bool:
            return {name: [row[key] for key in wanted] for name, row in self.rows().items()} == shown

        eventually(so, lambda: (self.rows(), self.log()), seconds=240.0)


def story(folder: Path, library: Path) -> dict[str, object]:
    """Both compute, are idle, and are off; then a schedule wants them."""
    with ExitStack() as stack:
        lab = Lab(stack, folder, library)
        lab.wait(state="running", activity="busy")
        for name in UUIDS:
            lab.computes(name, 0.0)
        lab.wait(state="stopped")
        told: dict[str, object] = {"off": lab.run("status"), "bmc off": list(lab.bmc.asked_for)}
        lab.write("gpuwatch.yaml", SETTINGS.format(**lab.told, nodes=1))
        lab.controller.send_signal(signal.SIGHUP)
        lab.wait(state="running", activity="idle")
        return {
            **told,
            "bmc": lab.bmc.asked_for,
            "explain": lab.run("explain", ONE) + lab.run("explain", TWO),
            "cost": lab.run("cost", "--by", "owner"),
        }


@pytest.mark.nightly
@pytest.mark.skipif(not can_be_made(), reason="only root can make network namespaces, and not everywhere")
def test_two_idle_hosts_are_told_switched_off_and_on_again_without_any_cloud(
    tmp_path: Path, nvml_library: Path
) -> None:
    """By BMC and by Wake-on-LAN, over real TLS and real frames; nothing is counted as saved."""
    told = inside(__name__, f"{tmp_path} {nvml_library}", seconds=900, own_pids=False)

    assert told["off"].count("gpuwatch stopped it at") == 2
    assert (told["bmc off"], told["bmc"]) == (["GracefulShutdown"], ["GracefulShutdown", "On"])
    for verb in ("notice", "stop", "start"):
        assert told["explain"].count(f" UTC {verb}: ") >= 2, told["explain"]
    assert "ben" in told["cost"]
    assert "$0.00" in told["off"]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(story(*map(Path, sys.argv[1].split()))))
