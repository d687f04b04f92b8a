"""A folder that `gpuwatch doctor --record` wrote, played as the cloud that it was recorded of.

    with replaying("azure", folder) as (cloud, replay):
        look_at(cloud, replay)
    assert replay.left_out == []

Each request is answered by the recorded one that is most like it: of the same call, or the same method and path, with
the most parameters in common. So pages come in their order, and times of today match those of the recording.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from gpuwatch.cli.doctor.record import ABOUT, look_once
from gpuwatch.clouds import Cloud, CloudError
from tests.support.clouds.recorded import NOW
from tests.support.clouds.server import Request, Response
from tests.support.components import loaded

Parameters = frozenset[tuple[str, str]]
_ACTIONS = ("x-tc-action", "x-acs-action", "x-amz-target")  # the headers that name a call


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a request asks: the call, or the method and the path, and all its parameters."""

    call: str
    parameters: Parameters


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of a recording."""

    told: Mapping[str, Any] = field(hash=False, repr=False)
    asked: Asked

    @property
    def response(self) -> Response:
        """The answer, as it was recorded."""
        return Response(status=self.told["status"], body=self.told["body"] or "", headers=dict(self.told["headers"]))


@dataclass
class Replay:
    """A server at every address, which knows what was recorded."""

    lines: list[Line]
    fleet: str
    look: str = ""  # the present one of `look_once`
    missed: list[tuple[str, str]] = field(default_factory=list)  # by look, what was asked and nobody recorded
    _played: set[Asked] = field(default_factory=set)

    def __call__(self, request: Request) -> Response:
        """Answer as it was answered then."""
        asked = asked_by(request)
        fitting = [each for each in self.lines if each.asked.call == asked.call]
        if not fitting:
            self.missed.append((self.look, asked.call))
            return Response(status=500, body="nobody recorded this")
        best = min(fitting, key=lambda each: len(each.asked.parameters ^ asked.parameters))
        self._played.add(best.asked)
        return best.response

    def begin(self, look: str) -> None:
        """Know what is looked at from now on."""
        self.look = look

    @property
    def left_out(self) -> list[tuple[str, str]]:
        """The lines that nothing has asked for, by their looks; of those that ask the same one is enough."""
        return [(each.told["look"], each.asked.call) for each in self.lines if each.asked not in self._played]

    @property
    def urls(self) -> list[str]:
        """Where the requests went that looked at the machines of the settings."""
        return [each.told["uri"] for each in self._machines]

    @property
    def regions(self) -> tuple[str, ...]:
        """The regions of these requests, where no URL names them."""
        return tuple(sorted({each.told["region"] for each in self._machines if each.told["region"]}))

    @property
    def _machines(self) -> list[Line]:
        return [each for each in self.lines if each.told["look"] == "machines"]

    @property
    def endpoint(self) -> str | None:
        """Where the cloud was asked, where that was an address as of a fake; None: at its own."""
        parts = urlsplit(self.urls[0])
        return f"{parts.scheme}://{parts.netloc}" if (parts.hostname or "")[:1].isdigit() else None

    @property
    def at(self) -> datetime:
        """When it was recorded."""
        dates = [each.told["headers"]["date"] for each in self.lines if each.told["headers"].get("date")]
        return parsedate_to_datetime(dates[0]) if dates else NOW


def asked_by(request: Request) -> Asked:
    """What a request to a cloud asks."""
    named = next((request.headers[name] for name in _ACTIONS if name in request.headers), "").rpartition(".")[2]
    return _as_asked(
        named,
        request.method,
        f"https://{request.host}{request.target}",
        request.body.decode(),
        request.headers.get("x-tc-region", ""),
    )


def line_of(told: Mapping[str, Any]) -> Line:
    """A line of the recording, by what it answers."""
    named = str(told["call"]).rpartition(".")[2]
    asked = _as_asked(named, told["method"], told["uri"], told["request"] or "", told.get("region", ""))
    return Line(told=told, asked=asked)


def _as_asked(named: str, method: str, url: str, body: str, region: str) -> Asked:
    parts = urlsplit(url)
    sent = json.loads(body) if body[:1] in ("{", "[") else dict(parse_qsl(body, keep_blank_values=True))
    action = named or sent.pop("Action", "") if isinstance(sent, dict) else named
    sent = {name: value for name, value in sent.items() if name != "Action"} if isinstance(sent, dict) else sent
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    call = action or f"{method} {unquote(parts.path).lower()}"
    host = parts.hostname or ""
    return Asked(call=call, parameters=frozenset({*_flat(sent), *_flat(query), ("host", host), ("region", region)}))


def _flat(value: object, name: str = "") -> Iterator[tuple[str, str]]:
    """Each member of what was sent, by its path, and each word of a text: the order of ids and of terms is open."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _flat(each, f"{name}.{_NUMBER.sub('', key)}")
    elif isinstance(value, list):
        for each in value:
            yield from _flat(each, name)
    elif name.rpartition(".")[2].lower() not in _OF_PAGES:
        for word in re.split(r'[\s"\[\](),]+', str(value)):
            yield name, word


_NUMBER = re.compile(r"\.\d+(?=\.|$)")  # of an item in a form
_OF_PAGES = frozenset({"maxresults", "maxrecords", "pagesize", "limit"})  # their sizes, which are settings


Connect = Callable[[Replay], AbstractContextManager[Cloud]]


def look_at(cloud: Cloud, replay: Replay) -> Mapping[str, str]:
    """Look as the doctor did; the machine that it asked for by itself is any now: their order has changed."""
    troubles = look_once(cloud, replay.begin)
    replay.begin(ALONE)
    for node in cloud.nodes():
        with suppress(CloudError):
            cloud.node(node.id)
    return {name: why for name, why in troubles.items() if name != ALONE}


ALONE = "one machine"  # the name of that look


@contextmanager
def replaying(cloud: str, folder: Path) -> Iterator[tuple[Cloud, Replay]]:
    """The cloud's adapter, and what answers it; the adapter is made by `replayed` of the cloud's `recorded.py`."""
    text = (folder / f"{cloud}.jsonl").read_text(encoding="utf-8")
    lines = [line_of(json.loads(line)) for line in text.splitlines()]
    replay = Replay(lines=lines, fleet=json.loads((folder / ABOUT).read_text(encoding="utf-8"))["fleet"])
    connect: Connect = loaded(f"tests.support.clouds.{cloud}.recorded").replayed
    with connect(replay) as adapter:
        yield adapter, replay
