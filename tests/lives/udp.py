"""What the made host's kernel counts of UDP: it adds up the datagrams of all sockets, and loopback's are among them."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.lives.actors import UPTIME_SECONDS
from tests.lives.rates import Rate, moments, rate

_ANSWERS = 2  # of a resolver, to one program: addresses of both families
_OVER_LOOPBACK = 4  # packets: the program's two questions to this host's own resolver, and its two answers


@dataclass(frozen=True, slots=True, kw_only=True)
class Udp:
    """What is told of it in a life and in base.yaml, both together."""

    got: Rate
    sent: Rate
    heard: Rate
    lookups: tuple[float, ...]

    def lookups_in(self, after: float, until: float) -> range:
        """The numbers of the lookups of a time."""
        return range(bisect_right(self.lookups, after), bisect_right(self.lookups, until))

    def looped(self, moment: float) -> int:
        """Packets over loopback since the boot."""
        return _OVER_LOOPBACK * bisect_right(self.lookups, moment)

    def counts(self, moment: float) -> tuple[int, int, int]:
        """Datagrams in and out since the boot, and packets that were for all."""
        asked = _ANSWERS * bisect_right(self.lookups, moment) + self.looped(moment)
        got, sent, heard = (round(each.total(-UPTIME_SECONDS, moment)) for each in (self.got, self.sent, self.heard))
        return asked + got, asked + sent, heard


def udp_of(told: Sequence[Mapping[str, Any]], until: float) -> Udp:
    """The hum of every host and the life's own."""
    sums = {name: rate(_listed(told, name)) for name in ("got", "sent", "heard")}
    return Udp(lookups=moments(_listed(told, "lookups"), until), **sums)


def _listed(told: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    values = [each[name] for each in told if name in each]
    return [entry for value in values for entry in (value if isinstance(value, list) else [value])]
