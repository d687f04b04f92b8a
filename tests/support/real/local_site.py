"""A small site of real processes: stub driver, agents, EC2 played by moto over HTTP, controller, command line."""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
from botocore.parsers import ResponseParserError
from moto.server import ThreadedMotoServer

from gpuwatch.clouds import FLEET_TAG
from gpuwatch.ledger import Ledger
from gpuwatch.ledger.records import Entry
from gpuwatch.model.decision import Status, Verb
from tests.support.fakes.nvml import StubDriver
from tests.support.real.agents import RunningAgent

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import InstanceTypeDef

REGION = "us-east-1"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_DEFAULT_REGION": REGION}


@dataclass(slots=True)
class Site:
    """One small site: machines at EC2, an agent on each, a configuration file. `agent` are more settings of agents."""

    folder: Path
    library: Path
    endpoint: str
    stack: ExitStack
    drivers: dict[str, StubDriver] = field(default_factory=dict)
    targets: dict[str, str] = field(default_factory=dict)
    agent: dict[str, object] = field(default_factory=dict)

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
        image = self.ec2.register_image(Name=name)["ImageId"]
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
        agent = self.stack.enter_context(RunningAgent(driver.environment, node_id=node_id, interval=0.2, **self.agent))
        self.drivers[node_id], self.targets[node_id] = driver, agent.url
        return node_id

    def configure(self, mode: str, notice: str = "2s", more: Mapping[str, object] | None = None) -> Path:
        """The configuration file of the controller: waits of seconds instead of minutes, and more sections."""
        path = self.folder / "gpuwatch.yaml"
        idle = {"timeout": "2s", "grace_period": notice, "owner_grace_period": notice}
        idle |= {"instance_store": "discard"}  # moto's g4dn have local disks
        pool = {"warm_up": "0s", "idle": idle}
        settings = {
            "mode": mode,
            "fleet": "lab",
            "interval": "1s",
            "cloud": {"regions": [REGION], "endpoint_url": self.endpoint},
            "signals": {"targets": self.targets, "timeout": "5s"},
            "pools": {"default": pool},
            "limits": {"max_stops_per_hour_ratio": 1.0, "allow_short_waits": True},
            "ledger": {"path": str(self.folder / "ledger.db")},
            **(more or {}),
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
        written = self.folder / "log"
        return written.read_text(encoding="utf-8")[-3000:] if written.exists() else ""

    def state(self, node_id: str) -> str:
        """What EC2 says of a machine."""
        return self._instance(node_id)["State"]["Name"]

    def tags(self, node_id: str) -> dict[str, str]:
        """A machine's tags."""
        return {tag["Key"]: tag["Value"] for tag in self._instance(node_id)["Tags"]}

    def _instance(self, node_id: str) -> "InstanceTypeDef":
        """Asked once more where moto answers with a page of an error, as it does if two calls meet in it."""
        try:
            (reservation,) = self.ec2.describe_instances(InstanceIds=[node_id])["Reservations"]
        except ResponseParserError:
            (reservation,) = self.ec2.describe_instances(InstanceIds=[node_id])["Reservations"]
        return reservation["Instances"][0]

    def settled_stops(self, node_id: str) -> int:
        """How many stops the ledger holds as done."""
        return sum(
            each.intent.verb is Verb.STOP and [outcome.status for outcome in each.outcomes][-1:] == [Status.SETTLED]
            for each in self.history(node_id)
        )

    def history(self, node_id: str) -> list[Entry]:
        """What the ledger has of a node, newest first; a command that says so costs a second of each look."""
        ledger = Ledger.open(self.folder / "ledger.db", read_only=True)
        try:
            return list(ledger.history(node_id))
        finally:
            ledger.close()


_GPUWATCH = [sys.executable, "-m", "gpuwatch"]


def _end(process: subprocess.Popen[str]) -> None:
    """No process outlives its test."""
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def a_site(folder: Path, library: Path) -> Iterator[Site]:
    """EC2 on loopback, and nothing else yet."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    # moto keeps its machines in this process: forget those of the tests before.
    urllib.request.urlopen(urllib.request.Request(f"http://{host}:{port}/moto-api/reset", method="POST")).close()
    with ExitStack() as stack:
        yield Site(folder=folder, library=library, endpoint=f"http://{host}:{port}", stack=stack)
    server.stop()
