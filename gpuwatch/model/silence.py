"""PURE: a part of a cloud that gave no answer to a list."""

from dataclasses import dataclass


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
