"""What the machine's own services move over TCP, to be taken off what the network cards count."""

from collections.abc import Callable

from gpuwatch.agent.evidence.base import Roots
from gpuwatch.agent.evidence.connections import Grown
from gpuwatch.agent.evidence.sock_diag import read_sockets
from gpuwatch.agent.evidence.socket_owners import SocketOwners
from gpuwatch.agent.processes.process import Kind, Process, ProcessView


def is_service(process: Process) -> bool:
    """Whether it is the machine's own."""
    return process.kind is Kind.SERVICE


class ServiceTraffic:
    """Payload bytes that services' connections with other machines moved, as far as that is certain.

    It is never too much: headers, connections that ended between two looks and those of unknown holders are left out.
    """

    def __init__(self, roots: Roots, counts: Callable[[Process], bool] = is_service) -> None:
        """`counts`: the processes with traffic that is no work. dockerd, sshd and proxies move what people want."""
        self._roots = roots
        self._counts = counts
        self._owners = SocketOwners(roots)
        self._grown = Grown()
        self._moved = 0

    def moved(self, view: ProcessView | None, at: float) -> int | None:
        """Bytes since the first call, at that moment of the monotonic clock; None where that cannot be known.

        Raises:
            OSError, UnseenError: the sockets cannot be read.

        """
        found = read_sockets(self._roots)
        if not found.bytes_known or view is None or view.doubt is not None:
            self._grown.forget()
            return None
        holders = self._owners.whose(found.leaving, view, at)
        for cookie, grown in self._grown.since(found.leaving).items():
            processes = holders[cookie].processes if cookie in holders else ()
            if processes and all(map(self._counts, processes)):
                self._moved += grown
        return self._moved
