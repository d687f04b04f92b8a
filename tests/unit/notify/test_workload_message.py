"""Messages about workloads: what becomes of each, when, why, what keeps it, and the command that brings it back."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpuwatch.ledger.sent_messages import Event
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Reason, Verb
from gpuwatch.model.promise import Promise
from gpuwatch.notify.formats import Notification, as_document, as_html, as_text, subject
from gpuwatch.notify.message import Message, compose_message
from tests.support.builders.fleet import NOW
from tests.support.builders.notices import about, an_event
from tests.support.builders.workloads import ALICE, a_host, its_pod

SERVE = "kube:prod/team-a/Deployment/serve"
IDLE = Reason(code="notice", sentence="Its GPU pod has been idle for 1d 6h.")


def told(verb: Verb, workload: str = ALICE, how: str = "stop", **other: Any) -> Event:  # noqa: ANN401  fields of Event
    """Something that was settled now, at a workload of Alice's."""
    promise = Promise(action=how, pool="default", stop_at=NOW + timedelta(hours=1), grace_seconds=3600.0)  # type: ignore[arg-type]  # of a table
    facts: dict[str, Any] = {"owner": "alice", "usd_per_hour": Decimal("4.1"), "reason": IDLE, **other}
    if verb is Verb.RELEASE:
        facts["arguments"] = {"how": how, "pods": "3", "gpus": "6.0"}
    return an_event(verb, workload, promise=promise if verb is Verb.NOTICE else None, **facts)


def message(*events: Event, **other: Any) -> Message:  # noqa: ANN401  of `about`
    """To those who are told, by a controller with a page; Alice's pod is on node-1."""
    return compose_message(
        events, about(a_host(1, (its_pod(), State.IDLE)), page="https://gpuwatch.example.com", **other)
    )


def test_a_notice_says_all_that_its_owner_needs() -> None:
    """Which workload, what, when, why, each way to keep it, and how it comes back afterwards."""
    text = as_text(message(told(Verb.NOTICE)))

    assert subject(message(told(Verb.NOTICE))) == (
        "gpuwatch will stop Notebook team-a/alice at Mon 2026-03-02 14:00 CET"
    )
    assert text == (
        "gpuwatch will stop Notebook team-a/alice at Mon 2026-03-02 14:00 CET (13:00 UTC), "
        "unless something below prevents it.\n"
        "\n"
        "Notebook team-a/alice: cluster prod, pool default, 1 pod, 1 GPU, $4.10 an hour, owner alice\n"
        "  When: Mon 2026-03-02 14:00 CET (13:00 UTC), to be stopped\n"
        "  Why: Its GPU pod has been idle for 1d 6h.\n"
        "  Pods: team-a/alice-0 on node-1\n"
        "  Evidence: `gpuwatch explain kube:prod/team-a/Notebook/alice`\n"
        "  Keep it: `kubectl -n team-a annotate notebook/alice --overwrite "
        "gpuwatch.io/snooze-until=2026-03-03T13:00:00Z`\n"
        "  Back: `kubectl -n team-a annotate notebook/alice kubeflow-resource-stopped-`\n"
        "\n"
        "What prevents it, each by itself:\n"
        "- Use it: work on a GPU of one of its pods, or on the processors of their machines, withdraws this notice.\n"
        "- Type its command above, with whatever time you need, as somebody who may change it.\n"
        "- Its annotation `gpuwatch.io/protect=true` keeps it for good.\n"
        "\n"
        "The page: https://gpuwatch.example.com\n"
        "Sent by gpuwatch, fleet lab, Mon 2026-03-02 13:00 CET (12:00 UTC).\n"
    )


@pytest.mark.parametrize(("waiting", "whose"), [((True, True), "them"), ((True, False), "1 of them")])
def test_of_several_workloads_those_are_counted_that_wait_for_an_approval(
    waiting: tuple[bool, bool], whose: str
) -> None:
    """As of nodes."""
    both = message(told(Verb.NOTICE), told(Verb.NOTICE, SERVE))
    lines = tuple(replace(line, approval=waits) for line, waits in zip(both.workloads, waiting, strict=True))

    assert f" An operator must approve {whose} first.\n" in as_text(replace(both, workloads=lines))


def test_what_was_ended_says_how_it_comes_back() -> None:
    """The command with the number of pods that it had; what was in its containers is gone."""
    done = message(told(Verb.RELEASE, SERVE, "scale-to-zero"))

    assert subject(done) == "gpuwatch scaled Deployment team-a/serve to zero"
    assert as_text(done) == (
        "gpuwatch scaled Deployment team-a/serve to zero, as the notice said.\n"
        "\n"
        "Deployment team-a/serve: cluster prod, pool default, 3 pods, 6 GPUs, $4.10 an hour, owner alice\n"
        "  When: Mon 2026-03-02 13:00 CET (12:00 UTC), scaled to zero\n"
        "  Why: Its GPU pod has been idle for 1d 6h.\n"
        "  Back: `kubectl -n team-a scale deployment/serve --replicas=3`\n"
        "\n"
        "What now:\n"
        "- What its containers wrote outside of volumes is gone, and so are their processes; volumes stay.\n"
        "- How many pods it wanted before is in its annotation `gpuwatch.io/replicas-before`.\n"
        "\n"
        "The page: https://gpuwatch.example.com\n"
        "Sent by gpuwatch, fleet lab, Mon 2026-03-02 13:00 CET (12:00 UTC).\n"
    )


def test_a_withdrawal_says_why_and_asks_for_nothing() -> None:
    """No command is shown."""
    kept = message(told(Verb.WITHDRAW, reason=Reason(code="busy", sentence="It works: team-a/alice-0.")))

    assert subject(kept) == "gpuwatch: the notice of Notebook team-a/alice is withdrawn"
    assert "Why: It works: team-a/alice-0." in as_text(kept)
    assert "kubectl" not in as_text(kept)


@pytest.mark.parametrize(
    ("kind", "how", "will", "back"),
    [
        ("Job", "stop", "will suspend Job team-a/x at", """--type=merge -p '{"spec":{"suspend":false}}'`"""),
        ("Job", "delete", "will end the pods of Job team-a/x at", "Back: its Job makes new pods by itself\n"),
        ("Pod", "delete", "will end the pods of Pod team-a/x at", "Back: nothing makes this pod again\n"),
        (
            "StatefulSet",
            "scale-to-zero",
            "will scale StatefulSet team-a/x to zero at",
            "scale statefulset/x --replicas=",
        ),
    ],
)
def test_each_kind_has_its_own_words(kind: str, how: str, will: str, back: str) -> None:
    """A Job is suspended; a deleted pod comes back by its own controller, or not at all."""
    text = as_text(message(told(Verb.NOTICE, f"kube:prod/team-a/{kind}/x", how)))

    assert will in text
    assert back in text


def test_several_are_in_one_message_with_the_first_time() -> None:
    """Where they go in different ways, the words fit all of them."""
    later = replace(told(Verb.NOTICE, SERVE, "scale-to-zero", key="k2"), at=NOW + timedelta(hours=3))
    text = as_text(message(told(Verb.NOTICE), later))

    assert text.startswith(
        "gpuwatch will end the pods of 2 workloads from Mon 2026-03-02 14:00 CET (13:00 UTC) on, unless"
    )
    assert "to be stopped" in text
    assert "to be scaled to zero" in text


def test_local_data_that_its_people_gave_up_is_told_before() -> None:
    """By pod and volume."""
    host = a_host(1, (its_pod(local_data="scratch", loses_local_data=True), State.IDLE))
    text = as_text(compose_message([told(Verb.NOTICE)], about(host)))

    assert "Local data: what is in volumes that go with their pods will be lost: team-a/alice-0 (scratch)" in text


def test_a_webhook_gets_each_as_an_object() -> None:
    """Beside the nodes, of which there is none in this message."""
    document = as_document(message(told(Verb.NOTICE)), "k")
    (found,) = document["workloads"]

    assert document["nodes"] == []
    assert (found["cluster"], found["namespace"], found["kind"], found["name"]) == (
        "prod",
        "team-a",
        "Notebook",
        "alice",
    )
    assert (found["action"], found["due"]) == ("stop", "2026-03-02T13:00:00+00:00")
    assert found["back"].startswith("kubectl ")
    assert [each.message.workloads[0].key for each in Notification(message(told(Verb.NOTICE))).parts()] == ["k1"]


@given(name=st.text(min_size=1, max_size=30).filter(lambda name: "/" not in name))
@example(name="x\nBcc: all; <script>alert(1)</script> `rm` https:\u2044\u2044evil".replace("</", "<"))
def test_nothing_in_a_name_does_anything(name: str) -> None:
    """No line of ours, no link, no markup is made of it, whatever stands in the ledger."""
    events = [told(verb, f"kube:prod/team-a/Notebook/{name}") for verb in (Verb.NOTICE, Verb.RELEASE)]
    for event in events:
        text, page = as_text(message(event)), as_html(message(event))
        assert text.count("\n") <= (19 if event.verb is Verb.NOTICE else 12)
        assert "<script" not in page
        assert "://" not in text.replace("https://gpuwatch.example.com", "")
