"""P24 on EC2: a machine is ended, or started again, only if EC2 itself says that its last stop was gpuwatch's."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import pytest

from gpuwatch.clouds.aws.cloud import AwsCloud
from gpuwatch.controller.context import LiveParts
from gpuwatch.controller.round import step
from gpuwatch.guard import Rulebook
from gpuwatch.model.decision import Verb
from gpuwatch.model.fleet import DEFAULT_POOL
from gpuwatch.model.stops import NOT_PROVED
from gpuwatch.policies import PoolRules
from gpuwatch.policies.schedule import Window
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import HOUR, RULES
from tests.support.clouds.idle_agents import enforcing
from tests.support.fakes.cloud_worlds import FLEET, MINE
from tests.support.fakes.moto_faults import REGION, Crash, MotoFaults

KEPT = 4 * HOUR
STOPS = replace(RULES, idle=replace(RULES.idle, instance_store="discard"))  # moto's GPU machines have local disks
ENDS = replace(STOPS, idle=replace(STOPS.idle, terminate_after=KEPT))
WANTED = replace(STOPS, schedule={"always": Window(min_nodes=1)})


@dataclass(slots=True)
class Site:
    """One idle machine at EC2, and its controller."""

    ec2: MotoFaults
    clock: ManualClock
    parts: LiveParts
    node_id: str

    def obey(self, rules: PoolRules) -> None:
        """Other settings hold from now on."""
        self.parts = replace(self.parts, rules=replace(self.parts.rules, pools={DEFAULT_POOL: rules}))

    def rounds(self, seconds: float, every: float = 60.0) -> None:
        """Rounds for so long; a controller that dies begins anew in the next one."""
        until = self.clock.monotonic() + seconds
        while self.clock.monotonic() < until:
            with suppress(Crash):
                step(self.parts)
            self.clock.advance(every)

    def owner_stops(self) -> None:
        """Its owner stops it by hand."""
        self.ec2.client.stop_instances(InstanceIds=[self.node_id])

    def done(self, action: str) -> int:
        """How many of these calls EC2 carried out."""
        return len(self.ec2.done(action))

    @property
    def verbs(self) -> list[Verb]:
        """What was intended for it."""
        return [each.intent.verb for each in reversed(self.parts.ledger.history(self.node_id))]

    @property
    def sentence(self) -> str:
        """What the newest plan says of it."""
        done = step(self.parts, act=False)
        [said] = [each for decision in done.decisions for each in decision.steps if each.node_id == self.node_id]
        return said.reason.sentence


@pytest.fixture
def site() -> Iterator[Site]:
    """A machine that has been idle for hours."""
    clock = ManualClock()
    with MotoFaults(clock) as ec2:
        node_id = ec2.launch(MINE)
        clock.advance(3 * HOUR)
        parts, _ = enforcing(AwsCloud(fleet=FLEET, clock=clock, regions=[REGION], session=ec2.session), clock)
        rules = Rulebook(pools={DEFAULT_POOL: STOPS}, limits=parts.rules.limits, enforce=True)
        yield Site(ec2=ec2, clock=clock, parts=replace(parts, rules=rules), node_id=node_id)


def stops_a_second_before(site: Site) -> None:
    """The owner's stop is a second ahead of gpuwatch's, which EC2 accepts all the same."""

    def ahead(action: str) -> None:
        if action == "StopInstances":
            site.ec2.on_call = lambda _action: None
            site.owner_stops()

    site.ec2.on_call = ahead
    site.rounds(1200.0)


def request_is_lost(site: Site) -> None:
    """Gpuwatch's stop never arrives, and two minutes later the owner stops the machine."""
    site.ec2.lose_request("StopInstances")
    while not any(call.action == "StopInstances" for call in site.ec2.calls):
        site.rounds(60.0)
    site.rounds(120.0)
    site.owner_stops()
    site.rounds(1200.0)


def answer_is_lost(site: Site) -> None:
    """Gpuwatch's stop is carried out, and its answer never arrives: nobody can tell it from the owner's."""
    site.ec2.lose_response("StopInstances")
    site.rounds(1200.0)


def dies_before_the_call(site: Site) -> None:
    """The controller dies between intent and call; the owner stops the machine before it is back."""
    site.ec2.crash_before("StopInstances")
    while not any(call.action == "StopInstances" for call in site.ec2.calls):
        site.rounds(60.0)
    site.owner_stops()
    site.rounds(1200.0)


def is_used_again(site: Site) -> None:
    """The owner starts the machine after gpuwatch's stop, and stops it again, between two rounds."""
    site.rounds(1200.0)
    site.ec2.client.start_instances(InstanceIds=[site.node_id])
    machine = site.ec2._instance(site.node_id)
    machine.launch_time = machine.launch_time.replace(year=machine.launch_time.year + 1)
    site.owner_stops()
    site.rounds(120.0)


# Each of them on a made cloud: tests/properties/test_whose_stop.py.
WAYS = [
    pytest.param(stops_a_second_before, marks=pytest.mark.nightly),
    pytest.param(request_is_lost, marks=pytest.mark.nightly),
    answer_is_lost,
    pytest.param(dies_before_the_call, marks=pytest.mark.nightly),
    is_used_again,
]


@pytest.mark.parametrize("way", WAYS)
def test_a_stop_that_ec2_does_not_show_as_ours_ends_and_starts_nothing(site: Site, way: Callable[[Site], None]) -> None:
    """Neither does `terminate_after` end the machine, nor does a schedule start it; the plan says why."""
    way(site)
    assert site.ec2.state(site.node_id) == "stopped"
    starts = site.done("StartInstances")

    site.obey(ENDS)
    site.rounds(2 * KEPT, every=300.0)
    if way is not is_used_again:
        assert NOT_PROVED in site.sentence
    site.obey(WANTED)
    site.rounds(2 * HOUR, every=600.0)

    assert site.done("TerminateInstances") == 0
    assert site.done("StartInstances") == starts
    assert site.ec2.state(site.node_id) == "stopped"


def test_a_stop_that_is_not_proved_ours_counts_against_the_limits(site: Site) -> None:
    """It may have been ours: two questions, two answers."""
    answer_is_lost(site)
    [stop] = [each for each in site.parts.ledger.history(site.node_id) if each.intent.verb is Verb.STOP]

    assert [each.status for each in stop.outcomes][-1] == "settled"
    assert NOT_PROVED in stop.outcomes[-1].detail
    [done] = [each for each in site.parts.past(site.clock.now()).recent if each.verb is Verb.STOP]
    assert done.reached


def test_our_own_stop_is_ended_after_its_time(site: Site) -> None:
    """EC2 says that the machine ran until our call, and shows the time of that call."""
    site.rounds(1200.0)
    site.obey(ENDS)
    assert "gpuwatch stopped it" in site.sentence
    site.rounds(1.5 * KEPT, every=300.0)

    assert site.ec2.state(site.node_id) == "terminated"


def test_our_own_stop_is_started_by_the_schedule(site: Site) -> None:
    """Its disks are paid for, and its caches are warm."""
    site.rounds(1200.0)
    site.obey(WANTED)
    site.rounds(600.0)

    assert site.ec2.state(site.node_id) == "running"
