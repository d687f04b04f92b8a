"""The host's evidence all the way: from a snooze or a broken file to the verdict, the metrics and `explain`."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gpuwatch.agent.activity import ActivityRules
from gpuwatch.agent.evidence.snoozes import Snooze
from gpuwatch.agent.exporter.exporter import Exporter
from gpuwatch.agent.state import AgentCore
from gpuwatch.cli.explain_text import explain_text
from gpuwatch.controller.explain import node_page
from gpuwatch.model.activity import Evidence, State
from gpuwatch.model.fleet import NodeReport
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import Desk, a_node, a_verdict
from tests.support.builders.gpu import START, a_cycle, a_reading
from tests.support.fakes.nvml import StubDriver
from tests.support.real.agents import RunningAgent, eventually

STALE_AFTER = 8.0

# On the tester's machine people are at work and disks turn; snoozes alone are looked at.
LEASES_ALONE = {
    f"evidence__{name}__enabled": False
    for name in (
        *("people", "processes", "gpu_process_cpu", "cpu", "disk", "network", "rdma", "connections"),
        *("inhibitors", "jupyter", "scheduled", "slurm"),
    )
}


class Exported:
    """A core whose host says what it is told to, and its exporter."""

    def __init__(self) -> None:
        """An idle GPU, and a host that says nothing."""
        self.clock = ManualClock()
        self.host: tuple[Evidence, ...] = ()
        self.snoozes: tuple[Snooze, ...] = ()
        self.core = AgentCore(
            node_id="n",
            clock=self.clock,
            rules=ActivityRules(),
            interval_seconds=1.0,
            stale_after_seconds=STALE_AFTER,
            host=lambda _: self.host,
        )
        self.exporter = Exporter(
            self.core, self.clock, node_id="n", top_processes=1, own_process=False, snoozes=lambda: self.snoozes
        )

    def cycle(self, *says: tuple[str, State]) -> None:
        """One cycle, with the host saying this."""
        self.host = tuple(
            Evidence(name=name, says=state, observed=None, limit=None, unit="", source="a test", note="why")
            for name, state in says
        )
        self.clock.advance(1.0)
        self.core.ingest_messages(a_cycle(int(self.clock.monotonic()), self.clock.monotonic(), a_reading()))

    def series(self, name: str) -> dict[str, float]:
        """The series of one metric, by their labels."""
        page = self.exporter.page("text/plain").body.decode()
        return {each[0]: float(each[1]) for each in re.findall(rf"^{name}\{{(.*)\}} (\S+)$", page, re.MULTILINE)}


@pytest.fixture
def exported() -> Exported:
    """As yet without a cycle."""
    return Exported()


def test_each_signal_is_exported_with_what_it_says(exported: Exported) -> None:
    """It has one series; busy wins, then unknown, then occupied; a signal that says nothing has none."""
    exported.cycle(
        ("people", State.IDLE),
        ("snooze", State.UNKNOWN),
        ("snooze", State.BUSY),
        ("jupyter", State.UNKNOWN),
        ("jupyter", State.OCCUPIED),
        ("processes", State.IDLE),
        ("processes", State.OCCUPIED),
    )
    document = exported.series("gpuwatch_node_evidence")

    assert document == {
        'says="idle",signal="people"': 1,
        'says="busy",signal="snooze"': 1,
        'says="unknown",signal="jupyter"': 1,
        'says="occupied",signal="processes"': 1,
    }


def test_evidence_ages_with_its_cycle(exported: Exported) -> None:
    """Absent, never stale."""
    exported.cycle(("people", State.IDLE))
    exported.clock.advance(STALE_AFTER + 1)

    assert exported.series("gpuwatch_node_evidence") == {}


def test_a_snooze_is_exported_with_its_end(exported: Exported) -> None:
    """By user, as a time; the reason stays in the verdict."""
    exported.snoozes = (Snooze(user="alice", reason="eval", expires_at=START, left_seconds=60.0),)
    exported.cycle()

    assert exported.series("gpuwatch_snooze_expiry_timestamp_seconds") == {'user="alice"': START.timestamp()}


def test_the_verdict_says_who_and_why(exported: Exported) -> None:
    """The busy signal with its note; a doubt in words. Both end what was idle."""
    exported.cycle()
    idle = exported.core.verdict(exported.clock.monotonic()).activity.state
    exported.cycle(("people", State.BUSY), ("disk", State.UNKNOWN))
    busy = exported.core.verdict(exported.clock.monotonic()).activity
    exported.cycle(("people", State.IDLE), ("disk", State.UNKNOWN))
    unknown = exported.core.verdict(exported.clock.monotonic()).activity

    assert (idle, busy.state, unknown.state) == (State.IDLE, State.BUSY, State.UNKNOWN)
    assert [(each.name, each.note) for each in busy.evidence] == [("people", "why")]
    assert unknown.doubt == "disk: why"


def test_explain_prints_the_note() -> None:
    """An operator reads who is at work on the machine, beside what was seen against which limit."""
    at_work = Evidence(
        name="people",
        says=State.BUSY,
        observed=12.0,
        limit=1800.0,
        unit="seconds since input",
        source="utmp",
        note="alice on pts/0",
    )
    verdict = a_verdict("i-1", State.BUSY)
    verdict = replace(verdict, activity=replace(verdict.activity, evidence=(at_work,)))
    desk = Desk()
    desk.fleet.put(a_node("i-1", signal=NodeReport(verdict=verdict)))
    plan = desk.plan()
    node = plan.observation.fleet.nodes[0]
    page = node_page(plan, desk.rulebook, desk.ledger, node, plan.observation.ledger, round_id=None)

    assert "    people  busy  12s since input, limit 30m  alice on pts/0\n" in explain_text(page)
    assert "people  busy  12s since input, limit 30m  alice on pts/0  utmp" in explain_text(page, verbose=True)


def test_a_snooze_keeps_a_real_agents_node(driver: StubDriver, tmp_path: Path) -> None:
    """`gpuwatch snooze` makes it busy and `--end` idle again; a snooze that cannot be read makes it unknown."""
    directory = tmp_path / "snoozes"
    variable = {"GPUWATCH_AGENT__EVIDENCE__SNOOZE__DIRECTORY": str(directory)}

    def keep(*arguments: str) -> None:
        command = [sys.executable, "-m", "gpuwatch", "snooze", *arguments]
        subprocess.run(command, env={**os.environ, **variable}, check=True, capture_output=True)

    settings = {**LEASES_ALONE, "evidence__snooze__directory": directory, "evidence__snooze__interval": 0.1}
    with RunningAgent(driver.environment, evidence__enabled=True, **settings) as agent:
        eventually(lambda: agent.verdict().activity.state is State.IDLE, agent.verdict)
        keep("4h", "--reason", "evaluation")
        eventually(lambda: agent.verdict().activity.state is State.BUSY, agent.verdict)
        (evidence,) = agent.verdict().activity.evidence
        eventually(lambda: "gpuwatch_snooze_expiry_timestamp_seconds{" in agent.get("/metrics"))
        keep("--end")
        eventually(lambda: agent.verdict().activity.state is State.IDLE, agent.verdict)
        (directory / "4711.json").touch()
        eventually(lambda: agent.verdict().activity.state is State.UNKNOWN, agent.verdict)

    assert evidence.name == "snooze"
    assert (evidence.note or "").endswith(": evaluation")


def test_an_agent_at_its_defaults_tells_of_every_signal(driver: StubDriver, tmp_path: Path) -> None:
    """On whatever machine this runs, each signal that is there says something and none fails by a flaw."""
    directory = tmp_path / "snoozes"
    with RunningAgent(driver.environment, evidence__enabled=True, evidence__snooze__directory=directory) as agent:
        always = {"people", "gpu_process_cpu", "cpu", "disk", "network", "snooze"}

        def told() -> set[str]:
            return set(re.findall(r'gpuwatch_node_evidence\{says="\w+",signal="(\w+)"\}', agent.get("/metrics")))

        eventually(lambda: told() >= always, told)

        assert "host signal" not in agent.log
