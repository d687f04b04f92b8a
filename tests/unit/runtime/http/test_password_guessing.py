"""runtime/http/auth.py: what guessing passwords costs, and what it tells."""

import http.client
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.settings import AgentSettings
from gpuwatch.runtime.clock import SystemClock
from gpuwatch.runtime.http.auth import FairLock, make_auth
from gpuwatch.runtime.http.request import Response
from gpuwatch.runtime.http.server import HttpServer
from tests.support.builders.authenticator import ADDRESS, ALICE, BOB, Gate, hashed, header
from tests.support.real.agents import eventually

RIGHT, WRONG = header("alice", "apple"), header("alice", "banana")


def guess(gate: Gate, times: int, address: str = ADDRESS, user: str = "alice") -> list[int]:
    """So many different wrong passwords."""
    return [gate.status(header(user, f"guess {number}"), address) for number in range(times)]


@pytest.mark.parametrize("logged_in", [True, False])
def test_a_right_guess_beyond_the_limit_is_not_heard(logged_in: bool) -> None:
    """Else its answer would tell it from the wrong ones, and the limit would limit nothing."""
    gate = Gate()
    if logged_in:
        gate.status(RIGHT, "10.9.9.9")
    statuses = guess(gate, 8)

    assert statuses == [401] * 5 + [429] * 3
    assert gate.status(RIGHT) == 429
    assert gate.status(RIGHT, "10.9.9.9") == 200


class Plain(Gate):
    """A gate whose passwords are compared at no cost; the user has logged in once, from elsewhere."""

    def __init__(self, history: list[tuple[float, str]]) -> None:
        """After those guesses, each so many seconds after the last, for that user."""
        super().__init__()
        self.authenticator._matches = lambda given, _: given == b"apple"  # type: ignore[assignment]
        self.status(RIGHT, "10.9.9.9")
        for wait, user in history:
            self.clock.advance(wait)
            self.status(header(user, "wrong"))


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.0, 1.0, 11.0]), st.sampled_from(["alice", "alice", "bob", "x"]))))
def test_no_more_guesses_are_told_right_or_wrong_than_five_and_one_each_ten_seconds(
    history: list[tuple[float, str]],
) -> None:
    """Whatever else is tried meanwhile: a guess counts where the right password would have been let in."""
    rows, now = [], 0.0
    for number, (wait, user) in enumerate(history):
        now += wait
        gate = Plain(history[:number])
        gate.clock.advance(wait)
        if user == "alice" and gate.status(RIGHT) == 200:
            rows.append(now)

    for first, begin in enumerate(rows):
        for last in range(first, len(rows)):
            assert last - first + 1 <= 6 + (rows[last] - begin) / 10, rows


def test_guesses_at_the_same_time_count_at_once() -> None:
    """Five that are being verified are five, before any of them has failed."""
    gate = Gate()
    gate.status(RIGHT, "10.9.9.9")
    verifying, go_on = threading.Event(), threading.Event()

    def slow(password: bytes, _: bytes) -> bool:
        verifying.set()
        go_on.wait(10)
        return password == b"apple"

    gate.authenticator._matches = slow  # type: ignore[assignment]
    guessers = [threading.Thread(target=guess, args=(gate, 1)) for _ in range(5)]
    for guesser in guessers:
        guesser.start()
    verifying.wait(10)
    eventually(lambda: len(gate.authenticator._turn._waiting) == 4)
    sixth = gate.status(RIGHT)
    go_on.set()
    for guesser in guessers:
        guesser.join(10)

    assert sixth == 429


@given(st.lists(st.sampled_from(["alice", "bob", "nobody", "else"]), max_size=12))
def test_what_a_wrong_guess_hears_tells_no_names(names: list[str]) -> None:
    """Not who exists, nor who has logged in: the same answer for everybody, after the same history."""
    answers = set()
    for user in ("alice", "bob", "nobody", "new"):
        gate = Plain([(0.0, "nobody" if name == user else name) for name in names])
        answers.add(gate.status(header(user, "wrong")))

    assert len(answers) == 1


def test_an_ipv6_network_is_one_guesser() -> None:
    """A host has a /64 to choose from."""
    gate = Gate()
    gate.status(RIGHT, "10.9.9.9")
    for number in range(8):
        gate.status(WRONG, f"2001:db8::{number:x}")

    assert gate.status(RIGHT, "2001:db8::ffff") == 429
    assert gate.status(RIGHT, "2001:db8:0:1::1") == 200


def test_the_lock_ends_by_itself() -> None:
    """Ten seconds after a guess one more is heard, and the right one is let in."""
    gate = Gate()
    gate.status(RIGHT)
    guess(gate, 20)
    gate.clock.advance(10.0)

    assert [gate.status(RIGHT), gate.status(WRONG), gate.status(RIGHT)] == [200, 401, 429]


def test_a_connection_that_has_logged_in_goes_on_until_it_is_wrong() -> None:
    """Prometheus' own, while somebody behind the same address guesses; a shared one is no way around the limit."""
    gate, mine = Gate(), set[str]()

    def on_mine(authorization: str) -> int:
        answer = gate.authenticator(authorization, ADDRESS, mine)
        return 200 if answer is None else answer.status

    first = on_mine(RIGHT)
    guess(gate, 8)
    others = on_mine(header("bob", "banana"))

    assert [first, on_mine(RIGHT), gate.status(RIGHT), others] == [200, 200, 429, 429]
    assert [on_mine(WRONG), on_mine(RIGHT)] == [429, 429]


def test_who_is_logged_in_hears_nothing_of_a_guesser_for_others() -> None:
    """At the same address: the limit of one user is not another's."""
    gate = Gate()
    gate.status(header("bob", "banana"))
    guess(gate, 20)

    assert gate.status(header("bob", "banana")) == 200


def test_refusals_are_counted_and_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """Guessing beyond the limit is not silent, and fills no disk."""
    gate = Gate()
    guess(gate, 105)
    gate.clock.advance(61.0)
    guess(gate, 105, "10.7.7.7")
    lines = [record.getMessage() for record in caplog.records if "429" in record.getMessage()]

    assert gate.authenticator.failures() == {"wrong": 10, "limited": 200, "busy": 0}
    assert lines == [
        f"too many wrong passwords; log-ins refused without a check (429): 1, the latest from {ADDRESS}",
        "too many wrong passwords; log-ins refused without a check (429): 100, the latest from 10.7.7.7",
    ]


@pytest.mark.parametrize("user", ["low", "middle", "high", "nobody"])
@pytest.mark.parametrize("logged_in", [True, False])
def test_a_wrong_password_costs_as_many_rounds_whoever_it_is_for(user: str, logged_in: bool) -> None:
    """Costs of hashes differ, and the time of a 401 must not tell them, nor who has logged in."""
    users = {"low": hashed("a", 4), "middle": hashed("b", 5), "high": hashed("c", 7)}
    gate = Gate(basic_auth_users=users)
    if logged_in:
        for name, password in zip(users, "abc", strict=True):
            gate.status(header(name, password), "10.9.9.9")
    rounds = []

    def count(_: bytes, against: bytes) -> bool:
        rounds.append(2 ** int(against[4:6]))
        return False

    gate.authenticator._matches = count  # type: ignore[assignment]

    assert gate.status(header(user, "wrong")) == 401
    assert sum(rounds) == 2**7


def test_who_has_failed_waits_behind_who_has_not() -> None:
    """Thirty guessers of thirty addresses do not keep an operator from a first log-in."""
    turn, order = FairLock(), list[str]()
    waiting = []
    with turn.hold(0, 10) as mine:
        for number, (name, rank) in enumerate((("guesser", 1), ("another", 1), ("operator", 0)), start=1):
            thread = threading.Thread(target=_wait, args=(turn, rank, name, order))
            thread.start()
            waiting.append(thread)
            eventually(lambda number=number: len(turn._waiting) == number)  # type: ignore[misc]
    for thread in waiting:
        thread.join(10)

    assert mine
    assert order == ["operator", "guesser", "another"]


def _wait(turn: FairLock, rank: int, name: str, order: list[str]) -> None:
    with turn.hold(rank, 10):
        order.append(name)


def test_a_turn_that_does_not_come_is_given_up() -> None:
    """And whoever waits behind has it then."""
    turn = FairLock()
    with turn.hold(0, 1), turn.hold(0, 0.01) as second:
        pass
    with turn.hold(1, 1) as third:
        pass

    assert (second, third) == (False, True)


@pytest.fixture
def server() -> Iterator[HttpServer]:
    """An agent's port with users."""
    clock = SystemClock()
    served = HttpServer(
        "127.0.0.1",
        0,
        {"/page": lambda _: Response(body=b"a page\n", content_type="text/plain")},
        clock=clock,
        max_connections=8,
        timeout_seconds=5.0,
        door=make_auth(AgentSettings(basic_auth_users={"alice": ALICE, "bob": BOB}), clock, "agent"),
    )
    served.start()
    yield served
    served.close()


def ask(connection: http.client.HTTPConnection, authorization: str) -> int:
    """One request on that connection."""
    connection.request("GET", "/page", headers={"Authorization": authorization})
    answer = connection.getresponse()
    answer.read()
    return answer.status


def test_over_the_wire_as_an_attacker_would(server: HttpServer) -> None:
    """A thousand guesses of a user who is logged in: five are looked at, and the right one is not among them."""
    port = int(server.server_address[1])
    prometheus = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    attacker = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    assert ask(prometheus, RIGHT) == 200

    statuses = [ask(attacker, header("alice", f"guess {number}")) for number in range(100)]
    assert (statuses.count(401), statuses.count(429)) == (5, 95)
    assert ask(attacker, RIGHT) == 429
    assert ask(prometheus, RIGHT) == 200
    assert server.door.failures() == {"wrong": 5, "limited": 96, "busy": 0}
    for connection in (prometheus, attacker):
        connection.close()
