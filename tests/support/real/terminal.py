"""A terminal for tests: a program runs in it, sees its size and keys, and what it shows can be read."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tests.support.paths import ROOT
from tests.support.real.agents import eventually

_HOME = "\x1b[H"
_CONTROL = re.compile(r"\x1b(?:\[[0-9;?]*[a-zA-Z]|\][^\x07]*\x07)")
ALTERNATE, USUAL, SHOWN = "\x1b[?1049h", "\x1b[?1049l", "\x1b[?25h"


class Terminal:
    """One program in a terminal of its own; use it in a `with`."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], *, width: int = 80, height: int = 24
    ) -> None:
        """Start the program, as the leader of the terminal's session."""
        self._master, self._slave = pty.openpty()
        self._name = os.ttyname(self._slave)
        self._size(width, height)
        self.modes_before = self.modes()
        self._heard = bytearray()
        self.process = subprocess.Popen(
            ["setsid", "--ctty", "env", "--default-signal", *command],  # as a login shell starts it
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            env={**environment, "TERM": "xterm-256color"},
            cwd=ROOT,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        """As it is."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it, whatever it takes."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait(10)
        os.close(self._slave)
        self._reader.join(10)
        os.close(self._master)

    @property
    def all(self) -> str:
        """Everything that was written, with its control sequences."""
        return bytes(self._heard).decode("utf-8", "replace")

    @property
    def screen(self) -> str:
        """The last whole picture, without colours; the newest one may have come in part."""
        pictures = self.all.split(_HOME)[1:-1]
        return _CONTROL.sub("", pictures[-1]).replace("\r", "") if pictures else ""

    @property
    def lines(self) -> list[str]:
        """Its lines."""
        return [line.rstrip() for line in self.screen.split("\n")]

    def shows(self, words: str) -> None:
        """Wait until the last picture has these words."""
        eventually(lambda: words in self.screen or self.process.poll() is not None, lambda: self.screen)
        assert words in self.screen, f"it ended: {self.all}"

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._master, keys.encode())

    def resize(self, width: int, height: int) -> None:
        """The window gets another size; the kernel tells the program."""
        self._size(width, height)

    def ended(self) -> int:
        """Its exit status, once it has ended."""
        status = self.process.wait(120)
        os.close(self._slave)
        self._reader.join(60)
        self._slave = os.open(self._name, os.O_RDWR | os.O_NOCTTY)  # the other one was hung up
        return status

    def modes(self) -> list[Any]:
        """The terminal's modes: echo, whole lines, signals."""
        return termios.tcgetattr(self._slave)

    def stopped(self) -> bool:
        """Whether it sleeps after Ctrl-Z."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii", errors="replace")
        return stat.rpartition(")")[2].split()[0] == "T"

    def _size(self, width: int, height: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._master, 65536)
            except OSError:  # nobody has the other end open
                return
            if not data:
                return
            self._heard += data
