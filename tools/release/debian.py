"""A .deb of a staged package, by dpkg-deb."""

import hashlib
import shutil
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path

from tools.release.libraries import GLIBC, pythons
from tools.release.programs import run
from tools.release.source import Source, tilde
from tools.release.staging import ENABLED_SOCKETS, Package, compressed, filled

_MAINTAINER = "gpuwatch authors <gpuwatch@example.invalid>"
_SCRIPTS = ("postinst", "prerm", "postrm")


def build(source: Source, package: Package, architecture: str, folder: Path) -> Path:
    """The .deb; the same bytes for the same commit. Needs dpkg-deb."""
    version = f"{tilde(source.version)}-1"
    root = package.root.with_name(f"{package.name}.deb")
    shutil.copytree(package.root, root, symlinks=True)
    changes = root / f"usr/share/doc/{package.name}/changelog.Debian.gz"
    changes.write_bytes(compressed(_changelog(package.name, version, source.epoch)))
    changes.chmod(0o644)
    control = root / "DEBIAN"
    control.mkdir()
    templates = source.folder / "packaging/debian"
    values = _values(package, version, architecture) | {"SIZE": str(_kibibytes(root))}
    (control / "control").write_text(filled((templates / "control").read_text("utf-8"), values), encoding="utf-8")
    for name in _SCRIPTS:
        script = control / name
        script.write_text(filled((templates / name).read_text("utf-8"), values), encoding="utf-8")
        script.chmod(0o755)
    if settings := [str(file) for file in package.files() if file.parts[0] == "etc"]:
        (control / "conffiles").write_text("".join(f"/{name}\n" for name in settings), encoding="utf-8")
    (control / "md5sums").write_text(_sums(root), encoding="utf-8")
    made = folder / f"{package.name}_{version}_{architecture}.deb"
    run(["dpkg-deb", "--root-owner-group", "-Zxz", "--build", root, made], env=source.environment())
    shutil.rmtree(root)
    return made


def _values(package: Package, version: str, architecture: str) -> dict[str, str]:
    oldest, *_ = supported = pythons()
    # The system's own, else another one that the system has: Ubuntu 22.04 has 3.11 next to its 3.10.
    python = " | ".join([f"python3 (>= {oldest})", *(f"python{each}" for each in reversed(supported))])
    base = package.name == "gpuwatch"
    needs = [f"libc6 (>= {GLIBC})", "libgcc-s1", "libstdc++6", python, "systemd (>= 247)", "tzdata"]
    return {
        "NAME": package.name,
        "VERSION": version,
        "ARCHITECTURE": architecture,
        "DEPENDS": ", ".join(needs if base else [f"gpuwatch (= {version})", "ca-certificates"]),
        "SUMMARY": package.summary,
        "DESCRIPTION": "\n".join(f" {line}" for line in package.description.splitlines()),
        "UNIT": package.unit,
        "COMPILED": package.compiled,
        "STATE": " ".join(package.state),
        "PREPARE": "systemd-sysusers gpuwatch.conf" if base else ":",
        "REMOVE": f"rm -f {ENABLED_SOCKETS}" if base else ":",
    }


def _changelog(name: str, version: str, epoch: int) -> str:
    """Debian's own form; what changed is in gpuwatch's changelog."""
    date = format_datetime(datetime.fromtimestamp(epoch, UTC))
    return f"{name} ({version}) stable; urgency=medium\n\n  * See changelog.gz.\n\n -- {_MAINTAINER}  {date}\n"


def _kibibytes(root: Path) -> int:
    """As dpkg counts them: files in whole KiB, and one for each folder."""
    return sum(1 if path.is_dir() else -(-path.lstat().st_size // 1024) for path in root.rglob("*"))


def _sums(root: Path) -> str:
    """Of every file that is no setting, for `dpkg --verify`."""
    files = [path for path in sorted(root.rglob("*")) if path.is_file() and not path.is_symlink()]
    known = ((path.relative_to(root), path) for path in files)
    return "".join(
        f"{hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()}  {name}\n"
        for name, path in known
        if name.parts[0] not in ("DEBIAN", "etc")
    )
