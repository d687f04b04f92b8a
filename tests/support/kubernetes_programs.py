"""Builds a real kube-apiserver and etcd from their Go modules: `python3 tests/support/kubernetes_programs.py [NAME …]`.

No Debian package has them at these versions, but every Go toolchain can make them; what it downloads is checked against
Go's database of checksums. Some eight minutes of one processor, once; the programs are kept outside the repository.
Without arguments it builds what every run of the tests starts; `helm` and `kubeconform` are for who changes the chart,
`kube-controller-manager`, `kube-scheduler` and `kwok` for who changes what happens to pods. It uses the standard
library alone, for it runs before anything is installed.
"""

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

OLDEST_GO = (1, 26)  # as go.mod of Kubernetes 1.36 says
_TELL_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Program:
    """A command of a Go module. `staged`: its module leaves versions to its own repository, as Kubernetes does."""

    module: str
    version: str
    package: str
    staged: bool = False


PROGRAMS = {
    "etcd": Program("go.etcd.io/etcd/server/v3", "v3.6.8", "go.etcd.io/etcd/server/v3"),
    "kube-apiserver": Program("k8s.io/kubernetes", "v1.36.3", "k8s.io/kubernetes/cmd/kube-apiserver", staged=True),
    "kube-controller-manager": Program(
        "k8s.io/kubernetes", "v1.36.3", "k8s.io/kubernetes/cmd/kube-controller-manager", staged=True
    ),
    "kube-scheduler": Program("k8s.io/kubernetes", "v1.36.3", "k8s.io/kubernetes/cmd/kube-scheduler", staged=True),
    "kwok": Program("sigs.k8s.io/kwok", "v0.8.0", "sigs.k8s.io/kwok/cmd/kwok"),
    "kubeconform": Program("github.com/yannh/kubeconform", "v0.8.0", "github.com/yannh/kubeconform/cmd/kubeconform"),
    "helm": Program("helm.sh/helm/v3", "v3.22.0", "helm.sh/helm/v3/cmd/helm"),
}
STARTED_BY_TESTS = ("etcd", "kube-apiserver")


class BuildError(Exception):
    """Why a program cannot be made here, as a sentence."""


def cache() -> Path:
    """Where the programs are kept, for all checkouts of this user."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpuwatch-tests"


def built(name: str) -> Path:
    """Where a program of that version lies once it is built."""
    return cache() / f"{name}-{PROGRAMS[name].version}" / name


def toolchain() -> str:
    """The `go` of this machine.

    Raises:
        BuildError: there is none, or it is too old and must not fetch a newer one.

    """
    go = shutil.which("go", path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/go/bin"]))
    if go is None:
        raise BuildError("there is no `go` here (https://go.dev/dl; it takes one folder)")
    told = subprocess.run([go, "env", "GOVERSION", "GOTOOLCHAIN"], capture_output=True, text=True, check=True).stdout
    found = re.match(r"go(\d+)\.(\d+)", told)
    if "local" in told.split() and (found is None or tuple(map(int, found.groups())) < OLDEST_GO):
        raise BuildError(f"{told.split()[0]} is older than go{'.'.join(map(str, OLDEST_GO))}")
    return go


def replaces(go_mod: str, version: str) -> list[str]:
    """The lines that give the modules which a staged module names with v0.0.0 the versions they were published under.

    v1.36.3 of k8s.io/kubernetes goes with v0.36.3 of k8s.io/api and its other siblings.
    """
    published = f"v0.{version.partition('.')[2]}"
    return [
        f"replace {name} => {name} {published}"
        for name in sorted(set(re.findall(r"^\s*(k8s\.io/\S+) v0\.0\.0$", go_mod, re.MULTILINE)))
    ]


def build(name: str, go: str) -> None:
    """Make a program and put it where `built` says, as the last step.

    Raises:
        BuildError: a step of Go's failed.

    """
    program, target = PROGRAMS[name], built(name)
    work = target.parent / "build"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    lines = [f"module gpuwatch.io/tests/{name}", "", f"go {'.'.join(map(str, OLDEST_GO))}.0", ""]
    if program.staged:
        told = _go(go, "mod", "download", "-json", f"{program.module}@{program.version}", folder=work)
        lines += replaces(Path(json.loads(told)["GoMod"]).read_text(encoding="utf-8"), program.version)
    (work / "go.mod").write_text("\n".join(lines) + "\n", encoding="ascii")
    _go(go, "get", f"{program.package}@{program.version}", folder=work)
    stamp = "-X k8s.io/component-base/version.git"
    major, minor = program.version[1:].split(".")[:2]
    flags = f"-s -w {stamp}Version={program.version} {stamp}Major={major} {stamp}Minor={minor}"
    _go(go, "build", "-mod=mod", "-trimpath", "-ldflags", flags, "-o", "made", program.package, folder=work)
    (work / "made").replace(target)
    shutil.rmtree(work)


def _go(go: str, *arguments: str, folder: Path) -> str:
    """What one step printed; it says from time to time that it still runs."""
    done = threading.Event()
    threading.Thread(target=_tell, args=(done,), daemon=True).start()
    try:
        ended = subprocess.run(
            [go, *arguments], cwd=folder, env=_environment(os.environ), capture_output=True, text=True, check=False
        )
    finally:
        done.set()
    if ended.returncode:
        raise BuildError(
            f"`go {arguments[0]}` failed: {(ended.stderr.strip().splitlines() or ['no reason given'])[-1]}"
        )
    return ended.stdout


def _environment(given: Mapping[str, str]) -> dict[str, str]:
    """No C compiler, and no workspace that a folder above may have."""
    return {**given, "CGO_ENABLED": "0", "GOWORK": "off"}


def _tell(done: threading.Event) -> None:
    seconds = 0.0
    while not done.wait(_TELL_SECONDS):
        seconds += _TELL_SECONDS
        say(f"    still at it, {seconds:.0f} s")


def say(line: str) -> None:
    """A line of progress, at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


@contextmanager
def alone() -> "Iterator[None]":
    """Wait until nobody else builds here: who waits finds all of it built."""
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("  waiting for another build of the same")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main(names: Sequence[str]) -> int:
    """Build those that are missing; 1 with a sentence where one cannot be."""
    if all(built(name).exists() for name in names):
        return 0
    with alone():
        for name in names:
            if built(name).exists():
                continue
            say(f"  building {name} {PROGRAMS[name].version} from its Go module (once, minutes)")
            try:
                build(name, toolchain())
            except BuildError as error:
                say(f"Could not build {name}: {error}; its tests are skipped.")
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or STARTED_BY_TESTS))
