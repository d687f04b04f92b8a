"""GCP's list prices, put together from the SKUs of the Cloud Billing catalogue (services.skus.list).

GCP sells vCPUs, memory, GPUs and local SSDs apart: a machine's price is their sum, and is unknown where one of them is.
Only families with sums that were checked against published prices of whole machines are computed.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from gpuwatch.clouds.errors import CloudError
from gpuwatch.clouds.gcp.client import Client
from gpuwatch.clouds.gcp.credentials import Credentials
from gpuwatch.clouds.gcp.iam import LIST_SKUS
from gpuwatch.model.fleet import CapacityType
from gpuwatch.model.money import HOURS_A_MONTH
from gpuwatch.money.prices.catalogue import MachineType, find_type
from gpuwatch.money.prices.fetch import FetchError, Found, Wanted
from gpuwatch.runtime.clock import Clock

_GIB = 1024**3
_SOURCE = "GCP Cloud Billing catalogue, sum of vCPUs, memory, GPUs and bundled local SSDs"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Family:
    """How the SKUs of a family of machines are described, and the local SSD that comes with each GPU in GiB."""

    host: str
    gpu: str
    ssd_gib: int = 0


_FAMILIES = {
    "a2-highgpu": _Family(host="A2", gpu="Tesla A100"),
    "a2-megagpu": _Family(host="A2", gpu="Tesla A100"),
    "a2-ultragpu": _Family(host="A2", gpu="Tesla A100 80GB", ssd_gib=375),
    "a3-highgpu": _Family(host="A3", gpu="H100 80GB", ssd_gib=750),
    "a3-megagpu": _Family(host="A3Plus", gpu="H100 80GB Mega", ssd_gib=750),
    "g2-standard": _Family(host="G2", gpu="L4"),
    "g4-standard": _Family(host="G4", gpu="RTX 6000 96GB"),
}
_ATTACHED = ("P4", "P100", "T4", "V100")
_DESCRIBED = re.compile(
    r"(?P<spot>Spot Preemptible )?(?P<host>[A-Z][A-Za-z0-9]+)( Predefined)? Instance (?P<part>Core|Ram) running in .+"
    r"|(Nvidia )?(?P<gpu>(Tesla [APTV]|H|L|RTX )[0-9]+( [0-9]+GB)?( Mega)?)( GPU)? "
    r"(running in|(?P<gpu_spot>attached to Spot Preemptible VMs running in)) .+"
    r"|(?P<ssd>SSD backed Local Storage)(?P<ssd_spot> attached to Spot Preemptible VMs)?( in .+)?"
)
_Rates = dict[tuple[str, CapacityType, str], Decimal]  # by region, kind of capacity, and part


class GcpPrices:
    """Prices on demand and spot, asked for with the cloud's own credentials; they need no permission for it."""

    def __init__(
        self,
        *,
        clock: Clock,
        key_file: Path | None = None,
        credentials: Any = None,  # noqa: ANN401  google-auth's own
        endpoint_url: str | None = None,
    ) -> None:
        """Nothing is asked yet. `key_file` is a service account's; without it google-auth finds the credentials."""
        self._clock = clock
        made = Credentials(key_file, given=credentials)
        self._client = Client("", credentials=made, clock=clock, endpoint_url=endpoint_url, name="the price list")

    def fetch(self, wanted: Sequence[Wanted]) -> Iterable[tuple[Wanted, Sequence[Found]]]:
        """The whole catalogue once, then the sums.

        Raises:
            FetchError: no usable answer.

        """
        rates = self._rates({region for region, _ in wanted})
        for region, kind in wanted:
            machine = find_type("gcp", kind)
            yield (region, kind), [] if machine is None else list(self._find_prices(rates, region, machine))

    def _find_prices(self, rates: _Rates, region: str, machine: MachineType) -> Iterator[Found]:
        """Prices of machines with a known price for every part."""
        for capacity in (CapacityType.ON_DEMAND, CapacityType.SPOT):
            price = _sum(rates, region, capacity, machine)
            if price is not None:
                offer = (region, machine.instance_type, capacity)
                yield Found.for_place(offer, price, as_of=self._clock.now().date(), source=_SOURCE)

    def _rates(self, regions: set[str]) -> _Rates:
        """What a unit of each part costs an hour."""
        rates: _Rates = {}
        for sku in self._skus():
            try:
                match = _DESCRIBED.fullmatch(sku["description"])
                if match is None or sku["category"]["usageType"] not in {"OnDemand", "Preemptible"}:
                    continue
                spot = bool(match["spot"] or match["gpu_spot"] or match["ssd_spot"])
                if sku["category"]["usageType"] == "Preemptible" and not spot:
                    continue  # neither word is sure: taken for the price on demand, it would be a fraction of that
                capacity = CapacityType.SPOT if spot else CapacityType.ON_DEMAND
                part = match["gpu"] or ("ssd" if match["ssd"] else f"{match['host']} {match['part']}")
                rate = _rate(sku["pricingInfo"][-1]["pricingExpression"])
                for region in regions & set(sku["serviceRegions"]):
                    rates[region, capacity, part] = rate
            except (KeyError, IndexError, TypeError, ValueError, ArithmeticError) as error:
                raise FetchError(f"GCP's Cloud Billing catalogue gave a SKU that cannot be read: {error!r}") from error
        return rates

    def _skus(self) -> Iterator[Mapping[str, Any]]:
        """All pages of Compute Engine."""
        try:
            for page in self._client.pages(LIST_SKUS, query={"currencyCode": "USD"}):
                if not isinstance(page.get("skus"), list):
                    raise FetchError("GCP's Cloud Billing catalogue answered without skus")
                yield from page["skus"]
        except CloudError as error:
            raise FetchError(f"GCP's Cloud Billing catalogue gave no prices: {error}") from None


def _sum(rates: _Rates, region: str, capacity: CapacityType, machine: MachineType) -> Decimal | None:
    """An hour of the machine; None: it is no family that we can put together, or a part of it has no price."""
    family, memory = _family_of(machine), machine.memory_bytes
    if family is None or memory is None:
        return None
    amounts = {
        f"{family.host} Core": Decimal(machine.vcpus),
        f"{family.host} Ram": Decimal(memory) / _GIB,
        family.gpu: Decimal(machine.gpu_count * machine.gpu_share.numerator) / machine.gpu_share.denominator,
        "ssd": Decimal(family.ssd_gib * machine.gpu_count),
    }
    total = Decimal(0)
    for part, amount in amounts.items():
        rate = rates.get((region, capacity, part))
        if amount and rate is None:
            return None
        total += amount * (rate or 0)
    return total.quantize(Decimal("0.000001"))


def _family_of(machine: MachineType) -> _Family | None:
    """How its parts are described: by its first two names, or by the GPUs that are attached to an N1."""
    if "+" in machine.instance_type:
        return _Family(host="N1", gpu=f"Tesla {machine.gpu_model}") if machine.gpu_model in _ATTACHED else None
    if machine.instance_type.endswith("-nolssd"):
        return None  # the SSDs that its family brings are not in it
    return _FAMILIES.get("-".join(machine.instance_type.split("-")[:2]))


def _rate(expression: Mapping[str, Any]) -> Decimal:
    """US dollars for one unit and hour, beyond what is free of charge."""
    unit = expression["tieredRates"][-1]["unitPrice"]
    if unit["currencyCode"] != "USD":
        raise ValueError(f"a price in {unit['currencyCode']}")
    amount = Decimal(unit.get("units", "0")) + Decimal(unit.get("nanos", 0)) / 1_000_000_000
    per_hour = {"h": 1, "GiBy.h": 1, "GiBy.mo": HOURS_A_MONTH}
    return amount / per_hour[expression["usageUnit"]]
