"""What a process runs: its program's file, the script that it interprets, and whether a package may have brought them.

Arguments decide, and go nowhere else.
"""

import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from gpuwatch.agent.processes import kinds
from gpuwatch.runtime.printable import legible

_MOST_BYTES = 64 * 1024
_SYSTEM_FOLDERS = ("/usr/", "/bin/", "/sbin/", "/lib", "/opt/", "/snap/", "/etc/", "/nix/")
_PACKAGES_FOLDERS = ("/usr/", "/bin/", "/sbin/", "/lib", "/snap/", "/nix/")
_AGENTS_FOLDERS = (
    "/var/lib/waagent/",
    "/var/ossec/",
    "/var/lib/rancher/",
)  # of agents that bring themselves up to date
_OPTION_WITH_VALUE = frozenset({"--init-file", "--rcfile", "-O", "+O", "-o", "+o"})
_PROGRAM_OPTIONS = frozenset({"-jar", "-cp", "-classpath", "--class-path"})  # of java


@dataclass(frozen=True, slots=True)
class Program:
    """A process's names and what its program is; see `kinds.Facts`. `executable` is the base name of its file."""

    name: str
    executable: str | None = None
    script: str | None = None
    own_script: str | None = None
    own_file: bool = False
    own_work: bool = False
    by_hand: bool = False
    of_agent: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Short name, base name of its file, and of its script."""
        scripts = () if self.script is None else (self.script,)
        return (*names_of(self.name, self.executable), *scripts)


def program_of(folder: str, name: str) -> Program:
    """What the process in that folder of /proc runs; `name` is its short name."""
    path = _file(folder)
    executable = _base(path)
    own_file = path is not None and not _of_system(path) and path.count("/") > 1  # images have theirs in the root
    names = names_of(name, executable)
    if kinds.is_interpreter(names):
        script = _script(folder)
        installed = script is not None and _of_system(script)
        base = None if script is None else legible(script.rpartition("/")[2], 64)
        # A package's daemon is a script in a folder of packages; /usr/local is the administrator's.
        packaged = installed and script is not None and not script.startswith("/usr/local/")
        own_script = None if installed else base
        by_hand = _is_by_hand(path) or _is_by_hand(script or "")
        of_agent = _is_agents(script) or (_is_agents(path) and (packaged or script is None))
        own_work = (own_file or not packaged) and not of_agent
        return Program(name, executable, base, own_script, own_file, own_work, by_hand, of_agent)
    own_work, by_hand, of_agent = own_file, _is_by_hand(path), _is_agents(path)
    if kinds.is_shell(names) or kinds.is_tool(names):
        interpreted = _interpreted_file(folder)
        of_agent = _is_agents(interpreted) or (of_agent and not _is_own(interpreted))
        own_work = own_work or _is_own(interpreted)
        by_hand = by_hand or _is_by_hand(interpreted)
    return Program(
        name, executable, own_file=own_file, own_work=own_work and not of_agent, by_hand=by_hand, of_agent=of_agent
    )


def executable(folder: str) -> str | None:
    """The base name of a process's program; None if it may not be read."""
    return _base(_file(folder))


def names_of(name: str, program: str | None) -> tuple[str, ...]:
    """The short name, and that of the program's file where it differs."""
    return (name,) if program is None or program == name else (name, program)


def runs_script(folder: str, names: tuple[str, ...], *, tty: bool) -> bool:
    """Whether a shell was given a script or a command, or `watch` does more than look."""
    if names[0] == "watch":
        return kinds.watch_works(_arguments(folder) or [])
    if not kinds.is_shell(names):
        return False
    words = _arguments(folder)
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


def _file(folder: str) -> str | None:
    """The path of its program's file; None if it may not be read."""
    try:
        return os.readlink(f"{folder}/exe").removesuffix(" (deleted)") or None  # noqa: PTH115  thousands of times
    except OSError:
        return None


def _base(path: str | None) -> str | None:
    return None if path is None else legible(path.rpartition("/")[2], 64) or None


def _of_system(path: str) -> bool:
    """Whether a package may have put a file there."""
    return path.startswith((*_SYSTEM_FOLDERS, *_AGENTS_FOLDERS))


def _arguments(folder: str) -> list[str] | None:
    """Its arguments; None without any, and if they may not be read."""
    try:
        words = read_beginning(f"{folder}/cmdline").decode("utf-8", "replace").rstrip("\0").split("\0")
    except OSError:
        return None
    return None if words == [""] else words[1:]


def _script(folder: str) -> str | None:
    """The script that an interpreter runs; None for a module, a command, or input. Services have only that name."""
    for word in _arguments(folder) or ():
        if word in {"-c", "-m", "-e"}:
            return None
        if not word.startswith("-"):
            return _from_its_folder(folder, word)
    return None


def _from_its_folder(folder: str, word: str) -> str:
    """An absolute path as it is, another one from the folder that the process works in."""
    if word.startswith("/"):
        return word
    try:
        return str(PurePosixPath(os.readlink(f"{folder}/cwd")) / word)  # noqa: PTH115  as above
    except OSError:
        return word


def _interpreted_file(folder: str) -> str:
    """The file that node, java or a shell was given; or what else comes first, a command for example."""
    rest = iter(_arguments(folder) or ())
    for word in rest:
        if word in _PROGRAM_OPTIONS:
            return next(rest, "")
        if not word.startswith(("-", "+")):
            return word
    return ""


def _is_by_hand(path: str | None) -> bool:
    """Whether no distribution's package puts a file there; a file that may not be read says nothing."""
    return path is not None and (path.startswith("/usr/local/") or not path.startswith(_PACKAGES_FOLDERS))


def _is_agents(path: str | None) -> bool:
    """Whether a file is one of an agent's, of a cloud or a vendor."""
    return path is not None and kinds.is_agents_file(path)


def _is_own(word: str) -> bool:
    return word.startswith("/") and (word.startswith("/usr/local/") or not _of_system(word))
