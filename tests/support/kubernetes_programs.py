"""Builds a real kube-apiserver and etcd from their Go modules: `python3 tests/support/kubernetes_programs.py [NAME …]`.

No Debian package has them at these versions, but every Go toolchain can make them; what it downloads is checked against
Go's database of checksums. Some eight minutes of one processor, once; the programs are kept outside the repository.
Without arguments it makes what every run of the tests needs, the `definitions` of other projects' kinds with it; `helm`
and `kubeconform` are for who changes the chart, `kube-controller-manager`, `kube-scheduler`, `kwok`,
`jobset-controller`, `lws-controller`, `kueue-manager` and `karpenter-kwok` for who changes what happens to pods and
nodes. It uses the standard library alone, as it runs first.
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
    "jobset-controller": Program("sigs.k8s.io/jobset", "v0.11.1", "sigs.k8s.io/jobset"),
    "lws-controller": Program("sigs.k8s.io/lws", "v0.8.0", "sigs.k8s.io/lws/cmd"),
    "kueue-manager": Program("sigs.k8s.io/kueue", "v0.17.0", "sigs.k8s.io/kueue/cmd/kueue"),
    "karpenter-kwok": Program("sigs.k8s.io/karpenter", "v1.14.1", "sigs.k8s.io/karpenter/kwok"),
    "kwok": Program("sigs.k8s.io/kwok", "v0.8.0", "sigs.k8s.io/kwok/cmd/kwok"),
    "kubeconform": Program("github.com/yannh/kubeconform", "v0.8.0", "github.com/yannh/kubeconform/cmd/kubeconform"),
    "helm": Program("helm.sh/helm/v3", "v3.22.0", "helm.sh/helm/v3/cmd/helm"),
}
STARTED_BY_TESTS = ("etcd", "kube-apiserver")
DEFINITIONS = "definitions"


@dataclass(frozen=True, slots=True)
class Definitions:
    """Files of a Go module in which a project defines its kinds; `checksum` is the module's, as go.sum has it."""

    module: str
    version: str
    checksum: str
    files: tuple[str, ...]


KINDS_OF = {
    "argo-rollouts": Definitions(
        "github.com/argoproj/argo-rollouts",
        "v1.8.3",
        "h1:blbtQva4IK9r6gFh+dWkCrLnFdPOWiv9ubQYu36qeaA=",
        ("manifests/crds/rollout-crd.yaml",),
    ),
    "argo-workflows": Definitions(
        "github.com/argoproj/argo-workflows/v3",
        "v3.7.0",
        "h1:TDijZztm6dLruB7yZLH+Ps4OJKRwu0YSAJ4/NvceON0=",
        tuple(f"manifests/base/crds/minimal/argoproj.io_{each}.yaml" for each in ("workflows", "cronworkflows")),
    ),
    "jobset": Definitions(
        "sigs.k8s.io/jobset",
        "v0.11.1",
        "h1:WgLEBnXTeX+4MxfVkIbfm4jIVgjvIY6Jfaei2okxKNk=",
        ("config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml",),
    ),
    "karpenter": Definitions(
        "sigs.k8s.io/karpenter",
        "v1.14.1",
        "h1:GjqvOHLjl2+OXM0ti5VEZSQuvcitB0pETd8zdChXEtI=",
        (
            *(f"pkg/apis/crds/karpenter.sh_{each}.yaml" for each in ("nodepools", "nodeclaims", "nodeoverlays")),
            "pkg/apis/crds/autoscaling.x-k8s.io_capacitybuffers.yaml",
            "kwok/apis/crds/karpenter.kwok.sh_kwoknodeclasses.yaml",
        ),
    ),
    "keda": Definitions(
        "github.com/kedacore/keda/v2",
        "v2.18.0",
        "h1:ttR223fii/4QJ0YvtrhcWHaEoezByb/t5CeFopjl6EI=",
        ("config/crd/bases/keda.sh_scaledjobs.yaml",),
    ),
    "knative": Definitions(
        "knative.dev/serving",
        "v0.47.0",
        "h1:qNe8GcI12VigsGRqBojqTE/u63rikAWAtGliEOgNxAY=",
        tuple(f"config/core/300-resources/{each}.yaml" for each in ("service", "configuration", "revision")),
    ),
    "kserve": Definitions(
        "github.com/kserve/kserve",
        "v0.15.0",
        "h1:TK6lN8XVIzc/5KQ76GULEKYiJ2obkTRRI3Z2Iwuld5Y=",
        ("config/crd/full/serving.kserve.io_inferenceservices.yaml",),
    ),
    "kuberay": Definitions(
        "github.com/ray-project/kuberay/ray-operator",
        "v1.6.0",
        "h1:1hs7Di2U/vm09ot7MIU8jUqEo7gHDc4gkbv1eFvqCsQ=",
        tuple(
            f"config/crd/bases/ray.io_{each}.yaml" for each in ("rayclusters", "rayjobs", "raycronjobs", "rayservices")
        ),
    ),
    "kueue": Definitions(
        "sigs.k8s.io/kueue",
        "v0.17.0",
        "h1:7hzb38M4eKGzYW+CFv2s1L+swzzacUCHOCXxZmAV90I=",
        tuple(
            f"config/components/crd/bases/kueue.x-k8s.io_{each}.yaml"
            for each in (
                *("workloads", "clusterqueues", "localqueues", "resourceflavors", "cohorts", "topologies"),
                *("admissionchecks", "multikueueclusters", "multikueueconfigs", "provisioningrequestconfigs"),
                *("workloadpriorityclasses",),
            )
        ),
    ),
    "longhorn": Definitions(
        "github.com/longhorn/longhorn-manager",
        "v1.10.0",
        "h1:Sod6dxBLu9JD/f2Ff59i6SAAc76/OaNdJab7UOpKRig=",
        ("k8s/crds.yaml",),
    ),
    "lws": Definitions(
        "sigs.k8s.io/lws",
        "v0.8.0",
        "h1:DdhJ8QabwTfWgbgaHH2gdf8twliioHaoSfmDXRYEVU0=",
        ("config/crd/bases/leaderworkerset.x-k8s.io_leaderworkersets.yaml",),
    ),
    "mpi-operator": Definitions(
        "github.com/kubeflow/mpi-operator",
        "v0.8.0",
        "h1:22EccUiO4VDooG4TooesdE8o8euGVj89PIRhiP24SRE=",
        ("manifests/base/kubeflow.org_mpijobs.yaml",),
    ),
    "spark-operator": Definitions(
        "github.com/kubeflow/spark-operator/v2",
        "v2.5.0",
        "h1:NNgTHgQMbrGZSFJtprjssdtCaL/qlYYQY1EyXuRaP78=",
        tuple(
            f"config/crd/bases/sparkoperator.k8s.io_{each}.yaml"
            for each in ("sparkapplications", "scheduledsparkapplications")
        ),
    ),
    "tekton": Definitions(
        "github.com/tektoncd/pipeline",
        "v1.6.0",
        "h1:A+D+jzOVl2QNl/yiNT7csVgBUy2wpz6K6+/D4q5lfss=",
        tuple(f"config/300-crds/300-{each}.yaml" for each in ("taskrun", "pipelinerun")),
    ),
    "trainer": Definitions(
        "github.com/kubeflow/trainer/v2",
        "v2.2.0",
        "h1:whChZckEtycLo1UKH/M0hiNaCUozbLvf9JrgmMv+TAg=",
        ("manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml",),
    ),
    "training-operator": Definitions(
        "github.com/kubeflow/training-operator",
        "v1.9.3",
        "h1:aaSHqskOtCY8Dn8sVd+l9p5XAczW6O0nYMPjVLAw/lc=",
        tuple(
            f"manifests/base/crds/kubeflow.org_{each}.yaml"
            for each in ("pytorchjobs", "tfjobs", "xgboostjobs", "jaxjobs", "paddlejobs", "mpijobs")
        ),
    ),
    "volcano": Definitions(
        "volcano.sh/volcano",
        "v1.10.0",
        "h1:+GzQinGgeV0j58WpWpxByOXgF+YfUPW55zghM8GqjF0=",
        ("config/crd/volcano/bases/batch.volcano.sh_jobs.yaml",),
    ),
}


class BuildError(Exception):
    """Why a program cannot be made here, as a sentence."""


def cache() -> Path:
    """Where the programs are kept, for all checkouts of this user."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpuwatch-tests"


def built(name: str) -> Path:
    """Where a program of that version lies once it is built."""
    return cache() / f"{name}-{PROGRAMS[name].version}" / name


def defined(name: str) -> Path:
    """The folder with a project's definitions of that version once they are fetched."""
    return cache() / f"definitions-{name}-{KINDS_OF[name].version}"


def fetched(name: str) -> bool:
    """Whether all of them are there."""
    return all((defined(name) / Path(each).name).exists() for each in KINDS_OF[name].files)


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


def fetch(name: str, go: str) -> None:
    """Put a project's definitions where `defined` says, as the last step.

    Raises:
        BuildError: a step of Go's failed, or the module is not the one that was pinned.

    """
    wanted, target = KINDS_OF[name], defined(name)
    work = target.with_name(f"{target.name}.new")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    told = json.loads(_go(go, "mod", "download", "-json", f"{wanted.module}@{wanted.version}", folder=work))
    if told["Sum"] != wanted.checksum:
        raise BuildError(f"{wanted.module} {wanted.version} has the checksum {told['Sum']}, and not {wanted.checksum}")
    for each in wanted.files:
        shutil.copyfile(Path(told["Dir"]) / each, work / Path(each).name)
    shutil.rmtree(target, ignore_errors=True)
    work.replace(target)


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
    """Make those that are missing; 1 with a sentence for each that cannot be made."""
    wanted = [each for name in names for each in (KINDS_OF if name == DEFINITIONS else (name,))]
    if all(_there(name) for name in wanted):
        return 0
    failed = 0
    with alone():
        for name in wanted:
            if _there(name):
                continue
            try:
                if name in PROGRAMS:
                    say(f"  building {name} {PROGRAMS[name].version} from its Go module (once, minutes)")
                    build(name, toolchain())
                else:
                    say(f"  fetching the definitions of {name} {KINDS_OF[name].version} from its Go module (once)")
                    fetch(name, toolchain())
            except BuildError as error:
                made = "build" if name in PROGRAMS else "fetch the definitions of"
                say(f"Could not {made} {name}: {error}; its tests are skipped.")
                failed = 1
    return failed


def _there(name: str) -> bool:
    return built(name).exists() if name in PROGRAMS else fetched(name)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or (*STARTED_BY_TESTS, DEFINITIONS)))
