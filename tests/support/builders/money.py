"""Billed rounds, budgets, offers, prices and measured GPUs."""

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal

from gpuwatch.guard import Case
from gpuwatch.model.activity import Activity, GpuUse, State
from gpuwatch.model.budget import BudgetState, Scope, ShorterWaits
from gpuwatch.model.decision import Observation
from gpuwatch.model.fleet import CapacityType, GpuVerdict, Node, NodeReport
from gpuwatch.model.money import Price
from gpuwatch.model.offers import Offer
from gpuwatch.model.usage import AMOUNTS, HOUR_MS, USES, Terms, Use
from gpuwatch.money.accounting.totals import Row
from gpuwatch.money.report.progress import ComparedEnds, Ends, compare_ends
from tests.support.builders.fleet import NOW, a_node, a_verdict, an_observation


def a_round(at: datetime, *nodes: Node, usd: str | None = "10", as_of: date = date(2026, 1, 1)) -> Observation:
    """These nodes at one price an hour; without any, one node with two GPUs that has been busy for long."""
    if not nodes:
        nodes = (a_busy_node("i-1", at),)
    price = None if usd is None else Price(usd_per_hour=Decimal(usd), as_of=as_of, source="a list")
    kinds = {} if price is None else {node.instance_type: price for node in nodes}
    return replace(an_observation(*nodes, now=at), prices=kinds)


def a_busy_node(name: str, at: datetime) -> Node:
    """Two GPUs, both at work."""
    return a_node(name, gpu_count=2, signal=NodeReport(verdict=a_verdict(name, State.BUSY, 9000.0, gpus=2, at=at)))


def a_state(**changes: object) -> BudgetState:
    """A budget for everything of which more than all is spent, and that blocks growth."""
    base = BudgetState(
        name="ml",
        scope=Scope(),
        usd_per_month=Decimal(5000),
        month="2026-03",
        ends_at=datetime(2026, 4, 1, tzinfo=UTC),
        block_growth="actual",
        spent_usd=Decimal(5120),
        blocked="$5,120.00 of the $5,000.00 of the budget ml are spent in 2026-03",
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def a_hurry(seconds: float = 600.0, **changes: object) -> BudgetState:
    """One that hastens idle machines of its scope."""
    hastening = ShorterWaits(wait_seconds=seconds, why="the budget ml is forecast at 112%")
    return a_state(blocked=None, hastening=hastening, **changes)


def budgeted(case: Case, **changes: object) -> Case:
    """The case under such a budget, besides those it has."""
    budgets = (*case.observation.budgets, a_state(**changes))
    return replace(case, observation=replace(case.observation, budgets=budgets))


def alone(case: Case) -> Case:
    """The case in a fleet without a node."""
    return replace(case, observation=replace(case.observation, fleet=replace(case.observation.fleet, nodes=())))


GIB = 2**30


def an_offer(name: str, *, gpus: int = 8, model: str = "A100", memory_gib: int = 80, usd: str | None = "40") -> Offer:
    """A machine on offer."""
    return Offer(
        provider="aws",
        region="us-east-1",
        instance_type=name,
        gpu_model=model,
        gpu_count=gpus,
        gpu_memory_bytes=memory_gib * GIB,
        vcpus=96,
        memory_bytes=None,
        capacity_type=CapacityType.ON_DEMAND,
        price_per_hour=None if usd is None else Decimal(usd),
        currency="USD",
        as_of=date(2026, 1, 19),
        source="a test",
    )


def a_gpu(
    index: int, state: State, held: float, *, memory: float | None = None, active: float | None = None
) -> GpuVerdict:
    """One GPU's verdict, with its use."""
    use = GpuUse(over_seconds=60.0, memory_used_ratio=memory, sm_active_ratio=active)
    return GpuVerdict(
        uuid=f"GPU-{index}", index=index, activity=Activity(state=state, since=None, held_seconds=held), use=use
    )


def a_price(usd: str) -> Price:
    """What an hour costs."""
    return Price(usd_per_hour=Decimal(usd), as_of=NOW.date(), source="a test")


def a_billed_row(useful: float, idle: float, *, pool: str, owner: str | None, usd: str | None = "10") -> Row:
    """So many hours of one machine with one GPU, at that price."""
    amounts = [0] * len(AMOUNTS)
    for use, hours in ((Use.USEFUL, useful), (Use.IDLE, idle)):
        amounts[USES.index(use)] = amounts[len(USES) + USES.index(use)] = int(hours * HOUR_MS)
    terms = Terms(
        pool=pool,
        owner=owner,
        account=None,
        region="us-east-1",
        instance_type="g6.xlarge",
        capacity_type="on_demand",
        gpus=1,
        usd_per_hour=None if usd is None else Decimal(usd),
        price_as_of=None,
        price_source="a list",
        tags=(),
        cloud=None,
        provider="aws",
    )
    return Row(terms=terms, amounts=amounts)


def four_weeks(early: list[Row], late: list[Row]) -> ComparedEnds:
    """These rows as the first and the last four weeks of three months."""
    return compare_ends(Ends(count=4, first=date(2026, 1, 5), last=date(2026, 3, 9)), early, late)


def a_comparison() -> ComparedEnds:
    """Ana wastes half of what she did, ben as much, and nobody's machine is new."""
    early = [
        a_billed_row(300, 200, pool="training", owner="ana"),
        a_billed_row(200, 80, pool="research", owner="ben"),
    ]
    late = [
        a_billed_row(400, 100, pool="training", owner="ana"),
        a_billed_row(200, 80, pool="research", owner="ben"),
        a_billed_row(10, 20, pool="research", owner=None),
    ]
    return four_weeks(early, late)
