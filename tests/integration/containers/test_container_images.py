"""The images: linted and held to their page always; built and run, hardened, by `make container-test`."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.paths import ROOT
from tests.support.real.images import Images

DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
REAL = os.environ.get("GPUWATCH_CONTAINERS") == "real"
for_real = pytest.mark.skipif(not REAL, reason="builds and runs the images for minutes: `make container-test`")
RUN = "--tmpfs=/run/gpuwatch:mode=1777"


def test_hadolint_finds_nothing() -> None:
    """The Dockerfile is clean without an exception."""
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, "--no-color", ROOT / "Dockerfile"], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "hadolint ignore" not in DOCKERFILE


def test_every_base_is_named_by_its_digest() -> None:
    """A registry can put another image under a tag, and not under a digest; a build may name another base."""
    (base,) = re.findall(r"^ARG BASE=(\S+)$", DOCKERFILE, re.MULTILINE)
    stages = re.findall(r"^FROM (\S+) AS (\S+)$", DOCKERFILE, re.MULTILINE)

    assert re.fullmatch(r"python:\S+@sha256:[0-9a-f]{64}", base)
    assert {origin for origin, _ in stages} <= {"${BASE}", *(name for _, name in stages)}


def test_both_targets_are_checked_by_gpuwatch_itself_and_not_run_as_root() -> None:
    """No shell, no curl; a number, so that Kubernetes can tell that it is not root."""
    stages = dict(re.findall(r"^FROM \S+ AS (\S+)\n(.*?)(?=^FROM |\Z)", DOCKERFILE, re.MULTILINE | re.DOTALL))

    assert "USER 10001:10001" in stages["runtime"]
    for target in ("agent", "controller"):
        assert f'CMD ["gpuwatch", "doctor", "{target}", "--alive"]' in stages[target]
        assert f'CMD ["{target}"]' in stages[target]


def test_only_what_the_images_are_made_of_is_sent() -> None:
    """Everything is left out but what the Dockerfile copies."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    copied = {
        name for line in re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE) for name in line.split()
    }

    assert "*" in lines
    assert {line[1:] for line in lines if line.startswith("!")} == copied


def test_the_manifest_is_as_hardened_as_the_page_says() -> None:
    """docs/containers.md names it: every mount has its volume, and nothing is privileged."""
    made = yaml.safe_load_all((ROOT / "deploy/kustomize/gpuwatch/agent.yaml").read_text(encoding="utf-8"))
    manifest: Any = next(each for each in made if each["kind"] == "DaemonSet")
    pod = manifest["spec"]["template"]["spec"]
    (container,) = pod["containers"]

    assert manifest["spec"]["selector"]["matchLabels"] == manifest["spec"]["template"]["metadata"]["labels"]
    assert pod["hostPID"] is pod["hostNetwork"] is True
    assert pod["securityContext"]["runAsUser"] == 10001
    assert container["securityContext"] == {
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {each["name"] for each in container["volumeMounts"]} == {each["name"] for each in pod["volumes"]}
    assert all("hostPath" not in each or each["name"] != "run" for each in pod["volumes"])


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Images]:
    """Both, built."""
    made = Images(tmp_path_factory.mktemp("images"))
    made.make_base()
    for target in ("agent", "controller"):
        made.build(target)
    yield made
    made.podman("rmi", "--all", "--force")


@for_real
@pytest.mark.component("podman")
def test_an_agent_runs_hardened(images: Images) -> None:
    """Not as root, on a root file system that it cannot write; it serves, and its own health check says so."""
    options = (RUN, "--env=GPUWATCH_AGENT__PORT=19460")
    with images.running("agent", "agent", "--source=simulated", options=options) as container:
        images.becomes_healthy(container)

        assert images.podman("exec", container, "id", "-u").strip() == "10001"
        assert images.status("exec", container, "touch", "/opt/gpuwatch/x") != 0
        assert images.status("exec", container, "touch", "/run/gpuwatch/x") == 0
        assert "WARNING" not in images.podman("logs", container)
        assert images.podman("exec", container, "gpuwatch", "snooze", "--list")


@for_real
@pytest.mark.component("podman")
def test_an_agent_without_a_driver_says_what_is_missing(images: Images) -> None:
    """It is alive all the same, and the doctor inside names the remedy."""
    with images.running("agent", options=(RUN, "--env=GPUWATCH_AGENT__PORT=19461")) as container:
        images.becomes_healthy(container)
        done = images.status("exec", container, "gpuwatch", "doctor", "agent")

        assert done == 1


@for_real
@pytest.mark.component("podman")
def test_a_health_check_fails_where_nothing_answers(images: Images) -> None:
    """It looks at another port than the agent's."""
    with images.running(
        "agent", "agent", "--source=simulated", "--listen=127.0.0.1:19462", options=(RUN,)
    ) as container:
        assert images.status("healthcheck", "run", container) == 1


@for_real
@pytest.mark.component("podman")
def test_a_controller_runs_hardened(images: Images) -> None:
    """Its ledger lies in its volume; without credentials its rounds fail and it goes on."""
    variables = (
        "GPUWATCH_CLOUD__REGIONS=us-east-1",
        "GPUWATCH_CONTROLLER__PORT=19463",
        "AWS_EC2_METADATA_DISABLED=true",
    )
    options = ("--tmpfs=/tmp", *(f"--env={each}" for each in variables))
    with images.running("controller", options=options) as container:
        images.becomes_healthy(container)

        assert "ledger.db" in images.podman("exec", container, "ls", "/var/lib/gpuwatch")
        assert images.podman("exec", container, "id", "-u").strip() == "10001"
        assert images.status("exec", container, "touch", "/x") != 0
