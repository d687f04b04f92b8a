"""Settings of notices: every mistake is named before the first message, and an owner's tag chooses no stranger."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.notify.settings import NotifySettings, OwnerSettings, mail_of, slack_of
from tests.support.builders.configurations import mistakes, read

MAIL = "mail: {host: smtp.example.com, to: [ops@example.com]}"
WRONG = {
    "no way": (
        "receivers: {ops: {events: [done]}}",
        "notify.receivers.ops has no transport",
        "one of mail.host, slack.url_file",
    ),
    "two ways": (
        f"receivers: {{ops: {{{MAIL}, slack: {{url_file: /s}}}}}}",
        "notify.receivers.ops names mail and slack",
        "apprise.urls_file and alertmanager.urls",
    ),
    "taken": (
        f"receivers: {{wall: {{{MAIL}}}}}",
        "notify.receivers.wall: this name is reserved",
        "notify.wall: true",
    ),
    "nobody": (
        "receivers: {ops: {mail: {host: smtp.example.com}}}",
        "notify.receivers.ops.mail.to is empty",
        "[ops@example.com]",
    ),
    "no event": (
        f"receivers: {{ops: {{{MAIL}, events: []}}}}",
        "notify.receivers.ops.events is empty",
        "some of notice, withdrawn",
    ),
    "owners by Slack": (
        "receivers: {chat: {slack: {url_file: /s}, owners: true}}\n  owner_mail: '{owner}@example.com'",
        "notify.receivers.chat.owners is set, and only mail goes to owners",
        "Slack mentions the owners",
    ),
    "owners unknown": (
        "receivers: {owners: {mail: {host: smtp.example.com}, owners: true}}",
        "notify.receivers.owners.owners is set, and no setting gives the owners' addresses",
        "notify.owner_mail",
    ),
    "no URL": (
        "url: gpuwatch.example.com",
        "notify.url 'gpuwatch.example.com' is not a valid URL of a page",
        "https://",
    ),
    "a user in the URL": ("url: 'https://a:b@example.com'", "is not a valid URL of a page", "without user"),
    "links nowhere": ("link_key_file: /k", "notify.link_key_file is set, and notify.url is not", "a notify.url"),
    "links for all to read": (
        "url: http://gpuwatch.example.com\n  link_key_file: /k",
        "is not https: others could read the links that need no login",
        "an https:// URL",
    ),
    "links by plain http": (
        "url: https://g.example.com\n  link_key_file: /k\n  receivers: {ops: {webhook: {url: 'http://chat.example.com/in'}}}",
        "notify.receivers.ops.webhook.url: messages go there unencrypted, and others could use the snooze links",
        "https or TLS",
    ),
    "links by plain mail": (
        (
            "url: https://g.example.com\n  link_key_file: /k\n"
            "  receivers: {ops: {mail: {host: smtp.example.com, security: none, to: [ops@example.com]}}}"
        ),
        "notify.receivers.ops.mail.security: messages go there unencrypted",
        "no notify.link_key_file",
    ),
    "no address": (
        "owners: {ann: {mail: ann}}",
        "notify.owners.ann.mail: 'ann' is not a mail address",
        "ann@example.com",
    ),
    "no member": ("owners: {ann: {slack: '@ann'}}", "notify.owners.ann.slack: '@ann' is not a member id", "U024BE7LH"),
    "no template": (
        "owner_mail: ann@example.com",
        "notify.owner_mail 'ann@example.com' makes no addresses",
        "{owner}@",
    ),
    "a domain of the owner's": ("owner_mail: 'a@{owner}'", "makes no addresses", "before the @"),
    "no domain": (
        "mail_domains: ['@example.com']",
        "notify.mail_domains: '@example.com' is not a domain",
        "example.com",
    ),
    "nobody to tell": (
        f"receivers: {{ops: {{{MAIL}, events: [done]}}}}\nlimits: {{require_notification: true}}",
        "limits.require_notification is set, but no receiver gets notices: nothing can stop",
        "a receiver in notify.receivers",
    ),
}


@pytest.mark.parametrize(
    ("receivers", "awaited"),
    [
        ("{}", {}),
        (f"{{ops: {{{MAIL}}}}}", {"default": 1800.0, "training": 1800.0}),
        (f"{{ops: {{{MAIL}, events: [done]}}}}", {}),
        (f"{{ops: {{{MAIL}, pools: [training]}}}}", {"training": 1800.0}),
    ],
)
def test_a_notice_waits_for_a_message_where_somebody_gets_its_pools_notices(
    tmp_path: Path, receivers: str, awaited: dict[str, float]
) -> None:
    """Where nobody does, no message will come."""
    text = f"pools: {{default: {{}}, training: {{}}}}\nnotify:\n  max_age: 30m\n  receivers: {receivers}\n"
    assert read(tmp_path / "gpuwatch.yml", text).rulebook.delivery_seconds == awaited


def test_a_notice_waits_for_a_message_for_half_a_day_at_most(tmp_path: Path) -> None:
    """One that waits for a day is out of date, and would be given anew for ever."""
    text = f"notify:\n  max_age: 7d\n  receivers: {{ops: {{{MAIL}}}}}\n"
    assert read(tmp_path / "gpuwatch.yml", text).rulebook.delivery_seconds == {"default": 43200.0}


@pytest.mark.parametrize(("text", "wrong", "right"), WRONG.values(), ids=WRONG)
def test_a_mistake_is_named_with_what_would_be_right(tmp_path: Path, text: str, wrong: str, right: str) -> None:
    """With the file, the line, and both halves of the sentence."""
    result = mistakes(tmp_path / "gpuwatch.yaml", f"notify:\n  {text}\n")

    assert "FILE:" in result
    assert wrong in result
    assert right in result


def test_a_whole_section_is_read(tmp_path: Path) -> None:
    """Mail to owners alone, Slack for a pool, apprise, links, terminals, and a limit that needs somebody told."""
    text = """
notify:
  url: https://gpuwatch.example.com/gpu
  link_key_file: /etc/gpuwatch/link-key
  wall: true
  owner_mail: "{owner}@example.com"
  owners: {ann: {mail: a@example.com, slack: U024BE7LH}}
  receivers:
    owners: {mail: {host: smtp.example.com}, owners: true}
    chat: {slack: {url_file: /s}, pools: [training], events: [done]}
    phones: {apprise: {urls_file: /u}}
limits: {require_notification: true}
pools: {training: {}}
"""
    notify = read(tmp_path / "gpuwatch.yaml", text).notify

    assert {name: receiver.chosen for name, receiver in notify.receivers.items()} == {
        "owners": ("mail",),
        "chat": ("slack",),
        "phones": ("apprise",),
    }
    assert notify.max_age == 3600.0


OWNERS = NotifySettings(
    owners={"ann": OwnerSettings(mail="Ann.Lee@example.org", slack="U1AB"), "bob": OwnerSettings(slack="U2AB")},
    owner_mail="{owner}+gpu@example.com",
    mail_domains=("Example.net",),
)


@pytest.mark.parametrize(
    ("owner", "address"),
    [
        ("ann", "Ann.Lee@example.org"),
        ("bob", "bob+gpu@example.com"),
        ("carol.x-1", "carol.x-1+gpu@example.com"),
        ("dave@example.net", "dave@example.net"),
        ("dave@example.com", None),  # that domain is not named
        ("dave@example.net@example.org", None),
        ("dave@example.net, eve@evil.example", None),
        ("<dave@example.net>", None),
        ("eve\r\nBcc: all@example.com", None),
        ("Team Vision", None),
        ("x" * 80, None),
        ("", None),
        (None, None),
    ],
)
def test_an_owner_is_written_to_where_the_settings_say(owner: str | None, address: str | None) -> None:
    """Listed owners first; a tag that is an address only in a domain that is named; else the template."""
    assert mail_of(owner, OWNERS) == address


def test_slack_mentions_only_who_is_listed() -> None:
    """No tag becomes a mention by itself."""
    assert [slack_of(owner, OWNERS) for owner in ("ann", "U3AB", None)] == ["U1AB", None, None]


@given(st.text(max_size=40))
def test_no_tag_makes_an_address_elsewhere(owner: str) -> None:
    """Whatever stands in the tag: one address, in the domains of the settings, without a line's end."""
    address = mail_of(owner, OWNERS)
    if address is not None:
        local, _, domain = address.rpartition("@")

        assert domain.lower() in {"example.com", "example.net", "example.org"}
        assert not set(local) & set('@ ,;<>\r\n"')


@pytest.mark.parametrize(
    "to",
    [
        "{webhook: {url: 'https://chat.example.com/in'}}",
        "{webhook: {url: 'http://127.0.0.1:9000/in'}}",
        "{webhook: {url: 'http://[::1]:9000/in'}}",
        "{webhook: {url: 'http://chat.example.com/in'}, events: [done, withdrawn]}",
        "{mail: {host: localhost, security: none, to: [ops@example.com]}}",
        "{mail: {host: smtp.example.com, security: tls, to: [ops@example.com]}}",
        "{slack: {url_file: /s}}",
        "{apprise: {urls_file: /u}}",
    ],
)
def test_links_go_by_ways_that_others_cannot_read(tmp_path: Path, to: str) -> None:
    """Encrypted, to this machine itself, or in no message with links; what apprise's file says is seen later."""
    links = "url: https://g.example.com, link_key_file: /k"

    assert (
        read(tmp_path / "gpuwatch.yaml", f"notify: {{{links}, receivers: {{ops: {to}}}}}\n").notify.link_key_file
        == "/k"
    )
