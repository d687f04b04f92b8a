"""Why a machine was stopped, in few words, from the reason that its stop has on record."""

import pytest

from gpuwatch.model.decision import Reason
from gpuwatch.model.proposal import stop_words

EXPIRED = (
    "It has been {} for 16m27s. The notice of 2026-01-05 08:20 UTC promised a stop not before 2026-01-05 08:25 UTC, "
    "which has passed."
)
PARKED = "parked (alice's python3, pid 4711, holds GPU memory and computes nothing. Really)"


@pytest.mark.parametrize(
    ("code", "sentence", "grace", "words"),
    [
        ("expired", EXPIRED.format("idle"), 300.0, "idle for 16m27s, notice of 5m had run out"),
        ("expired", EXPIRED.format("idle"), None, "idle for 16m27s, its notice had run out"),
        ("expired", EXPIRED.format(PARKED), 300.0, f"{PARKED} for 16m27s, notice of 5m had run out"),
        ("schedule", "The office is closed.", 300.0, "The office is closed"),
        ("expired", "Words of an earlier version.", 300.0, "Words of an earlier version"),
    ],
)
def test_a_stop_after_a_notice_is_told_in_few_words_and_any_other_as_it_is_on_record(
    code: str, sentence: str, grace: float | None, words: str
) -> None:
    """How long it was idle and how long its notice was; other reasons keep their sentence."""
    assert stop_words(Reason(code=code, sentence=sentence), grace) == words
