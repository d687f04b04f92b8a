"""List prices of AWS in us-east-1 without discounts, taxes and traffic: GPU machines on demand, volumes, addresses.

Machines as Karpenter's static price table gives them (aws/karpenter-provider-aws, zz_generated.pricing_aws.go).
"""

from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from gpuwatch.model.money import Price

AS_OF = date(2026, 1, 19)
SOURCE = "AWS on-demand list price in us-east-1, from aws/karpenter-provider-aws zz_generated.pricing_aws.go"

_USD_PER_HOUR = {
    "g4dn.xlarge": "0.526",
    "g4dn.2xlarge": "0.752",
    "g4dn.4xlarge": "1.204",
    "g4dn.12xlarge": "3.912",
    "g4dn.metal": "7.824",
    "g5.xlarge": "1.006",
    "g5.2xlarge": "1.212",
    "g5.12xlarge": "5.672",
    "g5.48xlarge": "16.288",
    "g6.xlarge": "0.8048",
    "g6.2xlarge": "0.9776",
    "g6.12xlarge": "4.6016",
    "g6.48xlarge": "13.3504",
    "g6e.xlarge": "1.861",
    "g6e.2xlarge": "2.24208",
    "g6e.12xlarge": "10.49264",
    "g6e.48xlarge": "30.13118",
    "p3.2xlarge": "3.06",
    "p3.8xlarge": "12.24",
    "p3.16xlarge": "24.48",
    "p4d.24xlarge": "21.957642",
    "p4de.24xlarge": "27.44705",
    "p5.4xlarge": "6.88",
    "p5.48xlarge": "55.04",
    "p5en.48xlarge": "63.296",
    "p6-b200.48xlarge": "113.9328",
}


def lookup(instance_type: str) -> Price | None:
    """The list price of a machine type; None where the table does not know it, never a guess."""
    usd = _USD_PER_HOUR.get(instance_type)
    return None if usd is None else Price(usd_per_hour=Decimal(usd), as_of=AS_OF, source=SOURCE)


STORAGE_AS_OF = date(2024, 2, 1)  # since when all of these hold; AWS has changed the address last
STORAGE_SOURCE = "AWS list prices in us-east-1, aws.amazon.com/ebs/pricing and /vpc/pricing"
HOURS_A_MONTH = 730

_GIB = 1024**3
_MIB = 1024**2


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
_ADDRESS_USD_PER_HOUR = Decimal("0.005")


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
