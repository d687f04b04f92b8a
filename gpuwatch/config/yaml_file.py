"""What the administrator wrote, and where: a YAML file as plain values with a line for every key, and its mistakes.

Plain scalars follow YAML 1.2: `1:30` is a text, not a number of base 60; `on` and `no` are texts.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path as File
from typing import Any

import yaml

from gpuwatch.config import keys
from gpuwatch.config.keys import GROUPS, NUMERIC, Key, Kind, Path
from gpuwatch.model.slips import is_amount
from gpuwatch.runtime.bounded_text import text_of
from gpuwatch.runtime.printable import not_utf8

_FOUND = re.compile(r"'?<([a-z -]+)>'?")
_FOUND_WORDS = {
    "scalar": "a value: a comma, a colon or a quote is missing",
    "stream end": "the end of the file: a bracket is open",
    "block mapping start": "a key that is indented otherwise",
    "block end": "a line that is indented less",
    "block sequence start": "a list that is indented otherwise",
    "document start": "the begin of a second document (---)",
}
_VARIABLE = re.compile(r"^\$[A-Z_][A-Z0-9_]*$|\$\{[A-Z_][A-Z0-9_]*\}|\{\{ *[\w.]+ *\}\}")  # of a shell, of a template
_COMMANDS = {"argv", "command", "on_interruption"}  # a shell or docker that is started puts its own variables in
_LOOKS_LIKE = "lines such as `mode: observe`, indented with spaces"
_LARGEST_FILE_VALUES = 20_000  # aliases of aliases can make a small file enormous
_LONGEST_SHOWN = 60
_SECRET = re.compile(
    r"secret|pas+w|passphrase|pwd|auth(?!or)|token|credential|private|access_?key|api_?key", re.IGNORECASE
)
_URL_WITH_PASSWORD = re.compile(r"://[^/\s]*:[^/\s]*@|[?&]password=")
_URL_WITH_PATH = re.compile(r"\b(\w+://[^/\s?#]+)[/?#]\S+")  # a webhook's path is its password
_LOOKS_RANDOM = re.compile(r"(?=\S*[0-9])(?=\S*[a-z])(?=\S*[A-Z])[\w+/=.-]{20,}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One mistake: where it stands, the key as the user writes it, what is wrong, what would be right."""

    where: str
    key: str
    wrong: str
    right: str

    def __str__(self) -> str:
        """Two lines; where the second part begins with the key, the key is not repeated."""
        repeated = not self.key or re.match(rf"{re.escape(self.key)}(?!\w|\.\w)", self.wrong)
        key = "" if repeated else f"{self.key}: "
        return f"{self.where}: {key}{self.wrong}\n    expected: {self.right}"


class ConfigError(ValueError):
    """The configuration cannot be used; the text has one block for each problem."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


@dataclass(slots=True, kw_only=True)
class Origin:
    """Where everything was written, and what is wrong with it already."""

    keys: Mapping[Path, Key]
    file: str = "defaults"
    lines: dict[Path, int] = field(default_factory=dict)
    overrides: dict[Path, str] = field(default_factory=dict)  # the variable that sets a key
    problems: list[Problem] = field(default_factory=list)

    def where(self, path: Path) -> str:
        """The variable, else file and line, of a key or of the nearest group around it."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.overrides:
                return f"environment variable {self.overrides[path[:length]]}"
            if path[:length] in self.lines:
                return f"{self.file}:{self.lines[path[:length]]}"
        return self.file

    def key(self, path: Path) -> Key | None:
        """The key at a written path; None: the path has no key."""
        pattern = keys.pattern(self.keys, path)
        return self.keys[pattern] if pattern else None

    def add(self, path: Path, wrong: str, right: str) -> None:
        """Note a problem of a key; only the first one is reported."""
        key = ".".join(path)
        if all(each.key != key for each in self.problems):
            self.problems.append(Problem(where=self.where(path), key=key, wrong=wrong, right=right))

    def refuse(self, where: str, wrong: str, right: str) -> None:
        """Note a problem that belongs to no key."""
        self.problems.append(Problem(where=where, key="", wrong=wrong, right=right))


class _Yaml(yaml.SafeLoader):
    """YAML 1.2's plain scalars: `1:30` is not a number of base 60; `on` and `no` are texts."""


_TAG = "tag:yaml.org,2002:"
_PLAIN: dict[str, tuple[str, list[str], Callable[[str], object]]] = {
    "null": (r"~|null|Null|NULL|", ["~", "n", "N", ""], lambda text: None),  # noqa: ARG005  a reader of nothing
    "bool": (r"true|True|TRUE|false|False|FALSE", list("tTfF"), lambda text: text.lower() == "true"),
    "int": (r"[-+]?(0|[1-9][0-9]*)", list("-+0123456789"), int),
    "float": (
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        list("-+.0123456789"),
        lambda text: float(re.sub(r"\.(inf|nan)", r"\1", text.lower())),
    ),
    "merge": ("<<", ["<"], str),
}
_Yaml.yaml_implicit_resolvers = {}
for _name, (_regex, _first, _) in _PLAIN.items():
    _Yaml.add_implicit_resolver(f"{_TAG}{_name}", re.compile(f"(?:{_regex})$"), _first)


@dataclass(slots=True, kw_only=True)
class _Document:
    """Turns YAML's nodes into plain values, with the line of every key."""

    origin: Origin
    count: int = 0
    open_nodes: list[yaml.Node] = field(default_factory=list)

    def value(self, node: yaml.Node, path: Path) -> Any:  # noqa: ANN401  a document holds anything
        """A node's value; what is wrong with it is noted."""
        self.count += 1
        if self.count > _LARGEST_FILE_VALUES or node in self.open_nodes:
            raise yaml.YAMLError("aliases repeat or contain each other without end")
        self.open_nodes.append(node)
        value: Any
        if isinstance(node, yaml.MappingNode):
            value = self._mapping(node, path)
        elif isinstance(node, yaml.SequenceNode):
            value = [self.value(each, path) for each in node.value]
        else:
            value = self._scalar(node, path)
        self.open_nodes.pop()
        return value

    def _scalar(self, node: yaml.Node, path: Path) -> object:
        key = self.origin.key(path)
        name = node.tag.removeprefix(_TAG)
        if name not in {"str", "null", "bool", "int", "float"}:
            self.origin.add(path, f"has the tag {node.tag}", "a plain value without a tag")
            return None
        try:
            value: object = _PLAIN[name][2](node.value) if name in _PLAIN else node.value
        except ValueError as error:  # a tag that its text contradicts, or a number of thousands of digits
            self.origin.add(path, f"is not a value: {error}", "a plain value")
            return None
        plain = isinstance(value, str) and _COMMANDS.isdisjoint(path[-1:])
        if plain and key is not None and (found := _VARIABLE.search(str(value))) is not None:
            right = f"the value itself; or leave the key out, and set {key.variable} in the environment"
            self.origin.add(path, f"the file has {found[0]}, and no variable is put in", right)
        if value is None and (not path or (key is not None and key.kind in GROUPS)):
            return {}  # a section with nothing in it, or with comments only
        if isinstance(value, bool) and key is not None and key.kind in NUMERIC:
            self.origin.add(path, f"{show_value(value, path)} is not {key.kind.value}", key.expected)
        elif key is not None and key.kind in NUMERIC and _is_astronomic(value):
            self.origin.add(path, f"{show_value(value, path)} is too large or too small to be counted", key.expected)
        return value

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        values: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        first: dict[str, int] = {}
        key = self.origin.key(path)
        names = key is not None and key.kind is Kind.NAMES
        for name_node, value_node in node.value:
            line = name_node.start_mark.line + 1
            if name_node.tag == f"{_TAG}merge":
                for each in value_node.value if isinstance(value_node, yaml.SequenceNode) else [value_node]:
                    more = self.value(each, path)
                    merged = {**more, **merged} if isinstance(more, dict) else merged
                continue
            if not isinstance(name_node, yaml.ScalarNode):
                self.origin.add(path, f"has a key in line {line} that is not a text", "a plain text before the colon")
                continue
            name = name_node.value
            here = (*path, name)
            self.origin.lines[here] = line
            if name in first:
                self.origin.add(here, f"is written twice, first in line {first[name]}", "one of the two")
            first[name] = line
            if names and (wrong := _no_name(name)) is not None:
                self.origin.add(here, f"the name {name!r} {wrong}", "a word")
            values[name] = self.value(value_node, here)
        return {**merged, **values}


def _no_name(name: str) -> str | None:
    """Why nobody could read or type a name; None: people can."""
    if not name or name != name.strip():
        return "is empty or has blanks around it"
    if not name.isprintable():
        return "has a character that cannot be seen"
    return None


def _is_astronomic(value: object) -> bool:
    """Whether sums of it would take for ever, as of `1E-99999999`."""
    try:
        number = Decimal(str(value))
    except (InvalidOperation, ValueError):
        return False
    return number.is_finite() and not is_amount(number)


def read_values(file: File, origin: Origin) -> dict[str, Any]:
    """The values of a file; mistakes are noted in `origin`, and a file that is not a mapping has no values.

    Raises:
        OSError: the file cannot be read.

    """
    try:
        text = text_of(file)
        node = yaml.compose(text, Loader=_Yaml)
        if node is None:
            return {}
        value = _Document(origin=origin).value(node, ())
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        begin = error.context_mark.line + 1 if error.context_mark else line
        part = f", of what begins in line {begin}" if begin != line else ""
        origin.refuse(f"{origin.file}:{line}", f"is no YAML: {_in_words(error)}{part}", _LOOKS_LIKE)
        return {}
    except UnicodeDecodeError as error:
        origin.refuse(origin.file, not_utf8(error), _LOOKS_LIKE)
        return {}
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        wrong = f"has the control character 0x{error.character:02x}"
        origin.refuse(f"{origin.file}:{line}", wrong, "text without it")
        return {}
    except (yaml.YAMLError, RecursionError) as error:
        origin.refuse(origin.file, f"is no YAML: {' '.join(str(error).split())}", _LOOKS_LIKE)
        return {}
    if not isinstance(value, dict):
        line = node.start_mark.line + 1
        origin.refuse(f"{origin.file}:{line}", f"the file holds {show_value(value, ())} and no keys", _LOOKS_LIKE)
        return {}
    return value


def _in_words(error: yaml.MarkedYAMLError) -> str:
    """What is wrong, without the names that the reader of YAML has for what it finds."""
    return _FOUND.sub(lambda found: _FOUND_WORDS.get(found[1], "something else"), error.problem or error.context or "")


def show_value(value: object, path: Path) -> str:
    """A value for people, unless its key sounds like a secret, or the value does: errors go into logs."""
    if isinstance(value, Mapping | list | tuple):
        return "a section" if isinstance(value, Mapping) else "a list"
    if _SECRET.search(".".join(path)) or (isinstance(value, str) and _URL_WITH_PASSWORD.search(value)):
        return "(hidden)"
    if isinstance(value, str):
        value = _URL_WITH_PATH.sub(r"\1/(hidden)", value)
        if _LOOKS_RANDOM.fullmatch(value):
            return "(hidden)"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
