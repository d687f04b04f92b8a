"""Four hours of the demo fleet as a Prometheus has scraped them: agents and controllers, minute by minute."""

import re
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

from gpuwatch.agent.devices.load_profile import LoadProfile, Phase
from gpuwatch.agent.exporter.exporter import Exporter
from gpuwatch.cli.controller import one_round
from gpuwatch.clouds import OWNER_TAG
from gpuwatch.controller.metrics import ControllerMetrics
from gpuwatch.controller.metrics import kubernetes as of_kubernetes
from gpuwatch.controller.observe.kubernetes import with_cluster
from gpuwatch.controller.observe.settings import ObserveSettings
from gpuwatch.controller.readings import SAVINGS_SECONDS
from gpuwatch.controller.round import ControllerContext, Round
from gpuwatch.controller.timings import CONFIRMATION, VERDICT, time_calls
from gpuwatch.controller.web.serve import Discovery, Observers
from gpuwatch.guard import Rulebook
from gpuwatch.ledger import Ledger
from gpuwatch.model.budget import BudgetState, Scope, ShorterWaits
from gpuwatch.model.decision import Observation
from gpuwatch.money.accounting.metering import Metering
from gpuwatch.money.accounting.store import Meter
from gpuwatch.money.report.saved import saved_by_pool
from gpuwatch.simulate.cloud import SimulatedCloud
from gpuwatch.simulate.fleet.options import STORY_BEGINS, Options
from gpuwatch.simulate.fleet.play import play, stage_play
from gpuwatch.simulate.fleet.workloads import Workload, demo_fleet
from gpuwatch.simulate.fleet.world import World
from tests.support.builders.dashboard_agent import Patient
from tests.support.builders.gpu import GIB
from tests.support.builders.kubernetes_views import shown_cluster, shown_node, shown_pod
from tests.support.builders.money import a_comparison
from tests.support.builders.workload_rounds import with_a_workload
from tests.support.real.tsdb import History

HOURS = 4.0
ENDS = (STORY_BEGINS + timedelta(hours=HOURS, minutes=-1)).timestamp()
PATIENT = "train-1"  # on this machine the agent is tests/support/builders/dashboard_agent.py's
RULES_CHANGE = STORY_BEGINS + timedelta(hours=2)
_OWNERS = {"training": "ana", "research": "ben", "serving": "chi"}
# As in the demo, where nobody is asked about a machine: these have owners.
_IDLE = replace(Options().pool.idle, owner_grace_period=Options().grace_period)
_SLOW_STOP_SECONDS = 200.0  # some rounds see an intent open
_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)


@dataclass(slots=True)
class Story:
    """The fleet, its controllers, and what was scraped of them."""

    options: Options = field(default_factory=lambda: Options(hours=HOURS, idle=_IDLE))
    history: History = field(default_factory=History)
    patient_id: str = ""
    _exporters: dict[str, Exporter] = field(default_factory=dict)

    def played(self) -> "Story":
        """Let it happen."""
        horizon = HOURS * 3600
        rows = (*demo_fleet(0, horizon), _ending("late-1", 3.6), _ending("late-2", 3.72))
        ledger = Ledger.in_memory()
        parts, world = stage_play(self.options, rows, horizon, ledger)
        self._own(parts)
        meter = Meter(ledger, Metering(zone=ZoneInfo("UTC")))
        parts = replace(parts, meter=lambda seen: meter(in_kubernetes(seen)), budgets=two_budgets)
        parts = replace(parts, cloud=time_calls(parts.cloud, "simulated", parts.clock, parts.timings.cloud_calls))
        leader = ControllerMetrics("enforce", "demo", parts.clock, timings=parts.timings, rules=parts.rules)
        leader.compare(a_comparison())
        waiting = ControllerMetrics("enforce", "demo", parts.clock)
        seen = Observers(discovery=Discovery(signals=ObserveSettings()), metrics=leader)
        patient = self._patient(world, parts)
        parts.ledger.pause("batch", "ana", "a test", parts.clock.now() + timedelta(hours=1))

        def controller(parts: ControllerContext) -> object:
            done = one_round(parts, seen)
            assert done is not None
            for node in done.observation.fleet.nodes:
                parts.timings.agent_answers.observe(0.01 + len(node.id) % 7 / 100, (VERDICT,))
            parts.timings.agent_answers.observe(0.8, (CONFIRMATION,))
            waiting.round(None, 0.0, leading=False)
            if int(parts.clock.now().timestamp()) % SAVINGS_SECONDS < self.options.interval:
                leader.tell_savings(saved_by_pool(ledger, ZoneInfo("UTC"), parts.clock.now(), 60.0, parts.rules))
            if parts.clock.now() >= RULES_CHANGE:
                leader._state.rules = with_longer_warm_up(parts.rules)
            leader._state.last = with_a_workload(with_a_wish(with_kubernetes(done)), "research")
            of_kubernetes.count(leader._state, leader._state.last)
            patient.sample()
            self._scrape(world, parts, leader, waiting, patient)
            return done

        play(parts, world, self.options, horizon, controller=controller)
        return self

    def _own(self, parts: ControllerContext) -> None:
        """Machines have owners, and take their time to stop."""
        cloud = parts.cloud.cloud  # type: ignore[attr-defined]  # of WitnessedCloud
        assert isinstance(cloud, SimulatedCloud)
        cloud._stopping_seconds = _SLOW_STOP_SECONDS
        for node in cloud.nodes():
            if node.pool in _OWNERS:
                cloud.add(replace(node, tags={**node.tags, OWNER_TAG: _OWNERS[node.pool]}))

    def _patient(self, world: World, parts: ControllerContext) -> Patient:
        self.patient_id = next(key for key, host in world.hosts.items() if host.life.name == PATIENT)
        return Patient(self.patient_id, parts.clock, world.hosts[self.patient_id]._timing.rules, self.options.sample)

    def _scrape(
        self,
        world: World,
        parts: ControllerContext,
        leader: ControllerMetrics,
        waiting: ControllerMetrics,
        patient: Patient,
    ) -> None:
        """Every target that answers."""
        now, at = parts.clock.monotonic(), parts.clock.now()
        for number, (node_id, host) in enumerate(world.hosts.items()):
            if node_id == self.patient_id:
                exporter = patient.exporter
            elif host.answers(now):
                exporter = self._exporters.setdefault(
                    f"{node_id} {id(host.core)}",
                    Exporter(host.core, parts.clock, node_id=node_id, top_processes=2, own_process=False),
                )
            else:
                continue
            self._take(exporter.page("").body, at, "gpuwatch", f"10.0.0.{number}:9460")
        self._take(leader.page().body, at, "gpuwatch-controller", "10.0.1.1:9461")
        self._take(waiting.page().body, at, "gpuwatch-controller", "10.0.1.2:9461")

    def _take(self, page: bytes, at: datetime, job: str, instance: str) -> None:
        """One scrape that worked, with the labels of its target."""
        target = f'cluster="lab",job="{job}",instance="{instance}"'
        for name, labels, value in _SAMPLE.findall(page.decode()):
            series = f"{name}{{{target}{',' if labels else ''}{labels}}}"
            self.history.lines.setdefault(name, []).append((series, at.timestamp(), float(value)))


def _ending(name: str, hours: float) -> Workload:
    """A job that ends after so long: its machine is given notice, and stopped, within the last minutes."""
    phases = (Phase(at=0, utilization_ratio=0.8, memory_bytes=10 * GIB), Phase(at=round(hours * 3600)))
    return Workload(
        name=name, story="ends late", pool="research", instance_type="g6.12xlarge", gpus=(LoadProfile(phases),) * 4
    )


def with_longer_warm_up(rules: Rulebook) -> Rulebook:
    """Those rules, had somebody changed one of the pool research."""
    pool = rules.pool("research")
    return replace(rules, pools={**rules.pools, "research": replace(pool, warm_up=pool.warm_up + 60.0)})


def with_a_wish(done: Round) -> Round:
    """That round, had a policy wanted a number of machines."""
    return replace(done, decisions=tuple(replace(each, target=3) for each in done.decisions))


def with_kubernetes(done: Round) -> Round:
    """That round, were its machines nodes."""
    return replace(done, observation=in_kubernetes(done.observation))


def in_kubernetes(seen: Observation) -> Observation:
    """The same, were every machine a node with one pod that holds all its GPUs; another pod waits."""
    began = STORY_BEGINS - timedelta(days=1)
    nodes = [
        shown_node(
            f"node-{node.id}",
            node.id,
            shown_pod(
                f"work-{node.id}", f"node-{node.id}", gpus=float(node.known_gpus), namespace=node.pool, created_at=began
            ),
            gpus=float(node.known_gpus),
        )
        for node in seen.fleet.nodes
    ]
    view = shown_cluster(*nodes, pending=(shown_pod("waits", gpus=1.0),))
    return replace(seen, fleet=with_cluster(seen.fleet, view))


def two_budgets(observation: Observation) -> tuple[BudgetState, ...]:
    """Two, one of which is about to be exceeded."""
    hours = (observation.now - STORY_BEGINS).total_seconds() / 3600
    base = BudgetState(
        name="everything",
        scope=Scope(),
        usd_per_month=Decimal(20000),
        month="2026-01",
        ends_at=STORY_BEGINS + timedelta(days=26),
        thresholds=(0.2, 0.8, 1.0),
        spent_usd=Decimal(4200) + Decimal(round(80 * hours)),
        forecast_usd=Decimal(17000) + Decimal(round(100 * hours)),
        lower_usd=Decimal(15000),
        upper_usd=Decimal(19500),
        probability_over=0.08,
        present_rate_usd=Decimal(16500),
        unpriced_hours=1.5,
    )
    research = replace(
        base,
        name="research",
        scope=Scope(pool="research"),
        usd_per_month=Decimal(5000),
        spent_usd=Decimal(4700) + Decimal(round(40 * hours)),
        forecast_usd=Decimal(5600),
        lower_usd=Decimal(5100),
        upper_usd=Decimal(6100),
        probability_over=0.93,
        blocked="the forecast is above it",
        hastening=ShorterWaits(wait_seconds=600.0, why="the budget research is forecast to be exceeded"),
    )
    return base, research
