"""What was asked of a cloud and what it answered, word for word, while somebody records it.

Each cloud's client passes every exchange on here, at the place where the answer is still as it came. Nobody records but
`gpuwatch doctor --record`; then this costs one comparison. What proves who asks (headers, tokens) is never passed on.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request and its answer. `call` is the operation by the cloud's own name; "" where a URL alone names it.

    `region` is the one that a header names, where the URL has no region. `sent` and `body` are the texts of both; None:
    nothing was sent, or it is not text. `headers` are the answer's.
    """

    cloud: str
    call: str = ""
    region: str = ""
    method: str
    url: str
    sent: str | None = None
    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str | None = None


Take = Callable[[Exchange], None]

_takers: list[Take] = []  # of this process; the clients work in threads of their own


@contextmanager
def recording(take: Take) -> Iterator[None]:
    """Pass on every exchange of this process meanwhile; `take` is called from many threads."""
    _takers.append(take)
    try:
        yield
    finally:
        _takers.remove(take)


def note_exchange(  # noqa: PLR0913  an exchange has so many parts
    cloud: str,
    method: str,
    url: str,
    *,
    status: int,
    headers: Mapping[str, str],
    body: bytes | str | None,
    call: str = "",
    region: str = "",
    sent: bytes | str | None = None,
) -> None:
    """Pass an exchange on, if anybody records."""
    if not _takers or call.endswith(_CREDENTIALS):
        return
    exchange = Exchange(
        cloud=cloud,
        call=call,
        region=region,
        method=method,
        url=url,
        sent=_text(sent),
        status=status,
        headers={name.lower(): headers[name] for name in headers if name.lower() in _HEADERS},
        body=_text(body),
    )
    for take in tuple(_takers):
        take(exchange)


# What an adapter reads of an answer's headers, and what tells the form of its body.
_HEADERS = frozenset({"content-type", "date", "retry-after", "location", "azure-asyncoperation"})


_CREDENTIALS = "AssumeRole"  # its answer is a key


def _text(told: bytes | str | None) -> str | None:
    """Bytes as text; None where they are not text, as a body in CBOR."""
    if not isinstance(told, bytes):
        return told
    try:
        return told.decode()
    except UnicodeDecodeError:
        return None
