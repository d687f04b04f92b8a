"""The requests to a metadata service and the parsing of its answers; no network and no clock."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TypeVar

import msgspec

from gpuwatch.model.cloud_notice import NoticeKind

_LONGEST_WORD = 256
_LONGEST_SHOWN = 60
_MOST_NOTICES = 16

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The instance; None is not known. `name` only serves to find its own events among those of an Azure group."""

    instance_id: str | None = None
    instance_type: str | None = None
    region: str | None = None
    zone: str | None = None
    lifecycle: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One announcement of the cloud.

    `deadline` is the time that the cloud names. Without one, the deadline is `lead_seconds` after the notice was first
    seen; None: unknown. `key` is the same for the same announcement, whenever it is read.
    """

    kind: NoticeKind
    action: str
    deadline: datetime | None = None
    lead_seconds: float | None = None
    about: str = ""  # the cloud's own id of it, or when it was made

    @property
    def key(self) -> str:
        """Kind, deadline, and whatever else distinguishes two of them."""
        deadline = "" if self.deadline is None else self.deadline.isoformat()
        return f"{self.kind.value} {self.action} {deadline} {self.about}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Garbage:
    """An answer that is not what its cloud documents, described in a sentence."""

    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One GET. 404 means that there is nothing now; so does an answer with `nothing` in its body."""

    path: str
    nothing: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FactQuestion(Question):
    """Its parser adds to the facts; it raises ValueError on garbage, and is called through `facts_in`."""

    parse: Callable[[bytes, Facts], Facts]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeQuestion(Question):
    """Its parser reads notices with the help of the facts, through `notices_in`. `not_for`: lifecycles without any."""

    parse: Callable[[bytes, Facts], tuple[Notice, ...]]
    not_for: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenScheme:
    """A session token that is PUT before anything is asked; `optional` where the cloud also answers without."""

    path: str
    ttl_header: str
    header: str
    ttl_seconds: int = 21600
    optional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataService:
    """One cloud's metadata service."""

    provider: str
    endpoint: str
    facts: tuple[FactQuestion, ...]
    notices: tuple[NoticeQuestion, ...]
    headers: Mapping[str, str] = field(default_factory=dict)
    token: TokenScheme | None = None
    remedies: Mapping[str, str] = field(default_factory=dict)  # by cause of failure


def facts_in(question: FactQuestion, body: bytes, known: Facts) -> Facts | Garbage:
    """The facts with what this answer adds."""
    return _word_complaint(question.path, lambda: question.parse(body, known), body)


def notices_in(question: NoticeQuestion, body: bytes, known: Facts) -> tuple[Notice, ...] | Garbage:
    """The notices of this answer."""
    return _word_complaint(question.path, lambda: question.parse(body, known)[:_MOST_NOTICES], body)


def _word_complaint(path: str, parse: Callable[[], T], body: bytes) -> T | Garbage:
    """What a parser finds, or its complaint in words."""
    try:
        return parse()
    except ValueError as error:
        return Garbage(words=f"{path} says {body[:_LONGEST_SHOWN]!r}: {error}")


def decode_json(body: bytes, model: type[T]) -> T:
    """A JSON document as a typed value.

    Raises:
        ValueError: it is not such a document.

    """
    try:
        return msgspec.json.decode(body, type=model)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(str(error)) from error


def word(text: str) -> str:
    """A printable word that may become a label.

    Raises:
        ValueError: it is empty, too long, or not printable.

    """
    if not text or len(text) > _LONGEST_WORD or not text.isprintable():
        raise ValueError(f"{text[:_LONGEST_SHOWN]!r} is not a name")
    return text


def text_of(body: bytes) -> str:
    """A plain-text answer.

    Raises:
        ValueError: it is not a word.

    """
    return word(body.decode("utf-8").strip())


def fact(name: str) -> Callable[[bytes, Facts], Facts]:
    """A parser of a plain-text answer that is one fact."""

    def parse(body: bytes, known: Facts) -> Facts:
        return replace(known, **{name: text_of(body)})

    return parse


def moment(text: str, form: str) -> datetime:
    """A time in a cloud's own form, which must name its zone (%z), as aware UTC.

    Raises:
        ValueError: it is not a time of that form.

    """
    try:
        return datetime.strptime(text, form).astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"{text!r} is out of range") from error
