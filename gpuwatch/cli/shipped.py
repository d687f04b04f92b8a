"""Files that come with gpuwatch besides its code: alerts, dashboards, units, the Helm chart, a first configuration."""

from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path


def shipped(folder: str) -> Traversable:
    """A folder of the repository, such as `docs/examples`.

    As it lies in a wheel or a shiv file, else in the checkout around the package.
    """
    packed = files("gpuwatch") / "shipped" / folder
    return packed if packed.is_dir() else Path(__file__).parents[2] / folder


def files_below(tree: Traversable, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Path and text of each file in a shipped folder, sorted; paths have `/`."""
    for each in sorted(tree.iterdir(), key=lambda entry: entry.name):
        if each.is_dir():
            yield from files_below(each, f"{prefix}{each.name}/")
        else:
            yield prefix + each.name, each.read_text(encoding="utf-8")
