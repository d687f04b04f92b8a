"""Addresses on the web in settings and texts. None may hold a user or a password.

What stands in an address goes out in the clear, is shown by lists, logs and messages, and stays in the ledger. So
`is_web_address` refuses it for every setting at once, and messages show what `host_and_port` or `shown_address` leave:
`netloc`, which holds the password, is read nowhere else, except where an installation's origin is shown without it
(tests/docs/test_architecture.py).
"""

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from gpuwatch.model.setting import Contradiction

_WEB = re.compile(r"https?://(?:\[[0-9A-Za-z:.%]+\]|[^\s/?#:@\[\]\\]+)(?::(\d{1,5}))?(?:[/?#]\S*)?")
_PORTS = range(1, 65_536)
_USER = re.compile(r"https?://[^\s/?#]*@")
_ANY_USER = re.compile(r"^(\w+:/+)?\S*@")
_BEHIND_HOST = re.compile(r"\b(\w+:/+[^/\s?#]+)[/?#]\S+")
_EXAMPLE = "a URL such as http://10.0.0.7:9460"


def is_web_address(url: str) -> bool:
    """Whether it is http:// or https:// with a host, a port that there is, and neither user nor password."""
    found = _WEB.fullmatch(url)
    return found is not None and int(found[1] or 1) in _PORTS


def holds_user(url: str) -> bool:
    """Whether a user or a password stands before the host."""
    return _USER.match(url) is not None


def shown_address(url: str) -> str:
    """An address without what may be a secret in it: a webhook's path, a password."""
    return _BEHIND_HOST.sub(r"\1/(hidden)", _ANY_USER.sub(r"\1(hidden)@", url))


def host_and_port(url: str) -> str:
    """Where an address leads, as people may see it: without user, password and path."""
    return urlsplit(url).netloc.rpartition("@")[2]


_USUAL_PORTS = {"http": 80, "https": 443}


def same_server(one: object, other: object) -> bool:
    """Whether two addresses lead to one server: by scheme, host in small letters, and the port that is meant.

    A link of a cloud's list is followed with our token, and only to the server that wrote it. Azure writes the port of
    https into some of its links, `https://management.azure.com:443/`, and leaves it out of others.
    """
    server = _server(one)
    return server is not None and server == _server(other)


def _server(url: object) -> tuple[str, str, int] | None:
    try:
        parts = urlsplit(url) if isinstance(url, str) else None
        port = None if parts is None else parts.port
    except ValueError:  # brackets that do not close, a port that is no number
        return None
    if parts is None or parts.scheme not in _USUAL_PORTS or not parts.hostname or holds_user(parts.geturl()):
        return None
    return parts.scheme, parts.hostname, _USUAL_PORTS[parts.scheme] if port is None else port


def contradictions(
    path: tuple[str, ...], url: str, *, right: str = _EXAMPLE, login: str = "", named: bool = False
) -> Iterator[Contradiction]:
    """The setting `path`, where it is no address.

    `login` names the settings that a user and a password belong in; `named`: the sentence begins with the key.
    """
    if is_web_address(url):
        return
    shown = f"{'.'.join(path)} {shown_address(url)!r}" if named else repr(shown_address(url))
    if holds_user(url):
        remedy = f"a user and a password belong in {login}" if login else "gpuwatch sends no password of a URL"
        yield Contradiction(
            keys=(path,),
            wrong=f"{shown} holds a user or a password, which logs and lists would show",
            right=f"the URL without it; {remedy}",
        )
        return
    yield Contradiction(keys=(path,), wrong=f"{shown} is not a valid URL", right=right)
