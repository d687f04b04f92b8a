"""A report on its way: to a real mail server with TLS, to web servers that refuse, to files; no secret in any error."""

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import Envelope

from gpuwatch.money.report.report import Report
from gpuwatch.notify.reports import report_delivery
from gpuwatch.notify.transports.base import DeliveryError
from gpuwatch.notify.transports.file import FileSettings
from gpuwatch.notify.transports.mail import MailSettings
from gpuwatch.notify.transports.registry import ReportTransports
from gpuwatch.notify.transports.web import SlackSettings, WebhookSettings
from tests.support.builders.ledger_fixture import a_fortnight, a_report, at
from tests.support.fakes.http_sink import Answer, Asked, PriceServer, serving
from tests.support.real.alerting import PASSWORD, Mails, mail_server, text_of
from tests.support.real.certificates import Authority


@pytest.fixture(scope="module")
def report() -> Report:
    """Of the first day of a small story."""
    return a_report(a_fortnight(until=at(date(2026, 3, 15), 2)).ledger, date(2026, 3, 14), now=at(date(2026, 3, 15), 7))


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """Who signs the servers' certificates."""
    return Authority(tmp_path / "ca")


def secret(folder: Path, text: str) -> str:
    """A file that holds it."""
    path = folder / "secret"
    path.write_text(f"{text}\n")
    return str(path)


@contextmanager
def secure(respond: Callable[[Asked], Answer | None], authority: Authority) -> Iterator[PriceServer]:
    """A web server with TLS."""
    issued = authority.issue("web")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued.certificate, issued.key)
    server = PriceServer(respond)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_mail_has_both_forms_and_the_same_id_at_each_try(
    report: Report, authority: Authority, tmp_path: Path
) -> None:
    """By STARTTLS with a password: HTML with the text beside it, no SVG, and an id by which a second copy is known."""
    with mail_server("reports", authority.issue("mail")) as (address, mails):
        host, _, port = address.rpartition(":")
        settings = MailSettings(
            host=host,
            port=int(port),
            tls_ca=str(authority.ca),
            username="reports",
            password_file=secret(tmp_path, PASSWORD),
            sender="gpuwatch@example.com",
            to=("ann@example.com", "bob@example.com"),
        )
        where = delivered(report, ReportTransports(mail=settings))
        delivered(report, ReportTransports(mail=settings))
        (mail, again) = mails.messages

    assert where == "2 by 127.0.0.1"
    assert (mail["Subject"], mail["To"]) == ("GPU report for Saturday 2026-03-14", "ann@example.com, bob@example.com")
    assert mail["Message-ID"] == again["Message-ID"] == "<gpuwatch-report-1@example.com>"
    assert text_of(mail).startswith("GPU report for Saturday 2026-03-14")
    assert text_of(mail, "html").startswith("<!DOCTYPE html>")
    assert "<svg" not in text_of(mail, "html")


def test_a_mail_server_with_a_certificate_of_nobody_known_gets_nothing(
    report: Report, authority: Authority, tmp_path: Path
) -> None:
    """Not the password, and not the mail."""
    with mail_server("reports", authority.issue("mail")) as (address, mails):
        host, _, port = address.rpartition(":")
        stranger = str(Authority(tmp_path / "stranger").ca)
        settings = MailSettings(host=host, port=int(port), tls_ca=stranger, to=("ann@example.com",))
        error = error_of(report, ReportTransports(mail=settings))

    assert mails.messages == []
    assert "is not believed" in error


def test_who_is_refused_is_named_and_the_others_have_it_once(report: Report) -> None:
    """One wrong address keeps nobody else's mail back and sends theirs no second time; all wrong is a failure."""

    class Choosy(Mails):
        """Knows ann alone."""

        async def handle_RCPT(self, _s: object, _t: object, envelope: Envelope, to: str, _o: object) -> str:  # noqa: N802
            if not to.startswith("ann@"):
                return "550 nobody of that name"
            envelope.rcpt_tos.append(to)
            return "250 OK"

    mails = Choosy()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = Controller(mails, hostname="127.0.0.1", port=port)
    server.start()
    try:
        settings = MailSettings(host="127.0.0.1", port=port, security="none", to=("ann@example.com", "bob@example.com"))
        where = delivered(report, ReportTransports(mail=settings))
        error = error_of(report, ReportTransports(mail=replace(settings, to=("bob@example.com",))))
    finally:
        server.stop()

    assert where == "1 by 127.0.0.1; refused: bob@example.com"
    assert error == "the mail server does not accept mail for bob@example.com"
    assert len(mails.messages) == 1


def test_a_webhook_gets_the_document_with_its_token(report: Report, authority: Authority, tmp_path: Path) -> None:
    """By https: the JSON of `gpuwatch report --json`, the bearer token, and a key that is the same at each try."""
    with secure(lambda _: Answer(body="", status=204), authority) as server:
        url = server.url.replace("http://", "https://") + "/in"
        settings = WebhookSettings(url=url, bearer_file=secret(tmp_path, "t0ken"), tls_ca=str(authority.ca))
        delivered(report, ReportTransports(webhook=settings))
        delivered(report, ReportTransports(webhook=settings))
        (first, second) = server.asked

    assert first.headers["authorization"] == "Bearer t0ken"
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"] == "gpuwatch-report-1"
    assert json.loads(first.body)["title"] == "GPU report for Saturday 2026-03-14"


def test_slack_gets_a_message_and_its_url_is_in_no_error(report: Report, tmp_path: Path) -> None:
    """The first figures and who wasted the most; the URL is a secret, also where it is wrong."""
    with serving(lambda _: Answer(body="ok")) as server:
        good = SlackSettings(url_file=secret(tmp_path, f"{server.url}/services/S3CRET"))
        delivered(report, ReportTransports(slack=good))
        message = json.loads(server.asked[0].body)
    wrong = ("http://example.com/WR0NG", "WR0NG", "https://[WR0NG", "https://127.0.0.1:9/WR0NG x", "https://a/€/WR0NG")
    errors = [
        error_of(report, ReportTransports(slack=SlackSettings(url_file=secret(tmp_path, text)))) for text in wrong
    ]

    assert message["text"].startswith("GPU report for Saturday 2026-03-14\n\n9 machines cost")
    assert "Most waste: ann $" in message["text"]
    assert message["parse"] == "none"
    assert set(message) == {"text", "parse"}
    assert not any("WR0NG" in error for error in errors)


@pytest.mark.parametrize(("suffix", "begin"), [("html", "<!DOCTYPE"), ("json", "{"), ("txt", "GPU")])
def test_a_file_is_named_after_the_day_and_is_whole(report: Report, tmp_path: Path, suffix: str, begin: str) -> None:
    """Its folder is made, its end says its form, and nothing else stays beside it; a second time replaces it."""
    pattern = str(tmp_path / "reports" / "%Y" / f"%m-%d.{suffix}")
    for _ in range(2):
        delivered(report, ReportTransports(file=FileSettings(path=pattern)))
    (path,) = (tmp_path / "reports").rglob("*.*")

    assert path == tmp_path / "reports" / "2026" / f"03-14.{suffix}"
    assert path.read_text().startswith(begin)


def delivered(report: Report, receiver: ReportTransports) -> str:
    """Where it went."""
    return receiver.transport.send(report_delivery(report, receiver, "gpuwatch-report-1"))


def error_of(report: Report, receiver: ReportTransports) -> str:
    """Why it did not arrive."""
    with pytest.raises(DeliveryError) as caught:
        delivered(report, receiver)
    return str(caught.value)
