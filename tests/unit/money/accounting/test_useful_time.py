"""money/accounting/useful_time.py: the short way for what held throughout says the same as the long one."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.activity import State
from gpuwatch.model.fleet import GpuVerdict
from gpuwatch.model.usage import milliseconds
from gpuwatch.money.accounting import useful_time
from gpuwatch.money.accounting.useful_time import Stretch, mark_of, used_amounts
from tests.support.builders.fleet import NOW, a_node, a_verdict, an_activity

_STATES = st.sampled_from(list(State))
_HELD = st.one_of(st.sampled_from((0.0, 28.0, 29.0, 29.9, 30.0, 58.0, 60.0, 61.0, 3600.0)), st.floats(0, 120))
_TOGETHER = st.tuples(_STATES, _HELD)


@given(
    before=st.one_of(st.none(), _STATES),
    whole=_TOGETHER,
    gpus=st.lists(st.one_of(st.none(), _TOGETHER), max_size=3),
    age=st.floats(0, 40),
    length=st.integers(1, 90_000),
)
def test_what_held_throughout_is_counted_as_the_long_way_counts_it(
    before: State | None,
    whole: tuple[State, float],
    gpus: list[tuple[State, float] | None],
    age: float,
    length: int,
) -> None:
    """A GPU without words of its own does what its node does, for as long; likewise the node before."""

    def verdict_of(node: tuple[State, float], each: list[tuple[State, float] | None]) -> tuple[GpuVerdict, ...]:
        return tuple(
            GpuVerdict(uuid=f"GPU-{number}", index=number, activity=an_activity(*(node if one is None else one)))
            for number, one in enumerate(each)
        )

    before = whole[0] if before is None else before
    now = milliseconds(NOW)
    verdict = replace(a_verdict(state=whole[0], held=whole[1], age=age), gpus=verdict_of(whole, gpus), tally=None)
    earlier = replace(verdict, activity=an_activity(before), gpus=verdict_of((before, 0.0), [None] * len(gpus)))
    node = a_node("i-1")
    node = replace(node, gpu_count=len(gpus))
    seen = [
        mark_of(replace(node, signal=replace(node.signal, verdict=each)), at, 0)
        for each, at in ((earlier, now - length), (verdict, now))
    ]
    stretch = Stretch(begin=now - length, end=now, valid=seen[0], before=seen[0])
    short = used_amounts(stretch, verdict, seen[1])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(useful_time, "_held_throughout", lambda *_: False)
        long = used_amounts(stretch, verdict, seen[1])

    assert short == long
