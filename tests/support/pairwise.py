"""Which cases of a product of lists `make test` runs: so many that any two values meet in one of them.

A test with `@pytest.mark.pairwise` is parametrised over all its combinations, as clouds, calls and faults. What breaks
is nearly always one value, or two together: this cloud's call, this call's fault, this fault's answer in this cloud.
Cases are chosen one after the other, each time the first of those that show most pairs not seen yet: the same ones in
every run. Tests marked `pairwise("name")` with one name share their pairs; a test's own name is then one more value.
A case that cannot be (`reason_against`) shows nothing.

A test or a case with `@pytest.mark.nightly` is one more of a kind of which another one runs each day.

With NIGHTLY_LIVES in the environment, as in `make nightly`, the full product runs. So does a case by its own id.
"""

import os
from collections.abc import Iterator, Sequence
from itertools import combinations

import pytest

from tests.support.clouds.fault_worlds import reason_against

_Pair = tuple[tuple[str, object], tuple[str, object]]


def left_out(items: Sequence[pytest.Item], asked: Sequence[str]) -> list[pytest.Item]:
    """Nightly ones, and the cases of marked tests that show no pair of values which another case does not show.

    `asked` are the arguments of the command line.
    """
    if "NIGHTLY_LIVES" in os.environ:
        return []
    families: dict[tuple[str, str], list[pytest.Function]] = {}
    by_name = [each.rpartition("/")[2] for each in asked if "::" in each]
    rarely = [
        each
        for each in items
        if each.get_closest_marker("nightly") and not any(name in each.nodeid for name in by_name)
    ]
    for item in items:
        marker = item.get_closest_marker("pairwise")
        if marker is not None and isinstance(item, pytest.Function):
            families.setdefault((str(item.path), *(marker.args or (item.originalname,))), []).append(item)
    chosen = {id(each) for family in families.values() for each in _covering(family)}
    return rarely + [each for family in families.values() for each in family if id(each) not in chosen]


def _covering(family: list[pytest.Function]) -> Iterator[pytest.Function]:
    shows = [(each, _pairs(each)) for each in family if not reason_against(each.callspec.params)]
    missing = {pair for _, pairs in shows for pair in pairs}
    while missing:
        best, pairs = max(shows, key=lambda each: len(each[1] & missing))  # the first of the best
        missing -= pairs
        yield best


def _pairs(item: pytest.Function) -> set[_Pair]:
    values = sorted({"test": item.originalname, **item.callspec.params}.items())
    return set(combinations([(name, str(value)) for name, value in values], 2))
