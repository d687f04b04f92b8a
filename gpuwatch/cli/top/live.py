"""The live view: a thread fetches pages, this one draws, and hears keys, signals and new sizes.

The terminal is as it was before on any end: a key, a signal, an error, a stop by Ctrl-Z.
"""

import os
import select
import signal
import socket
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from rich.console import Console, ConsoleDimensions, Group
from rich.control import Control
from rich.screen import Screen

from gpuwatch.cli.top.past import Past
from gpuwatch.cli.top.screen import Look, Order, nothing, screen
from gpuwatch.cli.top.source import NoAgentError, RefusedError, Source
from gpuwatch.model.host_page import HostPage
from gpuwatch.runtime.clock import Clock

_QUIT = frozenset("qQ\x03\x04")
_ENDS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_HEARD = (*_ENDS, signal.SIGWINCH, signal.SIGTSTP)
_BY_SIGNAL = 128
_SOON_SECONDS = 0.25  # to the next look while there is nothing to see
_FIRST_WORDS = "reading the GPUs …"


class Feed:
    """Fetches a page at each interval, in a thread of its own: an agent that hangs holds up no key."""

    def __init__(self, source: Source, interval_seconds: float, tell: socket.socket) -> None:
        """`tell` gets a byte whenever there is something new."""
        self._source = source
        self._interval = interval_seconds
        self._tell = tell
        self._stopping = threading.Event()
        self.page: HostPage | None = None
        self.past = Past()
        self.failure = ""
        self.crash: Exception | None = None  # a flaw of ours, which ends the view

    @property
    def begun(self) -> bool:
        """Whether there is a page that is about something: before the first cycle there is nothing to show."""
        return self.page is not None and self.page.verdict.tally is not None

    def start(self) -> None:
        """Begin; the thread ends with this process."""
        threading.Thread(target=self._run, name="top", daemon=True).start()

    def stop(self) -> None:
        """Stop fetching pages for good."""
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._fetch()
            self._stopping.wait(self._interval if self.begun else min(self._interval, _SOON_SECONDS))

    def _fetch(self) -> None:
        try:
            self.page, self.failure = self._source.page(), ""
            self.past.note(self.page)
        except (NoAgentError, RefusedError) as error:
            self.failure = str(error)
        except Exception as error:  # noqa: BLE001  shown by the main thread once the terminal is as it was
            self.crash = error
            self._stopping.set()
        with suppress(OSError):
            self._tell.send(b"\0")


class Terminal:
    """Standard input and output as a screen of its own; signals arrive as bytes."""

    def __init__(self, console: Console) -> None:
        """Nothing is changed before `entered`."""
        self.console = console
        self._in, self._out = sys.stdin.fileno(), console.file.fileno()
        self.heard, self.tell = socket.socketpair()
        self.tell.setblocking(False)  # noqa: FBT003  the socket's own signature

    @contextmanager
    def enter_screen(self) -> Iterator[None]:
        """Another screen, no cursor, keys at once; everything as it was afterwards."""
        before: dict[signal.Signals, Any] = {}
        known = termios.tcgetattr(self._in)
        wakeup = signal.set_wakeup_fd(self.tell.fileno(), warn_on_full_buffer=False)
        try:
            for number in _HEARD:
                before[number] = signal.signal(number, _nothing)
            self._take()
            yield
        finally:
            with suppress(OSError):
                self._give_back(known)
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(wakeup)

    def rest(self) -> None:
        """Ctrl-Z: give the terminal back, stop, and take it again when the shell continues us."""
        known = termios.tcgetattr(self._in)
        cooked = list(known)
        cooked[3] |= termios.ICANON | termios.ECHO
        self._give_back(cooked)
        os.kill(os.getpid(), signal.SIGSTOP)
        self._take()

    @property
    def size(self) -> ConsoleDimensions:
        """Columns and lines, as they are now."""
        return ConsoleDimensions(*os.get_terminal_size(self._out))

    def draw(self, lines: Group) -> None:
        """One whole screen, of the size that the terminal has now."""
        self.console.size = self.size
        self.console.control(Control.home())
        self.console.print(Screen(lines, application_mode=True), end="")

    def wait(self) -> tuple[str, bytes]:
        """Keys and signals, once there are any; no key and no signal is a new page."""
        ready, _, _ = select.select([self._in, self.heard], [], [])
        signals = self.heard.recv(4096) if self.heard in ready else b""
        if self._in not in ready:
            return "", signals
        keys = b""
        with suppress(OSError):
            keys = os.read(self._in, 4096)
        return keys.decode("utf-8", "replace") if keys else "q", signals  # without any, the terminal is gone

    def _take(self) -> None:
        tty.setcbreak(self._in)
        self.console.set_alt_screen(True)
        self.console.show_cursor(show=False)

    def _give_back(self, known: list[Any]) -> None:
        self.console.show_cursor(show=True)
        self.console.set_alt_screen(False)
        termios.tcsetattr(self._in, termios.TCSADRAIN, known)


def run(source: Source, console: Console, clock: Clock, interval_seconds: float) -> int:
    """Show the host until `q`, Ctrl-C or a signal; returns the exit status."""
    terminal = Terminal(console)
    feed = Feed(source, interval_seconds, terminal.tell)
    order = Order.GPU
    with terminal.enter_screen():
        feed.start()
        try:
            while feed.crash is None:
                _draw(terminal, feed, source.note, order, clock)
                keys, signals = terminal.wait()
                ended = next((number for number in _ENDS if number in signals), None)
                if ended is not None:
                    return 0 if ended == signal.SIGINT else _BY_SIGNAL + ended
                if signal.SIGTSTP in signals:
                    terminal.rest()
                if _QUIT & set(keys):
                    return 0
                order = next((each for each in Order if each.value in keys.lower()), order)
        finally:
            feed.stop()
    raise feed.crash


def _draw(terminal: Terminal, feed: Feed, note: str, order: Order, clock: Clock) -> None:
    width, height = terminal.size
    look = Look(width=width, height=height, order=order, note=note, failure=feed.failure, keys=True, past=feed.past)
    page = feed.page
    shown = page is not None and (feed.begun or feed.failure)
    lines = screen(page, look, clock.now()) if page and shown else nothing(feed.failure or _FIRST_WORDS, look)
    terminal.draw(Group(*lines))


def _nothing(_: int, __: FrameType | None) -> None:
    """Signals are read from the socket."""
