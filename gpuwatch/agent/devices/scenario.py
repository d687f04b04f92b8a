"""Reads the script of the simulated source: YAML into GPUs. Mistakes are reported with file, key, value and remedy."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gpuwatch.agent.devices.load_profile import Intervals, LoadProfile, Phase
from gpuwatch.model.duration import parse_duration


class ScriptError(ValueError):
    """A script that cannot be played."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedGpu:
    """One GPU of a script."""

    name: str = "Simulated GPU"
    memory_total_bytes: int = 24 * 1024**3
    power_limit_watts: float = 300.0
    load_profile: LoadProfile
    lost: Intervals
    hang: Intervals


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A host's GPUs by index, and its troubles."""

    gpus: tuple[ScriptedGpu, ...]
    driver_missing: Intervals
    silence: Intervals


class _WrongError(Exception):
    """A value that cannot be: key, value, remedy."""


# A check takes a value and its key, and gives the value as it is used.
_Check = Callable[[Any, str], Any]


def read_script(path: Path) -> Script:
    """The script of a file (YAML, of which JSON is a part).

    Raises:
        ScriptError: the file cannot be read, or says what cannot be.

    """
    import yaml  # noqa: PLC0415  only a script needs the parser

    try:
        text = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ScriptError(f"{path}: cannot be read: {error.strerror}; agent.script (--script) names it") from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ScriptError(f"{path}: is no YAML: {error}") from error
    try:
        script: Script = _script(text, "")
    except _WrongError as error:
        key, value, remedy = error.args
        raise ScriptError(f"{path}: {key or 'the script'} = {_short(value)}: {remedy}") from error
    return script


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."  # noqa: PLR2004  enough to find it


def _record(value: Any, key: str, checks: Mapping[str, _Check]) -> dict[str, Any]:  # noqa: ANN401  what YAML gave
    """A mapping with none but these keys, each checked."""
    if not isinstance(value, dict):
        raise _WrongError(key, value, f"write a mapping with the keys {', '.join(checks)}")
    at = f"{key}." if key else ""
    for name in value:
        if name not in checks:
            raise _WrongError(f"{at}{name}", value[name], f"there is no such key here; known are {', '.join(checks)}")
    return {name: checks[name](entry, f"{at}{name}") for name, entry in value.items()}


def _list(check: _Check, value: Any, key: str) -> list[Any]:  # noqa: ANN401  any YAML
    if not isinstance(value, list):
        raise _WrongError(key, value, "write a list, in brackets or with dashes")
    return [check(entry, f"{key}.{number}") for number, entry in enumerate(value)]


def _number(value: Any, key: str, least: float = 0.0, most: float = math.inf, what: str = "a number") -> float:  # noqa: ANN401  any YAML
    number = math.nan if isinstance(value, bool) or not isinstance(value, int | float) else float(value)
    if not (least <= number <= most and number < math.inf):
        bounds = f"of at least {least:g}" if most == math.inf else f"from {least:g} to {most:g}"
        raise _WrongError(key, value, f"write {what} {bounds}")
    return number


def _whole(value: Any, key: str, least: int = 0) -> int:  # noqa: ANN401  any YAML
    number = _number(value, key, float(least), what="a whole number")
    if number != int(number):
        raise _WrongError(key, value, "write a whole number")
    return int(number)


def _seconds(value: Any, key: str) -> float:  # noqa: ANN401  any YAML
    try:
        return _number(parse_duration(value), key, what="a duration such as 90s, 5m or 2h")
    except ValueError as error:
        raise _WrongError(key, value, "write a duration such as 90s, 5m or 2h") from error


def _text(value: Any, key: str) -> str:  # noqa: ANN401  any YAML
    if not isinstance(value, str) or not value:
        raise _WrongError(key, value, "write a text")
    return value


def _flag(value: Any, key: str) -> bool:  # noqa: ANN401  any YAML
    if not isinstance(value, bool):
        raise _WrongError(key, value, "write true or false")
    return value


def _outage(value: Any, key: str) -> tuple[float, float]:  # noqa: ANN401  any YAML
    outage = _record(value, key, {"begin": _seconds, "end": _seconds})
    if outage.get("begin", 0.0) >= outage.get("end", 0.0):
        raise _WrongError(key, value, "give begin and a later end, such as {begin: 10m, end: 12m}")
    return outage["begin"], outage["end"]


def _outages(value: Any, key: str) -> Intervals:  # noqa: ANN401  any YAML
    return Intervals(_list(_outage, value, key))


_PHASE: dict[str, _Check] = {
    "at": _seconds,
    "utilization_ratio": partial(_number, most=1.0),
    "memory_bytes": _whole,
    "processes": _whole,
    "stalled": _flag,
}


def _phase(value: Any, key: str) -> Phase:  # noqa: ANN401  any YAML
    phase = _record(value, key, _PHASE)
    if "at" not in phase:
        raise _WrongError(key, value, "say when it begins, such as {at: 5m}")
    return Phase(**phase)


_GPU: dict[str, _Check] = {
    "name": _text,
    "memory_total_bytes": partial(_whole, least=1),
    "power_limit_watts": partial(_number, least=1.0),
    "repeat": _seconds,
    "life": partial(_list, _phase),
    "lost": _outages,
    "hang": _outages,
}


def _gpu(value: Any, key: str) -> ScriptedGpu:  # noqa: ANN401  any YAML
    fields = {"lost": Intervals(), "hang": Intervals(), **_record(value, key, _GPU)}
    life, period = fields.pop("life", []), fields.pop("repeat", None)
    try:
        load_profile = LoadProfile(life, period)
    except ValueError as error:
        raise _WrongError(f"{key}.life", value.get("life"), str(error)) from error
    gpu = ScriptedGpu(load_profile=load_profile, **fields)
    for number, phase in enumerate(life):
        if phase.memory_bytes > gpu.memory_total_bytes:
            at_most = f"write at most its memory_total_bytes, {gpu.memory_total_bytes}"
            raise _WrongError(f"{key}.life.{number}.memory_bytes", phase.memory_bytes, at_most)
    return gpu


def _script(value: Any, key: str) -> Script:  # noqa: ANN401  any YAML
    checks: dict[str, _Check] = {"gpus": partial(_list, _gpu), "driver_missing": _outages, "silence": _outages}
    fields = _record(value, key, checks)
    if not fields.get("gpus"):
        raise _WrongError("gpus", fields.get("gpus"), "write one entry for each GPU")
    spans = {name: fields.get(name, Intervals()) for name in ("driver_missing", "silence")}
    return Script(gpus=tuple(fields["gpus"]), **spans)
