"""What the groups of all clouds have in common: their owner's consent, a size that is taken back, refused machines.

Rules of why a group gets no more machines, by its cloud's own record of what the group tried, all of them:

1. The newest try that has ended decides. A success after a failure, or a failure for another reason, is no refusal.
2. Each cloud says which of its words mean that there is no machine. What it has no such word for is waited for.
3. A time counts with its zone alone. A try that ended in the future shows that clocks or zones do not fit: then nothing
   is known.
4. Only a group of the fleet's own that lacks members is asked about. No answer, or no right to ask, is no trouble: the
   group is waited for longer. A missing right is said once.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol, TypedDict

from gpuwatch.clouds import FLEET_TAG
from gpuwatch.clouds.errors import AuthFailedError, CloudError, ProtectedError
from gpuwatch.clouds.permit import undoing
from gpuwatch.clouds.tags import claims
from gpuwatch.model.fleet import GroupRefusal, NodeGroup
from gpuwatch.model.kubernetes import of_a_cluster
from gpuwatch.runtime.clock import Clock

log = logging.getLogger(__name__)

# Signatures are refused beyond five minutes on the strictest clouds, so clocks differ by less.
_CLOCKS_DIFFER = timedelta(minutes=5)
_LONGEST = 300  # characters of a reason
TOO_MANY_MEMBERS, NOT_PROTECTED = "TooManyMembers", "NotProtected"  # our own codes


# Whose it is.


class Consent(TypedDict):
    """The fields of NodeGroup that come from a group's names and tags alone."""

    id: str
    name: str
    pool: str
    enrolled: bool
    serves_cluster: bool
    protected: str | None


class Owned:
    """A group that has tags, and where another system drives it, an owner."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def id(self) -> str:
            """As the fleet knows it."""

        @property
        def name(self) -> str:
            """Return the name for messages to people."""

        @property
        def tags(self) -> Mapping[str, str]:
            """What its owner says about the group."""

    @property
    def owner(self) -> str | None:
        """The other system that drives the group, whatever its tags consent to."""
        raise NotImplementedError

    def is_enrolled(self, fleet: str) -> bool:
        """Whether its owner consents to this fleet's controller: by the group's tag, and only where it is theirs."""
        return self.tags.get(FLEET_TAG) == fleet and self.owner is None

    def consents(self, fleet: str) -> bool:
        """The same, and true of a Kubernetes cluster's group: whether its nodes may be touched the guard says."""
        return self.tags.get(FLEET_TAG) == fleet and (self.owner is None or of_a_cluster(self.owner))

    def consent(self, fleet: str, now: datetime) -> Consent:
        """What a node group says of its owner."""
        claimed = claims(self.tags, fleet=fleet, now=now)
        return Consent(
            id=self.id,
            name=self.name,
            pool=claimed["pool"],
            enrolled=self.is_enrolled(fleet),
            serves_cluster=self.consents(fleet) and self.owner is not None,
            protected=claimed["protected"],
        )

    def refuse_unless_ours(self, kind: str, fleet: str, *, grows: bool = False) -> None:
        """Touch no group without its owner's consent; `kind` is the cloud's word. A cluster grows its groups itself.

        Raises:
            CloudError: its owner does not consent.

        """
        if not (self.is_enrolled(fleet) if grows else self.consents(fleet)):
            whose = f"belongs to {self.owner}" if self.owner else f"has no tag {FLEET_TAG}={fleet}"
            raise CloudError(f"the {kind} {self.name} {whose}: it is left alone", code="NotEnrolled")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingGroup(Owned):
    """A group with bounds, as the cloud describes it."""

    id: str
    name: str
    min_size: int
    max_size: int
    suspended: frozenset[str]
    tags: Mapping[str, str]


# Bounds of its size.


def refuse_size(name: str, size: int, *, least: int = 0, most: int | None = None) -> None:
    """Ask for no size that the group may not have.

    Raises:
        CloudError: it is smaller than `least`, or larger than `most`.

    """
    if size < least:
        raise CloudError(f"{name} must have {least} machines at least, not {size}", code="MinSize")
    if most is not None and size > most:
        raise CloudError(f"{name} may have {most} machines at most, not {size}", code="MaxSize")


def refuse_end_below(name: str, wants: int, least: int, *, left: int | None = None, units: str = "machines") -> None:
    """End no member without which the group is below its minimum; `left` is what stays, where not one of `wants` goes.

    Raises:
        CloudError: less than `least` would be left.

    """
    if (wants - 1 if left is None else left) < least:
        wanted = f"it wants {wants} {units}, at least {least}"
        raise CloudError(f"{name} would fall below its minimum: {wanted}", code="MinSize")


# Taking a size back: no member may go for it.


class Spared(Protocol):
    """A member of a group."""

    @property
    def protected(self) -> bool:
        """Whether the group may not choose it for a scale-in."""
        ...


class Sized(Protocol):
    """A group with its members by their ids."""

    @property
    def name(self) -> str:
        """Return the name for messages to people."""
        ...

    @property
    def members(self) -> Mapping[str, Spared]:
        """Those that it has."""
        ...


def lower(
    group: Sized,
    before: int,
    size: int,
    look: Callable[[], Sized],
    set_size: Callable[[int], object],
    set_again: Callable[[int], object] | None = None,
) -> None:
    """Lower a size from `before` where no member can go for it, and raise it again where one has come meanwhile.

    `set_again` raises it, where that is done in another way.

    Raises:
        CloudError: it was not lowered, or was raised again.

    """
    bare = sorted(node_id for node_id, member in group.members.items() if not member.protected)
    refuse_if_chosen(group.name, bare, len(group.members), size)
    set_size(size)
    raise_again(group.name, size, before, lambda: len(look().members), set_again or set_size)


def refuse_if_chosen(name: str, bare: Sequence[str], members: int, size: int) -> None:
    """Refuse what could cost a member: `bare` are those of the group's `members` that it may choose.

    Raises:
        CloudError: the group has more than `size`.
        ProtectedError: one is not protected from a scale-in.

    """
    if members > size:
        raise CloudError(f"{name} has {members} machines: {size} would end one", code=TOO_MANY_MEMBERS)
    if bare:
        raise ProtectedError(f"{name} could choose {bare[0]} for a scale-in: its size stays", code=NOT_PROTECTED)


def raise_again(
    name: str, size: int, before: int, members: Callable[[], int], set_size: Callable[[int], object]
) -> None:
    """Look again after the size was lowered to `size` from `before`, and raise it where more members are there by now.

    No cloud lowers a size on a condition. A member that came, or that somebody attached, between the look before and
    the call has no protection, and the group would choose it. A group takes some seconds to choose. Where nobody can
    tell, the size stays as it is.

    Raises:
        CloudError: it was raised again, or that failed.

    """
    try:
        count = members()
    except CloudError:
        return
    if count <= size:
        return
    raised = min(count, before)
    with undoing():
        set_size(raised)
    raise CloudError(f"{name} had {count} machines by then: its size is {raised} again", code=TOO_MANY_MEMBERS)


# Why it gets no more machines.


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try of a group to launch that has ended; `refused` is the cloud's reason where it has no machine to give."""

    began: datetime
    ended: datetime
    refused: str | None


def refusal_of(attempts: Iterable[Attempt], now: datetime) -> GroupRefusal | None:
    """What the newest of a group's tries says; of equal ones the first."""
    newest = max(attempts, key=lambda each: each.began, default=None)
    if newest is None or newest.refused is None or newest.ended > now + _CLOCKS_DIFFER:
        return None
    why = newest.refused.partition("\n")[0].strip().removesuffix(".")[:_LONGEST]
    return GroupRefusal(at=min(newest.ended, now), why=why)


class Refusals:
    """Asks about groups that lack members. Any thread may ask."""

    def __init__(self, clock: Clock) -> None:
        """Nothing is asked yet."""
        self._clock = clock
        self._denied: set[str] = set()

    def with_refusal(self, group: NodeGroup, where: str, ask: Callable[[], Iterable[Attempt]]) -> NodeGroup:
        """The group with its cloud's refusal, where there is one. `where` is the place, for people."""
        if not group.enrolled or group.desired <= len(group.node_ids):
            return group
        try:
            attempts = list(ask())
        except AuthFailedError as error:
            if where not in self._denied:
                log.warning("%s; groups without stock there are waited for", error)
            self._denied.add(where)
            return group
        except CloudError:
            return group
        self._denied.discard(where)
        return replace(group, refused=refusal_of(attempts, self._clock.now()))
