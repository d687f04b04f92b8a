"""PURE: what disks, snapshots, images and addresses cost a month, by kind."""

from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum:
    """All of one kind (`LeftoverKind`): how many, known sizes and monthly prices, and how many lack a known price."""

    kind: str
    count: int
    size_bytes: int
    usd: Decimal
    unpriced: int
