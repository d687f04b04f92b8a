"""The owners of files, by this host's databases of packages: a program that reads them, answers, and ends.

A database holds some ten megabytes of names. So the agent, which stays for weeks, starts this program with the few
paths that it asks about, and keeps the answers (`packages.py`).
"""

import os
import sys

from gpuwatch.agent.processes.dpkg_database import DISTRIBUTION, NOBODY, UNKNOWN, VENDOR, DpkgDatabase

TYPE_CHECKING = False
if TYPE_CHECKING:  # as in dpkg_database
    from collections.abc import Sequence

    from gpuwatch.agent.processes.rpm_database import RpmDatabase


def find_owners(root: str, paths: "Sequence[str]") -> list[str]:
    """The owner of each of these files of a host; `root` is where its files lie.

    Only a database by which the system itself was installed proves that a file is nobody's. Another one's package (of
    rpm on Debian) is not the distribution's.
    """
    dpkg, rpm = _dpkg(root), _rpm(root)
    found = dict.fromkeys(paths, UNKNOWN)
    whole = [each for each in (dpkg, rpm) if each is not None and each.of_this_host]
    if not whole:
        return list(found.values())
    proves = all(each.is_whole for each in whole if each is rpm)
    for database in (each for each in (dpkg, rpm) if each is not None):
        try:
            its = database.owners(paths)
        except OSError:
            proves = False
            continue
        if database not in whole:
            its = {path: VENDOR if owner == DISTRIBUTION else owner for path, owner in its.items()}
        found |= {path: owner for path, owner in its.items() if found[path] != DISTRIBUTION}
    return [NOBODY if owner == UNKNOWN and proves else owner for owner in found.values()]


def _dpkg(root: str) -> DpkgDatabase | None:
    try:
        return DpkgDatabase(root)
    except OSError:
        return None


def _rpm(root: str) -> "RpmDatabase | None":
    try:
        from gpuwatch.agent.processes.rpm_database import RpmDatabase  # noqa: PLC0415  an interpreter may lack SQLite

        return RpmDatabase(root)
    except (OSError, ImportError):
        return None


def main() -> None:
    """Answer what standard input asks: paths that end with a zero; a line names the owner."""
    asked = [os.fsdecode(each) for each in sys.stdin.buffer.read().split(b"\0") if each]
    sys.stdout.write("".join(f"{each}\n" for each in find_owners(sys.argv[2], asked)))
