"""What a simulated world comes to, from its truth alone: GPU-hours and money."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal

from gpuwatch.money.prices.catalogue import list_price
from gpuwatch.simulate.fleet.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What a world did up to a moment, in GPU-hours by the truth. Billed node-hours are counted by machine type."""

    gpus: int
    hours: float
    billed: float
    useful: float
    demanded: float
    silent: float
    node_hours: Mapping[str, float]
    node_hours_unmanaged: Mapping[str, float]

    @property
    def waste_ratio(self) -> float:
        """Billed GPU-hours without computing / billed GPU-hours."""
        return 1 - self.useful / self.billed if self.billed > 0 else 0.0

    @property
    def baseline_waste_ratio(self) -> float:
        """The same fleet with nobody stopping anything: all of it billed, all load served."""
        whole = self.gpus * self.hours
        return 1 - self.demanded / whole if whole > 0 else 0.0


def account(world: World, until: float) -> Account:
    """Integrate the runs and the lives exactly, from second 0."""
    billed = useful = demanded = silent = 0.0
    by_type: dict[str, float] = {}
    unmanaged: dict[str, float] = {}
    for host in world.hosts.values():
        runs = [
            (run.begin, min(run.ready, until), until if run.end is None else min(run.end, until)) for run in host.runs
        ]
        ran = sum(end - begin for begin, _, end in runs)
        billed += ran * len(host.busy)
        silent += len(host.busy) * sum(host.life.silent.overlap(begin, end) for begin, _, end in runs)
        demanded += sum(busy.overlap(0.0, until) for busy in host.busy)
        useful += sum(busy.overlap(ready, end) for busy in host.busy for _, ready, end in runs)
        kind = host.life.instance_type
        by_type[kind] = by_type.get(kind, 0.0) + ran / 3600
        unmanaged[kind] = unmanaged.get(kind, 0.0) + until / 3600
    return Account(
        gpus=sum(len(host.busy) for host in world.hosts.values()),
        hours=until / 3600,
        billed=billed / 3600,
        useful=useful / 3600,
        demanded=demanded / 3600,
        silent=silent / 3600,
        node_hours=by_type,
        node_hours_unmanaged=unmanaged,
    )


def saved_usd(account: Account) -> Decimal:
    """What the machines' time that was not billed would have cost, at list price, to the cent."""
    hours = {kind: whole - account.node_hours[kind] for kind, whole in account.node_hours_unmanaged.items()}
    return _cost(hours).quantize(Decimal("0.01"), rounding=ROUND_HALF_EVEN)


def _cost(hours: Mapping[str, float]) -> Decimal:
    """Node-hours by machine type at list price; hours to the millionth."""
    total = Decimal(0)
    for kind, count in sorted(hours.items()):
        price = list_price(kind)
        if price is None:
            raise LookupError(f"there is no list price for {kind}")
        total += price.usd_per_hour * Decimal(f"{count:.6f}")
    return total
