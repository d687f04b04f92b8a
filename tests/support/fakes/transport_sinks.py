"""Where notifications go, on loopback: a mail server, web servers, a folder; each can refuse, fail and recover."""

import base64
import hmac
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from email.message import EmailMessage
from pathlib import Path
from typing import Any, Literal

from aiosmtpd.smtp import Envelope

from gpuwatch.notify.transports.alertmanager import AlertmanagerSettings
from gpuwatch.notify.transports.apprise import AppriseSettings
from gpuwatch.notify.transports.base import Transport
from gpuwatch.notify.transports.file import FileSettings
from gpuwatch.notify.transports.mail import MailSettings
from gpuwatch.notify.transports.robots import DingTalkSettings, FeishuSettings, WeComSettings
from gpuwatch.notify.transports.web import SlackSettings, WebhookSettings
from tests.support.fakes.http_sink import Answer, Asked, serving
from tests.support.real.alerting import PASSWORD, Mails, mail_server, text_of
from tests.support.real.certificates import Authority

SECRET = "S3CRET"  # noqa: S105  in what every transport but the mail's keeps secret
SECRETS = (SECRET, PASSWORD)
HOSTILE = "no \x1b[31mmore\x07"  # of a server's answer
Trouble = Literal["refuses", "fails"]  # for good, or for now
_STATUS = {"refuses": 404, "fails": 503}
_REPLIES = {"refuses": f"550 {HOSTILE}", "fails": f"451 {HOSTILE}"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """What people, or their programs, got. `same` is equal for two tries of one delivery; None: nothing shows it."""

    title: str
    text: str
    same: str | None


@dataclass(slots=True, kw_only=True)
class Sink:
    """One destination. `trouble` is what it does to messages; None: it accepts them."""

    received: Callable[[], Sequence[Received]]
    turned: Callable[[Trouble | None], None] = lambda _: None
    trouble: Trouble | None = None

    def turn(self, trouble: Trouble | None) -> None:
        """From now on it does that."""
        self.trouble = trouble
        self.turned(trouble)


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One transport: its settings for a port of loopback, its destination there, and whether it has a secret file."""

    make: Callable[[Path, int], Transport]
    serve: Callable[[Path], AbstractContextManager[tuple[Sink, int]]]
    has_secret: bool = True
    networked: bool = True


@contextmanager
def _web(read: Callable[[Asked], Received | None]) -> Iterator[tuple[Sink, int]]:
    """A web server; `read` gives None for a request that is no message."""
    got: list[Received] = []
    sink = Sink(received=lambda: got)

    def respond(asked: Asked) -> Answer:
        if sink.trouble is not None:
            return Answer(body=HOSTILE, status=_STATUS[sink.trouble])
        received = read(asked)
        if received is not None:
            got.append(received)
        return Answer(body="[]")

    with serving(respond) as server:
        yield sink, server.server_address[1]


@dataclass(slots=True)
class _Post(Mails):
    """A mail server that may refuse every recipient, or take no mail for now."""

    sink: Sink = field(default_factory=lambda: Sink(received=tuple))

    async def handle_RCPT(self, _s: object, _t: object, envelope: Envelope, to: str, _o: object) -> str:  # noqa: N802
        """Its answer to a recipient."""
        if self.sink.trouble == "refuses":
            return _REPLIES["refuses"]
        envelope.rcpt_tos.append(to)
        return "250 OK"

    async def handle_DATA(self, server: object, session: object, envelope: Envelope) -> str:  # noqa: N802
        """Its answer to a mail."""
        if self.sink.trouble == "fails":
            return _REPLIES["fails"]
        return await Mails.handle_DATA(self, server, session, envelope)


@contextmanager
def _mail(folder: Path) -> Iterator[tuple[Sink, int]]:
    mails = _Post()
    mails.sink.received = lambda: [_mailed(message) for message in mails.messages]
    with mail_server("notices", Authority(folder / "ca").issue("mail"), mails) as (address, _):
        yield mails.sink, int(address.rpartition(":")[2])


def _mailed(message: EmailMessage) -> Received:
    return Received(title=message["Subject"], text=text_of(message), same=message["Message-ID"])


@contextmanager
def _folder(folder: Path) -> Iterator[tuple[Sink, int]]:
    reports = folder / "reports"

    def received() -> Sequence[Received]:
        files = reports.glob("*") if reports.is_dir() else ()
        texts = {file.name: file.read_text(encoding="utf-8") for file in files}
        return [Received(title=text.partition("\n")[0], text=text, same=name) for name, text in texts.items()]

    def turned(trouble: Trouble | None) -> None:
        if trouble is None:
            reports.unlink(missing_ok=True)
        else:
            reports.write_text("a file where the folder should be")

    yield Sink(received=received, turned=turned), 0


def _secret(folder: Path, text: str) -> str:
    path = folder / "secret"
    path.write_text(f"{text}\n")
    return str(path)


def _posted(asked: Asked) -> Received:
    document = json.loads(asked.body)
    text = json.dumps(document, ensure_ascii=False)
    return Received(title=document["title"], text=text, same=asked.headers["idempotency-key"])


def _chatted(asked: Asked) -> Received:
    title, _, text = json.loads(asked.body)["text"].partition("\n")
    return Received(title=title, text=text, same=asked.headers["idempotency-key"])


def _apprised(asked: Asked) -> Received:
    document = json.loads(asked.body)
    return Received(title=document["title"], text=document["message"], same=None)


def _alerted(asked: Asked) -> Received | None:
    alerts = json.loads(asked.body) if asked.body else []
    if not alerts:
        return None
    texts = [alert["annotations"]["description"] for alert in alerts]
    same = json.dumps([alert["labels"] for alert in alerts])
    return Received(title=alerts[0]["annotations"]["summary"], text="\n".join(texts), same=same)


def _mail_settings(folder: Path, port: int) -> Transport:
    authority = folder / "ca" / "ca.pem"
    return MailSettings(
        host="127.0.0.1",
        port=port,
        tls_ca=str(authority),
        username="notices",
        password_file=_secret(folder, PASSWORD),
        sender="gpuwatch@example.com",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Robot:
    """How one service's answers and signatures look."""

    content: str
    code: str
    reason: str
    longest: int
    signature: Callable[[Asked, dict[str, Any]], tuple[str, str] | None]

    def answer(self, code: int, reason: str) -> Answer:
        """Status 200 whatever the code is."""
        return Answer(body=json.dumps({self.code: code, self.reason: reason}))

    def wrong_with(self, asked: Asked, document: dict[str, Any]) -> str | None:
        """What is wrong with a request's signature."""
        pair = self.signature(asked, document)
        return None if pair is None or pair[0] == pair[1] else "sign not match"


def _robot(service: Robot) -> Callable[[Path], AbstractContextManager[tuple[Sink, int]]]:
    return lambda _: robot(service)


@contextmanager
def robot(service: Robot) -> Iterator[tuple[Sink, int]]:
    """A chat robot: status 200 to all that it understands, and a code in the answer; texts have a limit."""
    got: list[Received] = []
    sink = Sink(received=lambda: got)

    def respond(asked: Asked) -> Answer:
        if sink.trouble is not None:
            return service.answer(1, HOSTILE)
        document = json.loads(asked.body)
        wrong = service.wrong_with(asked, document)
        if wrong is not None or len(asked.body) > service.longest:
            return service.answer(2, wrong or "message too long")
        text = document[service.content]["content" if service.content == "text" else "text"]
        if got and not text.startswith("gpuwatch "):  # a further part
            got[-1] = replace(got[-1], text=f"{got[-1].text}\n\n{text}")
        else:
            title, _, text = text.partition("\n")
            got.append(Received(title=title, text=text, same=None))
        return service.answer(0, "ok")

    with serving(respond) as server:
        yield sink, server.server_address[1]


def _dingtalk_signature(asked: Asked, document: dict[str, Any]) -> tuple[str, str]:
    del document
    stamp = asked.query["timestamp"]
    return asked.query["sign"], base64.b64encode(
        hmac.digest(SECRET.encode(), f"{stamp}\n{SECRET}".encode(), "sha256")
    ).decode()


def _feishu_signature(asked: Asked, document: dict[str, Any]) -> tuple[str, str]:
    del asked
    key = f"{document['timestamp']}\n{SECRET}".encode()
    return document["sign"], base64.b64encode(hmac.digest(key, b"", "sha256")).decode()


DINGTALK = Robot(content="text", code="errcode", reason="errmsg", longest=20_000, signature=_dingtalk_signature)
WECOM = Robot(content="text", code="errcode", reason="errmsg", longest=2_048 * 2, signature=lambda *_: None)
FEISHU = Robot(content="content", code="code", reason="msg", longest=20_000, signature=_feishu_signature)


def _robot_settings(make: Callable[..., Transport], *, signed: bool) -> Callable[[Path, int], Transport]:
    def settings(folder: Path, port: int) -> Transport:
        url = f"http://127.0.0.1:{port}/robot/send?access_token={SECRET}-url"
        if not signed:
            return make(url_file=_secret(folder, url))
        (folder / "url").write_text(url)
        return make(url_file=str(folder / "url"), secret_file=_secret(folder, SECRET))

    return settings


WAYS: dict[str, Way] = {
    "mail": Way(make=_mail_settings, serve=_mail),
    "slack": Way(
        make=lambda folder, port: SlackSettings(url_file=_secret(folder, f"http://127.0.0.1:{port}/{SECRET}")),
        serve=lambda _: _web(_chatted),
    ),
    "webhook": Way(
        make=lambda folder, port: WebhookSettings(
            url=f"http://127.0.0.1:{port}/in", bearer_file=_secret(folder, SECRET)
        ),
        serve=lambda _: _web(_posted),
    ),
    "dingtalk": Way(make=_robot_settings(DingTalkSettings, signed=True), serve=_robot(DINGTALK)),
    "wecom": Way(make=_robot_settings(WeComSettings, signed=False), serve=_robot(WECOM)),
    "feishu": Way(make=_robot_settings(FeishuSettings, signed=True), serve=_robot(FEISHU)),
    "apprise": Way(
        make=lambda folder, port: AppriseSettings(
            urls_file=_secret(folder, f"json://ann:{SECRET}@127.0.0.1:{port}/in")
        ),
        serve=lambda _: _web(_apprised),
    ),
    "alertmanager": Way(
        make=lambda folder, port: AlertmanagerSettings(
            urls=(f"http://127.0.0.1:{port}",), bearer_file=_secret(folder, SECRET)
        ),
        serve=lambda _: _web(_alerted),
    ),
    "file": Way(
        make=lambda folder, _: FileSettings(path=str(folder / "reports" / "%Y-%m-%d.txt")),
        serve=_folder,
        has_secret=False,
        networked=False,
    ),
}
NETWORKED = [name for name, way in WAYS.items() if way.networked]
