"""PURE: what the doctor found, as text and as JSON; every problem that it can find is a line of `findings.tsv`."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files
from textwrap import fill

from gpuwatch.model.readable import how_many
from gpuwatch.runtime.json_document import fill_document
from gpuwatch.runtime.printable import legible


class Severity(StrEnum):
    """How severe a finding is; with a problem the exit status is 1."""

    PROBLEM = "problem"  # something does not work, or is unsafe
    WARNING = "warning"  # it works, and something is lost or will break
    NOTE = "note"  # nothing is wrong, and people should know
    FINE = "fine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at. `code` is of `findings.tsv`; it is the check's name where all is fine."""

    severity: Severity
    code: str
    looked_at: str
    seen: str
    remedy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """All findings about one part, and the user who ran the doctor."""

    part: str
    version: str
    user: str
    findings: tuple[Finding, ...]

    def count(self, severity: Severity) -> int:
        """How many have that severity."""
        return sum(found.severity is severity for found in self.findings)


def fine(check: str, looked_at: str, seen: str) -> Finding:
    """A check that found no problem."""
    return Finding(severity=Severity.FINE, code=check, looked_at=looked_at, seen=seen)


def as_text(examination: Examination) -> str:
    """For people: a paragraph each, what was looked at first, and a sum at the end."""
    lines = [legible(f"gpuwatch {examination.version}: {examination.part}, looked at as {examination.user}"), ""]
    for each in examination.findings:
        mark = each.severity.value.upper() if each.remedy else "ok"
        lines.append(legible(f"{mark:<8} {each.looked_at} [{each.code}]"))
        lines.append(_indent_text(each.seen))
        if each.remedy:
            lines.append(_indent_text(f"remedy: {each.remedy}"))
    problems, warnings = examination.count(Severity.PROBLEM), examination.count(Severity.WARNING)
    lines += [
        "",
        f"{how_many(problems, 'problem')}, {how_many(warnings, 'warning')}, {examination.count(Severity.FINE)} fine.",
    ]
    return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorDocument:
    """What the doctor found about one part, and the user who asked; docs/doctor.md lists the codes."""

    part: str
    version: str
    user: str
    problems: int
    warnings: int
    findings: tuple[Finding, ...]


def doctor_document(examination: Examination) -> DoctorDocument:
    """Return the examination as a JSON document."""
    return fill_document(
        DoctorDocument,
        examination,
        problems=examination.count(Severity.PROBLEM),
        warnings=examination.count(Severity.WARNING),
    )


def first_names(names: Sequence[str], most: int = 5) -> str:
    """The first few of many names."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def _indent_text(text: str) -> str:
    return fill(legible(" ".join(text.split())), width=110, initial_indent=" " * 9, subsequent_indent=" " * 9)


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


def make_finding(code: str, looked_at: str, seen: str) -> Finding:
    """A finding of that kind, with what was seen."""
    kind = KINDS[code]
    return Finding(severity=kind.severity, code=code, looked_at=looked_at, seen=seen, remedy=kind.remedy)
