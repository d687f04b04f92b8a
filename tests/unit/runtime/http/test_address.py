"""Addresses in settings: what leads nowhere is found at once, and no error shows a secret of one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.runtime.http.address import contradictions, host_and_port, is_web_address, same_server, shown_address


@pytest.mark.parametrize(
    "url",
    [
        "http://10.0.0.7:9460",
        "https://hooks.example/services/T0/B0/x?y=z#part",
        "http://[fe80::1%25eth0]:9460/",
        "https://prometheus.example:9090/path",
        "https://example.com/@team?to=me@example.com",
        "http://localhost",
    ],
)
def test_addresses_are_addresses(url: str) -> None:
    """With and without port, path, query, and brackets."""
    assert is_web_address(url)


@pytest.mark.parametrize(
    "url",
    ["", "https://", "http:///path", "http://:9460", "ftp://x", "http//x", "http://a b", "http://x:port", "http://x\n"],
)
def test_what_has_no_host_is_none(url: str) -> None:
    """Nor what has another scheme, or blanks in it."""
    assert not is_web_address(url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("htps://hooks.example/services/hush", "htps://hooks.example/(hidden)"),
        ("https://hooks.example?key=hush", "https://hooks.example/(hidden)"),
        ("http://me:hush@10.0.0.7:9460", "http://(hidden)@10.0.0.7:9460"),
        ("http://me:hu/sh@10.0.0.7", "http://(hidden)@10.0.0.7"),
        ("me:hush@10.0.0.7:9460", "(hidden)@10.0.0.7:9460"),
        ("http://10.0.0.7:9460", "http://10.0.0.7:9460"),
    ],
)
def test_an_address_is_shown_without_its_secrets(url: str, shown: str) -> None:
    """A webhook's path is its password."""
    assert shown_address(url) == shown


USER_INFO = st.text(st.characters(codec="utf-8", exclude_characters="/?#"), max_size=30)


@given(
    scheme=st.sampled_from(["http", "https"]), user=USER_INFO, rest=st.sampled_from(["", ":9460", "/x", "?a=b", "#c"])
)
def test_no_address_may_hold_a_user(scheme: str, user: str, rest: str) -> None:
    """Whatever it is made of: it would go out in the clear, and stand in lists, logs and the ledger."""
    assert not is_web_address(f"{scheme}://{user}@10.0.0.7{rest}")


def test_a_user_in_an_address_is_refused_with_what_would_be_right() -> None:
    """The key, no part of the password, and where it belongs."""
    (found,) = contradictions(("signals", "promql", "url"), "http://u:hush@10.0.0.7", login="signals.promql.username")

    assert found.wrong.startswith("'http://(hidden)@10.0.0.7' holds a user or a password")
    assert found.keys == (("signals", "promql", "url"),)
    assert found.right == "the URL without it; a user and a password belong in signals.promql.username"


@pytest.mark.parametrize("url", ["http://u:hush@10.0.0.7:9460/x", "http://10.0.0.7:9460", "http://u@10.0.0.7:9460"])
def test_where_an_address_leads_is_shown_without_user(url: str) -> None:
    """For messages, and for Prometheus' targets."""
    assert host_and_port(url) == "10.0.0.7:9460"


@pytest.mark.parametrize(
    ("link", "own"),
    [
        ("https://management.azure.com:443/subscriptions/x?$skiptoken=1!/a", "https://management.azure.com"),
        ("https://prices.azure.com:443/api/retail/prices?$skip=100", "https://prices.azure.com"),
        ("HTTPS://Management.Azure.COM/subscriptions", "https://management.azure.com:443"),
        ("http://proxy.example:80/x", "http://PROXY.example"),
        ("https://[2001:DB8::1]:8443/x", "https://[2001:db8::1]:8443"),
    ],
)
def test_a_link_leads_to_the_same_server_however_it_is_written(link: str, own: str) -> None:
    """As clouds write their links: with the usual port and without, and in any case."""
    assert same_server(link, own)


@pytest.mark.parametrize(
    "link",
    [
        "http://management.azure.com/x",
        "http://management.azure.com:443/x",
        "https://management.azure.com:8443/x",
        "https://management.azure.com.elsewhere.example/x",
        "https://management.azure.com@elsewhere.example/x",
        "https://management.azure.com:443@elsewhere.example/x",
        "https://us:er@management.azure.com/x",
        "https://management.azure.com:port/x",
        "https://management.azure.com:99999/x",
        "https://[management.azure.com/x",
        "//management.azure.com/x",
        "/subscriptions/x",
        "",
        None,
        7,
    ],
)
def test_no_other_server_is_taken_for_the_same(link: object) -> None:
    """Our token goes with what is asked there."""
    assert not same_server(link, "https://management.azure.com")


@given(st.text())
def test_a_text_is_never_more_than_another_server(text: str) -> None:
    """Whatever a list calls its next page."""
    assert not same_server(text, "https://management.azure.com") or "management.azure.com" in text.lower()
