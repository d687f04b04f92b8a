"""PURE: what disks, snapshots, images and addresses cost a month: list prices, and their sums by kind."""

from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from gpuwatch.model.money import HOURS_A_MONTH

STORAGE_AS_OF = date(2024, 2, 1)  # since when all of these hold; AWS has changed the address last
STORAGE_SOURCE = "AWS list prices in us-east-1, aws.amazon.com/ebs/pricing and /vpc/pricing"
_GIB = 1024**3
_MIB = 1024**2
_ADDRESS_USD_PER_HOUR = Decimal("0.005")


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageRow:
    """All of one kind, at list prices; `without_price` of them have no known price and are not in `usd_per_month`."""

    kind: str
    count: int
    size_bytes: int
    usd_per_month: Decimal
    without_price: int


@dataclass(frozen=True, slots=True)
class _Volume:
    """What a month of a volume costs; what is free of charge is left out of the IOPS and the throughput."""

    usd_per_gib: str
    usd_per_iops: str = "0"
    free_iops: int = 0
    known_iops: int = 1_000_000  # above, other prices hold
    usd_per_mib_per_second: str = "0"
    free_mib_per_second: int = 0


_VOLUMES = {
    "gp2": _Volume("0.10"),
    "gp3": _Volume("0.08", "0.005", free_iops=3000, usd_per_mib_per_second="0.04", free_mib_per_second=125),
    "io1": _Volume("0.125", "0.065"),
    "io2": _Volume("0.125", "0.065", known_iops=32_000),
    "st1": _Volume("0.045"),
    "sc1": _Volume("0.015"),
    "standard": _Volume("0.05"),
}


def address_usd_per_month() -> Decimal:
    """What a public IPv4 address costs, used or not."""
    return _ADDRESS_USD_PER_HOUR * HOURS_A_MONTH


def volume_usd_per_month(
    kind: str, *, size_bytes: int, iops: int | None = None, bytes_per_second: int | None = None
) -> Decimal | None:
    """What a month of a volume costs, attached or not; None where the table does not know it, never a guess."""
    price = _VOLUMES.get(kind)
    if price is None or (iops or 0) > price.known_iops:
        return None
    mib_per_second = Decimal(bytes_per_second or 0) / _MIB
    return (
        Decimal(size_bytes) / _GIB * Decimal(price.usd_per_gib)
        + max(0, (iops or 0) - price.free_iops) * Decimal(price.usd_per_iops)
        + max(Decimal(0), mib_per_second - price.free_mib_per_second) * Decimal(price.usd_per_mib_per_second)
    )
