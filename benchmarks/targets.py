"""The agents of a large fleet in one process: each has a loopback address of its own and one prepared verdict.

`python -m benchmarks.targets COUNT PORT`: address 127.1.x.y is node i-N, see `address`; says `ready` when it listens.
"""

import asyncio
import sys

import msgspec

from gpuwatch.model.fleet import State
from tests.support.builders.fleet import a_verdict

GPUS = 8
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

    def __init__(self, answers: dict[str, bytes]) -> None:
        self._answers = answers

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101  what a server's protocol is given
        self._transport = transport
        self._answer = self._answers[transport.get_extra_info("sockname")[0]]
        self._asked = b""

    def data_received(self, data: bytes) -> None:
        self._asked += data
        if self._asked.endswith(b"\r\n\r\n"):
            self._asked = b""
            self._transport.write(self._answer)


def _answer(number: int) -> bytes:
    body = msgspec.json.encode(a_verdict(node_id(number), state(number), gpus=GPUS))
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


async def _serve(count: int, port: int) -> None:
    answers = {address(number): _answer(number) for number in range(count)}
    server = await asyncio.get_running_loop().create_server(lambda: _Agent(answers), list(answers), port)
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), int(sys.argv[2])))
