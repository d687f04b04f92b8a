"""The agents of a large fleet in one process: each has a loopback address of its own.

A busy node's verdict is prepared. An idle node is idle for longer at each request, and confirms when asked to.

`python -m benchmarks.targets COUNT PORT`: address 127.1.x.y is node i-N, see `address`; says `ready` when it listens.
"""

import asyncio
import re
import sys
from dataclasses import replace

import msgspec

from gpuwatch.model.activity import State
from tests.support.builders.fleet import a_verdict

GPUS = 8
_AGES_SECONDS = 10.0  # by which an idle node is idle for longer at each request
_IDLE_SECONDS = 7200.0
_CONFIRM = re.compile(rb"[?&]confirm=([\w-]+)")
_IDLE_EVERY = 10  # one node in ten has been idle for two hours, the others are busy


def node_id(number: int) -> str:
    """The id of the node of that number."""
    return f"i-{number}"


def address(number: int) -> str:
    """Where its agent listens."""
    return f"127.1.{number // 250}.{number % 250 + 1}"


def state(number: int) -> State:
    """What it is doing."""
    return State.IDLE if number % _IDLE_EVERY == 0 else State.BUSY


def idle(count: int) -> int:
    """How many of so many nodes are idle."""
    return len(range(0, count, _IDLE_EVERY))


class _Agent(asyncio.Protocol):
    """Any request is answered with the verdict of the address that it came to."""

    def __init__(self, numbers: dict[str, int], prepared: dict[int, bytes], requests: dict[int, int]) -> None:
        self._numbers, self._prepared, self._requests = numbers, prepared, requests

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101  what a server's protocol is given
        self._transport = transport
        self._number = self._numbers[transport.get_extra_info("sockname")[0]]
        self._asked = b""

    def data_received(self, data: bytes) -> None:
        self._asked += data
        if self._asked.endswith(b"\r\n\r\n"):
            nonce, self._asked = _CONFIRM.search(self._asked), b""
            self._requests[self._number] = asked = self._requests.get(self._number, 0) + 1
            prepared = self._prepared.get(self._number) if nonce is None else None
            self._transport.write(prepared or _answer(self._number, asked, nonce[1].decode() if nonce else None))


def _answer(number: int, asked: int, nonce: str | None = None) -> bytes:
    verdict = a_verdict(node_id(number), state(number), _IDLE_SECONDS + asked * _AGES_SECONDS, gpus=GPUS)
    if nonce is not None:
        verdict = replace(verdict, confirm=nonce, looked_seconds=0.0)
    body = msgspec.json.encode(verdict)
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


async def _serve(count: int, port: int) -> None:
    numbers, requests = {address(number): number for number in range(count)}, dict[int, int]()
    prepared = {number: _answer(number, 0) for number in range(count) if state(number) is State.BUSY}
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Agent(numbers, prepared, requests), list(numbers), port)
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), int(sys.argv[2])))
