"""controller/observe/plain_http.py: answers of agents and Prometheus are counted as they come; none is unpacked."""

import ast
import zlib
from collections.abc import Callable
from datetime import timedelta

import pytest

from gpuwatch.controller.observe.prometheus_api import PromApi
from gpuwatch.controller.observe.scrape import ScrapeSource
from gpuwatch.controller.observe.settings import ObserveSettings, PromqlSettings
from gpuwatch.controller.observe.wall_client import HostNote, send_to_hosts
from gpuwatch.runtime.clock import SystemClock
from tests.support.builders.fleet import a_node
from tests.support.fakes.http_sink import Answer, Asked, serving
from tests.support.paths import ROOT

BOMB = zlib.compress(b" " * 50_000_000, wbits=31)  # 49 kB
ROOM = ROOT / "gpuwatch"


def scraped(url: str) -> str | None:
    """A verdict."""
    settings = ObserveSettings(targets={"i-1": url}, timeout=5.0)
    return ScrapeSource(settings=settings, clock=SystemClock(), max_age_seconds=30.0).confirm(a_node("i-1")).failure


def queried(url: str) -> str | None:
    """An answer of Prometheus."""
    clock = SystemClock()
    return (
        PromApi(settings=PromqlSettings(url=url, timeout=5.0), clock=clock)
        .instant({"up": "up"}, clock.now())["up"]
        .doubt
    )


def written(url: str) -> str | None:
    """A notice on terminals."""
    clock = SystemClock()
    note = HostNote(node=a_node("i-1"), key="k", stop_at=clock.now() + timedelta(hours=1))
    return send_to_hosts(ObserveSettings(targets={"i-1": url}, timeout=5.0), clock, [note])[0]


@pytest.mark.parametrize("client", [scraped, queried, written])
@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd", "identity, gzip", "GZIP", "x"])
def test_a_packed_answer_is_not_asked_for_and_not_unpacked(
    client: Callable[[str], str | None], coding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a megabyte may be hundreds: it is refused by its header."""
    asked: list[Asked] = []

    def respond(request: Asked) -> Answer:
        asked.append(request)
        return Answer(body=BOMB.decode("latin-1"), headers={"Content-Encoding": coding})

    def unpacked(*_: object, **__: object) -> None:
        raise AssertionError("something is unpacked")

    monkeypatch.setattr(zlib, "decompressobj", unpacked)
    with serving(respond) as server:
        said = client(server.url)

    assert "is packed" in (said or "")
    assert [each.headers["accept-encoding"] for each in asked] == ["identity"]


def test_no_other_session_of_aiohttp_is_opened() -> None:
    """The one place that opens them is the one that holds them to this."""
    found = {
        str(path.relative_to(ROOM))
        for path in ROOM.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in {"ClientSession", "request"} and _is_aiohttp(node)
    }

    assert found == {"controller/observe/plain_http.py"}


def _is_aiohttp(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "aiohttp"
