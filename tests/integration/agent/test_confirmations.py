"""Confirmations by a real agent, on a stand-in driver and a stand-in Slurm: work that began a moment ago is seen."""

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from gpuwatch.agent.evidence.settings import EvidenceSettings, SnoozeSettings
from gpuwatch.agent.evidence.snoozes import snooze
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import NodeVerdict
from gpuwatch.runtime.clock import SystemClock
from tests.support.fakes.nvml import StubDriver
from tests.support.nightly import by_night
from tests.support.real.agents import RunningAgent, eventually

NONCE = "0123456789abcdef"
ANSWER_SECONDS = 4.5  # the controller waits 5

# On the tester's machine people are at work and disks turn.
QUIET = {
    f"evidence__{name}__enabled": False
    for name in (
        *("people", "processes", "gpu_process_cpu", "cpu", "disk", "network", "rdma", "connections"),
        *("inhibitors", "jupyter", "scheduled"),
    )
}


class Site:
    """A host with Slurm and the administrator's command, both of which say what a file says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.snoozes = folder / "snoozes"
        self.looks = folder / "looks"
        for name in ("jobs", "command", "slow"):
            (folder / name).write_text("", encoding="ascii")
        self.script(
            "squeue", f"echo x >> {self.looks}; cat {folder}/jobs; sleep $(cat {folder}/slow) 2>/dev/null; exit 0"
        )
        self.script("sinfo", "echo idle")
        self.script("rendering", f"test -s {folder}/command")

    def script(self, name: str, text: str) -> None:
        """A program on the PATH."""
        path = self.folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n", encoding="ascii")
        path.chmod(0o755)

    def write(self, name: str, text: str) -> None:
        """What a file says from now on."""
        (self.folder / f"{name}.new").write_text(text, encoding="ascii")
        (self.folder / f"{name}.new").replace(self.folder / name)

    def agent(self, driver: StubDriver) -> RunningAgent:
        """An agent that looks at everything once, and then not again within any test."""
        hourly = {f"evidence__{name}__interval": 300.0 for name in ("slurm", "snooze", "command")}
        environment = {**driver.environment, "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"}
        return RunningAgent(
            environment,
            interval=30.0,
            activity__max_gap="5m",
            evidence__enabled=True,
            evidence__snooze__directory=self.snoozes,
            evidence__command__argv=f'["{self.folder}/bin/rendering"]',
            **QUIET,
            **hourly,
        )


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """At rest."""
    return Site(tmp_path)


def confirmed(agent: RunningAgent, nonce: str = NONCE) -> NodeVerdict:
    """Its answer to a confirmation, which must come in time."""
    began = time.perf_counter()
    verdict = msgspec.json.decode(agent.get(f"/v1/verdict?confirm={nonce}"), type=NodeVerdict)
    assert time.perf_counter() - began < ANSWER_SECONDS
    return verdict


def settled(agent: RunningAgent) -> None:
    """Each signal was looked at twice, as at any start, and the machine is at rest."""
    eventually(lambda: confirmed(agent).activity.state is State.IDLE, agent.verdict)


def take_a_snooze(site: Site) -> None:
    """As `gpuwatch snooze` does."""
    snooze(EvidenceSettings(snooze=SnoozeSettings(directory=str(site.snoozes))), 3600.0, "evaluation", SystemClock())


WORK: dict[str, Callable[[Site, StubDriver], object]] = {
    "slurm": lambda site, _: site.write("jobs", "4711\n"),
    "slurm plans a job": lambda site, _: site.script("sinfo", "echo planned"),
    "command": lambda site, _: site.write("command", "yes"),
    "snooze": lambda site, _: take_a_snooze(site),
    "kernels": lambda _, driver: driver.gpu(0).utilization(0.5),
    "power": lambda _, driver: driver.gpu(0).set(power=600_000),
}


@pytest.mark.parametrize("work", ["kernels", "snooze", "slurm", *by_night("slurm plans a job", "power", "command")])
def test_work_that_began_after_the_last_look_is_seen(driver: StubDriver, site: Site, work: str) -> None:
    """The usual verdict still says idle, the confirmation says busy, and from then on the usual one does, too."""
    with site.agent(driver) as agent:
        settled(agent)
        WORK[work](site, driver)
        cached = agent.verdict()
        verdict = confirmed(agent)
        after = agent.verdict()

    assert (cached.activity.state, verdict.activity.state, after.activity.state) == (State.IDLE, State.BUSY, State.BUSY)
    assert (verdict.confirm, cached.confirm) == (NONCE, None)
    assert verdict.looked_seconds is not None
    assert 0.0 <= verdict.looked_seconds < ANSWER_SECONDS


def test_a_process_that_began_to_hold_a_gpu_is_seen(driver: StubDriver, site: Site) -> None:
    """Before its first kernel runs: the machine is not idle any more."""
    with site.agent(driver) as agent:
        settled(agent)
        driver.gpu(0).processes({os.getpid(): 1 << 28})
        state = confirmed(agent).activity.state

    assert state is State.PARKED


def test_a_script_that_hangs_is_in_doubt(driver: StubDriver, site: Site) -> None:
    """The answer comes in time; squeue said idle before, and that counts no more."""
    with site.agent(driver) as agent:
        settled(agent)
        site.write("slow", "20")
        verdict = confirmed(agent)

    assert verdict.activity.state is State.UNKNOWN
    assert "slurm" in (verdict.activity.doubt or "")


def test_a_gpu_that_hangs_is_in_doubt(driver: StubDriver, site: Site) -> None:
    """A driver call that does not return holds up no answer."""
    with site.agent(driver) as agent:
        settled(agent)
        driver.hang(0)
        verdict = confirmed(agent)

    assert verdict.activity.state is State.UNKNOWN


def test_many_questions_do_not_overload_it(driver: StubDriver, site: Site) -> None:
    """Forty questions, twelve at a time, run squeue (which is asked twice) about once a second; each gets its nonce."""
    with site.agent(driver) as agent:
        settled(agent)
        before = len(site.looks.read_text().splitlines())
        began = time.perf_counter()
        nonces = [f"{NONCE}-{number:03}" for number in range(40)]
        with ThreadPoolExecutor(12) as pool:
            answers = list(pool.map(lambda nonce: confirmed(agent, nonce), nonces))
        took = time.perf_counter() - began
        looks = len(site.looks.read_text().splitlines()) - before

    assert [answer.confirm for answer in answers] == nonces
    assert looks <= 2 * (took + 2)


def test_what_is_no_nonce_is_refused_in_words(driver: StubDriver) -> None:
    """With status 400; another parameter gets the usual verdict."""
    queries = ("confirm=short", "confirm=", f"confirm={NONCE}&confirm={NONCE}")
    with RunningAgent(driver.environment) as agent:
        refused = [agent.get(f"/v1/verdict?{query}") for query in queries]
        usual = msgspec.json.decode(agent.get("/v1/verdict?x=1"), type=NodeVerdict)

    assert [each for each in refused if not each.startswith("400 confirm must be given once")] == []
    assert usual.confirm is None
