"""A day of hosts with power: stopped by their own agents when idle, woken by the schedule, and the power cut anywhere.

The controller is real, and so are the provider and the packets on loopback. The hosts are not: one goes down within a
minute after its agent's yes, and comes up within a minute after its packet, unless it is broken.
"""

import os
from pathlib import Path

from gpuwatch.model.decision import Status, Verb
from gpuwatch.model.fleet import NodeState
from gpuwatch.model.money import SAVES
from tests.support.clouds.hosts.bmc import ONE, TWO
from tests.support.clouds.hosts.rack import DAY, NIGHT, a_rack, a_rack_with_bmcs
from tests.support.crash_points import Fate, PowerCut

CUTS = (" stop", " start", " settle")  # in CI, around the first of each; all of them with NIGHTLY_LIVES


def test_an_idle_host_is_powered_off_and_woken_by_the_schedule_and_the_busy_one_is_never_asked() -> None:
    """Notice, grace, last question, its agent's yes, settled as stopped; then a packet, and settled as running."""
    with a_rack() as rack:
        for _ in range(NIGHT):
            rack.round()
            rack.rest()
        assert (rack.state(ONE), rack.state(TWO)) == (NodeState.STOPPED, NodeState.RUNNING)
        stop = rack.ledger.history(ONE, limit=1)[0].intent
        assert stop.arguments[SAVES] == "0"  # its price is paid all the same
        assert rack.told(ONE)[-2:] == [(Verb.NOTICE, Status.SETTLED), (Verb.STOP, Status.SETTLED)]
        for _ in range(DAY):
            rack.round()
            rack.rest()
        assert rack.state(ONE) is NodeState.RUNNING
        assert (Verb.START, Status.SETTLED) in rack.told(ONE)
        assert [node for node, off in rack.questions if off] == [ONE]


def test_a_host_that_does_not_come_up_is_told_and_never_counts_as_running() -> None:
    """Its packet is sent again, some times; the start has failed, and the pool's owner gets a message."""
    with a_rack() as rack:
        rack.broken = True
        for _ in range(NIGHT + DAY + 40):
            rack.round()
            rack.rest()
        assert rack.state(ONE) is NodeState.STOPPED
        assert (Verb.START, Status.SETTLED) not in rack.told(ONE)
        assert (Verb.LEFT_ALONE, Status.SETTLED) in rack.told(ONE)


def test_a_host_that_its_owner_switched_off_is_unknown_and_is_not_woken() -> None:
    """P24: it was not our stop, however much the schedule wants it."""
    with a_rack() as rack:
        for _ in range(3):
            rack.round()
            rack.rest()
        rack.on.discard(ONE)
        for _ in range(NIGHT + DAY):
            rack.round()
            rack.rest()
        assert rack.state(ONE) is NodeState.UNKNOWN
        assert {verb for verb, _ in rack.told(ONE)} <= {Verb.NOTICE, Verb.WITHDRAW}
        assert ONE not in rack.on


def boundaries() -> list[str]:
    """Every call that leaves the process or is written down in a day without a cut."""
    with a_rack() as rack:
        fate = Fate(0)
        for _ in range(NIGHT + DAY):
            rack.round(fate.die)
            rack.rest()
        return fate.passed


def test_a_power_cut_anywhere_leaves_the_day_as_it_was() -> None:
    """One poweroff, the busy host untouched, no intent open for ever, and the host is back by day."""
    passed = boundaries()
    around = [passed.index(call) for call in ("before stop", "before start")]
    near = [first + at for first in around for at in range(1, 16) if passed[first + at - 1].endswith(CUTS)]
    every = range(1, len(passed) + 1) if "NIGHTLY_LIVES" in os.environ else near
    for cut in every:
        with a_rack() as rack:
            fate = Fate(cut)
            for _ in range(NIGHT + DAY):
                try:
                    rack.round(fate.die)
                except PowerCut:
                    rack.restart()
                rack.rest()
            where = f"cut {cut} ({passed[cut - 1]})"
            assert [node for node, off in rack.questions if off] == [ONE], where
            # An order of which no yes is on record leaves silence unknown, and such a host to its owner.
            unknown = "after stop" in passed[cut - 2 : cut]
            assert (rack.on, rack.state(ONE)) == (
                ({TWO}, NodeState.UNKNOWN) if unknown else ({ONE, TWO}, NodeState.RUNNING)
            ), where
            assert [
                e.intent.verb for e in rack.ledger.view(rack.clock.now()).open_intents if e.intent.verb is Verb.STOP
            ] == [], where


def test_a_host_whose_shutdown_hangs_for_half_an_hour_is_on_its_way_down_and_is_woken_by_day(tmp_path: Path) -> None:
    """An NFS server is gone: systemd ends such a shutdown after half an hour, and the stop is ours all the same."""
    with a_rack_with_bmcs(tmp_path) as rack:
        bmc = rack.bmcs[ONE]
        bmc.obeys, asked = False, 0
        for _ in range(NIGHT + DAY):
            rack.round()
            asked += bool(bmc.asked_for)
            if bmc.asked_for == ["GracefulShutdown"]:
                rack.hangs.add(ONE)
                assert asked == 1 or rack.state(ONE) is NodeState.STOPPING or bmc.power == "Off"
            if asked == 31:
                bmc.power, bmc.obeys = "Off", True
                rack.hangs.clear()
            rack.rest()
        assert bmc.asked_for == ["GracefulShutdown", "On"]
        assert {(Verb.STOP, Status.SETTLED), (Verb.START, Status.SETTLED)} <= set(rack.told(ONE))


def test_a_host_that_hangs_for_ever_was_not_stopped_and_says_so(tmp_path: Path) -> None:
    """It is unknown, with what its BMC shows, and its stop has failed."""
    with a_rack_with_bmcs(tmp_path) as rack:
        rack.bmcs[ONE].obeys = False
        for _ in range(NIGHT + 30):
            rack.round()
            if rack.bmcs[ONE].asked_for:
                rack.hangs.add(ONE)
            rack.rest()
        assert rack.state(ONE) is NodeState.UNKNOWN
        assert (Verb.STOP, Status.FAILED) in rack.told(ONE)
        assert rack.bmcs[ONE].asked_for == ["GracefulShutdown"]


def test_after_an_outage_a_host_is_woken_if_its_bmc_says_that_it_stayed_off(tmp_path: Path) -> None:
    """It was off and on once, as everybody saw. Without the word of its BMC it is its owner's."""
    for told in (True, False):
        (tmp_path / str(told)).mkdir()
        with a_rack_with_bmcs(tmp_path / str(told)) as rack:
            bmc = rack.bmcs[ONE]
            for power, at in (("On", 0), ("Off", 0), ("On", 1)):
                bmc.power, bmc.reset_at = power, f"2020-01-01T00:0{at}:00Z" if told else None
                rack.rest()
                rack.round()
            while rack.state(ONE) is not NodeState.STOPPED:
                rack.rest()
                rack.round()
            rack.rest(1200.0)
            rack.restart()
            for _ in range(NIGHT + DAY):
                rack.round()
                rack.rest()
            assert bmc.asked_for == ["GracefulShutdown", *(["On"] if told else [])]
