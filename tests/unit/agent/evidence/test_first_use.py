"""agent/evidence/first_use.py: a server that was brought up lately waits for its first user."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.agent.attribution.cgroup import Placement
from gpuwatch.agent.processes.pool import COMMON
from gpuwatch.agent.processes.process import Kind
from gpuwatch.model.activity import Evidence, State
from gpuwatch.runtime.clock import ManualClock
from tests.support.fakes.connected_host import ConnectedHost

HOUR, UP = 3600.0, 3 * 86400.0
PORT = ("0.0.0.0:6443", "0.0.0.0:0", "LISTEN", 500)


@pytest.fixture
def host(tmp_path: Path) -> ConnectedHost:
    """A host that is up for three days, and that an agent has looked at."""
    made = ConnectedHost(tmp_path)
    made.look(UP)
    made.look()
    return made


def serves(
    host: ConnectedHost,
    pid: int = 42,
    name: str = "k3s-server",
    *,
    began: float = 0.0,
    **other: Any,  # noqa: ANN401  fields of Process
) -> None:
    """A server of the machine's own waits there, which began at that moment of the uptime."""
    host.sockets(PORT)
    host.runs(pid, Kind.SERVICE, 500, name=name, uid=0)
    placement = Placement(systemd_unit="k3s.service")
    fresh = replace(host.running[pid], started_ticks=int(began * 100), placement=placement)
    host.running[pid] = replace(fresh, **other)


def is_awaited(found: Evidence) -> bool:
    """Whether it occupies the machine as a server whose first user is on the way."""
    return found.says is State.OCCUPIED and "awaits its first user" in (found.note or "")


def test_a_server_that_was_just_brought_up_occupies_the_machine_for_two_hours(host: ConnectedHost) -> None:
    """Whoever began it goes from machine to machine now; a trial that nobody uses is found afterwards."""
    serves(host, began=host.clock.monotonic())
    found = host.look()

    note = "k3s-server began to wait on port 6443 0s ago, and awaits its first user"
    assert (found.says, found.note) == (State.OCCUPIED, note)
    assert found.owner is not None
    assert (found.owner.process, found.owner.unit) == ("k3s-server", "k3s.service")
    assert is_awaited(host.look(2 * HOUR - 20.0))
    assert host.look(20.0).says is State.IDLE


def test_one_that_begins_again_and_again_is_new_once(host: ConnectedHost) -> None:
    """A crash loop holds its machine for two hours in all, whatever pids it has."""
    said = []
    for turn in range(30):
        host.running.clear()
        serves(host, pid=100 + turn, began=host.clock.monotonic())
        said.append(is_awaited(host.look(360.0)))

    assert said == [True] * 20 + [False] * 10


def test_another_port_of_a_known_server_is_new(host: ConnectedHost) -> None:
    """Its administrator has just opened it to others."""
    serves(host)
    host.look()
    host.look(3 * HOUR)
    host.sockets(PORT, ("0.0.0.0:514", "0.0.0.0:0", "LISTEN", 501))
    host.runs(42, Kind.SERVICE, 500, 501, name="k3s-server")
    assert is_awaited(host.look())


@pytest.mark.parametrize(("before", "awaited"), [(HOUR, True), (2.1 * HOUR, False), (UP - 600.0, False)])
def test_what_was_there_before_the_agent_looked_is_as_old_as_its_process(
    tmp_path: Path, before: float, *, awaited: bool
) -> None:
    """What came up with the machine, whoever looks first, came with its image."""
    host = ConnectedHost(tmp_path)
    serves(host, began=UP - before)
    host.look(UP)
    assert is_awaited(host.look()) is awaited


def test_what_begins_as_the_machine_boots_is_not_awaited(tmp_path: Path) -> None:
    """An agent that begins before them sees all services of the machine begin."""
    host = ConnectedHost(tmp_path)
    host.clock = ManualClock(elapsed_seconds=30.0)
    host.look()
    serves(host, began=60.0)
    assert host.look(60.0).says is State.IDLE


@pytest.mark.parametrize(
    "other",
    [{"name": "sshd"}, {"name": "node_exporter"}, {"rule": f"{COMMON}on 9 of 10 machines"}, {"kind": Kind.SESSION}],
)
def test_doors_pages_and_what_the_pool_has_are_nobodys(host: ConnectedHost, other: dict[str, Any]) -> None:
    """They are begun anew by upgrades and settings, and nobody comes for them."""
    serves(host, began=host.clock.monotonic(), **other)
    assert host.look().says is State.IDLE


@pytest.mark.parametrize("listens", ["127.0.0.1:6443", "0.0.0.0:40001"])
def test_what_others_cannot_ask_and_ports_of_no_fixed_number_hold_nothing(host: ConnectedHost, listens: str) -> None:
    """Some daemons open another port at each start."""
    serves(host, began=host.clock.monotonic())
    host.sockets((listens, "0.0.0.0:0", "LISTEN", 500))
    assert host.look().says is State.IDLE


def test_a_share_of_the_kernel_that_was_just_exported_awaits_its_first_client(host: ConnectedHost) -> None:
    """No process holds its port: its threads say that it is there."""
    host.runs(900, Kind.KERNEL, name="nfsd", uid=0)
    host.sockets(("0.0.0.0:2049", "0.0.0.0:0", "LISTEN", 0))
    found = host.look()

    assert is_awaited(found)
    assert "nfsd" in (found.note or "")
    assert host.look(2 * HOUR).says is State.IDLE
