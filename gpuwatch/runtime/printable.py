"""Makes text from outside harmless for readers: tags, reasons, servers' answers on terminals and in logs."""

import re
from urllib.parse import urlsplit

from gpuwatch.model.legible import legible

__all__ = ["is_web_address", "legible", "not_utf8", "shown", "shown_address"]

_USER = re.compile(r"(://)\S*@")
_BEHIND_HOST = re.compile(r"\b(\w+:/+[^/\s?#]+)[/?#]\S+")


def shown(text: str) -> str:
    """Text of several lines for a terminal; text from outside within a line must be made `legible` first."""
    return "\n".join(map(legible, text.split("\n")))


def is_web_address(url: str) -> bool:
    """Whether it is http:// or https:// with a host."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.hostname)


def shown_address(url: str) -> str:
    """An address without what may be a secret in it: a webhook's path, a password."""
    bare = _USER.sub(r"\1(hidden)@", url)
    return _BEHIND_HOST.sub(r"\1/(hidden)", bare)


def not_utf8(error: UnicodeDecodeError) -> str:
    """Say that a file is not text, where that shows, and how to mend it."""
    return f"is not UTF-8 text (byte 0x{error.object[error.start]:02x} at position {error.start}); save it as UTF-8"
