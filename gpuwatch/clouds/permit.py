"""The permit for one change in the cloud: for some seconds, while this controller leads and nobody has said otherwise.

A removal rests on answers that grow old: the node's, the cloud's and the ledger's. Time passes between them and the
moment the call leaves: credentials are fetched, calls are paced, connections opened, the process may be suspended,
another controller may take the lead, and a person may pause everything or keep the machine. So the sender checks the
permit as the last thing before the call leaves.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import Self

from gpuwatch.clouds.errors import PermitExpiredError
from gpuwatch.model.duration import format_duration
from gpuwatch.runtime.clock import Clock

LEDGER_TOO_SLOW = "LedgerTooSlow"  # our own code


@dataclass(frozen=True, slots=True, kw_only=True)
class Permit:
    """Allows one change until it is older than `max_age_seconds`, and while `leads` says yes.

    `ordered` gives what somebody has said against the change since it was decided; None: nothing.
    `asked_uptime` and `asked_at` are the time of the first question; the answers to all of them allow the change.
    `checks` are its ages when it was checked: each change is checked as the last thing before it has its effect, so
    that without a check nothing was sent.
    """

    clock: Clock
    leads: Callable[[], bool]
    max_age_seconds: float
    asked_uptime: float
    asked_at: datetime
    ordered: Callable[[], str | None] = lambda: None
    checks: list[float] = field(default_factory=list, compare=False, repr=False)

    @classmethod
    def asked_now(
        cls,
        clock: Clock,
        max_age_seconds: float,
        leads: Callable[[], bool],
        ordered: Callable[[], str | None] = lambda: None,
    ) -> Self:
        """A permit for a change; its questions are about to be asked."""
        return cls(
            clock=clock,
            leads=leads,
            max_age_seconds=max_age_seconds,
            asked_uptime=clock.uptime(),
            asked_at=clock.now(),
            ordered=ordered,
        )

    @property
    def age_seconds(self) -> float:
        """The larger of its ages by two clocks.

        The uptime also runs while the machine sleeps. It stands still while a hypervisor pauses a virtual machine; the
        wall clock is set forward after that.
        """
        return max(self.clock.uptime() - self.asked_uptime, (self.clock.now() - self.asked_at).total_seconds())

    def check(self) -> None:
        """Return if the change may be sent at this moment.

        Raises:
            PermitExpiredError: it may not.

        """
        # Lead and orders may be questions to a database, so the age is looked at after them.
        asked = self.clock.monotonic()  # what this process has slept is no answer that was late
        if not self.leads():
            raise PermitExpiredError("this controller does not lead any more", code="NotLeading")
        if (order := self.ordered()) is not None:
            raise PermitExpiredError(order, code="OrderedOtherwise")
        age = self.age_seconds
        self.checks.append(age)
        if age <= self.max_age_seconds:
            return
        slow = self.clock.monotonic() - asked
        if slow > self.max_age_seconds / 2:
            raise PermitExpiredError(
                f"the ledger is too slow: it took {format_duration(slow)} to say that this controller leads and that "
                f"nobody has ordered otherwise, and the confirmation was {format_duration(age)} old then, "
                f"{format_duration(self.max_age_seconds)} are allowed (limits.max_confirmation_age)",
                code=LEDGER_TOO_SLOW,
            )
        raise PermitExpiredError(
            f"its confirmation was {format_duration(age)} old when the call was about to leave, "
            f"{format_duration(self.max_age_seconds)} are allowed (limits.max_confirmation_age)",
            code="ConfirmationTooOld",
        )


_IN_FORCE: ContextVar[Permit | None] = ContextVar("permit", default=None)


@contextmanager
def in_force(permit: Permit) -> Iterator[None]:
    """Put this permit in force for the calls of this context, for changes that are not handed one."""
    token = _IN_FORCE.set(permit)
    try:
        yield
    finally:
        _IN_FORCE.reset(token)


@contextmanager
def undoing() -> Iterator[None]:
    """Take back what was changed a moment ago, within: it takes no permit, and must not wait for a new one."""
    token = _IN_FORCE.set(None)
    try:
        yield
    finally:
        _IN_FORCE.reset(token)


def permit_in_force() -> Permit | None:
    """The permit of this context; None: nobody asks for one, as in a person's own script."""
    return _IN_FORCE.get()


def check_in_force() -> None:
    """Check the permit of this context, if there is one.

    Raises:
        PermitExpiredError: it does not hold any more.

    """
    permit = _IN_FORCE.get()
    if permit is not None:
        permit.check()
