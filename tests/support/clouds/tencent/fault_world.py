"""Tencent Cloud for the fault matrix: the provider in two regions of one account, with short pages."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import pytest

from gpuwatch.clouds.tencent import client
from gpuwatch.clouds.tencent.cloud import TencentCloud
from gpuwatch.model.fleet import NodeState
from gpuwatch.runtime.clock import ManualClock
from tests.support.clouds.fault_worlds import FLEET
from tests.support.clouds.server import CloudServer, serving
from tests.support.clouds.tencent.fake import SECRET_ID, SECRET_KEY, FakeTencent
from tests.support.clouds.tencent.world import ACTIONS, GPU_TYPE, TencentWorld
from tests.support.fakes.cloud_worlds import TEMPLATE

REGIONS = ("ap-guangzhou", "ap-beijing")
_STATES = {
    "PENDING": NodeState.PENDING,
    "STARTING": NodeState.PENDING,
    "RUNNING": NodeState.RUNNING,
    "STOPPING": NodeState.STOPPING,
    "STOPPED": NodeState.STOPPED,
    "TERMINATING": NodeState.TERMINATING,
}


class TencentFaultWorld:
    """`TencentCloud` in two regions."""

    regions = REGIONS
    calls: ClassVar[Mapping[str, str]] = {
        **ACTIONS,
        "nodes": "DescribeInstances",
        "end_member": "RemoveInstances",
    }
    arguments: ClassVar[Mapping[str, str]] = {
        "template": TEMPLATE,
        "version": "$Default",
        "pool": "train",
        "region": REGIONS[0],
    }
    page = 5
    totals = True
    cannot: ClassVar[Mapping[str, str]] = {}

    def __init__(self, clock: ManualClock, server: CloudServer, fake: FakeTencent, key_file: Path) -> None:
        """Without machines."""
        self.clock, self.server, self._key_file = clock, server, key_file
        self.cloud = cloud = self.anew()
        self._state = fake.state
        self._people = TencentWorld(clock, server, fake, cloud)

    def anew(self) -> TencentCloud:
        """A process that has just begun."""
        return TencentCloud(
            fleet=FLEET,
            clock=self.clock,
            regions=REGIONS,
            key_file=str(self._key_file),
            endpoint_url=self.server.url,
        )

    def launch(self, tags: Mapping[str, str], *, region: str) -> str:
        """One that runs."""
        return self._state.add_machine(region, GPU_TYPE, tags=dict(tags)).id

    def add_group(self, name: str, tags: Mapping[str, str], *, size: int) -> str:
        """Its members run."""
        return self._people.add_group(name, tags, size=size)

    def state(self, node_id: str) -> NodeState | None:
        """As it is at this moment."""
        machine = self._state.machines.get(node_id)
        return None if machine is None else _STATES[machine.state]

    def tags(self, node_id: str) -> Mapping[str, str]:
        """As they are."""
        return self._state.machines[node_id].tags

    def ids(self) -> Collection[str]:
        """All of them."""
        return self._state.machines

    def settle(self, node_id: str) -> None:
        """A minute passes."""
        del node_id
        self.clock.advance(60)
        self._state.pass_time()


@contextmanager
def fault_world(folder: Path) -> Iterator[TencentFaultWorld]:
    """An empty account."""
    clock = ManualClock()
    fake = FakeTencent(clock)
    key_file = folder / "key"
    key_file.write_text(f"{SECRET_ID}:{SECRET_KEY}\n", encoding="utf-8")
    with serving(fake) as server, pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "PAGE_SIZE", TencentFaultWorld.page)
        yield TencentFaultWorld(clock, server, fake, key_file)
