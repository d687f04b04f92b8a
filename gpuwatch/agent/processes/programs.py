"""What a process runs: its program's file, the script that it interprets, and whether a package may have brought them.

Arguments decide, and go nowhere else. Where the kernel does not show the file, the process itself says what it runs,
and anybody may say anything: that proves that a program is somebody's own, and the contrary only where the unit's file
says the same.
"""

import os
import re
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from gpuwatch.agent.closed_reader import look_into
from gpuwatch.agent.processes import kinds, strangers
from gpuwatch.agent.processes.packages import Owner, OwnerOf, owner_not_known
from gpuwatch.runtime.printable import legible

_MOST_BYTES = 64 * 1024
_SYSTEM_FOLDERS = ("/usr/", "/bin/", "/sbin/", "/lib", "/opt/", "/snap/", "/etc/", "/nix/")
_PACKAGES_FOLDERS = ("/usr/", "/bin/", "/sbin/", "/lib", "/snap/", "/nix/")
_AGENTS_FOLDERS = (
    "/var/lib/waagent/",
    "/var/ossec/",
    "/var/lib/rancher/",
)  # of agents that bring themselves up to date
_SHORT_NAME = 15
_SPACE = re.compile(r"\s")
_INTERPRETED_WITHIN = 4  # words: /usr/bin/python3 -u -E /usr/sbin/waagent
_OPTION_WITH_VALUE = frozenset({"--init-file", "--rcfile", "-O", "+O", "-o", "+o"})
_PROGRAM_OPTIONS = frozenset({"-jar", "-cp", "-classpath", "--class-path"})  # of java


class Program(NamedTuple):  # thousands are made in a look
    """A process's names and what its program is; see `kinds.Facts`. `executable` is the base name of its file.

    `path` is its file, or the file that it interprets; None: neither is known for certain.
    """

    name: str
    executable: str | None = None
    script: str | None = None
    own_script: str | None = None
    own_file: bool = False
    own_work: bool = False
    by_hand: bool = False
    of_agent: bool = False
    of_nobody: bool = False
    unproven: bool = False
    path: str | None = None
    strange: str | None = None
    runs_script: bool = False  # a shell with a script or a command; a `watch` that does more than look

    @property
    def names(self) -> tuple[str, ...]:
        """Short name, base name of its file, and of its script."""
        scripts = () if self.script is None else (self.script,)
        return (*names_of(self.name, self.executable), *scripts)


class _Command:
    """What a process says that it runs, and its arguments: read once, and only where they matter."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._words: list[str] | None = None

    @property
    def words(self) -> list[str]:
        """One empty word if it says nothing, or that may not be read."""
        if self._words is None:
            try:
                said = read_beginning(f"{self.folder}/cmdline").decode("utf-8", "replace")
            except OSError:
                said = ""
            self._words = said.rstrip("\0").split("\0")
        return self._words

    @property
    def arguments(self) -> list[str] | None:
        """None without any, and if they may not be read."""
        return None if self.words == [""] else self.words[1:]


def program_of(
    folder: str, name: str, starts: tuple[str, ...] = (), owner_of: OwnerOf = owner_not_known, *, tty: bool = False
) -> Program:
    """What the process in that folder of /proc runs; `name` is its short name.

    `starts` are the programs that the file of its unit starts, and what of their arguments is a path. `owner_of`
    finds the owner of a file. `tty` is whether it has a terminal.
    """
    command = _Command(folder)
    path, unproven = _file(command, name, starts)
    executable = _base(path)
    if unproven and executable is not None and not kinds.protects((executable,)):
        executable = None
    owner = Owner.UNKNOWN if path is None or unproven else owner_of(path)
    of_nobody = owner is Owner.NOBODY
    # Images have theirs in the root.
    foreign = path is not None and not _of_system(path) and (path.count("/") > 1 or not path.startswith("/"))
    own_file = foreign or of_nobody
    of_agents_file = _is_agents(path) and (not unproven or any(map(_is_agents, starts)))
    own_work, by_hand, of_agent = own_file or unproven, unproven or _is_by_hand(path, owner), of_agents_file
    names, script, own_script = names_of(name, executable), None, None
    certain = path
    if kinds.is_interpreter(names):
        believed = not unproven or kinds.is_interpreter((name,))
        file = certain = _script(command)
        base = None if file is None else legible(file.rpartition("/")[2], 64)
        its_owner = _owner_of_script(file, owner_of)
        # A package's daemon is a script in a folder of packages; /usr/local is the administrator's.
        theirs = file is not None and _of_system(file) and its_owner is not Owner.NOBODY
        packaged = theirs and not (file or "").startswith("/usr/local/")
        script = base if believed else None
        own_script = None if theirs else base
        by_hand = by_hand or _is_by_hand(file or "", its_owner)
        of_agent = (believed and _is_agents(file)) or (of_agents_file and (packaged or file is None))
        own_work = own_work or not packaged
        of_nobody = of_nobody or its_owner is Owner.NOBODY
    elif kinds.is_shell(names) or kinds.is_tool(names):
        believed = not unproven or kinds.is_shell((name,)) or kinds.is_tool((name,))
        interpreted = certain = _interpreted_file(command)
        its_owner = _owner_of_script(interpreted, owner_of)
        of_agent = (believed and _is_agents(interpreted)) or (of_agent and not _is_own(interpreted))
        own_work = own_work or _is_own(interpreted) or its_owner is Owner.NOBODY
        by_hand = by_hand or _is_by_hand(interpreted, its_owner)
        of_nobody = of_nobody or its_owner is Owner.NOBODY
    return Program(
        name,
        executable,
        script,
        own_script,
        own_file=own_file,
        own_work=own_work and not of_agent,
        by_hand=by_hand,
        of_agent=of_agent,
        of_nobody=of_nobody and not of_agent,
        unproven=unproven,
        path=certain if certain and certain.startswith("/") and not (unproven or _SPACE.search(certain)) else None,
        strange=strangers.mark_of(path, name, *(command.words[:1] if foreign or unproven else ())),
        runs_script=_runs_script(command, (name, executable or name), tty=tty),
    )


def executable(folder: str) -> str | None:
    """The base name of a process's program; None if it may not be read. It asks nobody, and so never waits."""
    try:
        return _base(os.readlink(f"{folder}/exe").removesuffix(" (deleted)"))  # noqa: PTH115  as below
    except OSError:
        return None


def names_of(name: str, program: str | None) -> tuple[str, ...]:
    """The short name, and that of the program's file where it differs."""
    return (name,) if program is None or program == name else (name, program)


def _runs_script(command: _Command, names: tuple[str, ...], *, tty: bool) -> bool:
    """Whether a shell was given a script or a command, or `watch` does more than look."""
    if names[0] == "watch":
        return kinds.watch_works(command.arguments or [])
    if not kinds.is_shell(names):
        return False
    words = command.arguments
    if words is None:
        return not tty
    rest = iter(words)
    for word in rest:
        if word in _OPTION_WITH_VALUE:
            next(rest, None)
        elif word.startswith("--") or word in {"-", "+"}:
            continue
        elif word.startswith(("-", "+")):
            if "c" in word:
                return True
        else:
            return True
    return False


def read_beginning(path: str | Path) -> bytes:
    """The beginning of a file, which is small.

    Raises:
        OSError: it cannot be read.

    """
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(opened, _MOST_BYTES)
    finally:
        os.close(opened)


def _file(command: _Command, name: str, starts: tuple[str, ...]) -> tuple[str | None, bool]:
    """The path of its program's file; and whether nobody but the process says so, or what it says is no path."""
    try:
        return _linked_file(command.folder), False
    except PermissionError:
        words = command.words
    said = words[0]
    if said and any(word in starts for word in words[:_INTERPRETED_WITHIN]):
        return said, False  # it, or the script that it interprets, is what the unit starts
    if said.startswith("/") and said.count("/") == 1:
        return said, False  # in the root of an image, where people have no folder: /pause
    if "/" in said.partition(" ")[0]:
        return said, True
    started = next((path for path in starts if path.rpartition("/")[2][:_SHORT_NAME] == name), None)
    return started, started is None  # by PATH, or a title that it has given itself


def _linked_file(folder: str) -> str | None:
    """The path of its program's file, as the kernel shows it; None: there is no file.

    Raises:
        PermissionError: it may not be read.

    """
    try:
        return _target(f"{folder}/exe").removesuffix(" (deleted)") or None
    except PermissionError:
        raise
    except OSError:
        return None


def _target(link: str) -> str:
    """Where a process's link leads to.

    Raises:
        PermissionError: that may not be read.
        OSError: there is no such link.

    """
    try:
        return os.readlink(link)  # noqa: PTH115  thousands of times
    except PermissionError:
        return os.fsdecode(look_into(link))


def _base(path: str | None) -> str | None:
    return None if path is None else legible(path.rpartition("/")[2], 64) or None


def _of_system(path: str) -> bool:
    """Whether a package may have put a file there."""
    return path.startswith((*_SYSTEM_FOLDERS, *_AGENTS_FOLDERS))


def _script(command: _Command) -> str | None:
    """The script that an interpreter runs; None for a module, a command, or input. Services have only that name."""
    for word in command.arguments or ():
        if word in {"-c", "-m", "-e"}:
            return None
        if not word.startswith("-"):
            return _from_its_folder(command.folder, word)
    return None


def _from_its_folder(folder: str, word: str) -> str:
    """An absolute path as it is, another one from the folder that the process works in."""
    if word.startswith("/"):
        return word
    try:
        return str(PurePosixPath(_target(f"{folder}/cwd")) / word)
    except OSError:
        return word


def _interpreted_file(command: _Command) -> str:
    """The file that node, java or a shell was given; or what else comes first, a command for example."""
    rest = iter(command.arguments or ())
    for word in rest:
        if word in _PROGRAM_OPTIONS:
            return next(rest, "")
        if not word.startswith(("-", "+")):
            return word
    return ""


def _owner_of_script(word: str | None, owner_of: OwnerOf) -> Owner:
    """Of what an interpreter or a shell was given, if that is a file's path."""
    return owner_of(word) if word is not None and word.startswith("/") and " " not in word else Owner.UNKNOWN


def _is_by_hand(path: str | None, owner: Owner) -> bool:
    """Whether no distribution's package brought a file, by its folder where no database says so.

    A file that may not be read says nothing.
    """
    if path is None or owner is Owner.DISTRIBUTION:
        return False
    return owner is not Owner.UNKNOWN or path.startswith("/usr/local/") or not path.startswith(_PACKAGES_FOLDERS)


def _is_agents(path: str | None) -> bool:
    """Whether a file is one of an agent's, of a cloud or a vendor."""
    return path is not None and kinds.is_agents_file(path)


def _is_own(word: str) -> bool:
    return word.startswith("/") and (word.startswith("/usr/local/") or not _of_system(word))
