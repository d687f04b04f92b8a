"""What an agent tells the controller of its cloud's notices: in its verdict, with the newest checkpoint."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from gpuwatch.agent.metadata.hook import checkpoint_in
from gpuwatch.agent.metadata.watcher import InstanceStatus
from gpuwatch.controller.observe.scrape import read_answer
from gpuwatch.model.cloud_notice import CloudNotice
from tests.support.builders.fleet import NOW, a_node, a_verdict
from tests.support.fakes.metadata_host import SPOT, Watch
from tests.support.fakes.metadata_services import Ec2
from tests.support.real.agents import eventually

AT = datetime(2026, 1, 5, tzinfo=UTC)
TAKEN = '{"action": "terminate", "time": "2026-01-05T00:02:00Z"}'
SAYS = "import os, sys; open(os.environ['GPUWATCH_NOTICE_CHECKPOINT_FILE'], 'w').write(sys.argv[1])"


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    """Machines of one test."""
    with ExitStack() as stack:
        yield Watch(stack, tmp_path)


def test_a_notice_is_told_with_its_first_sight(watch: Watch) -> None:
    """Also after a restart of the agent; before the first look nobody knows anything."""
    service = Ec2()
    machine = watch(service)
    assert machine.watcher.notices() is None
    machine.look()
    assert machine.watcher.notices() == ()
    service.documents[SPOT] = TAKEN
    machine.look()
    told = machine.watcher.notices()
    assert told is not None
    (notice,) = told
    assert (notice.kind, notice.action, notice.deadline) == (
        "spot_interruption",
        "terminate",
        AT + timedelta(minutes=2),
    )
    again = watch(service)
    again.clock.advance(60.0)
    again.look()
    assert again.watcher.notices() == (notice,)


def test_silence_of_the_service_is_no_word(watch: Watch) -> None:
    """What is not known is None, and never an empty list."""
    service = Ec2()
    service.enabled = False
    machine = watch(service)
    machine.look()
    assert machine.watcher.notices() is None


def test_what_stands_is_told_while_the_service_is_silent() -> None:
    """A known notice is known until the service says otherwise."""
    assert InstanceStatus(provider="aws", up=False).told is None
    assert InstanceStatus(provider="aws", up=True).told == ()


def test_the_program_says_when_the_work_was_saved(watch: Watch) -> None:
    """It writes one line to the file that it is told; the time comes with the notice."""
    service = Ec2()
    service.documents[SPOT] = TAKEN
    machine = watch(service, on_interruption=(sys.executable, "-c", SAYS, "checkpoint=2026-01-04T23:50:00Z\n"))
    machine.look()
    eventually(lambda: getattr(machine.watcher.status(), "checkpoint_at", None) is not None, machine.watcher.status)
    told = machine.watcher.notices()
    assert told is not None
    assert told[0].checkpoint_at == AT - timedelta(minutes=10)


@pytest.mark.parametrize(
    "words", ["", "checkpoint=soon", "checkpoint=2026-01-04T23:50:00", "checkpoint=2026-01-06T00:00:00Z", "\xff\n"]
)
def test_what_is_no_past_time_is_no_checkpoint(words: str, tmp_path: Path) -> None:
    """Nothing, other words, a time without a zone, one that has not come yet, what is no text."""
    path = tmp_path / "checkpoint"
    path.write_bytes(words.encode("latin-1"))
    assert checkpoint_in(path, AT) is None


@pytest.mark.parametrize("words", ["checkpoint=2026-01-04T23:50:00Z\n", "2026-01-05T00:50:00+01:00"])
def test_the_newest_word_counts(words: str, tmp_path: Path) -> None:
    """With or without its name, in any zone."""
    path = tmp_path / "checkpoint"
    path.write_text(f"saving\n{words}", encoding="utf-8")
    assert checkpoint_in(path, AT) == AT - timedelta(minutes=10)


def test_controllers_of_other_versions_understand_the_verdict() -> None:
    """One without the field is an older agent's: nothing is known; a kind of a later agent is a word."""
    node, verdict = a_node(), a_verdict()
    notice = CloudNotice(kind="meteorite", action="impact", deadline=None, seen_at=NOW)
    old: dict[str, object] = msgspec.to_builtins(verdict)
    del old["cloud_notices"]
    assert read_answer(msgspec.json.encode(old), node, NOW, 60.0).verdict == verdict
    new = {**old, "cloud_notices": [msgspec.to_builtins(notice)], "later": 1}
    found = read_answer(msgspec.json.encode(new), node, NOW, 60.0).verdict
    assert found is not None
    assert found.cloud_notices == (notice,)
