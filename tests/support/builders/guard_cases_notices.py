"""What spoils a case by what its notice promised, and what does not: more of the guard's tests."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from gpuwatch.guard import Case, Limits
from gpuwatch.model.decision import Verb
from gpuwatch.model.fleet import CapacityType
from gpuwatch.model.orders import Approval
from gpuwatch.model.promise import Interruption
from tests.support.builders.fleet import NOW, RULES, a_notice
from tests.support.builders.guard_cases import (
    asleep,
    promising,
    unshielding,
    with_group,
    with_idle,
    with_ledger,
    with_node,
)
from tests.support.builders.past_steps import a_step, vetoes


def interrupted(case: Case, why: str, *, minutes: float = 5.0, until: float | None = 1.0) -> Case:
    """The case whose notice came before a time without action, which ended so many minutes ago; None: it lasts."""
    end = None if until is None else NOW - timedelta(minutes=until)
    interruption = Interruption(why=why, since=(end or NOW) - timedelta(minutes=minutes), until=end)  # type: ignore[arg-type]
    return with_ledger(case, notices=(replace(a_notice(), interruptions=(interruption,)),))


def notified(case: Case, seconds_ago: float | None) -> Case:
    """The case where somebody must have been told, and was so long ago."""
    at = None if seconds_ago is None else NOW - timedelta(seconds=seconds_ago)
    return with_ledger(
        replace(case, limits=Limits(require_notification=True)), notices=(replace(a_notice(), told_at=at),)
    )


def awaited(case: Case, told_ago: float | None, *, age: float) -> Case:
    """The case whose notice of that age waits for its first message, half an hour at most; it came so long ago."""
    at = None if told_ago is None else NOW - timedelta(seconds=told_ago)
    return with_ledger(case, notices=(replace(a_notice(age=age, delivery_seconds=1800.0), told_at=at),))


def approved(case: Case, **changes: object) -> Case:
    """The case of a pool that wants approvals, with one."""
    given = replace(Approval(node_id="i-1", key=a_notice().key, at=NOW, who="ann", reason=""), **changes)  # type: ignore[arg-type]
    return with_ledger(replace(case, pool_rules=replace(RULES, approval=True)), approvals=(given,))


# As in tests.support.builders.guard_cases.
SPOILED_NOTICES: list[tuple[str, str, Callable[[Case], Case], str]] = [
    (
        "a host of one's own",
        "no_power",
        lambda c: with_node(c, capacity_type=CapacityType.OWN, cannot_stop="gpuwatch has no power control over it"),
        "no power control over it",
    ),
    (
        "a host of one's own that is to be ended",
        "no_power",
        lambda c: replace(
            with_node(c, capacity_type=CapacityType.OWN, cannot_terminate="no such host is ever terminated"),
            step=a_step(verb=Verb.TERMINATE),
            pool_rules=with_idle(action="terminate"),
        ),
        "ever terminated",
    ),
    ("always vetoed", "often_vetoed", lambda c: with_ledger(c, recent=vetoes(3)), "3 times in a row"),
    ("another pool's notice", "no_notice", lambda c: promising(c, pool="training"), "training"),
    ("notice of a stop", "no_notice", lambda c: promising(with_group(c)), "promised a stop"),
    ("notice of a stop, unshielded", "no_notice", lambda c: promising(unshielding(c)), "promised a stop"),
    ("no notice, unshielded", "no_notice", lambda c: with_ledger(unshielding(c), notices=()), "no notice"),
    ("promised for later", "no_notice", lambda c: promising(c, stop_at=NOW + timedelta(seconds=1)), "Wait for 1s"),
    ("promised a longer grace", "no_notice", lambda c: promising(c, grace_seconds=901.0), "Wait for 1s"),
    ("more grace by now", "no_notice", lambda c: replace(c, pool_rules=with_idle(grace_period=901.0)), "Wait for 1s"),
    ("clock set forward", "no_notice", lambda c: promising(c, idle_seconds=6601.0), "Wait for 1s"),
    ("out of date", "no_notice", lambda c: promising(c, age=600.0 + 86401.0, idle_seconds=0.0), "1d1s ago"),
    ("of an earlier version", "no_notice", lambda c: with_ledger(c, notices=(replace(a_notice(), promise=None),)), "s"),
    ("paused since", "no_notice", lambda c: interrupted(c, "paused"), "it was paused"),
    ("paused still", "no_notice", lambda c: interrupted(c, "paused", until=None), "it was paused"),
    ("observed since", "no_notice", lambda c: interrupted(c, "observed"), "only observed"),
    ("away since", "no_notice", lambda c: interrupted(c, "away", minutes=11.0), "no round is on record"),
    ("others' shield", "scale_in_protection", lambda c: with_node(with_group(c), scale_in_protected=True), "else"),
    ("others' shield, unshielded", "scale_in_protection", lambda c: with_ledger(unshielding(c), shields=()), "else"),
    (
        "others' shield, notice",
        "scale_in_protection",
        lambda c: replace(with_node(with_group(c), scale_in_protected=True), step=a_step(verb=Verb.NOTICE)),
        "else",
    ),
    ("unshielded where it stops", "action_not_enabled", lambda c: replace(unshielding(c), pool_rules=RULES), "stop"),
    (
        "unshielded where it tells",
        "action_not_enabled",
        lambda c: replace(unshielding(c), pool_rules=with_idle(action="report")),
        "t",
    ),
    ("promised an approval", "approval", lambda c: promising(c, approval=True), "No operator"),
    ("promised to be heard", "not_notified", lambda c: promising(c, heard=True), "delivered"),
    (
        "promised a longer hearing",
        "not_notified",
        lambda c: with_ledger(
            c,
            notices=(replace(a_notice(heard=True, grace=700.0), told_at=NOW - timedelta(seconds=699)),),
        ),
        "11m40s",
    ),
    ("nobody told", "not_notified", lambda c: notified(c, None), "delivered"),
    ("told just now", "not_notified", lambda c: notified(c, 599.0), "9m59s"),
    ("told tomorrow", "not_notified", lambda c: notified(c, -86400.0), "in the future"),
    ("told of no notice", "not_notified", lambda c: with_ledger(notified(c, 700.0), notices=()), "delivered"),
    ("delivered late", "not_notified", lambda c: awaited(c, 599.0, age=1200.0), "9m59s"),
    ("delivered very late", "not_notified", lambda c: awaited(c, 599.0, age=7200.0), "9m59s"),
    ("not delivered yet", "not_notified", lambda c: awaited(c, None, age=2399.0), "counts from"),
    ("never approved", "approval", lambda c: with_ledger(approved(c), approvals=()), "gpuwatch approve i-1"),
    ("another notice approved", "approval", lambda c: approved(c, key="k-earlier"), "No operator"),
    ("key away", "may_not_start", lambda c: with_node(c, may_not_start="the key k is Disabled"), "Disabled"),
    (
        "key away, notice",
        "may_not_start",
        lambda c: replace(
            with_node(c, may_not_start="the key k is Disabled"), step=a_step(verb=Verb.NOTICE), pool_rules=RULES
        ),
        "Disabled",
    ),
    ("approved without a notice", "approval", lambda c: with_ledger(approved(c), notices=()), "No operator"),
]
FAIR_NOTICES: list[tuple[str, Callable[[Case], Case]]] = [
    ("stop where a termination was promised", lambda c: promising(c, action="terminate")),
    ("less grace by now", lambda c: replace(c, pool_rules=with_idle(grace_period=1.0))),
    ("promised for now", lambda c: promising(c, stop_at=NOW)),
    ("away for a moment", lambda c: interrupted(c, "away", minutes=10.0)),
    ("a day after its time", lambda c: promising(c, age=600.0 + 86400.0, idle_seconds=0.0)),
    ("end a protection", unshielding),
    ("end a stopped one for good", lambda c: with_node(asleep(c), may_not_start="the key k is Disabled")),
    ("terminate what gpuwatch shields", lambda c: replace(unshielding(c), step=a_step(verb=Verb.TERMINATE))),
]
