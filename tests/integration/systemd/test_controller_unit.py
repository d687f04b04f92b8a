"""The controller's unit on a really booted systemd: it serves, is replaced when it hangs, and takes new settings."""

import time
from collections.abc import Iterator

import pytest

from tests.support.real.agents import eventually
from tests.support.real.systemd_container import GPUWATCH, PYTHON, Booted

pytestmark = pytest.mark.component("systemd-nspawn")

CONTROLLER = "gpuwatch-controller"
URL = "http://127.0.0.1:9461"
# Nobody answers at that address: each round is in trouble, and ends.
SETTINGS = """
mode: observe
fleet: research
interval: 1s
cloud: {regions: [us-east-1], endpoint_url: "http://127.0.0.1:1"}
"""
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none", "AWS_MAX_ATTEMPTS": "1"}
SERVICE = f"""
Environment={" ".join(f"{name}={value}" for name, value in CREDENTIALS.items())}
RestartSec=200ms
"""
_SILENT = "import socket, time; s = socket.create_server(('127.0.0.1', 2)); time.sleep(1000)"


class Office(Booted):
    """A machine with the controller's unit."""

    def restart(self, settings: str = SETTINGS, service: str = SERVICE) -> int:
        """A fresh controller with these settings; its pid."""
        self.settings(settings)
        self.install(f"{CONTROLLER}.service", ["controller"], service)
        self.restart_unit(CONTROLLER)
        return self.controller

    @property
    def controller(self) -> int:
        """The controller's pid, 0 for none."""
        return int(self.show(CONTROLLER, "MainPID"))

    def wait_for(self, words: str, *options: str) -> None:
        """Wait until its journal says so."""
        eventually(lambda: words in self.journal(CONTROLLER, *options), lambda: self.journal(CONTROLLER))


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    """It, booted."""
    with Office(tmp_path_factory.mktemp("booted"), {}) as made:
        yield made


def test_it_runs_with_no_rights_and_keeps_its_ledger_to_itself(office: Office) -> None:
    """A user that is nobody else's, no capability, a ceiling for its memory; it serves once it is ready."""
    pid = office.restart()
    status = dict(line.split(":\t", 1) for line in office.run("cat", f"/proc/{pid}/status").splitlines())

    assert {int(status[f"Cap{kind}"], 16) for kind in ("Eff", "Prm", "Bnd")} == {0}
    assert int(status["Uid"].split()[0]) >= 1000
    assert int(office.show(CONTROLLER, "MemoryMax")) == 1 << 30
    assert "gpuwatch_controller" in office.get(f"{URL}/metrics")
    assert office.run("find", "/var/lib/private/gpuwatch", "-name", "*.db*"), "no ledger where it belongs"
    assert office.run("stat", "--format=%a", "/var/lib/private/gpuwatch").strip() == "700"


def test_a_round_that_hangs_ends_it(office: Office) -> None:
    """Its pages are served and nothing of it has ended, but no round ends any more: systemd begins anew."""
    office.run("systemd-run", "--quiet", "--unit=silent", PYTHON, "-c", _SILENT)
    hung = office.restart(SETTINGS.replace("127.0.0.1:1", "127.0.0.1:2"), f"{SERVICE}WatchdogSec=3s\n")
    office.wait_for("Watchdog timeout")
    eventually(lambda: office.controller not in (0, hung), lambda: office.journal(CONTROLLER))
    office.run("systemctl", "stop", "silent")


def test_new_settings_hold_from_the_next_round_on(office: Office) -> None:
    """The same process, which finishes its round first; a longer interval is no hang to the watchdog."""
    pid = office.restart()
    office.settings(SETTINGS.replace("research", "lab").replace("interval: 1s", "interval: 20m"))
    office.run("systemctl", "reload", CONTROLLER)
    office.wait_for("fleet lab")

    assert office.controller == pid
    assert office.show(CONTROLLER, "WatchdogUSec") == "40min"
    assert "gpuwatch_controller" in office.get(f"{URL}/metrics")


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        ("mode: destroy", "mode"),
        pytest.param(
            "mode: observe\nledger: {file: /nowhere/ledger.db}", "/nowhere/ledger.db", marks=pytest.mark.nightly
        ),
    ],
    ids=["setting", "ledger"],
)
def test_bad_settings_change_nothing(office: Office, bad: str, told: str) -> None:
    """They are told as an error, and rounds go on under the old ones."""
    pid = office.restart()
    office.settings(SETTINGS.replace("mode: observe", bad))
    office.run("systemctl", "reload", CONTROLLER)
    office.wait_for("The settings stay as they were", f"_PID={pid}", "--priority=err")
    rounds = office.journal(CONTROLLER, f"_PID={pid}").count("WARNING")
    eventually(
        lambda: office.journal(CONTROLLER, f"_PID={pid}").count("WARNING") > rounds, lambda: office.journal(CONTROLLER)
    )

    assert office.controller == pid
    assert told in office.journal(CONTROLLER, f"_PID={pid}", "--priority=err")


def test_it_stops_at_once_between_two_rounds(office: Office) -> None:
    """Within five seconds, and without being killed."""
    office.restart(SETTINGS.replace("interval: 1s", "interval: 20m"))
    office.wait_for("WARNING")
    begun = time.perf_counter()
    office.run("systemctl", "stop", CONTROLLER)
    took = time.perf_counter() - begun

    assert took < 5.0
    assert office.show(CONTROLLER, "Result") == "success"


def test_a_secret_that_systemd_hands_over_is_read_by_its_name(office: Office) -> None:
    """By a user who may not read root's file."""
    office.settings(f"{SETTINGS}signals: {{scheme: https, username: us, password_file: 'credential:agents'}}\n")
    office.run("sh", "-c", "umask 077; echo correct horse > /root/agents")
    unit = ["systemd-run", "--quiet", "--wait", "--pipe", "--property=DynamicUser=yes"]
    variables = {**office.environment, **CREDENTIALS}
    doctor = [*(f"--setenv={name}={value}" for name, value in variables.items()), *GPUWATCH]
    doctor += ["doctor", "controller"]
    without = office.run(*unit, *doctor, check=False)
    text = office.run(*unit, "--property=LoadCredential=agents:/root/agents", *doctor, check=False)

    assert "signals.password_file: credential:agents [secret.unread]" in without
    assert "signals.password_file: credential:agents [secret]" in text
    assert "correct horse" not in text
