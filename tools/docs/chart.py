"""README.md of the Helm chart: its values with their comments, as values.yaml has them; and their defaults alone."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

FOLDER = "deploy/helm/gpuwatch"
_CHART = Path(__file__).parents[2] / FOLDER
_HEAD = """\
# The chart of gpuwatch
Generated from values.yaml by `make docs`; do not edit.

An agent on each GPU node, which shows what each GPU does, and, switched on, the controller that finds idle ones.
docs/kubernetes.md is where to begin; `helm install` refuses values that are not here.
"""
_COMMENT = re.compile(r" *# \S")
_SECTIONS = {
    "": "All objects",
    "agent": "The agent",
    "controller": "The controller",
    "serviceMonitor": "Prometheus Operator: services",
    "podMonitor": "Prometheus Operator: pods",
    "prometheusRule": "Alert rules",
    "dashboards": "Dashboards",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One value that people may set. `comment` is what stands above it; empty: nothing does."""

    path: tuple[str, ...]
    default: object
    comment: str


def values() -> Iterator[Value]:
    """Each value with its comment, in the order of the file; what holds others comes before them, without a default.

    Which maps hold values of ours, and which are Kubernetes' own, the schema says.
    """
    text = (_CHART / "values.yaml").read_text(encoding="utf-8")
    schema = json.loads((_CHART / "values.schema.json").read_text(encoding="utf-8"))
    yield from _values(yaml.compose(text), text.splitlines(), schema, schema, ())


def _values(
    node: Any,  # noqa: ANN401  PyYAML's nodes have no types
    lines: list[str],
    schema: dict[str, Any],
    whole: dict[str, Any],
    path: tuple[str, ...],
) -> Iterator[Value]:
    for key, value in node.value:
        here = (*path, key.value)
        comment = _comment_above(lines, key.start_mark.line)
        known = _resolved(schema["properties"][key.value], whole)
        if isinstance(value, yaml.MappingNode) and "properties" in known and not value.flow_style:
            yield Value(path=here, default=None, comment=comment)
            yield from _values(value, lines, known, whole, here)
        else:
            yield Value(path=here, default=yaml.safe_load(yaml.serialize(value)), comment=comment)


def _resolved(schema: dict[str, Any], whole: dict[str, Any]) -> dict[str, Any]:
    """A schema, or the definition that it refers to."""
    name = schema.get("$ref", "").rpartition("/")[2]
    found: dict[str, Any] = whole["definitions"][name] if name else schema
    return found


def _comment_above(lines: list[str], line: int) -> str:
    """The comment that ends right above a line, as one text; indented is an example of the value before."""
    found: list[str] = []
    while line > 0 and _COMMENT.match(lines[line - 1]):
        line -= 1
        found.insert(0, lines[line].strip()[2:].strip())
    return " ".join(found)


def render() -> str:
    """The page's text."""
    text = [_HEAD]
    section = None
    for each in values():
        if each.default is None and len(each.path) == 1 and each.path[0] in _SECTIONS:
            text.append(_section(each.path[0], each.comment))
            section = each.path[0]
            continue
        if section not in {"", each.path[0]}:
            text.append(_section("", ""))
            section = ""
        shown = "" if each.default is None else f"`{json.dumps(each.default, ensure_ascii=False)}`"
        if shown or each.comment:
            text.append(f"| `{'.'.join(each.path)}` | {shown} | {each.comment} |\n".replace("|  |", "| |"))
    return "".join(text)


def render_defaults() -> str:
    """Every default for the templates: no template can read values.yaml."""
    known = yaml.safe_load((_CHART / "values.yaml").read_text(encoding="utf-8"))
    return json.dumps(known, indent=1) + "\n"


def _section(name: str, comment: str) -> str:
    """A heading with its comment, and the head of a table."""
    told = f"{comment}\n\n" if comment else ""
    return f"\n## {_SECTIONS[name]}\n{told}| value | default | what it is |\n| --- | --- | --- |\n"
