"""PURE: every problem that the doctor can find, one line each in `findings.tsv`; docs/doctor.md lists them."""

from dataclasses import dataclass
from importlib.resources import files

from gpuwatch.cli.doctor.report import Finding, Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingKind:
    """What can be found: its code, what it means and how to correct it."""

    section: str
    code: str
    severity: Severity
    meaning: str
    remedy: str


def _kind(line: str) -> FindingKind:
    section, code, severity, meaning, remedy = line.split("\t")
    return FindingKind(section=section, code=code, severity=Severity(severity), meaning=meaning, remedy=remedy)


_TABLE = files("gpuwatch.cli.doctor").joinpath("findings.tsv").read_text(encoding="utf-8")
KINDS = {kind.code: kind for kind in map(_kind, _TABLE.splitlines()[1:])}


def found(code: str, looked_at: str, seen: str) -> Finding:
    """A finding of that kind, with what was seen."""
    kind = KINDS[code]
    return Finding(severity=kind.severity, code=code, looked_at=looked_at, seen=seen, remedy=kind.remedy)
