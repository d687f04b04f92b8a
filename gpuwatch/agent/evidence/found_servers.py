"""Model servers of people that listen on this host: they count requests on a page, and are found by name and port."""

from collections.abc import Mapping
from contextlib import suppress

from gpuwatch.agent.evidence.base import Moment, Roots, UnseenError
from gpuwatch.agent.evidence.sock_diag import read_sockets
from gpuwatch.agent.evidence.socket_owners import SocketOwners
from gpuwatch.agent.processes.kinds import is_model_server
from gpuwatch.agent.processes.process import Kind, Process, ProcessView


class FoundServers:
    """Who of people's programs is a model server, and where it listens."""

    def __init__(self, roots: Roots) -> None:
        """Nobody is known."""
        self.named: frozenset[int] = frozenset()  # those of them that are model servers by their own name
        self._roots = roots
        self._owners = SocketOwners(roots)

    def ports(self, now: Moment) -> Mapping[int, frozenset[int]]:
        """The ports on which each of them listens, by pid; nothing where that is not to be seen."""
        view = now.processes
        servers = {} if view is None or view.doubt is not None else self._servers(view)
        if not servers:
            return {}
        found: dict[int, set[int]] = {}
        with suppress(OSError, UnseenError):
            listeners = read_sockets(self._roots).listeners
            holders = self._owners.whose(listeners, view, now.monotonic_seconds)
            for each in listeners:
                held = holders.get(each.cookie)
                for process in held.processes if held is not None and held.seen else ():
                    if process.pid in servers:
                        found.setdefault(process.pid, set()).add(each.local[1])
        return {pid: frozenset(ports) for pid, ports in found.items()}

    def _servers(self, view: ProcessView) -> Mapping[int, Process]:
        """Model servers by pid, and programs that began one: of vLLM the engine has the name, its parent the port."""
        named = [each for each in view.people() if is_model_server((each.name, each.executable or each.name))]
        parents = (view.processes.get(each.parent) for each in named)
        found = {each.pid: each for each in named}
        self.named = frozenset(found)
        return found | {each.pid: each for each in parents if each is not None and each.kind is Kind.PEOPLE}
