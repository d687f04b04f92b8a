"""Simulated clouds that fall silent, count what they are asked for, and are asked as one."""

from collections.abc import Mapping, Sequence

from gpuwatch.clouds import FLEET_TAG, Cloud, CloudUnavailableError
from gpuwatch.clouds.permissions import Identity, Needs, Permission, Quota
from gpuwatch.clouds.several import SeveralClouds
from gpuwatch.clouds.survey import Surveyed
from gpuwatch.model.fleet import Node, NodeGroup
from gpuwatch.runtime.clock import ManualClock
from gpuwatch.simulate.cloud import SimulatedCloud
from tests.support.builders.fleet import a_node

NAMES = ("bj", "us", "eu")
CHANGES = {"stop", "start", "terminate", "launch", "grow", "protect", "tag"}
TEMPLATE = "lt-1"


class Region(SimulatedCloud):
    """A simulated cloud that can fall silent, counts its changes, and can be asked about its standing."""

    def __init__(self, name: str) -> None:
        """It answers."""
        self.hand = ManualClock()
        super().__init__(fleet="lab", clock=self.hand)
        self.name, self.changes, self.asked = name, list[str](), list[str]()
        self.down: Exception | None = None
        self.faults = self._strike
        self.add_template(TEMPLATE, machine(""))

    def launched(self, key: str) -> Mapping[str, str]:
        """What it was asked to launch with that key."""
        return self._launches[key][1]

    def _strike(self, call: str, node_id: str) -> Exception | None:
        self.asked.append(call)
        if call in CHANGES:
            self.changes.append(f"{call} {node_id}")
        return self.down

    def may(self, needs: Needs) -> Sequence[Permission]:
        """One of each."""
        self._answer()
        return [Permission(call=f"{needs.node_ids} {needs.launches}", where="r", allowed=True)]

    def may_beyond(self, node_ids: Sequence[str]) -> Sequence[Permission]:
        """A stop of each."""
        self._answer()
        return [Permission(call="stop", where=f"r, machine {node_id}", allowed=True) for node_id in node_ids]

    def identity(self) -> Identity:
        """Who we are."""
        return Identity(name=f"role {self.name}", at=None)

    def unfit(self, launches: Sequence[object]) -> Sequence[str]:
        """All of them."""
        return [str(each) for each in launches]

    def unencrypted_disks(self, node_ids: Sequence[str]) -> Sequence[str]:
        """All of them."""
        return list(node_ids)

    def elsewhere(self) -> Sequence[Surveyed]:
        """One region."""
        self._answer()
        return [Surveyed(where="far", nodes=(a_node("x"),))]

    def quotas(self) -> Sequence[Quota]:
        """One limit."""
        return [Quota(name="vcpu", region="r", limit=8.0, used=2.0, unit="vCPUs")]

    def _answer(self) -> None:
        if self.down is not None:
            raise self.down


class Clouds(dict[str, Region]):
    """Clouds by their names, and all as one."""

    def __init__(self, *names: str) -> None:
        """Empty clouds."""
        super().__init__({name: Region(name) for name in names or NAMES})
        parts: dict[str, Cloud] = dict(self)
        self.all = SeveralClouds(parts)

    def changes(self) -> dict[str, list[str]]:
        """What was asked for where."""
        return {name: each.changes for name, each in self.items() if each.changes}


def machine(node_id: str) -> Node:
    """One that runs and is ours."""
    return a_node(node_id, tags={FLEET_TAG: "lab"})


def a_group(group_id: str) -> NodeGroup:
    """A group without machines."""
    return NodeGroup(
        id=group_id, name=group_id, pool="default", min_size=0, max_size=9, desired=0, region="r", enrolled=True
    )


def silent(error: Exception | None = None) -> Exception:
    """No answer."""
    return error or CloudUnavailableError("no answer", code="TimedOut")
