"""The last question to an agent: only an answer to this very question, from looks begun after it, confirms."""

from collections.abc import Callable
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, urlsplit
from urllib.request import urlopen

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.controller.observe.scrape import ObserveSettings, ScrapeSource, _why_unconfirmed
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import NodeReport, NodeVerdict
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import NOW, a_node, a_verdict
from tests.support.fakes.scraped_agent import an_agent

# What an agent makes of its verdict, given the nonce of the question (None: it asked for no confirmation).
Habit = Callable[[NodeVerdict, str | None], NodeVerdict]


def honours(verdict: NodeVerdict, nonce: str | None) -> NodeVerdict:
    """It looks again, which takes no time here, and repeats the nonce."""
    return verdict if nonce is None else replace(verdict, confirm=nonce, looked_seconds=0.0)


class Agent:
    """An agent on loopback, on a clock that the test owns. `asked` are the nonces of its questions."""

    def __init__(self, habit: Habit = honours, *, takes_seconds: float = 0.0) -> None:
        self.clock = ManualClock(wall=NOW)
        self.asked: list[str | None] = []
        self.habit = habit
        self.takes_seconds = takes_seconds

    def __call__(self, request: BaseHTTPRequestHandler) -> None:
        """Answer."""
        nonce = next(iter(parse_qs(urlsplit(request.path).query).get("confirm", ())), None)
        self.asked.append(nonce)
        self.clock.advance(self.takes_seconds)
        verdict = self.habit(a_verdict("i-1", at=self.clock.now()), nonce)
        answer(request, msgspec.json.encode(verdict))

    def source(self, url: str, confirm_timeout: float = 5.0) -> ScrapeSource:
        """The source that asks at that address."""
        settings = ObserveSettings(targets={"i-1": url})
        return ScrapeSource(settings=settings, clock=self.clock, max_age_seconds=30.0, confirm_timeout=confirm_timeout)

    def confirmed(self) -> NodeReport:
        """What a confirmation gives."""
        with an_agent(self) as url:
            return self.source(url).confirm(a_node("i-1"))


def answer(request: BaseHTTPRequestHandler, body: bytes) -> None:
    """A whole answer."""
    request.send_response(200)
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)


def test_an_agent_that_looks_again_and_repeats_the_nonce_confirms() -> None:
    """Each question has a nonce of its own; a round's question has none."""
    agent = Agent(takes_seconds=1.0)
    with an_agent(agent) as url:
        source = agent.source(url)
        signals = [source.confirm(a_node("i-1")), source.confirm(a_node("i-1"))]
        seen = source.observe([a_node("i-1")]).nodes[0].signal

    first, second, observed = agent.asked
    assert observed is None
    assert first != second
    assert all(
        nonce and 16 <= len(nonce) <= 64 and nonce.replace("-", "").replace("_", "").isalnum()
        for nonce in (first, second)
    )
    assert [signal.failure for signal in [*signals, seen]] == [None, None, None]


DOUBTS: dict[str, tuple[Habit, str]] = {
    "an older version": (lambda verdict, _: verdict, "its agent is too old to confirm; upgrade it"),
    "another question's": (
        lambda verdict, _: replace(verdict, confirm="x" * 32, looked_seconds=0.0),
        "another question",
    ),
    "half a nonce": (
        lambda verdict, nonce: replace(verdict, confirm=(nonce or "")[:16], looked_seconds=0.0),
        "another",
    ),
    "an empty nonce": (lambda verdict, _: replace(verdict, confirm="", looked_seconds=0.0), "another question"),
    "looks of unknown age": (lambda verdict, nonce: replace(verdict, confirm=nonce), "unknown age"),
    "looks to come": (lambda verdict, nonce: replace(verdict, confirm=nonce, looked_seconds=-0.1), "-0.1s old"),
    "old looks": (lambda verdict, nonce: replace(verdict, confirm=nonce, looked_seconds=3.1), "3.1s old"),
    "looks before it was asked": (lambda verdict, nonce: replace(verdict, confirm=nonce, looked_seconds=2.9), "again"),
}


@pytest.mark.parametrize(("habit", "why"), DOUBTS.values(), ids=DOUBTS)
def test_whatever_does_not_prove_that_it_answers_this_question_is_a_doubt(habit: Habit, why: str) -> None:
    """The node is unknown then, with a sentence that says what to do."""
    signal = Agent(habit, takes_seconds=1.0).confirmed()

    assert signal.verdict is None
    assert why in (signal.failure or "")


@given(looked=st.none() | st.floats(allow_nan=False), takes=st.floats(0.0, 4.5))
def test_only_looks_begun_after_the_question_and_young_are_accepted(looked: float | None, takes: float) -> None:
    """For every age that an agent may claim, against every time that it may take."""
    verdict = replace(a_verdict("i-1"), confirm="n" * 32, looked_seconds=looked)
    confirmed = _why_unconfirmed(verdict, "n" * 32, takes, 3.0) is None

    if looked is None or looked < 0 or looked > 3.0 or looked > takes + 0.1:
        assert not confirmed
    if looked is not None and 0 <= looked <= min(3.0, takes):
        assert confirmed


def test_an_agent_that_could_not_look_says_why_itself() -> None:
    """It repeats the nonce and is in doubt: its own sentence is shown, and nothing is let go."""
    signal = Agent(lambda _, nonce: replace(a_verdict("i-1", State.UNKNOWN), confirm=nonce)).confirmed()
    node = a_node("i-1", signal=signal)

    assert node.activity.state is State.UNKNOWN
    assert node.activity.doubt == "GPU 0: its utilization could not be read"


def test_a_cache_on_the_way_confirms_nothing() -> None:
    """One that ignores the query and Cache-Control answers out of its memory: it cannot know the nonce."""
    agent, kept = Agent(), dict[str, bytes]()

    def cache(request: BaseHTTPRequestHandler) -> None:
        path = request.path.partition("?")[0]
        if path not in kept:
            with urlopen(f"{origin}{request.path}", timeout=10) as response:  # noqa: S310  loopback
                kept[path] = response.read()
        answer(request, kept[path])

    with an_agent(agent) as origin, an_agent(cache) as url:
        source = agent.source(url)
        first = source.confirm(a_node("i-1"))
        agent.clock.advance(20.0)
        second = source.confirm(a_node("i-1"))
        kept.clear()
        observed = source.observe([a_node("i-1")]).nodes[0].signal
        third = source.confirm(a_node("i-1"))

    assert first.failure is None
    assert "another question" in (second.failure or "")
    assert observed.failure is None
    assert "too old to confirm; upgrade it (or something on the way answers for it)" in (third.failure or "")


def test_a_way_that_passes_the_question_on_confirms() -> None:
    """A reverse proxy that keeps nothing is none of our business."""
    agent = Agent(takes_seconds=0.5)

    def proxy(request: BaseHTTPRequestHandler) -> None:
        with urlopen(f"{origin}{request.path}", timeout=10) as response:  # noqa: S310  loopback
            answer(request, response.read())

    with an_agent(agent) as origin, an_agent(proxy) as url:
        assert agent.source(url).confirm(a_node("i-1")).failure is None


def test_an_answer_that_is_held_up_on_the_way_counts_from_the_question() -> None:
    """The agent's looks are of the question's time: how long the answer was on its way is the permit's matter."""
    agent = Agent(takes_seconds=4.0)

    assert agent.confirmed().failure is None


def test_a_confirmation_is_waited_for_no_longer_than_it_may_be_old() -> None:
    """However patient the rounds are."""

    def silent(request: BaseHTTPRequestHandler) -> None:
        request.rfile.read(1)

    agent = Agent()
    with an_agent(silent) as url:
        signal = agent.source(url, confirm_timeout=0.2).confirm(a_node("i-1"))

    assert signal.failure == "its agent did not answer within 0.2s"
