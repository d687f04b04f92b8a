"""An .rpm of a staged package, by rpmbuild."""

import shutil
from pathlib import Path

from tools.release.libraries import GLIBC, pythons
from tools.release.programs import run
from tools.release.source import Source, tilde
from tools.release.staging import ENABLED_SOCKETS, LIBRARY, Package, filled

_ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}
# Nothing is stripped, compiled or searched: the files are what was staged; and the same commit gives the same package.
_DEFINES = {
    "__os_install_post": "%{nil}",
    "debug_package": "%{nil}",
    "_build_id_links": "none",
    "_binary_payload": "w6.xzdio",
    "_buildhost": "localhost",
    "use_source_date_epoch_as_buildtime": "1",
    "clamp_mtime_to_source_date_epoch": "1",
    "source_date_epoch_from_changelog": "0",
    "_source_filedigest_algorithm": "8",
    "_binary_filedigest_algorithm": "8",
}


def build(source: Source, package: Package, architecture: str, folder: Path) -> Path:
    """The .rpm. Needs rpmbuild."""
    machine = _ARCHITECTURES[architecture]
    top = folder / f".rpm-{package.name}-{machine}"
    spec = top / f"{package.name}.spec"
    top.mkdir(parents=True)
    template = (source.folder / "packaging/rpm/package.spec").read_text(encoding="utf-8")
    spec.write_text(filled(template, _values(package, tilde(source.version))), encoding="utf-8")
    defines = [part for name, value in {**_DEFINES, "_topdir": str(top)}.items() for part in ("-D", f"{name} {value}")]
    run(
        ["rpmbuild", "-bb", "--quiet", "--target", f"{machine}-linux", *defines, spec],
        env=source.environment(),
    )
    (built,) = (top / "RPMS").rglob("*.rpm")
    made = folder / built.name
    built.rename(made)
    shutil.rmtree(top)
    return made


def _values(package: Package, version: str) -> dict[str, str]:
    base = package.name == "gpuwatch"
    # Every distribution's Pythons provide this name: python3 of Fedora, python3.12 of RHEL 9 and of Amazon Linux 2023.
    python = " or ".join(f"python(abi) = {each}" for each in reversed(pythons()))
    needs = [f"glibc >= {GLIBC}", "libgcc", "libstdc++", f"({python})", "systemd >= 247", "findutils", "tzdata"]
    return {
        "NAME": package.name,
        "VERSION": version,
        "SUMMARY": package.summary,
        "DESCRIPTION": package.description,
        "REQUIRES": "\n".join(
            f"Requires: {each}" for each in (needs if base else [f"gpuwatch = {version}-1", "ca-certificates"])
        ),
        "STAGED": str(package.root),
        "FILES": "\n".join(_files(package)),
        "PREPARE": "systemd-sysusers gpuwatch.conf" if base else ":",
        "REMOVE": f"rm -f {ENABLED_SOCKETS}" if base else ":",
        "COMPILED": package.compiled,
        "UNIT": package.unit,
    }


def _files(package: Package) -> list[str]:
    """The package's own folders as wholes, and the other files one by one."""
    folders = {LIBRARY / package.compiled, Path("usr/share/doc") / package.name}
    lines = [f'"/{folder}"' for folder in sorted(folders)]
    if package.name == "gpuwatch":
        lines = ["%dir /usr/lib/gpuwatch", "%dir /etc/gpuwatch", *lines]
    for file in package.files():
        if not folders.intersection(file.parents):
            lines.append(f"{'%config(noreplace) ' if file.parts[0] == 'etc' else ''}/{file}")
    return lines
