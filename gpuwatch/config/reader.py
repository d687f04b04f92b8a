"""Reads one YAML file and the environment into `Settings`, every mistake in plain words.

The only importer of pydantic and pydantic-settings. pydantic-settings merges the two sources and pydantic checks the
values; what they leave to their users (misspelt variables, lines, duplicate keys, words for people) is done here.
"""

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

import yaml
from pydantic import TypeAdapter, ValidationError, create_model
from pydantic.fields import Field, FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    YamlConfigSettingsSource,
)

from gpuwatch.agent.settings import AgentHandover, AgentSettings
from gpuwatch.clouds.named import unknown_regions, unmatched_regions
from gpuwatch.config import amounts, keys, minimum_waits, nearest, one_or_several, yaml_file
from gpuwatch.config.chosen_file import FILE_VARIABLE, PREFIX, default_path
from gpuwatch.config.keys import GROUPS, NAME, Kind
from gpuwatch.config.settings import Settings, contradictions, launch_regions, pool_regions
from gpuwatch.config.yaml_file import ConfigError, Origin, Problem, show_value
from gpuwatch.controller.join.settings import with_authority
from gpuwatch.model.duration import has_no_unit
from gpuwatch.model.fleet import DEFAULT_POOL
from gpuwatch.model.setting import Contradiction
from gpuwatch.model.slips import readable
from gpuwatch.runtime.program import VARIABLE as TRACEBACK_VARIABLE

__all__ = ["ConfigError", "default_path", "load", "load_agent", "load_handed", "read_settings", "schema"]

# Variables of our prefix that are no settings; all but ours are Kubernetes' words about a Service of that name.
_FOREIGN = re.compile(
    rf"({FILE_VARIABLE}|{TRACEBACK_VARIABLE}|GPUWATCH_(\w+_)?(SERVICE_(HOST|PORT(_\w+)?)|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?))=.*"
    r"|GPUWATCH_(\w+_)?PORT=\w+://.*"
)

_BESIDE = (("ledger", "path"), ("controller", "join", "folder"), ("cloud", "hosts", "file"))
# What pydantic finds wrong, as the rest of a sentence that begins with the value.
_WRONG = dict.fromkeys(("greater_than", "greater_than_equal"), "is too small")
_WRONG |= dict.fromkeys(("less_than", "less_than_equal"), "is too large")
_WRONG |= dict.fromkeys(("string_too_short", "too_short"), "is empty")
_WRONG |= dict.fromkeys(("string_too_long", "too_long"), "is too long")
_WRONG |= {"literal_error": "is not one of the choices", "finite_number": "is not finite"}
_WRITTEN = {Kind.DURATION: ", written as 90s, 30m, 1h30m or 2d", Kind.LIST: ", written as [one, another]"}
_UNKNOWN = {"unexpected_keyword_argument", "extra_forbidden"}


def load(path: Path | None, env: Mapping[str, str]) -> Settings:
    """The settings of a file (None: `default_path`) and the environment, which wins.

    Raises:
        ConfigError: with every problem that was found.

    """
    return read_settings(path, env)[0]


def read_settings(path: Path | None, env: Mapping[str, str]) -> tuple[Settings, Origin]:
    """The settings, and where each of them is written; raises as `load`."""
    settings, origin = _read_sources(path, env)
    found = [
        *minimum_waits.too_short(settings, nearest.KEYS),
        *one_or_several.contradictions(origin),
        *unknown_regions(settings.named_clouds, launch_regions(settings)),
        *unmatched_regions(settings.named_clouds, pool_regions(settings)),
        *contradictions(settings),
    ]
    if found:
        raise ConfigError(tuple(_blame(each, origin) for each in found))
    return settings, origin


def load_agent(path: Path | None, env: Mapping[str, str] | None = None) -> AgentSettings:
    """The section `agent` alone; raises as `load_handed`."""
    return load_handed(path, env or {}).agent


def load_handed(path: Path | None, env: Mapping[str, str]) -> AgentHandover:
    """What an agent obeys of the same file and environment; what only the controller obeys is not doubted here.

    Raises:
        ConfigError: with every problem that was found.

    """
    settings, origin = _read_sources(path, env)
    found = [each for each in contradictions(settings) if all(key[0] == "agent" for key in each.keys)]
    if found:
        raise ConfigError(tuple(_blame(each, origin) for each in found))
    return AgentHandover(agent=settings.agent, log_format=settings.log_format)


def schema() -> dict[str, Any]:
    """The file's JSON Schema (draft 2020-12), for editors."""
    whole = TypeAdapter(Settings).json_schema()
    one_or_several.show_as_written(whole)
    for key in nearest.KEYS.values():
        node: dict[str, Any] = whole
        for part in key.path:
            branch = next((each for each in node.get("anyOf", ()) if "$ref" in each), node)  # an optional section
            node = whole["$defs"][branch["$ref"].rpartition("/")[2]] if "$ref" in branch else branch
            node = node["additionalProperties"] if part == NAME else node["properties"][part]
        node["description"] = key.sentence
        node.pop("title", None)
        if key.kind is Kind.DURATION:
            node["default"] = None if key.default is None else key.show(key.default)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **whole, "title": "gpuwatch.yaml"}


class _File(YamlConfigSettingsSource):
    """pydantic-settings' YAML source, with lines, duplicate keys and YAML 1.2's plain scalars."""

    def __init__(self, settings_cls: type[BaseSettings], path: Path | None, origin: Origin) -> None:
        self._origin = origin
        self.written: dict[str, Any] = {}
        super().__init__(settings_cls, yaml_file=path)

    def _read_file(self, file_path: Any) -> dict[str, Any]:  # noqa: ANN401  wider than a path in the parent
        values = yaml_file.read_values(file_path, self._origin)
        amounts.in_dollars(values, self._origin)
        _choices_as_text(values, self._origin)
        _beside_the_file(values, file_path)
        self.written = values
        return one_or_several.with_names_apart(values, self._origin)


def _beside_the_file(values: dict[str, Any], file: Path) -> None:
    """Some relative paths are of the file's folder: each command finds the same ones, wherever it is run."""
    for *sections, key in _BESIDE:
        found: object = values
        for name in sections:
            found = found.get(name) if isinstance(found, dict) else None
        path = found.get(key) if isinstance(found, dict) else None
        if isinstance(found, dict) and isinstance(path, str) and path:
            found[key] = str(file.absolute().parent / path)


def _choices_as_text(values: dict[str, Any], origin: Origin) -> None:
    """`tls_min: 1.3` is a number for YAML; nobody should have to know that."""
    for group, path in amounts.groups(values, ()):
        for name, value in group.items():
            key = origin.key((*path, name)) if isinstance(value, float) else None
            if key is not None and str(value) in key.choices:
                group[name] = str(value)


class _Environment(EnvSettingsSource):
    """pydantic-settings' environment source, over the variables that name a key."""

    def __init__(self, settings_cls: type[BaseSettings], env: Mapping[str, str], file: _File, origin: Origin) -> None:
        self._env, self._written, self._origin = env, file.written, origin
        super().__init__(settings_cls)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        given = _overrides(self._env, self._written, self._origin)
        return {"__".join(one_or_several.path_in_settings(path)): value for path, value in given}

    def next_field(self, field: FieldInfo | Any | None, key: str, case_sensitive: bool | None = None) -> Any:  # noqa: ANN401  as inherited
        """The field below, in the stdlib's dataclasses too."""
        annotation = field.annotation if isinstance(field, FieldInfo) else field
        if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
            return FieldInfo.from_annotation(get_type_hints(annotation, include_extras=True)[key])
        return super().next_field(field, key, case_sensitive)


def _unreadable(path: Path) -> str | None:
    """Why a file cannot be read, if it cannot."""
    try:
        # pydantic-settings ignores everything but regular files, such as a pipe, as if no file had been named.
        if path.exists() and not path.is_file() and not path.is_dir():
            return "not a regular file"
        path.open("rb").close()
    except OSError as error:
        return error.strerror
    return None


# What the one load that runs in this context reads: the file, the variables, and where it notes mistakes.
_SOURCES: ContextVar[tuple[Path | None, Mapping[str, str], Origin]] = ContextVar("sources")


class _Reader(BaseSettings):
    """The settings as pydantic-settings merges them; `_model` makes it once."""

    model_config = SettingsConfigDict(
        extra="forbid",
        allow_inf_nan=False,
        case_sensitive=True,
        env_nested_delimiter="__",
        validate_default=False,  # a duration's default is a number of seconds, which users may not write
    )

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], *_: PydanticBaseSettingsSource, **__: PydanticBaseSettingsSource
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        path, env, origin = _SOURCES.get()
        file = _File(settings_cls, path, origin)  # first: a variable's pool name is looked up in it
        return _Environment(settings_cls, env, file, origin), file


@cache
def _fields() -> dict[str, Any]:
    """Return the sections of `Settings` as pydantic's fields: name -> (type, default)."""
    hints = get_type_hints(Settings, include_extras=True)
    return {
        each.name: (
            hints[each.name],
            Field(default_factory=each.default_factory)
            if each.default_factory is not dataclasses.MISSING
            else each.default,
        )
        for each in dataclasses.fields(Settings)
    }


@cache
def _model() -> type[BaseSettings]:
    """Return the model of all settings; building it takes four times as long as a load."""
    return create_model("Reader", __base__=_Reader, **_fields())


def _read_sources(path: Path | None, env: Mapping[str, str]) -> tuple[Settings, Origin]:
    """The settings before any contradiction is looked for."""
    origin = Origin(keys=nearest.KEYS)
    path = path or default_path(env)
    if path is not None:
        origin.file = str(path)
        unreadable = _unreadable(path)
        if unreadable is not None:
            remedy = f"a readable file, named by --config or {FILE_VARIABLE}"
            origin.refuse(origin.file, f"cannot be read: {unreadable}", remedy)
            path = None

    sources = _SOURCES.set((path, env, origin))
    try:
        read = _model()()
    except ValidationError as error:
        for each in error.errors():
            _translate(each, origin)
    finally:
        _SOURCES.reset(sources)
    if origin.problems:
        raise ConfigError(tuple(origin.problems))
    settings = Settings(**{name: getattr(read, name) for name in _fields()})
    return dataclasses.replace(settings, signals=with_authority(settings.signals, settings.controller.join)), origin


def _overrides(env: Mapping[str, str], written: Mapping[str, Any], origin: Origin) -> Iterator[tuple[keys.Path, str]]:
    """The keys that variables set; one that looks like ours and names no key is noted, an empty one sets nothing."""
    for name, value in sorted(env.items()):
        path = _path_of(name, written)
        key = origin.key(path)
        where = f"environment variable {name}"
        if key is None:
            if _FOREIGN.fullmatch(f"{name}={value}"):
                continue
            near = nearest.variable(name)
            if near or name.startswith(PREFIX):
                origin.refuse(where, "is not a setting", near or "a setting of docs/CONFIGURATION.md")
        elif key.kind in GROUPS:
            origin.refuse(
                where, f"names {key.kind.value}", f"one key of it, such as {name}__{nearest.below(path)[0].upper()}"
            )
        elif path in origin.overrides:
            origin.refuse(where, f"sets {'.'.join(path)}, as does {origin.overrides[path]}", "one of the two")
        elif value:
            texts = _texts(value) if key.kind is Kind.LIST else ()
            if texts is None:
                origin.refuse(
                    where, "is not a list", """one, another; or, with commas inside, ["one", "two, and three"]"""
                )
                continue
            origin.overrides[path] = name
            yield path, json.dumps(texts) if key.kind is Kind.LIST else value


def _texts(value: str) -> list[str] | None:
    """The texts of a variable that sets a list: in brackets as the file would have it, else split at each comma."""
    if not value.strip().startswith("["):
        return [text.strip() for text in value.split(",")]
    try:
        found = yaml.safe_load(value)
    except yaml.YAMLError:
        return None
    return found if isinstance(found, list) and all(isinstance(text, str) for text in found) else None


def _path_of(name: str, written: Mapping[str, Any]) -> keys.Path:
    """The path that a variable spells; case matters in chosen names only, and there what the file has comes first."""
    path: keys.Path = ()
    data: object = written
    for part in name.removeprefix(PREFIX).split("__") if name.startswith(PREFIX) else ():
        here = keys.pattern(nearest.KEYS, path) or ()
        chosen = (*here, NAME) in nearest.KEYS and (*here, part.lower()) not in nearest.KEYS
        known = [*data, DEFAULT_POOL] if chosen and isinstance(data, Mapping) else []
        same = part if part in known else next((each for each in known if each.lower() == part.lower()), part)
        path = (*path, same if chosen else part.lower())
        data = data.get(path[-1], {}) if isinstance(data, Mapping) else {}
    return path


def _blame(found: Contradiction, origin: Origin) -> Problem:
    """A contradiction as a problem of the first of its keys that somebody wrote."""
    written = [path for path in found.keys if path in origin.lines or path in origin.overrides]
    path = (*written, found.keys[0])[0]
    return Problem(where=origin.where(path), key=".".join(path), wrong=found.wrong, right=found.right)


def _translate(error: ErrorDetails, origin: Origin) -> None:
    """A mistake that pydantic found, in words."""
    path = one_or_several.written_path(tuple(str(part) for part in error["loc"]))
    shown = show_value(error["input"], path)
    if error["type"] in _UNKNOWN:
        origin.add(path, f"is not a key of the configuration (its value is {shown})", nearest.key(path))
        return
    # An item of a list has no key of its own: its list's is the nearest.
    key = next(filter(None, (origin.key(path[:length]) for length in range(len(path), 0, -1))))
    right = _section_of(nearest.below(path), path[-1]) if key.kind is Kind.SECTION else key.expected
    if key.kind is Kind.DURATION and has_no_unit(error["input"]):
        origin.add(path, f"{shown} has no unit", f"{right}; write {_with_units(str(error['input']).strip(), key)}")
        return
    if key.kind is Kind.DURATION and "longer than a century" in error["msg"]:
        origin.add(path, f"{shown} is longer than a century", right + _WRITTEN[key.kind])
        return
    if key.kind is Kind.TEXT and isinstance(error["input"], int | float):
        right = f'{right}; write "{shown}" with quotes'
    elif error["type"] not in _WRONG:
        right += _likely_value(error["input"], key) if "hidden" not in shown else _example(key)
    kind = "a text" if key.kind is Kind.LIST and len(path) > len(key.path) else key.kind.value
    origin.add(path, f"{shown} {_WRONG.get(error['type'], f'is not {kind}')}", right)


def _section_of(names: Sequence[str], section: str) -> str:
    """What a section holds, with an example of its first key."""
    value = "FILE" if names and names[0].endswith("_file") else "…"
    return f"a section of {', '.join(names)}, such as {section}: {{{names[0]}: {value}}}" if names else "a section"


def _with_units(number: str, key: keys.Key) -> str:
    """`30m for minutes, 30s for seconds`, without those that the setting does not allow."""
    units = {"m": ("minutes", 60), "s": ("seconds", 1), "h": ("hours", 3600)}
    long = [unit for unit in units if key.floor is None or key.floor.allows(float(number) * units[unit][1])]
    return ", ".join(f"{number}{unit} for {units[unit][0]}" for unit in (long or ["h"])[:2])


def _likely_value(value: object, key: keys.Key) -> str:
    """What was probably meant: the number in `$5,000`, the list of one text; else how a value is written."""
    if isinstance(value, str) and key.kind is Kind.LIST and not (key.default or key.choices):
        return f"; write [{', '.join(each.strip() for each in value.split(','))}]"
    number = readable(value) if isinstance(value, str) and key.kind in {Kind.NUMBER, Kind.WHOLE} else None
    if number is None or (key.kind is Kind.WHOLE and not number.isdecimal()):
        return _example(key)
    return f"; write {number}"


def _example(key: keys.Key) -> str:
    """How a value is written; a list's default is the best example of its texts."""
    if key.kind is Kind.LIST and key.default and not key.choices:
        return f", such as {key.show(key.default)}"
    return _WRITTEN.get(key.kind, "")
