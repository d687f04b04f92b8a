"""What may happen to the file of a ledger, and to what lies beside it."""

import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

from gpuwatch.ledger import Ledger
from gpuwatch.ledger.tables import RECORDS

NAMES = ("ledger.db", "ledger.db-wal", "ledger.db-shm", "ledger.db.lock", "ledger.db.id")


def beside(path: Path, ending: str) -> Path:
    """The file of that ending."""
    return path.with_name(path.name + ending)


def remove(path: Path) -> None:
    """The file alone."""
    path.unlink()


def remove_all(path: Path) -> None:
    """With all that lies beside it."""
    for each in path.parent.iterdir():
        each.unlink()


def replace_by_a_new_one(path: Path) -> None:
    """Another, empty ledger is moved into its place."""
    for name in NAMES:
        if name != "ledger.db.lock":
            path.with_name(name).unlink(missing_ok=True)
    other = path.with_name("other.db")
    Ledger.open(other).close()
    other.rename(path)


def replace_by_a_copy_of_itself(path: Path) -> None:
    """The same bytes in another file."""
    for ending in [each for each in ("", "-wal", "-shm") if beside(path, each).exists()]:
        copy = beside(path, ending + ".copy")
        shutil.copy(beside(path, ending), copy)
        copy.rename(beside(path, ending))


def replace_by_a_backup(path: Path) -> None:
    """A whole copy, made by SQLite's own backup."""
    backup = path.with_name("backup.db")
    source, target = sqlite3.connect(path), sqlite3.connect(backup)
    source.backup(target)
    source.close()
    target.close()
    backup.rename(path)


def remove_the_wal(path: Path) -> None:
    """What was committed last goes with it."""
    beside(path, "-wal").unlink()


def replace_the_wal(path: Path) -> None:
    """By an empty one."""
    beside(path, "-wal").unlink()
    beside(path, "-wal").touch()


def remove_the_shared_memory(path: Path) -> None:
    """Others then take locks that the controller does not see."""
    beside(path, "-shm").unlink()


def empty(path: Path) -> None:
    """It is still there."""
    os.truncate(path, 0)


def truncate(path: Path) -> None:
    """Its first page is still there."""
    os.truncate(path, 4096)


def zero_its_pages(path: Path) -> None:
    """As a damaged disk gives them back."""
    size = path.stat().st_size
    path.write_bytes(bytes(size))
    os.truncate(beside(path, "-wal"), 0)


def put_a_link_in_its_place(path: Path) -> None:
    """To the very same file: others then have another -wal than the controller."""
    elsewhere = path.parent.parent / "moved.db"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def move_the_folder(path: Path) -> None:
    """With all of it."""
    path.parent.rename(path.parent.with_name("moved"))


def move_the_folder_and_make_a_new_one(path: Path) -> None:
    """As an administrator who clears up."""
    move_the_folder(path)
    path.parent.mkdir()


def make_read_only(path: Path) -> None:
    """For root as well."""
    path.chmod(0o444)


def cut_the_chain(path: Path) -> None:
    """As a restore into the same file does."""
    db = sqlite3.connect(path)
    for table in ("chain", *(each.name for each in RECORDS.values())):
        db.execute(f"DELETE FROM {table} WHERE id > 1")  # noqa: S608  fixed names
    for table in ("open_intents", "notices", "stopped", "pauses", "wishes"):
        db.execute(f"DELETE FROM {table}")  # noqa: S608  likewise
    db.execute("DELETE FROM bodies WHERE round_id > 1")
    db.execute("UPDATE head SET links = 1, hash = (SELECT hash FROM chain)")
    db.commit()
    db.close()


def write_another_id(path: Path) -> None:
    """Another ledger is restored into the same file."""
    db = sqlite3.connect(path)
    db.execute("UPDATE meta SET value = 'other' WHERE name = 'ledger_id'")
    db.commit()
    db.close()


SPOILS: list[Callable[[Path], None]] = [
    *(remove, remove_all, replace_by_a_new_one, replace_by_a_copy_of_itself, replace_by_a_backup, remove_the_wal),
    *(replace_the_wal, remove_the_shared_memory, empty, truncate, zero_its_pages, put_a_link_in_its_place),
    *(move_the_folder, move_the_folder_and_make_a_new_one, make_read_only, cut_the_chain, write_another_id),
]
