"""A BMC by IPMI: what ipmitool says is believed to the letter, and no password is ever in its arguments."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpuwatch.clouds import AuthFailedError, CloudError, CloudUnavailableError, NotSentError, PermitExpiredError
from gpuwatch.clouds.hosts.bmc import is_refused_login
from gpuwatch.clouds.hosts.ipmi import Ipmi
from gpuwatch.model.fleet import NodeState
from gpuwatch.model.power import same_host
from tests.support.builders.fleet import a_permit
from tests.support.components import require
from tests.support.real.agents import eventually, free_port

UUID, PASSWORD = "4c4c4544-0051-4a10-8056-c4c04f4e3533", "let-me-in"
NO_SESSION = "Error: Unable to establish IPMI v2 / RMCP+ session"
SAYS = f"System GUID   : {UUID}\nGUID Encoding : SMBIOS\n"


class Tool:
    """An ipmitool whose words a test chooses; it notes how it was called."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """It is the first in PATH."""
        self.folder, self.bmc = folder, Ipmi("10.0.0.9", None, user="ann", password=PASSWORD.encode)
        tool = folder / "ipmitool"
        tool.write_text(
            f'#!/bin/sh\necho "$@" >> {folder}/argv\necho "$IPMI_PASSWORD" > {folder}/secret\n'
            f"cat {folder}/errors >&2\ncat {folder}/says\nexit $(cat {folder}/status)\n",
            encoding="utf-8",
        )
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        self.answers(SAYS)

    def answers(self, says: str, errors: str = "", status: int = 0) -> None:
        """What it says from now on."""
        for name, text in (("says", says), ("errors", errors), ("status", str(status))):
            (self.folder / name).write_text(text, encoding="utf-8")


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tool:
    """It."""
    return Tool(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("power", "state"),
    [
        ("is on", NodeState.RUNNING),
        ("is off", NodeState.STOPPED),
        ("is offline?", NodeState.UNKNOWN),
        ("", NodeState.UNKNOWN),
    ],
)
def test_only_on_and_off_are_believed_and_the_guid_is_the_systems(tool: Tool, power: str, state: NodeState) -> None:
    """The password is in the environment alone, and the session asks for an operator's rights."""
    tool.answers(f"{SAYS}Chassis Power {power}\n")
    shown = tool.bmc.show(None)
    assert (shown.uuid, shown.state) == (UUID, state)
    called = (tool.folder / "argv").read_text(encoding="utf-8")
    assert PASSWORD not in called
    assert "-U ann -L OPERATOR -E" in called
    assert (tool.folder / "secret").read_text(encoding="utf-8").strip() == PASSWORD


@pytest.mark.parametrize(
    ("errors", "kind"),
    [
        ("Error: Unable to establish IPMI v2 / RMCP+ session", NotSentError),
        ("Set Chassis Power Control to Soft (ACPI) failed: Insufficient privilege level", CloudError),
        ("Set Chassis Power Control to Soft (ACPI) failed: Timeout", CloudUnavailableError),
        ("Get HPM.x Capabilities request failed, compcode = d4\nUnable to set Chassis Power Control to Soft (ACPI)",
         CloudUnavailableError),
        ("", CloudUnavailableError),
    ],
)  # fmt: skip
def test_what_was_not_sent_was_refused_or_is_in_doubt(tool: Tool, errors: str, kind: type[CloudError]) -> None:
    """The change is tried once, and only the soft one is ever asked for."""
    tool.answers("", errors, 1)
    with pytest.raises(CloudError) as raised:
        tool.bmc.switch_off(a_permit())
    assert type(raised.value) is kind
    (called,) = (tool.folder / "argv").read_text(encoding="utf-8").splitlines()
    assert called.endswith("-C 17 -N 3 -R 1 chassis power soft")


@pytest.mark.parametrize(
    "said",
    [
        "> RAKP 2 HMAC is invalid",
        "RAKP 2 message indicates an error : unauthorized name",
        "RAKP 4 message indicates an error : invalid role",
        "RAKP 4 message indicates an error : invalid integrity check value",
        "> RAKP 4 message has invalid integrity check value",
    ],
)
def test_a_refused_login_is_tried_once_and_is_told_from_silence(tool: Tool, said: str) -> None:
    """Not with the older ciphers as well: many BMCs lock a user after some failures."""
    tool.answers("", f"Loading IANA PEN Registry...\n{said}\n{NO_SESSION}", 1)
    with pytest.raises(AuthFailedError, match="does not take this user and password") as raised:
        tool.bmc.show(None)
    assert is_refused_login(raised.value)
    assert len((tool.folder / "argv").read_text(encoding="utf-8").splitlines()) == 1
    tool.answers("", f"Get Auth Capabilities error\n{NO_SESSION}", 1)
    with pytest.raises(NotSentError):
        tool.bmc.show(None)


@pytest.mark.parametrize("said", ["insufficient resources for session", "invalid session ID", "inactive session ID"])
def test_a_bmc_without_a_free_session_has_not_refused_the_login(tool: Tool, said: str) -> None:
    """Others hold its few sessions: nobody is told that the password is wrong."""
    tool.answers("", f"RAKP 2 message indicates an error : {said}\n{NO_SESSION}", 1)
    with pytest.raises(NotSentError) as raised:
        tool.bmc.show(None)
    assert not is_refused_login(raised.value)


def test_a_bmc_that_takes_no_session_is_asked_once_more_with_the_older_ciphers(tool: Tool) -> None:
    """Both fail: the next look begins anew, and a BMC that is away costs no more than two tries."""
    tool.answers("", "Error: Unable to establish IPMI v2 / RMCP+ session", 1)
    for _ in range(2):
        with pytest.raises(NotSentError):
            tool.bmc.show(None)
    called = (tool.folder / "argv").read_text(encoding="utf-8").splitlines()
    assert [line.partition("-C ")[2].partition(" ")[0] for line in called] == ["17", "3", "17", "3"]


def test_nothing_is_run_after_the_permit_or_without_a_password(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor where there is no ipmitool; that is said."""

    def lost() -> bytes:
        raise FileNotFoundError(2, "No such file or directory")

    with pytest.raises(PermitExpiredError):
        tool.bmc.switch_on(a_permit(leads=lambda: False))
    with pytest.raises(AuthFailedError):
        Ipmi("h", None, user="ann", password=lost).show(None)
    assert not (tool.folder / "argv").exists()
    monkeypatch.setenv("PATH", str(tool.folder / "nowhere"))
    with pytest.raises(AuthFailedError, match="install it"):
        tool.bmc.switch_on(None)


CONFIG = """name "sim"
set_working_mc 0x20
  startlan 1
    addr 127.0.0.1 {port}
    priv_limit admin
    allowed_auths_user none md2 md5 straight
    allowed_auths_operator none md2 md5 straight
    allowed_auths_admin none md2 md5 straight
    guid {guid}
  endlan
  chassis_control "{folder}/chassis"
  user 1 true "" "" user 10 none md2 md5 straight
  user 2 true "ann" "{password}" operator 10 none md2 md5 straight
"""
MACHINE = "mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr\nmc_enable 0x20\n"
CHASSIS = """#!/bin/sh
case "$1 $2" in
  "get power") echo "power:$(cat {folder}/power)";;
  "set shutdown") echo 0 > {folder}/power; echo "$@" >> {folder}/orders;;
  "set power") echo "$3" > {folder}/power; echo "$@" >> {folder}/orders;;
esac
"""


@contextmanager
def simulated(folder: Path) -> Iterator[int]:
    """OpenIPMI's simulator of a BMC, of a machine that runs; gives its port."""
    port = free_port()
    texts = {"chassis": CHASSIS.format(folder=folder), "machine": MACHINE, "power": "1"}
    texts["config"] = CONFIG.format(port=port, guid=UUID.replace("-", ""), folder=folder, password=PASSWORD)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "chassis").chmod(0o755)
    parts = ["-c", folder / "config", "-f", folder / "machine", "-n", "-s", folder / "state"]
    command = [str(each) for each in (require("ipmi_sim"), *parts)]
    running = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield port
    finally:
        running.kill()
        running.wait()


def test_openipmis_simulator_is_switched_off_softly_and_on_again(tmp_path: Path) -> None:
    """By the real ipmitool, with an operator's rights: the machine is the one of the GUID."""
    require("ipmitool")
    with simulated(tmp_path) as port:
        bmc = Ipmi("127.0.0.1", port, user="ann", password=PASSWORD.encode)
        eventually(lambda: f":{port:04X} " in Path("/proc/net/udp").read_text(encoding="ascii"), lambda: port)
        shown = bmc.show(None)
        assert (same_host(shown.uuid, UUID), shown.state) == (True, NodeState.RUNNING)
        bmc.switch_off(a_permit(max_age=60.0))
        assert bmc.show(None).state is NodeState.STOPPED
        bmc.switch_on(None)
        assert bmc.show(None).state is NodeState.RUNNING
        for user, password in (("ann", "another"), ("bob", PASSWORD)):
            with pytest.raises(AuthFailedError, match="does not take this user and password"):
                Ipmi("127.0.0.1", port, user=user, password=password.encode).show(None)
    assert (tmp_path / "orders").read_text(encoding="utf-8") == "set shutdown 1\nset power 1\n"
