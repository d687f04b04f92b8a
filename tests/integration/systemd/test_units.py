"""The units as systemd itself judges them, without a running one, and what the agent must not be kept from seeing."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.support.components import require
from tests.support.real.systemd_container import UNITS

AGENT, CONTROLLER = UNITS / "gpuwatch-agent.service", UNITS / "gpuwatch-controller.service"
BEFORE_STOP = ("gpuwatch-before-stop.socket", "gpuwatch-before-stop@.service")
POWEROFF = ("gpuwatch-poweroff.socket", "gpuwatch-poweroff@.service")
BOTH = pytest.mark.parametrize("unit", [AGENT, CONTROLLER], ids=lambda unit: unit.stem)

# Each would hide people, programs or their files from the agent, and so make a machine look idle.
BLINDFOLDS = {
    "DynamicUser": "yes",
    "PrivateDevices": "yes",
    "PrivateNetwork": "yes",
    "PrivatePIDs": "yes",
    "PrivateTmp": "yes",
    "PrivateUsers": "yes",
    "ProcSubset": "pid",
    "ProtectHome": "yes",
    "ProtectKernelLogs": "yes",
    "ProtectProc": "invisible",
}


def options(unit: Path) -> dict[str, str]:
    """What a unit sets; of a key that comes more than once, the last."""
    return dict(re.findall(r"^(\w+)=(.*)$", unit.read_text(encoding="utf-8"), re.MULTILINE))


def said(*command: str) -> str:
    """What systemd-analyze says; fails where it finds fault."""
    done = subprocess.run([require("systemd-analyze"), *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@BOTH
@pytest.mark.component("systemd-analyze")
def test_systemd_understands_every_line(unit: Path, tmp_path: Path) -> None:
    """No misspelt key and no bad value; the program lies elsewhere on this machine."""
    text = unit.read_text(encoding="utf-8")
    assert "ExecStart=/usr/local/bin/gpuwatch " in text
    here = tmp_path / unit.name
    here.write_text(text.replace("/usr/local/bin/gpuwatch", "/bin/true"), encoding="utf-8")

    assert said("verify", "--man=no", str(here)) == ""


@BOTH
@pytest.mark.component("systemd-analyze")
def test_little_is_exposed(unit: Path) -> None:
    """At most 2.7 of systemd's ten points; an ordinary service has nine. The agent's reader, which looks, costs 0.3."""
    most = "30" if unit.name == "gpuwatch-agent.service" else "27"
    assert "OK" in said("security", "--offline=true", f"--threshold={most}", "--no-pager", str(unit)).splitlines()[-1]


@BOTH
def test_it_is_told_when_work_goes_on_and_what_memory_it_may_have(unit: Path) -> None:
    """Ready when it says so, watched, started again whatever ended it, with a ceiling."""
    known = options(unit)

    assert (known["Type"], known["Restart"], known["StartLimitIntervalSec"]) == ("notify", "always", "0")
    assert {"WatchdogSec", "MemoryHigh", "MemoryMax", "TasksMax", "TimeoutStopSec", "ExecReload"} <= known.keys()


@pytest.mark.component("systemd-analyze")
def test_systemd_understands_the_unit_of_commands_before_a_stop(tmp_path: Path) -> None:
    """Socket and service; only the agent's group may ask, and nothing that a command begins outlives it."""
    texts = {name: (UNITS / name).read_text(encoding="utf-8") for name in BEFORE_STOP}
    for name, text in texts.items():
        (tmp_path / name).write_text(text.replace("/usr/local/bin/gpuwatch", "/bin/true"), encoding="utf-8")
    listening, service = (options(UNITS / name) for name in BEFORE_STOP)

    assert said("verify", "--man=no", *(str(tmp_path / name) for name in BEFORE_STOP)) == ""
    assert (listening["SocketGroup"], listening["SocketMode"]) == ("gpuwatch-agent", "0660")
    assert service["KillMode"] == "control-group"


@pytest.mark.component("systemd-analyze")
def test_systemd_understands_the_unit_that_powers_off_and_only_the_agents_group_may_ask(tmp_path: Path) -> None:
    """It is no more exposed than the controller, and nothing else than the word of a connection is read."""
    for name in POWEROFF:
        (tmp_path / name).write_text((UNITS / name).read_text(encoding="utf-8"), encoding="utf-8")
    listening, service = (options(UNITS / name) for name in POWEROFF)

    assert said("verify", "--man=no", *(str(tmp_path / name) for name in POWEROFF)) == ""
    assert (listening["SocketUser"], listening["SocketGroup"], listening["SocketMode"]) == (
        "root",
        "gpuwatch-agent",
        "0660",
    )
    assert (service["StandardInput"], service["NoNewPrivileges"]) == ("socket", "yes")


@pytest.mark.parametrize(
    ("word", "works", "answer"),
    [(b"poweroff\n", True, b"accepted\n"), (b"poweroff\n", False, b""), (b"\n", True, b""), (b"x", True, b"")],
)
def test_the_unit_powers_off_at_its_word_alone(tmp_path: Path, word: bytes, works: bool, answer: bytes) -> None:
    """As systemd would run it, with the test's own systemctl: who only connects, or says another word, does nothing."""
    systemctl, ran = tmp_path / "systemctl", tmp_path / "ran"
    systemctl.write_text(f'#!/bin/sh\necho "$@" > {ran}\nexit {int(not works)}\n', encoding="utf-8")
    systemctl.chmod(0o755)
    line = options(UNITS / POWEROFF[1])["ExecStart"].replace("$$", "$")
    done = subprocess.run(
        shlex.split(line), input=word, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, check=False
    )
    assert done.stdout == answer
    assert (ran.read_text(encoding="utf-8") if ran.exists() else "") == ("poweroff\n" if word == b"poweroff\n" else "")


def test_nothing_hides_what_makes_a_machine_busy() -> None:
    """Homes, /tmp, /proc, devices and users of the host stay in the agent's sight, and /run/gpuwatch in everybody's."""
    known = options(AGENT)

    assert {name: known.get(name) for name, hides in BLINDFOLDS.items() if known.get(name) == hides} == {}
    assert known["RuntimeDirectoryMode"] == "0755"
    assert known["RuntimeDirectoryPreserve"] == "yes"


def test_the_agents_user_is_one_that_stays() -> None:
    """The one that the unit names is the one that is made."""
    made = (UNITS / "gpuwatch.sysusers.conf").read_text(encoding="utf-8")

    assert re.search(rf"^u {options(AGENT)['User']} - ", made, re.MULTILINE)
