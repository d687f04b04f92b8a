"""The program that opens closed files for the agent: it answers one question, with a descriptor, and knows no other.

1. It may read every file (CAP_DAC_READ_SEARCH), opens what is on the list of `closed_paths.py`, and does nothing else.
2. It hears from the agent first which folders an administrator has named, and then forks: at the first question, and
   whenever what worked has ended. The one that waits does nothing; both end with the agent.
3. It loads as little as can be, for it stays as long as the agent does: no typing, no pathlib, no dataclasses.
"""

import errno
import os
import select
import signal
import socket

from gpuwatch.agent import capabilities
from gpuwatch.agent.closed_paths import open_closed

COMMAND = "import sys; sys.path.insert(0, sys.argv[1]); from gpuwatch.agent.closed_server import main; main()"
ALSO = b"also"  # begins the word that names folders
_LINE = 3  # the descriptor that it is started with
_COMM = b"gpuwatch-reader"
_LONGEST_BYTES = 1 << 16
_OPENS_SECONDS = 4  # then the one that works ends: a home on a dead server must not keep others from being read
_RESTS_SECONDS = 1.0
_PARTS = 3  # of a question: its number, what kind of thing it is about, and the path
_AT_END, _BROKEN = 0, 1


def main() -> None:
    """Hear what may be read, then fork for each piece of work, until the agent has gone."""
    line = socket.socket(fileno=_LINE)
    os.setsid()
    for act in (_give_up_others, _call_itself):
        try:  # noqa: SIM105  contextlib is half a megabyte
            act()
        except OSError:
            pass
    first = line.recv(_LONGEST_BYTES)
    folders = [os.fsdecode(each) for each in first.split(b"\0")[1:]]
    while first.startswith(ALSO):
        select.select([line], [], [])
        pid = os.fork()
        if pid == 0:
            _work(line, folders)
        if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == _AT_END:
            break
        select.select([], [], [], _RESTS_SECONDS)


def _give_up_others() -> None:
    capabilities.clear_ambient()
    capabilities.keep_only({capabilities.DAC_READ_SEARCH})


def _call_itself() -> None:
    """Under its own name in ps and top."""
    with open("/proc/self/comm", "wb") as name:  # noqa: PTH123  pathlib is a megabyte
        name.write(_COMM)


def _work(line: socket.socket, folders: list[str]) -> None:
    """Answer until the agent has gone; whatever goes wrong ends this process alone."""
    status = _BROKEN
    try:
        _refuse_network()
        while data := line.recv(_LONGEST_BYTES):
            parts = data.split(b"\0")
            if len(parts) == _PARTS and parts[0].isdigit():  # a later word on folders is none
                _answer(line, parts, folders)
        status = _AT_END
    finally:
        os._exit(status)


def _refuse_network() -> None:
    try:  # noqa: SIM105  as above
        capabilities.refuse_network()
    except OSError:
        pass


def _answer(line: socket.socket, parts: list[bytes], folders: list[str]) -> None:
    number, kind, path = parts[0], parts[1].decode(), os.fsdecode(parts[2])
    signal.alarm(_OPENS_SECONDS)
    try:
        opened = open_closed(path, kind, folders)
    except (OSError, KeyError) as error:
        failed = error.errno if isinstance(error, OSError) else errno.EINVAL
        line.send(b"%s\0%d" % (number, failed or errno.EIO))
        return
    finally:
        signal.alarm(0)
    try:
        socket.send_fds(line, [b"%s\0%d" % (number, 0)], [opened])
    finally:
        os.close(opened)
