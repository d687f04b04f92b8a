"""The files of both packages as they lie on a host; the deb and the rpm are made from the same folders."""

import gzip
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.release.libraries import Tree, pythons
from tools.release.source import Source

LIBRARY = Path("usr/lib/gpuwatch")
UNITS = Path("usr/lib/systemd/system")
_WANTS = "/etc/systemd/system/sockets.target.wants"
# Of root, and off until somebody enables them.
_ON_REQUEST = (
    *("gpuwatch-before-stop.socket", "gpuwatch-before-stop@.service"),
    *("gpuwatch-poweroff.socket", "gpuwatch-poweroff@.service"),
)
ENABLED_SOCKETS = " ".join(f"{_WANTS}/{name}" for name in _ON_REQUEST if name.endswith(".socket"))
_DOCUMENTS = Path("usr/share/doc/gpuwatch")
_LEFT_OUT = ("pictures", "adr")  # for readers of the repository


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """One package for both kinds of systems."""

    name: str
    summary: str
    description: str
    unit: str
    compiled: str  # its folder below /usr/lib/gpuwatch
    state: tuple[str, ...]  # what its service writes; a purge removes it
    root: Path

    def files(self) -> Iterator[Path]:
        """Every file and link below the root, relative to it, in order."""
        for path in sorted(self.root.rglob("*")):
            if path.is_symlink() or path.is_file():
                yield path.relative_to(self.root)


def stage(source: Source, tree: Tree, folder: Path) -> tuple[Package, Package]:
    """Both packages: gpuwatch (agent and commands), and gpuwatch-controller, which needs it."""
    base = Package(
        name="gpuwatch",
        summary="GPU fleet monitoring: agent of a GPU host, and commands",
        description="The agent decides whether this machine's GPUs are in use, with evidence, and serves metrics to\n"
        "Prometheus. The service gpuwatch-agent is installed and not started.",
        unit="gpuwatch-agent",
        compiled="app",
        state=("/var/cache/gpuwatch-agent", "/var/lib/gpuwatch-agent", "/run/gpuwatch"),
        root=folder / "gpuwatch",
    )
    controller = Package(
        name="gpuwatch-controller",
        summary="GPU fleet monitoring: controller that stops idle machines",
        description="The controller asks the agents of a fleet, gives notice, and stops idle machines on AWS. It only\n"
        "observes until its configuration says otherwise. The service is installed and not started.",
        unit="gpuwatch-controller",
        compiled="controller",
        state=("/var/lib/gpuwatch", "/var/lib/private/gpuwatch"),
        root=folder / "gpuwatch-controller",
    )
    packaging = source.folder / "packaging"
    shutil.copytree(tree.agent, base.root / LIBRARY / "app", symlinks=True)
    shutil.copytree(tree.controller, controller.root / LIBRARY / "controller", symlinks=True)
    shutil.copy(packaging / "main.py", base.root / LIBRARY / "app/__main__.py")
    _write(base.root / LIBRARY / "python", _for_pythons((packaging / "python").read_text(encoding="utf-8")), 0o755)
    for name, place in (("compile", LIBRARY / "compile"), ("gpuwatch", Path("usr/bin/gpuwatch"))):
        _write(base.root / place, (packaging / name).read_text(encoding="utf-8"), 0o755)
    _write(base.root / "etc/gpuwatch/gpuwatch.yaml", (packaging / "gpuwatch.yaml").read_text(encoding="utf-8"))
    sysusers = (source.folder / "systemd/gpuwatch.sysusers.conf").read_text(encoding="utf-8")
    _write(base.root / "usr/lib/sysusers.d/gpuwatch.conf", sysusers)
    units = ((base, _ON_REQUEST), (base, (f"{base.unit}.service",)), (controller, (f"{controller.unit}.service",)))
    for package, names in units:
        for name in names:
            unit = (source.folder / "systemd" / name).read_text(encoding="utf-8")
            unit = unit.replace("ExecStart=/usr/local/bin/gpuwatch ", "ExecStart=/usr/bin/gpuwatch ")
            _write(package.root / UNITS / name, unit)
    for package in (base, controller):
        _write(package.root / f"usr/share/doc/{package.name}/copyright", (packaging / "copyright").read_text("utf-8"))
    _documents(source, base.root / _DOCUMENTS)
    for package in (base, controller):
        _permissions(package.root)
    return base, controller


def filled(template: str, values: dict[str, str]) -> str:
    """A template with @NAME@ replaced; raises KeyError for a name without a value."""
    return re.sub(r"@([A-Z]+)@", lambda found: values[found[1]], template)


def compressed(text: str) -> bytes:
    """As gzip, without a time and at the best level."""
    return gzip.compress(text.encode(), compresslevel=9, mtime=0)


def _for_pythons(script: str) -> str:
    supported = pythons()
    newest_first = [f"/usr/bin/python{each}" for each in reversed(supported)]
    values = {"CANDIDATES": " ".join(newest_first), "PATTERN": " | ".join(newest_first)}
    return filled(script, values | {"RANGE": f"{supported[0]} to {supported[-1]}"})


def _documents(source: Source, folder: Path) -> None:
    """The pages, with their examples, so that links between them work."""
    shutil.copytree(source.folder / "docs", folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*_LEFT_OUT))
    for name in ("README.md", "SECURITY.md"):
        shutil.copy(source.folder / name, folder / name)
    changes = (source.folder / "CHANGELOG.md").read_text(encoding="utf-8")
    (folder / "changelog.gz").write_bytes(compressed(changes))


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)


def _permissions(root: Path) -> None:
    """The same on every machine, whatever the umask and the wheels say; only what we mark is executable."""
    programs = {"usr/bin/gpuwatch", f"{LIBRARY}/python", f"{LIBRARY}/compile"}
    root.chmod(0o755)
    for path in root.rglob("*"):
        if not path.is_symlink():
            marked = path.is_dir() or str(path.relative_to(root)) in programs
            path.chmod(0o755 if marked else 0o644)
