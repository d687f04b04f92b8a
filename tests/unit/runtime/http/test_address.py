"""Addresses in settings: what leads nowhere is found at once, and no error shows a secret of one."""

import pytest

from gpuwatch.runtime.http.settings import is_web_address, shown_address


@pytest.mark.parametrize(
    "url",
    [
        "http://10.0.0.7:9460",
        "https://hooks.example/services/T0/B0/x?y=z#part",
        "http://[fe80::1%25eth0]:9460/",
        "https://me:secret@prometheus.example:9090/path",
        "http://localhost",
    ],
)
def test_addresses_are_addresses(url: str) -> None:
    """With and without port, path, user, and brackets."""
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
        ("http://10.0.0.7:9460", "http://10.0.0.7:9460"),
    ],
)
def test_an_address_is_shown_without_its_secrets(url: str, shown: str) -> None:
    """A webhook's path is its password."""
    assert shown_address(url) == shown
