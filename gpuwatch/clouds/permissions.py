"""PURE: what a cloud can be asked about our own standing with it; no answer changes anything.

A cloud that has these methods is `Diagnosable`; one that has not is examined without them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Protocol, TypeVar, runtime_checkable

from gpuwatch.clouds.errors import AuthFailedError, CloudError

NO_MACHINE = "the fleet has no enrolled, unprotected machine there to try it on"

Answer = TypeVar("Answer")


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
        """What the permit still allows."""
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
class Diagnosable(Protocol):
    """A cloud that can be asked. Each raises CloudError where there is no answer."""

    def may(self, needs: Needs) -> Iterable[Permission]:
        """Whether each call that is needed is allowed; none is carried out."""
        ...

    def may_beyond(self, node_ids: Sequence[str]) -> Iterable[Permission]:
        """Whether changes of some of these machines, which are not the fleet's, are allowed; none is carried out."""
        ...

    def identity(self) -> Identity:
        """Return who we are to the cloud."""
        ...

    def unfit(self, launches: Sequence[Mapping[str, str]]) -> Iterable[str]:
        """Launches that would bring no node, as sentences: their machine type has no GPU that the agent can read."""
        ...

    def unencrypted_disks(self, node_ids: Sequence[str]) -> Sequence[str]:
        """Volumes of these machines that are not encrypted, each with its machine, for people."""
        ...


def server_time(date: str) -> datetime | None:
    """The time of an answer's header Date; None where it is missing or cannot be read."""
    try:
        found = parsedate_to_datetime(date)
    except ValueError:
        return None
    return None if found.tzinfo is None else found


def try_permission(
    call: str, where: str, ask: Callable[[], object], *, allows: Callable[[CloudError], bool] = lambda _: False
) -> Permission:
    """What the answer to a call says of the permission. An error says nothing, unless it comes after the check."""
    try:
        ask()
    except AuthFailedError as error:
        return Permission(call=call, where=where, allowed=False, reason=error.code)
    except CloudError as error:
        return Permission(call=call, where=where, allowed=True if allows(error) else None, reason=str(error))
    return Permission(call=call, where=where, allowed=True)


def untried_permission(calls: Iterable[str], where: str, reason: str) -> Permission:
    """Calls that cannot be tried there."""
    return Permission(call=", ".join(calls), where=where, allowed=None, reason=reason)


def permissions_by_answer(
    calls: Iterable[str], where: str, ask: Callable[[], Answer], refusal: Callable[[str, Answer], str]
) -> Iterator[Permission]:
    """Each call, by one answer that is about all of them; `refusal` is why it is not allowed, "" where it is."""
    try:
        answer = ask()
    except CloudError as error:
        yield from (Permission(call=call, where=where, allowed=None, reason=str(error)) for call in calls)
        return
    for call in calls:
        reason = refusal(call, answer)
        yield Permission(call=call, where=where, allowed=not reason, reason=reason)
