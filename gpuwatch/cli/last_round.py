"""What `gpuwatch status` shows of a round, and how it gets that of the controller next to it instead of looking itself.

A controller of the same settings on the same machine has just asked the cloud and every agent. It answers at a socket
next to the ledger, mode 0600: to its own user and to root. Whatever is not plainly right there (nobody listens, or
a stranger does, other settings, another version, no round of late) is a reason to look oneself. Nothing of a round is
loaded here.
"""

import os
import socket
import struct
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from gpuwatch import __version__
from gpuwatch.cli.quotas import Found
from gpuwatch.config.chosen_file import fingerprint, ledger_path
from gpuwatch.model.currency import Currency
from gpuwatch.model.duration import format_duration
from gpuwatch.model.nodes_page import NodeRow, NodesPage

_ENDING = ".sock"
_ANSWER_SECONDS = 10.0  # for the next part of an answer, which the controller makes while its rounds go on
_QUOTAS_SECONDS = 60.0  # for these it may ask the cloud first
_PEER = struct.Struct("3i")  # pid, uid, gid


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks: the fingerprint of its settings, and its version."""

    settings: str
    version: str = __version__


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """What `status` shows of one round. `pools` are the names that `--pool` may have, `beneath` lines for people.

    `wrong_fleet`: all machines with a fleet are of other fleets. `note` says where all this comes from.
    """

    page: NodesPage
    pools: tuple[str, ...]
    beneath: tuple[str, ...]
    currency: Currency
    wrong_fleet: bool = False
    limits: Found = field(default_factory=Found)
    note: str | None = None


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of an answer: the round without its nodes, or why no round is shown."""

    age_seconds: float = 0.0
    looked: Looked | None = None
    trouble: str | None = None


class UnusedError(Exception):
    """The round of a controller is not taken; the text says why."""


def socket_beside(ledger: Path) -> Path:
    """Where the controller of that ledger answers."""
    return ledger.with_name(f"{ledger.name}{_ENDING}")


def last_round(path: Path | None, env: Mapping[str, str]) -> Looked | None:
    """The last round of the controller of these settings; None: none is here that this user may ask.

    Raises:
        UnusedError: there is one, and its round cannot be taken.

    """
    try:
        place, settings = socket_beside(ledger_path(path, env)), fingerprint(path, env)
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    except (OSError, ValueError):  # a person reads about it when the settings are read as a whole
        return None
    with closing(line):
        line.settimeout(_ANSWER_SECONDS)
        try:
            line.connect(str(place))
        except OSError:
            return None
        try:
            _refuse_strangers(line, place)
            return _ask_controller(line, Question(settings=settings))
        except (OSError, ValueError) as error:
            raise UnusedError(f"its answer broke off ({error})") from error


def _refuse_strangers(line: socket.socket, place: Path) -> None:
    """Only this user, root, or who owns the folder can be the controller; in a shared folder anybody can listen.

    Raises:
        UnusedError: the kernel names another user.

    """
    uid = _listener(line)
    if uid not in {0, os.geteuid(), place.parent.stat().st_uid}:
        raise UnusedError(f"user {uid} listens at {place}, and not the owner of that folder")


def _listener(line: socket.socket) -> int:
    """The user at the other end, as the kernel knows it."""
    uid: int
    _, uid, _ = _PEER.unpack(line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return uid


def _ask_controller(line: socket.socket, question: Question) -> Looked:
    """The whole answer: a head, as many nodes as it has, some to a line, and the limits of the account."""
    line.sendall(msgspec.json.encode(question) + b"\n")
    with line.makefile("rb") as answer:
        head = msgspec.json.decode(answer.readline(), type=Head)
        if head.looked is None:
            raise UnusedError(head.trouble or "it does not say why")
        rows: list[NodeRow] = []
        while len(rows) < head.looked.page.total:
            some = msgspec.json.decode(answer.readline(), type=list[NodeRow])
            if not some:
                raise ValueError("nodes are missing")
            rows += some
        line.settimeout(_QUOTAS_SECONDS)
        try:
            limits = msgspec.json.decode(answer.readline(), type=Found)
        except (OSError, ValueError):
            limits = Found(troubles=("Quotas unavailable: the controller gave no answer about them.",))
    page = replace(head.looked.page, nodes=tuple(rows))
    note = f"From the controller's round {format_duration(round(head.age_seconds))} ago."
    return replace(head.looked, page=page, limits=limits, note=note)
