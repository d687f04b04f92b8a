"""What is in a release: a bill of materials (CycloneDX) for each lock, and the SHA-256 sum of each file."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from tools.release.programs import run
from tools.release.source import ROOT, Source

SUMS = "SHA256SUMS"


def bill(cyclonedx: Path, source: Source, lock: str, folder: Path) -> Path:
    """`gpuwatch-VERSION-LOCK.cdx.json`: every locked library with its version and its files' hashes."""
    made = folder / f"gpuwatch-{source.version}-{lock}.cdx.json"
    options = ("--pyproject", source.folder / "pyproject.toml", "--mc-type", "application")
    form = ("--output-reproducible", "--of", "JSON", "--sv", "1.6", "-o", made)
    run(
        [cyclonedx, "requirements", source.folder / f"requirements/{lock}.lock", *options, *form],
        env=source.environment(),
    )
    known: dict[str, Any] = json.loads(made.read_text(encoding="utf-8"))
    known["metadata"]["component"]["version"] = str(source.version)  # dynamic in pyproject.toml
    made.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return made


def locked(lock: str) -> dict[str, str]:
    """Each library of a lock with its version."""
    text = (ROOT / f"requirements/{lock}.lock").read_text(encoding="utf-8")
    return dict(re.findall(r"^([\w.-]+)(?:\[.*\])?==([^\s;]+)", text, re.MULTILINE))


def sums(folder: Path) -> Path:
    """`SHA256SUMS`, as `sha256sum --check` reads it."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != SUMS)
    lines = (f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)
    made = folder / SUMS
    made.write_text("".join(lines), encoding="ascii")
    return made
