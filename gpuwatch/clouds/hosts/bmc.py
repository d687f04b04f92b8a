"""What every BMC is asked, whatever it speaks: which machine it has, whether that is on, to switch it off and on."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from gpuwatch.clouds.errors import AuthFailedError, CloudError
from gpuwatch.clouds.permit import Permit
from gpuwatch.model.fleet import NodeState
from gpuwatch.runtime.clock import Clock

_SECONDS, _MOST_SECONDS = 60.0, 3600.0  # after which a BMC is asked again
_TAKEN_SECONDS = 15.0  # for which a login that was taken is not in question
LOGIN_CODE = "RefusedLogin"  # our own code
REFUSED_LOGIN = "it does not take this user and password, or they may not do that; see cloud.hosts.power"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What a BMC shows of its machine.

    `unable` is why it cannot be switched off cleanly, or on again, as a clause; `reset_at` when it was reset last, by
    the BMC's own clock, None where it does not say.
    """

    uuid: str | None
    state: NodeState
    unable: str | None = None
    reset_at: str | None = None


class Bmc(Protocol):
    """The BMC of one host. Each change is sent once, and checks its permit as the last thing before it leaves."""

    def show(self, uuid: str | None) -> Shown:
        """Its machine now; of several the one with that UUID.

        Raises:
            CloudError: it gives no answer, or one that says nothing of that machine.

        """
        ...

    def switch_off(self, permit: Permit) -> None:
        """Ask for a clean shutdown of the machine that was shown last; raises as `Cloud.stop`."""
        ...

    def switch_on(self, permit: Permit | None) -> None:
        """Ask for power for the machine that was shown last; raises as `switch_off`."""
        ...


def is_refused_login(error: CloudError | None) -> bool:
    """Whether the BMC itself has said that it does not take this user and password."""
    return isinstance(error, AuthFailedError) and error.code.startswith(("HTTP", LOGIN_CODE))


class Rests:
    """When BMCs that gave no answer are asked again: in a minute.

    One that refuses the login is asked ever more rarely, and at once with another password: many BMCs lock a user after
    some failures, also for the people who use it. So the hosts of a chassis do not all try a login at the same time.
    """

    def __init__(self, clock: Clock) -> None:
        """Every BMC may be asked."""
        self._clock = clock
        self._failed: dict[str, tuple[float, float, bytes | None, CloudError]] = {}
        self._taken: dict[str, tuple[bytes | None, float]] = {}  # the password that each took, and when
        self._turns: dict[str, threading.Lock] = {}

    @contextmanager
    def turn(self, bmc: str, password: bytes | None) -> Iterator[None]:
        """Wait while another thread is the first of a round to try this login; the next ones go on if it is taken."""
        turn = self._turns.setdefault(bmc, threading.Lock())
        turn.acquire()
        taken, at = self._taken.get(bmc, (None, -_TAKEN_SECONDS))
        first = taken != password or self._clock.uptime() - at >= _TAKEN_SECONDS
        if not first:
            turn.release()
        try:
            yield
        except CloudError as error:
            if is_refused_login(error):
                self._taken.pop(bmc, None)
            else:  # it gave no answer, and hosts do not wait for each other's silence
                self._taken[bmc] = password, self._clock.uptime()
            raise
        else:
            self._taken[bmc] = password, self._clock.uptime()
        finally:
            if first:
                turn.release()

    def check(self, bmc: str, password: bytes | None) -> None:
        """Return if it may be asked now; else raise what it failed with."""
        if bmc in self._failed:
            at, seconds, tried, error = self._failed[bmc]
            if tried == password and self._clock.uptime() - at < seconds:
                raise error

    def note_failure(self, bmc: str, password: bytes | None, error: CloudError) -> None:
        """It has failed so, with that password."""
        _, seconds, tried, last = self._failed.get(bmc, (0.0, 0.0, None, None))
        again = is_refused_login(error) and is_refused_login(last) and tried == password
        seconds = min(2 * seconds, _MOST_SECONDS) if again else _SECONDS
        self._failed[bmc] = self._clock.uptime(), seconds, password, error

    def note_answer(self, bmc: str) -> None:
        """Ask it at each look again: it has answered."""
        self._failed.pop(bmc, None)
