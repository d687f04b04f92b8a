"""How much of a kind runs each day: `make test` plays a part of what `make nightly` plays, which is all of it.

NIGHTLY_LIVES is in the environment of `make nightly`; its parts are in tests/properties/nightly.py.
"""

import os
from typing import Any

import pytest

NIGHTLY = "NIGHTLY_LIVES" in os.environ
_FEWEST = 5


def examples(nightly: int) -> int:
    """How many examples of a property Hypothesis searches: of so many in `make nightly`, a third each day.

    But never fewer than five, as it begins with the simplest ones.
    """
    return nightly if NIGHTLY else max(min(nightly, _FEWEST), -(-nightly // 3))


def by_night(*cases: Any) -> list[Any]:  # noqa: ANN401  whatever a test is parametrised with
    """Cases of a parametrised test that are more of a kind of which another one runs each day.

    A case of several values is a tuple.
    """
    alone = [each if isinstance(each, tuple) else (each,) for each in cases]
    return [pytest.param(*each, marks=pytest.mark.nightly) for each in alone]
