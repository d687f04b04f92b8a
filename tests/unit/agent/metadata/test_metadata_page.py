"""agent/instance: what the agent's page, /healthz and log show of the machine; the token is in none of them."""

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpuwatch.agent.exporter.exporter import Exporter
from gpuwatch.agent.metadata import metrics
from gpuwatch.agent.metadata.settings import MetadataSettings
from gpuwatch.agent.metadata.watcher import InstanceStatus, InstanceWatcher
from gpuwatch.agent.settings import AgentSettings
from gpuwatch.agent.state import AgentCore
from gpuwatch.runtime.clock import ManualClock
from tests.support.fakes.metadata_host import REBALANCE, SPOT, Watch
from tests.support.fakes.metadata_services import Alibaba, Ec2


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    """Machines of one test."""
    with ExitStack() as stack:
        yield Watch(stack, tmp_path)


def scrape(instance: Callable[[], InstanceStatus | None], clock: ManualClock) -> str:
    """A page of an agent that has read no GPU."""
    settings = AgentSettings()
    core = AgentCore(node_id="n", clock=clock, rules=settings.activity, interval_seconds=1.0, stale_after_seconds=8.0)
    exporter = Exporter(core, clock, node_id="n", top_processes=1, own_process=False, instance=instance)
    return exporter.page("").body.decode()


def test_a_machine_of_ones_own_tells_nothing(tmp_path: Path) -> None:
    """No cloud on the board: nobody is asked, no series, nothing in /healthz, no complaint."""
    watcher = InstanceWatcher(MetadataSettings(), ManualClock(), dmi=tmp_path)
    watcher.start(lambda _: None)
    watcher.step()
    watcher.stop()

    assert watcher.status() is None
    assert metrics.health(None) == {}
    assert "gpuwatch_instance" not in scrape(watcher.status, ManualClock())


def test_the_page_shows_it(watch: Watch) -> None:
    """Facts on one info metric; a fact that is not known has no label; the notice and its deadline."""
    machine = watch(Alibaba())
    machine.service.documents["/latest/meta-data/instance/spot/termination-time"] = "2026-01-05T00:05:00Z"
    machine.look()
    page = scrape(machine.watcher.status, machine.clock)
    at = datetime(2026, 1, 5, 0, 5, tzinfo=UTC).timestamp()

    assert (
        'gpuwatch_instance_info{instance_id="i-bp13znx0m0me8cquu0aa",instance_type="ecs.gn7i-c16g1.4xlarge",'
        'provider="alibaba",region="cn-hangzhou",zone="cn-hangzhou-i"} 1.0'
    ) in page
    deadline = re.search(r'notice_deadline_timestamp_seconds\{action="release",kind="spot_interruption"\} (\S+)', page)

    assert deadline is not None
    assert float(deadline[1]) == at
    assert "gpuwatch_instance_metadata_up 1.0" in page
    assert "lifecycle=" not in page


def test_a_page_is_made_again_for_a_notice(watch: Watch) -> None:
    """It is not held back by a page that is kept for a second."""
    machine = watch(Ec2())
    clock = ManualClock()
    settings = AgentSettings()
    core = AgentCore(node_id="n", clock=clock, rules=settings.activity, interval_seconds=1.0, stale_after_seconds=8.0)
    exporter = Exporter(core, clock, node_id="n", top_processes=1, own_process=False, instance=machine.watcher.status)
    machine.look()
    before = exporter.page("").body
    machine.service.documents[SPOT] = '{"action": "stop", "time": "2026-01-05T00:02:00Z"}'
    machine.look()

    assert b"gpuwatch_instance_notice_info{" not in before
    assert b"gpuwatch_instance_notice_info{" in exporter.page("").body


def test_the_token_is_nowhere(watch: Watch, caplog: pytest.LogCaptureFixture) -> None:
    """Not on the page, in /healthz, in the log, or in the state file."""
    service = Ec2()
    machine = watch(service)
    service.interrupt()
    with caplog.at_level(logging.DEBUG):
        status = machine.look()
        service.documents[REBALANCE] = "garbage"
        status = machine.look()
    (token,) = service.tokens
    shown = [scrape(machine.watcher.status, machine.clock), str(metrics.health(status)), caplog.text, repr(status)]
    shown += [path.read_text(encoding="utf-8") for path in watch.folder.iterdir()]

    assert [text for text in shown if token in text] == []
