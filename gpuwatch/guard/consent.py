"""Rules on what people must have heard or said before a node goes."""

import shlex

from gpuwatch.guard.case import Case, Word, no, ok
from gpuwatch.model.knobs import format_duration


def approval(case: Case) -> Word:
    """Where a pool wants it, an operator has said yes to this very notice; a later notice asks anew."""
    if not case.pool_rules.approval:
        return ok("The pool wants no approval.")
    node_id = case.step.node_id
    given = case.observation.ledger.approval(node_id)
    if given is None:
        remedy = f"Run `gpuwatch approve {shlex.quote(node_id)}`, or approve it on the page."
        return no("No operator has approved it since its notice.", remedy)
    return ok(f"{given.who} approved it at {given.at:%Y-%m-%d %H:%M} UTC.")


def unheard(case: Case) -> Word:
    """Where it is required, a message about the notice has reached somebody, who has had the whole grace since."""
    if not case.limits.require_told:
        return ok("Nobody has to be told before it goes.")
    notice = case.observation.ledger.notice(case.step.node_id)
    told_at = None if notice is None else notice.told_at
    if told_at is None:
        return no("No message about its notice has reached anybody.", "`gpuwatch notify test` says what is wrong.")
    since, grace = (case.observation.now - told_at).total_seconds(), case.pool_rules.idle.notice
    if since < grace:
        told = f"The first message about it is {format_duration(since)} old."
        return no(told, f"The grace period is {format_duration(grace)}.")
    return ok(f"The first message about it is {format_duration(since)} old.")
