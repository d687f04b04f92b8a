"""PURE: what was not seen of a cloud: parts that gave no answer, and machines that nobody watched for a while.

Whether a machine was watched counts where its cloud does not say when it was started last. EC2, Google Cloud and
Alibaba Cloud say it, so no start of theirs is overlooked. Azure and Tencent Cloud do not. There a machine that is
stopped now may have been started, used and stopped again by its owner while no controller looked. Only a controller
that looked all the time excludes this.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """A place (a region, a subscription, a zone, or a whole cloud) that gave no answer, and why.

    `cloud` is the cloud's name in the settings, "" where they name none; `where` the place's name, "" for all of it.
    `known`: what it showed last is known, and counts; otherwise nobody knows what is there.
    """

    where: str
    reason: str
    known: bool
    cloud: str = ""

    @property
    def name(self) -> str:
        """For people: `ap-beijing of cloud bj`."""
        if not self.cloud:
            return self.where or "the cloud"
        return f"{self.where} of cloud {self.cloud}" if self.where else f"cloud {self.cloud}"
