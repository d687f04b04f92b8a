"""What alerts pass through on their way to people: a page to scrape, a real Alertmanager, a mail server, a web hook."""

import contextlib
import email
import email.policy
import json
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import yaml
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, Envelope, LoginPassword

from tests.support.components import require
from tests.support.paths import ROOT
from tests.support.real.certificates import Issued
from tests.support.real.tsdb import running

ALERTS = ROOT / "alerts"
DURATIONS = {"group_wait": "500ms", "group_interval": "1s"}
PASSWORD = "zebra 77"  # noqa: S105  of the mail server of the tests


@dataclass(slots=True)
class Mails:
    """What a mail server has been given; a handler of aiosmtpd."""

    messages: list[EmailMessage] = field(default_factory=list)

    async def handle_DATA(self, _server: object, _session: object, envelope: Envelope) -> str:  # noqa: N802  its name
        """One mail."""
        content = cast("bytes", envelope.content)
        self.messages.append(email.message_from_bytes(content, policy=email.policy.default))
        return "250 OK"

    def to(self, recipient: str) -> list[EmailMessage]:
        """Those to one address."""
        return [message for message in self.messages if message["To"] == recipient]


def text_of(message: EmailMessage, kind: str = "plain") -> str:
    """The part of a mail that a reader sees."""
    body = message.get_body((kind,))
    assert body is not None, message
    return cast("str", body.get_content())


@contextlib.contextmanager
def mail_server(user: str, shown: Issued, mails: Mails | None = None) -> Iterator[tuple[str, Mails]]:
    """A mail server that wants STARTTLS and that user's password; gives its address, and what it was sent."""
    mails = mails or Mails()

    def known(*arguments: object) -> AuthResult:
        given = arguments[-1]
        right = isinstance(given, LoginPassword) and given == LoginPassword(user.encode(), PASSWORD.encode())
        return AuthResult(success=right, handled=False)  # so that the server answers 535

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    secure = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    secure.load_cert_chain(shown.certificate, shown.key)
    controller = Controller(
        mails,
        hostname="127.0.0.1",
        port=port,
        authenticator=known,
        auth_required=True,
        auth_exclude_mechanism=["LOGIN"],  # in which it asks in words that Alertmanager does not know
        tls_context=secure,
        require_starttls=True,
    )
    controller.start()
    try:
        yield f"127.0.0.1:{port}", mails
    finally:
        controller.stop()


@dataclass(slots=True, kw_only=True)
class Posted:
    """A request to a web hook."""

    path: str
    authorization: str | None
    body: Mapping[str, Any]


@contextlib.contextmanager
def web(pages: Mapping[str, Callable[[], bytes]]) -> Iterator[tuple[str, list[Posted]]]:
    """Pages to get, and hooks to post to; gives the address, and what was posted."""
    posted: list[Posted] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(pages[self.path](), "text/plain; version=0.0.4")

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            posted.append(Posted(path=self.path, authorization=self.headers["Authorization"], body=body))
            self._answer(b"ok", "text/plain")

        def _answer(self, body: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}", posted
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def alertmanager(folder: Path, smarthost: str, mail_ca: Path, hooks: str) -> Iterator[str]:
    """Alertmanager with the example's routes, inhibition and words, at these addresses and without its waits."""
    secrets = folder / "secrets"
    secrets.mkdir(parents=True)
    (secrets / "smtp_password").write_text(PASSWORD)
    (secrets / "slack_url").write_text(f"http://{hooks}/slack\n")
    (secrets / "pager_token").write_text("a token\n")
    example = yaml.safe_load((ALERTS / "alertmanager.yml").read_text())
    example["global"]["smtp_smarthost"] = smarthost
    for mail in (mail for receiver in example["receivers"] for mail in receiver["email_configs"]):
        mail["tls_config"] = {"ca_file": str(mail_ca)}
    example["templates"] = [str(ALERTS / "templates" / "*.tmpl")]
    for route in (example["route"], *example["route"]["routes"]):
        route.update(DURATIONS)
    text = yaml.safe_dump(example).replace("https://pager.example.com", f"http://{hooks}")
    text = text.replace("/etc/alertmanager/secrets", str(secrets))
    (folder / "alertmanager.yml").write_text(text)
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
        yield found.group(1)


def impatient_rules(folder: Path) -> Path:
    """The rules with two seconds for all waits, as long as recorded series need to be there; gaps of 10 min are 5 s."""
    rules = yaml.safe_load((ALERTS / "gpuwatch.yml").read_text())
    for rule in (rule for group in rules["groups"] for rule in group["rules"]):
        rule.update({wait: "2s" for wait in ("for", "keep_firing_for") if wait in rule})
        rule["expr"] = rule["expr"].replace("[10m]", "[5s]")
    path = folder / "gpuwatch.yml"
    path.write_text(yaml.safe_dump(rules))
    return path
