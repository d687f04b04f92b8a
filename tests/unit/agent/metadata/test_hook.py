"""agent/metadata/hook.py and memory.py: the administrator's program, as a real process, once for each notice."""

import json
import logging
import signal
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.agent.metadata.base import Notice
from gpuwatch.agent.metadata.hook import NoticeHook
from gpuwatch.agent.metadata.settings import MetadataSettings
from gpuwatch.agent.metadata.state_file import NoticeMemory
from gpuwatch.model.cloud_notice import NoticeKind
from gpuwatch.runtime.clock import ManualClock
from tests.support.fakes.metadata_services import Ec2, Gcp, serving
from tests.support.fakes.nvml import StubDriver
from tests.support.real.agents import RunningAgent, eventually, is_running

NOTES_ITS_ENVIRONMENT = (
    "import json, os, sys; "
    "told = {k: v for k, v in os.environ.items() if k.startswith('GPUWATCH_NOTICE_')}; "
    "told['group'] = os.getpgid(0) == os.getpid(); "
    "open(sys.argv[1], 'a').write(json.dumps(told) + '\\n'); "
    "sys.exit(int(sys.argv[2]))"
)
SLEEPS = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(60)"


class Hooked:
    """One agent's hook; make another one on the same folder and the agent was restarted."""

    def __init__(self, folder: Path, script: str = NOTES_ITS_ENVIRONMENT, status: int = 0, **changes: object) -> None:
        """At 2026-01-05 00:00:00 UTC."""
        self.clock = ManualClock()
        self.noted = folder / "noted"
        settings: dict[str, object] = {
            "on_interruption": (sys.executable, "-c", script, str(self.noted), str(status)),
            "state": str(folder / "run" / "notices.json"),
            **changes,
        }
        self.settings = MetadataSettings(**settings)  # type: ignore[arg-type]
        self.memory = NoticeMemory(Path(self.settings.state))
        self.hook = NoticeHook(self.settings, self.memory, self.clock)

    def consider(self, *notices: Notice) -> None:
        """A look that found these."""
        now = self.clock.now()
        self.hook.consider([self.memory.with_deadline(notice, now) for notice in notices])

    def runs(self) -> list[dict[str, object]]:
        """What each run has noted."""
        lines = self.noted.read_text(encoding="utf-8").splitlines() if self.noted.exists() else []
        return [json.loads(line) for line in lines]

    def await_status(self, kind: str) -> int:
        """How the run for such a notice ended."""
        eventually(lambda: kind in self.hook.statuses, lambda: self.hook.statuses)
        return self.hook.statuses[kind]


def interruption(seconds: float = 120.0) -> Notice:
    """A spot interruption so long after the clock's beginning."""
    deadline = datetime(2026, 1, 5, tzinfo=UTC) + timedelta(seconds=seconds)
    return Notice(kind=NoticeKind.SPOT_INTERRUPTION, action="terminate", deadline=deadline)


REBALANCE = Notice(kind=NoticeKind.REBALANCE, action="rebalance", about="2026-01-05T00:00:00+00:00")


def test_it_knows_the_deadline(tmp_path: Path) -> None:
    """Kind, action, deadline in UTC and whole seconds left are in its environment; its process group is its own."""
    hooked = Hooked(tmp_path)
    hooked.clock.advance(10.5)
    hooked.consider(interruption())

    assert hooked.await_status("spot_interruption") == 0
    assert hooked.runs() == [
        {
            "GPUWATCH_NOTICE_KIND": "spot_interruption",
            "GPUWATCH_NOTICE_ACTION": "terminate",
            "GPUWATCH_NOTICE_DEADLINE": "2026-01-05T00:02:00Z",
            "GPUWATCH_NOTICE_SECONDS_LEFT": "109",
            "GPUWATCH_NOTICE_CHECKPOINT_FILE": str(tmp_path / "run" / "checkpoint"),
            "group": True,
        }
    ]


def test_it_runs_once_for_each_notice(tmp_path: Path) -> None:
    """However often the notice is seen; another deadline is another notice, for which it runs a minute later."""
    hooked = Hooked(tmp_path)
    for _ in range(20):
        hooked.consider(interruption())
        hooked.clock.advance(1)
    hooked.await_status("spot_interruption")
    hooked.clock.advance(60)
    hooked.consider(interruption(), interruption(180))
    eventually(lambda: len(hooked.runs()) == 2, hooked.runs)

    assert [run["GPUWATCH_NOTICE_DEADLINE"] for run in hooked.runs()] == [
        "2026-01-05T00:02:00Z",
        "2026-01-05T00:03:00Z",
    ]


def test_a_restarted_agent_remembers(tmp_path: Path) -> None:
    """Nor does it run again for a notice that an earlier agent has seen."""
    first = Hooked(tmp_path)
    first.consider(interruption())
    first.await_status("spot_interruption")
    second = Hooked(tmp_path)
    second.consider(interruption(), REBALANCE)
    second.await_status("rebalance")

    assert [run["GPUWATCH_NOTICE_KIND"] for run in second.runs()] == ["spot_interruption", "rebalance"]


def test_it_is_written_down_before_it_starts(tmp_path: Path) -> None:
    """An agent that dies in between does not start it a second time."""
    hooked = Hooked(tmp_path, on_interruption=("/nonexistent/checkpoint",))
    hooked.consider(interruption())
    written = json.loads(Path(hooked.settings.state).read_text(encoding="utf-8"))

    assert [entry["ran"] for entry in written.values()] == [True]


def test_a_notice_without_a_deadline_has_none_to_tell(tmp_path: Path) -> None:
    """A recommendation to rebalance: empty, not zero."""
    hooked = Hooked(tmp_path)
    hooked.consider(REBALANCE)
    hooked.await_status("rebalance")
    (run,) = hooked.runs()

    assert (run["GPUWATCH_NOTICE_DEADLINE"], run["GPUWATCH_NOTICE_SECONDS_LEFT"]) == ("", "")


def test_maintenance_in_two_weeks_is_not_yet(tmp_path: Path) -> None:
    """It starts on_interruption_lead before the deadline: a checkpoint of today would be stale by then."""
    hooked = Hooked(tmp_path, on_interruption_lead=3600.0)
    hooked.consider(interruption(3601))
    early = dict(hooked.hook.statuses), hooked.runs()
    hooked.clock.advance(1)
    hooked.consider(interruption(3601))

    assert early == ({}, [])
    assert hooked.await_status("spot_interruption") == 0


def test_after_the_deadline_it_is_too_late(tmp_path: Path) -> None:
    """A notice that has passed, or is now, starts nothing."""
    hooked = Hooked(tmp_path, on_interruption=("/nonexistent/checkpoint",))
    hooked.clock.advance(120)
    hooked.consider(interruption(119), interruption(120))

    assert hooked.hook.statuses == {}


def test_at_the_deadline_it_is_killed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With its whole group; looking for notices did not wait for it."""
    hooked = Hooked(tmp_path, SLEEPS)
    hooked.consider(interruption(1.0))
    eventually(lambda: hooked.noted.exists() and hooked.noted.read_text(), lambda: caplog.text)
    pid = int(hooked.noted.read_text())

    assert hooked.await_status("spot_interruption") == -signal.SIGKILL
    assert not is_running(pid)
    assert "was still running at its deadline and was killed" in caplog.text


def test_its_exit_status_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A failed checkpoint is a warning and a number."""
    hooked = Hooked(tmp_path, status=3)
    hooked.consider(interruption())

    assert hooked.await_status("spot_interruption") == 3
    eventually(lambda: "ended with status 3" in caplog.text, lambda: caplog.text)


def test_a_program_that_is_not_there(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """127, as a shell has it, and why."""
    hooked = Hooked(tmp_path, on_interruption=("/nonexistent/checkpoint",))
    hooked.consider(interruption())

    assert hooked.hook.statuses == {"spot_interruption": 127}
    assert "No such file or directory: '/nonexistent/checkpoint'" in caplog.text


def test_no_program_is_no_trouble(tmp_path: Path) -> None:
    """The default."""
    hooked = Hooked(tmp_path, on_interruption=())
    hooked.consider(interruption())

    assert hooked.hook.statuses == {}


# What is remembered.


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"a": 1}', b"\xff", b'{"a":' * 60_000])
def test_a_spoilt_memory_is_none(tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """It is said, forgotten and written anew."""
    path = tmp_path / "notices.json"
    path.write_bytes(content)
    memory = NoticeMemory(path)
    announced = memory.with_deadline(interruption(), datetime(2026, 1, 5, tzinfo=UTC))

    assert "cannot be read and is forgotten" in caplog.text
    assert list(json.loads(path.read_bytes())) == [announced.key]


def test_an_unwritable_memory_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The program still runs, and once in the life of this agent."""
    (tmp_path / "run").write_text("a file where a folder should be", encoding="utf-8")
    hooked = Hooked(tmp_path)
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            hooked.consider(interruption(), REBALANCE)
    hooked.await_status("rebalance")
    hooked.await_status("spot_interruption")

    assert caplog.text.count("on_interruption may run again") == 1
    assert len(hooked.runs()) == 2


def test_what_has_passed_is_forgotten_and_what_stands_is_not(tmp_path: Path) -> None:
    """The file does not grow for years."""
    memory = NoticeMemory(tmp_path / "notices.json")
    begin = datetime(2026, 1, 5, tzinfo=UTC)
    rows = [memory.with_deadline(interruption(seconds), begin) for seconds in (10, 20, 300)]
    memory.forget([rows[1].key], begin + timedelta(seconds=60))
    again = NoticeMemory(tmp_path / "notices.json")
    again.note_run(rows[1].key)

    assert list(json.loads((tmp_path / "notices.json").read_bytes())) == [rows[1].key, rows[2].key]
    assert again.ran(rows[1].key)
    assert not again.ran(rows[0].key)


def test_the_file_is_bounded(tmp_path: Path) -> None:
    """Whatever a service says."""
    memory = NoticeMemory(tmp_path / "notices.json")
    for seconds in range(300):
        memory.with_deadline(interruption(seconds), datetime(2026, 1, 5, tzinfo=UTC))

    assert len(json.loads((tmp_path / "notices.json").read_bytes())) == 256


# The whole agent.


def test_an_agent_tells_of_its_instance_and_runs_the_program(driver: StubDriver, tmp_path: Path) -> None:
    """From the metadata service to /metrics, /healthz and the program, once even over a restart; idle stays idle."""
    noted = tmp_path / "noted"
    script = f"echo $GPUWATCH_NOTICE_DEADLINE >> {noted}"
    with serving(Ec2()) as service:
        soon = datetime.fromtimestamp(int(tmp_path.stat().st_mtime) + 300, UTC)
        service.interrupt(f"{soon:%Y-%m-%dT%H:%M:%SZ}")
        settings: dict[str, Any] = {
            "metadata__provider": "aws",
            "metadata__endpoint": service.url,
            "metadata__interval": 0.2,
            "metadata__on_interruption": json.dumps(["/bin/sh", "-c", script]),
            "metadata__state": tmp_path / "notices.json",
        }
        for _ in range(2):
            with RunningAgent(driver.environment, **settings) as agent:
                eventually(lambda: "gpuwatch_instance_notice_info{" in agent.get("/metrics"), lambda: agent.log)
                eventually(noted.exists, lambda: agent.log)
                page, health = agent.get("/metrics"), agent.health()
                eventually(lambda: agent.verdict().activity.state.value == "idle", agent.verdict)

    assert noted.read_text() == f"{soon:%Y-%m-%dT%H:%M:%SZ}\n"
    assert 'gpuwatch_instance_info{instance_id="i-0123456789abcdef0",instance_type="p4d.24xlarge",' in page
    assert 'gpuwatch_node_info{node_id="node-1"} 1.0' in page
    assert health["instance"]["notices"][0]["kind"] == "spot_interruption"
    assert health["instance"]["metadata"] == {"state": "up"}


def test_a_node_without_a_name_is_called_as_its_cloud_calls_it(driver: StubDriver, tmp_path: Path) -> None:
    """The agent serves before the metadata service has answered, and takes the instance id when it has."""
    service = Gcp()
    service.silent.add("/computeMetadata/v1/instance/id")
    with serving(service):
        settings: dict[str, Any] = {
            "metadata__provider": "gcp",
            "metadata__endpoint": service.url,
            "metadata__interval": 0.2,
            "metadata__timeout": 20.0,
            "metadata__state": tmp_path / "notices.json",
        }
        with RunningAgent(driver.environment, node_id="", **settings) as agent:
            before = agent.get("/metrics")
            service.silent.clear()
            eventually(lambda: 'node_id="4567890123456789012"' in agent.get("/metrics"), lambda: agent.log)
            name = agent.verdict().node_id

    assert "gpuwatch_node_info" in before
    assert 'node_id="4567890123456789012"' not in before
    assert name == "4567890123456789012"
