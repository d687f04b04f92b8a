"""BMCs that speak Redfish over real TLS, and two hosts behind them whose agents answer as a test says.

`FakeBmc` has what DMTF publishes of ComputerSystem and its action Reset, as far as it is read, and fails as real ones
do: it keeps a machine on that it was asked to switch off, shows an old state, or the UUID of another machine.
"""

import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuwatch.clouds.errors import CloudError, CloudUnavailableError
from gpuwatch.clouds.hosts.cloud import HostsCloud
from gpuwatch.clouds.hosts.settings import HostSettings, HostsSettings, PowerSettings
from gpuwatch.model.fleet import Node
from gpuwatch.model.power import PowerAnswer, PowerQuestion
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import NOW, a_permit
from tests.support.clouds.faults import Asked
from tests.support.clouds.server import CloudServer, Refused, Request, Response, serving
from tests.support.real.certificates import Authority

ONE, TWO = "gpu-1", "gpu-2"
UUIDS = {ONE: "4c4c4544-0051-4a10-8056-c4c04f4e3533", TWO: "4c4c4544-0051-4a10-8056-c4c04f4e3534"}
MAC, OTHER = "52:54:00:12:34:56", "52:54:00:12:34:57"
PASSWORD = "let me in"  # noqa: S105  of a fake
_SYSTEM = "/redfish/v1/Systems/437XR1138R2"  # as in DMTF's examples
_RESET = f"{_SYSTEM}/Actions/ComputerSystem.Reset"


@dataclass
class FakeBmc:
    """A BMC with one machine; `asked_for` are the resets that it has carried out or accepted."""

    uuid: str
    power: str = "On"
    allowed: list[str] | None = field(default_factory=lambda: ["On", "ForceOff", "GracefulShutdown", "ForceRestart"])
    obeys: bool = True  # whether the machine does what was accepted
    shows: str | None = None  # a state that it goes on showing
    refuses: int | None = None  # the status of every answer
    refuses_resets: int | None = None
    systems: list[str] = field(default_factory=list)  # UUIDs of further ones
    asked_for: list[str] = field(default_factory=list)
    users: set[str] = field(default_factory=set)
    reset_at: str | None = None  # the time of the last reset, by the BMC's own clock
    redirects: dict[str, str] = field(default_factory=dict)  # paths that are elsewhere, and where
    path: str = _SYSTEM  # as it names the one of its machine
    looks: int = 0  # how many resources were asked for
    late: Callable[[], None] = lambda: None  # called before each answer

    def asked(self, request: Request) -> Asked:
        """What the request is."""
        return Asked(operation=request.method, change=request.method == "POST")

    def refusal(self, request: Request, kind: Refused) -> Response:
        """A BMC that is busy."""
        del request, kind
        return Response(status=503)

    def answer(self, request: Request) -> Response:
        """Carry it out, as a BMC does."""
        self.users.add(request.headers.get("authorization", ""))
        self.looks += request.method == "GET"
        self.late()
        if request.path in self.redirects:
            return Response(status=308, headers={"Location": self.redirects[request.path]})
        if self.refuses is not None:
            return Response(status=self.refuses, body={"error": {"message": "The service is temporarily unavailable."}})
        links = [self.path, *(f"/redfish/v1/Systems/{number}" for number in range(len(self.systems)))]
        if request.method == "POST" and request.path == _RESET:
            return self._reset(str(request.json["ResetType"]))
        if request.path in {"/redfish/v1/Systems", "/redfish/v1/Systems/"}:
            return Response(body={"Members": [{"@odata.id": each} for each in links]})
        if request.path == _SYSTEM:
            return Response(body=self._system(self.uuid))
        if request.path in links:
            return Response(body={**self._system(self.systems[int(request.path[-1])]), "Actions": {}})
        return Response(status=404)

    def _reset(self, kind: str) -> Response:
        self.asked_for.append(kind)
        if self.refuses_resets is not None:
            return Response(status=self.refuses_resets, body={"error": {"message": "no"}})
        if self.obeys:
            self.power = {"On": "On", "GracefulShutdown": "Off"}[kind]
        return Response(status=202, body={"@odata.id": "/redfish/v1/TaskService/Tasks/1", "TaskState": "Running"})

    def _system(self, uuid: str) -> Mapping[str, Any]:
        reset: dict[str, Any] = {"target": _RESET}
        reset |= {} if self.allowed is None else {"ResetType@Redfish.AllowableValues": self.allowed}
        return {
            "@odata.type": "#ComputerSystem.v1_20_0.ComputerSystem",
            "UUID": uuid,
            "PowerState": self.shows or self.power,
            **({} if self.reset_at is None else {"LastResetTime": self.reset_at}),
            "Actions": {"#ComputerSystem.Reset": reset},
        }


class PoweredLab:
    """Two hosts of the pool train behind BMCs, and a third without power in another pool."""

    def __init__(self, settings: HostsSettings, bmcs: Mapping[str, Any], servers: Mapping[str, CloudServer]) -> None:
        self.clock = ManualClock(wall=NOW)
        self.settings, self.bmcs, self.servers = settings, dict(bmcs), dict(servers)
        self.agents: dict[str, PowerAnswer | CloudError] = {
            name: PowerAnswer(node_id=name, system_uuid=uuid, boot_id="1") for name, uuid in UUIDS.items()
        }
        self.questions: list[tuple[str, bool]] = []
        self.cloud = self.anew()

    def anew(self) -> HostsCloud:
        """The provider in a process that has just begun."""
        made = HostsCloud(fleet="lab", clock=self.clock, regions=(), endpoint_url=None, named=self.settings)
        made.by_agents(self.ask)
        return made

    def ask(self, node: Node, question: PowerQuestion, seconds: float | None) -> PowerAnswer:
        """What the agent of a host says."""
        del seconds
        self.questions.append((node.id, question.off))
        found = self.agents[node.id]
        if isinstance(found, CloudError):
            raise found
        return found

    def silence(self, name: str) -> None:
        """Its agent answers no more."""
        self.agents[name] = CloudUnavailableError("its agent did not answer within 5s")

    def seen(self, name: str) -> Node:
        """A host as the provider shows it."""
        found = self.cloud.node(name)
        assert found is not None
        return found


class Woken(PoweredLab):
    """Two hosts with cards that wake them; `heard` are the packets of their network."""

    def __init__(self, *, both: bool = False) -> None:
        """The network is loopback; only the first has such a card, or `both`."""
        self.heard = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.heard.bind(("127.0.0.1", 0))
        self.heard.settimeout(0.0)
        rules = PowerSettings(stop_by="agent", start_by="wake", broadcast=f"127.0.0.1:{self.heard.getsockname()[1]}")
        machines = {
            ONE: HostSettings(pool="train", mac=MAC),
            TWO: HostSettings(pool="train", mac=OTHER if both else None),
        }
        super().__init__(HostsSettings(machines=machines, power={"train": rules}), {}, {})

    def packets(self) -> list[bytes]:
        """What was heard since the last look."""
        found: list[bytes] = []
        while True:
            try:
                found.append(self.heard.recv(1024))
            except BlockingIOError:
                return found

    def goes_down(self) -> None:
        """It is stopped, and silent for more than a minute."""
        assert self.cloud.stop(ONE, "key", permit=a_permit()).ran
        self.silence(ONE)
        self.clock.advance(61.0)


@contextmanager
def powered_lab(folder: Path, **power: str) -> Iterator[PoweredLab]:
    """It, with its BMCs over TLS on loopback."""
    authority, secret = Authority(folder), folder / "password"
    secret.write_text(f"{PASSWORD}\n", encoding="utf-8")
    bmcs = {name: FakeBmc(uuid) for name, uuid in UUIDS.items()}
    rules = {"user": "gpuwatch", "password_file": str(secret), **power}
    with ExitStack() as stack:
        servers = {name: stack.enter_context(serving(each, authority=authority)) for name, each in bmcs.items()}
        machines = {
            name: HostSettings(pool="train", bmc=f"127.0.0.1:{server.server_port}") for name, server in servers.items()
        }
        made = HostsSettings(
            machines={**machines, "gpu-3": HostSettings()},
            power={"train": PowerSettings(ca=str(authority.ca), **rules)},  # type: ignore[arg-type]
        )
        yield PoweredLab(made, bmcs, servers)
