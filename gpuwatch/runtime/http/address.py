"""PURE: addresses as people write them into settings: whether one leads anywhere, and how to show it."""

import re

_WEB = re.compile(r"https?://(?:[^\s/?#@]*@)?(?:\[[0-9A-Za-z:.%]+\]|[^\s/?#:@\[\]]+)(?::\d{1,5})?(?:[/?#]\S*)?")
_USER = re.compile(r"(://)\S*@")
_BEHIND_HOST = re.compile(r"\b(\w+:/+[^/\s?#]+)[/?#]\S+")


def is_web_address(url: str) -> bool:
    """Whether it is http:// or https:// with a host, and a port that is a number."""
    return _WEB.fullmatch(url) is not None


def shown_address(url: str) -> str:
    """An address without what may be a secret in it: a webhook's path, a password."""
    return _BEHIND_HOST.sub(r"\1/(hidden)", _USER.sub(r"\1(hidden)@", url))
