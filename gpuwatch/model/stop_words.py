"""PURE: why gpuwatch stopped a machine, in few words, from what the ledger holds of that stop."""

from gpuwatch.model.decision import Reason
from gpuwatch.model.duration import format_duration

_IDLE = "It has been "
_NOTICE = ". The notice of "  # what follows it says the notice's times


def stop_words(reason: Reason, grace_seconds: float | None) -> str:
    """Such as `idle for 16m27s, notice of 5m had run out`; no period at the end.

    Args:
        reason: of the stop's intent.
        grace_seconds: what its notice promised; None: not known.

    """
    head, notice, _ = reason.sentence.partition(_NOTICE)
    if reason.code != "expired" or not notice or not head.startswith(_IDLE):
        return reason.sentence.rstrip(".")
    grace = "its notice" if grace_seconds is None else f"notice of {format_duration(grace_seconds)}"
    return f"{head.removeprefix(_IDLE)}, {grace} had run out"
