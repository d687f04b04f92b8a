"""The rest of a cluster for the tests that need it: kube-controller-manager, kube-scheduler, and KWOK for kubelets.

They are no part of what every run builds; `python3 tests/support/kubernetes_programs.py kube-controller-manager
kube-scheduler kwok` does it once, in some six minutes of one processor.
"""

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

from tests.support.components import missing, require
from tests.support.kubernetes_programs import built
from tests.support.real.agents import eventually, free_port
from tests.support.real.kubernetes import ControlPlane
from tests.support.real.kubernetes_api import Object

PROGRAMS = ("kube-controller-manager", "kube-scheduler", "kwok")
# What these tests look at; all others would only cost time.
_CONTROLLERS = (
    *("deployment-controller", "replicaset-controller", "statefulset-controller", "daemonset-controller"),
    *("job-controller", "disruption-controller", "node-lifecycle-controller", "taint-eviction-controller"),
    *("garbage-collector-controller", "pod-garbage-collector-controller"),
)
_ENVIRONMENT = {"GOMEMLIMIT": "200MiB", "GOGC": "50"}
_NONE: Mapping[str, str] = {}
_RUNNING = """
phase: Running
startTime: {{ Now | Quote }}
podIP: 10.77.0.1
conditions:
- {type: Initialized, status: "True", lastTransitionTime: {{ Now | Quote }}}
- {type: Ready, status: "True", lastTransitionTime: {{ Now | Quote }}}
- {type: ContainersReady, status: "True", lastTransitionTime: {{ Now | Quote }}}
"""
_READY = """
phase: Running
conditions:
- {type: Ready, status: "True", reason: KubeletReady, message: "", lastTransitionTime: {{ Now | Quote }}}
"""


def possible() -> bool:
    """Whether all of them are built here."""
    return all(built(name).exists() for name in PROGRAMS)


@contextmanager
def controllers(plane: ControlPlane) -> Iterator[None]:
    """They run: what is scheduled begins to run at once, and ends as soon as it is asked to go."""
    kubeconfig = str(plane.kubeconfig())
    stages = plane.folder / "stages.yaml"
    stages.write_text("\n---\n".join(map(json.dumps, _stages())), encoding="utf-8")  # JSON is YAML
    key = plane.folder / "server.key"
    wanted = [
        f"--controllers={','.join(_CONTROLLERS)}",
        f"--service-account-private-key-file={key}",
        *("--leader-elect=false", "--secure-port=0", f"--kubeconfig={kubeconfig}"),
    ]
    nodes = [
        *("--manage-all-nodes=true", "--node-ip=127.0.0.1", "--cidr=10.77.0.0/16", "--node-lease-duration-seconds=40"),
        f"--server-address=127.0.0.1:{free_port()}",
        *(f"--config={stages}", f"--kubeconfig={kubeconfig}"),
    ]
    running = [
        start(plane, "kube-controller-manager", *wanted),
        start(plane, "kube-scheduler", "--leader-elect=false", "--secure-port=0", f"--kubeconfig={kubeconfig}"),
        start(plane, "kwok", *nodes),
    ]
    try:
        yield
        plane.empty()  # while there is somebody to take finalizers away
        eventually(lambda: not any(map(plane.admin.list, ("Pod", "Job", "ReplicaSet"))), lambda: told(plane))
    finally:
        for process in running:
            process.kill()
            process.wait(30)


def jobset_controller(plane: ControlPlane) -> AbstractContextManager[None]:
    """JobSet's own controller, and its webhooks, which fill in and refuse what is written."""
    rule = {"apiGroups": ["jobset.x-k8s.io"], "apiVersions": ["v1alpha2"], "resources": ["jobsets"]}
    return _operator(plane, "jobset-controller", "config.jobset.x-k8s.io", [("jobset-x-k8s-io-v1alpha2-jobset", rule)])


def lws_controller(plane: ControlPlane) -> AbstractContextManager[None]:
    """LeaderWorkerSet's own controller, and its webhooks, which also number the pods of each group."""
    sets = {"apiGroups": [_LWS], "apiVersions": ["v1"], "resources": ["leaderworkersets"]}
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    hooks = [("leaderworkerset-x-k8s-io-v1-leaderworkerset", sets), ("-v1-pod", pods)]
    return _operator(plane, "lws-controller", "config.lws.x-k8s.io", hooks)


_LWS = "leaderworkerset.x-k8s.io"


def kueue_manager(plane: ControlPlane) -> AbstractContextManager[None]:
    """Kueue's own manager for Jobs, and its webhook, which suspends those of a queue."""
    if subprocess.run([*_OWN_FOLDERS, "true"], capture_output=True, check=False).returncode:
        missing(f"`{' '.join(_OWN_FOLDERS)}` is refused here, and Kueue's manager reads a folder below /etc")
    jobs = {"apiGroups": ["batch"], "apiVersions": ["v1"], "resources": ["jobs"], "operations": ["CREATE"]}
    more = {"integrations": {"frameworks": ["batch/job"]}, "featureGates": {"VisibilityOnDemand": False}}
    kinds = [("batch-v1-job", jobs)]
    return _operator(plane, "kueue-manager", "config.kueue.x-k8s.io", kinds, more, begins=_WITH_CERTIFICATES)


# Where its webhook's certificates are given, it wants those of its metrics in this folder of its container.
_OWN_FOLDERS = ("unshare", "--map-root-user", "--mount")
_WITH_CERTIFICATES = (
    *(*_OWN_FOLDERS, "sh", "-c"),
    'mount -t tmpfs none /etc && mkdir -p "$0" && cp kueue-manager.d/tls.* "$0" && exec "$@"',
    "/etc/kueue/metrics/certs",
)


@contextmanager
def _operator(
    plane: ControlPlane,
    name: str,
    group: str,
    hooks: list[tuple[str, Object]],
    more: Object | None = None,
    begins: Sequence[str] = (),
) -> Iterator[None]:
    """A project's own controller with its webhooks, each by the end of its path and by what it is asked about."""
    certificates, port = plane.folder / f"{name}.d", free_port()
    certificates.mkdir()
    for link, file in (("tls.crt", "server.pem"), ("tls.key", "server.key")):
        (certificates / link).symlink_to(plane.folder / file)
    settings = certificates / "settings.yaml"
    wanted = {
        "apiVersion": f"{group}/{'v1beta2' if more else 'v1alpha1'}",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "webhook": {"host": "127.0.0.1", "port": port, "certDir": str(certificates)},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": "0"},
        **(more or {}),
    }
    settings.write_text(json.dumps(wanted), encoding="utf-8")
    running = start(plane, name, f"--config={settings}", f"--kubeconfig={plane.kubeconfig()}", begins=begins)
    paths = [(f"/apis/admissionregistration.k8s.io/v1/{kind.lower()}configurations", kind) for kind in _HOOKS]
    try:
        for path, kind in paths:
            plane.admin.ask("POST", path, _hook(plane, name, kind, port, hooks))
        yield
    finally:
        for path, _ in paths:
            plane.admin.ask("DELETE", f"{path}/{name}")
        running.kill()
        running.wait(30)
        shutil.rmtree(certificates)


_HOOKS = ("MutatingWebhook", "ValidatingWebhook")


def _hook(plane: ControlPlane, name: str, kind: str, port: int, hooks: list[tuple[str, Object]]) -> Object:
    """As the project's manifests have it; of pods those that a LeaderWorkerSet has labelled."""
    authority = base64.b64encode(plane.ca.read_bytes()).decode()
    url = f"https://127.0.0.1:{port}/{'mutate' if kind == _HOOKS[0] else 'validate'}-"
    made = [
        {
            "name": f"h{number}.{name}.io",
            "clientConfig": {"url": f"{url}{path}", "caBundle": authority},
            "rules": [{"operations": ["CREATE", "UPDATE"], **rule}],
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            **({} if rule["apiGroups"] != [""] else {"objectSelector": _OF_SETS}),
        }
        for number, (path, rule) in enumerate(hooks)
    ]
    version = "admissionregistration.k8s.io/v1"
    return {"apiVersion": version, "kind": f"{kind}Configuration", "metadata": {"name": name}, "webhooks": made}


_OF_SETS = {"matchExpressions": [{"key": "leaderworkerset.sigs.k8s.io/name", "operator": "Exists"}]}


def told(plane: ControlPlane) -> str:
    """The end of what each of them said."""
    return "\n".join((plane.folder / f"{name}.log").read_text(errors="replace")[-1500:] for name in PROGRAMS)


def _stages() -> tuple[Object, ...]:
    """What a kubelet does: it takes part with its node, which it says once; it runs the node's pods, and ends them.

    Nodes that Karpenter has made wait to be ready; those of the tests are. A pod that is asked to go has failed before
    it is gone, and others' finalizers hold it until they have seen that.
    """
    alone, going = ({"key": ".metadata.deletionTimestamp", "operator": each} for each in ("DoesNotExist", "Exists"))
    begins = {"key": ".status.phase", "operator": "In", "values": ["Pending"]}
    over = {"key": ".status.phase", "operator": "In", "values": ["Failed", "Succeeded"]}
    new = {"key": ".status.phase", "operator": "DoesNotExist"}
    return (
        _stage("Node", "joins", [new], {"statusTemplate": "phase: Running"}),
        _stage("Node", "boots", [begins], {"statusTemplate": _READY}),
        _stage("Pod", "runs", [begins, alone], {"statusTemplate": _RUNNING}),
        _stage("Pod", "ends", [going, {**over, "operator": "NotIn"}], {"statusTemplate": "phase: Failed"}),
        _stage("Pod", "gone", [going, over], {"delete": True}),
    )


def _stage(kind: str, name: str, holds: list[Object], then: Object) -> Object:
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": f"{kind}-{name}".lower()},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": kind},
            "selector": {"matchExpressions": holds},
            "next": then,
        },
    }


def start(
    plane: ControlPlane, name: str, *arguments: str, begins: Sequence[str] = (), environment: Mapping[str, str] = _NONE
) -> subprocess.Popen[bytes]:
    """One of them; the kernel ends it with the test process."""
    with (plane.folder / f"{name}.log").open("ab") as written:
        return subprocess.Popen(
            ["setpriv", "--pdeathsig=KILL", *begins, require(name), *arguments],
            cwd=plane.folder,
            env={**os.environ, **_ENVIRONMENT, **environment},
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=written,
        )
