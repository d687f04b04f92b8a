"""PURE: the launches of a pool: from its one template in each of its subnets, or from its offers.

A try that failed lately is not repeated while another is left; which of several offers is asked, spot/choice.py says.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import count
from typing import Annotated, ClassVar

from annotated_types import MinLen

from gpuwatch.model.decision import (
    Done,
    Observation,
    OpenIntent,
    Reason,
    Status,
    Step,
    Verb,
)
from gpuwatch.model.measurement import OfferPast, OffersPast
from gpuwatch.model.setting import STRICT, Setting
from gpuwatch.policies.machines import may_appear, pool_machines
from gpuwatch.policies.sizes import Need, Sizes
from gpuwatch.policies.spot.choice import choose_offers, resting_seconds
from gpuwatch.policies.spot.records import OFFER
from gpuwatch.policies.spot.settings import Offers

NEW = "new:"
CHANGE = "Less load, or a lower floor."
_FAILED_LATELY = timedelta(minutes=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRules:
    """Where new nodes of a pool come from."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    template: Annotated[
        Annotated[str, MinLen(1)] | None,
        Setting("The launch template, by id (lt-…) or name; without one nothing is launched."),
    ] = None
    version: Annotated[str, MinLen(1), Setting("Its version: a number, $Default or $Latest.")] = "$Default"
    cloud: Annotated[
        Annotated[str, MinLen(1)] | None, Setting("The cloud to launch in; may be left out where there is one.")
    ] = None
    region: Annotated[str | None, Setting("Where to launch. None: the first of cloud.regions.")] = None
    account: Annotated[str | None, Setting("The account to launch in, by its number. None: the first.")] = None
    subnets: Annotated[
        tuple[Annotated[str, MinLen(1)], ...],
        Setting("Subnets to try in this order, one for each zone; none given: the template's own."),
    ] = ()
    instance_type: Annotated[str | None, Setting("The machine type. None: the template's own.")] = None


# Where the launches of a pool come from.
Sources = LaunchRules | Offers


def doubtful_size(observation: Observation, pool: str, sources: Sources, sizes: Sizes) -> int:
    """How much the launches count that may have happened and are not asked for again: the settings have changed."""
    tries = _tries(pool, sources)
    return sizes.of_expected([each for each in pool_machines(observation, pool).doubtful if each.asked not in tries])


def again(
    observation: Observation, pool: str, need: Need, sources: Sources, reason: Reason, *, doubtful: bool
) -> list[Step]:
    """The launches that were not carried out, as they were asked; what would no longer be asked for is left out.

    So is one from an offer that rests: its place is another offer's.
    `doubtful`: only those that may have happened all the same; without, all the others.
    """
    tries = _tries(pool, sources)
    open_now = [
        entry.intent
        for entry in observation.ledger.open_intents
        if entry.intent.pool == pool
        and entry.intent.verb is Verb.LAUNCH
        and entry.resumable
        and dict(entry.intent.arguments) in tries
        and may_appear(entry, observation.now) is doubtful
        and (doubtful or not _rests(observation, pool, entry, sources))
        and entry.intent.node_id not in need.but
    ]
    steps = [
        Step(node_id=each.node_id, verb=Verb.LAUNCH, reason=reason, change=CHANGE, arguments=each.arguments)
        for each in open_now
    ]
    return need.needed_steps(steps, observation.fleet)


def launches(observation: Observation, pool: str, need: Need, sources: Sources, reason: Reason) -> list[Step]:
    """New nodes; intents that were certainly not carried out come first."""
    steps = again(observation, pool, need, sources, reason, doubtful=False)
    need = need.after_machines(need.sizes.total(observation.fleet, steps), len(steps))
    if need.missing <= 0:
        return steps
    asked = _launch_requests(observation, pool, replace(need, coming=(*need.coming, *offer_names(steps))), sources)
    taken = {*need.but, *(entry.intent.node_id for entry in observation.ledger.open_intents)}
    names = (name for number in count(1) if (name := f"{NEW}{pool}:{number}") not in taken)
    return steps + [
        Step(node_id=next(names), verb=Verb.LAUNCH, reason=reason, change=CHANGE, arguments=arguments)
        for arguments in asked
    ]


def offer_names(steps: Iterable[Step]) -> tuple[str, ...]:
    """The offer of each launch among these steps."""
    return tuple(step.arguments[OFFER] for step in steps if step.verb is Verb.LAUNCH and OFFER in step.arguments)


def _rests(observation: Observation, pool: str, entry: OpenIntent, sources: Sources) -> bool:
    """Whether a launch is from an offer that was refused a short time ago."""
    known = observation.offers.get(pool, OffersPast()).offers.get(entry.intent.arguments.get(OFFER, ""), OfferPast())
    waited_for = isinstance(sources, Offers) and sources.batch is not None
    return resting_seconds(observation, known, own=0, waited_for=waited_for) > 0


def _launch_requests(observation: Observation, pool: str, need: Need, sources: Sources) -> list[dict[str, str]]:
    """What each new launch asks for; fewer than are missing where an offer has to be waited for."""
    if isinstance(sources, Offers):
        names = choose_offers(observation, pool, sources, need)
        return [sources.offers[name].arguments(name, pool) for name in names]
    tries = _tries(pool, sources)
    before = [dict(done.arguments) for done in failed_actions(observation, Verb.LAUNCH)]
    first = next((each for each in tries if each not in before), tries[0] if tries else None)
    return [] if first is None else [first] * need.count(need.sizes.kind(first.get("instance_type")))


def _tries(pool: str, sources: Sources) -> list[dict[str, str]]:
    """What a launch may ask for: each offer; or the template, in each of the subnets in their order."""
    if isinstance(sources, Offers):
        return [each.arguments(name, pool) for name, each in sources.offers.items()]
    if sources.template is None:
        return []
    arguments = {
        "pool": pool,
        "template": sources.template,
        "version": sources.version,
        "cloud": sources.cloud,
        "region": sources.region,
        "account": sources.account,
        "instance_type": sources.instance_type,
    }
    base = {name: value for name, value in arguments.items() if value is not None}
    return [{**base, "subnet": subnet} for subnet in sources.subnets] or [base]


def failed_actions(observation: Observation, verb: Verb) -> list[Done]:
    """What of that verb was given up lately."""
    since = observation.now - _FAILED_LATELY
    return [
        done
        for done in observation.ledger.recent
        if done.verb is verb and done.status is Status.FAILED and done.at > since
    ]
