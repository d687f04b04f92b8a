"""Traffic of people's containers: each has network cards and sockets of its own, which this host's do not show."""

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from itertools import islice

from gpuwatch.agent.evidence.askers import Ask
from gpuwatch.agent.evidence.base import Roots, UnseenError
from gpuwatch.agent.evidence.datagrams import own_addresses
from gpuwatch.agent.evidence.files import ENDED, read_small
from gpuwatch.agent.evidence.tcp_listeners import LISTEN, sockets
from gpuwatch.agent.processes.process import Process

_MOST_NAMESPACES = 512
_MOST_READ, _MOST_SOCKETS = 32, 4000  # networks and their sockets in one look: 0.1 s of CPU
_FOREIGN_AGENT = "the agent is in a network namespace of its own: give it the host's network"


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """A network namespace: bytes in and out of its cards, without loopback, and one of its processes."""

    moved: int
    process: Process


def namespaces(roots: Roots, people: Iterable[Process]) -> Mapping[str, Namespace]:
    """The network namespaces of people's processes besides this agent's own, by a name that stays.

    Raises:
        OSError: the counters of one cannot be read.
        UnseenError: the agent itself is in one, or there are more than can rightly be.

    """
    own = _own(roots)
    found: dict[str, Namespace] = {}
    passed = {own}
    for each in people:
        # Who may not read the link knows the container; a process outside of one has the host's network.
        name = _link(roots, str(each.pid)) or each.placement.container_id
        if name is None or name in passed:
            continue
        passed.add(name)
        if len(passed) > _MOST_NAMESPACES:
            raise UnseenError(f"there are more than {_MOST_NAMESPACES} network namespaces")
        try:
            moved = _moved_bytes(roots, each.pid, is_known=name.startswith("net:["))
        except ENDED:
            passed.discard(name)
            continue
        if moved is not None:
            found[name] = Namespace(moved=moved, process=each)
    return found


def asks_inside(roots: Roots, now: Mapping[str, Namespace], before: Mapping[str, Namespace]) -> frozenset[Ask]:
    """Who asks a server in a container from another machine, of those containers that moved something since `before`.

    A health check of this host, and another container of it, is no other machine.
    """
    moving = [each for name, each in now.items() if name in before and each.moved > before[name].moved]
    found, own, left = set[Ask](), set[str](), _MOST_SOCKETS
    for each in moving[:_MOST_READ]:
        with suppress(OSError, UnseenError):
            there = list(islice(sockets(roots.proc / str(each.process.pid)), left))  # listeners come first
            left -= len(there)
            listening = {one.local[1] for one in there if one.state == LISTEN}
            for one in there:
                own.add(str(one.local[0]))
                if one.state != LISTEN and one.local[1] in listening and not one.remote[0].is_loopback:
                    found.add(Ask(peer=one.remote[0].packed, port=one.local[1]))
    if not found:
        return frozenset()
    own |= own_addresses(roots)
    return frozenset(each for each in found if str(ip_address(each.peer)) not in own)


def space_of(roots: Roots, process: Process) -> str | None:
    """The name of the network namespace of a process in a container, as `namespaces` has it; None: the agent's own."""
    name = _link(roots, str(process.pid)) or process.placement.container_id
    return None if name == _link(roots, "self") else name


def traffic(roots: Roots, pid: int) -> int | None:
    """Bytes in and out of the network namespace of a process, without loopback; None: it has the host's network.

    Raises:
        OSError: the process has ended, or its counters cannot be read.
        UnseenError: the agent itself is in a namespace of its own.

    """
    own, its = _own(roots), _link(roots, str(pid))
    return None if its is not None and its == own else _moved_bytes(roots, pid, is_known=its is not None)


def _own(roots: Roots) -> str | None:
    """The agent's network namespace, which must be the host's."""
    own, first = _link(roots, "self"), _link(roots, "1")
    if own is not None and first is not None and own != first:
        raise UnseenError(_FOREIGN_AGENT)
    return own


def _link(roots: Roots, pid: str) -> str | None:
    """The network namespace of a process; None without the right to know, or of a process that has ended."""
    try:
        return os.readlink(f"{roots.proc}/{pid}/ns/net")  # noqa: PTH115  thousands of times
    except OSError:
        return None


def _moved_bytes(roots: Roots, pid: int, *, is_known: bool) -> int | None:
    """Bytes of a namespace's cards; None if they are this agent's own cards."""
    before = {} if is_known else _cards(roots, "")
    there = _cards(roots, str(pid))
    after = {} if is_known else _cards(roots, "")
    if (
        before
        and before.keys() == there.keys()
        and all(before[card] <= there[card] <= after.get(card, -1) for card in there)
    ):
        return None
    return sum(bytes_moved for card, bytes_moved in there.items() if card != "lo")


def _cards(roots: Roots, pid: str) -> dict[str, int]:
    """Bytes in and out by card, loopback among them."""
    path = roots.proc / pid / "net/dev"
    cards: dict[str, int] = {}
    for line in read_small(path).text.splitlines()[2:]:
        name, _, rest = line.partition(":")
        values = rest.split()
        try:
            cards[name.strip()] = int(values[0]) + int(values[8])
        except (IndexError, ValueError):
            raise UnseenError(f"{path} has an unexpected line: {line[:80]!r}") from None
    return cards
