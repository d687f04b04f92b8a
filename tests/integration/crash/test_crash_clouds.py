"""The power fails at every step of a life over each provider's fake: each thing is done once, and the ledger is true.

Notice, stop, the end of a group's member, a launch, and their settlement, each by the real provider over HTTP. After
the cut a new process begins: its provider remembers nothing. CI plays a part of the cuts; with NIGHTLY_LIVES in the
environment all are played (`make nightly`).
"""

import os
from pathlib import Path

import pytest

from gpuwatch.model.decision import Verb
from gpuwatch.model.fleet import NodeState
from tests.support.clouds.fault_worlds import FAULT_WORLDS
from tests.support.clouds.lives import DOWN, ENDED, CloudLife, a_life
from tests.support.crash_points import Fate, PowerCut

ROUNDS = 4  # with everything that happens in this life; the rounds after them repeat themselves
MORE = 40
CUTS = 7  # of each provider, in CI
DOWNTIMES = (0.0, 61.0, 3600.0)


def over(life: CloudLife) -> bool:
    """Whether all that this life has to bring has happened, and is settled."""
    arrived = life.world.state(life.idle) is NodeState.STOPPED and len(life.launched()) == 1
    ended = not life.members or life.world.state(life.members[0]) in ENDED - {NodeState.TERMINATING}
    return arrived and ended and not unsettled(life)


def unsettled(life: CloudLife) -> list[Verb]:
    """What is open. Of Google's groups no member can be protected, which is tried now and then."""
    found = [entry.intent.verb for entry in life.ledger.view(life.world.clock.now()).open_intents]
    return [verb for verb in found if verb is not Verb.PROTECT]


def boundaries(name: str, folder: Path) -> list[str]:
    """Every call that leaves the process or is written down, in a life without a cut."""
    with a_life(name, folder) as life:
        fate = Fate(0)
        for _ in range(ROUNDS):
            life.round(fate.die)
            life.rest()
        return fate.passed


def play(life: CloudLife, cut: int, downtime: float) -> None:
    """The life with a power cut there, to its end."""
    fate = Fate(cut)
    for _ in range(ROUNDS + MORE):
        try:
            life.round(fate.die)
        except PowerCut:
            life.rest(downtime)
            life.restart()
        life.rest()
        if len(fate.passed) > cut and over(life):
            return


@pytest.mark.parametrize("name", FAULT_WORLDS)
def test_a_power_cut_anywhere_on_any_cloud_leaves_each_thing_done_once(name: str, tmp_path: Path) -> None:
    """One stop, one end, one launch, what is busy untouched, no intent open, no call without its record (P12, P13)."""
    passed = boundaries(name, tmp_path)
    pace = 1 if "NIGHTLY_LIVES" in os.environ else len(passed) // CUTS
    begin = list(FAULT_WORLDS).index(name) * 5 % pace + 1
    for cut in range(begin, len(passed) + 1, pace):
        with a_life(name, tmp_path) as life:
            play(life, cut, DOWNTIMES[cut % len(DOWNTIMES)])

            where = f"cut {cut} of {len(passed)} ({passed[cut - 1]})"
            told = {node_id: life.world.state(node_id) for node_id in (life.idle, *life.members[:1])}
            assert told[life.idle] in DOWN, f"{where}: {told}"
            assert {told[each] for each in life.members[:1]} <= ENDED, f"{where}: {told}"
            assert len(life.launched()) == 1, f"{where}: launched {life.launched()}"
            alive = {life.world.state(each) for each in (life.busy, *life.members[1:])}
            assert alive == {NodeState.RUNNING}, f"{where}: what is busy is {alive}"
            assert unsettled(life) == [], where
            assert life.settled(life.idle, Verb.STOP) == 1, where
            assert {life.settled(each, Verb.TERMINATE) for each in life.members[:1]} <= {1}, where
