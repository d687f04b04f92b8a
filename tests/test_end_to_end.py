"""The whole line with real processes: stub driver, agents, EC2 played by moto over HTTP, controller, command line."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
import pytest
from moto.server import ThreadedMotoServer

from gpuwatch.clouds import FLEET_TAG, NOTIFIED_AT
from tests.agents import RunningAgent, eventually
from tests.nvml import StubDriver

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

REGION = "us-east-1"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_DEFAULT_REGION": REGION}


@dataclass(slots=True)
class Site:
    """One small site: machines at EC2, an agent on each, a configuration file."""

    folder: Path
    library: Path
    endpoint: str
    stack: ExitStack
    drivers: dict[str, StubDriver] = field(default_factory=dict)
    targets: dict[str, str] = field(default_factory=dict)

    @property
    def ec2(self) -> "EC2Client":
        """EC2 as its user sees it."""
        return boto3.client(
            "ec2",
            region_name=REGION,
            endpoint_url=self.endpoint,
            aws_access_key_id="testing",
            aws_secret_access_key="testing",  # noqa: S106  moto's
        )

    @property
    def environment(self) -> dict[str, str]:
        """What the operator's processes see."""
        return {**os.environ, **CREDENTIALS}

    def launch(self, name: str, utilization: float, **tags: str) -> str:
        """A machine with one GPU at that utilization, and its agent; gives the instance id."""
        named = {"Name": name, FLEET_TAG: "lab", **{key.replace("__", ":"): value for key, value in tags.items()}}
        image = self.ec2.describe_images()["Images"][0]["ImageId"]
        (machine,) = self.ec2.run_instances(
            ImageId=image,
            InstanceType="g4dn.xlarge",
            MinCount=1,
            MaxCount=1,
            TagSpecifications=[
                {"ResourceType": "instance", "Tags": [{"Key": k, "Value": v} for k, v in named.items()]}
            ],
        )["Instances"]
        node_id = str(machine["InstanceId"])
        driver = StubDriver(self.folder / node_id, self.library)
        driver.gpu(0).utilization(utilization)
        agent = self.stack.enter_context(RunningAgent(driver.environment, node_id=node_id, interval=0.2))
        self.drivers[node_id], self.targets[node_id] = driver, agent.url
        return node_id

    def configure(self, mode: str) -> Path:
        """The configuration file of the controller: waits of seconds instead of minutes."""
        path = self.folder / "gpuwatch.yaml"
        idle = {"after": "2s", "notice": "2s", "instance_store": "discard"}  # moto's g4dn have local disks
        pool = {"warm_up": "0s", "idle": idle}
        settings = {
            "mode": mode,
            "fleet": "lab",
            "interval": "1s",
            "cloud": {"regions": [REGION], "endpoint_url": self.endpoint},
            "signals": {"targets": self.targets, "timeout": "5s"},
            "pools": {"default": pool},
            "limits": {"max_stops_per_hour_ratio": 1.0},
            "ledger": {"path": str(self.folder / "ledger.db")},
        }
        path.write_text(json.dumps(settings), encoding="utf-8")  # JSON is YAML
        return path

    def start(self, command: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
        """A process of the site; it ends with the test."""
        log = self.stack.enter_context((self.folder / "log").open("a"))
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, text=True)
        self.stack.callback(_end, process)
        return process

    def controller(self, config: Path) -> subprocess.Popen[str]:
        """`gpuwatch controller`."""
        return self.start([*_GPUWATCH, "controller", "--config", str(config)], self.environment)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """An operator's command."""
        command = [*_GPUWATCH, *words, "--config", str(self.folder / "gpuwatch.yaml")]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=60, check=False)

    def log(self) -> str:
        """What the operator's processes said last."""
        return (self.folder / "log").read_text(encoding="utf-8")[-3000:]

    def state(self, node_id: str) -> str:
        """What EC2 says of a machine."""
        (reservation,) = self.ec2.describe_instances(InstanceIds=[node_id])["Reservations"]
        return str(reservation["Instances"][0]["State"]["Name"])

    def tags(self, node_id: str) -> dict[str, str]:
        """A machine's tags."""
        (reservation,) = self.ec2.describe_instances(InstanceIds=[node_id])["Reservations"]
        return {tag["Key"]: tag["Value"] for tag in reservation["Instances"][0]["Tags"]}

    def settled_stops(self, node_id: str) -> int:
        """How many stops the ledger holds as done."""
        explained = self.run("explain", node_id, "--json")
        assert explained.returncode == 0, explained.stderr
        history = json.loads(explained.stdout)["history"]
        return sum(
            entry["intent"]["verb"] == "stop" and [o["status"] for o in entry["outcomes"]][-1:] == ["settled"]
            for entry in history
        )


_GPUWATCH = [sys.executable, "-m", "gpuwatch"]


def _end(process: subprocess.Popen[str]) -> None:
    """No process outlives its test."""
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@pytest.fixture
def site(tmp_path: Path, nvml_library: Path) -> Iterator[Site]:
    """EC2 on loopback, and nothing else yet."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    # moto keeps its machines in this process: forget those of the tests before.
    urllib.request.urlopen(urllib.request.Request(f"http://{host}:{port}/moto-api/reset", method="POST")).close()
    with ExitStack() as stack:
        site = Site(folder=tmp_path, library=nvml_library, endpoint=f"http://{host}:{port}", stack=stack)
        yield site
    server.stop()


def test_an_idle_instance_is_stopped_a_busy_one_is_left_alone_and_one_can_read_why(site: Site) -> None:
    """From the driver to EC2: observe first, then enforce; plan, status and explain tell the same story."""
    idle, busy = site.launch("forgotten", 0.0), site.launch("trainer", 0.9)
    protected = site.launch("demo-day", 0.0, gpuwatch__protect="true")
    site.configure("observe")

    both = (f"may not notice {idle} (forgotten)", f"may not notice {protected} (demo-day)")
    eventually(lambda: all(each in site.run("plan").stdout for each in both), lambda: site.run("plan").stdout)
    plan = site.run("plan").stdout
    assert "observe_only: This controller only observes." in plan
    assert "protected:" in plan
    assert (NOTIFIED_AT in site.tags(idle), site.state(idle)) == (False, "running")

    controller = site.controller(site.configure("enforce"))
    eventually(lambda: NOTIFIED_AT in site.tags(idle), site.log)
    eventually(lambda: site.state(idle) == "stopped", site.log)
    eventually(lambda: site.settled_stops(idle) == 1, site.log)

    assert (site.state(busy), site.state(protected)) == ("running", "running")
    status = {row["node"]: row for row in json.loads(site.run("status", "--json").stdout)}
    assert status[busy]["activity"] == "busy"
    assert status[idle]["state"] == "stopped"
    text = site.run("explain", "trainer").stdout
    assert "gpu0.utilization_max = 0.9 ratio (limit 0.01) says busy" in text
    assert "refuses  busy" in text
    assert "What would change it: It would have to be idle for 2s." in text
    story = site.run("explain", "forgotten").stdout
    assert "the cloud shows it stopped" in story
    assert "and its notice of 2s has run out" in story

    controller.send_signal(signal.SIGTERM)
    assert controller.wait(15) == 0


def test_a_machine_that_goes_back_to_work_keeps_running(site: Site) -> None:
    """Work in the grace period withdraws the notice, in the tags and in the ledger."""
    node = site.launch("trainer", 0.0)
    config = site.configure("enforce")
    site.controller(config)
    eventually(lambda: NOTIFIED_AT in site.tags(node), site.log)
    site.drivers[node].gpu(0).utilization(1.0)

    eventually(lambda: site.tags(node)[NOTIFIED_AT].startswith("withdrawn"), site.log)
    assert site.state(node) == "running"


def test_a_controller_killed_with_minus_nine_goes_on_where_it_was(site: Site) -> None:
    """Killed after the notice: the next one finds the notice in the ledger, and stops the machine exactly once."""
    node = site.launch("forgotten", 0.0)
    config = site.configure("enforce")
    first = site.controller(config)
    eventually(lambda: NOTIFIED_AT in site.tags(node), site.log)
    notice = site.tags(node)[NOTIFIED_AT]
    first.kill()
    first.wait()
    site.controller(config)

    eventually(lambda: site.state(node) == "stopped", site.log)
    eventually(lambda: site.settled_stops(node) == 1, site.log)
    assert site.tags(node)[NOTIFIED_AT] == notice


def test_a_silent_agent_keeps_its_machine_running(site: Site) -> None:
    """An agent that is gone, or hangs, is unknown: its idle machine stays up, and status says why."""
    node = site.launch("forgotten", 0.0)
    site.targets[node] = "http://127.0.0.1:9"  # the discard port: nobody answers
    site.controller(site.configure("enforce"))

    eventually(
        lambda: "could not be asked" in json.loads(site.run("status", "--json").stdout or "[{}]")[0].get("doubt", ""),
        lambda: site.run("status").stdout,
    )
    assert site.state(node) == "running"
    assert "refuses  unknown" in site.run("explain", node).stdout
