"""Notifications as alerts: a real Alertmanager opens one for a notice and ends it when the notice is over."""

import json
import re
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import yaml

from gpuwatch.ledger.sent_messages import Event
from gpuwatch.model.decision import Verb
from gpuwatch.notify.formats import Notification, as_document
from gpuwatch.notify.message import Message, compose_message
from gpuwatch.notify.settings import NotifySettings, Receiver
from gpuwatch.notify.transports.alertmanager import NOTICE, AlertmanagerSettings, alerts_of
from gpuwatch.notify.transports.base import Delivery, DeliveryError
from gpuwatch.runtime.clock import ManualClock, SystemClock
from tests.support.builders.configurations import mistakes
from tests.support.builders.fleet import NOW
from tests.support.builders.notices import Office, a_machine, about, an_event
from tests.support.components import require
from tests.support.fakes.http_sink import Answer, serving
from tests.support.real.agents import eventually
from tests.support.real.alerting import Posted, web
from tests.support.real.tsdb import running

LINK = "https://gpuwatch.example.com/snooze/1.abc.def"


@contextmanager
def an_alertmanager(folder: Path, hooks: str) -> Iterator[str]:
    """A real one that posts all that it is sent to a web hook at once; gives its address."""
    folder.mkdir()
    hook = {"name": "hook", "webhook_configs": [{"url": f"http://{hooks}/alerts", "send_resolved": True}]}
    route = {"receiver": "hook", "group_by": ["..."], "group_wait": "100ms", "group_interval": "500ms"}
    (folder / "alertmanager.yml").write_text(yaml.safe_dump({"route": route, "receivers": [hook]}))
    command: list[str | Path] = [
        require("prometheus-alertmanager"),
        f"--config.file={folder / 'alertmanager.yml'}",
        f"--storage.path={folder / 'data'}",
        "--web.listen-address=127.0.0.1:0",
        "--cluster.listen-address=",
    ]
    with running(command, 'msg="Listening on"') as log:
        found = re.search(r'"Listening on" address=(127\.0\.0\.1:\d+)', "".join(log))
        assert found is not None, "".join(log)
        yield f"http://{found.group(1)}"


def active(url: str) -> list[dict[str, Any]]:
    """The alerts that it has."""
    with urllib.request.urlopen(f"{url}/api/v2/alerts", timeout=10) as answer:  # noqa: S310  our own
        alerts: list[dict[str, Any]] = json.load(answer)
    return alerts


def sent(receiver: Receiver, *events: Event, message: Message | None = None, **node: Any) -> str:  # noqa: ANN401  of a node
    """Where it went."""
    message = message or compose_message(
        events, about(a_machine(**node), link=lambda *_: LINK, page="https://g.example.com")
    )
    return receiver.transport.send(Delivery(key="k", at=message.made_at, day=NOW.date(), content=Notification(message)))


def ends(posted: list[Posted]) -> list[tuple[str, str, str]]:
    """What people got: each alert's name, status and summary."""
    alerts = [alert for post in posted for alert in post.body["alerts"]]
    return [(each["labels"]["alertname"], each["status"], each["annotations"]["summary"]) for each in alerts]


@pytest.mark.component("prometheus-alertmanager")
@pytest.mark.parametrize("ended", [Verb.WITHDRAW, Verb.STOP])
def test_a_notice_is_an_alert_until_it_is_over(tmp_path: Path, ended: Verb) -> None:
    """Its labels route it, its annotations say why and hold the snooze link; it ends though the owner has changed."""
    with web({}) as (hooks, posted), an_alertmanager(tmp_path / "am", hooks) as url:
        notify = NotifySettings(receivers={"am": Receiver(alertmanager=AlertmanagerSettings(urls=(url,)))})
        office = Office(tmp_path, notify, clock=ManualClock(wall=SystemClock().now()))
        office.does(Verb.NOTICE)
        job = office.job()
        job.tick()
        (notice,) = active(url)
        told_at = office.told_at()
        eventually(lambda: ends(posted))
        office.does(ended, owner="bob")
        job.tick()
        eventually(lambda: any(status == "resolved" for _, status, _ in ends(posted)), lambda: str(ends(posted)))
        left = {alert["labels"]["alertname"] for alert in active(url)}
        office.close()

    labels, annotations = notice["labels"], notice["annotations"]
    assert (labels["node"], labels["pool"], labels["owner"], labels["kind"]) == ("i-1", "default", "ann", "notice")
    assert annotations["summary"].startswith("gpuwatch will stop trainer at ")
    assert "It is notice time." in annotations["description"]
    assert told_at == office.clock.now()
    assert ("GpuwatchNotice", "firing", annotations["summary"]) in ends(posted)
    summary = "gpuwatch: the notice of trainer is withdrawn" if ended is Verb.WITHDRAW else "gpuwatch stopped trainer"
    assert ("GpuwatchNotice", "resolved", summary) in ends(posted)
    assert left == (set() if ended is Verb.WITHDRAW else {"GpuwatchDone"})


def test_each_alertmanager_gets_the_alerts_and_one_is_enough(tmp_path: Path) -> None:
    """With the bearer token and the snooze link; one that fails is named, and only all together are a failure."""
    token = tmp_path / "token"
    token.write_text("t0ken\n")
    with serving(lambda asked: Answer(body="", status=200 if asked.path.startswith("/good") else 500)) as server:
        good, bad = f"{server.url}/good", f"{server.url}/bad/"
        where = sent(Receiver(alertmanager=AlertmanagerSettings(urls=(good, bad))), an_event())
        with pytest.raises(DeliveryError, match="answered HTTP 500"):
            sent(Receiver(alertmanager=AlertmanagerSettings(urls=(bad,), bearer_file=str(token))), an_event())
        first, second, third = server.asked
        (alert,) = json.loads(first.body)

    host = server.url.partition("//")[2]
    assert where == f"{host}; failed: {host}: the server answered HTTP 500"
    assert (first.path, second.path) == ("/good/api/v2/alerts", "/bad/api/v2/alerts")
    assert third.headers["authorization"] == "Bearer t0ken"
    assert alert["annotations"]["snooze"] == LINK
    assert LINK not in alert["annotations"]["description"]
    assert (alert["startsAt"], alert["endsAt"]) == ("2026-03-02T12:00:00+00:00", "2026-03-09T12:10:00+00:00")
    assert alert["generatorURL"] == "https://g.example.com"


def test_an_end_has_the_labels_that_the_alertmanager_knows() -> None:
    """Only alerts of that node and fleet end; another answer than an Alertmanager's is a failure."""
    known = [
        {"labels": {"alertname": "GpuwatchNotice", "fleet": fleet, "node": node, "pool": "old"}}
        for fleet, node in (("lab", "i-1"), ("lab", "i-2"), ("other", "i-1"))
    ]
    answers = [json.dumps(known), "", "<html>", ""]
    with serving(lambda _: Answer(body=answers.pop(0))) as server:
        receiver = Receiver(alertmanager=AlertmanagerSettings(urls=(server.url,)))
        sent(receiver, an_event(Verb.WITHDRAW))
        (alert,) = json.loads(server.asked[1].body)
        with pytest.raises(DeliveryError, match="the answer is not from an Alertmanager"):
            sent(receiver, an_event(Verb.STOP))

    assert alert["labels"] == known[0]["labels"]
    assert (alert["endsAt"], "startsAt" in alert) == (NOW.isoformat(), False)


def test_a_test_message_is_an_alert_of_five_minutes() -> None:
    """It has no node and no pool."""
    with serving(lambda _: Answer(body="")) as server:
        message = Message(kind="test", fleet="lab", made_at=NOW, zone=ZoneInfo("UTC"), sent_by="ann@host")
        sent(Receiver(alertmanager=AlertmanagerSettings(urls=(server.url,))), message=message)
        (alert,) = json.loads(server.asked[0].body)

    assert alert["labels"] == {"alertname": "GpuwatchTest", "severity": "info", "kind": "test", "fleet": "lab"}
    assert "This is a test by ann@host" in alert["annotations"]["description"]
    assert alert["endsAt"] == "2026-03-02T12:05:00+00:00"


@pytest.mark.parametrize(
    ("to", "wrong"),
    [
        ("{urls: ['alerts:9093']}", "notify.receivers.am.alertmanager.urls 'alerts:9093' is not a valid URL"),
        ("{urls: ['http://a:9093'], bearer_file: /t}", "bearer_file is set, and urls is not https"),
        ("{urls: ['http://a:9093']}, events: [notice]", "notify.receivers.am.events lacks withdrawn and done"),
        ("{tls_ca: /ca}", "notify.receivers.am has no transport"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, to: str, wrong: str) -> None:
    """A notice that nothing ends, a token in plain HTTP, a missing address."""
    assert wrong in mistakes(tmp_path / "gpuwatch.yaml", f"notify: {{receivers: {{am: {{alertmanager: {to}}}}}}}\n")


def test_keep_links_need_https(tmp_path: Path) -> None:
    """Others could use them."""
    links = "url: https://g.example.com, link_key_file: /k"
    text = f"notify: {{{links}, receivers: {{am: {{alertmanager: {{urls: ['http://am:9093']}}}}}}}}\n"

    assert "notify.receivers.am.alertmanager.urls: messages go there unencrypted" in mistakes(tmp_path / "g.yaml", text)


def test_a_workload_has_an_alert_of_its_own() -> None:
    """Its id is the label `node`; the alert ends when its notice is over."""
    event = an_event(node_id="kube:prod/team-a/Notebook/alice")
    given, over = (compose_message([each], about()) for each in (event, replace(event, verb=Verb.WITHDRAW)))
    (alert,) = alerts_of(as_document(given, "k"), Notification(given).parts(), NOW, ())
    (ended,) = alerts_of(as_document(over, "k"), Notification(over).parts(), NOW, [alert])

    assert (alert["labels"]["alertname"], alert["labels"]["node"]) == (NOTICE, "kube:prod/team-a/Notebook/alice")
    assert ended["labels"] == alert["labels"]
    assert ended["endsAt"] == NOW.isoformat()
