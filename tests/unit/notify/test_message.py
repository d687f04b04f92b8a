"""Messages: who, what, when, why and what prevents it, in every form; and nothing in a name that does anything."""

import re
import shlex
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from email.message import EmailMessage
from typing import Any
from xml.etree import ElementTree as ET
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.clouds.named import start_command
from gpuwatch.clouds.settings import CloudSettings
from gpuwatch.guard import Limits, Rulebook
from gpuwatch.model.activity import LocalDisks, State, WorkOwner
from gpuwatch.model.decision import Reason, Verb
from gpuwatch.model.fleet import NodeReport, NodeState
from gpuwatch.model.promise import Notice
from gpuwatch.notify.formats import Notification, as_document, as_html, as_text, subject
from gpuwatch.notify.message import Message, compose_message, due_at, verb_of
from gpuwatch.notify.transports.base import Delivery
from gpuwatch.notify.transports.web import slack_message
from gpuwatch.policies import PoolRules, idle
from gpuwatch.policies.idle_settings import IdleRules
from gpuwatch.policies.lasting import LAUNCHES, STARTS
from gpuwatch.policies.starts import WITHHELD
from tests.support.builders.fleet import NOW, a_verdict, an_activity, an_observation
from tests.support.builders.notices import GRACE, SEEN, a_machine, about, an_event
from tests.support.builders.promise import a_promise

LINK = "https://gpuwatch.example.com/snooze/1.abc.def"
ODD = "<!channel> <script>alert(1)</script>\r\nBcc: all@example.com https://evil.example `x` \u202e"


def rulebook(*, require_notification: bool = False, approval: bool = False, **written: Any) -> Rulebook:  # noqa: ANN401  of settings
    """Of the one pool."""
    rules = PoolRules(approval=approval, idle=IdleRules(grace_period=GRACE.total_seconds(), **written))
    return Rulebook(pools={"default": rules}, limits=Limits(require_notification=require_notification))


def as_slack(message: Message, *mentions: str) -> dict[str, str]:
    """What is posted to Slack."""
    content = Notification(message)
    return slack_message(Delivery(key="k", at=NOW, day=NOW.date(), content=content, mentions=mentions))


def noticed(**other: Any) -> Message:  # noqa: ANN401  of `about`
    """A notice to one machine, with a link and a page."""
    context = about(page="https://gpuwatch.example.com", link=lambda *_: LINK, **other)
    return compose_message([an_event()], context)


def test_a_notice_says_all_that_its_owner_needs() -> None:
    """Which node, what, when, why, on what ground, and each way to prevent it."""
    text = as_text(noticed())

    assert subject(noticed()) == "gpuwatch will stop trainer at Mon 2026-03-02 13:10 CET"
    assert text == (
        "gpuwatch will stop trainer (i-1) at Mon 2026-03-02 13:10 CET (12:10 UTC), "
        "unless something below prevents it.\n"
        "\n"
        "trainer (i-1): pool default, p4d.24xlarge, 1 GPU, us-east-1, $32.77 an hour, owner ann\n"
        "  When: Mon 2026-03-02 13:10 CET (12:10 UTC), to be stopped\n"
        "  Why: It has been idle for 2h, longer than 30m.\n"
        "  Evidence: 1 signal: 1 idle; all of it: `gpuwatch explain i-1`\n"
        f"  Keep it: {LINK}\n"
        "\n"
        "What prevents it, each by itself:\n"
        "- Use it: work on a GPU, or somebody at a terminal or notebook of it, withdraws this notice.\n"
        "- Type `gpuwatch snooze 4h` on the host.\n"
        "- Open its link above, which asks for how long.\n"
        "- Ask an operator to keep it on the page.\n"
        "- Set its tag `gpuwatch:snooze-until` to a later time, such as `2026-03-02T16:00Z`.\n"
        "\n"
        "The page: https://gpuwatch.example.com\n"
        "Sent by gpuwatch, fleet lab, Mon 2026-03-02 13:00 CET (12:00 UTC).\n"
    )


def test_an_approval_is_told_where_the_pool_wants_one() -> None:
    """Then nothing goes by itself, and the message says who has to say yes, and how."""
    text = as_text(noticed(rules=rulebook(approval=True)))

    assert "An operator must approve it first." in text
    assert "`gpuwatch approve i-1`" in text
    assert "Not before: " in text


def test_what_a_stop_destroys_is_told_before() -> None:
    """Local disks lose their data; of a machine without any nothing is said."""
    text = as_text(compose_message([an_event()], about(a_machine(instance_store=True))))

    assert "Local disks: what is on them will be lost" in text
    assert "Local disks" not in as_text(noticed())


@pytest.mark.parametrize(
    ("local_disks", "warned"),
    [(LocalDisks.USED, True), (None, True), (LocalDisks.UNUSED, False), (LocalDisks.NONE, False)],
)
def test_disks_that_nobody_uses_are_not_mentioned(*, local_disks: LocalDisks | None, warned: bool) -> None:
    """Only what is lost, or may be: the agent's verdict says it."""
    report = NodeReport(verdict=replace(a_verdict(), local_disks=local_disks))
    text = as_text(compose_message([an_event()], about(a_machine(instance_store=True, signal=report))))

    assert ("Local disks" in text) == warned


def test_a_withdrawal_says_why_and_asks_for_nothing() -> None:
    """Its machine may be stopped, or gone, by then: that it stays would be false."""
    event = an_event(Verb.WITHDRAW, reason=Reason(code="busy", sentence="It has been busy for 2s."))
    message = compose_message([event], about())

    assert subject(message) == "gpuwatch: the notice of trainer is withdrawn"
    assert "Why: It has been busy for 2s." in as_text(message)
    assert "prevents" not in as_text(message)


def test_a_stop_says_what_it_saves_and_how_to_get_it_back() -> None:
    """The command is for the machine and its region; what it saves is for a day."""
    message = compose_message([an_event(Verb.STOP)], about())

    assert subject(message) == "gpuwatch stopped trainer"
    assert "Saves: $786.54 a day, until somebody needs it" in as_text(message)
    assert "Back: `aws ec2 start-instances --instance-ids i-1 --region us-east-1`" in as_text(message)
    ran = [an_event(Verb.STOP, before="ana's command before its stop ended well after 40s: pushed")]
    assert "Before it: ana's command before its stop ended well after 40s: pushed" in as_text(
        compose_message(ran, about())
    )


def test_a_stop_that_left_the_bill_running_claims_no_saving() -> None:
    """Its cloud's answer says so; before the stop, or of a termination, it is no news."""
    billed = a_machine(state=NodeState.STOPPED, still_billed="it has local disks")
    text = as_text(compose_message([an_event(Verb.STOP)], about(billed)))

    assert "Still billed: it has local disks; the stop does not end its cost by the hour" in text
    assert "Saves" not in text
    for verb in (Verb.NOTICE, Verb.TERMINATE):
        assert "Still billed" not in as_text(compose_message([an_event(verb)], about(billed)))


def test_a_stop_that_may_be_somebody_elses_is_not_claimed() -> None:
    """Its owner switched it off, or its cloud took it, right before gpuwatch's own call: nobody is told otherwise."""
    message = compose_message([an_event(Verb.STOP, proved=False)], about(a_machine(state=NodeState.STOPPED)))
    several = [an_event(Verb.STOP, proved=False), an_event(Verb.STOP, "i-2", "k2")]
    both = compose_message(several, about(a_machine(), a_machine("i-2", name="other")))

    assert subject(message) == "gpuwatch: trainer is stopped"
    assert "cannot prove that it was its own stop: somebody, or the cloud, may have been first" in as_text(message)
    assert "Saves" not in as_text(message)
    assert subject(both) == "gpuwatch: 2 nodes are stopped"
    assert "cannot prove that the stop of trainer (i-1) was its own" in as_text(both)


def test_the_way_back_is_by_the_machines_own_cloud() -> None:
    """Of a cloud that the settings no longer have there is no command."""
    clouds = {"us": CloudSettings(), "bj": CloudSettings()}
    for cloud, there in (("us", True), ("eu", False)):
        context = about(a_machine(cloud=cloud), start_command=start_command(clouds))
        assert ("aws ec2 start-instances" in as_text(compose_message([an_event(Verb.STOP)], context))) is there


def test_a_termination_promises_no_way_back() -> None:
    """No command starts it again; one without a price claims no saving."""
    message = compose_message([an_event(Verb.TERMINATE, usd_per_hour=None)], about())

    assert subject(message) == "gpuwatch terminated trainer"
    assert "A terminated node does not come back" in as_text(message)
    assert "start-instances" not in as_text(message)
    assert "$" not in as_text(message)


def test_a_node_that_the_fleet_no_longer_has_is_told_by_its_id() -> None:
    """What the event itself holds is enough."""
    text = as_text(compose_message([an_event(Verb.TERMINATE, "i-gone")], about()))

    assert "i-gone: pool default, $32.77 an hour, owner ann" in text


def test_the_notice_of_terminate_after_says_start_it() -> None:
    """A stopped machine is kept by a start; nobody can type on it."""
    event = an_event(reason=Reason(code="terminate_after", sentence="gpuwatch stopped it 13d ago; it is kept for 14d."))
    text = as_text(compose_message([event], about(replace(a_machine(), state=NodeState.STOPPED))))

    assert "gpuwatch will terminate trainer" in text
    assert "Start it: a stopped node that runs again is kept." in text
    assert "gpuwatch snooze" not in text


@pytest.mark.parametrize(
    ("state", "verb"),
    [
        (State.IDLE, Verb.TERMINATE),
        (State.OCCUPIED, Verb.STOP),
        (State.PARKED, Verb.STOP),
        (State.STALLED, None),
        (State.UNKNOWN, None),
    ],
)
def test_what_will_be_done_follows_from_what_the_node_does(state: State, verb: Verb | None) -> None:
    """Idle ones may be terminated while occupied ones are stopped; where nobody knows, both are named."""
    context = about(a_machine(state=state), rules=rulebook(action="terminate", stalled="report"))

    assert verb_of(an_event(), context) is verb


def test_the_message_names_the_process_and_its_owner() -> None:
    """Who gets it can ask alice, and end the process; what stands in a name does nothing."""
    owner = WorkOwner(user="alice", process="py`x\r\n", pid=4711, unit="session-3.scope")
    seen = replace(SEEN, says=State.OCCUPIED, owner=owner)
    activity = replace(an_activity(State.OCCUPIED, 57600.0), evidence=(seen,))
    verdict = replace(a_verdict(), activity=activity)
    node = a_machine(signal=NodeReport(verdict=verdict))
    (step,) = idle.propose(an_observation(node), "default", IdleRules()).steps
    text = as_text(compose_message([an_event(reason=step.reason)], about(node)))

    assert step.verb is Verb.NOTICE
    assert "It has been occupied (alice's py'x\\r\\n, pid 4711, session-3.scope, does nothing) for 16h" in text


def test_where_people_must_be_told_the_time_runs_from_then() -> None:
    """The guard counts the grace from the first message, and so does the message."""
    late = NOW + timedelta(hours=1)
    rules = rulebook(require_notification=True)
    first = about(rules=rules, now=late)
    notice = Notice(node_id="i-1", key="k1", at=NOW, told_at=NOW + timedelta(minutes=1))
    second = about(rules=rules, now=late, notices={"k1": notice})

    assert due_at(an_event(), first) == late + GRACE
    assert due_at(an_event(), second) == NOW + timedelta(minutes=1) + GRACE
    assert due_at(an_event(), about(now=late)) == NOW + GRACE


def test_where_the_first_message_is_waited_for_the_time_runs_from_it() -> None:
    """However late it comes; once it was there, a later one says the same time."""
    late, waits = NOW + timedelta(hours=2), a_promise(0.0, NOW, {"delivery_seconds": 3600.0})
    told = Notice(node_id="i-1", key="k1", at=NOW, told_at=NOW + timedelta(minutes=1), promise=waits)

    assert due_at(an_event(promise=waits), about(now=late)) == late + GRACE
    assert due_at(an_event(promise=waits), about(now=late, notices={"k1": told})) == NOW + timedelta(minutes=1) + GRACE


def test_many_nodes_are_one_message_that_counts_the_rest() -> None:
    """Sixty at once: mail lists forty, Slack fifteen, and the document all."""
    nodes = [a_machine(f"i-{number}") for number in range(60)]
    events = [an_event(node_id=node.id, key=node.id) for node in nodes]
    message = compose_message(events, about(*nodes))
    slack = as_slack(message)

    assert subject(message).startswith("gpuwatch will stop 60 nodes at ")
    assert "… and 20 more" in as_text(message)
    assert "… and 45 more" in slack["text"]
    assert len(as_html(message).encode()) < 102_000  # where Gmail cuts
    assert len(as_document(message, "key")["nodes"]) == 60


def test_commands_to_copy_have_the_node_as_one_word() -> None:
    """Whatever stands in its id: it ends no quotes, and nothing else is run."""
    odd = "i-1`;reboot;` $(reboot)"
    there = a_machine(odd)
    stopped = as_text(compose_message([an_event(Verb.STOP, odd)], about(there)))
    notice = as_text(compose_message([an_event(node_id=odd)], about(there, rules=rulebook(approval=True))))
    typed = [shlex.split(each) for each in re.findall(r"`(.*?)`", stopped + notice) if "i-1" in each]
    node = "i-1';reboot;' $(reboot)"
    start = ["aws", "ec2", "start-instances", "--instance-ids", node, "--region", "us-east-1"]
    explain, approve = ["gpuwatch", "explain", node], ["gpuwatch", "approve", node]

    assert typed == [explain, start, explain, approve]


def test_slack_parses_nothing_by_itself() -> None:
    """Without `parse` it could make links and mentions of names such as @channel and #general."""
    message = as_slack(noticed(), "U1AB")

    assert message["parse"] == "none"
    assert message["text"].startswith("<@U1AB> gpuwatch will stop trainer")
    assert f"Keep it: <{LINK}>" in message["text"]


def test_names_do_nothing_anywhere() -> None:
    """No header, no tag of HTML, no call of a channel, no link that is not ours, no end of a quoted command."""
    event = an_event(owner=ODD, pool=ODD, node_id=f"i-1{ODD}", reason=Reason(code="x", sentence=ODD))
    message = compose_message([event], about(a_machine(f"i-1{ODD}", name=ODD, instance_type=ODD), link=lambda *_: LINK))
    mail = EmailMessage()
    mail["Subject"] = subject(message)
    slack = as_slack(message)["text"]

    assert "Bcc" not in mail
    assert "\n" not in subject(message)
    assert "<script" not in as_html(message)
    assert "<!channel>" not in slack
    assert "\u202e" not in as_text(message)
    for form in (as_text(message), as_html(message), slack):
        assert "https://evil" not in form


@given(st.text(max_size=300), st.text(max_size=60), st.sampled_from([Verb.NOTICE, Verb.WITHDRAW, Verb.STOP]))
def test_any_words_make_a_whole_message(sentence: str, name: str, verb: Verb) -> None:
    """Every form can be made; the subject is a header and HTML is well-formed, whatever others write."""
    event = an_event(verb, owner=name or None, pool=name, reason=Reason(code="x", sentence=sentence))
    message = compose_message([event], about(a_machine(name=name), link=lambda *_: LINK, page="https://g.example.com"))
    mail = EmailMessage()
    mail["Subject"] = subject(message)
    mail.set_content(as_text(message))
    slack = as_slack(message)

    ET.fromstring(as_html(message).removeprefix("<!DOCTYPE html>\n"))  # noqa: S314  our own
    assert not re.search("<(?!https://g(puwatch)?.example.com)", slack["text"])


def test_the_document_holds_what_a_program_needs() -> None:
    """Times in ISO 8601, money as text, the evidence whole; the schema has a number."""
    document = as_document(noticed(), "gpuwatch-notice-1")
    (node,) = document["nodes"]

    assert (document["schema"], document["event"], document["key"]) == (1, "notice", "gpuwatch-notice-1")
    assert (node["node"], node["key"], node["verb"]) == ("i-1", "k1", "stop")
    assert (node["due"], node["usd_per_hour"], node["usd_per_day"]) == (
        "2026-03-02T12:10:00+00:00",
        "32.7726",
        str(Decimal("786.5424")),
    )
    assert (node["snooze_url"], node["evidence"][0]["says"]) == (LINK, "idle")


def test_a_test_says_so_in_every_form() -> None:
    """Nobody takes it for a notice."""
    message = Message(kind="test", fleet="lab", made_at=NOW, zone=ZoneInfo("UTC"), sent_by="ann@host")

    assert subject(message) == "gpuwatch: test message of fleet lab"
    assert "This is a test by ann@host" in as_text(message)
    assert "This is a test" in as_html(message)
    assert "This is a test" in str(as_slack(message))
    assert as_document(message, "k")["event"] == "test"


def test_what_a_cloud_takes_is_told_as_nobodys_decision() -> None:
    """With what to do in two minutes, without a link that would promise to keep it, and in each form."""
    reason = Reason(code="interruption", sentence="Its cloud takes it at 2026-03-02 12:02 UTC (spot_interruption).")
    message = compose_message([an_event(Verb.INTERRUPTION, reason=reason)], about(link=lambda *_: LINK))
    text = as_text(message)

    assert subject(message) == "gpuwatch: the cloud is about to take trainer"
    assert "The cloud is about to take trainer (i-1). gpuwatch does not decide that and cannot prevent it." in text
    assert "12:02 UTC" in text
    assert "Keep, snooze and protect hold for what gpuwatch removes, not for what the cloud takes." in text
    assert LINK not in text
    assert as_document(message, "k")["nodes"][0]["verb"] is None


def test_whose_stops_are_undone_is_told_what_ends_that() -> None:
    """With both times, once for each time that it is left alone."""
    sentence = (
        "Somebody started it again twice after gpuwatch had stopped it, at 2026-03-02 10:05 UTC and at 11:10 UTC."
    )
    message = compose_message([an_event(Verb.LEFT_ALONE, reason=Reason(code="left_alone", sentence=sentence))], about())
    text = as_text(message)

    assert subject(message) == "gpuwatch leaves trainer alone: somebody undoes its stops"
    assert sentence in text
    assert "Turn off what undoes the stops" in text
    assert (message.kind, as_document(message, "k")["nodes"][0]["verb"]) == ("left_alone", None)


@pytest.mark.parametrize(
    ("codes", "title", "hint"),
    [
        ((STARTS,), "gpuwatch does not start trainer for a time: its starts do not last", "a key that it may not use"),
        ((STARTS, STARTS), "gpuwatch does not start 2 nodes for a time: their starts do not last", "a key that"),
        ((LAUNCHES,), "gpuwatch: what is launched for pool default does not last", "an image that shuts itself down"),
        (("stops_undone",), "gpuwatch: somebody undoes each stop of trainer", "Turn off what undoes the stops"),
        ((WITHHELD,), "gpuwatch cannot start trainer now", "an account without an answer"),
        ((WITHHELD, STARTS), "gpuwatch leaves 2 nodes alone for a time", "a key that it may not use"),
        ((STARTS, "left_alone"), "gpuwatch leaves 2 nodes alone for a time", "Turn off what undoes the stops"),
    ],
)
def test_what_does_not_last_is_no_quarrel(codes: tuple[str, ...], title: str, hint: str) -> None:
    """The words fit what is left alone, and why."""
    events = [an_event(Verb.LEFT_ALONE, reason=Reason(code=code, sentence="Thrice.")) for code in codes]
    message = compose_message(events, about())
    text = as_text(message)

    assert subject(message) == title
    assert hint in text
    assert ("somebody undoes its" in text) is False
