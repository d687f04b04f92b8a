"""An API server that lists what a test says, item by item as JSON, and in which nothing changes."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import msgspec

from gpuwatch.kubernetes.attachments import ATTACHMENTS, CSI_NODES
from gpuwatch.kubernetes.calls import CLAIMS, DISRUPTION_BUDGETS, NAMESPACES, NODES, PODS, VOLUMES
from gpuwatch.kubernetes.client import Api
from gpuwatch.kubernetes.cluster import ApiCluster
from gpuwatch.kubernetes.endpoints import SLICES
from gpuwatch.kubernetes.settings import KubernetesSettings
from gpuwatch.model.kubernetes import ClusterView
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import NOW

OWNERS = {
    "/apis/apps/v1/replicasets": "ReplicaSet",
    "/apis/apps/v1/deployments": "Deployment",
}
LISTS = (NODES, PODS, NAMESPACES, DISRUPTION_BUDGETS, VOLUMES, CLAIMS, SLICES, CSI_NODES, ATTACHMENTS, *OWNERS)


@dataclass(slots=True)
class _Connection:
    """What a login's connections say of the server."""

    server: str = "https://listed"
    behind_seconds: float = 0.0

    @property
    def credentials(self) -> Any:  # noqa: ANN401  a login's
        """Without a token."""
        return SimpleNamespace(show=lambda: SimpleNamespace(headers={}))


class ListedServer(Api):
    """gpuwatch's own client, with these items, by the path of their list, in the place of a connection."""

    def __init__(self, items: Mapping[str, list[bytes]]) -> None:
        """Nothing is asked yet."""
        super().__init__(cast("Any", SimpleNamespace(value=_Connection())))
        self.over = threading.Event()
        self._items = items

    def _read(self, path: str, query: Mapping[str, str], accept: str) -> bytes:
        """A list, or the kinds of a version."""
        del query, accept
        if path in LISTS:
            return b'{"kind":"List","metadata":{"resourceVersion":"7"},"items":[%b]}' % b",".join(
                self._items.get(path, ())
            )
        kinds = [(each.rpartition("/")[2], name) for each, name in OWNERS.items() if each.startswith(f"{path}/")]
        made = [{"name": plural, "kind": name, "namespaced": True} for plural, name in kinds]
        return msgspec.json.encode({"resources": made})

    @contextmanager
    def watch(self, *_: object, **__: object) -> Iterator[Any]:
        """Nothing happens until the test is over."""
        yield SimpleNamespace(lines=self._wait, stop=self.over.set)

    def _wait(self) -> Iterator[bytes]:
        self.over.wait()
        return iter(())


def view_of(items: Mapping[str, list[bytes]]) -> ClusterView:
    """What gpuwatch reads of these objects: the whole way from JSON to the view that a round decides on."""
    server = ListedServer(items)
    cluster = ApiCluster(KubernetesSettings(name="prod", in_cluster=True), ManualClock(wall=NOW), server)
    try:
        return cluster.view()
    finally:
        server.over.set()
        cluster.close()
