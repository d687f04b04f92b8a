"""Commands of crontabs and units that only keep a machine tidy: nobody loses anything if a night is left out.

An agent of a cloud or a vendor is one of them. A command that does anything else besides (a second command, a pipe, a
substitution) is not. Nor is a program of somebody's own with such a name: it counts without a folder, or in one of the
machine's programs. What a timer, path or socket unit starts is judged by its service's commands: nobody loses anything
by Certbot's timer, a `docker system prune` each night, or an agent that brings itself up to date.
"""

import re
from pathlib import Path

from gpuwatch.agent.evidence.base import UnseenError
from gpuwatch.agent.evidence.files import read_small
from gpuwatch.agent.processes.kinds import is_agents_file

_SILENCED = re.compile(r"\s*(?:[12&]?>>?\s*(?:/dev/null|/var/log/\S+|&[12])|2>&1)")
_OPERATORS = re.compile(r"[;|&$`()<>\n]")
# Of Debian's cron and of Alpine's.
_FOLDERS = (
    *("cron.hourly", "cron.daily", "cron.weekly", "cron.monthly"),
    *("periodic/15min", "periodic/hourly", "periodic/daily", "periodic/weekly", "periodic/monthly"),
)
_CLEANS = frozenset({"update", "upgrade", "check-update", "makecache", "autoremove", "autoclean", "clean"})
# By program: words of which one must be there; none: whatever it is asked.
_TIDIES: dict[str, frozenset[str]] = {
    "logrotate": frozenset(),
    "savelog": frozenset(),
    "tmpreaper": frozenset(),
    "tmpwatch": frozenset(),
    "rm": frozenset(),
    "fstrim": frozenset(),
    "updatedb": frozenset(),
    "freshclam": frozenset(),
    "ntpdate": frozenset(),
    "run-parts": frozenset(f"/etc/{folder}" for folder in _FOLDERS),
    "find": frozenset({"-delete"}),
    "acme.sh": frozenset({"--cron"}),
    **dict.fromkeys(("aide", "chkrootkit", "clamscan", "etckeeper", "lynis", "mandb", "rkhunter"), frozenset[str]()),
    **dict.fromkeys(("debian-sa1", "hwclock", "reboot", "sa1", "sa2", "sync"), frozenset[str]()),
}
# By program: the commands that tidy, each in the place of the first words that are no options.
_COMMANDS: dict[str, frozenset[str]] = {
    "certbot": frozenset({"renew"}),
    **dict.fromkeys(("apt-get", "apt", "yum", "dnf"), _CLEANS),
    "snap": frozenset({"refresh"}),
    "docker": frozenset(f"{what} prune" for what in ("system", "container", "image", "volume", "network")),
    "podman": frozenset(f"{what} prune" for what in ("system", "container", "image", "volume", "network", "pod")),
}
_COMMANDS["docker"] |= {"builder prune", "buildx prune"}
_OF_THE_MACHINE = frozenset(
    ("", *(f"{root}/{folder}/" for root in ("", "/usr", "/usr/local") for folder in ("bin", "sbin")), "/snap/bin/")
)
_OF_PACKAGES = ("/usr/lib/", "/usr/lib64/", "/usr/libexec/", "/usr/share/")
_IN_A_HOME = frozenset({"acme.sh"})  # it installs itself there
_RUNS_OTHERS = ("-exec", "-execdir", "-ok", "-okdir", "--deploy-hook", "--post-hook", "--renew-hook", "--pre-hook")
_COMMAND = re.compile(r"^\s*Exec\w+\s*=[ \t]*[-@:+!|]*[ \t]*(\S.*)$", re.MULTILINE)
_STARTS = re.compile(r"^\s*(?:Unit|Service)\s*=[ \t]*([^\s/]+)[ \t]*$", re.MULTILINE)
_SHELL = re.compile(r"(?:/usr)?/bin/(?:ba|da)?sh -c (['\"])([^'\"\\]*)\1")


def tidies(command: str) -> bool:
    """Whether a crontab's command only keeps the machine tidy. What it prints may go to a log."""
    plain = _SILENCED.sub("", command).strip().removesuffix("&").rstrip()
    if not plain or _OPERATORS.search(plain):
        return False
    path, *words = plain.split()
    if is_agents_file(path):
        return True
    folder, slash, program = path.rpartition("/")
    of_the_machine = folder + slash in _OF_THE_MACHINE or path.startswith(_OF_PACKAGES) or program in _IN_A_HOME
    if not of_the_machine or any(word.startswith(_RUNS_OTHERS) for word in words):
        return False
    if (commands := _COMMANDS.get(program)) is not None:
        return _command_in(words, commands)
    wanted = _TIDIES.get(program)
    return wanted is not None and (not wanted or not wanted.isdisjoint(words))


def _command_in(words: list[str], commands: frozenset[str]) -> bool:
    """Whether one of them comes first; an option before it may take one word as its value."""
    first = 0
    while first < len(words):
        if any(words[first : first + len(each.split())] == each.split() for each in commands):
            return True
        if not words[first].startswith("-") and (first == 0 or not words[first - 1].startswith("-")):
            return False
        first += 1
    return False


def of_the_machine(unit: Path) -> bool:
    """Whether what that timer, path or socket unit starts is no loss; its service's file lies next to it.

    A file that cannot be read, drop-ins and a service without a command say nothing.
    """
    try:
        named = _STARTS.findall(read_small(unit).text)
        service = unit.with_name(named[-1] if named else f"{unit.name.rpartition('.')[0]}.service")
        if any(each.with_name(f"{each.name}.d").exists() for each in (unit, service)):
            return False
        text = read_small(service).text.replace("\\\n", " ")
    except (OSError, UnseenError):
        return False
    commands = [found[1].strip() for found in _COMMAND.finditer(text)]
    return bool(commands) and all(map(_is_no_loss, commands))


def _is_no_loss(command: str) -> bool:
    in_shell = _SHELL.fullmatch(command)
    return tidies(in_shell[2] if in_shell else command)
