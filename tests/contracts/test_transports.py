"""Every transport keeps every sentence of `notify.transports.base.Transport`: one suite, run on each of them."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from dataclasses import fields as fields_of
from pathlib import Path

import pytest

from gpuwatch.model.fleet import Node
from gpuwatch.notify.formats import Notification
from gpuwatch.notify.message import compose_message
from gpuwatch.notify.transports import mail as mail_transport
from gpuwatch.notify.transports import web as web_transport
from gpuwatch.notify.transports.base import Delivery, DeliveryError, Transport
from gpuwatch.notify.transports.registry import NotificationTransports, ReportTransports
from tests.support.builders.fleet import NOW
from tests.support.builders.notices import a_machine, about, an_event
from tests.support.fakes.http_sink import Answer, serving
from tests.support.fakes.mute_servers import UNREACHABLE
from tests.support.fakes.transport_sinks import NETWORKED, SECRETS, WAYS, Sink, Trouble

# In apprise 2.2 with Python before 3.13.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")
SECRET_FILES = [name for name, way in WAYS.items() if way.has_secret]
UNMARKED = {"apprise", "dingtalk", "feishu", "wecom"}
LONGEST_CHAT = 40_000  # characters that Slack takes


@dataclass(frozen=True, slots=True)
class Post:
    """A transport and its destination."""

    folder: Path
    transport: Transport
    sink: Sink


@pytest.fixture
def post(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Post]:
    """Each transport in turn, or the one of the parameter."""
    way = WAYS[request.param]
    with ExitStack() as stack:
        sink, port = stack.enter_context(way.serve(tmp_path))
        yield Post(folder=tmp_path, transport=way.make(tmp_path, port), sink=sink)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A destination that says nothing is given up at once."""
    for module in (mail_transport, web_transport):
        monkeypatch.setattr(module, "_TIMEOUT_SECONDS", 0.3)
    monkeypatch.setattr(pytest.importorskip("apprise").URLBase, "socket_read_timeout", 0.3)


def a_delivery(*nodes: Node, key: str = "gpuwatch-notice-1") -> Delivery:
    """A notice about these machines, or about one that is called trainer."""
    nodes = nodes or (a_machine(),)
    message = compose_message([an_event(node_id=node.id, key=node.id) for node in nodes], about(*nodes))
    return Delivery(key=key, at=NOW, day=NOW.date(), content=Notification(message), to=("ann@example.com",))


def why_not(transport: Transport) -> str:
    """Why it did not arrive: a `DeliveryError`, and nothing else."""
    with pytest.raises(DeliveryError) as caught:
        transport.send(a_delivery())
    return str(caught.value)


def assert_harmless(texts: Sequence[str]) -> None:
    """One printable line each, without a secret."""
    for text in texts:
        assert text.isprintable(), text
        assert text.strip(), "it says nothing"
        assert not any(secret in text for secret in SECRETS), text


def test_every_transport_of_the_settings_is_tried_here() -> None:
    """A new one must keep the same sentences."""
    names = {each.name for kind in (NotificationTransports, ReportTransports) for each in fields_of(kind)}

    assert names == set(WAYS)


# What arrives


@pytest.mark.parametrize("post", WAYS, indirect=True)
def test_what_is_sent_arrives_and_it_is_said_where(post: Post, caplog: pytest.LogCaptureFixture) -> None:
    """Title and text once; where it went is a line for people without a secret, and so is every line of the log."""
    caplog.set_level(logging.DEBUG)
    where = post.transport.send(a_delivery())
    (received,) = post.sink.received()

    assert received.title.startswith("gpuwatch will stop trainer")
    assert "Mon 2026-03-02 13:10 CET" in received.title
    assert "It has been idle for 2h, longer than 30m." in received.text
    assert_harmless([where])
    assert not any(secret in caplog.text for secret in SECRETS)


@pytest.mark.parametrize("post", WAYS, indirect=True)
def test_letters_of_every_language_arrive_as_they_are(post: Post) -> None:
    """In titles, which are headers of mails, and in texts."""
    name = "Ünïcode-训练机-тренер-🚀"
    post.transport.send(a_delivery(a_machine(name=name)))
    (received,) = post.sink.received()

    assert name in received.title
    assert name in received.text


@pytest.mark.parametrize("post", WAYS, indirect=True)
def test_a_name_from_outside_is_one_printable_line(post: Post) -> None:
    """Tags are written by others: no new header, no new line of ours, no escape sequence of a terminal."""
    post.transport.send(
        a_delivery(a_machine(name="trainer\r\nBcc: eve@example.com\r\n\x1b[31mgpuwatch: all is well\x07"))
    )
    (received,) = post.sink.received()
    lines = [received.title, *received.text.split("\n")]

    assert all(line.rstrip("\r").isprintable() for line in lines), lines
    assert not any(line.startswith(("Bcc:", "gpuwatch: all is well")) for line in lines)


@pytest.mark.parametrize("post", WAYS, indirect=True)
def test_a_long_message_arrives_or_says_what_it_leaves_out(post: Post) -> None:
    """300 machines: all of them are there, or the first ones and how many more there are."""
    machines = [a_machine(f"i-{number:03}", name=f"trainer-{number:03}-{'x' * 100}") for number in range(300)]
    post.transport.send(a_delivery(*machines))
    (received,) = post.sink.received()
    there = [machine for machine in machines if str(machine.name)[:11] in received.text]

    assert len(there) == len(machines) or f"{len(machines) - len(there)} more" in received.text
    assert len(received.text) < LONGEST_CHAT or len(there) == len(machines)


@pytest.mark.parametrize("post", [name for name in WAYS if name not in UNMARKED], indirect=True)
def test_a_repeat_can_be_recognised(post: Post) -> None:
    """The same key at each try, or a second message that replaces the first; chat robots have nothing for it."""
    for _ in range(2):
        post.transport.send(a_delivery())
    post.transport.send(a_delivery(a_machine("i-2"), key="gpuwatch-notice-2"))
    marks = [received.same for received in post.sink.received()]

    assert None not in marks
    assert len(set(marks)) == (1 if len(marks) == 1 else 2), marks


# What does not arrive


@pytest.mark.parametrize("trouble", ["refuses", "fails"])
@pytest.mark.parametrize("post", WAYS, indirect=True)
def test_what_is_refused_is_an_error_in_words_and_can_be_tried_again(post: Post, trouble: Trouble) -> None:
    """Whatever the server says; once it accepts messages, the same delivery arrives once."""
    post.sink.turn(trouble)
    error = why_not(post.transport)
    before = list(post.sink.received())
    post.sink.turn(None)
    post.transport.send(a_delivery())

    assert_harmless([error])
    assert before == []
    assert len(post.sink.received()) == 1


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("unreachable", UNREACHABLE)
@pytest.mark.parametrize("name", NETWORKED)
def test_a_server_that_does_not_answer_is_an_error_in_words(tmp_path: Path, name: str, unreachable: str) -> None:
    """It is given up after a time-out; the error holds neither the URL's secret nor the password."""
    with UNREACHABLE[unreachable]() as port:
        error = why_not(WAYS[name].make(tmp_path, port))

    assert_harmless([error])


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe", b"two\nlines", "€ and ü".encode()])
@pytest.mark.parametrize("post", SECRET_FILES, indirect=True)
def test_a_secret_that_cannot_be_used_is_an_error_in_words(post: Post, content: bytes | None) -> None:
    """No file, nothing in it, no text, more than one line, letters that cannot be sent: its path may be named."""
    path = post.folder / "secret"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    error = why_not(post.transport)

    assert_harmless([error])
    assert not any(part in error for part in ("two", "€"))
    assert post.sink.received() == []


@pytest.mark.parametrize("name", ["slack", "webhook", "alertmanager"])
def test_no_redirect_is_followed(tmp_path: Path, name: str) -> None:
    """A token is for the named server alone."""
    with serving(lambda _: Answer(body="")) as elsewhere:
        answer = Answer(body="", status=302, headers={"Location": f"{elsewhere.url}/in"})
        with serving(lambda _: answer) as server:
            error = why_not(WAYS[name].make(tmp_path, server.server_address[1]))

    assert "HTTP 302" in error
    assert elsewhere.asked == []
