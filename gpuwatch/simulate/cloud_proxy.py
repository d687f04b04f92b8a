"""A cloud around another cloud; what wants to see or change some of its calls overrides those alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuwatch.clouds import Cloud, Leftover
from gpuwatch.clouds.permit import Permit
from gpuwatch.model.fleet import Node, NodeGroup
from gpuwatch.model.stops import StopAnswer


@dataclass(frozen=True)
class PassedOn:
    """Passes every call on to `cloud`."""

    cloud: Cloud

    def nodes(self) -> Sequence[Node]:
        """Return all machines of the cloud behind it."""
        return self.cloud.nodes()

    def node(self, node_id: str) -> Node | None:
        """Return one machine of the cloud behind it."""
        return self.cloud.node(node_id)

    def stop(self, node_id: str, key: str, *, permit: Permit) -> StopAnswer:
        """Stop a machine of the cloud behind it."""
        return self.cloud.stop(node_id, key, permit=permit)

    def start(self, node_id: str, key: str) -> None:
        """Start a machine of the cloud behind it."""
        self.cloud.start(node_id, key)

    def terminate(self, node_id: str, key: str, *, permit: Permit, group: str | None = None) -> None:
        """Terminate a machine of the cloud behind it."""
        self.cloud.terminate(node_id, key, permit=permit, group=group)

    def launch(self, arguments: Mapping[str, str], key: str) -> str:
        """Launch a machine in the cloud behind it."""
        return self.cloud.launch(arguments, key)

    def find(self, key: str, arguments: Mapping[str, str] | None = None) -> Node | None:
        """The machine launched with that key."""
        return self.cloud.find(key, arguments)

    def groups(self) -> Sequence[NodeGroup]:
        """Return all groups of the cloud behind it."""
        return self.cloud.groups()

    def group(self, group_id: str) -> NodeGroup:
        """Return one group of the cloud behind it."""
        return self.cloud.group(group_id)

    def grow(self, group_id: str, size: int, key: str) -> None:
        """Raise its desired size."""
        self.cloud.grow(group_id, size, key)

    def shrink(self, group_id: str, size: int, key: str) -> None:
        """Take back what it lacks."""
        self.cloud.shrink(group_id, size, key)

    def protect(self, node_id: str, group_id: str, key: str, *, on: bool) -> None:
        """Keep a member from its group's own scale-in, or no longer."""
        self.cloud.protect(node_id, group_id, key, on=on)

    def tag(self, node_id: str, tags: Mapping[str, str], key: str) -> None:
        """Tag a machine of the cloud behind it."""
        self.cloud.tag(node_id, tags, key)

    def leftovers(self) -> Sequence[Leftover]:
        """What is billed and used by no running machine."""
        return self.cloud.leftovers()
