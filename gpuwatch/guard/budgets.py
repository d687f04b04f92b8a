"""Whether a month's budget allows growth."""

from gpuwatch.guard.case import Case, Word, no, ok
from gpuwatch.model.budget import Scope


def month_budget(case: Case) -> Word:
    """Growth stops where a budget says so; what was spent and cannot be read does not come in under it."""
    watching = [each for each in case.observation.budgets if each.block_growth != "never" and _counts(case, each.scope)]
    for each in watching:
        key = f"budgets.{each.name}"
        if each.doubt is not None:
            return no(f"What is spent of the budget {each.name} is not known: {each.doubt}.", f"See the log, or {key}.")
        if each.blocked is not None:
            until = f"Until {each.ends_at:%Y-%m-%d %H:%M} UTC, or raise {key}.usd_per_month."
            return no(f"{each.blocked}.", until)
    if not watching:
        return ok("No month's budget blocks its growth.")
    return ok(f"The month's budget allows it: {', '.join(each.name for each in watching)}.")


def _counts(case: Case, scope: Scope) -> bool:
    """Whether what the step adds would count: a node by itself, a new one as any of its pool does, or if there is none.

    What a launched node will be labelled with is not known; the nodes of its pool tell best.
    """
    if scope.pool not in {None, case.pool}:
        return False
    nodes = (case.node,) if case.node is not None else case.observation.fleet.roster(case.pool).nodes
    return not nodes or any(scope.covers(node) for node in nodes)
