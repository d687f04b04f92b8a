"""Rules on what people must know, or must have agreed to, before a node is removed."""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta

from gpuwatch.guard.case import Case, Finding, Subject, WorkloadCase, allow, refuse
from gpuwatch.guard.settings import Limits, Rulebook
from gpuwatch.model.duration import format_age, format_duration, format_time
from gpuwatch.model.orders import BacktestRecord
from gpuwatch.model.promise import Notice
from gpuwatch.policies import PoolRules, notices
from gpuwatch.policies.fingerprint import fingerprint, removes

_FIRST = "A notice comes first, then the grace period."


def no_notice(case: Subject) -> Finding:
    """Refuses a removal without a notice, or one that differs from its notice.

    People must be able to object, so the notice counts and not the present settings (P14). The ledger keeps what it
    promised: action, pool, time, grace, and whether an operator must approve. The tag `gpuwatch:stop-at` and the
    notifications are made from that record. If the pool changes from `terminate` to `stop`, the node is stopped at the
    promised time. If the grace (`pools.<name>.idle.grace_period`, or `owner_grace_period` of an occupied, parked or
    stalled node) gets shorter, the promised time holds; if it gets longer, the node waits for the longer grace. The
    notice of a stop does not cover the termination that may follow.

    The notice is withdrawn, and a new one with its whole grace follows, if the pool changes from `stop` to `terminate`,
    or the node's `gpuwatch:pool` or `gpuwatch:owner` changes. The same holds if gpuwatch was paused or only observed
    for any time, or made no rounds for longer than the grace and longer than 10 minutes. It also holds if something
    else (limits, other rules) held the node until a day after its time. A notice that waits for a promised approval
    holds for a week after its time. If the machine is no longer enrolled, the notice ends in the ledger, people are
    notified, and the machine is not touched.

    Of a workload the notice must also be about this very object, and about the end that its people ask for now; a pod
    that works, or is new, ends it.

    The grace must also pass by the agent's own count of idleness: setting a controller's clock forward stops nothing
    sooner. For stopped nodes, and where a window of Prometheus replaces the agent, times without rounds do not count.
    Only the ledger's own record makes a notice: an index entry does not count without a settled notice, or after its
    notice was withdrawn or used.
    """
    ledger = case.observation.ledger
    notice, found = ledger.notice(case.step.node_id), ledger.stop_of(case.step.node_id)
    if notice is None:
        return refuse("It has had no notice.", _FIRST)
    if case.asleep and (found is None or notice.at <= found.at):
        return refuse("It has had no notice since it was stopped.", _FIRST)
    wrong = case.notice_over(notice)
    if wrong is not None:
        return refuse(f"{wrong}.", "It is withdrawn, and a new notice with its whole grace comes first.")
    left = case.left_seconds(notice)
    if left > 0:
        return refuse(f"{notices.promise_words(notice)}.", f"Wait for {format_duration(left)}.")
    return allow(f"{notices.promise_words(notice)}.")


def wants_approval(rules: PoolRules, notice: Notice | None) -> bool:
    """Whether an operator must approve: the pool says so now, or the notice said so to the owner."""
    promise = None if notice is None else notice.promise
    return rules.approval or (promise is not None and promise.approval)


def approval(case: Subject) -> Finding:
    """Refuses a removal that no operator has approved, where approval is required.

    This applies if `pools.<name>.approval` is true, or was true when the notice was given. A node gets its notice as
    always; after the grace it waits for an operator. An approval covers one notice, with its action and its pool, and
    ends when the notice is withdrawn. It overrides no other rule. The ledger records who approved, when and why.

    Run `gpuwatch approve NODE`, or press Approve on the page (docs/web-ui.md#who-may-see-who-may-act). `gpuwatch
    approve` alone lists the nodes that wait. To take an approval back, keep the node. Only nodes can be approved: in a
    pool that requires it, workloads have their notice, and their pods stay.
    """
    node_id = case.step.node_id
    notice = case.observation.ledger.notice(node_id)
    asking = [pool for pool in case.pools if wants_approval(case.rules_of(pool), notice)]
    if not asking:
        return allow("The pool requires no approval.")
    given = case.observation.ledger.approval(node_id)
    if given is None:
        remedy = f"Run `gpuwatch approve {shlex.quote(node_id)}`, or approve it on the page."
        if isinstance(case, WorkloadCase):
            remedy = f"Only nodes can be approved: end it yourself, or take pools.{asking[0]}.approval away."
        return refuse("No operator has approved it since its notice.", remedy)
    return allow(f"{given.who} approved it at {given.at:%Y-%m-%d %H:%M} UTC.")


def not_notified(case: Subject) -> Finding:
    """Refuses a removal unless a notification reached somebody a whole grace period before.

    A tag is not enough: the owner may never look at the machine. The grace (`pools.<name>.idle.grace_period`, or
    `owner_grace_period` of an occupied, parked or stalled node) counts from the first notification about this notice
    that a receiver in `notify.receivers` accepted (docs/notifications.md#choose-receivers). Accepted means that the
    mail server, Slack or the web hook took it. Whether somebody read it cannot be known.

    If `limits.require_notification` is set, or was set when the notice was given, nothing is stopped while the mail
    server is down. Without that setting, and where the pool had a receiver of notices at that time, the grace begins
    `notify.max_age` (12 hours at most) after the notice at the latest. So a mail server that is down for a weekend
    keeps no idle machine. Without a receiver the grace counts from the notice.

    `gpuwatch notify test` shows what is wrong.
    """
    notice = case.observation.ledger.notice(case.step.node_id)
    promise = None if notice is None else notice.promise
    required = case.limits.require_notification or (promise is not None and promise.heard)
    longest, told_at = None if promise is None else promise.delivery_seconds, None if notice is None else notice.told_at
    begins = None if notice is None or longest is None else notice.at + timedelta(seconds=longest)
    if not required and begins is None:
        return allow("No notification is required before its removal.")
    grace = case.grace_seconds if promise is None else max(case.grace_seconds, promise.grace_seconds)
    if told_at is not None:
        since = (case.observation.now - told_at).total_seconds()
        if since < grace:
            sentence = f"The first message about it is {format_age(since, ' old')}."
            return refuse(sentence, f"The grace period is {format_duration(grace)}.")
        return allow(f"The first message about it is {format_duration(since)} old.")
    remedy = "`gpuwatch notify test` shows what is wrong."
    if required or begins is None:
        return refuse("No message about its notice was delivered.", remedy)
    sentence = f"No message about its notice was delivered: its grace period counts from {format_time(begins)}."
    over = (case.observation.now - begins).total_seconds() >= grace
    return allow(sentence) if over else refuse(sentence, remedy)


def backtest(case: Case) -> Finding:
    """Refuses to remove nodes of a pool until its present rules have passed a recent backtest.

    Rules that were never tried on the pool's own history are a guess. This applies to all pools if
    `limits.require_backtest` is set, for example to `30d`. The newest backtest of exactly the pool's present rules
    counts, also if it failed. It must not be older than the limit, and a backtest of other rules changes nothing.
    Starts and launches are never refused.

    Run `gpuwatch backtest --ledger --pool NAME --keep` (docs/backtest.md#before-rules-may-act), also after the rules
    have changed.
    """
    return is_tried(case.pool, case.pool_rules, case.limits, case.observation.ledger.backtests, case.observation.now)


def is_tried(pool: str, rules: PoolRules, limits: Limits, kept: Sequence[BacktestRecord], now: datetime) -> Finding:
    """Whether the newest backtest of a pool's present rules passed and is young enough."""
    limit = limits.require_backtest
    if limit is None:
        return allow("No backtest is required.")
    remedy = f"Run `gpuwatch backtest --ledger --pool {shlex.quote(pool)} --keep`."
    of_pool = [each for each in kept if each.pool == pool]
    if not of_pool:
        return refuse("No backtest of the pool is on record.", remedy)
    present = fingerprint(rules)
    found = next((each for each in of_pool if each.rules == present), None)
    if found is None:
        return refuse(f"{_notice_words(of_pool[-1])} was of other rules than the pool's present ones.", remedy)
    if found.failure is not None:
        return refuse(f"{_notice_words(found)} failed: {found.failure}.", remedy)
    age = (now - found.at).total_seconds()
    if age < 0:
        return refuse(f"{_notice_words(found)} is ahead of our clock.", remedy)
    if age > limit:
        age_text = f"{format_duration(age)} old, limits.require_backtest allows {format_duration(limit)}"
        return refuse(f"{_notice_words(found)} is {age_text}.", remedy)
    return allow(f"{_notice_words(found)} passed.")


def untried_pools(
    pools: Iterable[str], rules: Rulebook, kept: Sequence[BacktestRecord], now: datetime
) -> Iterator[tuple[str, Finding]]:
    """The pools that would remove nodes and may not because a backtest is missing, with the rule's answer."""
    for pool in pools:
        word = is_tried(pool, rules.pool(pool), rules.limits, kept, now)
        if word[0] and removes(rules.pool(pool)):
            yield pool, word


def _notice_words(each: BacktestRecord) -> str:
    """Return which notice it is, in words."""
    return f"The backtest of {each.at:%Y-%m-%d %H:%M} UTC"
