"""PURE: what the ledger's records say of a pool's offers: refusals, losses, hours up.

Rules: a launch that failed for lack of stock or quota is a refusal. One that failed for another reason (a missing
right, a broken template, too many calls, no answer) is a fault: the offer rests as long, nothing is learnt about its
stock, and the first success, or a word on stock, ends the count. A launch of a machine that ended before it was a node
is a refusal and a loss. One of a machine that its cloud then had no place for, and left there stopped, is a refusal,
though it was shown for minutes. Any other settled launch is a success. A spot node that came and is gone, without a
removal by gpuwatch, is a loss: most are, and one that somebody else ended costs a place in the order at most. A notice
of the cloud for a spot node is a loss at once, whatever happens to it later. It is a refusal as well, so that the offer
rests: what takes nodes back is out of stock. Notices of one minute are one refusal. A cancelled launch, and one that is
still open, says nothing. Only records of the last three days count, so that what is kept is bounded by the number of
offers, and a restart changes nothing.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from gpuwatch.model.decision import GIVEN_UP, REMOVALS, SETTLE_TIMEOUT, Done, Status, Verb
from gpuwatch.model.measurement import OfferPast, OffersPast
from gpuwatch.policies.spot.offers import MEMORY_SECONDS, refusals_after

# The arguments of a launch that name its offer and how that is paid for.
OFFER, CAPACITY = "offer", "capacity"
SPOT = "spot"
# The code of the reasons of all steps by which a pool comes back to spot.
BACK_TO_SPOT = "back_to_spot"

_MEMORY = timedelta(seconds=MEMORY_SECONDS)
_AT_ONCE = timedelta(minutes=1)

# The machine that a finished launch brought, and whether that machine ended before it was a node, or never ran.
Brought = Callable[[Done], tuple[str | None, bool]]
# Whether a machine runs or comes up; False: it is gone; None: neither is known, or it is stopped.
Lives = Callable[[str], bool | None]


def past(recent: Iterable[Done], pool: str, now: datetime, *, brought: Brought, lives: Lives) -> OffersPast:
    """What is known of a pool's offers."""
    mine = sorted(
        (done for done in recent if done.pool == pool and now - _MEMORY < done.at <= now),
        key=lambda done: (done.at, done.key),
    )
    removed = {done.node_id: done.at for done in mine if done.verb in REMOVALS and done.status is Status.SETTLED}
    threats = _threats(mine)
    spared = {done.node_id: done.at for done in mine if done.verb is Verb.SPARED}
    noticed = {each.node_id: each.at for each in threats if spared.get(each.node_id, each.at) <= each.at}
    ends = noticed | removed
    first, lately = {each.key for each in threats}, dict[str, datetime]()
    known = OffersPast()
    for done in mine:
        name = done.arguments.get(OFFER)
        if name is None:
            continue
        if done.key in first:
            known = _change_record(known, name, losses=1)
            if name not in lately or done.at - lately[name] >= _AT_ONCE:
                lately[name] = done.at
                known = add_refusal(known, name, done.at, spot=False)
        if done.verb is not Verb.LAUNCH:
            continue
        node_id, ended = brought(done)
        spot = done.arguments.get(CAPACITY) == SPOT
        if done.status is Status.FAILED and done.fault is not None:
            known = _faulty(known, name, done, spot=spot)
        elif done.status is Status.FAILED:
            known = add_refusal(known, name, done.at, spot=spot)
            known = _change_record(known, name, losses=1) if ended else known
        elif done.status is Status.SETTLED and ended:
            # The cloud may have said so at any time since.
            known = add_refusal(known, name, min(now, done.at + SETTLE_TIMEOUT), spot=spot)
        elif done.status is Status.SETTLED:
            known = _came(known, name, spot=spot)
            known = known if node_id is None else _add_life(known, name, done, node_id, ends.get(node_id), now, lives)
    return known


def _threats(mine: list[Done]) -> list[Done]:
    """The first notice of each interruption of a spot node; what was said of it later is no further one."""
    standing, found = set[str](), list[Done]()
    for done in mine:
        if done.verb in {Verb.SPARED, Verb.LOST}:
            standing.discard(done.node_id)
        if done.verb is Verb.INTERRUPTION and done.status is Status.SETTLED and done.node_id not in standing:
            standing.add(done.node_id)
            if done.arguments.get(CAPACITY) == SPOT:
                found.append(done)
    return found


def add_refusal(known: OffersPast, name: str, at: datetime, *, spot: bool) -> OffersPast:
    """With one more refusal of an offer."""
    before = known.offers.get(name, OfferPast())
    count = refusals_after(before.refusals, refused=True)
    after = replace(before, refusals=count, refused_at=at, refused_since=before.refused_since or at, faults=0)
    since = known.spot_refused_since or at if spot else known.spot_refused_since
    return OffersPast(offers={**known.offers, name: after}, spot_refused_since=since)


def _faulty(known: OffersPast, name: str, done: Done, *, spot: bool) -> OffersPast:
    """With one more try that says nothing of an offer's stock. Spot was not to be had all the same."""
    before = known.offers.get(name, OfferPast())
    said = done.detail.removeprefix(GIVEN_UP)
    after = replace(before, faults=before.faults + 1, fault_at=done.at, fault=said)
    since = known.spot_refused_since or done.at if spot else known.spot_refused_since
    return OffersPast(offers={**known.offers, name: after}, spot_refused_since=since)


def _came(known: OffersPast, name: str, *, spot: bool) -> OffersPast:
    """With one more success."""
    before = known.offers.get(name, OfferPast())
    after = replace(before, refusals=refusals_after(before.refusals, refused=False), refused_since=None, faults=0)
    return OffersPast(
        offers={**known.offers, name: after}, spot_refused_since=None if spot else known.spot_refused_since
    )


def _change_record(known: OffersPast, name: str, *, losses: int = 0, hours: float = 0.0) -> OffersPast:
    before = known.offers.get(name, OfferPast())
    after = replace(before, losses=before.losses + losses, hours_up=before.hours_up + hours)
    return replace(known, offers={**known.offers, name: after})


def _add_life(
    known: OffersPast, name: str, came: Done, node_id: str, removed: datetime | None, now: datetime, lives: Lives
) -> OffersPast:
    """With the hours of a machine, or its loss; of one that was lost nobody knows how long it was up.

    `removed` is when gpuwatch removed it, or its cloud gave notice: that loss is counted already.
    """
    alive = lives(node_id)
    if removed is None and alive is not True:
        lost = alive is False and came.arguments.get(CAPACITY) == SPOT
        return _change_record(known, name, losses=1) if lost else known
    hours = ((removed or now) - came.at).total_seconds() / 3600
    return _change_record(known, name, hours=max(0.0, hours))
