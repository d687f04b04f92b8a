"""Slurm next to the clouds: which machine is which of its nodes, and the drain of those with a failing GPU."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from gpuwatch.clouds.permit import Permit
from gpuwatch.model.slurm import SlurmJob, SlurmNode
from gpuwatch.model.slurm_listing import QueuedJob, Reservation

__all__ = ["Queue", "SlurmCluster"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """What waits for nodes."""

    jobs: tuple[QueuedJob, ...] = ()
    reservations: Mapping[str, Reservation] = field(default_factory=dict)


class SlurmCluster(Protocol):
    """One Slurm cluster. Its answers are of now: nothing is kept between two questions."""

    @property
    def pools(self) -> Collection[str]:
        """The pools of machines that are its nodes."""
        ...

    def nodes(self) -> tuple[SlurmNode, ...]:
        """All its nodes.

        Raises:
            CloudError: no usable answer.

        """
        ...

    def power(self) -> str | None:
        """What of slurm.conf makes Slurm itself power nodes down and up; None: nothing does.

        Raises:
            CloudError: no usable answer.

        """
        ...

    def jobs(self) -> Mapping[str, tuple[SlurmJob, ...]] | None:
        """The running jobs that hold GPUs, by the name of the node; None: the settings do not say how to ask.

        Raises:
            CloudError: no usable answer.

        """
        ...

    def queue(self) -> Queue:
        """The jobs that wait, and those that are on nodes, with the reservations.

        Raises:
            CloudError: no usable answer.

        """
        ...

    def node(self, name: str) -> SlurmNode | None:
        """The node of that name; None: Slurm knows none.

        Raises:
            CloudError: no usable answer.

        """
        ...

    def drain(self, name: str, cause: str, key: str, *, permit: Permit) -> None:
        """Give it no new jobs, with a reason that bears the key; not if somebody has taken it out.

        Raises:
            CloudError: it was not done, or that is not known (`CloudUnavailableError`).
            NotFoundError: Slurm has no such node, or somebody else has drained it.
            PermitExpiredError: nothing was sent.

        """
        ...

    def resume(self, name: str, undoes: str, *, permit: Permit) -> None:
        """Give it jobs again, where its reason bears that key.

        Raises:
            CloudError: it was not done, or that is not known (`CloudUnavailableError`).
            NotFoundError: Slurm has no such node, or its drain is not that one.
            PermitExpiredError: nothing was sent.

        """
        ...
