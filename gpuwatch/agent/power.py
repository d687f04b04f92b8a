"""What the agent says of its host's power, and the one thing that it does about it: it has root's unit power it off.

Rules, all of them:

1. The host is switched off only if `agent.poweroff` allows it, root has enabled the unit, and the question names this
   host. A host that is busy, or of which nobody knows, stays on, whatever the controller says.
2. The agent has no right of its own to do it. It says one word to a socket of systemd, and root's unit runs
   `systemctl poweroff`, as an administrator would.
3. The system UUID is what the firmware says (SMBIOS). Without a UUID its BMC stays unproved.
"""

import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from gpuwatch.agent.evidence.base import Roots, UnseenError
from gpuwatch.agent.evidence.files import read_small
from gpuwatch.agent.posted import Answer
from gpuwatch.model.activity import State
from gpuwatch.model.power import PowerAnswer, PowerQuestion

_LOG = logging.getLogger(__name__)

PATH = "/v1/power"
SOCKET = Path("/run/gpuwatch-poweroff.sock")  # systemd/gpuwatch-poweroff.socket
WORD, ACCEPTED = b"poweroff\n", b"accepted"
_SECONDS = 3.0  # for the unit's answer; the controller waits a little longer for ours
_HERE = Roots()
_UUID, _BOOT = "class/dmi/id/product_uuid", "sys/kernel/random/boot_id"


def ask_root(path: Path = SOCKET) -> bool:
    """Have root's unit power this host off; False: it did not accept that.

    Raises:
        OSError: it does not listen, or does not answer in time.

    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as unit:
        unit.settimeout(_SECONDS)
        unit.connect(str(path))
        unit.sendall(WORD)
        return unit.recv(64).strip() == ACCEPTED


def power_answers(
    node: Callable[[], tuple[str, State]],
    *,
    allowed: bool,
    roots: Roots = _HERE,
    path: Path = SOCKET,
) -> Answer:
    """The answer to POST /v1/power, as `PowerAnswer`. `node` gives this host's id for the controller, and its state."""
    decoder = msgspec.json.Decoder(PowerQuestion)

    def answer(body: bytes) -> PowerAnswer:
        question, (name, state) = decoder.decode(body), node()
        refused = _why_not(question, name, state, allowed=allowed, path=path)
        if refused is None and question.off:
            refused = _switch_off(path)
            _LOG.warning("%s", refused or "This host is powered off, as its controller asked")
        return PowerAnswer(
            node_id=name,
            system_uuid=_fact_in(roots.sys / _UUID),
            boot_id=_fact_in(roots.proc / _BOOT),
            refused=refused,
        )

    return answer


def _why_not(question: PowerQuestion, name: str, state: State, *, allowed: bool, path: Path) -> str | None:
    """Why this host is not to be switched off; None: it can be, and where it was asked to, it may be."""
    if name not in {question.node, question.node.partition(".")[0]}:
        return f"this agent is of {name}, and not of {question.node}"
    if not allowed:
        return "its agent.poweroff is not set"
    if not path.exists():
        return "gpuwatch-poweroff.socket is not enabled there"
    if question.off and state in {State.BUSY, State.UNKNOWN}:
        return f"its agent sees it {state.value}"
    return None


def _switch_off(path: Path) -> str | None:
    try:
        return None if ask_root(path) else "gpuwatch-poweroff@.service did not accept it"
    except OSError as error:
        return f"gpuwatch-poweroff.socket does not answer ({error.strerror or error})"


def _fact_in(path: Path) -> str | None:
    with suppress(OSError, UnseenError):
        return read_small(path).text.strip() or None
    return None
