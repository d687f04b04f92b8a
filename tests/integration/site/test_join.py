"""Hosts join a running controller: real processes, a real authority, agents on addresses of loopback."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from gpuwatch.clouds import FLEET_TAG
from tests.support.fakes.nvml import StubDriver
from tests.support.real.agents import RunningAgent, eventually, free_port
from tests.support.real.local_site import Site, a_site

_ADDRESSES = ("127.0.0.3", "127.0.0.4")


@pytest.fixture
def site(tmp_path: Path, nvml_library: Path) -> Iterator[Site]:
    """EC2 on loopback, and nothing else yet."""
    with a_site(tmp_path, nvml_library) as site:
        yield site


class Hosts:
    """Machines of a site whose agents are not there yet, and the controller that lets them join."""

    def __init__(self, site: Site) -> None:
        """Two machines, a free port for each agent, and a controller with a port for hosts."""
        self.site, self.port = site, free_port()
        image = site.ec2.register_image(Name="image")["ImageId"]
        made = site.ec2.run_instances(
            ImageId=image,
            InstanceType="g4dn.xlarge",
            MinCount=2,
            MaxCount=2,
            TagSpecifications=[{"ResourceType": "instance", "Tags": [{"Key": FLEET_TAG, "Value": "lab"}]}],
        )["Instances"]
        self.ids = [str(each["InstanceId"]) for each in made]
        self.ports = {node: free_port() for node in self.ids}
        for node, address in zip(self.ids, _ADDRESSES, strict=True):
            site.targets[node] = f"https://{address}:{self.ports[node]}"
        join = {"host": "127.0.0.2", "port": self.port, "folder": str(site.folder / "join")}
        site.configure("observe", more={"controller": {"port": free_port(), "join": join}})
        site.controller(site.folder / "gpuwatch.yaml")
        eventually((site.folder / "join/trust.pem").exists, site.log)

    def token(self, *words: str) -> str:
        """A token of the controller."""
        made = self.site.run("join", "token", *words)
        assert made.returncode == 0, made.stderr
        return made.stdout.strip()

    def file(self, node: str) -> Path:
        """The settings of that machine's agent."""
        return self.site.folder / f"{node}.yaml"

    def join(self, node: str, token: str, *, folder: str = "") -> subprocess.CompletedProcess[str]:
        """`gpuwatch agent join` on that machine, with the token in a variable."""
        place = self.site.folder / (folder or f"{node}.join")
        words = ["agent", "join", f"127.0.0.2:{self.port}", "--node", node, "--folder", str(place)]
        return subprocess.run(
            [sys.executable, "-m", "gpuwatch", *words, "--config", str(self.file(node))],
            env={**os.environ, "GPUWATCH_JOIN_TOKEN": token},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def start_agent(self, node: str) -> RunningAgent:
        """The agent of that machine, with the settings that joining has written."""
        driver = StubDriver(self.site.folder / node, self.site.library)
        driver.gpu(0).utilization(0.9)
        self.site.drivers[node] = driver
        address = _ADDRESSES[self.ids.index(node)]
        environment = {**driver.environment, "GPUWATCH_CONFIG": str(self.file(node))}
        return self.site.stack.enter_context(
            RunningAgent(environment, node_id=node, host=address, port=self.ports[node], interval=0.2)
        )

    def seen(self, node: str) -> str:
        """What `status` says of a machine's use."""
        answer = self.site.run("status", "--json")
        rows = {row["id"]: row for row in json.loads(answer.stdout or "{}").get("nodes", [])}
        return f"{rows.get(node, {}).get('activity')} {rows.get(node, {}).get('doubt')}"

    def list(self) -> dict[str, dict[str, object]]:
        """The hosts of `gpuwatch join list`."""
        listed = json.loads(self.site.run("join", "list", "--json").stdout)
        return {host["node_id"]: host for host in listed["hosts"]}


def test_a_host_joins_by_one_line_and_is_seen_without_a_change_on_the_controller(site: Site) -> None:
    """Two hosts join with one token of two uses; a third use is refused, and what is written is root's alone."""
    hosts = Hosts(site)
    token = hosts.token("--hosts", "2")
    for node in hosts.ids:
        joined = hosts.join(node, token)
        assert joined.returncode == 0, joined.stderr
        assert token not in joined.stdout + joined.stderr
        hosts.start_agent(node)
    for node in hosts.ids:
        eventually(lambda node=node: hosts.seen(node).startswith("busy"), lambda node=node: hosts.seen(node))  # type: ignore[misc]

    refused = hosts.join("i-third", token)
    assert (refused.returncode, "used up" in refused.stderr) == (1, True)
    assert not hosts.file("i-third").exists()
    assert {node: host["state"] for node, host in hosts.list().items()} == dict.fromkeys(hosts.ids, "joined")
    secret = token.split(".")[1]
    written = [path for path in site.folder.rglob("*") if path.is_file() and path.parent.name.split(".")[-1] == "join"]
    assert {path.name for path in written} >= {"agent.key", "ca.key", "controller.key", "register.json"}
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in written)
    assert not [path for path in [*written, site.folder / "log"] if secret.encode() in path.read_bytes()]
    settings = yaml.safe_load(hosts.file(hosts.ids[0]).read_text(encoding="utf-8"))["agent"]
    assert settings["tls_client_names"] == ["controller.gpuwatch", "prometheus.gpuwatch"]


@pytest.mark.nightly  # test_hosts_without_cloud.py has one that is revoked
def test_a_revoked_host_is_unknown_at_once_and_comes_back_with_a_token_of_its_own(site: Site) -> None:
    """Its certificate would be valid for months; the list of revoked ones is read again without a restart."""
    hosts = Hosts(site)
    node = hosts.ids[0]
    assert hosts.join(node, hosts.token()).returncode == 0
    agent = hosts.start_agent(node)
    eventually(lambda: hosts.seen(node).startswith("busy"), lambda: hosts.seen(node))

    assert site.run("join", "revoke", node).returncode == 0
    eventually(lambda: hosts.seen(node).startswith("unknown"), lambda: hosts.seen(node))
    assert "revoked" in hosts.seen(node)

    hosts.file(node).unlink()
    again = hosts.join(node, hosts.token(), folder="reinstalled")
    assert (again.returncode, f"join token --node {node}" in again.stderr) == (1, True)
    again = hosts.join(node, hosts.token("--node", node), folder="reinstalled")
    assert again.returncode == 0, again.stderr
    agent.__exit__()
    hosts.start_agent(node)
    eventually(lambda: hosts.seen(node).startswith("busy"), lambda: hosts.seen(node))


def test_a_host_with_the_certificate_of_another_is_not_believed(site: Site) -> None:
    """Both certificates are of the right authority; the controller asks each machine for the name of its own node."""
    hosts = Hosts(site)
    one, other = hosts.ids
    assert hosts.join(one, hosts.token()).returncode == 0
    hosts.file(one).rename(hosts.file(other))  # the settings of one, at the address of the other
    hosts.start_agent(other)
    eventually(lambda: "certificate" in hosts.seen(other), lambda: hosts.seen(other))
    assert hosts.seen(other).startswith("unknown")
