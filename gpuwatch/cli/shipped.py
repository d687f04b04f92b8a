"""Files that come with gpuwatch besides its code: where they lie, the Helm chart made from them, how they are written.

They are alerts, dashboards, units, the chart, and a first configuration. Written are all files or none, and never over
somebody's changes.
"""

import re
import sys
from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from gpuwatch import __version__
from gpuwatch.cli.base import print_text


def shipped_folder(folder: str) -> Traversable:
    """A folder of the repository, such as `docs/examples`.

    As it lies in a wheel or a shiv file, else in the checkout around the package.
    """
    packed = files("gpuwatch") / "shipped" / folder
    return packed if packed.is_dir() else Path(__file__).parents[2] / folder


def files_below(tree: Traversable, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Path and text of each file in a shipped folder, sorted; paths have `/`. Python's bytecode is left out."""
    for each in sorted(tree.iterdir(), key=lambda entry: entry.name):
        if each.name == "__pycache__":
            continue
        if each.is_dir():
            yield from files_below(each, f"{prefix}{each.name}/")
        else:
            yield prefix + each.name, each.read_text(encoding="utf-8")


def write(folder: Path, files: Mapping[str, str], force: bool) -> None:
    """Write texts by their path below the folder, and say what became of each.

    Where one of them would change a file and `force` is not given, no file is written and the exit status is 2.
    """
    try:
        before = {name: _read_bytes(folder / name) for name in files}
        changed = [name for name, text in files.items() if before[name] not in {None, text.encode()}]
        if changed and not force:
            listed = "\n".join(f"  {folder / name}" for name in changed)
            print_text(f"Nothing was written. These files differ from what would be written:\n{listed}", err=True)
            print_text("To overwrite them, add --force. To compare, export into another folder.", err=True)
            sys.exit(2)
        for name, text in files.items():
            if before[name] != text.encode():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        print_text(f"{error.filename or folder} cannot be written: {error.strerror or error}", err=True)
        sys.exit(2)
    for name, text in files.items():
        became = "unchanged" if before[name] == text.encode() else "replaced" if name in changed else "written"
        print_text(f"{became:<9}  {folder / name}")


def _read_bytes(path: Path) -> bytes | None:
    """What is there now; None where there is no file."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


_UNVERSIONED = "0.0.0"  # in the shipped Chart.yaml
_RULES = ("gpuwatch.yml", "recording.yml")


def chart() -> dict[str, str]:
    """Texts by their path in the chart's folder."""
    files = dict(files_below(shipped_folder("deploy").joinpath("helm", "gpuwatch")))
    files["Chart.yaml"] = (
        files["Chart.yaml"]
        .replace(f"version: {_UNVERSIONED}\n", f"version: {semantic(__version__)}\n")
        .replace(f'appVersion: "{_UNVERSIONED}"', f'appVersion: "{__version__}"')
    )
    boards = shipped_folder("dashboards")
    files |= {
        f"files/dashboards/{name}": text
        for name, text in files_below(boards)
        if "/" not in name and name.endswith(".json")
    }
    alerts = shipped_folder("alerts")
    return files | {f"files/rules/{name}": alerts.joinpath(name).read_text(encoding="utf-8") for name in _RULES}


def semantic(version: str) -> str:
    """A Python version as Helm wants it: 1.0.0rc1 becomes 1.0.0-rc.1."""
    return re.sub(r"^(\d+\.\d+\.\d+)\.?(a|b|rc|dev)(\d+)", r"\1-\2.\3", version)
