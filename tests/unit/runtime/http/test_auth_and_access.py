"""runtime/http/auth.py and runtime/http/access.py: who may ask, and what it costs those who may not."""

import base64
import ipaddress
import logging
import re
import string
from http import HTTPStatus
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.settings import AgentSettings
from gpuwatch.config import load
from gpuwatch.runtime.http.access import (
    LoginLimiter,
    basic_credentials,
    client_of,
    contradictions,
    is_loopback,
    parse_users,
    protection_lacking,
)
from tests.support.builders.authenticator import ADDRESS, ALICE, BOB, Gate, header
from tests.support.paths import ROOT

NAMES = st.text(min_size=1, max_size=20).filter(lambda name: ":" not in name)


# Passwords.


def test_the_right_password_opens() -> None:
    """Each user has their own."""
    gate = Gate()

    assert [gate.status(header("alice", "apple")), gate.status(header("bob", "banana"))] == [200, 200]


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Basic",
        "Basic !!!",
        "Basic " + base64.b64encode(b"alice").decode(),
        "Bearer " + base64.b64encode(b"alice:apple").decode(),
        header("alice", "banana"),
        header("alice", ""),
        header("alice", "apple "),
        header("alice", b"\xff\x00"),
        header("alice", "apple" * 20),
        header("alice", "apple\0"),
        header("Alice", "apple"),
        header("mallory", "apple"),
        header("", ""),
    ],
)
def test_anything_else_is_401(authorization: str) -> None:
    """No header, another scheme, broken, wrong, too long for bcrypt, or of nobody."""
    response = Gate().authenticator(authorization, ADDRESS)

    assert response is not None
    assert response.status == HTTPStatus.UNAUTHORIZED
    assert dict(response.headers)["WWW-Authenticate"].startswith("Basic ")


def test_a_password_is_verified_once() -> None:
    """A scrape each second costs one bcrypt in all; each wrong password costs its own, right before or not."""
    gate = Gate()
    statuses = [gate.status(header("alice", "apple")) for _ in range(100)]
    afterwards = gate.verified
    gate.status(header("alice", "apply"))

    assert (set(statuses), afterwards, gate.verified) == ({200}, 1, 2)


def test_a_user_who_does_not_exist_costs_as_much_as_one_who_does() -> None:
    """The time of an answer does not tell the names."""
    gate = Gate()
    gate.status(header("mallory", "apple"))

    assert gate.verified == 1


def test_what_is_remembered_is_bounded_and_holds_no_password() -> None:
    """One digest a user, under a key that only this process has."""
    gate = Gate()
    for user, password in (("alice", "apple"), ("bob", "banana"), ("alice", "apple")):
        gate.status(header(user, password))
    remembered = repr(gate.authenticator._verified)

    assert len(gate.authenticator._verified) == 2
    assert "apple" not in remembered


@given(header=st.one_of(st.text(max_size=60), st.text(max_size=40).map(lambda text: f"Basic {text}")))
def test_no_header_whatever_breaks_the_gate(header: str) -> None:
    """Garbage is nobody."""
    assert basic_credentials(header) is None or header.lower().startswith("basic ")


@given(user=NAMES, password=st.binary(max_size=80))
def test_credentials_come_through_as_they_were_sent(user: str, password: bytes) -> None:
    """Colons and any bytes in the password included."""
    assert basic_credentials(header(user, password)) == (user, password)


# Guessing.


def test_guessing_is_slowed_down() -> None:
    """Five wrong passwords at once, then one each ten seconds; the rest costs the host nothing."""
    gate = Gate()
    first = [gate.status(header("alice", f"guess {number}")) for number in range(8)]
    paid = gate.verified
    gate.clock.advance(10.0)
    later = [gate.status(header("alice", f"guess {number}")) for number in range(2)]

    assert (first, paid) == ([401] * 5 + [429] * 3, 5)
    assert later == [401, 429]


def test_guessing_keeps_nobody_else_out() -> None:
    """Other addresses may log in, and who is known already may from the same one, as behind a router."""
    gate = Gate()
    gate.status(header("bob", "banana"))
    for number in range(8):
        gate.status(header("alice", f"guess {number}"))

    assert gate.status(header("bob", "banana")) == HTTPStatus.OK
    assert gate.status(header("alice", "apple")) == HTTPStatus.TOO_MANY_REQUESTS
    assert gate.status(header("alice", "apple"), "10.9.9.9") == HTTPStatus.OK


def test_the_log_says_who_guesses_and_not_what(caplog: pytest.LogCaptureFixture) -> None:
    """One line for each verification that failed, with the address; names are left out, people type passwords there."""
    gate = Gate()
    for _ in range(8):
        gate.status(header("s3cret-in-the-wrong-field", "apple"))
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]

    assert lines[:5] == [f"a wrong user or password from {ADDRESS}"] * 5
    assert "s3cret" not in caplog.text


@given(st.lists(st.integers(0, 9), max_size=50))
def test_the_book_of_strikes_is_small(clients: list[int]) -> None:
    """However many addresses guess, and the latest ones are in it."""
    strikes = LoginLimiter(most_clients=3)
    for client in clients:
        strikes.note_failure(str(client), 0.0)

    latest = list(dict.fromkeys(map(str, reversed(clients))))[:3]
    assert set(strikes._until) == set(latest)


@given(st.lists(st.floats(0, 30), min_size=1, max_size=100))
def test_no_more_than_five_and_one_each_ten_seconds(waits: list[float]) -> None:
    """Over any stretch of time, however the attempts are spread."""
    strikes, now, failed = LoginLimiter(), 0.0, []
    for wait in waits:
        now += wait
        if strikes.allows("x", now):
            strikes.note_failure("x", now)
            failed.append(now)

    for first, begin in enumerate(failed):
        for last in range(first, len(failed)):
            assert last - first + 1 <= 6 + (failed[last] - begin) / 10, failed


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("10.0.0.1", "::ffff:10.0.0.1", True),
        ("2001:db8::1", "2001:db8::ffff:2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
    ],
)
def test_whom_an_address_counts_for(one: str, other: str, same: bool) -> None:
    """An IPv6 host has a /64 to choose from, so that counts as one."""
    assert (client_of(one) == client_of(other)) is same


# Files of users.


def test_a_file_as_htpasswd_writes_it(tmp_path: Path) -> None:
    """Comments and empty lines are nothing; `$2y$` is bcrypt as well; a user of the file goes before a listed one."""
    file = tmp_path / "users"
    file.write_text(f"# scrapers\n\nalice:{ALICE.replace('$2b$', '$2y$')}\n")
    gate = Gate(users_file=str(file), basic_auth_users={"alice": BOB, "bob": BOB})

    assert gate.status(header("alice", "apple")) == HTTPStatus.OK
    assert gate.status(header("alice", "banana")) == HTTPStatus.UNAUTHORIZED
    assert gate.status(header("bob", "banana")) == HTTPStatus.OK


def test_a_changed_password_counts_at_once(tmp_path: Path) -> None:
    """Who was remembered with the old one is not, and who was taken out is nobody."""
    file = tmp_path / "users"
    file.write_text(f"alice:{ALICE}\nbob:{BOB}\n")
    gate = Gate(users_file=str(file))
    before = [gate.status(header("alice", "apple")), gate.status(header("bob", "banana"))]
    file.write_text(f"alice:{BOB}\n")

    assert before == [200, 200]
    assert gate.status(header("alice", "apple")) == HTTPStatus.UNAUTHORIZED
    assert gate.status(header("bob", "banana")) == HTTPStatus.UNAUTHORIZED
    assert gate.status(header("alice", "banana")) == HTTPStatus.OK


def test_a_broken_file_leaves_the_old_users(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A slip of the editor locks nobody out, and the log says where it is, without the line."""
    file = tmp_path / "users"
    file.write_text(f"alice:{ALICE}\n")
    gate = Gate(users_file=str(file))
    file.write_text("alice:apple\n")

    assert gate.status(header("alice", "apple")) == HTTPStatus.OK
    assert f"{file}:1: is not USER:HASH" in caplog.text
    assert "alice:apple" not in caplog.text


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "F: names no user"),
        ("\n# nobody\n", "F: names no user"),
        ("alice", "F:1: is not USER:HASH"),
        ("alice:apple", "F:1: is not USER:HASH"),
        (f":{ALICE}", "F:1: is not USER:HASH"),
        (f"\nalice:{ALICE[:-1]}", "F:2: is not USER:HASH"),
        (f"alice:{ALICE.replace('$04$', '$31$')}", "F:1: is not USER:HASH"),
        ("alice:$apr1$x$y", "F:1: is not USER:HASH"),
        (f"alice:{ALICE}\nalice:{BOB}", "F:2: a user who is there already"),
    ],
)
def test_a_wrong_file_is_told_by_line(text: str, wrong: str) -> None:
    """With what makes a right one, and never with what the line holds."""
    with pytest.raises(ValueError, match=r"^F") as caught:
        parse_users(text, "F")

    assert str(caught.value).startswith(wrong)
    assert "apple" not in str(caught.value)


@given(st.dictionaries(st.text(string.ascii_letters + "-_.@", min_size=1), st.just(ALICE), min_size=1, max_size=5))
def test_users_come_through_as_they_were_written(users: dict[str, str]) -> None:
    """Whatever they are called."""
    text = "".join(f"{user}:{hash_}\n" for user, hash_ in users.items())

    assert parse_users(text, "F") == users


# What the settings must hold.

SAFE: dict[str, object] = {"tls_certificate": "/c", "tls_key": "/k", "users_file": "/u"}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"host": "::1"},
        {"host": "localhost"},
        {"host": "127.8.9.1", "users_file": "/u"},
        {"host": "10.0.0.1", **SAFE},
        {"host": "10.0.0.1", "tls_certificate": "/c", "tls_key": "/k", "tls_client_ca": "/a"},
        {"host": "10.0.0.1", "tls_certificate": "/c", "tls_key": "/k", "basic_auth_users": {"alice": ALICE}},
        {"host": "10.0.0.1", "insecure": True},
    ],
)
def test_what_is_safe_or_said_to_be_meant(settings: dict[str, object]) -> None:
    """Loopback alone, or TLS with a proof of who asks, or `insecure`."""
    assert list(contradictions(AgentSettings(**settings), "agent")) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "keys", "wrong"),
    [
        ({"host": "0.0.0.0"}, "agent.host", "without encryption (TLS) and without authentication"),  # noqa: S104  the point
        ({"host": "::"}, "agent.host", "agent.host :: opens the agent to the network"),
        ({"host": "gpu-7"}, "agent.host", "agent.host gpu-7 opens the agent to the network"),
        ({"host": "10.0.0.1", "users_file": "/u"}, "agent.host", "to the network without encryption (TLS)"),
        ({"host": "10.0.0.1", **SAFE, "users_file": None}, "agent.host", "to the network without authentication"),
        ({"tls_key": "/k"}, "agent.tls_key agent.tls_certificate", "is set without agent.tls_certificate"),
        ({"tls_certificate": "/c"}, "agent.tls_certificate agent.tls_key", "is set without agent.tls_key"),
        ({"tls_client_ca": "/a"}, "agent.tls_client_ca agent.tls_certificate", "without TLS no client"),
        ({"basic_auth_users": {"alice": "apple"}}, "agent.basic_auth_users.alice", "(hidden) is not a hash"),
    ],
)
def test_what_is_not_is_refused_with_the_keys_and_a_remedy(settings: dict[str, object], keys: str, wrong: str) -> None:
    """One fault each, and no word of a password."""
    (fault,) = contradictions(AgentSettings(**settings), "agent")  # type: ignore[arg-type]

    assert " ".join(".".join(key) for key in fault.keys) == keys
    assert wrong in fault.wrong
    assert "apple" not in fault.wrong + fault.right


def test_settings_do_not_show_their_users() -> None:
    """Neither in a log nor in a traceback."""
    assert ALICE not in repr(AgentSettings(basic_auth_users={"alice": ALICE}))


@given(st.ip_addresses())
def test_only_loopback_is_loopback(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    """By the address alone; whatever else may be reached from elsewhere."""
    assert is_loopback(str(address)) is address.is_loopback


# docs/tls-and-auth.md.


def test_the_settings_of_the_page_are_right(tmp_path: Path) -> None:
    """What it tells to write, for the agent and for the controller, is accepted and leaves nothing open."""
    page = (ROOT / "docs" / "tls-and-auth.md").read_text(encoding="utf-8")
    blocks = [block for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "scrape_configs" not in block]
    file = tmp_path / "gpuwatch.yaml"
    file.write_text("".join(blocks))
    settings = load(file, {})

    assert len(blocks) == 2
    assert list(protection_lacking(settings.agent)) == []
    assert (settings.signals.scheme, settings.signals.username) == ("https", "controller")
