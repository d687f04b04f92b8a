"""deploy/compose.yaml: each file that it mounts is there, and the programs in it accept their configuration."""

import os
import re
import shutil
import subprocess
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml

from tests.support.components import require
from tests.support.paths import ROOT

DEPLOY = ROOT / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]


def mounts(service: str) -> dict[PurePosixPath, Path]:
    """What of the repository a service sees, by its path in the container."""
    words = [each.split(":") for each in SERVICES[service].get("volumes", ())]
    return {
        PurePosixPath(there): Path(os.path.normpath(DEPLOY / here)) for here, there, *_ in words if here.startswith(".")
    }


def seen_by(service: str, folder: str, into: Path) -> Path:
    """A folder of the container, made of copies of what is mounted there."""
    for there, here in mounts(service).items():
        if there.is_relative_to(folder):
            target = into / there.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(here, target)
    return into


def accepts(program: str, *arguments: str | Path) -> None:
    """The program finds no fault."""
    done = subprocess.run([require(program), *arguments], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("service", SERVICES)
def test_images_of_others_are_named_by_their_digests(service: str) -> None:
    """What a tag leads to may change; ours are built here."""
    built = "build" in SERVICES[service]

    assert built or re.search(r":[^:@]+@sha256:[0-9a-f]{64}$", SERVICES[service]["image"])


@pytest.mark.parametrize("service", SERVICES)
def test_each_file_that_is_mounted_exists_and_is_read_only(service: str) -> None:
    """Docker would make an empty folder of a missing one without a word."""
    assert [here for here in mounts(service).values() if not here.exists()] == []
    assert all(each.endswith(":ro") for each in SERVICES[service].get("volumes", ()) if each.startswith("."))


def test_each_volume_is_declared_and_used() -> None:
    """Compose refuses one that is only used."""
    used = {each.split(":")[0] for service in SERVICES.values() for each in service.get("volumes", ())}

    assert {each for each in used if not each.startswith(".")} == set(COMPOSE["volumes"])


@pytest.mark.component("promtool")
def test_prometheus_accepts_its_configuration_and_the_rules(tmp_path: Path) -> None:
    """With the files where the container has them."""
    folder = seen_by("prometheus", "/etc/prometheus", tmp_path)

    assert (folder / "rules/gpuwatch.yml").exists()
    accepts("promtool", "check", "config", folder / "prometheus.yml")


@pytest.mark.component("amtool")
def test_alertmanager_accepts_its_configuration(tmp_path: Path) -> None:
    """It sends to nobody, so that a trial wakes nobody."""
    file = seen_by("alertmanager", "/etc/alertmanager", tmp_path) / "alertmanager.yml"
    accepts("amtool", "check-config", file)

    assert yaml.safe_load(file.read_text(encoding="utf-8"))["receivers"] == [{"name": "nobody"}]


def test_grafana_finds_the_dashboards_where_their_provisioning_says() -> None:
    """And the data source is the Prometheus of this file."""
    provisioning = mounts("grafana")[PurePosixPath("/etc/grafana/provisioning")]
    boards = yaml.safe_load((provisioning / "dashboards/gpuwatch.yaml").read_text(encoding="utf-8"))
    sources = yaml.safe_load((provisioning / "datasources/gpuwatch.yaml").read_text(encoding="utf-8"))
    folder = PurePosixPath(boards["providers"][0]["options"]["path"])
    home = PurePosixPath(SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])

    assert (mounts("grafana")[folder] / home.relative_to(folder)).exists()
    address = sources["datasources"][0]["url"].removeprefix("http://")
    assert f"--web.listen-address={address}" in SERVICES["prometheus"]["command"]


def test_nothing_listens_beyond_this_machine() -> None:
    """All share the host's network, so each says 127.0.0.1 itself; the demo knows no other address."""
    assert all(service["network_mode"] == "host" and "ports" not in service for service in SERVICES.values())
    for name in ("prometheus", "alertmanager"):
        (address,) = (each for each in SERVICES[name]["command"] if each.startswith("--web.listen-address="))
        assert address.startswith("--web.listen-address=127.0.0.1:")
    assert SERVICES["grafana"]["environment"]["GF_SERVER_HTTP_ADDR"] == "127.0.0.1"
