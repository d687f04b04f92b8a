"""Both images, built and run for real: buildah, podman and runc on a base that stands in for the Dockerfile's."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.components import require
from tests.support.paths import ROOT
from tests.support.real.agents import eventually

BASE = "docker.io/library/python:3.12-slim-bookworm"
_PACKAGES = "python3,python3-venv,python3-pip,ca-certificates"
_FROM_OUTSIDE = ("/etc/pip.conf", "/etc/ssl/certs")  # how this machine reaches its package index
# As a hardened deployment would; the limits are lower than podman's own, which few sandboxes allow.
_HARDENED = ("--read-only", "--read-only-tmpfs=false", "--cap-drop=all", "--security-opt=no-new-privileges")
_LIMITS = ("--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024", "--memory=256m", "--network=host")


@dataclass(frozen=True, slots=True)
class Images:
    """A store of images in a folder."""

    folder: Path

    def make_base(self) -> None:
        """A small Debian 12 with its own Python, in the place of the base that the Dockerfile begins with."""
        tar = self.folder / "base.tar"
        self._run([require("mmdebstrap"), "--variant=minbase", f"--include={_PACKAGES}", "bookworm", tar])
        container = self._buildah("from", "scratch")
        self._buildah("add", "--quiet", container, str(tar), "/")
        self._buildah("commit", "--quiet", container, BASE)
        self._buildah("rm", container)

    def build(self, target: str) -> None:
        """One of the Dockerfile's targets."""
        mounts = [f"--volume={path}:{path}:ro" for path in _FROM_OUTSIDE if Path(path).exists()]
        options = ["--format=docker", "--layers", "--quiet", "--pull-never", f"--build-arg=BASE={BASE}", *mounts]
        self._buildah("bud", *options, f"--target={target}", f"--tag=gpuwatch-{target}", str(ROOT))

    @contextmanager
    def running(self, target: str, *arguments: str, options: tuple[str, ...] = ()) -> Iterator[str]:
        """A container of an image, hardened; gives its id and removes it at the end."""
        image = f"localhost/gpuwatch-{target}"
        container = self.podman("run", "--detach", *_HARDENED, *_LIMITS, *options, image, *arguments).strip()
        try:
            yield container
        finally:
            self.podman("rm", "--force", "--time=10", container)

    def status(self, *arguments: str) -> int:
        """The exit status of a command of podman's."""
        return subprocess.run(self._podman(*arguments), capture_output=True, check=False).returncode

    def podman(self, *arguments: str) -> str:
        """What a command of podman's prints."""
        return self._run(self._podman(*arguments))

    def becomes_healthy(self, container: str) -> None:
        """Wait for the image's own health check to pass."""
        eventually(lambda: self.status("healthcheck", "run", container) == 0, lambda: self.podman("logs", container))

    @property
    def _store(self) -> list[str]:
        driver = os.environ.get("GPUWATCH_STORAGE", "overlay")  # vfs works in more sandboxes, and takes much longer
        return [f"--root={self.folder / 'store'}", f"--runroot={self.folder / 'run'}", f"--storage-driver={driver}"]

    def _podman(self, *arguments: str) -> list[str | Path]:
        runtime = f"--runtime={require('runc')}"
        return [require("podman"), *self._store, runtime, "--cgroup-manager=cgroupfs", *arguments]

    def _buildah(self, *arguments: str) -> str:
        return self._run([require("buildah"), *self._store, *arguments]).strip()

    @staticmethod
    def _run(command: list[str | Path]) -> str:
        environment = {**os.environ, "BUILDAH_ISOLATION": "chroot"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout
