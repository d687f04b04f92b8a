"""A kind of object as its watch goes on: where the versions are of another server, everything is listed again."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import msgspec

from gpuwatch.kubernetes.client import PLAIN, Api
from gpuwatch.kubernetes.facts import OwnerFacts, owner_facts
from gpuwatch.kubernetes.objects import Described, ListMeta, Page
from gpuwatch.kubernetes.watch import Watch
from gpuwatch.runtime.clock import SystemClock


@dataclass(slots=True)
class TwoServers:
    """A kubeconfig that names another cluster once the first watch has begun; the second list ends the story."""

    server: str = "https://one"
    asked: list[tuple[str, str]] = field(default_factory=list)
    watch_of: list[Watch[OwnerFacts]] = field(default_factory=list)

    def pages(self, path: str, *_: object) -> Iterator[Page]:
        """One object, named as its server."""
        self.asked.append(("list", self.server))
        if self.server == "https://two":
            self.watch_of[0].close()
        item = msgspec.json.encode({"metadata": {"name": path, "uid": self.server, "resourceVersion": "7"}})
        yield Page(metadata=ListMeta(resource_version="7"), items=[msgspec.Raw(item)], kind="NodeList")

    @contextmanager
    def watch(self, _: str, query: Mapping[str, str], *__: object) -> Iterator[Any]:
        """Nothing happens, and the server ends it."""
        self.asked.append((f"watch from {query['resourceVersion']}", self.server))
        self.server = "https://two"
        yield SimpleNamespace(lines=lambda: iter(()))


def test_another_server_is_listed_from_the_beginning() -> None:
    """Its versions say nothing of what the first one had, and none of that is left."""
    servers = TwoServers()
    watch = Watch(
        cast("Api", servers),
        SystemClock(),
        "/api/v1/nodes",
        lambda item: owner_facts(msgspec.json.decode(item, type=Described)),
        accept=(PLAIN, PLAIN),
        silence_seconds=30.0,
    )
    servers.watch_of.append(watch)
    watch.start()
    watch._thread.join(30.0)

    assert servers.asked == [("list", "https://one"), ("watch from 7", "https://one"), ("list", "https://two")]
    assert [each.uid for each in watch.kept.all()] == ["https://two"]
