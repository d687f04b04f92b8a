"""Model servers of people on this host: they count requests on a page, and are found by name and port.

Those in containers with a network of their own are on the ports of this host that Docker publishes. docker-proxy says
by its arguments which port of the host leads to which address; the container's own routes say which address it has.
Only a container in which nothing else of people's runs is found: its traffic is that server's.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress

from gpuwatch.agent.evidence.base import Moment, Roots, UnseenError
from gpuwatch.agent.evidence.files import read_small
from gpuwatch.agent.evidence.net_namespaces import space_of
from gpuwatch.agent.evidence.sock_diag import read_sockets
from gpuwatch.agent.evidence.socket_owners import SocketOwners
from gpuwatch.agent.processes.kinds import is_model_server
from gpuwatch.agent.processes.process import Kind, Process, ProcessView

_LOCAL = re.compile(r"\|-- ([0-9.]{7,15})\n\s+/32 host LOCAL", re.ASCII)  # net/ipv4/fib_trie.c
_HERE = frozenset({"0.0.0.0", "127.0.0.1"})  # elsewhere another server may have the port of loopback  # noqa: S104  nothing is bound
_PORT = re.compile(r"[0-9]{1,5}", re.ASCII)


class FoundServers:
    """Who of people's programs is a model server, and where it listens."""

    def __init__(self, roots: Roots) -> None:
        """Begin without a known server."""
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


def published_ports(roots: Roots, view: ProcessView) -> Mapping[str, frozenset[int]]:
    """The host's ports that lead to each such container, by the name of its network namespace."""
    inside: dict[str, list[Process]] = {}
    for each in view.people():
        if each.placement.container_id is not None and (name := space_of(roots, each)) is not None:
            inside.setdefault(name, []).append(each)
    serving = {name: members for name, members in inside.items() if _serves_alone(members)}
    leads = _proxies(roots, view) if serving else {}
    found = {}
    for name, members in serving.items():
        ports = {port for address in _addresses(roots, members[0]) for port in leads.get(address, ())}
        if ports:
            found[name] = frozenset(ports)
    return found


def _serves_alone(members: Sequence[Process]) -> bool:
    """Whether each of these is a model server, began one, or was begun by one."""
    servers = {each.pid for each in members if is_model_server((each.name, each.executable or each.name))}
    parents = {each.parent for each in members if each.pid in servers}
    return bool(servers) and all(each.pid in servers | parents or each.parent in servers for each in members)


def _proxies(roots: Roots, view: ProcessView) -> dict[str, set[int]]:
    """The ports of the host by the address that Docker passes them on to."""
    found: dict[str, set[int]] = {}
    for each in view.processes.values():
        if each.name != "docker-proxy" or each.kind is not Kind.SERVICE:
            continue
        words = _text(roots, each, "cmdline").rstrip("\0").split("\0")
        options = dict(zip(words[1::2], words[2::2], strict=False))
        port, address = options.get("-host-port", ""), options.get("-container-ip")
        on_loopback = options.get("-proto") == "tcp" and options.get("-host-ip") in _HERE
        if on_loopback and address is not None and _PORT.fullmatch(port):
            found.setdefault(address, set()).add(int(port))
    return found


def _addresses(roots: Roots, process: Process) -> set[str]:
    """The addresses of a container, but for loopback."""
    text = _text(roots, process, "net/fib_trie")
    return {address for address in _LOCAL.findall(text) if not address.startswith("127.")}


def _text(roots: Roots, process: Process, file: str) -> str:
    try:
        return read_small(roots.proc / str(process.pid) / file).text
    except (OSError, UnseenError):
        return ""
