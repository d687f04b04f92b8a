"""agent/instance: who the machine is and what its cloud gives notice of, asked of real services on loopback."""

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuwatch.agent.metadata import metrics
from gpuwatch.agent.metadata.base import Facts
from gpuwatch.model.cloud_notice import NoticeKind
from tests.support.fakes.metadata_host import GCE, REBALANCE, SCHEDULED, SPOT, Watch, Watched
from tests.support.fakes.metadata_services import TOKEN_PATH, Alibaba, Azure, Ec2, Gcp, Tencent, serving
from tests.support.nightly import examples


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
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


def test_a_capacity_block_is_told_as_such(watch: Watch) -> None:
    """How the machine is paid for; metadata has no end of it, and whatever is announced is still asked for."""
    machine = watch(Ec2(lifecycle="capacity-block"))
    status = machine.look()

    assert (status.up, status.facts.lifecycle, status.notices) == (True, "capacity_block", ())
    assert machine.asked(SPOT) == machine.asked(SCHEDULED) == 1


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


@given(appears=st.floats(0, 120), interval=st.floats(0.5, 5))
@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
    values = {(name, labels): value for name, labels, value in metrics.rows(status)}
    deadlines = {
        labels: datetime.fromtimestamp(value, UTC)
        for (name, labels), value in values.items()
        if name == "gpuwatch_instance_notice_deadline_timestamp_seconds"
    }

    assert {notice.kind.value for notice in status.notices} == {"spot_interruption", "rebalance", "maintenance"}
    assert len(status.notices) == 4
    assert values["gpuwatch_instance_notice_info", ("rebalance", "rebalance")] == 1
    assert deadlines == {
        ("spot_interruption", "stop"): datetime(2026, 1, 5, 0, 2, tzinfo=UTC),
        ("maintenance", "system-reboot"): datetime(2026, 1, 20, 9, 0, 43, tzinfo=UTC),
    }
