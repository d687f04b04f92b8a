"""Weeks of a constant load with images and markets that fail: how many machines and calls the controller makes a day.

Each is played through the real round with the default limits, a round each two minutes, over clouds in memory; four
nodes are wanted in each pool. Of the two clouds one gives no answer in every other hour. The last rows are of machines
that somebody starts again at random times, and never uses.
"""

from collections.abc import Iterator

from benchmarks.figures import Figure
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import NodeState
from tests.support.builders.weeks import Cause, a_market, an_image, play, stops_a_day

_DAYS, _MINUTES = 14, 2
_CAUSES: dict[str, Cause] = {
    "spot comes and goes each 4 h": a_market(hours=4.0),
    "spot is taken after 6 min": a_market(taken_after=6.0),
    "an image stops itself after 6 min": an_image(6.0),
    "an image stops itself after 90 idle min": an_image(90.0),
    "an image ends itself after 30 busy min": an_image(30.0, NodeState.TERMINATED, state=State.BUSY),
    "the same in three pools": an_image(30.0, NodeState.TERMINATED, state=State.BUSY, pools=3),
    "the same in four pools of two clouds": an_image(30.0, NodeState.TERMINATED, state=State.BUSY, pools=4, clouds=2),
    "agents never answer": an_image(None, mute=True),
}


# What a day may see once the first is over, where four nodes are wanted and two offers of spot are tried in turn.
_MOST_MACHINES, _MOST_CALLS = 30.0, 120.0
_MOST_STOPS = 2.0  # of one machine in a day, however often somebody starts it again


def measure() -> Iterator[Figure]:
    """The figures of every cause: the first day, the worst day after it, and what is left at the end."""
    for name, cause in _CAUSES.items():
        week = play(cause, _DAYS, minutes=_MINUTES)
        rows = (
            ("launched on the first day", week.launched[0], None),
            ("launched on the worst later day", max(week.launched[1:]), _MOST_MACHINES),
            ("calls on the worst later day", max(week.calls[1:]), _MOST_CALLS),
            ("most that ran at once", week.most, float(cause.pools * cause.wanted + cause.surge)),
            ("left stopped", week.stopped, float(2 * cause.pools * cause.wanted)),  # as many again as are wanted
        )
        for what, count, most in rows:
            yield Figure(name=f"{name}: {what}", unit="", runs=[float(count)], at_most=most)
    for often in (0.1, 1.0):
        stops = stops_a_day(_DAYS, often=often, seed=1)
        name = f"somebody starts it again {often:g} times an hour"
        yield Figure(name=f"{name}: stops on the worst day", unit="", runs=[max(stops)], at_most=_MOST_STOPS)
        yield Figure(name=f"{name}: stops in all days", unit="", runs=[sum(stops)])
