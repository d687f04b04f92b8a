"""What the agent says of its host's power, and when it has root's unit power it off."""

import socket
import threading
from pathlib import Path

import msgspec
import pytest

from gpuwatch.agent.evidence.base import Roots
from gpuwatch.agent.power import WORD, power_answers
from gpuwatch.model.activity import State
from gpuwatch.model.power import PowerAnswer

UUID = "4c4c4544-0051-4a10-8056-c4c04f4e3533"


class Host:
    """A host with a socket of root's unit, which answers what the test says."""

    def __init__(self, folder: Path, *, listens: bool = True) -> None:
        """Its firmware has a UUID."""
        self.folder, self.said, self.reply = folder, list[bytes](), b"accepted\n"
        for path, text in (("sys/class/dmi/id/product_uuid", UUID), ("proc/sys/kernel/random/boot_id", "b")):
            (folder / path).parent.mkdir(parents=True)
            (folder / path).write_text(f"{text}\n", encoding="utf-8")
        self.path = folder / "s"
        if listens:
            self.unit = socket.socket(socket.AF_UNIX)
            self.unit.bind(str(self.path))
            self.unit.listen()
            threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            asked, _ = self.unit.accept()
            with asked:
                self.said.append(asked.recv(64))
                asked.sendall(self.reply)

    def asks(self, node: str, state: State = State.IDLE, *, off: bool, allowed: bool = True) -> PowerAnswer:
        """What the agent answers."""
        roots = Roots(sys=self.folder / "sys", proc=self.folder / "proc")
        answer = power_answers(lambda: ("gpu-1", state), allowed=allowed, roots=roots, path=self.path)
        found = answer(msgspec.json.encode({"node": node, "off": off}))
        assert isinstance(found, PowerAnswer)
        return found


def test_the_agent_says_which_machine_it_is_and_powers_off_at_an_order_alone(tmp_path: Path) -> None:
    """Its name, the firmware's UUID and the boot; a question is no order."""
    host = Host(tmp_path)
    told = PowerAnswer(node_id="gpu-1", system_uuid=UUID, boot_id="b")
    assert host.asks("gpu-1", off=False) == host.asks("gpu-1.lab.example", State.BUSY, off=False) == told
    assert host.said == []
    assert host.asks("gpu-1", off=True) == told
    assert host.said == [WORD]


@pytest.mark.parametrize(
    ("node", "state", "allowed", "why"),
    [
        ("gpu-2", State.IDLE, True, "this agent is of gpu-1, and not of gpu-2"),
        ("gpu-1", State.BUSY, True, "sees it busy"),
        ("gpu-1", State.UNKNOWN, True, "sees it unknown"),
        ("gpu-1", State.IDLE, False, "agent.poweroff is not set"),
    ],
)
def test_the_agent_refuses_and_says_why(tmp_path: Path, node: str, state: State, allowed: bool, why: str) -> None:
    """Another host's name, work, doubt, or no consent: the last word is where the work is."""
    host = Host(tmp_path)
    assert why in (host.asks(node, state, off=True, allowed=allowed).refused or "")
    assert host.said == []


def test_without_roots_unit_and_without_its_yes_nothing_is_powered_off(tmp_path: Path) -> None:
    """It is said before a notice that the unit is missing; a unit that ends without a yes has not done it."""
    host = Host(tmp_path / "one")
    host.reply = b"\n"
    assert "did not accept" in (host.asks("gpu-1", off=True).refused or "")
    bare = Host(tmp_path / "two", listens=False)
    for off in (False, True):
        assert "socket is not enabled" in (bare.asks("gpu-1", off=off).refused or "")
    bare.path.touch()
    assert "does not answer" in (bare.asks("gpu-1", off=True).refused or "")
