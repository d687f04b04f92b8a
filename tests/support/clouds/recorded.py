"""What real clouds answered, as somebody recorded it: `../shared/recorded` beside the checkout, or GPUWATCH_RECORDED.

The recordings are no part of the repository. A folder holds for each cloud `NAME.jsonl`, or the same with `.gz`: one
JSON object a line, with the `source` that it comes from. Where there is none, their tests are skipped.

A test of a cloud says how each answer reaches the cloud's adapter, and what must come of it:

    PATHS = (Path("its machines", fits=lambda it: it.kind == "...", play=play_machines), ...)
    UNREAD = (Unread("its networks", fits=lambda it: ...), ...)

    @pytest.mark.parametrize("path, answer", played("azure", PATHS, wrap))
    def test_each(path, answer): path.play(answer)

    @needs_recordings
    def test_none_is_left_out(): assert left_out("azure", PATHS, UNREAD, wrap) == []

`play` has the adapter connect to the cloud's own address, and `answering` answers in the place of that server: between
both are the adapter's own client or SDK, urllib3, and HTTP as bytes.
"""

import gzip
import io
import json
import os
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from functools import cache
from http import HTTPStatus
from pathlib import Path as Folder
from typing import Any, Generic, TypeVar
from unittest.mock import patch
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest
from urllib3.connection import HTTPConnection, HTTPSConnection

from gpuwatch.cli.doctor.record import record_clouds
from tests.support.clouds.server import Request, Response
from tests.support.fakes.cloud_worlds import FLEET, MINE, a_world
from tests.support.paths import ROOT

# tests/conftest.py hands GPUWATCH_RECORDED on under another name.
FOLDER = Folder(os.environ.get("RECORDED_ANSWERS") or ROOT.parent / "shared" / "recorded")
WHY_NONE = f"no recorded answers of real clouds are at {FOLDER} (GPUWATCH_RECORDED names another folder)"
needs_recordings = pytest.mark.skipif(not FOLDER.is_dir(), reason=WHY_NONE)

NOW = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """One recorded answer: the line as it is. A cloud's test makes its own of it, which knows what kind it is."""

    number: int
    line: dict[str, Any] = field(repr=False)

    @property
    def source(self) -> str:
        """Where it was recorded."""
        return str(self.line.get("source", ""))

    @property
    def name(self) -> str:
        """The name of a test that plays it."""
        return f"{self.number}-{self.source.rpartition('/')[2]}"


Answer = TypeVar("Answer", bound=Recorded)


@dataclass(frozen=True, kw_only=True)
class Path(Generic[Answer]):
    """A way of an adapter to read: which answers it is given, and what plays one of them and says what must come."""

    name: str
    fits: Callable[[Answer], bool]
    play: Callable[[Answer], None]


@dataclass(frozen=True, kw_only=True)
class Unread(Generic[Answer]):
    """Answers to what gpuwatch never asks."""

    name: str
    fits: Callable[[Answer], bool]


def lines(cloud: str) -> list[dict[str, Any]]:
    """What a cloud's file holds; [] where there is none."""
    packed, plain = FOLDER / f"{cloud}.jsonl.gz", FOLDER / f"{cloud}.jsonl"
    if packed.is_file():
        text = gzip.decompress(packed.read_bytes()).decode()
    else:
        text = plain.read_text(encoding="utf-8") if plain.is_file() else ""
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def recorded(cloud: str, wrap: Callable[..., Answer]) -> list[Answer]:
    """The recorded answers of a cloud."""
    return [wrap(number=number, line=line) for number, line in enumerate(lines(cloud))]


def played(cloud: str, paths: Sequence[Path[Answer]], wrap: Callable[..., Answer]) -> list[Any]:
    """Each recorded answer with each path that it fits, as parameters of a test."""
    if not FOLDER.is_dir():
        return [pytest.param(None, None, marks=pytest.mark.skip(reason=WHY_NONE), id="nothing recorded")]
    return [
        pytest.param(path, answer, id=f"{path.name}-{answer.name}")
        for answer in recorded(cloud, wrap)
        for path in paths
        if path.fits(answer)
    ]


def left_out(
    cloud: str, paths: Sequence[Path[Answer]], unread: Sequence[Unread[Answer]], wrap: Callable[..., Answer]
) -> list[str]:
    """The recorded answers that no path reads and that nobody calls unread, and those that are said to be both."""
    found = []
    for answer in recorded(cloud, wrap):
        read, passed = [each for each in paths if each.fits(answer)], [each for each in unread if each.fits(answer)]
        if bool(read) == bool(passed):
            found.append(f"{answer.name}: {'both read and unread' if read else 'neither read nor unread'}")
    return found


def play_recording(
    cloud: str, folder: Folder, paths: Sequence[Path[Answer]], wrap: Callable[..., Answer]
) -> Iterator[tuple[str, Answer]]:
    """Record the pretended cloud as `gpuwatch doctor --record` does, and play it; gives what was played."""
    with a_world(cloud) as world:
        world.launch(MINE)
        world.launch({})
        record_clouds({"": lambda: world.cloud}, FLEET, folder)
    with patch(f"{__name__}.FOLDER", folder):
        for answer in recorded(cloud, wrap):
            for path in paths:
                if path.fits(answer):
                    path.play(answer)
                    yield path.name, answer


# The wire.


@contextmanager
def answering(answer: Callable[[Request], Response]) -> Iterator[list[Request]]:
    """Be the server at every address, for everything that asks by urllib3; gives the requests as they come.

    Nothing is encrypted, no name is looked up and no proxy is used.
    """
    asked: list[Request] = []

    def respond(request: Request) -> Response:
        asked.append(request)
        return answer(request)

    def connect(self: HTTPConnection) -> None:
        self.sock = _Wire(self.host, respond)  # no socket, and all that is used of one
        self.is_verified = True

    with (
        patch.object(ssl, "create_default_context", _no_context),
        patch.object(HTTPConnection, "connect", connect),
        patch.object(HTTPSConnection, "connect", connect),
        patch.dict(os.environ, {"NO_PROXY": "*", "no_proxy": "*"}),
    ):
        yield asked


@cache
def _make_context() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _no_context(*_: object, **__: object) -> ssl.SSLContext:
    """One without authorities for all: to read these takes longer than the rest of a test, and nothing is encrypted."""
    return _make_context()


class _Wire:
    """Takes the bytes of one request, and has those of its answer."""

    family = socket.AF_UNIX  # what `silence.py` asks

    def __init__(self, host: str, respond: Callable[[Request], Response]) -> None:
        self._host, self._respond, self._sent = host, respond, b""

    def sendall(self, data: bytes) -> None:
        """Take the next bytes."""
        self._sent += bytes(data)

    def makefile(self, *_: object, **__: object) -> io.BytesIO:
        """The answer."""
        response = self._respond(_read_request(self._host, self._sent))
        content = response.content
        headers = {
            "Content-Type": "application/json",
            **response.headers,
            "Date": format_datetime(NOW, usegmt=True),
            "Content-Length": str(len(content)),
            "Connection": "close",
        }
        status = HTTPStatus(response.status)
        head = [f"HTTP/1.1 {status.value} {status.phrase}", *(f"{key}: {value}" for key, value in headers.items())]
        return io.BytesIO("\r\n".join([*head, "", ""]).encode() + content)

    def settimeout(self, seconds: float | None) -> None:
        """Answer at once all the same."""

    def setsockopt(self, *_: object) -> None:
        """Need none."""

    def shutdown(self, how: int) -> None:
        """Have nothing open."""

    def close(self) -> None:
        """Have nothing open."""


def _read_request(host: str, sent: bytes) -> Request:
    head, _, body = sent.partition(b"\r\n\r\n")
    first, *rest = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ", 2)
    parts = urlsplit(target)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
    return Request(
        method=method,
        host=host,
        path=unquote(parts.path),
        query=dict(pairs),
        pairs=pairs,
        headers=headers,
        body=body,
        at=NOW,
        target=target,
    )
