"""The packages of `make release` on a booted Debian, as a host's administrator meets them: `make package-test`."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.real.agents import eventually
from tests.support.real.debian_machine import DebianMachine

_FOLDER = os.environ.get("GPUWATCH_PACKAGES", "")  # what `make release` wrote
pytestmark = [
    pytest.mark.skipif(not _FOLDER, reason="installs packages into a booted Debian for minutes: `make package-test`"),
    pytest.mark.component("systemd-nspawn"),
]
AGENT, CONTROLLER = "gpuwatch-agent.service", "gpuwatch-controller.service"
SETTINGS = "agent: {source: simulated, metadata: {provider: none}}\ncloud: {regions: [eu-central-1]}\n"


def package(name: str) -> Path:
    """The .deb of that name for this test's machine."""
    (found,) = Path(_FOLDER).glob(f"{name}_*_amd64.deb")
    return found


def newer(deb: Path, folder: Path) -> Path:
    """The same package under a higher version."""
    tree, made = folder / deb.stem, folder / f"newer-{deb.name}"
    subprocess.run(["dpkg-deb", "--raw-extract", deb, tree], check=True)
    control = tree / "DEBIAN/control"
    lines = control.read_text(encoding="utf-8").replace("-1\n", "-2\n", 1).replace("-1)", "-2)")
    control.write_text(lines, encoding="utf-8")
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Znone", "--build", tree, made], check=True, capture_output=True)
    shutil.rmtree(tree)
    return made


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DebianMachine]:
    """A Debian with both packages, fresh from apt."""
    with DebianMachine(tmp_path_factory.mktemp("machine")) as booted:
        booted.install(package("gpuwatch"), package("gpuwatch-controller"))
        yield booted


def state(machine: DebianMachine, unit: str) -> tuple[str, str]:
    """Whether it runs, and whether it starts at boot."""
    return tuple(machine.run("systemctl", verb, unit, check=False).strip() for verb in ("is-active", "is-enabled"))  # type: ignore[return-value]  # two verbs


def started(machine: DebianMachine, unit: str) -> str:
    """The process of a service."""
    return machine.run("systemctl", "show", "--property=MainPID", "--value", unit).strip()


def test_the_life_of_both_packages(machine: DebianMachine, tmp_path: Path) -> None:
    """Installed: nothing runs. Started by hand: both serve. Upgraded: restarted. Removed and purged: no state stays."""
    assert [state(machine, unit) for unit in (AGENT, CONTROLLER)] == [("inactive", "disabled")] * 2
    assert "gpuwatch, version" in machine.run("gpuwatch", "--version")
    assert machine.run("dpkg", "--verify", "gpuwatch", "gpuwatch-controller") == ""

    (machine.root / "etc/gpuwatch/gpuwatch.yaml").write_text(SETTINGS, encoding="utf-8")
    machine.run("gpuwatch", "config", "check")
    machine.run("systemctl", "enable", "--now", AGENT, CONTROLLER)
    doctor = ("sh", "-c", "gpuwatch doctor agent --alive && echo served")
    eventually(lambda: "served" in machine.run(*doctor, check=False), lambda: machine.run("journalctl", "-u", AGENT))
    assert machine.run("systemctl", "show", "--property=User", "--value", AGENT).strip() == "gpuwatch-agent"
    assert (machine.root / "var/lib/private/gpuwatch/ledger.db").is_file()

    before = started(machine, AGENT), started(machine, CONTROLLER)
    machine.install(*(newer(package(name), tmp_path) for name in ("gpuwatch", "gpuwatch-controller")))
    after = started(machine, AGENT), started(machine, CONTROLLER)
    assert "0" not in after
    assert not set(before) & set(after)
    assert (machine.root / "etc/gpuwatch/gpuwatch.yaml").read_text(encoding="utf-8") == SETTINGS

    machine.run("apt-get", "remove", "--yes", "gpuwatch", "gpuwatch-controller")
    assert [state(machine, unit)[0] for unit in (AGENT, CONTROLLER)] == ["inactive"] * 2
    assert not (machine.root / "usr/lib/gpuwatch").exists()
    assert (machine.root / "var/lib/private/gpuwatch/ledger.db").is_file()

    machine.run("apt-get", "purge", "--yes", "gpuwatch", "gpuwatch-controller")
    folders = ("etc/gpuwatch", "var/lib/gpuwatch", "var/lib/private/gpuwatch", "var/cache/gpuwatch-agent")
    assert [path for path in folders if (machine.root / path).exists()] == []
    assert "0 unit files" in machine.run("systemctl", "list-unit-files", "gpuwatch*", check=False)
