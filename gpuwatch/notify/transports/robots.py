"""Chat robots of DingTalk, WeCom and Feishu (Lark): text to a group's webhook.

These services answer HTTP 200 also when they refuse a message; only the code in the answer says that it arrived. A
message that is longer than they take goes in several parts. Sources:
open.dingtalk.com/document/robots/custom-robot-access, developer.work.weixin.qq.com/document/path/91770,
open.feishu.cn/document/client-docs/bot-v3/add-custom-bot.
"""

import base64
import hashlib
import hmac
import re
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, ClassVar
from urllib.parse import quote_plus, urlsplit

from gpuwatch.model.setting import Contradiction, Setting
from gpuwatch.notify.transports.base import Delivery, DeliveryError, one_without_other, secret
from gpuwatch.notify.transports.harmless import harmless_text
from gpuwatch.notify.transports.web import SecretUrlTransport, post
from gpuwatch.runtime.json_document import read_json

_LONGEST_REASON = 200  # characters of what the service says
_MENTION = re.compile(r"<(?=\s*/?\s*at\b)", re.IGNORECASE)  # Feishu reads <at user_id="all"> in texts as a mention


@dataclass(frozen=True, slots=True, kw_only=True)
class RobotTransport(SecretUrlTransport):
    """What the three have in common: a code in each answer."""

    service: ClassVar[str]
    longest: ClassVar[int]  # bytes of one text
    codes: ClassVar[tuple[str, ...]] = ("errcode",)
    reasons: ClassVar[tuple[str, ...]] = ("errmsg",)

    @abstractmethod
    def sign_message(self, url: str, text: str, now: datetime) -> tuple[str, dict[str, Any]]:
        """The URL and the document that carry this text; a signature holds for an hour."""

    def send(self, delivery: Delivery) -> str:
        """Post the text, in parts where it is too long; after a failure all parts are sent again.

        Raises:
            DeliveryError: the service refused a part, or its answer does not say that it accepted it.

        """
        url, content = self.url(), delivery.content
        parts = in_parts(harmless_text(f"{content.title}\n\n{content.chat()}"), self.longest)
        for part in parts:
            self._post(url, part, delivery.at)
        return self.service if len(parts) == 1 else f"{self.service}, in {len(parts)} parts"

    def _post(self, url: str, text: str, now: datetime) -> None:
        address, document = self.sign_message(url, text, now)
        answer = post(address, document, {})
        try:
            said = read_json(answer)
        except ValueError:
            said = None
        code = _first(said, self.codes)
        if code == 0:
            return
        if code is None:
            raise DeliveryError(f"{self.service} did not say that it accepted the message")
        reason = str(_first(said, self.reasons) or "without a reason")
        if any(word in reason for word in _secrets(url)):
            reason = "its reason repeats the webhook's address"
        raise DeliveryError(f"{self.service} refused the message: {code} {reason[:_LONGEST_REASON]}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedRobotTransport(RobotTransport):
    """A robot that can ask for signatures."""

    secret_file: Annotated[
        str | None,
        Setting("The file that holds the robot's signing secret. None: the robot does not ask for signatures."),
    ] = None

    def contradictions(self, path: tuple[str, ...], *, owners: bool) -> Iterator[Contradiction]:
        """A secret without a URL."""
        del owners
        if self.secret_file is not None and self.url_file is None:
            yield one_without_other(path, "secret_file", "url_file")


@dataclass(frozen=True, slots=True, kw_only=True)
class DingTalkSettings(SignedRobotTransport):
    """Plain text to a group of DingTalk by its custom robot."""

    service: ClassVar[str] = "DingTalk"
    longest: ClassVar[int] = 9_000  # of 20,000, where each may take two in JSON

    def sign_message(self, url: str, text: str, now: datetime) -> tuple[str, dict[str, Any]]:
        """The signature covers the time in milliseconds and stands in the URL."""
        if self.secret_file is not None:
            key, stamp = secret(self.secret_file), round(now.timestamp() * 1000)
            sign = quote_plus(_digest(key.encode(), f"{stamp}\n{key}".encode()))
            url = f"{url}{'&' if urlsplit(url).query else '?'}timestamp={stamp}&sign={sign}"
        return url, {"msgtype": "text", "text": {"content": text}}


@dataclass(frozen=True, slots=True, kw_only=True)
class WeComSettings(RobotTransport):
    """Plain text to a group of WeCom by its robot."""

    service: ClassVar[str] = "WeCom"
    longest: ClassVar[int] = 2048

    def sign_message(self, url: str, text: str, now: datetime) -> tuple[str, dict[str, Any]]:
        """WeCom has no signatures."""
        del now
        return url, {"msgtype": "text", "text": {"content": text}}


@dataclass(frozen=True, slots=True, kw_only=True)
class FeishuSettings(SignedRobotTransport):
    """Plain text to a group of Feishu or Lark by its custom bot."""

    service: ClassVar[str] = "Feishu"
    longest: ClassVar[int] = 9_000  # of 20,000, where each may take two in JSON
    codes: ClassVar[tuple[str, ...]] = ("code", "StatusCode")
    reasons: ClassVar[tuple[str, ...]] = ("msg", "StatusMessage")

    def sign_message(self, url: str, text: str, now: datetime) -> tuple[str, dict[str, Any]]:
        """The signature covers the time in seconds and stands in the document."""
        document: dict[str, Any] = {"msg_type": "text", "content": {"text": _MENTION.sub("< ", text)}}
        if self.secret_file is not None:
            stamp = str(round(now.timestamp()))
            sign = _digest(f"{stamp}\n{secret(self.secret_file)}".encode(), b"")
            document |= {"timestamp": stamp, "sign": sign}
        return url, document


def in_parts(text: str, longest: int) -> list[str]:
    """The text in parts of at most so many bytes; cut between paragraphs, or else between lines or characters."""
    if len(text.encode()) <= longest:
        return [text]
    parts = [""]
    for piece in _pieces(text, longest):
        if len((parts[-1] + piece).encode()) > longest:
            parts.append("")
        parts[-1] += piece
    return [part.strip() for part in parts if part.strip()]


def _pieces(text: str, longest: int) -> Iterator[str]:
    for paragraph in re.findall(r"(?:.+\n?)+\n*|\n+", text):
        if len(paragraph.encode()) <= longest:
            yield paragraph
            continue
        for line in paragraph.splitlines(keepends=True):
            yield from [line] if len(line.encode()) <= longest else line


def _digest(key: bytes, message: bytes) -> str:
    return base64.b64encode(hmac.new(key, message, hashlib.sha256).digest()).decode()


def _first(said: object, keys: tuple[str, ...]) -> object:
    return next((said[key] for key in keys if key in said), None) if isinstance(said, dict) else None


def _secrets(url: str) -> list[str]:
    """What in a webhook's address is secret: its query's values, and the end of its path."""
    parts = urlsplit(url)
    words = [each.partition("=")[2] for each in parts.query.split("&")] + [parts.path.rpartition("/")[2]]
    return [word for word in words if len(word) >= 8]  # noqa: PLR2004  shorter ones are words of the API, such as send
