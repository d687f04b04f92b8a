"""agent/instance: what each cloud's documents say, read by pure parsers. Tests name the page that shows the form."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.agent.metadata import alibaba, aws, azure, gcp, tencent
from gpuwatch.agent.metadata.base import (
    FactQuestion,
    Facts,
    Garbage,
    Notice,
    NoticeQuestion,
    facts_in,
    notices_in,
)
from gpuwatch.agent.metadata.detect import PROVIDERS, service_of
from gpuwatch.model.cloud_notice import NoticeKind
from tests.support.fakes.metadata_services import ALIBABA_DOCUMENT, AZURE_COMPUTE, EC2_DOCUMENT
from tests.support.nightly import examples

ME = Facts(name="trainer_3")


def one(notices: tuple[Notice, ...]) -> Notice:
    """The only one."""
    (notice,) = notices
    return notice


# EC2.


def test_ec2_tells_who_it_is() -> None:
    """AWS, "Retrieve the instance identity document"."""
    facts = aws.identity(EC2_DOCUMENT.encode(), Facts())

    assert facts == Facts(
        instance_id="i-0123456789abcdef0", instance_type="p4d.24xlarge", region="us-east-1", zone="us-east-1c"
    )


@pytest.mark.parametrize(
    ("said", "lifecycle"),
    [("spot", "spot"), ("on-demand\n", "on-demand"), ("capacity-block", "capacity_block"), ("scheduled", "scheduled")],
)
def test_ec2_tells_how_it_is_paid_for(said: str, lifecycle: str) -> None:
    """AWS, "Instance metadata categories", instance-life-cycle; words as the API's InstanceLifecycle has them."""
    assert aws.life_cycle(said.encode(), Facts()).lifecycle == lifecycle


@pytest.mark.parametrize("action", ["terminate", "stop", "hibernate"])
def test_ec2_interrupts(action: str) -> None:
    """AWS, "Spot Instance interruption notices", instance-action."""
    body = f'{{"action": "{action}", "time": "2017-09-18T08:22:00Z"}}'.encode()

    assert one(aws.instance_action(body, ME)) == Notice(
        kind=NoticeKind.SPOT_INTERRUPTION, action=action, deadline=datetime(2017, 9, 18, 8, 22, tzinfo=UTC)
    )


def test_ec2_recommends_to_rebalance() -> None:
    """AWS, "EC2 instance rebalance recommendations": when it was made; there is no deadline."""
    notice = one(aws.rebalance(b'{"noticeTime": "2020-10-27T08:22:00Z"}', ME))

    assert (notice.kind, notice.deadline, notice.lead_seconds) == (NoticeKind.REBALANCE, None, None)
    assert "2020-10-27T08:22:00" in notice.key


EC2_EVENTS = b"""[
  {
    "NotBefore" : "21 Jan 2019 09:00:43 GMT",
    "Code" : "system-reboot",
    "Description" : "scheduled reboot",
    "EventId" : "instance-event-0d59937288b749b32",
    "NotAfter" : "21 Jan 2019 09:17:23 GMT",
    "State" : "active"
  },
  {
    "NotBefore" : "20 Jan 2019 09:00:43 GMT",
    "Code" : "instance-stop",
    "Description" : "[Completed] stop",
    "EventId" : "instance-event-0d59937288b749b33",
    "State" : "completed"
  }
]"""


def test_ec2_schedules_maintenance() -> None:
    """AWS, "View scheduled events using instance metadata"; what is over is no notice."""
    assert one(aws.scheduled_events(EC2_EVENTS, ME)) == Notice(
        kind=NoticeKind.MAINTENANCE,
        action="system-reboot",
        deadline=datetime(2019, 1, 21, 9, 0, 43, tzinfo=UTC),
        about="instance-event-0d59937288b749b32",
    )
    assert aws.scheduled_events(b"[]", ME) == ()


# Azure.


def test_azure_tells_who_it_is() -> None:
    """Azure, "Azure Instance Metadata Service", instance/compute."""
    assert azure.compute(AZURE_COMPUTE.encode(), Facts()) == Facts(
        instance_id="13f56399-bd52-4150-9748-7190aae1ff21",
        instance_type="Standard_ND96isr_H100_v5",
        region="westeurope",
        zone="2",
        lifecycle="spot",
        name="trainer_3",
    )


def test_azure_outside_of_zones_is_in_none() -> None:
    """An empty zone is not known, and an empty priority is an ordinary machine."""
    body = AZURE_COMPUTE.replace('"zone": "2"', '"zone": ""').replace('"Spot"', '""')
    facts = azure.compute(body.encode(), Facts())

    assert (facts.zone, facts.lifecycle) == (None, "on-demand")


def azure_event(kind: str, status: str = "Scheduled", before: str = "Mon, 19 Sep 2016 18:29:47 GMT") -> bytes:
    """Azure, "Scheduled Events": one event for two of a scale set's machines."""
    return f"""{{"DocumentIncarnation": 2, "Events": [{{"EventId": "602d9444-d2cd-49c7-8624-8643e7171297",
    "EventStatus": "{status}", "EventType": "{kind}", "ResourceType": "VirtualMachine",
    "Resources": ["trainer_3", "trainer_9"], "NotBefore": "{before}", "Description": "", "EventSource": "Platform",
    "DurationInSeconds": -1}}]}}""".encode()


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        ("Preempt", NoticeKind.SPOT_INTERRUPTION),
        ("Terminate", NoticeKind.TERMINATION),
        ("Freeze", NoticeKind.MAINTENANCE),
        ("Reboot", NoticeKind.MAINTENANCE),
        ("Redeploy", NoticeKind.MAINTENANCE),
    ],
)
def test_azure_schedules_events(event: str, kind: NoticeKind) -> None:
    """Each type is a kind of notice, with Azure's word for it and its time."""
    notice = one(azure.scheduled_events(azure_event(event), ME))

    assert (notice.kind, notice.action) == (kind, event)
    assert notice.deadline == datetime(2016, 9, 19, 18, 29, 47, tzinfo=UTC)


def test_azures_events_of_others_are_not_ours() -> None:
    """The document lists what happens to the whole set."""
    assert azure.scheduled_events(azure_event("Reboot"), Facts(name="trainer_1")) == ()


def test_azures_events_name_this_machine_in_any_case() -> None:
    """Azure does not keep the case of names."""
    assert len(azure.scheduled_events(azure_event("Preempt"), Facts(name="TRAINER_9"))) == 1


def test_azures_events_without_a_name_are_not_known() -> None:
    """If it was not told which machine this is, an event is neither ours nor nobody's."""
    (question,) = azure.AZURE.notices
    found = notices_in(question, azure_event("Reboot"), Facts())

    assert isinstance(found, Garbage)
    assert "but the name of this machine is missing" in found.words


def test_azures_event_that_has_begun_is_now() -> None:
    """It names no time any more."""
    notice = one(azure.scheduled_events(azure_event("Freeze", "Started", ""), ME))

    assert (notice.deadline, notice.lead_seconds) == (None, 0.0)


# Google.


def test_google_preempts_thirty_seconds_later() -> None:
    """Google, "Spot VMs": the key says TRUE, and no time."""
    notice = one(gcp.preemption_notices(b"TRUE", ME))

    assert (notice.kind, notice.deadline, notice.lead_seconds) == (NoticeKind.SPOT_INTERRUPTION, None, 30.0)
    assert gcp.preemption_notices(b"FALSE\n", ME) == ()


@pytest.mark.parametrize(
    ("event", "lead"), [("TERMINATE_ON_HOST_MAINTENANCE", 3600.0), ("MIGRATE_ON_HOST_MAINTENANCE", 60.0)]
)
def test_google_maintains_hosts(event: str, lead: float) -> None:
    """Google, "Handling GPU host maintenance events": an hour for machines with GPUs, a minute for a migration."""
    assert one(gcp.maintenance_event(event.encode(), ME)).lead_seconds == lead
    assert gcp.maintenance_event(b"NONE", ME) == ()


@pytest.mark.parametrize("key", ["windowStartTime", "window_start_time"])
def test_google_plans_maintenance(key: str) -> None:
    """Google, "Monitor and plan for a host maintenance event": the start of the window, in either spelling."""
    body = f'{{"canReschedule": true, "{key}": "2024-12-01T19:00:01Z", "type": "SCHEDULED"}}'.encode()

    assert one(gcp.upcoming_maintenance(body, ME)).deadline == datetime(2024, 12, 1, 19, 0, 1, tzinfo=UTC)


@pytest.mark.parametrize("body", [b"{}", b"NONE", b'{"maintenance_status": "COMPLETE", "window_start_time": "x"}'])
def test_google_plans_nothing(body: bytes) -> None:
    """Empty, NONE, or already done."""
    assert gcp.upcoming_maintenance(body, ME) == ()


# Alibaba and Tencent.


def test_alibaba_tells_who_it_is() -> None:
    """Alibaba, "Instance metadata", the identity document; how it is paid for is not in it."""
    assert alibaba.identity(ALIBABA_DOCUMENT.encode(), Facts()) == Facts(
        instance_id="i-bp13znx0m0me8cquu0aa",
        instance_type="ecs.gn7i-c16g1.4xlarge",
        region="cn-hangzhou",
        zone="cn-hangzhou-i",
    )


def test_alibabas_time_is_utc() -> None:
    """Alibaba, "Instance metadata", instance/spot/termination-time."""
    notice = one(alibaba.termination_time(b"2020-04-07T17:03:00Z", ME))

    assert notice.deadline == datetime(2020, 4, 7, 17, 3, tzinfo=UTC)


def test_tencents_time_is_eight_hours_ahead_of_utc() -> None:
    """Tencent, "Querying the Reclamation Status of a Spot Instance": read as UTC, it would come 8 h late."""
    notice = one(tencent.termination_time(b"2018-08-18 12:05:33\n", ME))

    assert notice.deadline == datetime(2018, 8, 18, 4, 5, 33, tzinfo=UTC)


@pytest.mark.parametrize(
    ("said", "lifecycle"), [("SPOTPAID", "spot"), ("POSTPAID_BY_HOUR", "on-demand"), ("CDHPAID", "cdhpaid")]
)
def test_tencent_tells_how_it_is_paid_for(said: str, lifecycle: str) -> None:
    """A word that is not known here is kept."""
    assert tencent.charge_type(said.encode(), Facts()).lifecycle == lifecycle


# Any cloud.


QUESTIONS = [
    pytest.param(question, id=f"{service.provider}{question.path}")
    for service in filter(None, map(service_of, PROVIDERS))
    for question in (*service.facts, *service.notices)
]

KEYS = st.sampled_from(
    ["action", "time", "noticeTime", "Code", "NotBefore", "Events", "EventType", "Resources", "windowStartTime"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(KEYS | st.text(), inner),
    max_leaves=8,
)


@pytest.mark.parametrize("question", QUESTIONS)
@settings(max_examples=examples(50))
@given(data=st.data())
def test_garbage_is_told_in_words(question: FactQuestion | NoticeQuestion, data: st.DataObject) -> None:
    """Whatever a service says, a parser gives facts, notices, or words; never an exception."""
    documents = VALUES.map(lambda value: json.dumps(value).encode())
    body = data.draw(st.binary() | st.text().map(str.encode) | documents)
    if isinstance(question, FactQuestion):
        facts = facts_in(question, body, ME)

        assert isinstance(facts, Facts) or facts.words
    else:
        found = notices_in(question, body, ME)

        assert found.words if isinstance(found, Garbage) else all(notice.key for notice in found)


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("body", [b"", b"[" * 60_000, b'{"a":' * 60_000, b"\xff\xfe", b"0" * 5000])
def test_nasty_answers_are_told_in_words(question: FactQuestion | NoticeQuestion, body: bytes) -> None:
    """Empty, bottomless, not text, no time, endless: words that name the path and are short enough to be read."""
    found = facts_in(question, body, ME) if isinstance(question, FactQuestion) else notices_in(question, body, ME)

    assert isinstance(found, Garbage)
    assert found.words.startswith(f"{question.path} says b'")
    assert len(found.words) < 600


@pytest.mark.parametrize(
    ("parse", "body"),
    [
        (aws.instance_action, b'{"action": "terminate", "time": "0001-01-01T00:00:00+23:59"}'),
        (alibaba.termination_time, b"0001-01-01T00:00:00+0100"),
        (alibaba.termination_time, b"9999-99-99T99:99:99Z"),
        (tencent.termination_time, b"2018-08-18 12:05:33 +0000"),
        (aws.instance_action, b'{"action": "terminate", "time": "2026-01-05T00:02:00"}'),
    ],
)
def test_a_time_must_be_one_and_name_its_zone(parse: object, body: bytes) -> None:
    """Before the year 1, or without a zone, it is garbage."""
    question = NoticeQuestion(path="/p", parse=parse)  # type: ignore[arg-type]

    assert isinstance(notices_in(question, body, ME), Garbage)


@pytest.mark.parametrize("text", ["a\nb", "x" * 300, 'i-1\x00"'])
def test_what_nobody_could_read_becomes_no_label(text: str) -> None:
    """A name is printable and of a sensible length."""
    (question, *_) = tencent.TENCENT.facts

    assert isinstance(facts_in(question, text.encode(), Facts()), Garbage)


# Which cloud.


BOARDS = {
    "aws": {"sys_vendor": "Amazon EC2", "board_asset_tag": "i-0123456789abcdef0", "product_name": "p4d.24xlarge"},
    "aws on Xen": {"sys_vendor": "Xen", "product_name": "HVM domU", "bios_version": "4.11.amazon"},
    "azure": {"sys_vendor": "Microsoft Corporation", "chassis_asset_tag": "7783-7084-3265-9085-8269-3286-77"},
    "gcp": {"sys_vendor": "Google", "product_name": "Google Compute Engine"},
    "alibaba": {"sys_vendor": "Alibaba Cloud", "product_name": "Alibaba Cloud ECS"},
    "tencent": {"sys_vendor": "Tencent Cloud", "product_name": "CVM"},
    "Hyper-V": {"sys_vendor": "Microsoft Corporation", "product_name": "Virtual Machine"},
    "Xen": {"sys_vendor": "Xen", "product_name": "HVM domU", "bios_version": "4.17"},
    "bare metal": {"sys_vendor": "Supermicro", "board_asset_tag": "i-am-a-tag", "chassis_asset_tag": "None"},
    "no DMI": {},
}


@pytest.mark.parametrize("board", BOARDS)
def test_the_board_tells_the_cloud(tmp_path: Path, board: str) -> None:
    """By its marks alone; a machine without one has no service to ask."""
    for name, text in BOARDS[board].items():
        (tmp_path / name).write_text(f"{text}\n", encoding="utf-8")
    service = service_of("auto", tmp_path)
    cloud = board.partition(" ")[0]

    assert (service.provider if service is not None else None) == (cloud if cloud in PROVIDERS else None)


def test_the_setting_goes_before_the_board(tmp_path: Path) -> None:
    """`none` asks nobody; a name asks that cloud."""
    (tmp_path / "sys_vendor").write_text("Amazon EC2\n", encoding="utf-8")

    assert service_of("none", tmp_path) is None
    assert service_of("gcp", tmp_path) is gcp.GCP
