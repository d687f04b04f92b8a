"""The agent's control socket: users who may write to it can make the agent release the GPUs and read them again.

A reset, a MIG change or a driver upgrade needs a GPU that no process holds open. A release is not stored: an agent
that starts reads the GPUs. The kernel names the client (SO_PEERCRED), so names cannot be invented.
"""

import logging
import os
import pwd
import socket
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from socketserver import BaseRequestHandler

import msgspec

from gpuwatch.agent.probe.supervisor import ProbeSupervisor
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.printable import legible
from gpuwatch.runtime.unix_socket import UnixServer

_LOG = logging.getLogger(__name__)

_MODE = 0o660
_PATIENCE_SECONDS = 2.0  # for an order, which is one small packet
_ANSWER_SECONDS = 15.0  # ending a probe takes one second, at most three
_LARGEST_ORDER_BYTES = 4096
_LONGEST_WORDS = 200
_PEER = struct.Struct("3i")  # pid, uid, gid: struct ucred of socket(7)


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What a client asks. `behalf` is the user behind sudo; it counts only if the client is root."""

    verb: str
    reason: str = ""
    behalf: str = ""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Whether it is done, and a sentence."""

    done: bool
    text: str


Command = Callable[[str, str], Answer]  # given who asks and why


class ControlServer(UnixServer):
    """Executes one order after the other."""

    def __init__(self, path: Path, commands: Mapping[str, Command]) -> None:
        """Listen at `path`, mode 0660; what a dead agent left there is replaced.

        Raises:
            OSError: it cannot be made, or another agent listens there.

        """
        self.commands = dict(commands)
        path.parent.mkdir(parents=True, exist_ok=True)
        super().__init__(path, _Handler, mode=_MODE, whose="agent")


class _Handler(BaseRequestHandler):
    """The handler of one order."""

    server: ControlServer

    def handle(self) -> None:
        """Read a request, execute it and answer."""
        self.request.settimeout(_PATIENCE_SECONDS)
        try:
            order = msgspec.json.decode(self.request.recv(_LARGEST_ORDER_BYTES), type=Order)
        except ValueError as error:
            self._answer(Answer(done=False, text=f"not an order: {error}"))
            return
        command = self.server.commands.get(order.verb)
        if command is None:
            known = ", ".join(self.server.commands)
            self._answer(Answer(done=False, text=f"unknown order {order.verb!r}; known are: {known}"))
            return
        who = _who(self.request, order.behalf)
        answer = command(who, _words(order.reason))
        _LOG.info("%s by %s: %s", order.verb, who, answer.text)
        self._answer(answer)

    def _answer(self, answer: Answer) -> None:
        self.request.sendall(msgspec.json.encode(answer))


def device_commands(supervisor: ProbeSupervisor, clock: Clock) -> dict[str, Command]:
    """The orders `release` and `acquire`."""

    def release(who: str, reason: str) -> Answer:
        held = supervisor.released
        if held is None:
            since = clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
            held = f"released by {who} since {since}" + (f": {reason}" if reason else "")
        holders = supervisor.release(held)
        if holders:
            pids = ", ".join(map(str, holders))
            text = f"{held}, but probe {pids} sleeps in the kernel and still holds the device; try again, or reboot"
            return Answer(done=False, text=text)
        return Answer(done=True, text=f"{held}; `gpuwatch agent acquire` takes the GPUs again, as does a restart")

    def acquire(_: str, __: str) -> Answer:
        held = supervisor.released
        supervisor.acquire()
        return Answer(done=True, text="the GPUs were not released" if held is None else "the GPUs are read again")

    return {"release": release, "acquire": acquire}


def order(path: Path, verb: str, reason: str = "") -> Answer:
    """Give an order to the agent that listens at `path`.

    Raises:
        OSError: no agent listens there, or writing is not permitted; the text says what to do.
        ValueError: the program that listens there is not an agent.

    """
    asked = Order(verb=verb, reason=reason, behalf=os.environ.get("SUDO_USER", ""))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as agent:
        agent.settimeout(_ANSWER_SECONDS)
        try:
            agent.connect(str(path))
        except PermissionError as error:
            raise OSError(f"{path}: permission denied; be root or in the group of that socket") from error
        except OSError as error:
            remedy = "is the agent running, with the same agent.control_socket?"
            raise OSError(f"no agent listens at {path} ({error.strerror or error}); {remedy}") from error
        agent.sendall(msgspec.json.encode(asked))
        return msgspec.json.decode(b"".join(iter(lambda: agent.recv(65536), b"")), type=Answer)


def _who(connection: socket.socket, behalf: str) -> str:
    """The name of the user at the other end, as the kernel knows it."""
    _, uid, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = f"uid {uid}"
    return f"{_words(behalf)} as {name}" if uid == 0 and behalf else name


def _words(text: str) -> str:
    """Text for one line of a log."""
    return legible(text.strip(), _LONGEST_WORDS)
