"""Clouds whose API is a fake behind `server.py`, for the fault matrix `tests/contracts/test_cloud_faults.py`.

A provider takes part by one line of `FAULT_WORLDS`: a context manager that is given an empty folder and gives its
`FaultWorld`. Its client keeps its own time-outs there (`silence.py`), and its SDK's pauses cost no real time.
"""

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, runtime_checkable

from gpuwatch.clouds import FLEET_TAG, Cloud
from gpuwatch.model.fleet import NodeState
from gpuwatch.runtime.clock import ManualClock
from tests.support.clouds.faults import Fault
from tests.support.clouds.server import CloudServer
from tests.support.components import loaded

FLEET = "lab"
MINE = {FLEET_TAG: FLEET}


class FaultWorld(Protocol):
    """The real provider on a fake over HTTP, with machines in two regions."""

    cloud: Cloud  # of both regions
    clock: ManualClock
    server: CloudServer
    regions: tuple[str, str]
    # The API's names of: stop, start, terminate, tag, launch, and of the list of machines (nodes); see `WithGroups`.
    calls: Mapping[str, str]
    arguments: Mapping[str, str]  # of a launch in the first region
    page: int  # machines on one page of the list
    totals: bool  # whether an answer says how many machines there are, so that a lost page shows at once
    # Faults that this cloud cannot have, each with its reason; see CANNOT.
    cannot: Mapping[str, str]

    def anew(self) -> Cloud:
        """The provider in a process that has just begun: the same account, and no memory."""
        ...

    def launch(self, tags: Mapping[str, str], *, region: str) -> str:
        """Somebody launches a GPU machine past every fault; it is running, and the provider's id comes back."""
        ...

    def state(self, node_id: str) -> NodeState | None:
        """What the cloud itself holds, past every fault; None: there is no such machine."""
        ...

    def tags(self, node_id: str) -> Mapping[str, str]:
        """The same of its tags, in the contract's words."""
        ...

    def ids(self) -> Collection[str]:
        """All machines that the cloud holds."""
        ...

    def settle(self, node_id: str) -> None:
        """Time passes until the machine has arrived in its next state."""
        ...


@runtime_checkable
class WithGroups(Protocol):
    """A `FaultWorld` with groups: `calls` then has grow, protect, and end_member (the end of a member with its place).

    A cloud that cannot do one of them leaves it out of `calls`.
    """

    def add_group(self, name: str, tags: Mapping[str, str], *, size: int) -> str:
        """Somebody makes a group of that size in the first region, whose tags go to its members; gives its id."""
        ...


@runtime_checkable
class InAProcessOfItsOwn(Protocol):
    """A `FaultWorld` with a client that no patch of this process reaches."""

    def unreachable(self) -> None:
        """Its cloud refuses connections from here on."""
        ...


# The table of providers: name -> where its context manager is.
FAULT_WORLDS: dict[str, str] = {
    "aws": "tests.support.clouds.aws.world:fault_world",
    "driver": "tests.support.clouds.driver.world:fault_world",
    "alibaba": "tests.support.clouds.alibaba.world:fault_world",
    "azure": "tests.support.clouds.azure.fault_world:fault_world",
    "gcp": "tests.support.clouds.gcp.world:fault_world",
    "tencent": "tests.support.clouds.tencent.fault_world:fault_world",
}

# Faults and changes of groups that a cloud cannot have, each with its reason.
CANNOT: dict[str, dict[str, str]] = {
    "driver": {
        "leftovers": "drivers do not show what is left over",
        Fault.SKEW: "its requests carry a token and no time of ours",
    },
    "azure": {Fault.SKEW: "its requests carry a token and no time of ours"},
    "gcp": {
        Fault.SKEW: "a bearer token says no time of ours, so the clocks may differ",
        "protect": "its groups keep no member",
    },
}


def without_leftovers(world: FaultWorld) -> bool:
    """Whether a world's cloud says that it cannot show what is left over."""
    return "leftovers" in world.cannot


def reason_against(given: Mapping[str, object]) -> str | None:
    """Why a case with these values cannot be: a cloud, and a fault or a change that it cannot have."""
    cannot = CANNOT.get(str(given.get("world", given.get("grouped"))), {})
    return next((reason for what, reason in cannot.items() if what in given.values()), None)


def a_fault_world(name: str, folder: Path) -> AbstractContextManager[FaultWorld]:
    """That provider on an empty fake."""
    module, _, function = FAULT_WORLDS[name].partition(":")
    world: AbstractContextManager[FaultWorld] = getattr(loaded(module), function)(folder)
    return world
