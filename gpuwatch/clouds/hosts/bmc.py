"""What every BMC is asked, whatever it speaks: which machine it has, whether that is on, to switch it off and on."""

from dataclasses import dataclass
from typing import Protocol

from gpuwatch.clouds.permit import Permit
from gpuwatch.model.fleet import NodeState


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What a BMC shows of its machine. `unable` is why it cannot be switched off cleanly, or on again, as a clause."""

    uuid: str | None
    state: NodeState
    unable: str | None = None


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
