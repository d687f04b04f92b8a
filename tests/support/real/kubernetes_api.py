"""A plain client of a real kube-apiserver, for tests: as an administrator, or with somebody's token.

It shares nothing with gpuwatch's own client, whose work it looks at from outside.
"""

import json
import select
import ssl
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPSConnection
from typing import Any

from gpuwatch.model.workload_kinds import KINDS

Object = dict[str, Any]
_MERGE = "application/merge-patch+json"
# Where the objects of a kind lie; a namespace stands between the parts.
_PLACES = {
    "ClusterRole": ("/apis/rbac.authorization.k8s.io/v1", "clusterroles"),
    "ClusterRoleBinding": ("/apis/rbac.authorization.k8s.io/v1", "clusterrolebindings"),
    "ConfigMap": ("/api/v1", "configmaps"),
    "CronJob": ("/apis/batch/v1", "cronjobs"),
    "CustomResourceDefinition": ("/apis/apiextensions.k8s.io/v1", "customresourcedefinitions"),
    "DaemonSet": ("/apis/apps/v1", "daemonsets"),
    "Deployment": ("/apis/apps/v1", "deployments"),
    "DeviceClass": ("/apis/resource.k8s.io/v1", "deviceclasses"),
    "DeviceTaintRule": ("/apis/resource.k8s.io/v1beta2", "devicetaintrules"),
    "Event": ("/api/v1", "events"),
    "Ingress": ("/apis/networking.k8s.io/v1", "ingresses"),
    "Job": ("/apis/batch/v1", "jobs"),
    "Namespace": ("/api/v1", "namespaces"),
    "EndpointSlice": ("/apis/discovery.k8s.io/v1", "endpointslices"),
    "NetworkPolicy": ("/apis/networking.k8s.io/v1", "networkpolicies"),
    "Node": ("/api/v1", "nodes"),
    "Notebook": ("/apis/kubeflow.org/v1", "notebooks"),
    "PersistentVolume": ("/api/v1", "persistentvolumes"),
    "PersistentVolumeClaim": ("/api/v1", "persistentvolumeclaims"),
    "Pod": ("/api/v1", "pods"),
    "PodDisruptionBudget": ("/apis/policy/v1", "poddisruptionbudgets"),
    "PodMonitor": ("/apis/monitoring.coreos.com/v1", "podmonitors"),
    "PrometheusRule": ("/apis/monitoring.coreos.com/v1", "prometheusrules"),
    "RayCluster": ("/apis/ray.io/v1", "rayclusters"),
    "ReplicaSet": ("/apis/apps/v1", "replicasets"),
    "ReplicationController": ("/api/v1", "replicationcontrollers"),
    "ResourceClaim": ("/apis/resource.k8s.io/v1", "resourceclaims"),
    "ResourceSlice": ("/apis/resource.k8s.io/v1", "resourceslices"),
    "Role": ("/apis/rbac.authorization.k8s.io/v1", "roles"),
    "RoleBinding": ("/apis/rbac.authorization.k8s.io/v1", "rolebindings"),
    "Service": ("/api/v1", "services"),
    "ServiceAccount": ("/api/v1", "serviceaccounts"),
    "ServiceMonitor": ("/apis/monitoring.coreos.com/v1", "servicemonitors"),
    "StatefulSet": ("/apis/apps/v1", "statefulsets"),
    "ValidatingAdmissionPolicy": ("/apis/admissionregistration.k8s.io/v1", "validatingadmissionpolicies"),
    "ValidatingAdmissionPolicyBinding": ("/apis/admissionregistration.k8s.io/v1", "validatingadmissionpolicybindings"),
}
_KUEUE = ("Workload", "ResourceFlavor", "ClusterQueue", "LocalQueue")
_OTHERS = {**{("kueue.x-k8s.io", each): f"{each.lower()}s" for each in _KUEUE}, ("longhorn.io", "Replica"): "replicas"}
_WITHOUT_NAMESPACE = {
    *("ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "Namespace", "Node"),
    *(
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "DeviceClass",
        "DeviceTaintRule",
        "ResourceSlice",
        "PersistentVolume",
    ),
}


class ApiError(AssertionError):
    """An answer that is no success, with its status and the server's sentence."""

    def __init__(self, status: int, answer: Mapping[str, Any]) -> None:
        """As the server gave it."""
        super().__init__(f"{status}: {answer.get('message', answer)}")
        self.status = status


@dataclass(slots=True)
class Api:
    """Calls with one token; one connection for each thread."""

    port: int
    tls: ssl.SSLContext
    token: str
    acts_as: str | None = None  # the user that the administrator poses as, with all rights
    _of_thread: threading.local = field(default_factory=threading.local)
    _opened: list[HTTPSConnection] = field(default_factory=list)

    def ask(
        self, method: str, path: str, body: object = None, content_type: str = "application/json", timeout: float = 30.0
    ) -> Object:
        """The answer to one request.

        Raises:
            ApiError: it was refused.
            OSError: there was no answer.

        """
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": content_type, "Accept": "application/json"}
        if self.acts_as is not None:
            headers |= {"Impersonate-User": self.acts_as, "Impersonate-Group": "system:masters"}
        connection = self._connection(timeout)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            text = response.read()
        except (OSError, HTTPException) as error:
            connection.close()  # the next request opens it again
            raise OSError(str(error)) from error
        answer: Object = json.loads(text) if text[:1] == b"{" else {"message": text.decode()}
        if response.status >= 300:
            raise ApiError(response.status, answer)
        return answer

    def create(self, *objects: Object, dry_run: bool = False) -> list[Object]:
        """New objects, each with the status that it is given, which the server ignores at the creation itself."""
        return [self._create(each, dry_run=dry_run) for each in objects]

    def create_many(self, objects: Iterable[Object], threads: int = 4) -> None:
        """The same, by several connections."""
        with ThreadPoolExecutor(threads) as pool:
            for _ in pool.map(self._create, objects):
                pass

    def get(self, kind: str, name: str, namespace: str | None = None) -> Object:
        """One object."""
        return self.ask("GET", place(kind, namespace, name))

    def find(self, kind: str, name: str, namespace: str | None = None) -> Object | None:
        """One object, or None if there is none."""
        try:
            return self.get(kind, name, namespace)
        except ApiError as error:
            if error.status != 404:
                raise
            return None

    def list(self, kind: str, namespace: str | None = None) -> list[Object]:
        """All objects of a kind."""
        found: list[Object] = self.ask("GET", place(kind, namespace))["items"]
        return found

    def patch(self, kind: str, name: str, change: Object, namespace: str | None = None, part: str = "") -> Object:
        """A merge patch, of the status with `part="/status"`."""
        return self.ask("PATCH", place(kind, namespace, name) + part, change, _MERGE)

    def delete(self, kind: str, name: str, namespace: str | None = None) -> None:
        """At once, as a kubelet confirms the end of a pod; one that is gone is no error."""
        try:
            self.ask("DELETE", place(kind, namespace, name), {"gracePeriodSeconds": 0})
        except ApiError as error:
            if error.status != 404:
                raise

    def delete_all(self, kind: str) -> None:
        """All objects of a kind, at once."""
        for namespace in {each["metadata"].get("namespace") for each in self.list(kind)}:
            self.ask("DELETE", place(kind, namespace), {"gracePeriodSeconds": 0})

    def service_account_token(self, namespace: str, name: str) -> str:
        """What a pod of that service account would find mounted."""
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        answer = self.ask("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", request)
        token: str = answer["status"]["token"]
        return token

    def with_token(self, token: str) -> "Api":
        """The same server, as somebody else."""
        return Api(self.port, self.tls, token, _opened=self._opened)

    def posing_as(self, user: str) -> "Api":
        """The same server, as that user with every right: what stops them is no role."""
        return Api(self.port, self.tls, self.token, acts_as=user, _opened=self._opened)

    def close(self) -> None:
        """End the connections of all threads, and those of `with_token`."""
        while self._opened:
            self._opened.pop().close()

    def _create(self, made: Object, *, dry_run: bool = False) -> Object:
        options = "?fieldValidation=Strict" + ("&dryRun=All" if dry_run else "")
        namespace = made["metadata"].get("namespace")
        folder = _folder(made, namespace)
        answer = self.ask("POST", folder + options, made)
        if "status" not in made or dry_run:
            return answer
        path = f"{folder}/{made['metadata']['name']}/status"
        return self.ask("PATCH", path, {"status": made["status"]}, "application/merge-patch+json")

    def _connection(self, timeout: float) -> HTTPSConnection:
        one: HTTPSConnection | None = getattr(self._of_thread, "one", None)
        if one is None:
            one = self._of_thread.one = HTTPSConnection("127.0.0.1", self.port, timeout=timeout, context=self.tls)
            self._opened.append(one)
        if one.sock is not None and select.select([one.sock], [], [], 0)[0]:
            one.close()  # the API server ends what has been silent for a minute and a half; the request opens it again
        if one.sock is not None:
            one.sock.settimeout(timeout)
        return one


def _folder(made: Object, namespace: str | None) -> str:
    """The path of all objects of one's kind; kinds of two groups may have one name."""
    group, _, version = made["apiVersion"].rpartition("/")
    resources = {(each.group, each.kind): each.resource for each in KINDS} | _OTHERS
    resource = resources.get((group, made["kind"]))
    if resource is None or not group:
        return place(made["kind"], namespace)
    return f"/apis/{group}/{version}" + ("" if namespace is None else f"/namespaces/{namespace}") + f"/{resource}"


def place(kind: str, namespace: str | None = None, name: str | None = None) -> str:
    """The path of an object, or of all of its kind."""
    group, resource = _PLACES[kind]
    inside = "" if namespace is None or kind in _WITHOUT_NAMESPACE else f"/namespaces/{namespace}"
    return f"{group}{inside}/{resource}" + ("" if name is None else f"/{name}")
