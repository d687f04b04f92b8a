"""The next offer in the same round, where one was refused: chosen and judged as every launch is.

Within a round an offer that was refused is not asked again, neither for this node nor for the next one, so that a round
has no more refusals than a pool has offers.
"""

from collections.abc import Sequence
from dataclasses import replace

from gpuwatch import guard
from gpuwatch.controller.context import ControllerContext
from gpuwatch.model.decision import ADDITIONS, Decision, Observation, Outcome, Review, Status, Step, Verb
from gpuwatch.policies import starts
from gpuwatch.policies.launches import NEW
from gpuwatch.policies.next_offer import lacking, next_launches, without_offer
from gpuwatch.policies.sizes import Need, Sizes
from gpuwatch.policies.spot import back
from gpuwatch.policies.spot.records import CAPACITY, OFFER, SPOT
from gpuwatch.policies.spot.settings import Offers


class NextOffers:
    """What one round's refusals make of the launches that are still to come."""

    def __init__(
        self,
        parts: ControllerContext,
        observation: Observation,
        reviews: Sequence[Review],
        decisions: Sequence[Decision] = (),
    ) -> None:
        """Nothing was asked yet; `reviews` and `decisions` are all of the round."""
        self._decisions = {each.pool: each for each in decisions}
        self._parts = parts
        self._observation = observation
        self._allowed = [each for each in reviews if each.allowed and each.step.verb in ADDITIONS]
        self._names = {each.step.node_id for each in reviews}
        self._refused: set[tuple[str, str]] = set()  # pool and offer
        self._over: set[str] = set()  # the names of the steps that were refused

    def is_over(self, review: Review) -> bool:
        """Whether a step is not to be asked, because its offer was refused in this round."""
        return (review.pool, review.step.arguments.get(OFFER, "")) in self._refused

    def is_refused(self, review: Review, outcome: Outcome) -> bool:
        """Whether a step's offer was refused just now; then it rests."""
        name = review.step.arguments.get(OFFER)
        if name is None or review.step.verb is not Verb.LAUNCH or outcome.status is not Status.FAILED:
            return False
        pool, spot = review.pool, review.step.arguments.get(CAPACITY) == SPOT
        self._observation = without_offer(self._observation, pool, name, outcome.at, spot=spot)
        self._refused.add((pool, name))
        return True

    def others(self, review: Review) -> list[Review]:
        """The launches in the place of one that is over: one, or of GPUs as many as bring what is missing."""
        self._over.add(review.step.node_id)
        found, rules = list[Review](), self._parts.rules.pool(review.pool)
        sources, sizes, fleet = rules.sources, rules.sizes(self._observation.fleet), self._observation.fleet
        if not isinstance(sources, Offers):
            return found
        missing = sizes.size_of_step(fleet, review.step) or 0
        while (need := self._need(review, missing, sizes)).missing > 0:
            another = self._another(review, need, sources)
            if another is None:
                break
            found.append(another)
            missing -= sizes.size_of_step(fleet, another.step) or 0
        return found

    def _need(self, review: Review, missing: int, sizes: Sizes) -> Need:
        """What is missing now of what one step was to bring; the pool may need less than that."""
        if review.step.reason.code == back.CODE:
            return Need(missing=missing, sizes=sizes, most=missing)
        added = [
            each.step
            for each in self._reviews_left()
            if each.pool == review.pool and each.step.reason.code != back.CODE
        ]
        granted = sizes.total(self._observation.fleet, added)
        return lacking(self._observation, self._decisions.get(review.pool), sizes, granted, missing)

    def _another(self, review: Review, need: Need, sources: Offers) -> Review | None:
        """The launch from the next offer that the guard allows."""
        while (step := self._fresh(review, need, sources)) is not None:
            found = self._judge_step(step, review.pool)
            if found.allowed:
                self._names.add(step.node_id)
                self._allowed.append(found)
                return found
            if not guard.another_may_pass(found):
                return None
            self._observation = without_offer(self._observation, review.pool, step.arguments[OFFER])
        return None

    def _judge_step(self, step: Step, pool: str) -> Review:
        granted = tuple(each.step for each in self._reviews_left())
        frozen = guard.find_bursts(self._observation, self._parts.rules.limits)
        return guard.judge(
            guard.case_of(step, self._observation, pool, self._parts.rules, frozen=frozen, granted=granted)
        )

    def _reviews_left(self) -> list[Review]:
        """What is allowed in this round and was not refused in it."""
        return [each for each in self._allowed if each.step.node_id not in self._over]

    def _fresh(self, review: Review, need: Need, sources: Offers) -> Step | None:
        """A new launch; what is open and may be asked again has its own step, or none today."""
        added = [each.step for each in self._reviews_left() if each.pool == review.pool]
        need = replace(need, but=self._names)
        steps = next_launches(self._observation, review.pool, need, added, sources, review.step.reason)
        started = {entry.intent.node_id for entry in self._observation.ledger.open_intents}
        step = next((each for each in steps if each.node_id.startswith(NEW) and each.node_id not in started), None)
        if step is None or not self._fits(step, review):
            return None
        sentence = f"{review.step.reason.sentence} The offer {review.step.arguments[OFFER]} was refused in this round."
        return replace(step, reason=replace(review.step.reason, sentence=sentence))

    def _fits(self, step: Step, review: Review) -> bool:
        """Whether it may be asked now: back to spot is spot alone, and a stopped node is started before on demand."""
        if step.arguments.get(CAPACITY) == SPOT:
            return True
        stopped = starts.has_stopped(self._observation, review.pool, self._parts.rules.pool(review.pool).start)
        return review.step.reason.code != back.CODE and not stopped
