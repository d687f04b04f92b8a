"""The Helm chart's rights: in the cluster, in each named namespace, on the host."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuwatch.model.workload_kinds import KINDS
from tests.support.helm_chart import (
    HELM,
    RENDERED,
    made_with,
    manifests,
    one,
    pods,
)
from tests.support.paths import ROOT


@pytest.mark.parametrize("name", RENDERED)
def test_only_a_controller_that_is_told_so_asks_kubernetes(name: str) -> None:
    """Without `controller.kubernetes` there are no roles; an agent never gets a token."""
    told = name in {"kubernetes", "kustomize"}

    assert {each["kind"] for each in manifests(name) if "Role" in each["kind"]} == (
        ({"ClusterRole", "ClusterRoleBinding"} if told else set())
        | ({"Role", "RoleBinding"} if name == "kubernetes" else set())
    )
    for kind, pod in pods(name):
        assert pod["automountServiceAccountToken"] is (told and kind == "Deployment")


def test_the_role_is_bound_to_the_controllers_account_alone() -> None:
    """Names of cluster-wide objects have the release's namespace, so that two releases do not share them."""
    binding, role = (
        one("kubernetes", "ClusterRoleBinding", "controller"),
        one("kubernetes", "ClusterRole", "controller"),
    )
    pod = one("kubernetes", "Deployment", "controller")["spec"]["template"]["spec"]

    assert binding["roleRef"]["name"] == role["metadata"]["name"] == "gpuwatch-controller-gpuwatch"
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": pod["serviceAccountName"], "namespace": "gpuwatch"}
    ]


def test_the_role_never_deletes_and_reads_no_secret() -> None:
    """A pod goes by the eviction API, which keeps PodDisruptionBudgets; a node by its own cloud."""
    everywhere = granted(one("kubernetes", "ClusterRole", "controller"))
    inside = [granted(each) for each in manifests("kubernetes") if each["kind"] == "Role"]
    scaled = [each.resource for each in KINDS if each.scaled]

    assert {verb for _, verb in everywhere} == {"get", "list", "watch", "patch", "create"}
    assert {(what, verb) for what, verb in everywhere if verb in {"patch", "create"}} == {
        ("nodes", "patch"),
        ("pods/eviction", "create"),
    }
    assert (
        inside
        == [
            {
                ("pods/eviction", "create"),
                ("events", "create"),
                ("pods", "get"),
                *((each, "patch") for each in (*(each.resource for each in KINDS if each.actions), "pods")),
                *((f"{each}/scale", "patch") for each in scaled),
            }
        ]
        * 2
    )
    assert not {what for what, _ in everywhere | inside[0]} & {"secrets", "configmaps", "*"}


def granted(role: Mapping[str, Any]) -> set[tuple[str, str]]:
    """What a role allows."""
    return {(resource, verb) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]}


def test_workloads_are_ended_in_the_named_namespaces_alone_and_under_a_policy() -> None:
    """A role in each, and one policy for the controller's own account, which denies."""
    policy, binding = (
        one("kubernetes", kind, "controller")
        for kind in ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    )
    subject = one("kubernetes", "ClusterRoleBinding", "controller")["subjects"][0]
    user = f"system:serviceaccount:{subject['namespace']}:{subject['name']}"

    for kind in ("Role", "RoleBinding"):
        places = [each["metadata"]["namespace"] for each in manifests("kubernetes") if each["kind"] == kind]
        assert places == ["team-a", "team-b"]
    assert binding["spec"] == {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}
    assert policy["spec"]["failurePolicy"] == "Fail"
    assert f"request.userInfo.username == '{user}'" in [
        each["expression"] for each in policy["spec"]["matchConditions"]
    ]


@pytest.mark.skipif(HELM is None, reason="Helm is in no Debian package")
@pytest.mark.parametrize(
    ("told", "changes"),
    [
        ({}, set()),
        ({"act": True}, {"nodes", "pods/eviction"}),
        (
            {"podActions": {"enabled": True, "namespaces": ["team"]}, "workloads": []},
            {
                *("pods/eviction", "events", "deployments", "replicasets", "statefulsets", "jobs"),
                *("deployments/scale", "replicasets/scale", "statefulsets/scale"),
            },
        ),
        ({"podActions": {"barePods": True}}, set()),
    ],
    ids=["none", "act", "podActions", "barePods alone"],
)
def test_each_switch_gives_its_own_rights(told: Mapping[str, Any], changes: set[str], tmp_path: Path) -> None:
    """Nodes and workloads apart; a kind that the cluster lacks needs none."""
    controller = {"enabled": True, "insecure": True, "kubernetes": {"enabled": True, **told}}
    done = made_with({"agent": {"insecure": True}, "controller": controller}, tmp_path)
    roles = (each for each in yaml.safe_load_all(done.stdout) if each and each["kind"] in {"ClusterRole", "Role"})
    rules = [rule for role in roles for rule in role["rules"] if {"patch", "create"} & set(rule["verbs"])]

    assert {resource for rule in rules for resource in rule["resources"]} == changes


def test_no_socket_of_the_hosts_systemd_is_mounted() -> None:
    """A mount that is read-only stops nobody who connects; each folder that the agent reads is there."""
    pod = one("defaults", "DaemonSet", "agent")["spec"]["template"]["spec"]
    mounted = {each["mountPath"] for each in pod["containers"][0]["volumeMounts"]}
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "gpuwatch/agent").rglob("*.py"))
    read = {f"/run/systemd/{name}" for name in re.findall(r"run / \"systemd/([a-z]+)\"", source)}
    # A daemon-reload makes the generator's anew: a mount would show the old one. Without it a unit's origin is unknown.
    read -= {"/run/systemd/generator"}

    assert {each for each in mounted if each.startswith("/run/systemd")} == read | {"/run/systemd/inhibit"}
    assert "/run" not in mounted
