"""Carrying out what the guard allows: the intent first, then a last look at the node, then the cloud.

The last word is worth something for seconds only: each call goes with a permit that is checked when it leaves. An error
in a step is that step's alone; what says that this process must not write any more ends the round.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from gpuwatch import guard
from gpuwatch.clouds import CloudError, PermitExpiredError
from gpuwatch.clouds.permit import LEDGER_TOO_SLOW, Permit, in_force
from gpuwatch.controller import answers
from gpuwatch.controller.closing import close_what_is_over
from gpuwatch.controller.context import Act, ControllerContext
from gpuwatch.controller.offers import NextOffers
from gpuwatch.controller.target import Target
from gpuwatch.controller.targets import Targets
from gpuwatch.controller.turns import Turns
from gpuwatch.ledger import LeadLostError, LedgerError
from gpuwatch.model.decision import (
    ADDITIONS,
    FINAL,
    GIVEN_UP,
    NOT_SENT,
    VETOED,
    Decision,
    Intent,
    Observation,
    Outcome,
    Review,
    Status,
    Step,
    Unreached,
)
from gpuwatch.model.readable import legible
from gpuwatch.model.verbs import ASKED_A_LAST_TIME, BOUND_TO_ARGUMENTS, REMOVAL_STEPS, WORK_ENDINGS
from gpuwatch.policies.spot.records import OFFER

log = logging.getLogger(__name__)

# What lets no machine go rests on the round's own observation: it is not sent after a longer pause of this process.
_DECIDED_SECONDS = 60.0
# What counts against the limits of the steps that are asked about after it in the same round.
_LIMITED = REMOVAL_STEPS | WORK_ENDINGS | ADDITIONS
# Without an answer these are in doubt, and nothing is risked on top of a doubt.
_DOUBTFUL = WORK_ENDINGS | ADDITIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class Executed:
    """What one round did, and what was allowed and had no turn in it."""

    acts: tuple[Act, ...]
    unreached: tuple[Unreached, ...]


def execute(
    parts: ControllerContext,
    observation: Observation,
    reviews: tuple[Review, ...],
    round_id: int,
    decisions: Sequence[Decision] = (),
) -> Executed:
    """Intend, confirm and act on every step that the guard allows; drop open intents that are no longer wanted.

    Raises:
        LedgerError: nothing more may be written down, so nothing more is done.

    """
    close_what_is_over(parts, observation, reviews, round_id)
    made = _Execution(parts, observation, reviews, round_id, decisions)
    while (review := made.turns.take()) is not None:
        made.carry_out(review)
    unreached = made.turns.list_unreached()
    if unreached or observation.ledger.unreached:
        parts.ledger.note_unreached(unreached)
    return Executed(acts=tuple(made.acts), unreached=unreached)


class _Execution:
    """One round's steps as they have their turns, and what each leaves for those after it."""

    def __init__(
        self,
        parts: ControllerContext,
        observation: Observation,
        reviews: tuple[Review, ...],
        round_id: int,
        decisions: Sequence[Decision],
    ) -> None:
        """Nothing is done yet."""
        self.acts: list[Act] = []
        # No lambda below holds `self`: in a circle, all that a round saw would stay until the next collection.
        self._targets, self._clock, self._circuits = (targets := Targets(parts)), parts.clock, parts.memory.circuits
        self._circuits.begin_round()
        self.turns = Turns(
            self._circuits,
            lambda review: targets.target_of(review.step).servers(observation, review.step),
            (review for review in reviews if review.allowed),
            observation.interval_seconds,
        )
        self._offers = NextOffers(parts, observation, reviews, decisions)
        self._turn = _Turn(parts=parts, observation=observation, round_id=round_id)
        self._tried: tuple[Step, ...] = ()

    def carry_out(self, review: Review) -> None:
        """Carry out one step, unless its offer was refused a moment ago: then the next offer has its turn."""
        if self._offers.is_over(review):
            self.turns.put_first(self._offers.others(review))
            return
        target, begun, lost = self._targets.target_of(review.step), self._clock.monotonic(), self._circuits.lost_seconds
        attempt = _Attempt()
        try:
            outcome = self._turn.act(target, review, self._tried, attempt)
        except Exception as error:  # noqa: BLE001  whatever it is, it is this step's alone
            outcome = self._turn.settle_error(review, attempt, error)
            if not outcome.key:
                self.turns.skip(review, outcome.detail)
        else:
            self._note_end(target, review, outcome, begun)
        self.acts.append(Act(review=review, outcome=outcome))
        self.turns.note_end(review, self._clock.monotonic() - begun, self._circuits.lost_seconds - lost)
        if self._offers.is_refused(review, outcome):
            self.turns.put_first(self._offers.others(review))
        if review.step.verb in _LIMITED and outcome.status is not Status.CANCELLED:
            self._tried += (review.step,)

    def _note_end(self, target: Target, review: Review, outcome: Outcome, begun: float) -> None:
        """Remember how the server of a step has answered, and whether the step is done."""
        server, now = target.servers(self._turn.observation, review.step)[0], self._clock.monotonic()
        status, done = outcome.status, outcome.status in {Status.ACCEPTED, Status.SETTLED}
        self._circuits.note_target(review.step.node_id, server, at=now, done=done)
        self._circuits.note_end(
            server,
            status,
            outcome.detail,
            at=now,
            seconds=now - begun,
            most_denied=target.most_denied,
            most_silent=1 if review.step.verb in _DOUBTFUL else 2,
        )
        if (why := self._circuits.why_left_alone(server)) is not None:
            log.warning("%s is not asked again in this round: %s", server, why)


@dataclass(slots=True, kw_only=True)
class _Attempt:
    """How far a step has come; None: not so far."""

    intent: Intent | None = None
    permit: Permit | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    """One round's steps as they are carried out."""

    parts: ControllerContext
    observation: Observation
    round_id: int

    def act(self, target: Target, review: Review, tried: tuple[Step, ...], attempt: _Attempt) -> Outcome:
        """Carry out one step: write the intent down, ask a last time, make the call, write its outcome down."""
        ledger, clock, move = self.parts.ledger, self.parts.clock, review.step
        entry = self.observation.ledger.open_step(move.node_id, move.verb)
        if entry is not None and _is_the_same(entry.intent, move):
            intent = entry.intent
        else:
            now = clock.now()
            if entry is not None and entry.intent.verb is move.verb:
                status = Status.FAILED if entry.reached else Status.CANCELLED
                ledger.settle(entry.intent, status, "something else is wanted of it", now)
            intent = self._intend(target, review, now)
        # An earlier attempt may have been carried out: then it counts against the limits, whatever becomes of this one.
        reached = entry is not None and entry.intent is intent and entry.reached
        if entry is not None and move.verb in WORK_ENDINGS:
            # Should this process end before the answer is written down, this attempt may have been carried out, too.
            ledger.settle(intent, Status.ASKED, "asked again", clock.now())
        attempt.intent, attempt.permit = intent, (permit := self._permit(review))
        asked = move.verb in ASKED_A_LAST_TIME
        objection = target.objection(self.observation, review, tried) if asked else None
        if objection is not None:
            status, detail = Status.FAILED if reached else Status.CANCELLED, f"{VETOED}{objection}"
        else:
            status, detail = self._call(target, intent, permit)
            if status in answers.OFFER_REFUSED and OFFER in intent.arguments and not reached:
                ledger.settle(intent, status, detail, clock.now())
                status, detail = Status.FAILED, f"{GIVEN_UP}{detail}"
            if status in {Status.CANCELLED, Status.UNSENT} and reached:
                status = Status.INTERRUPTED  # as it was before this attempt, of which nothing was sent
        outcome = ledger.settle(intent, status, detail, clock.now())
        level = logging.INFO if status in FINAL or status is Status.ACCEPTED else logging.WARNING
        log.log(level, "%s of %s: %s (%s). %s", intent.verb, intent.node_id, status, detail, move.reason.sentence)
        return outcome

    def settle_error(self, review: Review, attempt: _Attempt, error: Exception) -> Outcome:
        """Write down that a step failed for an error of its own: what may have been sent has no answer.

        Raises:
            LedgerError: nothing more may be written down.

        """
        step, intent, permit = review.step, attempt.intent, attempt.permit
        if answers.ends_the_round(error):
            raise error
        log.error("%s of %s failed", step.verb, step.node_id, exc_info=error)
        sent = permit is not None and bool(permit.checks)
        status = Status.UNAVAILABLE if sent else Status.FAILED
        why = legible(f"{type(error).__name__}: {error}")
        at = self.parts.clock.now()
        if intent is None:
            return Outcome(key="", at=at, status=status, detail=f"it could not be written down: {why}")
        return self.parts.ledger.settle(intent, status, f"an error of gpuwatch's own: {why}", at)

    def _intend(self, target: Target, review: Review, now: datetime) -> Intent:
        """Write down what is about to be asked."""
        move = review.step
        owner, usd = target.owner_and_price(self.observation, move)
        return self.parts.ledger.intend(
            move.verb,
            move.node_id,
            review.pool,
            now,
            move.reason,
            self.round_id,
            arguments=target.arguments(self.observation, review, now),
            owner=owner,
            usd_per_hour=usd,
        )

    def _permit(self, review: Review) -> Permit:
        """Make what goes with the call, before anybody is asked: its age is that of the oldest answer."""
        ledger, epoch, verb = self.parts.ledger, self.parts.ledger.epoch, review.step.verb
        seconds = self.parts.rules.limits.max_confirmation_age if verb in ASKED_A_LAST_TIME else _DECIDED_SECONDS
        return Permit.asked_now(
            self.parts.clock,
            seconds,
            lambda: ledger.leading() and ledger.epoch == epoch,
            lambda: self._ordered_against(review),
        )

    def _ordered_against(self, review: Review) -> str | None:
        """Say what a person has ordered against a step since the round looked; None: nothing."""
        move, now = review.step, self.parts.clock.now()
        try:
            latest = self.parts.orders(now)
        except LedgerError as error:  # a cloud's SDK must not take it for one of its own
            return f"the ledger cannot say whether a pause or a snooze was ordered: {error}"
        for pause in latest.pauses if guard.obeys_pauses(move.verb) else ():
            if pause.pool in {None, review.pool}:
                what = "everything" if pause.pool is None else f"the pool {pause.pool}"
                return f"{pause.who} has paused {what}"
        known = self.observation.ledger.snoozes
        for snooze in latest.snoozes if move.verb in ASKED_A_LAST_TIME else ():
            if snooze.node_id == move.node_id and snooze not in known:
                return f"{snooze.who} has snoozed it until {snooze.until:%Y-%m-%d %H:%M} UTC"
        return None

    def _call(self, target: Target, intent: Intent, permit: Permit) -> tuple[Status, str]:
        """Make one change, and say what came of it in the ledger's words."""
        try:
            permit.check()
            permit.checks.clear()
            self.parts.memory.ledger_is_slow = False
            with in_force(permit):
                return target.ask(intent, self.observation, permit)
        except PermitExpiredError as error:
            if not self.parts.ledger.leading():
                why = self.parts.ledger.identity.trouble or "another controller leads now"
                raise LeadLostError(f"{why}; {intent.verb} of {intent.node_id} is not carried out") from None
            memory, slow = self.parts.memory, error.code == LEDGER_TOO_SLOW
            level = logging.INFO if slow and memory.ledger_is_slow else logging.WARNING
            memory.ledger_is_slow = slow
            log.log(level, "%s of %s was not sent: %s.", intent.verb, intent.node_id, error)
            return Status.CANCELLED, f"{NOT_SENT}{error}"
        except CloudError as error:
            return answers.status_of(error, intent.verb, sent=bool(permit.checks)), str(error)


def _is_the_same(intent: Intent, move: Step) -> bool:
    """Whether an open intent is the step that the guard has allowed: with the same arguments, where they matter."""
    return move.verb not in BOUND_TO_ARGUMENTS or dict(intent.arguments) == dict(move.arguments)
