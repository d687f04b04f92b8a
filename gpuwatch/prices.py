"""List prices of AWS GPU machines: on demand, Linux, us-east-1, without discounts, taxes, disks and traffic.

Facts as Karpenter's static price table gives them (aws/karpenter-provider-aws, zz_generated.pricing_aws.go).
"""

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
