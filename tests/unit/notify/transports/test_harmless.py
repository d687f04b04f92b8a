"""Names from outside in mails and chats: nobody is called, nothing is a link but ours, and commands still work."""

import html
import re
import shlex
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.config import keys
from gpuwatch.config.settings import Settings
from gpuwatch.notify.formats import Notification, wording_as_html
from gpuwatch.notify.message import compose_message
from gpuwatch.notify.transports.harmless import harmless_html, harmless_text
from gpuwatch.notify.wording import Item, Wording
from tests.support.builders.notices import a_machine, about, an_event

LINKED = [
    "www.evil.example/login",
    "evil.com",
    "login.evil.sh",
    "evil.example:8443/x",
    "xn--80ak6aa92e.com",
    "аррle.com",  # noqa: RUF001  Cyrillic, as such names are
    "evil。com",
    "www.evil.internal",
    "anything.nonsuch/login?next=x",
]
CALLING = ["@all", "<@U1>", "@所有人", "@here", "＠all", "(@all)", "a @channel"]  # noqa: RUF001  full width
WORDS = [
    "g5.xlarge",
    "p4d.24xlarge",
    "ml.p4d.24xlarge",
    "Standard_ND96isr_H100_v5",
    "ecs.gn7i-c8g1.2xlarge",
    "ip-10-0-0-1.eu-west-1.compute.internal",
    "backup.timer",
    "4.5 GB of 10.0.0.7",
    "ann@example.com",
    "gpuwatch.io/keep",
    "https://gpuwatch.example.com/snooze/i-1",
]


@pytest.mark.parametrize("name", LINKED)
@pytest.mark.parametrize("written", [harmless_text, harmless_html])
def test_no_name_becomes_a_link(written: Callable[[str], str], name: str) -> None:
    """Whatever a mail program or a chat takes for a web address: the dots are not dots any more."""
    assert "[.]" in written(f"gpuwatch will stop {name} soon.")
    assert not re.search(r"\w[.。]\w", written(f"gpuwatch will stop {name} soon."))


@pytest.mark.parametrize("name", CALLING)
@pytest.mark.parametrize("written", [harmless_text, harmless_html])
def test_no_name_calls_people(written: Callable[[str], str], name: str) -> None:
    """Neither everybody nor one: no word follows the sign."""
    said = f"owner {name}, idle"

    assert not re.search(r"[@＠]\w", harmless_html(html.escape(said)) if written is harmless_html else written(said))  # noqa: RUF001  full width


@pytest.mark.parametrize("words", WORDS)
def test_types_addresses_and_our_own_links_stay(words: str) -> None:
    """What no program takes for a web address is read as it is."""
    assert harmless_text(f"see {words}, please") == f"see {words}, please"


def test_keys_of_the_configuration_stay() -> None:
    """Those of limits and idle rules stand in reasons, and people look for them."""
    names = [".".join(path) for path in keys.declared_keys(Settings) if {"limits", "idle"} & {*path}]

    assert [name for name in names if harmless_text(name) != name] == []


@given(st.lists(st.text("abc-", min_size=1, max_size=5).filter(lambda each: each[0] != "-"), min_size=1, max_size=4))
def test_a_command_is_the_same_to_a_shell(labels: list[str]) -> None:
    """A name that looks like a web address is typed with backslashes, which a shell takes away."""
    name = ".".join([*labels, "com"])
    command = harmless_text(f"Type `gpuwatch snooze {name} 4h`.").split("`")[1]

    assert shlex.split(command) == ["gpuwatch", "snooze", name, "4h"]
    assert f"{labels[-1]}.com" not in command


def test_a_mail_holds_no_link_but_ours() -> None:
    """Of a machine with such a name, owner and pool: in both parts of the mail, with its commands."""
    node = a_machine(name="www.evil.example/login")
    message = compose_message([an_event(node_id=node.id, key=node.id, owner="evil.com")], about(node))
    content = Notification(message)
    text, page = harmless_text(content.text()), harmless_html(content.html(mail=True))

    for body in (text, re.sub(r"<[^>]*>", "", page)):
        assert "www[.]evil[.]example/login" in body
        assert "evil.com" not in body


def test_tags_and_links_of_a_page_stay() -> None:
    """Only what people read is changed."""
    item = Item(head="evil.com", facts=(("Back", "`kubectl scale evil.com`"),), links=(("Keep it", "https://a.com/x"),))
    page = wording_as_html(
        Wording(
            subject="s",
            opening="o",
            items=(item,),
            more=None,
            hints_title="",
            hints=(),
            footer="f",
            page="https://a.com",
        )
    )
    changed = harmless_html(page)

    assert re.findall("<[^>]*>", changed) == re.findall("<[^>]*>", page)
    assert "<code>kubectl scale evil\\.com</code>" in changed
