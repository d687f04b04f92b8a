"""A really booted systemd for tests: a container on this host's own /usr with an /etc of its own, in two seconds."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

import pytest

from tests.support.components import require
from tests.support.paths import ROOT
from tests.support.real.agents import eventually

UNITS = ROOT / "systemd"
_PACKAGES = Path(pytest.__file__).parent.parent
_OWN_PYTHON = not Path(sys.base_prefix).is_relative_to("/usr")
PYTHON = f"{'/opt/python' if _OWN_PYTHON else sys.base_prefix}/bin/python3.{sys.version_info.minor}"
LIBRARIES = "/opt/python/lib"  # where a Python that was built for another place finds its own
GPUWATCH = (PYTHON, "-P", "-m", "gpuwatch")
_FOLDERS = ("etc/systemd/system", "etc/gpuwatch", "etc/pam.d", "home/alice", "opt", "root", "srv", "tmp", "usr", "var")
_MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")  # links into /usr on every host that can do this
_TARGET = "tested.target"
_USERS = "alice", "bob"
_NO_CGROUP = "status=219/CGROUP"

# What boots: no login prompts and no network, but the bus and logind, which know who is there.
_FILES = {
    "etc/os-release": "ID=tested\n",
    "etc/machine-id": f"{'0123' * 8}\n",  # without one it would ask whoever sits at the console
    "etc/hostname": "gpu-host\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "etc/hosts": "127.0.0.1 localhost gpu-host\n",
    "etc/pam.d/people": "account required pam_permit.so\nsession required pam_systemd.so class=user type=tty\n",
    "etc/sysusers.d/people.conf": "".join(
        f'u {name} {1000 + at} "{name}" /home/{name} /bin/bash\n' for at, name in enumerate(_USERS)
    ),
    f"etc/systemd/system/{_TARGET}": "[Unit]\nRequires=basic.target dbus.service systemd-logind.service\n"
    "After=basic.target dbus.service systemd-logind.service\nAllowIsolate=yes\n",
}


# What outlives an agent: its file, and the stamps of logind's folders; those of the boot's first minute say nothing.
_FORGET = """
rm -f /var/lib/gpuwatch-agent/days.json
mkdir -p /run/systemd/users
touch -d "@$(($(date +%s) - $(cut -d. -f1 /proc/uptime) + 20))" /run/systemd/sessions /run/systemd/users
"""


class Booted:
    """One machine; use it in a `with`. Its files lie in `root`, but for /run, /tmp and /usr."""

    def __init__(self, folder: Path, binds: Mapping[Path, str]) -> None:
        """Boot it, or skip where nothing may be mounted; `binds` are folders of this host to be seen there."""
        if subprocess.run(
            ["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True, check=False
        ).returncode:
            pytest.skip("a container can only be booted by root with all capabilities")
        self.root = folder / "machine"
        self._prepare()
        seen = {ROOT: "/opt/tree", _PACKAGES: "/opt/packages", **binds}
        if _OWN_PYTHON:
            seen[Path(sys.base_prefix)] = "/opt/python"
        command = [
            *(str(require("systemd-nspawn")), "--boot", "--quiet", "--register=no", "--keep-unit", "--private-network"),
            *(f"--directory={self.root}", f"--machine=gpuwatch-{os.getpid()}", "--bind-ro=/usr"),
            *("--capability=CAP_SYSLOG", *(["--bind=/dev/kmsg"] if Path("/dev/kmsg").exists() else [])),
            *(f"--bind-ro={here}:{there}" for here, there in seen.items()),
            f"systemd.unit={_TARGET}",
        ]
        # Of the old hierarchies a container is not told when the last process of a service is gone.
        environment = {**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"}
        self._console = folder / "console"
        with self._console.open("wb") as console:
            self._nspawn = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=console, stderr=subprocess.STDOUT
            )

    def _prepare(self) -> None:
        """The little that is not of /usr."""
        for folder in _FOLDERS:
            (self.root / folder).mkdir(parents=True)
        for name in _MERGED:
            if (Path("/") / name).is_symlink():
                (self.root / name).symlink_to(f"usr/{name}")
        for name, text in _FILES.items():
            path = self.root / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        for name in ("ld.so.cache", "alternatives"):
            with suppress(FileNotFoundError):
                source, target = Path("/etc") / name, self.root / "etc" / name
                (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
        for made in (self.root, *self.root.rglob("*")):
            if made.is_dir() and not made.is_symlink():
                made.chmod(0o755)  # whatever the tester's umask
        (self.root / "root").chmod(0o700)

    def __enter__(self) -> Self:
        """Wait until it has booted."""
        eventually(lambda: self._nspawn.poll() is not None or self._up(), lambda: self.said)
        assert self._nspawn.poll() is None, self.said
        return self

    def __exit__(self, *_: object) -> None:
        """Switch it off."""
        if self._nspawn.poll() is None:
            self._nspawn.send_signal(signal.SIGTERM)  # an orderly end of all services
        try:
            self._nspawn.wait(20)
        except subprocess.TimeoutExpired:
            self._nspawn.kill()
            self._nspawn.wait(10)

    @property
    def said(self) -> str:
        """What its console shows."""
        return self._console.read_text(encoding="utf-8", errors="replace")

    def run(self, *command: str, check: bool = True, user: str = "root") -> str:
        """What a program in the machine prints."""
        prefix = ["nsenter", "--target", str(self._leader()), "--all"]
        if user != "root":
            prefix += ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--reset-env"]
            command = ("env", *(f"{name}={value}" for name, value in self.environment.items()), *command)
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **self.environment}
        done = subprocess.run(
            [*prefix, *command], env=environment, capture_output=True, text=True, check=False, timeout=60
        )
        if check and done.returncode != 0:
            raise AssertionError(f"{command} ended with {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout

    @property
    def environment(self) -> dict[str, str]:
        """What makes the package under test importable there."""
        library = {"LD_LIBRARY_PATH": LIBRARIES} if _OWN_PYTHON else {}
        return {
            "PYTHONPATH": "/opt/tree/tests/support/as_host:/opt/tree:/opt/packages",
            "PYTHONDONTWRITEBYTECODE": "1",
            **library,
        }

    def install(self, unit: str, arguments: Sequence[str], service: str = "") -> None:
        """That unit as it is shipped, but for where the program lies, and `service` lines of the test's own."""
        units = self.root / "etc/systemd/system"
        shutil.copy(UNITS / unit, units / unit)
        variables = " ".join(f"{name}={value}" for name, value in self.environment.items())
        drop_in = f"[Service]\nExecStart=\nExecStart={' '.join((*GPUWATCH, *arguments))}\nEnvironment={variables}\n"
        (units / f"{unit}.d").mkdir(exist_ok=True)
        (units / f"{unit}.d/test.conf").write_text(drop_in + service, encoding="utf-8")
        self.run("systemctl", "daemon-reload")

    def restart_fresh(self, unit: str) -> None:
        """Restart an agent as one that knows of nothing that was."""
        self.run("systemctl", "stop", unit, check=False)
        self.run("sh", "-c", _FORGET)
        self.restart_unit(unit)

    def restart_unit(self, unit: str) -> None:
        """A fresh start of it; where the kernel refused the service its cgroup, systemd's own next try counts.

        A service that is begun while the group of the one before is being taken away may end with 219 (CGROUP), with
        an Input/output error in the journal: the host's business, and nothing of the unit's own has run yet.
        """
        self.run("systemctl", "restart", unit, check=False)
        if _NO_CGROUP in self.journal(unit):
            eventually(lambda: self.show(unit, "ActiveState") == "active", lambda: self.journal(unit))
        assert self.show(unit, "ActiveState") == "active", self.journal(unit)

    def settings(self, text: str) -> None:
        """The configuration file."""
        (self.root / "etc/gpuwatch/gpuwatch.yaml").write_text(text, encoding="utf-8")

    def show(self, unit: str, name: str) -> str:
        """A property of a unit."""
        return self.run("systemctl", "show", "--property", name, "--value", unit).strip()

    def journal(self, unit: str, *options: str) -> str:
        """The messages of a unit, one a line."""
        return self.run("journalctl", "--no-pager", "--quiet", "--output=cat", f"--unit={unit}", *options)

    def get(self, url: str) -> str:
        """A page that something in the machine serves; empty while nobody does."""
        code = "import sys, urllib.request as u; sys.stdout.write(u.urlopen(sys.argv[1], timeout=5).read().decode())"
        return self.run(PYTHON, "-c", code, url, check=False)

    def _leader(self) -> int:
        """Its first process, as this host numbers it."""
        tasks = Path(f"/proc/{self._nspawn.pid}/task").glob("*/children")
        children = [int(pid) for task in tasks for pid in task.read_text(encoding="ascii").split()]
        return children[0] if children else 0

    def _up(self) -> bool:
        leader = self._leader()
        return leader != 0 and self.run("systemctl", "is-active", _TARGET, check=False).strip() == "active"
