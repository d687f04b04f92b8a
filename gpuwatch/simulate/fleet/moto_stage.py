"""The live demo's stage: every host's agent on a loopback port, EC2 played in process by moto. No other network."""

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, cast
from urllib.parse import parse_qs, urlsplit

import boto3
import msgspec
from moto import mock_aws

from gpuwatch.agent.exporter.exporter import Exporter
from gpuwatch.agent.state import AgentCore
from gpuwatch.model.fleet import Node
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.http.request import Request
from gpuwatch.runtime.http.server import AgentServer, App, Response, Route
from gpuwatch.simulate.cloud_proxy import PassedOn
from gpuwatch.simulate.fleet.world import Host, World

if TYPE_CHECKING:
    from mypy_boto3_ec2.literals import InstanceTypeType

_IMAGE = "ami-12c6146b"  # one that moto brings along; listing all of them takes seconds
_TOP_PROCESSES = 4
_CONNECTIONS = 16
_CONNECTION_SECONDS = 15.0


@dataclass(slots=True)
class CycleClock:
    """Stands still while a cycle is read: on a clock played fast, a thread that waits its turn is no clock jump."""

    base: Clock
    begin: datetime
    seconds: float = 0.0

    def tick(self) -> None:
        """Move to the base clock's present."""
        self.seconds = self.base.monotonic()

    def now(self) -> datetime:
        """The begin plus the seconds."""
        return self.begin + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        """Where the base clock stood at the last tick."""
        return self.seconds

    def uptime(self) -> float:
        """Likewise: nothing here sleeps."""
        return self.seconds

    def sleep(self, seconds: float) -> None:
        """Sleep on the base clock."""
        self.base.sleep(seconds)


class Agents:
    """Serves each host's agent while it answers. `targets` are their URLs by node id, for the signal source."""

    def __init__(self, world: World, clock: Clock, cycle: CycleClock, interval_seconds: float) -> None:
        """Begin with nobody serving; `tend` opens what answers. `interval_seconds` are of the simulation."""
        self.targets: dict[str, str] = {}
        self._world, self._clock, self._cycle = world, clock, cycle
        self._interval = interval_seconds
        self._served: dict[str, tuple[AgentCore, AgentServer]] = {}
        self._reading = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="agents", daemon=True)

    def start(self) -> None:
        """All agents have read once and serve when this returns; a thread keeps on reading."""
        self.tend()
        self._thread.start()

    def close(self) -> None:
        """No agent serves any more."""
        self._ended.set()
        self._thread.join(timeout=10)
        for _, server in self._served.values():
            server.close()

    def tend(self) -> None:
        """One cycle of every agent; a host that is off or silent is not reachable."""
        for host in self._world.hosts.values():
            self._read(host)
            answers = host.answers(self._clock.monotonic())
            core, server = self._served.get(host.node_id, (None, None))
            if server is not None and (not answers or core is not host.core):  # off, silent, or booted anew
                del self._served[host.node_id]
                server.close()
            if answers and host.node_id not in self._served:
                self._open(host)

    def _read(self, host: Host) -> None:
        """One cycle of one agent."""
        with self._reading:
            self._cycle.tick()
            host.sample()

    def _run(self) -> None:
        while not self._ended.is_set():
            self._clock.sleep(self._interval)
            self.tend()

    def _open(self, host: Host) -> None:
        routes, verdict = self._pages(host)
        server = AgentServer(
            "127.0.0.1",
            0,
            routes,
            app=verdict,
            clock=self._clock,
            max_connections=_CONNECTIONS,
            timeout_seconds=_CONNECTION_SECONDS * self._interval,
        )
        server.start()
        self._served[host.node_id] = (host.core, server)
        self.targets[host.node_id] = server.url

    def _pages(self, host: Host) -> tuple[Mapping[str, Route], App]:
        """What this boot's agent answers: its metrics, and its verdict."""
        core, clock = host.core, self._clock
        exporter = Exporter(core, clock, node_id=host.node_id, top_processes=_TOP_PROCESSES, own_process=False)

        def metrics(accept: str) -> Response:
            page = exporter.page(accept)
            return Response(body=page.body, content_type=page.content_type, packed=page.packed)

        def verdict(request: Request) -> Response:
            url = urlsplit(request.target)
            if url.path != "/v1/verdict":
                return Response(status=HTTPStatus.NOT_FOUND, body=b"404\n", content_type="text/plain")
            nonce = next(iter(parse_qs(url.query).get("confirm", ())), None)
            looked_at = clock.monotonic()
            self._read(host)  # a real agent's last cycle is a second old at most, and a second is a minute here
            now = clock.monotonic()
            told = core.verdict(now)
            if nonce is not None:
                told = replace(told, confirm=nonce, looked_seconds=now - looked_at)
            return Response(body=msgspec.json.encode(told), content_type="application/json")

        return {"/metrics": metrics}, verdict


@contextlib.contextmanager
def played_aws(region: str) -> Iterator[boto3.Session]:
    """EC2 played by moto, with dummy credentials; whatever the user's environment says of AWS is out of sight."""
    kept = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("AWS_")}
    os.environ.update(
        AWS_CONFIG_FILE=os.devnull, AWS_SHARED_CREDENTIALS_FILE=os.devnull, AWS_EC2_METADATA_DISABLED="true"
    )
    try:
        with mock_aws():
            yield boto3.Session("demo", "demo", region_name=region)
    finally:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            del os.environ[name]
        os.environ.update(kept)


def launch(session: boto3.Session, machines: Iterable[tuple[str, Mapping[str, str]]]) -> list[str]:
    """Running machines of these types with these tags; gives their ids."""
    client = session.client("ec2")
    ids = []
    for instance_type, tags in machines:
        told = client.run_instances(
            ImageId=_IMAGE,
            MinCount=1,
            MaxCount=1,
            InstanceType=cast("InstanceTypeType", instance_type),
            TagSpecifications=[
                {"ResourceType": "instance", "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}
            ],
        )
        ids.append(told["Instances"][0]["InstanceId"])
    return ids


@dataclass(frozen=True, slots=True)
class PlayedTime(PassedOn):
    """A Cloud whose launch times are told on the simulation's clock: moto's are real, and those of the first start."""

    clock: Clock
    begin: datetime
    _started: dict[str, datetime] = field(default_factory=dict)

    def nodes(self) -> Sequence[Node]:
        """All machines."""
        return tuple(map(self._in_time, self.cloud.nodes()))

    def node(self, node_id: str) -> Node | None:
        """One machine."""
        found = self.cloud.node(node_id)
        return None if found is None else self._in_time(found)

    def start(self, node_id: str, key: str) -> None:
        """Start it, and remember when."""
        self.cloud.start(node_id, key)
        self._started[node_id] = self.clock.now()

    def _in_time(self, node: Node) -> Node:
        return replace(node, launched_at=self._started.get(node.id, self.begin))
