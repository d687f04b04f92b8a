"""A measured figure with its floor, and the table of them, also on its page of the documentation."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One row: several runs of one measurement, and those of what it is compared with, if anything."""

    name: str
    unit: str
    runs: Sequence[float]
    floor: str = ""
    floor_runs: Sequence[float] = ()
    at_most: float | None = None  # the goal of what is measured
    at_least: float | None = None  # likewise
    ratio_at_most: float | None = None  # the goal of the ratio
    digits: int = 3  # of what is measured

    @property
    def ratio(self) -> float | None:
        """Median to median; None without a floor."""
        return median(self.runs) / median(self.floor_runs) if self.floor_runs else None

    @property
    def goal(self) -> str:
        """What it should be, and whether it is; empty without a goal."""
        if self.ratio_at_most is not None and self.ratio is not None:
            return f"<= {_number(self.ratio_at_most)}x {_met(self.ratio <= self.ratio_at_most)}"
        if self.at_least is not None and self.at_most is not None:
            met = self.at_least <= median(self.runs) <= self.at_most
            return f"{_number(self.at_least)} to {_number(self.at_most)} {self.unit}".rstrip() + f" {_met(met)}"
        if self.at_least is not None:
            return f">= {_number(self.at_least)} {self.unit}".rstrip() + f" {_met(median(self.runs) >= self.at_least)}"
        if self.at_most is not None:
            return f"<= {_number(self.at_most)} {self.unit}".rstrip() + f" {_met(median(self.runs) <= self.at_most)}"
        return ""

    def as_object(self) -> dict[str, object]:
        """All of it, for JSON."""
        return {
            "figure": self.name,
            "unit": self.unit,
            "runs": list(self.runs),
            "floor": self.floor or None,
            "floor_runs": list(self.floor_runs),
            "ratio": self.ratio,
            "goal": self.goal or None,
        }


_HEADER = ("", "ratio", "measured", "", "to", "", "goal")


def table(sections: Iterable[tuple[str, Sequence[Figure]]], *, goals_only: bool = False) -> str:
    """Aligned plain text: the ratio first, then medians with min-max of both sides; a page shows goals only."""
    lines: list[tuple[str, ...]] = [_HEADER]
    for title, figures in sections:
        lines += [("",) * len(_HEADER), (title, *("",) * (len(_HEADER) - 1))]
        lines += [_cells(figure) for figure in figures if figure.goal or not goals_only]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEADER))]
    right = {1, 2, 4}
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _cells(figure: Figure) -> tuple[str, ...]:
    ratio = "" if figure.ratio is None else f"{_number(figure.ratio)}x"
    compared = _spread(figure.floor_runs) if figure.floor_runs else ""
    return (
        f"  {figure.name}",
        ratio,
        _spread(figure.runs, figure.digits),
        figure.unit,
        compared,
        figure.floor,
        figure.goal,
    )


def _met(met: bool) -> str:
    return "met" if met else "missed"


def _spread(runs: Sequence[float], digits: int = 3) -> str:
    middle = _number(median(runs), digits)
    return middle if len(set(runs)) == 1 else f"{middle} ({_number(min(runs), digits)}-{_number(max(runs), digits)})"


def _number(value: float, digits: int = 3) -> str:
    """Three digits, more where the whole part has more."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.{digits}g}"


def has_place(page: Path, section: str) -> bool:
    """Whether a page has one block for the table of a section."""
    return len(_place(section).findall(page.read_text(encoding="utf-8"))) == 1


def _place(section: str) -> re.Pattern[str]:
    """A section's block, with what is before and after its table."""
    return re.compile(rf"(<!-- measured: {re.escape(section)} -->\n```text\n).*?(\n```\n)", re.DOTALL)


def put(page: Path, section: str, table: str) -> None:
    """Replace the block after the line `<!-- measured: SECTION -->`.

    Raises:
        ValueError: the page has no such place.

    """
    text = page.read_text(encoding="utf-8")
    written, count = _place(section).subn(lambda found: found[1] + table + found[2], text)
    if count != 1:
        message = (
            f"{page} has {count} places for the table of {section}; expected one line <!-- measured: {section} -->"
        )
        raise ValueError(message)
    page.write_text(written, encoding="utf-8")
