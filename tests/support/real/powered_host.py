"""A host that goes off and on: its real agent runs while its mains are on; root's socket and its network card are ours.

A file says whether it is on. The word for root's unit writes "Off" there, and so does whoever stands in for its BMC; a
magic packet at its card writes "On". It runs in a mount namespace of its own, with its own /run and /sys: no socket of
this machine's root can be reached from there.
"""

import signal
import socket
import subprocess
import sys
from pathlib import Path
from threading import Thread

from gpuwatch.agent.power import ACCEPTED, SOCKET, WORD
from gpuwatch.clouds.hosts.power import magic_packet
from gpuwatch.runtime.clock import SystemClock
from tests.support.clouds.hosts.bmc import MAC, UUIDS
from tests.support.paths import ROOT

COMMAND = ("unshare", "--mount", "--propagation", "private", sys.executable, "-m", __name__)


def start_host(
    name: str, power: Path, card: str, environment: dict[str, str], prefix: tuple[str, ...]
) -> subprocess.Popen[bytes]:
    """Start it; `card` is the network card that is its own alone, "-" where it shares one."""
    return subprocess.Popen([*prefix, *COMMAND, name, str(power), card, _mounts()], env=environment, cwd=ROOT)


def _mounts() -> str:
    """This process' mount namespace."""
    return str(Path("/proc/self/ns/mnt").readlink())


def _make_own(name: str, outside: str) -> None:
    """Cover /run and /sys, and give it a system UUID."""
    assert _mounts() != outside, "this would cover the machine's own /run"
    for place in ("/run", "/sys"):
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", place], check=True)
    assert not SOCKET.exists()
    assert not Path("/run/systemd").exists()
    firmware = Path("/sys/class/dmi/id")
    firmware.mkdir(parents=True)
    (firmware / "product_uuid").write_text(f"{UUIDS[name]}\n", encoding="utf-8")


def _be_root(power: Path) -> None:
    """Take the word of the agent, as root's unit does, and go off."""
    with socket.socket(socket.AF_UNIX) as own:
        own.bind(str(SOCKET))
        own.listen()
        while True:
            line, _ = own.accept()
            with line:
                if line.recv(64) == WORD:
                    line.sendall(ACCEPTED + b"\n")
                    power.write_text("Off", encoding="utf-8")


def _be_card(power: Path) -> None:
    """Hear all frames, as a card does that waits for its packet."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0003)) as wire:
        while True:
            if magic_packet(MAC) in wire.recv(2048):
                power.write_text("On", encoding="utf-8")


def main(name: str, file: str, card: str, outside: str) -> None:
    """Live until somebody ends it."""
    power, address = Path(file), ""
    _make_own(name, outside)
    Thread(target=_be_root, args=(power,), daemon=True).start()
    if card != "-":
        address = subprocess.run(
            ["ip", "-o", "-4", "addr", "show", card], check=True, capture_output=True, text=True
        ).stdout.split()[3]
        Thread(target=_be_card, args=(power,), daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    agent: subprocess.Popen[bytes] | None = None
    try:
        while True:
            on = power.read_text(encoding="utf-8") == "On"
            if on and agent is None:
                if address:
                    subprocess.run(["ip", "addr", "replace", address, "dev", card], check=True)
                agent = subprocess.Popen([sys.executable, "-m", "gpuwatch", "agent"])
            if not on and agent is not None:
                SystemClock().sleep(1.0)  # its answer is on its way
                if address:
                    subprocess.run(["ip", "addr", "flush", "dev", card], check=True)
                agent.terminate()
                agent.wait()
                agent = None
            SystemClock().sleep(0.1)
    finally:
        if agent is not None:
            agent.terminate()


if __name__ == "__main__":
    main(*sys.argv[1:])
