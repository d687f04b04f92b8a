"""The clouds behind one protocol with typed errors. "Already stopped" or "already gone" is success.

A cloud is one package here, one field of `CloudSettings` and one extra in pyproject.toml.
`tests/contracts/test_clouds.py` tests every cloud against the docstrings of `Cloud`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from gpuwatch.clouds.errors import (
    AuthFailedError,
    BusyError,
    ClockSkewError,
    CloudError,
    CloudUnavailableError,
    InsufficientCapacityError,
    NotFoundError,
    NotSentError,
    PermitExpiredError,
    ProtectedError,
    QuotaExceededError,
    ThrottledError,
)
from gpuwatch.clouds.permit import Permit
from gpuwatch.model.decision import DECISION_TAG, NOTIFIED_TAG
from gpuwatch.model.fleet import Node, NodeGroup, NodeState
from gpuwatch.model.stops import StopAnswer
from gpuwatch.model.usage import FLEET_TAG

__all__ = [
    "FLEET_TAG",
    "OWNER_TAG",
    "POOL_TAG",
    "PROTECT_TAG",
    "SNOOZE_TAG",
    "START_IS_DONE",
    "STOP_AT",
    "STOP_IS_DONE",
    "TERMINATE_IS_DONE",
    "WRITABLE_TAGS",
    "AuthFailedError",
    "BusyError",
    "ClockSkewError",
    "Cloud",
    "CloudError",
    "CloudUnavailableError",
    "InsufficientCapacityError",
    "Leftover",
    "LeftoverKind",
    "NotFoundError",
    "NotSentError",
    "PermitExpiredError",
    "ProtectedError",
    "QuotaExceededError",
    "ThrottledError",
    "refuse_foreign_tags",
]


class LeftoverKind(StrEnum):
    """What costs money besides the hours of machines."""

    UNATTACHED_VOLUME = "unattached_volume"
    STOPPED_VOLUME = "volume_of_a_stopped_machine"
    UNUSED_ADDRESS = "unused_address"
    STOPPED_ADDRESS = "address_of_a_stopped_machine"
    SNAPSHOT = "snapshot_of_a_volume_that_is_gone"
    IMAGE = "image_that_nothing_names"
    RUNNING_VOLUME = "volume_of_a_machine_in_use"  # of `clouds.disks` alone, never left over


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """Something that is billed besides machines' hours. Sizes are None where they are no part of its price."""

    id: str
    kind: LeftoverKind
    region: str
    account: str | None = None
    type: str = ""  # of a volume: gp3, io2, …
    size_bytes: int | None = None
    iops: int | None = None
    throughput_bytes_per_second: int | None = None
    node_id: str | None = None  # the machine that has it
    name: str = ""
    made: datetime | None = None  # of a snapshot; None: not known
    cloud: str = ""  # the name of its cloud in the settings
    provider: str = "aws"  # whose list prices hold for it


class Cloud(Protocol):
    """What the controller asks of a cloud. Each mutation takes the ledger's key; one instance a call, never a count.

    Each mutation also checks the permit that is in force (`clouds.permit.permit_in_force`) as the last thing before it
    has its effect; a removal cannot be asked for without one.
    """

    def nodes(self) -> Sequence[Node]:
        """All GPU machines that exist (not terminated), paginated to the end, in the order of their ids.

        Of what is in doubt (a machine's state, its GPUs, a part of the cloud that gives no answer) the machines are
        there in the state UNKNOWN, or with unknown GPUs.

        Raises:
            CloudError: the list could not be had whole, and nothing is known of the rest; a part is never returned.

        """
        ...

    def node(self, node_id: str) -> Node | None:
        """One machine as the cloud sees it now; gone is state TERMINATED, or None where a cloud's "no such" is final.

        Raises:
            NotFoundError: the cloud does not know the id and that proves nothing (EC2: too new, or still running).
            CloudError: no answer.

        """
        ...

    def stop(self, node_id: str, key: str, *, permit: Permit) -> StopAnswer:
        """Ask for a stop; returns when the cloud has accepted it, or if the machine is stopping, stopped or gone.

        The answer says whether the machine ran until this call. Where the cloud's own answer to the call does not say
        that, the machine is looked at right before.

        Raises:
            PermitExpiredError: the permit did not hold when the call was about to leave; nothing was asked.
            ProtectedError: the cloud protects the machine against a stop.
            NotFoundError: the cloud does not know the id.
            BusyError: another operation on it is under way, for example because it is still pending.
            CloudUnavailableError: nobody knows whether it was accepted.
            CloudError: it was not accepted.

        """
        ...

    def start(self, node_id: str, key: str) -> None:
        """Ask for a start; returns when the cloud has accepted it, or if the machine is starting or running.

        Raises:
            InsufficientCapacityError: no such machine can be had there now.
            QuotaExceededError: the account's own limit is reached.
            NotFoundError: the cloud does not know the id.
            BusyError: another operation on it is under way, for example because it is still stopping.
            CloudUnavailableError: nobody knows whether it was accepted.
            CloudError: it was not accepted, for example because the machine is gone.

        """
        ...

    def terminate(self, node_id: str, key: str, *, permit: Permit, group: str | None = None) -> None:
        """Ask for the end of one machine; returns when the cloud has accepted it, or if it is terminating or gone.

        `group` is the id of the group that it is a member of: its place goes with it, so that it is not replaced.

        Raises:
            PermitExpiredError: the permit did not hold when the call was about to leave; nothing was asked.
            ProtectedError: the cloud protects the machine against it.
            NotFoundError: the cloud does not know the id.
            CloudUnavailableError: nobody knows whether it was accepted.
            CloudError: it was not accepted, for example because the group would fall below its minimum.

        """
        ...

    def launch(self, arguments: Mapping[str, str], key: str) -> str:
        """Ask for one new machine and give its id; asked again with the same key it is the same machine.

        `arguments` are what `gpuwatch.policies.capacity` makes of the pool's template. The machine carries the tags
        gpuwatch:fleet, gpuwatch:pool and gpuwatch:decision-id (the key) from its first moment.

        Raises:
            InsufficientCapacityError: no such machine can be had there now.
            QuotaExceededError: the account's own limit is reached.
            CloudUnavailableError: nobody knows whether it was accepted; the same key finds out.
            CloudError: it was not accepted; with the code NO_GPU it would have brought no node.

        """
        ...

    def find(self, key: str, arguments: Mapping[str, str] | None = None) -> Node | None:
        """The machine that was launched with that key; None: the cloud shows none (shortly after a launch: not yet).

        `arguments` are those of the launch: where they name its place, the silence of other places is no doubt.

        Raises:
            CloudError: no answer.

        """
        ...

    def groups(self) -> Sequence[NodeGroup]:
        """All groups of GPU machines, paginated to the end, in the order of their ids; a cloud without any gives ().

        Raises:
            CloudError: the list could not be had whole.

        """
        ...

    def group(self, group_id: str) -> NodeGroup:
        """One group as the cloud sees it now.

        Raises:
            NotFoundError: the cloud knows no such group.
            CloudError: no answer.

        """
        ...

    def grow(self, group_id: str, size: int, key: str) -> None:
        """Raise a group's desired size to `size`; nothing is to be done where it is that already, or larger.

        Raises:
            CloudUnavailableError: nobody knows whether it was accepted.
            CloudError: it was not accepted, for example because it is above the group's maximum.

        """
        ...

    def shrink(self, group_id: str, size: int, key: str) -> None:
        """Take a group's desired size back to `size`, where it is larger; no member goes for it.

        What the group has is looked at right before: more members than `size`, or one that the group could choose, is a
        refusal. A cloud that takes places back by their names says so in `NodeGroup.gives_back_places`.

        Raises:
            ProtectedError: a member could go for it.
            CloudUnavailableError: nobody knows whether it was accepted.
            CloudError: it was not accepted, for example because it is below the group's minimum.

        """
        ...

    def protect(self, node_id: str, group_id: str, key: str, *, on: bool) -> None:
        """Say whether the group may choose this member for a scale-in of its own.

        Raises:
            CloudUnavailableError: nobody knows whether it was accepted.
            CloudError: it was not accepted.

        """
        ...

    def leftovers(self) -> Sequence[Leftover]:
        """What is billed and used by no running machine, in the order of the ids; it is only reported, never removed.

        Raises:
            CloudError: the list could not be had whole.

        """
        ...

    def tag(self, node_id: str, tags: Mapping[str, str], key: str) -> None:
        """Set tags of WRITABLE_TAGS on one machine; its other tags stay.

        Raises:
            ValueError: a key outside WRITABLE_TAGS; nothing is set.
            CloudUnavailableError: nobody knows whether they were set.
            CloudError: they were not set.

        """
        ...


# The states in which a stop, a termination or a start has nothing left to do.
TERMINATE_IS_DONE = frozenset({NodeState.TERMINATING, NodeState.TERMINATED})
STOP_IS_DONE = frozenset({NodeState.STOPPING, NodeState.STOPPED, NodeState.TERMINATING, NodeState.TERMINATED})
START_IS_DONE = frozenset({NodeState.PENDING, NodeState.RUNNING})

# Our own word for a launch that would bring no node: the template's machine type has no GPU that the agent can read.
NO_GPU = "NoGpu"

# WRITABLE_TAGS are the only tag keys that gpuwatch ever writes.
STOP_AT = "gpuwatch:stop-at"
WRITABLE_TAGS = frozenset({NOTIFIED_TAG, STOP_AT, DECISION_TAG})

# Tags that people and their tools set, and gpuwatch only reads.
POOL_TAG = "gpuwatch:pool"
OWNER_TAG = "gpuwatch:owner"
PROTECT_TAG = "gpuwatch:protect"
SNOOZE_TAG = "gpuwatch:snooze-until"


def refuse_foreign_tags(tags: Mapping[str, str]) -> None:
    """Hold every cloud's `tag` to the allow-list.

    Raises:
        ValueError: a key outside WRITABLE_TAGS.

    """
    foreign = sorted(set(tags) - WRITABLE_TAGS)
    if foreign:
        raise ValueError(f"gpuwatch never writes the tag {foreign[0]!r}; it writes {', '.join(sorted(WRITABLE_TAGS))}")
