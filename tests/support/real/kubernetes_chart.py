"""What the Helm chart gives its controller in a cluster: the roles, and the policy that narrows them."""

import itertools
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml

from tests.support.paths import GOLDEN, ROOT
from tests.support.real.agents import eventually
from tests.support.real.kubernetes import Account, ControlPlane
from tests.support.real.kubernetes_api import ApiError, Object

_ITS_USER = "system:serviceaccount:gpuwatch:gpuwatch-controller"
_RBAC = {"apiVersion": "rbac.authorization.k8s.io/v1"}
_NUMBERS = itertools.count(1)


def chart_objects(kind: str) -> list[Object]:
    """The objects of a kind that Helm writes for a controller that may do everything."""
    text = (GOLDEN / "helm/kubernetes.yaml").read_text(encoding="utf-8")
    return [each for each in yaml.load_all(text, yaml.CSafeLoader) if each and each["kind"] == kind]


def cluster_rules() -> list[Object]:
    """Its rights in the whole cluster."""
    (role,) = chart_objects("ClusterRole")
    rules: list[Object] = role["rules"]
    return rules


def team_rules() -> list[Object]:
    """Its rights in each namespace whose workloads it may end."""
    first, *others = (role["rules"] for role in chart_objects("Role"))
    assert all(each == first for each in others)
    rules: list[Object] = first
    return rules


def chart_account(plane: ControlPlane, teams: Iterable[str], *, rules: Sequence[Object] | None = None) -> Account:
    """An account that has what the chart gives, or `rules` in the cluster: in these namespaces, under the policy."""
    account = plane.service_account("default", cluster_rules() if rules is None else rules)
    name = account.user.rpartition(":")[2]
    subject = {"kind": "ServiceAccount", "name": name, "namespace": "default"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    for team in teams:
        about = {**_RBAC, "metadata": {"name": name, "namespace": team}}
        plane.admin.create(
            {**about, "kind": "Role", "rules": team_rules()},
            {**about, "kind": "RoleBinding", "roleRef": reference, "subjects": [subject]},
        )
    confine(plane, account)
    return account


def confine(plane: ControlPlane, account: Account) -> None:
    """Put the account under the chart's policy; it is in force when this returns."""
    name = f"chart-{next(_NUMBERS)}"
    (policy,), (binding,) = map(chart_objects, ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"))
    conditions: list[Any] = policy["spec"]["matchConditions"]
    assert sum(_ITS_USER in each["expression"] for each in conditions) == 1
    for each in conditions:
        each["expression"] = each["expression"].replace(_ITS_USER, account.user)
    policy["metadata"] = {"name": name}
    binding["metadata"], binding["spec"]["policyName"] = {"name": name}, name
    plane.admin.create(policy, binding)
    eventually(lambda: _holds(plane, account, name), f"the policy {name} is not in force".__str__)


def _holds(plane: ControlPlane, account: Account, name: str) -> bool:
    """Whether it refuses what only a policy refuses: an API server takes new ones within seconds."""
    probe: Object = {
        "apiVersion": "v1",
        "kind": "ReplicationController",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": 0, "selector": {"app": name}, "template": _template(name)},
    }
    try:
        plane.admin.posing_as(account.user).create(probe, dry_run=True)
    except ApiError as error:
        return name in str(error)
    return False


def _template(name: str) -> Object:
    container = {"name": "probe", "image": "none"}
    return {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}


def patches() -> dict[str, Object]:
    """What a thief of the token would like to change in a workload with a pod's template, by what it is called."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "b"}
    return {
        "image": _in_pods(containers=[{"name": "main", "image": "evil"}]),
        "folder of the host": _in_pods(volumes=[{"name": "host", "hostPath": {"path": "/"}}]),
        "service account": _in_pods(serviceAccountName="admin"),
        "host's network": _in_pods(hostNetwork=True),
        "annotation of its pods": {"spec": {"template": {"metadata": {"annotations": {"inject": "me"}}}}},
        "label": {"metadata": {"labels": {"team": "theirs"}}},
        "finalizer": {"metadata": {"finalizers": ["example.com/never"]}},
        "owner": {"metadata": {"ownerReferences": [owner]}},
        "consent": {"metadata": {"annotations": {"gpuwatch.io/idle-action": "scale-to-zero"}}},
        "protection": {"metadata": {"annotations": {"gpuwatch.io/protect": None}}},
        "others' annotation": {"metadata": {"annotations": {"example.com/a": "b"}}},
        "notebook's stop on another kind": {"metadata": {"annotations": {"kubeflow-resource-stopped": "now"}}},
    }


def _in_pods(**spec: object) -> Object:
    """A change of the pods' template."""
    return {"spec": {"template": {"spec": spec}}}


def chart_agent(rendered: str) -> tuple[list[str], dict[str, Any], set[str]]:
    """How the chart, or the kustomize base, starts its agent: with which rights, settings, and folders of the host."""
    objects = [each for each in yaml.safe_load_all((GOLDEN / "helm" / rendered).read_text(encoding="utf-8")) if each]
    (agent,) = (each for each in objects if each["kind"] == "DaemonSet")
    (settings,) = (
        each["data"]["gpuwatch.yaml"]
        for each in objects
        if each["kind"] == "ConfigMap" and each["metadata"]["name"].startswith("gpuwatch-agent")
    )
    pod = agent["spec"]["template"]["spec"]
    container = next(each for each in pod["containers"] if each["name"] == "agent")
    its, own = pod["securityContext"], container["securityContext"]
    assert pod["hostPID"]
    assert own["capabilities"] == {"drop": ["ALL"]}
    groups = ",".join(map(str, [its["fsGroup"], *its["supplementalGroups"]]))
    user = [f"--reuid={its['runAsUser']}", f"--regid={its['runAsGroup']}", f"--groups={groups}"]
    rights = ["--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
    folders = {each["mountPath"] for each in container["volumeMounts"]}
    return ["setpriv", *user, *rights], yaml.safe_load(settings)["agent"], folders


def python_of(rights: Sequence[str]) -> tuple[str, Mapping[str, str]] | None:
    """A Python that can start itself with these rights, and what it needs to find all that is installed here."""
    found = {"PYTHONPATH": f"{ROOT}:{sysconfig.get_path('purelib')}", "PYTHONDONTWRITEBYTECODE": "1"}
    again = "import os, sys; os.execv(sys.executable, [sys.executable, '-c', 'import gpuwatch.agent.launch, msgspec'])"
    version = f"python3.{sys.version_info.minor}"
    for each in (sys.executable, f"/usr/local/bin/{version}", f"/usr/bin/{version}"):
        command = [*rights, each, "-c", again]
        environment = {**os.environ, **found}
        if not subprocess.run(command, env=environment, capture_output=True, check=False, cwd="/").returncode:
            return each, found
    return None
