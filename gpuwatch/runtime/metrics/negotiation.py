"""Which of its formats an Accept header asks for. prometheus-client decides on headers that are not of the usual kind.

An agent that is asked by Prometheus, browsers and curl never loads prometheus-client: with its web server and its other
parts it takes 1.2 MB and 0.04 s.
"""

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

_OLD = "text/plain; version=0.0.4; charset=utf-8"
_OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_PLAIN = "text/plain; version=1.0.0; charset=utf-8"
# One entry of the header, as Prometheus writes its own; names are escaped from version 1.0.0 on.
_ENTRY = re.compile(
    r"(?P<kind>application/openmetrics-text|text/plain|(?!application/openmetrics-text|text/plain)[^\s;,=\"]+)"
    r"(?:;\s*(?:version=(?P<version>0\.0\.[14]|1\.0\.0)|escaping=(?P<escaping>allow-utf-8|underscores)|q=[0-9.]+|v=b3))*"
)


def content_type_for(accept: str) -> str:
    """The content type of the answer, as prometheus-client's `choose_encoder` has it."""
    for entry in accept.split(",") if accept else ():
        found = _ENTRY.fullmatch(entry.strip())
        if found is None or entry.count("version=") > 1 or entry.count("escaping=") > 1:
            return _by_client(accept)[1]
        named: Mapping[str, str | None] = found.groupdict()
        kind, version, escaping = named["kind"], named["version"], named["escaping"] or "underscores"
        if kind == "application/openmetrics-text" and version is None:
            return _OPENMETRICS
        if version == "1.0.0" and kind in {"application/openmetrics-text", "text/plain"}:
            return f"{_PLAIN if kind == 'text/plain' else _OPENMETRICS}; escaping={escaping}"
    return _OLD


def rename_page(accept: str, families: "Collector") -> bytes:
    """A page with other names, by prometheus-client."""
    from prometheus_client import CollectorRegistry  # noqa: PLC0415  loaded by few agents

    registry = CollectorRegistry(auto_describe=False)
    registry.register(families)
    return _by_client(accept)[0](registry)


def _by_client(accept: str) -> tuple[Callable[[Any], bytes], str]:
    from prometheus_client.exposition import choose_encoder  # noqa: PLC0415  loaded by few agents

    encoder, content_type = choose_encoder(accept)
    return encoder, content_type
