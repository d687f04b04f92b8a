"""What the controller takes an agent's answer about power for: silence, somebody else, a no, or a doubt."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from gpuwatch.agent.posted import posted_app
from gpuwatch.clouds import CloudError, CloudUnavailableError
from gpuwatch.controller.observe.power_client import PowerAsker
from gpuwatch.controller.observe.settings import ObserveSettings
from gpuwatch.model.fleet import Node
from gpuwatch.model.power import PowerAnswer, PowerQuestion
from gpuwatch.runtime.clock import SystemClock
from gpuwatch.runtime.http.server import HttpServer
from tests.support.builders.fleet import a_node
from tests.support.real.agents import free_port

NODE = replace(a_node("gpu-1"), name="gpu-1", address="127.0.0.1")


@contextmanager
def an_agent(answer: object, users: tuple[str, ...] = ()) -> Iterator[int]:
    """A real server that answers POST /v1/power; gives its port."""
    app = posted_app({"/v1/power": lambda _: answer}, (), users)
    server = HttpServer("127.0.0.1", 0, {}, clock=SystemClock(), max_connections=8, timeout_seconds=10.0, app=app)
    server.start()
    try:
        yield server.server_address[1]
    finally:
        server.close()


def ask(port: int, node: Node = NODE, *, off: bool = False) -> PowerAnswer:
    """Its answer."""
    return PowerAsker(ObserveSettings(port=port))(node, PowerQuestion(node=node.id, off=off), 60.0)


def test_an_agent_answers_for_its_own_host_alone() -> None:
    """An answer that names another host counts for none."""
    told = PowerAnswer(node_id="gpu-1", system_uuid="u", boot_id="b", refused="no")
    with an_agent(told) as port:
        assert ask(port) == told
        with pytest.raises(CloudError, match="another host than was asked"):
            ask(port, replace(NODE, id="gpu-2", name="gpu-2"))


def test_a_refused_connection_and_a_refusal_come_from_a_host_that_runs() -> None:
    """Neither is silence, which alone may mean off. An order of which nobody knows whether it arrived is a doubt."""
    for off, kind in ((False, CloudError), (True, CloudUnavailableError)):
        with pytest.raises(CloudError) as raised:
            ask(free_port(), off=off)
        assert type(raised.value) is kind
    with an_agent(None, users=("controller",)) as port, pytest.raises(CloudError, match="notice_users") as raised:
        ask(port)
    assert type(raised.value) is CloudError


def test_nonsense_is_a_doubt() -> None:
    """It may have been done."""
    with an_agent({"node_id": 7}) as port, pytest.raises(CloudUnavailableError, match="not valid"):
        ask(port, off=True)
