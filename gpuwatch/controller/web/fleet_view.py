"""The fleet as its last round saw it, in the shape of page and API. Money is Decimal, text in JSON."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from gpuwatch.controller.context import Round
from gpuwatch.guard import Rulebook
from gpuwatch.ledger.use_history import OFF, gpus_by_use
from gpuwatch.model.activity import State
from gpuwatch.model.currency import Currency
from gpuwatch.model.decision import FINAL, Observation, Status, Verb
from gpuwatch.model.duration import format_duration
from gpuwatch.model.measurement import Answers
from gpuwatch.model.money import price_note
from gpuwatch.model.nodes_page import ClusterRow, NodeRow, PodRow, WorkloadRow
from gpuwatch.model.orders import ITSELF, Pause
from gpuwatch.model.sight import Silence
from gpuwatch.money.report.health_share import HealthShare
from gpuwatch.policies.idle_settings import wait_words

_MAX_ACTIONS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRow:
    """A pool. `target` is how many nodes, or GPUs (`unit`), its policies want, where one wants a number.

    `usd_per_hour` is what is known. `stops` are those of the last 30 days, `regretted_stops` how many of them somebody
    took back within an hour; while the pool is not `known`, the first notice of a machine is a question.
    """

    name: str
    nodes: int
    running: int
    gpus: int
    rule: str
    usd_per_hour: Decimal
    target: int | None = None
    clamps: tuple[str, ...] = ()
    unit: str = "nodes"
    stops: int = 0
    regretted_stops: int = 0
    known: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums over the fleet; money only of running machines with a known price, `unpriced` are the others.

    `foreign` are running machines that are not ours: their price is in `usd_per_hour_foreign` alone;
    `foreign_unpriced` of them have no known price. `elsewhere` says where prices are of another region; null: none is.
    """

    nodes: int
    running: int
    gpus: int
    gpus_by_activity: dict[str, int]
    usd_per_hour: Decimal
    usd_per_hour_not_used: Decimal
    unpriced: int
    foreign: int
    usd_per_hour_foreign: Decimal
    foreign_unpriced: int
    elsewhere: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionView:
    """Something that was done or tried: to a node, a group, or a node yet to be launched.

    `who` did it and `why`; `approved_by` is who approved a stop, where the pool requires it; `detail` the outcome.
    """

    at: datetime
    verb: Verb
    target: str
    pool: str
    status: Status
    open: bool
    detail: str
    who: str = ITSELF
    why: str = ""
    approved_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hint:
    """What people might do about a node or a pool."""

    pool: str
    target: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRow:
    """A month's budget: what is spent, and a forecast of the month's end with its 80 % interval where there is one."""

    name: str
    scope: str
    month: str
    usd_per_month: Decimal
    spent_usd: Decimal | None
    forecast_usd: Decimal | None
    lower_usd: Decimal | None
    upper_usd: Decimal | None
    probability_over: float | None
    present_rate_usd: Decimal | None
    change: str | None
    reaches_at: datetime | None
    blocked: str | None
    doubt: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPage:
    """Everything at a glance. `trouble` is why the newest round saw nothing: then all else is of the one before.

    `silent` are the places that gave no answer: what they showed last counts.
    `currency` is what people read: sums are in US dollars, and null is these.
    `kubernetes` is the cluster, null without one; `pods` are those of it that have held GPUs without use for an hour,
    `workloads` those that may lose their pods for it. `health` is the GPUs' by type and driver; null without GPUs.
    """

    fleet: str
    version: str
    mode: str
    at: datetime
    interval_seconds: float
    totals: Totals
    pools: tuple[PoolRow, ...]
    nodes: tuple[NodeRow, ...]
    actions: tuple[ActionView, ...]
    pauses: tuple[Pause, ...]
    budgets: tuple[BudgetRow, ...]
    advice: tuple[Hint, ...]
    trouble: str | None = None
    silent: tuple[Silence, ...] = ()
    kubernetes: ClusterRow | None = None
    pods: tuple[PodRow, ...] = ()
    workloads: tuple[WorkloadRow, ...] = ()
    currency: Currency | None = None
    health: HealthShare | None = None


def totals(done: Round, nodes: Iterable[NodeRow]) -> Totals:
    """Sums over all nodes."""
    rows = tuple(nodes)
    seen = [row for row in rows if row.activity is not None]
    running, foreign = [row for row in seen if not row.foreign], [row for row in seen if row.foreign]
    ours = [row for row in rows if not row.foreign]  # a stopped machine that is still billed is among them
    by_activity = gpus_by_use(done.observation.fleet.nodes)
    return Totals(
        nodes=len(done.observation.fleet.nodes),
        running=len(seen),
        gpus=sum(by_activity.values()),
        gpus_by_activity={name: by_activity[name] for name in (*(state.value for state in State), OFF)},
        usd_per_hour=_sum(ours),
        usd_per_hour_not_used=sum((usd for row in ours for usd in row.usd_per_hour_of_no_use.values()), Decimal(0)),
        unpriced=sum(row.usd_per_hour is None for row in running),
        foreign=len(foreign),
        usd_per_hour_foreign=_sum(foreign),
        foreign_unpriced=sum(row.usd_per_hour is None for row in foreign),
        elsewhere=price_note(row.price_source for row in running),
    )


def _sum(nodes: Iterable[NodeRow]) -> Decimal:
    return sum((row.usd_per_hour for row in nodes if row.usd_per_hour is not None), Decimal(0))


def pools(done: Round, nodes: tuple[NodeRow, ...], rules: Rulebook) -> Iterator[PoolRow]:
    """One for each pool that was decided about."""
    for decision in done.decisions:
        members = [row for row in nodes if row.pool == decision.pool]
        in_force = rules.pool(decision.pool)
        idle, asks = in_force.idle, in_force.approval
        answers = done.observation.answers.get(decision.pool, Answers())
        yield PoolRow(
            name=decision.pool,
            nodes=len(members),
            running=sum(row.activity is not None for row in members),
            gpus=sum(len(row.gpus) for row in members),
            rule=f"{in_force.profile}: {idle.action} after {wait_words(idle)}, "
            f"with {format_duration(idle.grace_period)} notice"
            f"{' and an approval' if asks else ''}",
            usd_per_hour=_sum(row for row in members if not row.foreign),
            target=decision.target,
            clamps=decision.clamps,
            unit=decision.unit,
            stops=answers.stops,
            regretted_stops=answers.regretted,
            known=answers.known,
        )


def actions(done: Round) -> tuple[ActionView, ...]:
    """What was done lately or is under way, newest first."""
    ledger, nodes = done.observation.ledger, done.observation.fleet
    approved = {each.key: each.approved_by for each in ledger.stopped}
    notified = ((each, nodes.find(each.node_id)) for each in ledger.notices)
    found = {
        notice.key: ActionView(
            at=notice.at,
            verb=Verb.NOTICE,
            target=node.id,
            pool=node.pool,
            status=Status.SETTLED,
            open=False,
            detail="its tags say so",
            why=notice.why,
        )
        for notice, node in notified
        if node is not None
    }
    found |= {
        each.key: ActionView(
            at=each.at,
            verb=Verb.NOTICE,
            target=each.node_id,
            pool=each.promise.pool,
            status=Status.SETTLED,
            open=False,
            detail="its annotation says so",
            why=each.why,
        )
        for each in ledger.notices
        if each.target is not None and each.promise is not None
    }
    found |= {
        each.key: ActionView(
            at=each.at,
            verb=each.verb,
            target=each.node_id,
            pool=each.pool,
            status=each.status,
            open=False,
            detail=each.detail,
            why=each.why,
            approved_by=approved.get(each.key),
        )
        for each in ledger.recent
    }
    for entry in ledger.open_intents:
        intent, last = entry.intent, entry.last
        found[intent.key] = ActionView(
            at=intent.at if last is None else last.at,
            verb=intent.verb,
            target=intent.node_id,
            pool=intent.pool,
            status=Status.INTERRUPTED if last is None else last.status,
            open=True,
            detail="" if last is None else last.detail,
            why=intent.reason.sentence,
        )
    for act in done.acts:
        outcome, review = act.outcome, act.review
        found[outcome.key] = ActionView(
            at=outcome.at,
            verb=review.step.verb,
            target=review.step.node_id,
            pool=review.pool,
            status=outcome.status,
            open=outcome.status not in FINAL,
            detail=outcome.detail,
            why=review.step.reason.sentence,
        )
    return tuple(sorted(found.values(), key=lambda each: each.at, reverse=True)[:_MAX_ACTIONS])


def budgets(seen: Observation) -> tuple[BudgetRow, ...]:
    """As the round counted them."""
    return tuple(
        BudgetRow(
            name=each.name,
            scope=str(each.scope),
            month=each.month,
            usd_per_month=each.usd_per_month,
            spent_usd=each.spent_usd,
            forecast_usd=each.forecast_usd,
            lower_usd=each.lower_usd,
            upper_usd=each.upper_usd,
            probability_over=each.probability_over,
            present_rate_usd=each.present_rate_usd,
            change=each.change,
            reaches_at=each.reaches_at,
            blocked=each.blocked,
            doubt=each.doubt,
        )
        for each in seen.budgets
    )


def advice(done: Round) -> tuple[Hint, ...]:
    """What the policies advise."""
    return tuple(
        Hint(pool=decision.pool, target=each.target, sentence=each.reason.sentence)
        for decision in done.decisions
        for each in decision.advice
    )
