"""Answers over HTTP as they were sent, and no more of them than was asked for.

What is packed is unpacked before it can be counted, and half a megabyte may hold hundreds: so packed answers are
neither asked for nor taken.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import aiohttp

_CHUNK_BYTES = 1 << 16
_HEADERS = {"Accept-Encoding": "identity"}
_PLAIN = frozenset({"", "identity"})


def session(connector: "aiohttp.TCPConnector", headers: Mapping[str, str] | None = None) -> "aiohttp.ClientSession":
    """For requests; their callers set the deadlines."""
    import aiohttp  # noqa: PLC0415  a quarter of a second that only a controller needs

    return aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=None),
        connector=connector,
        headers={**(headers or {}), **_HEADERS},
        auto_decompress=False,
        trust_env=False,
    )


async def body_of(response: "aiohttp.ClientResponse", most_bytes: int) -> bytes:
    """The whole body, or its begin, longer than `most_bytes`, where it is longer.

    Raises:
        ValueError: it is packed.
        aiohttp.ClientError: the connection broke.

    """
    coding = response.headers.get("Content-Encoding", "").strip().lower()
    if coding not in _PLAIN:
        raise ValueError(f"its answer is packed ({coding[:20]!r}), which was not asked for")
    parts, size = [], 0
    while size <= most_bytes and (more := await response.content.read(_CHUNK_BYTES)):
        parts.append(more)
        size += len(more)
    return b"".join(parts)
