"""controller/observe/agent_errors: each way in which an agent gives no verdict has a word and a remedy."""

import ast
import asyncio
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import aiohttp
import pytest

from gpuwatch.controller.observe.agent_errors import KINDS, kind_of
from gpuwatch.controller.observe.credentials import _REASONS, _STATUS, failure_of
from tests.support.paths import ROOT


@contextmanager
def one_that_hangs_up() -> Iterator[str]:
    """A server that closes each connection after the question."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def close_all() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                connection.recv(1000)
                connection.close()

        thread = threading.Thread(target=close_all)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def failure(url: str) -> str:
    """What is said of an agent at this address."""

    async def ask() -> str:
        try:
            async with aiohttp.ClientSession() as session, session.get(url) as response:
                await response.read()
        except (aiohttp.ClientError, OSError) as error:
            return failure_of(error)
        return "it answered"

    return asyncio.run(ask())


def test_a_port_that_nobody_listens_at_is_refused_without_the_librarys_words() -> None:
    """The place is named; `ssl:default [Connect call failed` is not."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    said = failure(f"http://127.0.0.1:{port}/")

    assert said == f"its agent could not be asked: 127.0.0.1:{port} refuses connections"
    assert word(said) == "refused"


def test_one_that_hangs_up_and_a_name_that_does_not_exist_have_their_words() -> None:
    """Whatever class of error the library makes of them."""
    with one_that_hangs_up() as url:
        assert word(failure(url)) == "hung-up"
    assert word(failure("http://no-such-host.invalid:9460/")) == "unreachable"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("its agent did not answer within 5s", "timeout"),
        ("the cloud reports no address for it; set signals.targets", "no-address"),
        ("its verdict is stale (2m by its own count, 2m by our clock); check the agent and both clocks", "stale"),
        ("its agent speaks verdict schema 9, not 1; upgrade one", "version"),
        ("the answer is from 'i-2', another node than was asked", "wrong-node"),
        ("its agent answered HTTP 500", "bad-answer"),
        *((text, "TLS") for text in _REASONS.values()),
        *((_STATUS[code], "login") for code in (401, 403, 421, 429)),
        (_STATUS[400], "TLS"),
    ],
)
def test_every_other_failure_has_its_word(said: str, expected: str) -> None:
    """By the sentence that is kept with a round."""
    assert word(said) == expected


def test_what_is_no_failure_of_an_agent_has_none() -> None:
    """No failure, and a Prometheus that refuses connections."""
    assert kind_of(None) is None
    assert kind_of("Prometheus could not be asked: 127.0.0.1:9090 refuses connections") is None


def test_every_sentence_of_the_scrape_has_a_word() -> None:
    """A new one without a word fails here."""
    tree = ast.parse((ROOT / "gpuwatch/controller/observe/scrape.py").read_text(encoding="utf-8"))
    said = [
        re.sub(r"\{[^}]*\}", "x", ast.unparse(each.value).strip("f'\""))
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "NodeReport"
        for each in call.keywords
        if each.arg == "failure" and isinstance(each.value, ast.Constant | ast.JoinedStr)
    ]
    others = [text for text in said if kind_of(text) is None]

    assert len(said) > 8
    assert others == ["it is x"]  # a node that does not run has no agent to ask


def test_each_word_is_one_word_and_each_remedy_a_sentence() -> None:
    """Words are unique, for they are counted."""
    assert len({kind.word for kind in KINDS}) == len(KINDS)
    assert all(" " not in kind.word and kind.remedy.endswith(".") for kind in KINDS)


def word(said: str) -> str | None:
    """The word of a failure."""
    kind = kind_of(said)
    return None if kind is None else kind.word
