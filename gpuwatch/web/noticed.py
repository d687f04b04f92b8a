"""How things stand with the node of a keep link, in the words of the page behind it."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuwatch.guard.consent import wants_approval
from gpuwatch.links import Claim
from gpuwatch.model.decision import REMOVALS, Intent, Stopped, Verb
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.model.knobs import format_duration
from gpuwatch.model.orders import Keep
from gpuwatch.model.promise import Notice, promise_of
from gpuwatch.policies import idle
from gpuwatch.web.letter import Letter
from gpuwatch.web.state import State

_CHOICES = ((4 * 3600, "4 hours"), (86_400, "1 day"), (3 * 86_400, "3 days"))
_LEAST_SECONDS = 60.0  # what is left of a cap below this is not worth a button
_GOES = {"stop": "stopped", "terminate": "terminated"}
_AWAY = frozenset({NodeState.STOPPED, NodeState.STOPPING})
_START = "Start it in the cloud's console if you need it: only what was on its own scratch disks is gone."


@dataclass(frozen=True, slots=True, kw_only=True)
class Noticed:
    """A node whose notice is in force.

    `goes` is what it would be, at `goes_at` at the earliest if nobody keeps it; None: as things are it stays. Nothing
    keeps it after `cap_at`: a pool's snooze_max counts from when the node was last in use.
    """

    node: Node
    notice: Notice
    goes: str | None
    goes_at: datetime
    cap_at: datetime
    keep: Keep | None

    def left_seconds(self, now: datetime) -> float:
        """For how long it may still be kept."""
        left = (self.cap_at - now).total_seconds()
        return left if left >= _LEAST_SECONDS else 0.0

    def kept_until(self, now: datetime) -> datetime | None:
        """Until when the keep in force holds it."""
        until = None if self.keep is None else min(self.keep.until, self.cap_at)
        return until if until is not None and until > now else None


def noticed(state: State, claim: Claim) -> Noticed | Letter:
    """The node as the last round saw it, under the orders of this moment; or why there is nothing to keep.

    Raises:
        UnseenError: no round has seen the fleet.
        LedgerError: the ledger does not answer.

    """
    seen, orders, now = state.last().observation, state.orders(), state.clock.now()
    node, notice = seen.fleet.find(claim.node_id), orders.notice(claim.node_id)
    if node is None:
        text = "The last look at the cloud did not find it: it has probably been terminated, and cannot be kept."
        return Letter(title=f"{claim.node_id} is not there", text=text)
    tried = orders.open_for(node.id)
    if tried is not None and tried.reached and tried.intent.verb in REMOVALS:
        return _too_late(state, node, tried.intent)
    keep = next((each for each in orders.keeps if each.node_id == node.id), None)
    if notice is None and keep is not None:  # for whose sake it was taken back: it may be put off for longer
        notice = _given(state, claim)
    if notice is None or notice.key != claim.key:
        return _moot(state, node, notice, orders.stop_of(node.id))
    rules, found = state.rules.pool(node.pool).idle, orders.stop_of(node.id)
    promise = notice.promise
    goes_at = notice.at + timedelta(seconds=rules.notice) if promise is None else promise.due(notice.at)
    goes: str | None = _GOES["terminate"]
    if node.state in _AWAY:
        unused = 0.0 if found is None else (now - found.at).total_seconds()
        if found is not None and rules.terminate_after is not None:
            goes_at = max(goes_at, found.at + timedelta(seconds=rules.terminate_after))
    else:
        goes = _GOES.get(idle.chosen(node, seen, rules)[0] or "")
        unused = node.activity.held_seconds + (now - seen.now).total_seconds()
        unused = max(unused, (now - notice.at).total_seconds())  # also where its agent does not answer now
    cap_at = now + timedelta(seconds=rules.snooze_max - unused)
    return Noticed(node=node, notice=notice, goes=goes, goes_at=goes_at, cap_at=cap_at, keep=keep)


def _given(state: State, claim: Claim) -> Notice | None:
    """The notice of a claim, in force or not."""
    intents = (each.intent for each in state.ledger.history(claim.node_id))
    return next(
        (
            Notice(node_id=each.node_id, key=each.key, at=each.at, promise=promise_of(each.pool, each.arguments))
            for each in intents
            if each.key == claim.key
        ),
        None,
    )


def _too_late(state: State, node: Node, intent: Intent) -> Letter:
    """The cloud was asked already."""
    asked = f"The cloud was asked to {intent.verb.value} it at {told(state, intent.at)}."
    after = _START if intent.verb is Verb.STOP else "What was on its own disks is gone with it."
    return Letter(title=f"It is too late for {node.name}", text=f"{asked} {after}")


def _moot(state: State, node: Node, notice: Notice | None, stopped: Stopped | None) -> Letter:
    """The link's notice is no longer in force."""
    if notice is not None:
        text = "It has had another notice since. Take the link of the newer message."
    elif node.state in _AWAY:
        who = "It was not gpuwatch that stopped it"
        who = who if stopped is None else f"gpuwatch stopped it at {told(state, stopped.at)}"
        text = f"{who}. {_START}"
    elif node.state is not NodeState.RUNNING:
        text = f"It is {node.state.value}, and there is no notice to put off."
    else:
        text = "It runs, and its notice has been withdrawn: nothing needs to be done. A new notice would be told anew."
    return Letter(title=f"There is nothing to keep {node.name} from", text=text)


def letter(state: State, claim: Claim, at: Noticed, done: str = "") -> Letter:
    """The page: what is about to happen, why, and what may be chosen."""
    node, keep, now = at.node, at.keep, state.clock.now()
    title, text = _headline(state, at, now)
    left = at.left_seconds(now)
    choices = tuple((seconds, words) for seconds, words in _CHOICES if seconds < left)
    if left:
        choices = (*choices, (int(left), f"{format_duration(left)}, as long as its pool allows"))
    else:
        cap = format_duration(state.rules.pool(node.pool).idle.snooze_max)
        text += f" It cannot be kept any longer: its pool allows {cap} after the last use (snooze_max)."
    facts = {
        "Machine": f"{node.name} ({node.id})" if node.name != node.id else node.id,
        "Type": node.instance_type,
        "Pool": node.pool,
        "Owner": node.owner or "",
        "Noticed": told(state, at.notice.at),
        "Why": _why(state, at.notice),
        "Kept by": "" if keep is None else f"{keep.who}{f': {keep.reason}' if keep.reason else ''}",
    }
    small = f"Whoever has this link may put it off, for this machine alone, until {told(state, claim.until)}."
    return Letter(title=title, text=text, done=done, facts=facts, choices=choices, small=small)


def _headline(state: State, at: Noticed, now: datetime) -> tuple[str, str]:
    """What is about to happen to the node, and when."""
    name, kept = at.node.name, at.kept_until(now)
    if at.goes is None:
        text = f"The last round saw it as {at.node.activity.state.value}: so it stays, and nothing needs to be done."
        return f"{name} is not about to go", text
    if kept is not None:
        text = f"Until {told(state, kept)}. After that it has another notice before it is {at.goes}, unless it is used."
        return f"{name} is kept", text
    text = "It may happen at any moment, unless it is used or kept."
    if at.goes_at > now:
        left = format_duration((at.goes_at - now).total_seconds())
        text = f"At {told(state, at.goes_at)} at the earliest, in {left}, unless it is used or kept."
    if wants_approval(state.rules.pool(at.node.pool), at.notice) and state.orders().approval(at.node.id) is None:
        text += " An operator has to approve it first."
    return f"{name} will be {at.goes}", text


def _why(state: State, notice: Notice) -> str:
    """What the notice was given for."""
    history = state.ledger.history(notice.node_id)
    return next((each.intent.reason.sentence for each in history if each.intent.key == notice.key), "")


def told(state: State, at: datetime) -> str:
    """A time for people, in the controller's zone."""
    local = at.astimezone(state.zone)
    return f"{local:%H:%M} {local.tzname()} on {local:%A}, {local.day} {local:%B}"
