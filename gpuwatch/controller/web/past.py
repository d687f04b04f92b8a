"""What the API answers from the ledger: past rounds, cost and savings."""

from collections import Counter
from datetime import UTC, datetime
from http import HTTPStatus

import msgspec

from gpuwatch.controller.order_documents import RoundsPage
from gpuwatch.controller.web import schemas
from gpuwatch.controller.web.call import Call, RefusedError
from gpuwatch.guard import Rulebook
from gpuwatch.ledger import Ledger, LedgerError, PastRound
from gpuwatch.model.decision import Verb
from gpuwatch.money.accounting.store import SpendBook
from gpuwatch.money.report import cost
from gpuwatch.money.report.gather import since_began
from gpuwatch.money.report.period import period_of
from gpuwatch.money.report.progress import progress_document
from gpuwatch.money.report.saved import RecentSavings, recent_savings

_PROGRESS_SECONDS = 3600.0  # it reads all that was metered
_SAVINGS_SECONDS = 300.0  # they read the rows of every machine that was stopped


def rounds(call: Call) -> RoundsPage:
    """The newest rounds on record."""
    return RoundsPage(rounds=call.state.ledger.rounds(call.query.limit))


def past_round(call: Call) -> schemas.RoundPage:
    """What a past round decided."""
    try:
        number = msgspec.convert(call.named["round"], schemas.RoundId, strict=False)
    except msgspec.ValidationError:
        raise RefusedError(HTTPStatus.BAD_REQUEST, f"{call.named['round']!r} is no round's number") from None
    past, rules = rules_of(call.state.ledger, number)
    pools = tuple(
        schemas.PastPool(
            pool=decision.pool,
            target=decision.target,
            unit=decision.unit,
            clamps=decision.clamps,
            held=dict(Counter(step.reason.code for step in decision.steps if step.verb is Verb.HOLD)),
            reviews=tuple(review for review in past.reviews if review.pool == decision.pool),
        )
        for decision in past.decisions
    )
    return schemas.RoundPage(
        id=past.id,
        at=past.at,
        nodes=len(past.observation.fleet.nodes),
        enforce=rules.enforce,
        pools=pools,
    )


def rules_of(ledger: Ledger, number: int) -> tuple[PastRound, Rulebook]:
    """A round on record, with the rules of then."""
    try:
        past = ledger.round(number)
    except LedgerError as error:
        raise RefusedError(HTTPStatus.NOT_FOUND, str(error)) from error
    if past.rulebook is None:
        sentence = f"round {number} was written by an early gpuwatch, which did not keep its rules"
        raise RefusedError(HTTPStatus.NOT_FOUND, sentence)
    return past, past.rulebook


def cost_page(call: Call) -> schemas.CostPage:
    """What was billed in a period."""
    state, period = call.state, call.query.period
    now = state.clock.now()
    if period == "today":
        period = f"{now.astimezone(state.zone):%Y-%m-%d}"
    elif period == "month":
        period = f"{now.astimezone(state.zone):%Y-%m}"
    try:
        asked = {"day": period} if period.count("-") > 1 else {"month": period}
        found = cost.cost_report(SpendBook(state.ledger), period_of(state.zone, now, **asked), call.query.by)
    except (ValueError, OverflowError) as error:
        raise RefusedError(HTTPStatus.BAD_REQUEST, str(error)) from None
    return msgspec.convert(cost.cost_document(found, state.energy), schemas.CostPage, from_attributes=True)


def savings(call: Call) -> RecentSavings:
    """What stops saved today and this month."""
    state = call.state
    standing = frozenset(each.key for each in state.last().observation.ledger.stopped)

    def make() -> RecentSavings:
        ledger, now = state.ledger, state.clock.now()
        began = SpendBook(ledger).began()
        return recent_savings(ledger, state.zone, now, state.interval_seconds, standing, began, state.rules)

    return state.seldom("savings", _SAVINGS_SECONDS, make)


def progress(call: Call) -> schemas.ProgressPage:
    """Waste of the first weeks of metering against the last ones."""
    state = call.state

    def make() -> schemas.ProgressPage:
        ledger, now = state.ledger, state.clock.now()
        began = SpendBook(ledger).began()
        period = period_of(state.zone, now)
        found = None if began is None else since_began(ledger, period, now, datetime.fromtimestamp(began / 1000, UTC))
        return schemas.ProgressPage(progress=None if found is None else progress_document(found))

    return state.seldom("progress", _PROGRESS_SECONDS, make)
