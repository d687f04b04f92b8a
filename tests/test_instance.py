"""agent/instance: asking real metadata services on loopback, on a clock that the test moves."""

import logging
import re
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuwatch.agent.core import AgentCore
from gpuwatch.agent.exporter import Exporter
from gpuwatch.agent.instance import told
from gpuwatch.agent.instance.detect import SERVICES
from gpuwatch.agent.instance.knobs import InstanceKnobs
from gpuwatch.agent.instance.protocol import Facts, NoticeKind
from gpuwatch.agent.instance.watcher import InstanceStatus, InstanceWatcher
from gpuwatch.agent.knobs import AgentKnobs
from gpuwatch.clock import ManualClock
from tests.metadata_services import (
    TOKEN_PATH,
    Alibaba,
    Azure,
    Ec2,
    Gcp,
    MetadataService,
    Tencent,
    serving,
)

SPOT = "/latest/meta-data/spot/instance-action"
REBALANCE = "/latest/meta-data/events/recommendations/rebalance"
SCHEDULED = "/latest/meta-data/events/maintenance/scheduled"
EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"
GCE = "/computeMetadata/v1/instance"


class Watched:
    """A machine of one cloud; `look` looks as the agent's thread does, and lets an interval pass."""

    def __init__(self, service: MetadataService, folder: Path, **knobs: object) -> None:
        """Its cloud is the one whose service it is, its clock stands at 2026-01-05 00:00:00 UTC."""
        self.clock = ManualClock()
        self.service = service
        settings: dict[str, object] = {"provider": type(service).__name__.lower().replace("ec2", "aws")}
        settings |= {"endpoint": service.url, "state": str(folder / "notices.json"), "timeout": 5.0, **knobs}
        self.watcher = InstanceWatcher(InstanceKnobs(**settings), self.clock)  # type: ignore[arg-type]

    def look(self, times: int = 1) -> InstanceStatus:
        """What is known after so many looks."""
        for _ in range(times):
            self.clock.advance(self.watcher.step())
        status = self.watcher.status()
        assert status is not None
        return status

    def asked(self, path: str) -> int:
        """How often the service was asked for it."""
        return [asked for _, asked in self.service.asked].count(path)


class Watch:
    """Makes watched machines whose services end with the test."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self.stack, self.folder = stack, folder

    def __call__(self, service: MetadataService, **knobs: object) -> Watched:
        """One machine."""
        return Watched(self.stack.enter_context(serving(service)), self.folder, **knobs)


@pytest.fixture
def watch(tmp_path: Path) -> Watch:  # type: ignore[misc]
    """Machines of one test."""
    with ExitStack() as stack:
        yield Watch(stack, tmp_path)


# Who it is.


@pytest.mark.parametrize(
    ("service", "facts"),
    [
        (
            Ec2,
            Facts(
                instance_id="i-0123456789abcdef0",
                instance_type="p4d.24xlarge",
                region="us-east-1",
                zone="us-east-1c",
                lifecycle="spot",
            ),
        ),
        (
            Azure,
            Facts(
                instance_id="13f56399-bd52-4150-9748-7190aae1ff21",
                instance_type="Standard_ND96isr_H100_v5",
                region="westeurope",
                zone="2",
                lifecycle="spot",
                name="trainer_3",
            ),
        ),
        (
            Gcp,
            Facts(
                instance_id="4567890123456789012",
                instance_type="a2-highgpu-8g",
                region="us-central1",
                zone="us-central1-a",
                lifecycle="spot",
            ),
        ),
        (
            Alibaba,
            Facts(
                instance_id="i-bp13znx0m0me8cquu0aa",
                instance_type="ecs.gn7i-c16g1.4xlarge",
                region="cn-hangzhou",
                zone="cn-hangzhou-i",
            ),
        ),
        (
            Tencent,
            Facts(
                instance_id="ins-5c7k2m1a",
                instance_type="GT4.41XLARGE948",
                region="ap-guangzhou",
                zone="ap-guangzhou-3",
                lifecycle="spot",
            ),
        ),
    ],
)
def test_every_cloud_tells_who_the_machine_is(watch: Watch, service: type, facts: Facts) -> None:
    """Each service gets the headers and tokens that it insists on, and there is no notice."""
    status = watch(service()).look()

    assert status.facts == facts
    assert (status.up, status.trouble, status.notices) == (True, None, ())


def test_facts_are_asked_once_and_notices_at_every_look(watch: Watch) -> None:
    """What does not change is not asked again, nor is the token."""
    machine = watch(Ec2())
    machine.look(100)

    assert machine.asked("/latest/dynamic/instance-identity/document") == 1
    assert machine.asked(SPOT) == machine.asked(REBALANCE) == machine.asked(SCHEDULED) == 100
    assert machine.asked(TOKEN_PATH) == 1


def test_a_fact_that_is_missing_is_asked_again_after_ten_minutes(watch: Watch) -> None:
    """A young machine may not know everything yet."""
    machine = watch(Ec2())
    lifecycle = machine.service.documents.pop("/latest/meta-data/instance-life-cycle")
    before = machine.look(119)
    machine.service.documents["/latest/meta-data/instance-life-cycle"] = lifecycle
    after = machine.look(3)

    assert (before.facts.lifecycle, before.up) == (None, True)
    assert after.facts.lifecycle == "spot"
    assert machine.asked("/latest/meta-data/instance-life-cycle") == 2


def test_on_demand_machines_are_not_asked_about_spot(watch: Watch) -> None:
    """One request each five seconds is enough there."""
    machine = watch(Ec2(lifecycle="on-demand"))
    machine.look(10)

    assert (machine.asked(SPOT), machine.asked(REBALANCE), machine.asked(SCHEDULED)) == (0, 0, 10)


def test_alibaba_without_tokens_is_asked_without(watch: Watch) -> None:
    """Normal mode hands none out; it is not asked for one each time."""
    machine = watch(Alibaba(hardened=False))
    status = machine.look(100)

    assert status.up
    assert machine.asked(TOKEN_PATH) == 1


# Notices.


def test_an_interruption_is_known_with_its_deadline(watch: Watch) -> None:
    """From the look after its appearance until the cloud takes it back."""
    machine = watch(Ec2())
    before = machine.look()
    machine.service.documents[SPOT] = '{"action": "terminate", "time": "2026-01-05T00:02:07Z"}'
    (notice,) = machine.look().notices
    del machine.service.documents[SPOT]
    after = machine.look()

    assert before.notices == after.notices == ()
    assert (notice.kind, notice.action) == (NoticeKind.SPOT_INTERRUPTION, "terminate")
    assert notice.deadline == datetime(2026, 1, 5, 0, 2, 7, tzinfo=UTC)


@given(appears=st.floats(0, 600), interval=st.floats(0.5, 5))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_notice_is_known_within_five_seconds(tmp_path: Path, appears: float, interval: float) -> None:
    """Whenever it appears between two looks, the next look begins in time and finds it."""
    with serving(Ec2()) as service:
        machine = Watched(service, tmp_path, interval=interval)
        while machine.clock.monotonic() <= appears:
            wait = machine.watcher.step()
            machine.clock.advance(wait)
            if machine.clock.monotonic() > appears:
                service.interrupt("2026-01-05T01:00:00Z")
        known = machine.clock.monotonic()
        machine.watcher.step()
        status = machine.watcher.status()

    assert status is not None
    assert [notice.kind for notice in status.notices] == [NoticeKind.SPOT_INTERRUPTION]
    assert known - appears <= 5.0 + 1e-6


def test_a_deadline_that_is_not_named_counts_from_first_sight(watch: Watch) -> None:
    """Google's 30 seconds run, they do not start again at each look, nor with a new agent."""
    machine = watch(Gcp())
    machine.look(2)
    machine.service.documents[f"{GCE}/preempted"] = "TRUE"
    (first,) = machine.look().notices
    (second,) = machine.look().notices
    again = watch(Gcp())
    again.service.documents[f"{GCE}/preempted"] = "TRUE"
    (after_restart,) = again.look().notices

    assert first.deadline == second.deadline == after_restart.deadline == datetime(2026, 1, 5, 0, 0, 40, tzinfo=UTC)


def test_maintenance_that_comes_again_is_another_one(watch: Watch) -> None:
    """After the first has passed and is announced no more, the second has a deadline of its own."""
    machine = watch(Gcp())
    machine.service.documents[f"{GCE}/maintenance-event"] = "TERMINATE_ON_HOST_MAINTENANCE"
    (first,) = machine.look().notices
    machine.clock.advance(3600)
    machine.service.documents[f"{GCE}/maintenance-event"] = "NONE"
    assert machine.look().notices == ()
    machine.service.documents[f"{GCE}/maintenance-event"] = "TERMINATE_ON_HOST_MAINTENANCE"
    (second,) = machine.look().notices

    assert first.deadline == datetime(2026, 1, 5, 1, 0, 0, tzinfo=UTC)
    assert second.deadline == datetime(2026, 1, 5, 2, 0, 10, tzinfo=UTC)


def test_several_notices_stand_together(watch: Watch) -> None:
    """A recommendation, a reboot and the interruption itself."""
    machine = watch(Ec2())
    machine.service.documents[REBALANCE] = '{"noticeTime": "2026-01-05T00:00:00Z"}'
    machine.service.documents[SCHEDULED] = (
        '[{"NotBefore": "21 Jan 2026 09:00:43 GMT", "Code": "system-reboot", "EventId": "e-1", "State": "active"},'
        ' {"NotBefore": "20 Jan 2026 09:00:43 GMT", "Code": "system-reboot", "EventId": "e-2", "State": "active"}]'
    )
    machine.service.documents[SPOT] = '{"action": "stop", "time": "2026-01-05T00:02:00Z"}'
    status = machine.look()
    values = {(name, labels): value for name, labels, value in told.rows(status)}
    deadlines = {
        labels: datetime.fromtimestamp(value, UTC)
        for (name, labels), value in values.items()
        if name == "gpuwatch_instance_notice_deadline_timestamp_seconds"
    }

    assert {notice.kind.value for notice in status.notices} == {"spot_interruption", "rebalance", "maintenance"}
    assert len(status.notices) == 4
    assert values["gpuwatch_instance_notice", ("rebalance", "rebalance")] == 1
    assert deadlines == {
        ("spot_interruption", "stop"): datetime(2026, 1, 5, 0, 2, tzinfo=UTC),
        ("maintenance", "system-reboot"): datetime(2026, 1, 20, 9, 0, 43, tzinfo=UTC),
    }


# What goes wrong.


def test_a_lost_hop_is_told_with_its_remedy(watch: Watch, caplog: pytest.LogCaptureFixture) -> None:
    """In a container the token never arrives: said once, in the log and for good in /healthz, with what to change."""
    machine = watch(Ec2(), timeout=0.05, interval=1.0)
    machine.service.silent.add(TOKEN_PATH)
    with caplog.at_level(logging.INFO):
        status = machine.look(4)
    health = told.health(status)["instance"]

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
    rows = {name: (labels, value) for name, labels, value in told.rows(after)}

    assert len(after.notices) == 1
    assert rows["gpuwatch_instance_metadata_up"] == ((), False)
    assert rows["gpuwatch_instance_metadata_down_info"] == ((cause,), 1)
    assert "gpuwatch_instance_notice" in rows


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
    knobs = InstanceKnobs(provider="aws", endpoint=endpoint, state=str(tmp_path / "s"))
    watcher = InstanceWatcher(knobs, ManualClock())
    watcher.step()
    status = watcher.status()

    assert status is not None
    assert status.trouble is not None
    assert status.trouble.cause == "endpoint"
    assert "agent.instance.endpoint" in status.trouble.detail


@pytest.mark.parametrize("provider", sorted(SERVICES))
def test_the_clouds_own_addresses_are_numbers(provider: str) -> None:
    """No name server is asked, which might hang or lie."""
    assert SERVICES[provider].endpoint in {"http://169.254.169.254", "http://169.254.0.23", "http://100.100.100.200"}


def test_a_flaw_in_the_look_is_told_and_does_not_end_it(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever goes wrong is trouble, never silence."""
    machine = watch(Ec2())

    def broken(_: object) -> None:
        raise RuntimeError("flaw")

    monkeypatch.setattr(machine.watcher._look, "once", lambda: broken(None))
    status = machine.look(2)

    assert (status.up, status.trouble is not None and status.trouble.cause) == (False, "error")


# What is told of it.


def scrape(instance: Callable[[], InstanceStatus | None], clock: ManualClock) -> str:
    """A page of an agent that has read no GPU."""
    knobs = AgentKnobs()
    core = AgentCore(node_id="n", clock=clock, rules=knobs.activity, interval_seconds=1.0, stale_after_seconds=8.0)
    exporter = Exporter(core, clock, node_id="n", top_processes=1, own_process=False, instance=instance)
    return exporter.page("").body.decode()


def test_a_machine_of_ones_own_tells_nothing(tmp_path: Path) -> None:
    """No cloud on the board: nobody is asked, no series, nothing in /healthz, no complaint."""
    watcher = InstanceWatcher(InstanceKnobs(), ManualClock(), dmi=tmp_path)
    watcher.start(lambda _: None)
    watcher.step()
    watcher.stop()

    assert watcher.status() is None
    assert told.health(None) == {}
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
    knobs = AgentKnobs()
    core = AgentCore(node_id="n", clock=clock, rules=knobs.activity, interval_seconds=1.0, stale_after_seconds=8.0)
    exporter = Exporter(core, clock, node_id="n", top_processes=1, own_process=False, instance=machine.watcher.status)
    machine.look()
    before = exporter.page("").body
    machine.service.documents[SPOT] = '{"action": "stop", "time": "2026-01-05T00:02:00Z"}'
    machine.look()

    assert b"gpuwatch_instance_notice{" not in before
    assert b"gpuwatch_instance_notice{" in exporter.page("").body


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
    shown = [scrape(machine.watcher.status, machine.clock), str(told.health(status)), caplog.text, repr(status)]
    shown += [path.read_text(encoding="utf-8") for path in watch.folder.iterdir()]

    assert [text for text in shown if token in text] == []
