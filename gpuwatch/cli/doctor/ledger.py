"""The ledger: can it be read and written, who holds it, is there room."""

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from gpuwatch.cli.doctor.cloud import list_fleet, skipped_finding
from gpuwatch.cli.doctor.context import ControllerCase, why_closed
from gpuwatch.cli.doctor.report import Finding, fine, first_names, make_finding
from gpuwatch.guard.ownership import recent
from gpuwatch.ledger import LedgerError
from gpuwatch.ledger.peek import Glance, glance, plain
from gpuwatch.model.decision import DECISION_TAG
from gpuwatch.model.duration import format_duration

_MIB = 1024**2
FULL_BYTES = 100 * _MIB
LOW_BYTES = 1024 * _MIB


def ledger(case: ControllerCase) -> Iterator[Finding]:
    """What it says of itself, and for a file also its folder."""
    settings = case.settings.ledger
    where = f"ledger {settings.place}"
    file = settings.file
    if file is not None:
        shut = [wrong for each in _files(file) if (wrong := why_closed(each))]
        if shut:
            yield make_finding("ledger.closed", where, shut[0])
            return
        yield _room(next(each for each in file.absolute().parents if each.exists()))
        if not settings.unwritten:
            yield from _modes(file)
        else:
            yield fine("ledger", where, "it is not there yet; the controller makes it when it starts")
            return
    try:
        mode = None if file is not None else plain(settings)
        if mode is not None:
            yield make_finding("ledger.plain", where, f"sslmode={mode} in the URL")
        asked = case.clock.monotonic()
        seen = glance(settings)
    except LedgerError as error:
        yield make_finding("ledger.unusable", where, str(error))
        return
    yield from _slowness(case, where, case.clock.monotonic() - asked)
    if seen.doubt is not None:
        yield make_finding("ledger.other", where, seen.doubt)
    yield fine("ledger", where, _summary(seen, None if file is None else _holder(file)))


def _slowness(case: ControllerCase, where: str, seconds: float) -> Iterator[Finding]:
    """Whether a look takes so long that no removal would leave in time: the ledger is asked twice before each."""
    allowed = case.settings.limits.max_confirmation_age
    if seconds > allowed / 4:
        text = f"a look took {format_duration(seconds)}, a removal waits for at most {format_duration(allowed)} in all"
        yield make_finding("ledger.slow", where, text)


def others(case: ControllerCase) -> Iterator[Finding]:
    """Whether another ledger has decided about the fleet's machines of late."""
    settings, nodes, now = case.settings.ledger, list_fleet(case), case.clock.now()
    where = "decisions on the fleet's machines"
    if nodes is None:
        yield skipped_finding(where)
        return
    young = [node for node in nodes if node.enrolled and node.tags.get(DECISION_TAG) and recent(node, now)]
    keys = {node.tags[DECISION_TAG] for node in young}
    try:
        foreign = keys if settings.unwritten else glance(settings, keys).foreign
    except LedgerError:
        return  # `ledger` says why
    strange = sorted(node.id for node in young if node.tags[DECISION_TAG] in foreign)
    if strange:
        yield make_finding("ledger.foreign", where, f"of another ledger on {len(strange)}: {first_names(strange)}")
    else:
        yield fine("ledger", where, f"{len(young)} of the last day, all in this ledger")


def _modes(file: Path) -> Iterator[Finding]:
    """Whether others may read it: older versions created it by the umask."""
    lets_in = file.absolute().parent.stat().st_mode & stat.S_IXOTH
    files = [each for each in _files(file)[1:] if each.exists() and each.stat().st_mode & stat.S_IRWXO]
    if lets_in and files:
        yield make_finding("ledger.open", f"ledger {file}", f"open to others: {', '.join(each.name for each in files)}")


def _files(file: Path) -> list[Path]:
    """What the controller writes: the folder, the file in it, and what SQLite and the lock add."""
    return [
        file.absolute().parent,
        *(file.with_name(file.name + ending) for ending in ("", "-wal", "-shm", ".lock", ".id")),
    ]


def _room(folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free
    text = f"{free / _MIB:,.0f} MiB are free"
    for limit, code in ((FULL_BYTES, "ledger.full"), (LOW_BYTES, "ledger.low")):
        if free < limit:
            return make_finding(code, f"the file system of {folder}", text)
    return fine("ledger", f"the file system of {folder}", text)


def _summary(seen: Glance, holder: int | None) -> str:
    """A summary; the head can be compared with a copy kept elsewhere."""
    held = "no controller holds it" if holder is None else f"a controller holds it, process {holder}"
    led = f"last leader: {seen.leader}" if seen.leader else "no leader yet"
    return (
        f"id {seen.id}, schema {seen.schema}, {seen.links} records, {held}, {led}; audit head {seen.links}:{seen.head}"
    )


def _holder(file: Path) -> int | None:
    """The process that holds the file's lock. Source: /proc/locks; a lock that is tried would be in a start's way."""
    try:
        about = file.with_name(file.name + ".lock").stat()
        lines = Path("/proc/locks").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    ours = f"{os.major(about.st_dev):02x}:{os.minor(about.st_dev):02x}:{about.st_ino}"
    for line in lines:
        words = line.split()
        if "FLOCK" in words and ours in words:
            return int(words[4])
    return None
