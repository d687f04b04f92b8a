"""A real control plane for tests: one etcd and one kube-apiserver for each test process, on loopback, and no kubelet.

What a kubelet, a scheduler and controllers would do is done by the tests: `tests/support/builders/kubernetes.py` has
nodes and pods as these leave them. PodDisruptionBudgets have the status that a test gives them.
"""

import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.support.components import require
from tests.support.real.agents import eventually, free_port
from tests.support.real.certificates import Authority
from tests.support.real.kubernetes_api import Api, ApiError, Object

_ADMIN = "administrator-of-the-tests"
# Small, and without waiting for what only a whole cluster has.
_ETCD = ("--unsafe-no-fsync", "--log-level=error", "--quota-backend-bytes=2147483648")
_API_SERVER = (
    "--bind-address=127.0.0.1",
    "--authorization-mode=RBAC",
    "--service-account-issuer=https://kubernetes.default.svc",
    "--service-cluster-ip-range=10.0.0.0/24",
    "--endpoint-reconciler-type=none",
    "--disable-admission-plugins=ServiceAccount",  # its controller, which makes the namespace's account, does not run
    "--profiling=false",
    "--runtime-config=resource.k8s.io/v1beta2=true",  # DeviceTaintRules, off by default in 1.36
    "--feature-gates=DRADeviceTaintRules=true",
    "--shutdown-delay-duration=0s",
)
# Who is allowed what, and who was refused, of service accounts alone.
_AUDIT = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - {level: Metadata, userGroups: ["system:serviceaccounts"]}
  - {level: None}
"""
_EMPTIED = (
    *("Pod", "PodDisruptionBudget", "Deployment", "ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet"),
    *("Job", "CronJob", "Node", "CustomResourceDefinition"),
)
_ENVIRONMENT = {"GOMEMLIMIT": "1GiB", "GOGC": "50"}


@dataclass(frozen=True, slots=True)
class Account:
    """A service account, and the token that its pods would find mounted."""

    user: str
    token: str


@dataclass(frozen=True, slots=True, order=True)
class Asked:
    """A kind of request that an account has made: `what` is group and resource, such as `apps/replicasets`."""

    what: str
    verb: str
    allowed: bool = True


@dataclass(slots=True)
class ControlPlane:
    """One running API server with its etcd."""

    folder: Path
    authority: Authority
    port: int
    etcd_port: int
    etcd: subprocess.Popen[bytes]
    server: subprocess.Popen[bytes]
    admin: Api
    keeps_kinds: bool = False  # `empty` leaves them: their API server takes seconds to learn a long definition
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def url(self) -> str:
        """Of the API server."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def ca(self) -> Path:
        """The authority of its certificate."""
        return self.authority.ca

    def namespace(self) -> str:
        """A new, empty namespace."""
        name = f"team-{next(self._numbers)}"
        self.admin.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        return name

    def custom(self, *kinds: Object) -> None:
        """Kinds of other systems, known and served when this returns."""
        for kind in kinds:
            eventually(lambda kind=kind: self._new(kind), f"{kind['metadata']['name']} does not end".__str__)  # type: ignore[misc]  # this one
        for kind in kinds:
            self._wait_served(kind)

    def _wait_served(self, kind: Object) -> None:
        """Until the API server lists objects of it."""
        group, plural = kind["spec"]["group"], kind["spec"]["names"]["plural"]
        (version,) = (each["name"] for each in kind["spec"]["versions"] if each["storage"])

        def served() -> bool:
            with contextlib.suppress(ApiError):
                return bool(self.admin.ask("GET", f"/apis/{group}/{version}/{plural}"))
            return False

        eventually(served, f"{plural}.{group} is not served".__str__)

    def _new(self, kind: Object) -> bool:
        """False while one of that name from an earlier test is about to end."""
        try:
            self.admin.create(kind)
        except ApiError as error:
            if error.status != 409:
                raise
            return False
        return True

    def kubeconfig(self, token: str = _ADMIN, *, port: int | None = None) -> Path:
        """A kubeconfig for a token, the administrator's by default; `port` is of something between, such as a proxy."""
        path = self.folder / f"kubeconfig-{next(self._numbers)}"
        cluster = {"server": f"https://127.0.0.1:{port or self.port}", "certificate-authority": str(self.ca)}
        parts = {
            "clusters": [{"name": "tests", "cluster": cluster}],
            "users": [{"name": "tests", "user": {"token": token}}],
            "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "tests"}}],
        }
        text = yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "current-context": "tests", **parts})
        path.write_text(text, encoding="utf-8")
        path.chmod(0o600)
        return path

    def service_account(self, namespace: str, rules: Sequence[Object] = ()) -> Account:
        """A new one that has a ClusterRole of these rules, and nothing else."""
        name = f"account-{next(self._numbers)}"
        rbac = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name}}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
        subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
        self.admin.create(
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}},
            {**rbac, "kind": "ClusterRole", "rules": list(rules)},
            {**rbac, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": [subject]},
        )
        token = self.admin.service_account_token(namespace, name)
        return Account(f"system:serviceaccount:{namespace}:{name}", token)

    def asked(self, account: Account) -> set[Asked]:
        """What the account has asked for so far, by the API server's own audit log."""
        found = set()
        written = (self.folder / "audit.log").read_bytes()
        # The API server may be in the middle of its last line.
        for line in written[: written.rfind(b"\n") + 1].splitlines():
            event = json.loads(line)
            target = event.get("objectRef", {})
            if event["user"]["username"] == account.user and "resource" in target:
                parts = (target.get("apiGroup"), target["resource"], target.get("subresource"))
                decision = event["annotations"]["authorization.k8s.io/decision"]
                found.add(Asked("/".join(filter(None, parts)), event["verb"], decision == "allow"))
        return found

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """The API server takes connections and says nothing."""
        self.server.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.server.send_signal(signal.SIGCONT)
            eventually(self.ready, "the API server does not answer again".__str__)

    @contextmanager
    def down(self) -> Iterator[None]:
        """The API server is killed, and started again at the end; etcd keeps everything."""
        self.server.kill()
        self.server.wait(30)
        try:
            yield
        finally:
            self.server = _start_server(self.folder, self.port, self.etcd_port)
            self._wait()

    @contextmanager
    def elsewhere(self) -> Iterator[Api]:
        """While the API server is `down`: another one on the same etcd, so that the world goes on unseen."""
        port = free_port()
        other = _start_server(self.folder, port, self.etcd_port)
        api = Api(port, self.authority.client(), _ADMIN)
        try:
            eventually(lambda: _ready(api) or other.poll() is not None, self.log)
            yield api
        finally:
            api.close()
            other.kill()
            other.wait(30)

    def compact(self) -> None:
        """Etcd forgets every version but the latest: a watch from an older one is answered with 410 Gone."""
        status = self._etcd("maintenance/status", {})
        self._etcd("kv/compaction", {"revision": status["header"]["revision"], "physical": True})

    def empty(self) -> None:
        """Nodes, pods, workloads and budgets of a test end with it; namespaces stay, for nothing finishes them here."""
        for kind in _EMPTIED:
            if kind != "CustomResourceDefinition" or not self.keeps_kinds:
                self.admin.delete_all(kind)

    def ready(self) -> bool:
        """Whether it answers."""
        return _ready(self.admin)

    def log(self) -> str:
        """The end of what both said."""
        return "\n".join((self.folder / name).read_text(errors="replace")[-2000:] for name in ("etcd.log", "api.log"))

    def stop(self) -> None:
        """End both, and forget everything."""
        self.admin.close()
        for process in (self.server, self.etcd):
            process.kill()
            process.wait(30)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _wait(self) -> None:
        try:
            eventually(lambda: self.server.poll() is not None or self.ready(), self.log)
        except AssertionError:
            self.stop()
            raise
        assert self.server.poll() is None, self.log()

    def _etcd(self, path: str, body: Object) -> dict[str, Any]:
        """Its own API, as JSON."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.etcd_port}/v3/{path}", json.dumps(body).encode(), method="POST"
        )
        with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310  our own
            answer: dict[str, Any] = json.load(response)
        return answer


@cache
def control_plane() -> ControlPlane:
    """This process's, started by the first test that needs it; some five seconds and 350 MB."""
    plane = _start_control_plane()
    _ENDS.append(plane.stop)
    return plane


@contextmanager
def another_control_plane() -> Iterator[ControlPlane]:
    """A second cluster beside this process's, for one test."""
    plane = _start_control_plane()
    try:
        yield plane
    finally:
        plane.stop()


def _start_control_plane() -> ControlPlane:
    for name in ("etcd", "kube-apiserver"):
        require(name)
    folder = Path(tempfile.mkdtemp(prefix="gpuwatch-kubernetes-"))
    authority = Authority(folder / "authority")
    issued = authority.issue("server")
    # One pair of files: the API server signs its service accounts' tokens with the same key.
    shutil.copy(issued.key, folder / "server.key")
    shutil.copy(issued.certificate, folder / "server.pem")
    (folder / "audit.yaml").write_text(_AUDIT, encoding="ascii")
    (folder / "tokens.csv").write_text(f'{_ADMIN},admin,1,"system:masters"\n', encoding="ascii")
    port, etcd_port = free_port(), free_port()
    etcd = _start_etcd(folder, etcd_port)
    server = _start_server(folder, port, etcd_port)
    plane = ControlPlane(folder, authority, port, etcd_port, etcd, server, Api(port, authority.client(), _ADMIN))
    plane._wait()
    return plane


_ENDS: list[Callable[[], None]] = []


def end_control_plane() -> None:
    """Stop this process's, if a test has started one."""
    while _ENDS:
        _ENDS.pop()()
    control_plane.cache_clear()


def _start_etcd(folder: Path, port: int) -> subprocess.Popen[bytes]:
    url, peers = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{free_port()}"
    places = (f"--listen-client-urls={url}", f"--advertise-client-urls={url}", f"--listen-peer-urls={peers}")
    ring = (f"--initial-advertise-peer-urls={peers}", f"--initial-cluster=default={peers}")
    return _start(folder, "etcd", "etcd.log", f"--data-dir={folder / 'etcd'}", *places, *ring, *_ETCD)


def _start_server(folder: Path, port: int, etcd_port: int) -> subprocess.Popen[bytes]:
    keys = (
        f"--tls-cert-file={folder / 'server.pem'}",
        f"--tls-private-key-file={folder / 'server.key'}",
        f"--service-account-key-file={folder / 'server.key'}",
        f"--service-account-signing-key-file={folder / 'server.key'}",
        f"--token-auth-file={folder / 'tokens.csv'}",
        f"--audit-policy-file={folder / 'audit.yaml'}",
        f"--audit-log-path={folder / 'audit.log'}",
    )
    places = (f"--secure-port={port}", f"--etcd-servers=http://127.0.0.1:{etcd_port}")
    return _start(folder, "kube-apiserver", "api.log", *places, *keys, *_API_SERVER)


def _start(folder: Path, name: str, log: str, *arguments: str) -> subprocess.Popen[bytes]:
    """One of both, which the kernel ends with the thread that started it: the test process's main one."""
    with (folder / log).open("ab") as written:
        return subprocess.Popen(
            ["setpriv", "--pdeathsig=KILL", require(name), *arguments],
            cwd=folder,
            env={**os.environ, **_ENVIRONMENT},
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=written,
        )


def _ready(api: Api) -> bool:
    with contextlib.suppress(OSError, ApiError):
        return api.ask("GET", "/readyz", timeout=5.0) == {"message": "ok"}
    return False
