"""PURE: what the doctor found, as text and as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from textwrap import fill

from gpuwatch.runtime.printable import legible


class Severity(StrEnum):
    """How bad it is; the exit status is 1 where there is a problem."""

    PROBLEM = "problem"  # something does not work, or is unsafe
    WARNING = "warning"  # it works, and something is lost or will break
    FINE = "fine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ailment:
    """A flaw that can be found: its code, what it means and what mends it. docs/doctor.md lists them all."""

    code: str
    severity: Severity
    meaning: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at. `code` names the ailment; it is the check's own name where all is fine."""

    severity: Severity
    code: str
    looked_at: str
    seen: str
    remedy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """All findings about one part, and as whom they were made."""

    part: str
    version: str
    user: str
    findings: tuple[Finding, ...]

    def count(self, severity: Severity) -> int:
        """How many are that bad."""
        return sum(found.severity is severity for found in self.findings)


def fine(check: str, looked_at: str, seen: str) -> Finding:
    """Nothing is wrong there."""
    return Finding(severity=Severity.FINE, code=check, looked_at=looked_at, seen=seen)


def as_text(told: Examination) -> str:
    """For people: a paragraph each, what was looked at first, and a sum at the end."""
    lines = [legible(f"gpuwatch {told.version}: {told.part}, looked at as {told.user}"), ""]
    for each in told.findings:
        mark = each.severity.value.upper() if each.remedy else "ok"
        lines.append(legible(f"{mark:<8} {each.looked_at} [{each.code}]"))
        lines.append(_indented(each.seen))
        if each.remedy:
            lines.append(_indented(f"remedy: {each.remedy}"))
    problems, warnings = told.count(Severity.PROBLEM), told.count(Severity.WARNING)
    lines += [
        "",
        f"{_counted(problems, 'problem')}, {_counted(warnings, 'warning')}, {told.count(Severity.FINE)} fine.",
    ]
    return "\n".join(lines)


def as_object(told: Examination) -> Mapping[str, object]:
    """For machines."""
    return {
        "part": told.part,
        "version": told.version,
        "user": told.user,
        "problems": told.count(Severity.PROBLEM),
        "warnings": told.count(Severity.WARNING),
        "findings": [
            {
                "severity": each.severity.value,
                "code": each.code,
                "looked_at": each.looked_at,
                "seen": each.seen,
                "remedy": each.remedy,
            }
            for each in told.findings
        ],
    }


def shown(names: Sequence[str], most: int = 5) -> str:
    """The first few of many names."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def _indented(text: str) -> str:
    return fill(legible(" ".join(text.split())), width=110, initial_indent=" " * 9, subsequent_indent=" " * 9)


def _counted(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
