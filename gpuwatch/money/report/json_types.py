"""The types of the report's JSON document; docs/json.md is made from them.

Money is a text to the cent, so that the lines of each slicing add up to the whole.
"""

from datetime import date, datetime
from typing import TypedDict

from gpuwatch.model.activity import State
from gpuwatch.model.currency import Currency
from gpuwatch.model.decision import Status, Verb
from gpuwatch.model.health import Health
from gpuwatch.money.accounting.totals import Energy, TotalDocument
from gpuwatch.money.blocked.blocked import Blocked
from gpuwatch.money.report.price_days import PriceDaysDocument
from gpuwatch.money.report.progress_section import ProgressDocument
from gpuwatch.money.report.report import Order
from gpuwatch.money.report.storage_section import StorageDocument
from gpuwatch.policies.replacement import Loss


class EarlierTotal(TotalDocument):
    """The stretch of the same length before."""

    since: datetime
    until: datetime


class GroupTotal(TotalDocument):
    """One group of a slicing; the groups add up to the total."""

    name: str


class StepTotal(TotalDocument):
    """One hour, day or month, which begins then."""

    at: datetime


class SavingDocument(TypedDict):
    """What stopped machines did not cost, and what they still cost while they stood still."""

    usd: str
    machine_hours: float
    unpriced_machine_hours: float
    usd_of_stopped_machines: str


class GroupSaving(SavingDocument):
    """Of one pool or owner."""

    name: str


class SavedDocument(SavingDocument):
    """All that was saved. `still_cost_known`: the cloud was asked what stopped machines cost."""

    stops: int
    stops_without_a_known_end: int
    still_cost_known: bool
    by_pool: list[GroupSaving]
    by_owner: list[GroupSaving]


class CountDocument(TypedDict):
    """How many actions had that result."""

    verb: Verb
    status: Status
    count: int


class ActionDocument(TypedDict):
    """One action."""

    at: datetime
    verb: Verb
    status: Status
    node_id: str
    pool: str
    owner: str | None
    why: str
    detail: str


class ActionsDocument(TypedDict):
    """What gpuwatch did, and what people ordered."""

    counts: list[CountDocument]
    newest: list[ActionDocument]
    orders: list[Order]
    sick_machines: list[Loss]


class IdleDocument(TypedDict):
    """A node that is of no use now."""

    node_id: str
    name: str
    pool: str
    owner: str | None
    state: State
    held_seconds: float
    usd_per_hour: str | None
    next: Verb
    why: str


class StoppedDocument(TypedDict):
    """A node that is stopped."""

    node_id: str
    name: str
    pool: str
    owner: str | None
    by_gpuwatch: bool
    since: datetime | None


class MachinesDocument(TypedDict):
    """The machines of the newest round: how many in each state and use, which are idle, which are stopped."""

    at: datetime
    states: dict[str, int]
    uses: dict[str, int]
    idle: list[IdleDocument]
    stopped: list[StoppedDocument]


class UnusedJobDocument(TypedDict):
    """A running Slurm job with GPUs that it has not used for an hour and more, on one machine."""

    job: str
    user: str
    node_id: str
    pool: str
    gpus: int
    unused_gpus: int
    held_seconds: float
    usd_per_hour: str | None


class SickGpu(TypedDict):
    """A GPU that is not well."""

    node_id: str
    gpu: str
    health: Health
    since: datetime | None
    remedy: str
    why: str


class HealthDocument(TypedDict):
    """The health of the GPUs in the newest round: how many are well, and which are not."""

    at: datetime
    gpus: dict[str, int]
    not_well: list[SickGpu]


class ReportBudget(TypedDict):
    """A budget as the last round of the period saw it; `blocked` is why no machine is added."""

    name: str
    scope: str
    month: str
    usd_per_month: str
    usd_spent: str | None
    usd_forecast: str | None
    usd_lower: str | None
    usd_upper: str | None
    probability_over: float | None
    unpriced_machine_hours: float
    blocked: str | None
    doubt: str | None


class MonthDocument(TypedDict):
    """Where a month ends: what is spent already, what is expected, and the 80 % interval."""

    month: str
    usd_of_days_over: str
    usd_expected: str
    usd_lower: str | None
    usd_upper: str | None
    method: str
    warnings: list[str]


class ForecastDocument(TypedDict):
    """The month of the last day and the year after it, or why there is no forecast."""

    month: MonthDocument | None
    year: list[MonthDocument]
    none_because: str | None


class MissingDocument(TypedDict):
    """What is not known: time before the metering and without rounds; `cut`: a row lies across an end."""

    metered_since: datetime | None
    rounds: int
    gap_seconds: float
    gaps: list[tuple[datetime, datetime]]
    unseen_days: list[date]
    cut: bool


class ReportDocument(TypedDict):
    """A report on the days from `since` to before `until`; `over`: they have ended.

    `by` has the slicings. `steps` are hours, days or months, as `unit` says. `blocked` is of the last round, and so are
    `jobs`, those of Slurm. `progress` is null while less than two weeks are metered, `prices` if no machine has a known
    price, `storage` without `--unused`.
    """

    title: str
    headline: str
    since: datetime
    until: datetime
    timezone: str
    made_at: datetime
    over: bool
    currency: Currency | None
    total: TotalDocument
    before: EarlierTotal | None
    by: dict[str, list[GroupTotal]]
    unit: str
    steps: list[StepTotal]
    saved: SavedDocument
    actions: ActionsDocument
    machines: MachinesDocument | None
    jobs: list[UnusedJobDocument]
    health: HealthDocument | None
    budgets: list[ReportBudget]
    forecast: ForecastDocument
    blocked: Blocked | None
    storage: StorageDocument | None
    progress: ProgressDocument | None
    energy: Energy
    prices: PriceDaysDocument | None
    missing: MissingDocument
