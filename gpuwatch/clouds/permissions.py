"""PURE: what a cloud can be asked about our own standing with it; no answer changes anything.

A cloud that has these methods is `Diagnosable`; one that has not is examined without them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, runtime_checkable

from gpuwatch.model.fleet import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What the settings will make the controller do: try it on these machines, and with these launches' arguments."""

    act: bool = False  # stop, start and tag
    terminate: bool = False
    groups: bool = False  # of the fleet's machines some are in groups that gave their consent
    node_ids: tuple[str, ...] = ()
    launches: tuple[Mapping[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """One call of the cloud's API at one place. `allowed` None: it could not be tried, and `reason` says why."""

    call: str
    where: str
    allowed: bool | None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The name by which the cloud knows us, and the time of its own clock (None: unknown)."""

    name: str
    at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherRegion:
    """One place that the settings do not name, and the GPU machines in it, for people.

    `refused` is why we may not look there, in the cloud's word; `trouble` why there was no answer. `nodes` are the
    machines as a list of the place would have them: `gpuwatch scan` shows their age, price, tags and use.
    """

    where: str
    machines: tuple[str, ...] = ()
    nodes: tuple[Node, ...] = ()
    region: str = ""
    refused: str | None = None
    trouble: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """One limit of the account in one region, and how much of it is used; both count in `unit` ("vCPUs", "GPUs").

    `name` is the cloud's own word for it. `used` None: the cloud shows the limit alone. `cloud` is the cloud's name in
    the settings, "" where they name none.
    """

    name: str
    region: str
    limit: float
    used: float | None
    unit: str
    cloud: str = ""

    @property
    def left(self) -> float | None:
        """What could still be had of it."""
        return None if self.used is None else max(0.0, self.limit - self.used)


@runtime_checkable
class Quotas(Protocol):
    """A cloud that shows the account's limits on GPU machines."""

    def quotas(self) -> Sequence[Quota]:
        """Every such limit of every place of the settings, in the order of region and name.

        Raises:
            CloudError: they could not be had whole.

        """
        ...


@runtime_checkable
class Searchable(Protocol):
    """A cloud that can be searched beyond the places of the settings."""

    def elsewhere(self) -> Sequence[OtherRegion]:
        """Every such place that the account could use; raises CloudError where they cannot be listed."""
        ...


@runtime_checkable
class Diagnosable(Protocol):
    """A cloud that can be asked. Each raises CloudError where there is no answer."""

    def may(self, needs: Needs) -> Iterable[Permission]:
        """Whether each call that is needed is allowed; none is carried out."""
        ...

    def identity(self) -> Identity:
        """Who we are."""
        ...

    def unfit(self, launches: Sequence[Mapping[str, str]]) -> Iterable[str]:
        """Launches that would bring no node, as sentences: their machine type has no GPU that the agent can read."""
        ...

    def unencrypted(self, node_ids: Sequence[str]) -> Sequence[str]:
        """Volumes of these machines that are not encrypted, each with its machine, for people."""
        ...
