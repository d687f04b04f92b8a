"""Servers on the made host's loopback: what the agent asks by HTTP is answered from the life, without any network.

The kernel's tables show these connections, too, as the agent checks there who has answered.
"""

import io
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from unittest.mock import patch

from tests.lives.folder import BEGIN_UNIX
from tests.lives.host import MadeHost
from tests.lives.rates import LifeError, Rate, moments, rate
from tests.lives.world import Member

_FIRST_PORT = 33000


class _Connection:
    """The agent's end of a connection, as http.client uses a socket."""

    def __init__(self, port: int, own_port: int, answer: Callable[[str], bytes], timeout: float | None) -> None:
        self._port, self._own_port, self._answer, self._timeout = port, own_port, answer, timeout
        self._request = b""

    def getsockname(self) -> tuple[str, int]:
        """This end."""
        return "127.0.0.1", self._own_port

    def getpeername(self) -> tuple[str, int]:
        """The server's end."""
        return "127.0.0.1", self._port

    def gettimeout(self) -> float | None:
        """As given."""
        return self._timeout

    def settimeout(self, seconds: float | None) -> None:
        """Answers come at once."""
        self._timeout = seconds

    def setsockopt(self, *_: object) -> None:
        """Nothing to set."""

    def sendall(self, data: bytes) -> None:
        """A request, or a part of it."""
        self._request += data

    def recv(self, _: int) -> bytes:
        """The whole answer, then its end."""
        request, self._request = self._request, b""
        return self._answer(request.split(b" ")[1].decode()) if request else b""

    def makefile(self, *_: object, **__: object) -> io.BytesIO:
        """The answer to what was sent."""
        return io.BytesIO(self._answer(self._request.split(b" ")[1].decode()))

    def shutdown(self, _: int) -> None:
        """Done."""

    def close(self) -> None:
        """Done."""


class Loopback:
    """All servers of one life."""

    def __init__(self, host: MadeHost) -> None:
        """Their runtime files are written as the host is shown."""
        self._host = host
        self._moment = 0.0
        self._number = 0
        self._servers = {int(each["port"]): each for each in host.life.web}
        self._events = {
            port: moments(each.get("requests", []), host.life.seconds) for port, each in self._servers.items()
        }
        self._works: dict[int, Rate] = {port: rate(each.get("works")) for port, each in self._servers.items()}

    def pass_to(self, moment: float) -> None:
        """Answers are those of a moment from now on."""
        self._moment = moment
        self._host.loopback_rows = []
        for port, server in self._servers.items():
            owner = self._owner(server)
            if server["kind"] == "jupyter" and self._host.world.turn(owner, moment) is not None:
                self._runtime_file(port, server, owner)

    @contextmanager
    def instead_of_sockets(self) -> Iterator[None]:
        """Within, connections to loopback lead here, and there are no others."""
        with patch("socket.create_connection", self._connect):
            yield

    def _owner(self, server: Mapping[str, Any]) -> Member:
        try:
            return self._host.world.by_name[server["by"]]
        except KeyError:
            raise LifeError(f"web: {server.get('by')!r} is nobody of the cast") from None

    def _connect(self, address: tuple[str, int], timeout: object = None, *_: object, **__: object) -> _Connection:
        name, port = address
        server = self._servers.get(port)
        alive = server is not None and self._host.world.turn(self._owner(server), self._moment) is not None
        if server is None or not alive or name not in {"127.0.0.1", "localhost"} or self._owner(server).own_network:
            raise ConnectionRefusedError(111, "Connection refused")
        self._number += 1
        own_port, uid = _FIRST_PORT + self._number % 20000, self._owner(server).uid
        near, far = f"127.0.0.1:{own_port}", f"127.0.0.1:{port}"
        self._host.loopback_rows = [(near, far, 0, 700000 + self._number), (far, near, uid, 800000 + self._number)]
        self._host.sockets(None, self._moment)
        seconds = timeout if isinstance(timeout, float | int) else None
        return _Connection(port, own_port, lambda path: self._answer(port, path), seconds)

    def _answer(self, port: int, path: str) -> bytes:
        server = self._servers[port]
        status = int(server.get("status", 200))
        body = _BODIES[server["kind"]](self, port, path) if status == 200 else ""
        if not body and status == 200:
            status = 404
        head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body.encode())}\r\nConnection: close\r\n\r\n"
        return (head + body).encode()

    def _runtime_file(self, port: int, server: Mapping[str, Any], owner: Member) -> None:
        if owner.contained or server.get("hidden"):
            return
        pid = self._host.world.pid(owner, owner.actor.begin)
        home = "/root" if owner.uid == 0 else f"/home/{owner.actor.user}"
        about = {"base_url": "/", "hostname": "localhost", "port": port, "pid": pid, "secure": False, "sock": "",
                 "token": "t0ken", "url": f"http://localhost:{port}/", "root_dir": home}  # fmt: skip
        path = f"{home}/.local/share/jupyter/runtime"
        self._host.at.put(f"{path}/jpserver-{pid}.json", json.dumps(about), uid=owner.uid)

    def _jupyter(self, port: int, path: str) -> str:
        if path.startswith("/api/kernels"):
            works, past = self._works[port], [each for each in self._events[port] if each <= self._moment]
            busy = works.at(self._moment) > 0.0
            done = [each for each in works.changes(-86400.0, self._moment) if each <= self._moment]
            last = self._moment if busy else max([*past, *done], default=-86400.0)
            stamp = datetime.fromtimestamp(BEGIN_UNIX + last, UTC).isoformat().replace("+00:00", "Z")
            state = "busy" if busy else "idle"
            kernel = {"id": f"kernel-{port}", "name": "python3", "last_activity": stamp, "execution_state": state,
                      "connections": int(self._servers[port].get("tabs", 0))}  # fmt: skip
            return json.dumps([kernel])
        return "[]" if path.startswith("/api/") else ""

    def _asked(self, port: int) -> int:
        return sum(each <= self._moment for each in self._events[port])

    def _vllm(self, port: int, path: str) -> str:
        asked = self._asked(port)
        labels = 'model_name="meta-llama/Llama-3.1-8B-Instruct"'
        if path == "/metrics":
            values = {"num_requests_running": 0, "num_requests_waiting": 0, "request_success_total": asked}
            values |= {"prompt_tokens_total": asked * 90, "generation_tokens_total": asked * 200}
            return "".join(f"vllm:{name}{{{labels}}} {value}.0\n" for name, value in values.items())
        return '{"data": []}' if path.startswith("/v1/models") else ""

    def _ollama(self, port: int, path: str) -> str:
        if not path.startswith("/api/ps"):
            return '{"version":"0.5.7"}' if path.startswith("/api/version") else ""
        past = [each for each in self._events[port] if each <= self._moment]
        if not past or self._moment - past[-1] > 300:
            return '{"models":[]}'
        until = datetime.fromtimestamp(BEGIN_UNIX + past[-1] + 300, UTC).isoformat()
        return json.dumps({"models": [{"name": "llama3:8b", "size_vram": 6 << 30, "expires_at": until}]})

    def _triton(self, port: int, path: str) -> str:
        if path != "/metrics":
            return ""
        asked = self._asked(port)
        return f'nv_inference_request_success{{model="m",version="1"}} {asked}\n'

    def _sglang(self, port: int, path: str) -> str:
        asked = self._asked(port)
        values = {"num_running_reqs": 0, "prompt_tokens_total": asked * 80}
        text = "".join(f'sglang:{name}{{model_name="m"}} {value}.0\n' for name, value in values.items())
        return text if path == "/metrics" else ""


_BODIES: dict[str, Callable[[Loopback, int, str], str]] = {
    "jupyter": Loopback._jupyter,
    "vllm": Loopback._vllm,
    "ollama": Loopback._ollama,
    "triton": Loopback._triton,
    "sglang": Loopback._sglang,
}
