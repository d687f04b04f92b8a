"""One thing, or several by names of people's choice: a cloud or clouds, a Kubernetes cluster or its siblings by name.

The names of clusters stand among the keys of a single one: `kubernetes.prod.kubeconfig`. `Settings` has them in a field
of their own (`Among`), and here is what goes from one form to the other. Clouds have a section of their own, `clouds`.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any, get_type_hints

from gpuwatch.config import keys, nearest
from gpuwatch.config.keys import NAME
from gpuwatch.config.settings import Settings
from gpuwatch.config.yaml_file import Origin
from gpuwatch.model.setting import Among, Contradiction


def contradictions(origin: Origin) -> Iterator[Contradiction]:
    """One and several: nobody could tell whether the one is among the several."""
    paths = {path[:2] for path in (*origin.lines, *origin.overrides) if path}
    if {"cloud", "clouds"} <= {path[0] for path in paths}:
        yield Contradiction(
            keys=(("cloud",), ("clouds",)),
            wrong="the sections cloud and clouds are both written",
            right="one of them: `clouds` has each cloud under a name, `cloud` is for a single one",
        )
    for section, (_, own) in _sections().items():
        both = sorted(path for path in paths if path[0] == section and len(path) > 1)
        single = [path for path in both if path[1] in own]
        named = [path[1] for path in both if path[1] not in own]
        if single and named:
            key = ".".join(single[0])
            yield Contradiction(
                keys=(single[0],),
                wrong=f"{key} is a key of a single one, and {section}.{named[0]} is one of several by name",
                right=f"{section}.{named[0]}.{single[0][1]}, or no names in {section}",
            )


@cache
def _sections() -> dict[str, tuple[str, frozenset[str]]]:
    """Return the sections with names among their keys: the field of `Settings` that has those, and the keys."""
    found = {}
    for name, hint in get_type_hints(Settings, include_extras=True).items():
        among = next((each for each in getattr(hint, "__metadata__", ()) if isinstance(each, Among)), None)
        if among is not None:
            found[among.section] = name, frozenset(nearest.below((among.section,))) - {NAME}
    return found


def with_names_apart(values: dict[str, Any], origin: Origin) -> dict[str, Any]:
    """The values as `Settings` has them: sections by name that stand among the keys of another are a section."""
    parted = dict(values)
    for section, (field, own) in _sections().items():
        if field in parted:
            origin.add((field,), "is not a key of the configuration", f"{section}.{NAME}")
            del parted[field]
        written = parted.get(section)
        if isinstance(written, dict):
            named = {key: value for key, value in written.items() if isinstance(value, dict) and key not in own}
            parted[section] = {key: value for key, value in written.items() if key not in named}
            parted |= {field: named} if named else {}
    return parted


def path_in_settings(path: keys.Path) -> keys.Path:
    """The path in `Settings` of a written one."""
    field, own = _sections().get(path[0], ("", frozenset()))
    return (field, *path[1:]) if field and len(path) > 1 and path[1] not in own else path


def written_path(path: keys.Path) -> keys.Path:
    """The written path of one in `Settings`."""
    section = next((section for section, (field, _) in _sections().items() if path[:1] == (field,)), None)
    return path if section is None else (section, *path[1:])


def show_as_written(schema: dict[str, Any]) -> None:
    """Put names among the keys of their section in a JSON Schema of `Settings`."""
    shown = schema["properties"]
    for section, (field, _) in _sections().items():
        names = shown.pop(field)["additionalProperties"]
        plain = schema["$defs"][shown[section]["$ref"].rpartition("/")[2]]
        shown[section] = {**plain, "additionalProperties": names}
