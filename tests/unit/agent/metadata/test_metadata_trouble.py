"""agent/instance: a metadata service that refuses, hangs or says what it should not is told, never taken for peace."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from gpuwatch.agent.metadata import metrics
from gpuwatch.agent.metadata.detect import PROVIDERS, service_of
from gpuwatch.agent.metadata.settings import MetadataSettings
from gpuwatch.agent.metadata.watcher import InstanceWatcher
from gpuwatch.runtime.clock import ManualClock
from tests.support.fakes.metadata_host import REBALANCE, SCHEDULED, SPOT, Watch, Watched
from tests.support.fakes.metadata_services import TOKEN_PATH, Ec2, serving


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    """Machines of one test."""
    with ExitStack() as stack:
        yield Watch(stack, tmp_path)


def test_a_lost_hop_is_told_with_its_remedy(watch: Watch, caplog: pytest.LogCaptureFixture) -> None:
    """In a container the token never arrives: said once, in the log and for good in /healthz, with what to change."""
    machine = watch(Ec2(), timeout=0.05, interval=1.0)
    machine.service.silent.add(TOKEN_PATH)
    with caplog.at_level(logging.INFO):
        status = machine.look(4)
    health = metrics.health(status)["instance"]

    assert status.trouble is not None
    assert (status.up, status.trouble.cause) == (False, "hop_limit")
    assert "HttpPutResponseHopLimit to 2 or more" in status.trouble.remedy
    assert "host's network" in str(health)
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_switched_off_metadata_is_told_with_its_remedy(watch: Watch, caplog: pytest.LogCaptureFixture) -> None:
    """HttpEndpoint=disabled answers 403; when it is switched on, the agent notices."""
    service = Ec2()
    machine = watch(service)
    service.enabled = False
    with caplog.at_level(logging.INFO):
        status = machine.look(3)
        service.enabled = True
        recovered = machine.look(6)

    assert status.trouble is not None
    assert (status.up, status.trouble.cause) == (False, "disabled")
    assert "HttpEndpoint to enabled" in status.trouble.remedy
    assert (recovered.up, recovered.facts.instance_id) == (True, "i-0123456789abcdef0")
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_a_token_that_ended_early_is_replaced(watch: Watch) -> None:
    """401 to an old token costs one more request and no notice."""
    service = Ec2()
    machine = watch(service)
    machine.look()
    service.tokens.clear()
    service.interrupt()
    status = machine.look()

    assert (status.up, len(status.notices)) == (True, 1)
    assert machine.asked(TOKEN_PATH) == 2


def test_a_token_is_renewed_before_it_ends(watch: Watch) -> None:
    """Six hours are never used up."""
    machine = watch(Ec2())
    machine.look()
    machine.clock.advance(21600 - 60)
    machine.look()

    assert machine.asked(TOKEN_PATH) == 2


@pytest.mark.parametrize(
    ("status", "cause"), [(500, "status"), (503, "throttled"), (429, "throttled"), (403, "disabled"), (302, "status")]
)
def test_a_failure_is_not_the_absence_of_a_notice(watch: Watch, status: int, cause: str) -> None:
    """What was announced stands, and metadata_up says that nobody knows more. Redirects are not followed."""
    service = Ec2()
    machine = watch(service)
    service.interrupt()
    machine.look()
    service.statuses[SPOT] = status
    after = machine.look()
    rows = {name: (labels, value) for name, labels, value in metrics.rows(after)}

    assert len(after.notices) == 1
    assert rows["gpuwatch_instance_metadata_up"] == ((), False)
    assert rows["gpuwatch_instance_metadata_down_info"] == ((cause,), 1)
    assert "gpuwatch_instance_notice_info" in rows


def test_one_bad_answer_does_not_hide_the_others(watch: Watch) -> None:
    """Garbage about rebalancing is told, and the maintenance after it is still seen."""
    machine = watch(Ec2())
    machine.service.documents[REBALANCE] = "<html>oops</html>"
    machine.service.documents[SCHEDULED] = '[{"NotBefore": "21 Jan 2026 09:00:43 GMT", "Code": "instance-stop"}]'
    status = machine.look()

    assert status.trouble is not None
    assert status.trouble.cause == "garbage"
    assert "<html>oops" in status.trouble.detail
    assert [notice.action for notice in status.notices] == ["instance-stop"]


def test_nobody_listens(tmp_path: Path) -> None:
    """A connection refused is a cause of its own."""
    with serving(Ec2()) as service:
        machine = Watched(service, tmp_path)
    trouble = machine.look().trouble

    assert trouble is not None
    assert trouble.cause == "unreachable"


def test_a_service_that_answers_late_holds_up_one_look_by_its_time_limits(watch: Watch) -> None:
    """Token and facts are there, the notices hang: that look ends in time, and the next ones find out again."""
    machine = watch(Ec2(), timeout=0.05)
    machine.service.silent.add(SPOT)
    status = machine.look()

    assert status.trouble is not None
    assert status.trouble.cause == "timeout"
    assert status.facts.instance_id == "i-0123456789abcdef0"
    assert (machine.asked(SPOT), machine.asked(SCHEDULED)) == (1, 0)


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://203.0.113.7",
        "http://metadata.example",
        "https://169.254.169.254",
        "http://127.0.0.1/x",
        "http://[::1",
        "x",
    ],
)
def test_beyond_the_link_nothing_is_asked(tmp_path: Path, endpoint: str) -> None:
    """A setting that would send requests elsewhere, or to a name, is refused in words."""
    settings = MetadataSettings(provider="aws", endpoint=endpoint, state=str(tmp_path / "s"))
    watcher = InstanceWatcher(settings, ManualClock())
    watcher.step()
    status = watcher.status()

    assert status is not None
    assert status.trouble is not None
    assert status.trouble.cause == "endpoint"
    assert "agent.metadata.endpoint" in status.trouble.detail


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_clouds_own_addresses_are_numbers(provider: str) -> None:
    """No name server is asked, which might hang or lie."""
    service = service_of(provider)

    assert service is not None
    assert service.endpoint in {"http://169.254.169.254", "http://169.254.0.23", "http://100.100.100.200"}


def test_a_flaw_in_the_look_is_told_and_does_not_end_it(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever goes wrong is trouble, never silence."""
    machine = watch(Ec2())

    def broken(_: object) -> None:
        raise RuntimeError("flaw")

    monkeypatch.setattr(machine.watcher._look, "once", lambda: broken(None))
    status = machine.look(2)

    assert (status.up, status.trouble is not None and status.trouble.cause) == (False, "error")
