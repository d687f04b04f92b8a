"""A controller over a spot market, which wants two nodes."""

from dataclasses import dataclass, field, replace

from gpuwatch.guard import Limits
from gpuwatch.policies import PoolRules
from gpuwatch.policies.schedule import Window
from tests.support.builders.fleet import RULES, Desk
from tests.support.builders.offers import OFFERS
from tests.support.fakes.spot_market import SpotMarket

ALWAYS = {"always": Window(min_nodes=2)}
POOL = replace(RULES, offers=OFFERS, interruptible="any", schedule=ALWAYS)


@dataclass(slots=True)
class Market(Desk):
    """A desk over the market."""

    fleet: SpotMarket = field(init=False)

    def __post_init__(self) -> None:
        """Empty, on the same clock."""
        self.fleet = SpotMarket(clock=self.clock)
        self.pools = {"default": self.rules}

    def asked(self) -> list[str]:
        """The offers in the order in which they were asked since the last question."""
        names = [name for call, name, _ in self.fleet.calls if call == "launch"]
        self.fleet.calls.clear()
        return names


def a_market(rules: PoolRules = POOL, limits: Limits | None = None, **room: int) -> Market:
    """Two nodes are wanted; offers by their names with _ for -."""
    desk = Market(rules=rules, limits=limits or Limits())
    desk.fleet.room = {name.replace("_", "-"): count for name, count in room.items()}
    return desk
