"""The table of signals on docs/idle-detection.md, from their settings."""

import re
from collections.abc import Callable, Iterator
from dataclasses import fields

from gpuwatch.agent.evidence.settings import EvidenceSettings
from gpuwatch.model.duration import format_duration

_PLACE = re.compile(r"(<!-- signals -->)\n.*?(<!-- end of signals -->)", re.DOTALL)
_HEAD = ("| signal | what it sees | limit (default) |", "| --- | --- | --- |")


def _bytes(each: float) -> str:
    return f"{each / 1e6:g} MB/s" if each >= 1e6 else f"{each / 1e3:g} kB/s"  # noqa: PLR2004


_LIMITS: dict[str, Callable[[float], str]] = {
    "busy_cores": lambda each: f"{each:g} cores",
    "busy_bytes_per_second": _bytes,
    "silent_after": format_duration,
    "horizon": format_duration,
    "max": format_duration,
}


def with_signals(page: str) -> str:
    """The page with its table; what people wrote stays.

    Raises:
        ValueError: the page has no place for the table, or several.

    """
    made, times = _PLACE.subn(lambda found: "\n".join([found[1], *_HEAD, *_rows(), found[2]]), page)
    if times != 1:
        raise ValueError(f"the page has {times} places <!-- signals -->, expected 1")
    return made


def _rows() -> Iterator[str]:
    settings = EvidenceSettings()
    for name in (each.name for each in fields(settings)):
        signal = getattr(settings, name)
        if isinstance(signal, bool | float):
            continue
        limits = (f"{show(getattr(signal, key))} (`{key}`)" for key, show in _LIMITS.items() if hasattr(signal, key))
        yield f"| `{name}` | {(type(signal).__doc__ or '').strip()} | {'; '.join(limits)} |"
