"""P25, slowly, through whole rounds: a roll-out that blinds machines one after another stops none of them."""

from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest
from sqlalchemy import text

from gpuwatch.controller.context import Memory
from gpuwatch.guard import Limits
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Verb
from gpuwatch.model.fleet import Node, NodeReport, NodeState
from gpuwatch.model.sensors import SensorRecord
from gpuwatch.policies import PoolRules
from gpuwatch.policies.idle import IdleRules
from tests.support.builders.fleet import Desk, a_node, a_verdict
from tests.support.nightly import by_night

RULES = PoolRules(warm_up=0.0, idle=IdleRules(timeout=1800.0, grace_period=600.0))
LIMITS = Limits(
    max_stops_per_round=100, max_stops_per_hour=1000, max_stops_per_hour_ratio=1.0, max_stops_per_owner_per_hour=None
)


@dataclass
class Site:
    """A fleet whose agents say a driver and a version; `blind` machines read idle since the time they became so."""

    desk: Desk = field(default_factory=lambda: Desk(rules=RULES, limits=LIMITS))
    driver: dict[str, str] = field(default_factory=dict)
    agent: dict[str, str] = field(default_factory=dict)
    idle_since: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """All agents answer at once."""
        self.desk.fleet.answer = self._answer

    def put(self, count: int, pools: int = 1, first: int = 0) -> None:
        """Machines at work."""
        for number in range(first, first + count):
            self.desk.fleet.put(a_node(f"i-{number:03}", State.BUSY, pool=f"p{number % pools}"))

    def _answer(self, node: Node) -> NodeReport:
        clock, since = self.desk.clock, self.idle_since.get(node.id)
        state = State.BUSY if since is None else State.IDLE
        held = 3600.0 if since is None else clock.monotonic() - since
        verdict = a_verdict(node.id, state, held, at=clock.now(), age=0.5)
        versions = {"driver": self.driver.get(node.id, "570.1"), "agent": self.agent.get(node.id, "1.8.0")}
        verdict = replace(verdict, driver_version=versions["driver"], agent_version=versions["agent"])
        return NodeReport(verdict=verdict)

    def blind(self, node_id: str, *, driver: str | None = None, agent: str | None = None) -> None:
        """It gets something new, and reads idle from now on."""
        self.driver |= {} if driver is None else {node_id: driver}
        self.agent |= {} if agent is None else {node_id: agent}
        self.idle_since[node_id] = self.desk.clock.monotonic()

    def rounds(self, minutes: float, every: float = 10.0) -> None:
        """Rounds for so long."""
        for _ in range(int(minutes / every)):
            self.desk.round(every * 60.0)

    @property
    def names(self) -> list[str]:
        """All machines."""
        return sorted(self.desk.fleet.nodes_)

    @property
    def stops(self) -> list[str]:
        """Those that were told to stop."""
        return self.desk.fleet.stops()


def test_a_driver_that_blinds_machines_over_half_an_hour_stops_none_of_them() -> None:
    """Six pools of four, and each pool alone is not remarkable."""
    site = Site()
    site.put(24, pools=6)
    site.rounds(20)
    for node_id in site.names:
        site.blind(node_id, driver="575.2")
        site.desk.round(90.0)
    site.rounds(3 * 60)

    assert site.stops == []
    assert not [call for call in site.desk.fleet.calls if call[0] == "tag"]


def test_an_agent_that_blinds_machines_over_hours_stops_none_and_honest_idleness_is_found_all_the_time() -> None:
    """A fifth of those with the old agent is idle."""
    site = Site()
    site.put(20, pools=5)
    site.rounds(20)
    honest = site.names[16:]
    for node_id in honest:
        site.idle_since[node_id] = site.desk.clock.monotonic()
        site.desk.round(300.0)
    for place in range(0, 16, 4):
        for node_id in site.names[place : place + 4]:
            site.blind(node_id, agent="1.9.0")
        site.rounds(60)

    assert sorted(site.stops) == honest


@pytest.mark.parametrize("count", [3, *by_night(1)])
def test_a_small_fleet_that_rests_since_its_driver_came_is_stopped_a_day_later(count: int) -> None:
    """At night, and nobody works any more: nothing is paid for ever."""
    site = Site()
    site.put(count)
    site.rounds(20)
    for node_id in site.names:
        site.blind(node_id, driver="575.2")
    site.rounds(23 * 60 + 50)
    assert site.stops == []
    site.rounds(60)
    assert site.stops == site.names


def test_a_notice_is_withdrawn_when_the_sensor_becomes_suspect_and_given_again_a_day_later() -> None:
    """Nobody is stopped a day after the time that was promised."""
    site = Site()
    site.put(2)
    site.rounds(20)
    for node_id in site.names:
        site.idle_since[node_id] = site.desk.clock.monotonic()
    site.rounds(30)
    site.desk.round(60.0)
    assert len(site.desk.ledger.view(site.desk.clock.now()).notices) == 2
    site.driver |= dict.fromkeys(site.names, "575.2")
    site.rounds(10)
    assert site.desk.ledger.view(site.desk.clock.now()).notices == ()
    site.rounds(24 * 60)
    assert (len(site.desk.ledger.view(site.desk.clock.now()).notices), site.stops) == (2, [])
    site.rounds(20)
    assert site.stops == site.names


def test_the_guard_says_what_is_new_what_was_before_and_what_proves_it() -> None:
    """Whoever reads the plan looks at the driver first."""
    site = Site()
    site.put(4)
    site.rounds(20)
    for node_id in site.names:
        site.blind(node_id, driver="575.2")
    site.rounds(40)
    [said] = {
        answer.sentence + " " + answer.remedy
        for review in site.desk.plan().reviews
        if review.step.verb is Verb.NOTICE
        for answer in review.refusals
    }

    assert said == (
        "Of 4 nodes with the driver 575.2 none was seen at work since it came at 2026-03-02 12:20 UTC; nodes with the "
        "driver 570.1 were. They are frozen until 2026-03-03 12:20 UTC, or until 2 of them are at work at one time. "
        "If they are really idle, run `gpuwatch acknowledge --pool p0`."
    )


def test_a_plan_shows_the_same_freeze_and_writes_nothing() -> None:
    """P5, also by another process, which knows only the ledger."""
    site = Site()
    site.put(4)
    site.rounds(20)
    for node_id in site.names:
        site.blind(node_id, driver="575.2")
    before = site.desk.ledger.sensors.read()
    planned = site.desk.plan().observation.unproven
    other = replace(site.desk, memory=Memory())
    other.fleet = site.desk.fleet
    assert other.plan().observation.unproven == planned != ()
    assert site.desk.ledger.sensors.read() == before
    assert site.desk.round().observation.unproven == planned


def test_a_past_round_has_what_was_suspected_then() -> None:
    """Explain judges the past again by what is stored with it."""
    site = Site()
    site.put(4)
    site.rounds(20)
    for node_id in site.names:
        site.blind(node_id, driver="575.2")
    done = site.desk.round()
    [newest] = site.desk.ledger.rounds(1)

    assert site.desk.ledger.observation(newest.id).unproven == done.observation.unproven != ()


def test_people_who_say_that_the_machines_are_idle_are_believed_at_once() -> None:
    """The same order as of a sudden mass idleness."""
    site = Site()
    site.put(4)
    site.rounds(20)
    for node_id in site.names:
        site.blind(node_id, driver="575.2")
    site.rounds(60)
    assert site.stops == []
    site.desk.ledger.acknowledge("p0", "ada", "the job is over", site.desk.clock.now())
    site.rounds(3 * 60)

    assert site.stops == site.names


@pytest.mark.parametrize("away", [timedelta(days=3), *by_night(timedelta(0))])
def test_a_restart_and_a_time_without_rounds_forget_nothing(away: timedelta) -> None:
    """The machines changed while no controller looked; what proves nothing shortens nothing."""
    site = Site()
    site.put(4)
    site.rounds(3 * 60)
    site.desk.rest(away.total_seconds())
    for node_id in site.names:
        site.blind(node_id, driver="575.2")
    site.desk.memory = Memory()
    site.rounds(20 * 60)

    assert site.stops == []
    site.desk.rest(away.total_seconds())
    site.desk.memory = Memory()
    site.rounds(3 * 60)
    assert site.stops == []


@pytest.mark.parametrize("step", [timedelta(days=-1), timedelta(days=30), *by_night(timedelta(hours=2))])
def test_a_clock_that_is_set_makes_no_freeze_shorter_and_none_much_longer(step: timedelta) -> None:
    """P18: a day is a day by a clock that never jumps."""
    site = Site()
    site.put(4)
    site.rounds(3 * 60)
    for node_id in site.names:
        site.blind(node_id, driver="575.2")
    site.rounds(2 * 60)
    site.desk.clock.wall += step
    site.rounds(21 * 60)
    assert site.stops == []
    site.rounds(4 * 60)
    assert site.stops == site.names


@pytest.mark.parametrize("damage", ["", "{", '{"at": "yesterday"}', "null", '{"at": 3}', "[]"])
def test_a_damaged_record_ends_no_round_and_is_learnt_anew(damage: str) -> None:
    """Nobody is frozen for it, and the next roll-out is seen again."""
    site = Site()
    site.put(4)
    site.rounds(60)
    with site.desk.ledger.store.writing() as writer:
        writer.db.execute(text("UPDATE meta SET value = :value WHERE name = 'sensors'"), {"value": damage})
    assert site.desk.round().observation.unproven == ()
    for node_id in site.names:
        site.blind(node_id, driver="575.2")
    assert site.desk.round().observation.unproven != ()


def test_a_ledger_without_the_record_begins_with_what_is_there() -> None:
    """A fleet in the midst of its roll-out, found by a controller that is new: nobody is frozen for what was before."""
    site = Site()
    site.put(4)
    site.blind("i-000", agent="1.9.0")
    site.rounds(60)

    assert site.stops == ["i-000"]


def test_who_switched_mass_idleness_off_gets_none_of_it() -> None:
    """`mass_idleness_freeze: 0s` says that mass idleness is no reason to freeze."""
    site = Site(desk=Desk(rules=RULES, limits=replace(LIMITS, mass_idleness_freeze=0.0)))
    site.put(4)
    site.rounds(20)
    for node_id in site.names:
        site.blind(node_id, driver="575.2")
    site.rounds(60)

    assert site.stops == site.names


def test_the_record_is_written_when_something_changes_and_once_an_hour() -> None:
    """A steady fleet costs the ledger nothing else."""
    site = Site()
    site.put(4, pools=4)
    written = list[SensorRecord]()
    keep = site.desk.ledger.sensors.keep

    def count(record: SensorRecord) -> None:
        written.append(record)
        keep(record)

    site.desk.ledger.sensors.keep = count  # type: ignore[method-assign]
    site.rounds(6 * 60)

    assert 5 <= len(written) <= 8
    assert all(node.state is NodeState.RUNNING for node in site.desk.fleet.nodes_.values())
