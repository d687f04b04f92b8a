"""Two hosts without a cloud, by the settings that docs/clouds/hosts.md prints: real agents in networks of their own."""

import json
import os
import re
import subprocess
import sys
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.fakes.nvml import StubDriver
from tests.support.paths import ROOT
from tests.support.real.agents import RunningAgent, eventually, free_port
from tests.support.real.two_hosts import HERE, THERE, TwoHosts, can_be_made, inside

PAGE = ROOT / "docs/clouds/hosts.md"


def blocks(language: str) -> list[str]:
    """The page's blocks of a language, without their indentation."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return ["".join(line.removeprefix(indent) for line in text.splitlines(keepends=True)) for indent, text in found]


class Lab:
    """A controller next to the first host, by the page's settings; only their folders are others."""

    def __init__(self, stack: ExitStack, folder: Path, library: Path) -> None:
        """The settings and prices are written, and the controller runs."""
        self.stack, self.folder, self.library = stack, folder, library
        self.hosts = stack.enter_context(TwoHosts())
        settings, prices = blocks("yaml")
        moved = {"/var/lib/gpuwatch": str(folder), "/etc/gpuwatch": str(folder)}
        for name, text in (("gpuwatch.yaml", settings), ("prices.yaml", prices)):
            here = re.sub("|".join(moved), lambda found: moved[found.group()], text)
            (folder / name).write_text(here, encoding="utf-8")
        self.web = free_port()
        self.environment = {
            **os.environ,
            "GPUWATCH_LEDGER__PATH": str(folder / "ledger.db"),
            "GPUWATCH_CONTROLLER__PORT": str(self.web),
            "GPUWATCH_INTERVAL": "1s",
            "GPUWATCH_CONTROLLER__JOIN__FOLDER": str(folder / "join"),
        }
        log = stack.enter_context((folder / "log").open("a"))
        command = [sys.executable, "-m", "gpuwatch", "controller", "--config", str(folder / "gpuwatch.yaml")]
        controller = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)
        stack.callback(controller.wait, 30)
        stack.callback(controller.terminate)
        eventually((folder / "join/register.json").exists, self.log)

    def log(self) -> str:
        """What the controller said last."""
        return (self.folder / "log").read_text(encoding="utf-8")[-3000:]

    def run(self, *words: str, there: bool = False, **environment: str) -> str:
        """A command on the first host, or on the other one."""
        command = [*(self.hosts.enter() if there else ()), sys.executable, "-m", "gpuwatch", *words]
        told = {**self.environment, **environment}
        done = subprocess.run(command, env=told, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr + self.log()
        return done.stdout

    def control(self, *words: str) -> str:
        """A command at the controller."""
        return self.run(*words, "--config", str(self.folder / "gpuwatch.yaml"))

    def join(self, name: str, token: str, utilization: float, *, there: bool = False) -> RunningAgent:
        """A host joins by one line, and its agent starts with the settings that this has written."""
        file, place = str(self.folder / f"{name}.yaml"), str(self.folder / f"{name}.join")
        words = ("agent", "join", HERE, "--node", name, "--folder", place, "--config", file)
        self.run(*words, there=there, GPUWATCH_JOIN_TOKEN=token)
        driver = StubDriver(self.folder / name, self.library)
        driver.write({"gpu.0.uuid": f"GPU-0000000{name[-1]}-0000-4000-8000-000000000000"})
        driver.gpu(0).utilization(utilization)
        command = (*(self.hosts.enter() if there else ()), sys.executable, "-m", "gpuwatch")
        environment = {**driver.environment, "GPUWATCH_CONFIG": file}
        host = THERE if there else HERE
        made = RunningAgent(environment, command, node_id=name, host=host, port=9460, interval=0.2)
        return self.stack.enter_context(made)

    def get(self, path: str) -> str:
        """What the controller's server answers."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.web}{path}", timeout=30) as answer:
            return str(answer.read().decode())

    def rows(self) -> dict[str, dict[str, object]]:
        """What the page shows of each host, by their names; nothing before the first round."""
        try:
            return {row["id"]: row for row in json.loads(self.get("/api/v1/nodes"))["nodes"]}
        except OSError:
            return {}

    def seen(self, name: str, key: str) -> object:
        """One fact of a host."""
        return self.rows().get(name, {}).get(key)


def story(folder: Path, library: Path) -> dict[str, object]:
    """Two of the six hosts join, one is unplugged, and the other is revoked; what is seen of each."""
    with ExitStack() as stack:
        lab = Lab(stack, folder, library)
        token = lab.control("join", "token", "--hosts", "6").strip()
        lab.join("gpu-1", token, 0.9)
        lab.join("gpu-2", token, 0.0, there=True)
        eventually(lambda: [lab.seen(name, "activity") for name in ("gpu-1", "gpu-2")] == ["busy", "idle"], lab.rows)
        told: dict[str, object] = {"first": lab.rows(), "plan": lab.control("plan")}
        told["explain"] = lab.control("explain", "gpu-2")
        told["status"] = json.loads(lab.control("status", "--json"))["nodes"]
        told["metrics"] = lab.get("/metrics")
        told["cost"] = lab.control("cost", "--by", "owner")
        lab.hosts.unplug()
        eventually(lambda: lab.seen("gpu-2", "state") == "unknown", lab.rows)
        told["unplugged"] = lab.rows()
        lab.control("join", "revoke", "gpu-1")
        eventually(lambda: lab.seen("gpu-1", "state") == "unknown", lab.rows)
        told["revoked"] = lab.rows()
        return told


@pytest.mark.skipif(not can_be_made(), reason="only root can make network namespaces, and not everywhere")
def test_two_hosts_join_by_the_pages_settings_and_are_watched_and_never_stopped(
    tmp_path: Path, nvml_library: Path
) -> None:
    """Use, owner and price of those that joined; the rest and the unplugged one are unknown; no stop is announced."""
    told = inside(__name__, f"{tmp_path} {nvml_library}", seconds=400, own_pids=False)

    first = told["first"]
    assert sorted(first) == [f"gpu-{number}" for number in range(1, 7)]
    assert [first["gpu-1"][key] for key in ("activity", "owner", "state", "pool")] == [
        "busy",
        "anna",
        "running",
        "default",
    ]
    assert [first["gpu-2"][key] for key in ("activity", "owner", "gpu_count")] == ["idle", "ben", 1]
    assert [first["gpu-3"][key] for key in ("state", "pool", "activity")] == ["unknown", "train", None]
    assert "its agent" in first["gpu-3"]["why"]
    assert (first["gpu-1"]["usd_per_hour"], first["gpu-6"]["usd_per_hour"]) == ("0.684463", "0.40")
    assert "purchase price of 24000 over 4 years" in first["gpu-1"]["price_source"]
    assert "no_power" in told["explain"]
    assert "gpuwatch has no power control over it" in " ".join(told["explain"].split())
    assert not re.search(r"(?i)will be stopped|stop gpu-|stops at", told["plan"] + told["explain"])
    assert {row["id"]: row["activity"] for row in told["status"]} == {name: first[name]["activity"] for name in first}
    assert re.search(r'gpuwatch_\w*nodes\{[^}]*pool="train"', told["metrics"])
    assert "anna" in told["cost"]
    assert told["unplugged"]["gpu-2"]["usd_per_hour"] == "0.684463"
    assert "revoked" in told["revoked"]["gpu-1"]["why"]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(story(*map(Path, sys.argv[1].split()))))
