"""Adds keys to the section `agent` of a settings file that a person wrote, and leaves all else as it stands."""

import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import yaml

from gpuwatch.agent.settings import AgentSettings
from gpuwatch.config import load_agent
from gpuwatch.config.chosen_file import DEFAULT_PATH, default_path

_SECTION = "agent"
_PEOPLES = frozenset({"host", "notice_users"})  # stay as people wrote them
_OURS = frozenset({"controller"})  # is written anew
_FOR_ALL = 0o644  # the agent's user must be able to read it, whatever root's umask; no secret is in it
_BEGIN = "# Written by `gpuwatch agent join`."


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsFile:
    """A file that may not be there yet, its text, and what it says of the agent."""

    path: Path
    text: str
    agent: AgentSettings
    environment: Mapping[str, str]

    @classmethod
    def read_file(cls, path: Path | None, environment: Mapping[str, str]) -> Self:
        """The file that the agent reads.

        Raises:
            ConfigError: it has mistakes.
            OSError: it cannot be read.

        """
        where = path or default_path(environment) or DEFAULT_PATH
        there = where.exists()
        agent = load_agent(where if there else None, environment)
        text = where.read_text(encoding="utf-8") if there else ""
        return cls(path=where, text=text, agent=agent, environment=environment)

    @contextmanager
    def prepare_file(self, keys: Mapping[str, object]) -> "Iterator[PreparedFile]":
        """The file with these keys, next to the old one and known to be sound; gone unless it is put in place.

        Raises:
            ConfigError: the settings contradict each other.
            ValueError: a key has another value there.
            OSError: it cannot be written.

        """
        text = with_keys(self.text, keys, str(self.path))
        path = self.path.resolve()  # a link to a file elsewhere stays a link
        fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            opened = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from error
        try:
            with os.fdopen(opened, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(opened)
                if path.exists():
                    like = path.stat()
                    if os.geteuid() == 0:
                        os.fchown(opened, like.st_uid, like.st_gid)
                    os.fchmod(opened, like.st_mode & 0o777)
                else:
                    os.fchmod(opened, _FOR_ALL)
            load_agent(fresh, self.environment)
            yield PreparedFile(fresh=fresh, path=path)
        finally:
            fresh.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedFile:
    """A sound file that waits for its place."""

    fresh: Path
    path: Path

    def put_in_place(self) -> None:
        """Replace the old one, whole."""
        self.fresh.replace(self.path)


def with_keys(text: str, keys: Mapping[str, object], name: str) -> str:
    """The text with the keys in its section `agent`.

    Raises:
        ValueError: one of them has another value there, or the section is written in braces.

    """
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    if root is not None and (not isinstance(root, yaml.MappingNode) or root.flow_style):
        raise ValueError(f"{name} is not written with one key a line; write its section {_SECTION} so")
    section = next((value for key, value in root.value if key.value == _SECTION), None) if root is not None else None
    if section is None:
        gap = ["\n"] if lines else []
        return "".join([*lines, *gap, f"{_SECTION}:\n", *_block(keys, 2)])
    if isinstance(section, yaml.ScalarNode) and not section.value:
        at = section.start_mark.line + 1
        return "".join([*lines[:at], *_block(keys, 2), *lines[at:]])
    if not isinstance(section, yaml.MappingNode) or section.flow_style:
        raise ValueError(f"{name}: the section {_SECTION} is not written with one key a line; write it so")
    return _insert_keys(lines, section, keys, name)


def _insert_keys(lines: list[str], section: yaml.MappingNode, keys: Mapping[str, object], name: str) -> str:
    """The lines with what the section lacks, at its begin."""
    there = {key.value: value for key, value in section.value}
    missing = {key: value for key, value in keys.items() if key not in there}
    for key in keys.keys() & there.keys() - _PEOPLES:
        node, wanted = there[key], keys[key]
        written = yaml.safe_load(yaml.serialize(node))
        if written == wanted:
            continue
        if key not in _OURS or node.start_mark.line != node.end_mark.line:
            raise ValueError(
                f"{name}:{node.start_mark.line + 1}: {_SECTION}.{key} has a value of its own, and this host would lose "
                f"it; remove the key to let the host join, or keep your own certificates"
            )
        row = node.start_mark.line
        line = lines[row]
        lines[row] = line[: node.start_mark.column] + json.dumps(wanted) + line[node.end_mark.column :]
    at, indent = section.start_mark.line, section.start_mark.column
    return "".join([*lines[:at], *(_block(missing, indent) if missing else ()), *lines[at:]])


def _block(keys: Mapping[str, object], indent: int) -> list[str]:
    """Lines of YAML; every value is written as JSON, which YAML reads alike."""
    room = " " * indent
    return [f"{room}{_BEGIN}\n", *(f"{room}{key}: {json.dumps(value)}\n" for key, value in keys.items())]
