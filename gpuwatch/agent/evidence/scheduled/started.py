"""What a timer, path or socket unit starts: whether its commands only keep the machine tidy, or are a vendor's agent.

Certbot's timer, a `docker system prune` each night, an agent that brings itself up to date: nobody loses anything.
"""

import re
from pathlib import Path

from gpuwatch.agent.evidence.base import UnseenError
from gpuwatch.agent.evidence.files import read_small
from gpuwatch.agent.evidence.scheduled.housekeeping import tidies

_COMMAND = re.compile(r"^\s*Exec\w+\s*=[ \t]*[-@:+!|]*[ \t]*(\S.*)$", re.MULTILINE)
_STARTS = re.compile(r"^\s*(?:Unit|Service)\s*=[ \t]*([^\s/]+)[ \t]*$", re.MULTILINE)
_SHELL = re.compile(r"(?:/usr)?/bin/(?:ba|da)?sh -c (['\"])([^'\"\\]*)\1")


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
