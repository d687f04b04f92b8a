"""PURE: the lines of crontabs, as Debian's cron and cronie read them.

`TZ=` sets the jobs' environment and not their time. `CRON_TZ=` does in cronie and does not in Debian's cron: jobs below
it count at both times. `@reboot` is due at no time. The command is never kept.
"""

import re
from binascii import crc32
from collections.abc import Iterator
from dataclasses import dataclass

from gpuwatch.agent.evidence.scheduled.housekeeping import tidies
from gpuwatch.agent.evidence.scheduled.recurrence import Recurrence

_ASSIGNMENT = re.compile(r"""\s*(["']?)([A-Za-z_][^=\s"']*)\1\s*=\s*(.*)""")
_FIELD = re.compile(r"(?:\*|(\w+)(?:-(\w+))?)(?:/(\d+))?")
_NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS = {name: number for number, name in enumerate("jan feb mar apr may jun jul aug sep oct nov dec".split(), 1)}  # noqa: SIM905  a table
_WEEKDAYS = {name: number for number, name in enumerate("sun mon tue wed thu fri sat".split())}  # noqa: SIM905  a table
_FIELDS = 5
_RUN_PARTS = re.compile(r"\brun-parts(?:\s+-\S+)*\s+/etc/(cron\.(?:hourly|daily|weekly|monthly))\b")
_FCRON_OPTIONS = re.compile(r"^\s*&\S*\s+")


@dataclass(frozen=True, slots=True, kw_only=True)
class CronLine:
    """A job: its line's number, its times, its user (None: the crontab's owner), CRON_TZ if that was set."""

    number: int
    recurrence: Recurrence
    user: str | None
    zone: str | None
    tidies: bool = False  # it only keeps the machine tidy
    scripts: str | None = None  # the folder in /etc whose scripts it runs
    mark: int = 0  # a checksum of the line


@dataclass(frozen=True, slots=True, kw_only=True)
class BadLine:
    """A line that no rule reads; `user` is its sixth word in a crontab with users."""

    number: int
    user: str | None


def parse(text: str, *, with_user: bool) -> Iterator[CronLine | BadLine]:
    """The jobs of a crontab; `with_user` for /etc/crontab and /etc/cron.d, which name a user on each line."""
    zone: str | None = None
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.strip()
        assigned = _ASSIGNMENT.fullmatch(line)
        if not line or line.startswith("#"):
            continue
        if assigned:
            if assigned[2] == "CRON_TZ":
                zone = assigned[3].strip().strip("\"'") or None
            continue
        words = line.removeprefix("-").split(None, _FIELDS + 2)  # "-": cronie does not log the job
        nickname = words[0].startswith("@") if words else False
        timing, rest = (words[:1], words[1:]) if nickname else (words[:_FIELDS], words[_FIELDS:])
        if nickname and timing[0].lower() == "@reboot":
            continue
        user = rest[0] if with_user and rest else None
        try:
            recurrence = parse_times(" ".join(timing))
        except ValueError:
            yield BadLine(number=number, user=user)
            continue
        if len(rest) < (2 if with_user else 1):
            yield BadLine(number=number, user=user)
            continue
        command = " ".join(rest[1:] if with_user else rest)
        scripts = _RUN_PARTS.search(command)
        yield CronLine(
            number=number,
            recurrence=recurrence,
            user=user,
            zone=zone,
            tidies=tidies(command),
            scripts=None if scripts is None else scripts[1],
            mark=crc32(line.encode("utf-8", "surrogateescape")),
        )


def as_crontab(text: str) -> str:
    """A table of fcron in the words of a crontab, line by line: without options (`&bootrun(true) 0 2 * * * run.sh`)."""
    lines = ("" if line.lstrip().startswith("!") else _FCRON_OPTIONS.sub("", line) for line in text.split("\n"))
    return "\n".join(lines)


def parse_times(timing: str) -> Recurrence:
    """The times of five fields, or of `@daily` and its like.

    Raises:
        ValueError: these are no times of a crontab.

    """
    fields = _NICKNAMES.get(timing.lower(), timing).lower().split()
    if len(fields) != _FIELDS:
        raise ValueError("a crontab's time has five fields")
    minutes, hours = _field(fields[0], 0, 59), _field(fields[1], 0, 23)
    weekdays = _field(fields[4], 0, 7, _WEEKDAYS)
    return Recurrence(
        minutes=tuple(sorted(60 * hour + minute for hour in hours for minute in minutes)),
        days=_field(fields[2], 1, 31),
        months=_field(fields[3], 1, 12, _MONTHS),
        weekdays=frozenset((day - 1) % 7 for day in weekdays),
        # crontab(5): both must match if one of them begins with a star, else either.
        either=not fields[2].startswith("*") and not fields[4].startswith("*"),
    )


def _field(text: str, low: int, high: int, names: dict[str, int] | None = None) -> frozenset[int]:
    """The numbers of one field: lists of `*`, `a`, `a-b`, each with an optional step."""
    numbers: set[int] = set()
    for part in text.split(","):
        found = _FIELD.fullmatch(part)
        if found is None:
            raise ValueError(f"{part} is no part of a crontab's time")
        step = int(found[3] or 1)
        if found[1] is None:
            first, last = low, high
        else:
            first = _number(found[1], names)
            last = _number(found[2], names) if found[2] else (high if found[3] else first)
        if step < 1 or not low <= first <= last <= high:
            raise ValueError(f"{part} is out of range")
        numbers.update(range(first, last + 1, step))
    return frozenset(numbers)


def _number(word: str, names: dict[str, int] | None) -> int:
    if names and word in names:
        return names[word]
    if not re.fullmatch(r"[0-9]{1,4}", word):
        raise ValueError(f"{word} is no number")
    return int(word)
