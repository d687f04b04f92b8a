"""PURE: what deviating from break-even may cost, so that it never costs more than 1.05 times as much.

A gap of g idle seconds costs its rental until it ended or was reclaimed, and a restart r if it was reclaimed and the
node was needed again. Break-even reclaims what is idle for longer than r; where the node was reclaimed after r or
later, so did break-even. The loss of a gap is its cost less 1.05 times break-even's cost.
docs/policies/timing.md has the proof that the losses of all gaps together never exceed zero.
"""

SHARE = 0.05  # more than break-even, at the worst


def loss(*, seconds: float, restart: float, reclaimed: float | None, needed: bool) -> float:
    """What a gap of so many seconds cost, reclaimed after so many of them, less 1.05 times what break-even pays."""
    paid = seconds if reclaimed is None else reclaimed + restart * needed
    both = seconds > restart or (reclaimed is not None and reclaimed >= restart)
    reference = restart + restart * needed if both else seconds
    return paid - (1 + SHARE) * reference


def worst(*, age: float, restart: float, reclaimed: float | None, promised: float) -> float:
    """The largest loss that an open gap can come to, if it is reclaimed by `promised` or by break-even's wait."""
    if reclaimed is None:
        held = age if age < restart else max(age, promised)
        return held - (1 + SHARE) * min(age, restart)  # needed again now; or, past the restart's cost, never
    if reclaimed < restart and age <= restart:
        return reclaimed + restart - (1 + SHARE) * age  # needed again now
    return reclaimed - (1 + SHARE) * restart  # never needed again
