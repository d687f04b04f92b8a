"""A message on its way: to a real mail server with TLS, to web servers, and by apprise; no secret gets into a log."""

import json
import logging
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller as SmtpServer

from gpuwatch.notify.formats import Notification
from gpuwatch.notify.message import Message, compose_message
from gpuwatch.notify.settings import Receiver
from gpuwatch.notify.transports.apprise import AppriseSettings
from gpuwatch.notify.transports.base import Delivery, DeliveryError
from gpuwatch.notify.transports.mail import MailSettings
from gpuwatch.notify.transports.web import SlackSettings, WebhookSettings
from gpuwatch.runtime.installed import install_command
from tests.support.builders.fleet import NOW
from tests.support.builders.notices import a_machine, about, an_event
from tests.support.fakes.http_sink import Answer, serving
from tests.support.real.alerting import PASSWORD, Mails, mail_server, text_of
from tests.support.real.certificates import Authority

# In apprise 2.2 with Python before 3.13.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")
LINK = "https://gpuwatch.example.com/snooze/1.abc.def"


def a_parcel(*to: str, copies: tuple[str, ...] = (), mentions: tuple[str, ...] = ()) -> Delivery:
    """A notice with a snooze link."""
    message = compose_message([an_event()], about(link=lambda *_: LINK))
    return a_delivery(message, to=to, copies=copies, mentions=mentions)


def a_delivery(message: Message, **addresses: tuple[str, ...]) -> Delivery:
    """A message on its way."""
    content = Notification(message)
    return Delivery(key="gpuwatch-notice-1", at=NOW, day=NOW.date(), content=content, **addresses)


def sent(delivery: Delivery, receiver: Receiver) -> str:
    """Where it went."""
    return receiver.transport.send(delivery)


def secret(folder: Path, text: str) -> str:
    """A file that holds it."""
    path = folder / "secret"
    path.write_text(f"{text}\n")
    return str(path)


def test_a_server_without_starttls_is_told_by_the_setting() -> None:
    """Nothing is sent in the clear, and the message says what to set."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mails = Mails()
    server = SmtpServer(mails, hostname="127.0.0.1", port=port)
    server.start()
    try:
        settings = MailSettings(host="127.0.0.1", port=port, sender="gpuwatch@example.com")
        with pytest.raises(DeliveryError, match="has no STARTTLS: set its `security` to tls, or to none"):
            sent(a_parcel("ann@example.com"), Receiver(mail=settings, owners=True))
    finally:
        server.stop()
    assert mails.messages == []


def test_a_mail_goes_to_the_owner_with_a_copy(tmp_path: Path) -> None:
    """By STARTTLS with a password: both forms, the link in each, and the same id at each try."""
    authority = Authority(tmp_path / "ca")
    with mail_server("notices", authority.issue("mail")) as (address, mails):
        host, _, port = address.rpartition(":")
        settings = MailSettings(
            host=host,
            port=int(port),
            tls_ca=str(authority.ca),
            username="notices",
            password_file=secret(tmp_path, PASSWORD),
            sender="gpuwatch@example.com",
        )
        parcel = a_parcel("ann@example.com", copies=("ops@example.com",))
        where = sent(parcel, Receiver(mail=settings, owners=True))
        sent(parcel, Receiver(mail=settings, owners=True))
        mail, again = mails.messages

    assert where == "2 by 127.0.0.1"
    assert (mail["To"], mail["Cc"]) == ("ann@example.com", "ops@example.com")
    assert mail["Subject"] == "gpuwatch will stop trainer at Mon 2026-03-02 13:10 CET"
    assert mail["Message-ID"] == again["Message-ID"] == "<gpuwatch-notice-1@example.com>"
    assert LINK in text_of(mail)
    assert f'href="{LINK}"' in text_of(mail, "html")


def test_slack_and_a_webhook_get_their_forms(tmp_path: Path) -> None:
    """Slack a text that mentions the owner; the webhook a document with the message's key beside it."""
    with serving(lambda _: Answer(body="ok")) as server:
        slack = Receiver(slack=SlackSettings(url_file=secret(tmp_path, f"{server.url}/services/S3CRET")))
        rows = [
            sent(a_parcel(mentions=("U1AB",)), slack),
            sent(a_parcel(), Receiver(webhook=WebhookSettings(url=f"{server.url}/in"))),
        ]
        first, second = server.asked
    slack_text, document = json.loads(first.body)["text"], json.loads(second.body)

    assert rows == ["Slack", "127.0.0.1"]
    assert slack_text.startswith("<@U1AB> gpuwatch will stop trainer at ")
    assert f"Keep it: <{LINK}>" in slack_text
    assert (document["event"], document["nodes"][0]["snooze_url"]) == ("notice", LINK)
    assert second.headers["idempotency-key"] == document["key"] == "gpuwatch-notice-1"


def test_apprise_delivers_and_names_lines_that_fail(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its json:// reaches a real server; a line that fails beside one that works is told by its number alone."""
    caplog.set_level(logging.DEBUG)
    with serving(lambda asked: Answer(body="", status=200 if asked.path == "/good" else 500)) as server:
        port = server.url.rpartition(":")[2]
        good, bad = f"json://ann:S3CRET@127.0.0.1:{port}/good", f"json://ann:S3CRET@127.0.0.1:{port}/bad"
        both = Receiver(apprise=AppriseSettings(urls_file=secret(tmp_path, f"# phones\n\n{good}\n{bad}")))
        where = sent(a_parcel(), both)
        none = Receiver(apprise=AppriseSettings(urls_file=secret(tmp_path, bad)))
        error = error_of(none)
        document = json.loads(server.asked[0].body)

    assert where == f"1 by apprise; failed: line 4 of {tmp_path / 'secret'}"
    assert error == f"apprise could not deliver it to any of its URLs (line 1 of {tmp_path / 'secret'})"
    assert document["title"].startswith("gpuwatch will stop trainer")
    assert LINK in document["message"]
    assert "S3CRET" not in caplog.text


@pytest.mark.parametrize(
    ("text", "why"),
    [("# nothing", "holds no URL"), ("nonsense://S3CRET", "line 1 of"), ("json://a\nS3CRET", "line 2 of")],
)
def test_a_file_that_apprise_cannot_use_is_told_without_its_content(tmp_path: Path, text: str, why: str) -> None:
    """By the number of the line."""
    error = error_of(Receiver(apprise=AppriseSettings(urls_file=secret(tmp_path, text))))

    assert why in error
    assert "S3CRET" not in error


@pytest.mark.parametrize(
    ("form", "kind", "inert"),
    [
        ("", "plain", "<a href=//evil[.]example>Keep it</a><img src=//evil[.]example/px>"),
        ("&format=text", "plain", "<a href=//evil[.]example>Keep it</a><img src=//evil[.]example/px>"),
        ("&format=html", "html", "&lt;a&nbsp;href=//evil[.]example&gt;"),
        ("&format=markdown", "", None),
    ],
)
def test_words_of_others_are_no_markup_by_apprise_either(
    tmp_path: Path, form: str, kind: str, inert: str | None
) -> None:
    """A tag of a machine is text in a mail, whatever form its URL asks for; and lines end where ours do."""
    name = "<a href=//evil.example>Keep it</a><img src=//evil.example/px>"
    message = compose_message([an_event()], about(a_machine(name=name), link=lambda *_: LINK))
    authority = Authority(tmp_path / "ca")
    with mail_server("notices", authority.issue("mail")) as (address, mails):
        url = (
            f"mailtos://notices:{PASSWORD}@{address}?mode=starttls&verify=no&from=a@example.com&to=b@example.com{form}"
        )
        parcel = a_delivery(message)
        assert sent(parcel, Receiver(apprise=AppriseSettings(urls_file=secret(tmp_path, url)))) == "1 by apprise"
        (mail,) = mails.messages
    whole = "".join(text_of(mail, each) for each in ("plain", "html") if mail.get_body((each,)) is not None)

    if kind:
        assert mail.get_body((kind,)) is not None
    if inert is not None:
        assert inert in text_of(mail, kind)
    if mail.get_body(("html",)) is not None:
        assert "<a href=//evil" not in text_of(mail, "html")
        assert "<img" not in text_of(mail, "html")
    assert LINK in whole


def test_an_unencrypted_url_of_apprise_gets_no_keep_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads it on the way could keep the node; loopback is no such way."""
    apprise = pytest.importorskip("apprise")
    bodies: dict[str, str] = {}

    def notify(self: Any, body: str, **_: object) -> bool:  # noqa: ANN401  an Apprise
        bodies[self[0].url(privacy=True).partition("?")[0]] = body
        return True

    monkeypatch.setattr(apprise.Apprise, "notify", notify)
    urls = "json://chat.example.com/\njsons://chat.example.com/\njson://127.0.0.1/\nmailto://u:p@mail.example.com/"
    sent(a_parcel(), Receiver(apprise=AppriseSettings(urls_file=secret(tmp_path, urls))))
    linked = {url: LINK in body for url, body in bodies.items()}

    assert list(linked.values()) == [False, True, True, False], linked
    assert all("trainer" in body for body in bodies.values())


def test_without_apprise_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The way out is the command that installs it."""
    monkeypatch.setitem(sys.modules, "apprise", None)
    error = error_of(Receiver(apprise=AppriseSettings(urls_file=secret(tmp_path, "json://a"))))

    assert install_command("notify") in error


def error_of(receiver: Receiver) -> str:
    """Why it did not arrive."""
    with pytest.raises(DeliveryError) as caught:
        sent(a_parcel(), receiver)
    return str(caught.value)
