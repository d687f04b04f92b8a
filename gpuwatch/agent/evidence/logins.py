"""For how long nobody has been logged in for certain: no evidence of use, but whether a notice reaches anybody.

Who is logged in now is what utmp and logind say; who was, what wtmp says, a file that lasts over restarts. A login
without a terminal (sftp, a remote editor) is in no wtmp. So this agent's own looks count, too: it says no more than it
has watched for, unless it has watched since the boot. Without a wtmp that this system writes, nothing is known.
"""

import os
import struct
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from gpuwatch.agent.evidence.base import Moment, Roots, UnseenError, make_finding
from gpuwatch.agent.evidence.files import read_small
from gpuwatch.agent.evidence.sessions import People
from gpuwatch.model.activity import Evidence, State

LONGEST_SECONDS = 7 * 86400.0
_SINCE_BOOT_SECONDS = 900.0  # an agent that began within so long of the boot has seen all logins since
_LARGEST_BYTES = 4 << 20
_BOOT, _LOGIN, _END = 2, 7, 8
# struct utmp of glibc (utmp(5)): its kind, its line, and its time, which is of 64 bits elsewhere than on these.
_SHORT, _LONG = struct.Struct("=h6x32s300xi40x"), struct.Struct("=h6x32s304xq48x")
_WITH_SHORT_TIMES = frozenset({"x86_64", "ppc64le", "s390x"})


class Logins:
    """The newest look at it; `people` says who is logged in now."""

    name = "logins"
    source = "wtmp, utmp and logind sessions"

    def __init__(self, people: People, roots: Roots) -> None:
        """Begin without a look."""
        self._people = people
        self._log = roots.var / "log"
        self._began: float | None = None
        self._present: float | None = None  # when somebody was logged in last, on the monotonic clock

    def find_evidence(self, now: Moment) -> tuple[Evidence, ...]:
        """One finding: the seconds.

        Raises:
            OSError: a file could not be read.
            UnseenError: the records of logins are not there, or not whole.

        """
        at = now.monotonic_seconds
        self._began = at if self._began is None else self._began
        sessions, doubts = self._people.present()
        if sessions or doubts:
            self._present = at
        own = LONGEST_SECONDS if self._began <= _SINCE_BOOT_SECONDS else at - self._began
        own = own if self._present is None else min(own, at - self._present)
        free = min(LONGEST_SECONDS, own, max(0.0, now.at.timestamp() - _last_login(self._log)))
        return (make_finding(self, State.IDLE, None, observed=free, unit="seconds"),)


def in_verdict(found: tuple[Evidence, ...]) -> float | None:
    """The seconds; None: they are not known."""
    return next((each.observed for each in found if each.says is State.IDLE), None)


def _last_login(folder: Path) -> float:
    """When somebody was logged in last, in Unix time; without any login in all the records, long ago."""
    names = sorted(each.name for each in os.scandir(folder) if each.name.startswith("wtmp"))
    plain = [name for name in names if not name.endswith((".gz", ".xz", ".zst", ".bz2"))]
    records = list(chain.from_iterable(_records(folder / name) for name in plain))
    if not any(kind == _BOOT for kind, _, _ in records):
        raise UnseenError(f"{folder}/wtmp has no record of a boot: this system does not write it")
    last, there = -LONGEST_SECONDS, set[bytes]()
    for kind, line, at in sorted(records, key=lambda each: each[2]):
        if kind == _LOGIN or (kind == _END and line in there) or (kind == _BOOT and there):
            last = at
        if kind == _LOGIN:
            there.add(line)
        elif kind == _BOOT:
            there.clear()
        else:
            there.discard(line)
    if len(plain) < len(names) and last < 0:
        return min(at for _, _, at in records)  # what is packed may hold a login just before
    return last


def _records(path: Path) -> Iterator[tuple[int, bytes, float]]:
    """Kind, line and time of each record of a boot, a login and an end."""
    form = _SHORT if os.uname().machine in _WITH_SHORT_TIMES else _LONG
    data = read_small(path, _LARGEST_BYTES).data
    if len(data) % form.size:
        raise UnseenError(f"{path} holds {len(data)} bytes, which is no multiple of a record's {form.size}")
    for kind, line, at in form.iter_unpack(data):
        if kind in {_BOOT, _LOGIN, _END}:
            yield kind, line.rstrip(b"\0"), float(at)
