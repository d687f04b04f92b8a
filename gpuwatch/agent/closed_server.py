"""The program that opens closed files and looks into processes for the agent: it knows two questions, and no other.

1. One of its parts may read every file (CAP_DAC_READ_SEARCH), opens what is on the list of `closed_paths.py`, and
   answers with a descriptor, or with the modes of a terminal. Another may also look into every process (CAP_SYS_PTRACE;
   that alone does not open a file of mode 0400, as `io` is). It answers with three links of a process, with what that
   has read and written, or with the function of the kernel that it waits in: no memory, no environment, no descriptor.
   It can write nothing, anywhere.
2. It hears from the agent first which folders an administrator has named, and then forks: at the first question, and
   whenever what worked has ended. The one that waits does nothing; all end with the agent.
3. It loads as little as can be, for it stays as long as the agent does: no typing, no pathlib, no dataclasses.
"""

import errno
import os
import re
import select
import signal
import socket
import sys

from gpuwatch.agent import capabilities
from gpuwatch.agent.capabilities import DAC_READ_SEARCH, SYS_PTRACE
from gpuwatch.agent.closed_paths import TERMINAL, closed_terminal_modes, open_closed

COMMAND = "import sys; sys.path.insert(0, sys.argv[1]); from gpuwatch.agent.closed_server import main; main()"
ALSO = b"also"  # begins the word that names folders
LINE = 3  # the first descriptor that it is started with: a line for each right that its arguments name
LOOKS = re.compile(rb"/proc/(\d{1,10})/(exe|cwd|root|io|wchan)")
_COMM = b"gpuwatch-reader"
_LONGEST_BYTES = 1 << 16
_LONGEST_IO_BYTES = 4096
_ANSWERS_SECONDS = 4  # then the one that works ends: a home on a dead server must not keep others from being read
_RESTS_SECONDS = 1.0
_PARTS = 3  # of a question: its number, what kind of thing it is about, and the path
_AT_END, _BROKEN = 0, 1


def main() -> None:
    """Hear what may be read, then fork for each kind of work, until the agent has gone."""
    rights = [int(each) for each in sys.argv[2:]]
    lines = {right: socket.socket(fileno=LINE + at) for at, right in enumerate(rights)}
    os.setsid()
    for act in (capabilities.clear_ambient, lambda: capabilities.keep_only(rights), _call_itself):
        try:  # noqa: SIM105  contextlib is half a megabyte
            act()
        except OSError:
            pass
    first = lines[rights[0]].recv(_LONGEST_BYTES)
    if not first.startswith(ALSO):
        return
    folders = [os.fsdecode(each) for each in first.split(b"\0")[1:]]
    select.select(list(lines.values()), [], [])
    at_work: dict[int, int] = {}  # rights by pid
    while True:
        for right in lines.keys() - at_work.values():
            pid = os.fork()
            if pid == 0:
                _work(right, lines, folders)
            at_work[pid] = right
        pid, status = os.wait()
        at_work.pop(pid, None)
        if os.waitstatus_to_exitcode(status) == _AT_END:
            return
        select.select([], [], [], _RESTS_SECONDS)


def _call_itself() -> None:
    """Under its own name in ps and top."""
    with open("/proc/self/comm", "wb") as name:  # noqa: PTH123  pathlib is a megabyte
        name.write(_COMM)


def _work(right: int, lines: "dict[int, socket.socket]", folders: list[str]) -> None:
    """Answer until the agent has gone; whatever goes wrong ends this process alone."""
    status = _BROKEN
    try:
        for other in lines.keys() - {right}:
            lines[other].close()
        bound, line = _bind_itself(right), lines[right]
        while data := line.recv(_LONGEST_BYTES):
            parts = data.split(b"\0")
            if len(parts) == _PARTS and parts[0].isdigit():  # a later word on folders is none
                signal.alarm(_ANSWERS_SECONDS)
                if right == DAC_READ_SEARCH:
                    _answer(line, parts, folders)
                else:
                    _answer_look(line, parts, bound=bound)
                signal.alarm(0)
        status = _AT_END
    finally:
        os._exit(status)


def _bind_itself(right: int) -> bool:
    """Give up what this work does not need: a right, where the unit lets that be given up, and calls."""
    try:  # noqa: SIM105  as above
        capabilities.keep_only({right, DAC_READ_SEARCH})
    except OSError:
        pass
    try:
        capabilities.refuse_network(writing=right == SYS_PTRACE)
    except OSError:
        return False
    return True


def _answer(line: "socket.socket", parts: list[bytes], folders: list[str]) -> None:
    number, kind, path = parts[0], parts[1].decode(), os.fsdecode(parts[2])
    try:
        if kind == TERMINAL:
            line.send(b"%s\0%d\0%d" % (number, 0, closed_terminal_modes(path)))
            return
        opened = open_closed(path, kind, folders)
    except (OSError, KeyError) as error:
        failed = error.errno if isinstance(error, OSError) else errno.EINVAL
        line.send(b"%s\0%d" % (number, failed or errno.EIO))
        return
    try:
        socket.send_fds(line, [b"%s\0%d" % (number, 0)], [opened])
    finally:
        os.close(opened)


def _answer_look(line: "socket.socket", parts: list[bytes], *, bound: bool) -> None:
    """Nothing unless it is bound: it could write into others' memory."""
    number, _, path = parts
    found = LOOKS.fullmatch(path)
    try:
        if found is None or not bound:
            raise PermissionError(errno.EACCES, "nothing that is answered")
        said = _text(path) if found[2] in {b"io", b"wchan"} else os.readlink(path)  # noqa: PTH115  as above
    except OSError as error:
        line.send(b"%s\0%d\0" % (number, error.errno or errno.EIO))
        return
    line.send(b"%s\0%d\0%s" % (number, 0, said))


def _text(path: bytes) -> bytes:
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(opened, _LONGEST_IO_BYTES)
    finally:
        os.close(opened)
