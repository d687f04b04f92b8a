"""PURE: whether anybody watched a machine, where its cloud does not say when it was started last.

EC2, Google Cloud and Alibaba Cloud say it, so no start of theirs is overlooked. Azure and Tencent Cloud do not. There a
machine that is stopped now may have been started, used and stopped again by its owner while no controller looked.
Only a controller that looked all the time excludes this.
"""

from dataclasses import dataclass
from datetime import datetime

BLIND_SECONDS = 600.0  # what is shorter is no time to start a machine, use it and stop it again
_INTERVALS = 3  # of rounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """How well this process watched a machine: its longest time without a look, and the end of the newest long one."""

    blind_until: datetime | None = None
    blind_seconds: float = 0.0

    def lost_since(self, then: datetime, interval_seconds: float) -> bool:
        """Whether there was a long time without a look since then; rounds with long intervals look rarely."""
        if self.blind_until is None or self.blind_until <= then:
            return False
        return self.blind_seconds > max(BLIND_SECONDS, _INTERVALS * interval_seconds)
