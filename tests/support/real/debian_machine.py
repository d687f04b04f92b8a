"""A whole Debian of its own, booted: packages are installed into it as into a host."""

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Self

from tests.support.components import require
from tests.support.real.agents import eventually

# What our packages depend on comes with it, so that an installation needs no network.
_PACKAGES = "systemd,systemd-sysv,dbus,python3,tzdata,ca-certificates,libstdc++6"


class DebianMachine:
    """Use it in a `with`; needs root, a Debian mirror, mmdebstrap and systemd-nspawn."""

    def __init__(self, folder: Path) -> None:
        """Make its file system."""
        self.root = folder / "debian"
        self._console = folder / "console"
        command: list[str | Path] = [
            require("mmdebstrap"),
            "--variant=apt",
            f"--include={_PACKAGES}",
            "bookworm",
            self.root,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def __enter__(self) -> Self:
        """Boot it."""
        options = ("--boot", "--quiet", "--register=no", "--keep-unit", "--private-network", "--timezone=off")
        environment = {**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"}
        with self._console.open("wb") as console:
            self._nspawn = subprocess.Popen(
                [require("systemd-nspawn"), *options, "--capability=CAP_SYSLOG", f"--directory={self.root}"],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
            )
        eventually(lambda: self._nspawn.poll() is not None or self._up(), lambda: self._console.read_text("utf-8"))
        assert self._nspawn.poll() is None, self._console.read_text("utf-8")
        return self

    def __exit__(self, *_: object) -> None:
        """Switch it off."""
        if self._nspawn.poll() is None:
            self._nspawn.send_signal(signal.SIGTERM)
        try:
            self._nspawn.wait(30)
        except subprocess.TimeoutExpired:
            self._nspawn.kill()
            self._nspawn.wait(10)

    def run(self, *command: str, check: bool = True) -> str:
        """What a program in the machine prints on both of its outputs."""
        environment = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "DEBIAN_FRONTEND": "noninteractive",
            "LC_ALL": "C.UTF-8",
        }
        done = subprocess.run(
            ["nsenter", "--target", str(self._leader()), "--all", *command],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=300,
        )
        assert not check or done.returncode == 0, f"{command} ends with {done.returncode}: {done.stdout}"
        return done.stdout

    def install(self, *packages: Path) -> str:
        """By apt, with what they depend on."""
        for package in packages:
            shutil.copy(package, self.root / "root" / package.name)
        return self.run("apt-get", "install", "--yes", *(f"/root/{package.name}" for package in packages))

    def _leader(self) -> int:
        tasks = Path(f"/proc/{self._nspawn.pid}/task").glob("*/children")
        children = [int(pid) for task in tasks for pid in task.read_text(encoding="ascii").split()]
        return children[0] if children else 0

    def _up(self) -> bool:
        if not self._leader():
            return False
        return self.run("systemctl", "is-system-running", check=False).strip() in ("running", "degraded")
