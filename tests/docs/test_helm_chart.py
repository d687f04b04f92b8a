"""The Helm chart: what real Helm made of it has the fields of Kubernetes and settings that gpuwatch takes.

tests/golden/helm has what `helm template` wrote. Helm is in no Debian package and takes minutes to build, so that these
tests do without it: a checksum shows that the chart has not changed since. Where there is one, it lints the chart and
renders it again; GPUWATCH_UPDATE_GOLDEN=1 then writes the files anew. tests/support/kubernetes_programs.py builds it.
"""

import base64
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

from gpuwatch import __version__
from gpuwatch.cli.shipped import chart, semantic
from gpuwatch.config import load
from tests.support.helm_chart import (
    EXPECTED,
    HELM,
    KUBERNETES,
    RENDERED,
    SCHEMA,
    SITES,
    SOURCE,
    VALUES,
    annotations,
    checksum,
    helm,
    made_with,
    manifests,
    one,
    pods,
    values_of,
)
from tests.support.paths import ROOT


@pytest.mark.parametrize("name", RENDERED + SITES)
def test_the_renderings_are_of_this_chart(name: str) -> None:
    """Where Helm is installed it says the same again, and lints; elsewhere the chart's checksum is the renderings'."""
    if HELM is None:
        recorded = (EXPECTED / "chart.sha256").read_text(encoding="utf-8").strip()
        assert recorded == checksum(), "the chart has changed: run this with helm and GPUWATCH_UPDATE_GOLDEN=1"
        return
    helm("lint", "--strict", SOURCE, *values_of(name))
    text = helm("template", "gpuwatch", SOURCE, *KUBERNETES, *values_of(name))
    if os.environ.get("GPUWATCH_UPDATE_GOLDEN") == "1":
        (EXPECTED / f"{name}.yaml").write_text(text, encoding="utf-8")
        (EXPECTED / "chart.sha256").write_text(checksum() + "\n", encoding="utf-8")

    assert text == (EXPECTED / f"{name}.yaml").read_text(encoding="utf-8")


@pytest.mark.skipif(HELM is None, reason="Helm is in no Debian package; the renderings above are checked without it")
def test_the_whole_chart_has_rules_and_dashboards(tmp_path: Path) -> None:
    """As `gpuwatch export helm` writes it, each is an object of Kubernetes with the text of the repository."""
    for path, text in chart().items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    chosen = [
        f"--set={each}=true"
        for each in ("agent.insecure", "prometheusRule.enabled", "prometheusRule.recording", "dashboards.enabled")
    ]
    found = list(yaml.safe_load_all(helm("template", "gpuwatch", tmp_path, *KUBERNETES, *chosen)))
    (rules,) = (each for each in found if each["kind"] == "PrometheusRule")
    boards = {key: value for each in found if each["kind"] == "ConfigMap" for key, value in each["data"].items()}
    texts = [(ROOT / "alerts" / name).read_text(encoding="utf-8") for name in ("gpuwatch.yml", "recording.yml")]

    assert rules["spec"]["groups"] == [group for text in texts for group in yaml.safe_load(text)["groups"]]
    for board in (ROOT / "dashboards").glob("*.json"):
        assert json.loads(boards[f"gpuwatch-{board.name}"]) == json.loads(board.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", RENDERED)
def test_each_object_is_in_the_namespace_of_the_release(name: str) -> None:
    """With a kind, a version and a name."""
    found = manifests(name)

    assert found
    for each in found:
        assert each["apiVersion"]
        assert each["metadata"]["name"].startswith("gpuwatch")
        teams = {"team-a", "team-b"} if each["kind"] in {"Role", "RoleBinding"} else {"gpuwatch"}
        assert each["metadata"].get("namespace", "gpuwatch") in teams
        assert ("namespace" in each["metadata"]) != each["kind"].startswith(("ClusterRole", "ValidatingAdmission"))


def test_the_defaults_run_agents_and_nothing_else() -> None:
    """No controller, no objects of operators that a cluster may lack, and no rights in the cluster."""
    kinds = sorted(each["kind"] for each in manifests("defaults") if "helm.sh/hook" not in annotations(each))

    assert kinds == ["ConfigMap", "DaemonSet", "NetworkPolicy", "Service", "ServiceAccount"]


def test_several_controllers_are_spread_and_kept_from_going_at_once() -> None:
    """On a database that they share; one of them may be drained at a time."""
    deployment, budget = (one("kubernetes", kind, "controller") for kind in ("Deployment", "PodDisruptionBudget"))
    pod = deployment["spec"]["template"]

    assert deployment["spec"]["replicas"] == 2
    assert deployment["spec"]["strategy"]["type"] == "RollingUpdate"
    assert budget["spec"]["maxUnavailable"] == 1
    for chosen in (budget["spec"]["selector"], pod["spec"]["topologySpreadConstraints"][0]["labelSelector"]):
        assert chosen["matchLabels"].items() <= pod["metadata"]["labels"].items()


@pytest.mark.parametrize("part", ["agent", "controller"])
def test_only_prometheus_and_the_release_itself_reach_a_port(part: str) -> None:
    """By default: Prometheus in any namespace, the controller, and `helm test`; to the port of the pages alone."""
    policy = one("kustomize", "NetworkPolicy", part)
    pod = one("kustomize", "DaemonSet" if part == "agent" else "Deployment", part)["spec"]["template"]
    (rule,) = policy["spec"]["ingress"]
    (port,) = rule["ports"]
    own, prometheus = rule["from"]

    assert policy["spec"]["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    assert port["port"] in {each["name"] for each in pod["spec"]["containers"][0]["ports"]}
    assert set(own) == {"podSelector"}
    assert own["podSelector"]["matchLabels"] == {
        "app.kubernetes.io/name": "gpuwatch",
        "app.kubernetes.io/instance": "gpuwatch",
    }
    assert prometheus == {
        "namespaceSelector": {},
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": "prometheus"}},
    }


def test_a_network_policy_is_as_narrow_as_is_said() -> None:
    """Peers of people's own in place of Prometheus, and rules for what goes out."""
    policy = one("kubernetes", "NetworkPolicy", "controller")
    (rule,) = policy["spec"]["ingress"]

    assert rule["from"][1:] == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]


@pytest.mark.skipif(HELM is None, reason="Helm is in no Debian package")
@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"controller": {"replicas": 2}}, "the ledger is a file"),
        ({"controller": {"replicas": 2, "persistence": {"enabled": False}}}, "a PostgreSQL database that all"),
        ({"serviceMonitor": {"enabled": True}, "podMonitor": {"enabled": True}}, "everything twice"),
        ({"controller": {"replicas": 0}}, "minimum"),
        ({"controller": {"kubernetes": {"enabled": True, "podActions": {"enabled": True}}}}, "name the namespaces"),
        (
            {
                "controller": {
                    "kubernetes": {"enabled": True, "podActions": {"enabled": True, "namespaces": ["kube-system"]}}
                }
            },
            "kube-system is of Kubernetes itself",
        ),
    ],
    ids=str,
)
def test_values_that_contradict_each_other_are_refused(values: Mapping[str, Any], words: str, tmp_path: Path) -> None:
    """With what to do instead."""
    decided = {"agent": {"insecure": True}, "controller": {"enabled": True, "insecure": True}}
    done = made_with({key: {**decided.get(key, {}), **values.get(key, {})} for key in {*decided, *values}}, tmp_path)

    assert done.returncode != 0
    assert words in done.stderr


@pytest.mark.parametrize("name", RENDERED)
def test_containers_are_hardened_and_every_mount_has_its_volume(name: str) -> None:
    """Not as root, on a root file system that they cannot write, without capabilities."""
    for kind, pod in pods(name):
        container, *others = pod["containers"]

        assert pod["securityContext"]["runAsNonRoot"] is True, kind
        assert container["securityContext"] == {
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }
        mounted = {each["name"] for each in container["volumeMounts"]}
        assert mounted | {each["name"] for other in others for each in other["volumeMounts"]} == {
            each["name"] for each in pod["volumes"]
        }
        assert "kubelet" not in mounted
        assert container["args"] == ["agent" if kind == "DaemonSet" else "controller"]


def test_who_asks_the_kubelet_is_root_and_nothing_else() -> None:
    """A second container, where the values say so: it reads one folder, and writes one file for the agent to read."""
    pod = one("everything", "DaemonSet", "agent")["spec"]["template"]["spec"]
    agent, asking = pod["containers"]

    assert asking["securityContext"] == {
        "runAsUser": 0,
        "runAsGroup": 0,
        "runAsNonRoot": False,
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert "ports" not in asking
    assert asking["image"] == agent["image"]
    assert {each["name"]: each.get("readOnly", False) for each in asking["volumeMounts"]} == {
        "kubelet": True,
        "pod-list": False,
    }
    assert {"name": "pod-list", "mountPath": "/run/gpuwatch-pods", "readOnly": True} in agent["volumeMounts"]
    (folder,) = (each["hostPath"] for each in pod["volumes"] if each["name"] == "kubelet")
    assert folder == {"path": "/var/lib/k0s/kubelet/pod-resources", "type": "Directory"}
    settings = one("everything", "ConfigMap", "agent")["data"]["gpuwatch.yaml"]
    assert yaml.safe_load(settings)["agent"]["attribution"] == {"pod_resources_socket": asking["args"][1]}
    for name in ("defaults", "kustomize"):
        assert len(one(name, "DaemonSet", "agent")["spec"]["template"]["spec"]["containers"]) == 1


@pytest.mark.parametrize(
    ("name", "part"),
    [("defaults", "agent"), ("everything", "agent"), ("everything", "controller"), ("kubernetes", "controller")],
)
def test_gpuwatch_takes_the_settings_that_the_chart_writes(name: str, part: str, tmp_path: Path) -> None:
    """On the port of the service, for the pod's network; the ledger is in the volume."""
    file = tmp_path / "gpuwatch.yaml"
    file.write_text(one(name, "ConfigMap", part)["data"]["gpuwatch.yaml"], encoding="utf-8")
    settings = load(file, {})
    server = settings.agent if part == "agent" else settings.controller
    (port,) = one(name, "Service", part)["spec"]["ports"]

    assert server.host == "0.0.0.0"  # noqa: S104  the pod's own network
    assert server.port == port["port"]
    assert settings.mode == ("enforce" if name == "kubernetes" else "observe")
    if part == "controller":
        place = (
            "at the URL in /etc/gpuwatch-secrets/ledger-url" if name == "kubernetes" else "/var/lib/gpuwatch/ledger.db"
        )
        assert settings.ledger.place == place
        assert settings.kubernetes.in_cluster is (name == "kubernetes")


@pytest.mark.skipif(HELM is None, reason="needs helm")
def test_other_clusters_stand_beside_the_one_that_the_controller_runs_in(tmp_path: Path) -> None:
    """Its own gets the name of the values, so that its records go on."""
    values = {
        "agent": {"insecure": True},
        "controller": {
            "enabled": True,
            "insecure": True,
            "kubernetes": {"enabled": True, "name": "prod"},
            "settings": {"kubernetes": {"research": {"kubeconfig": "/etc/gpuwatch-secrets/research"}}},
        },
    }
    made = list(yaml.safe_load_all(made_with(values, tmp_path).stdout))
    (text,) = [
        each["data"]["gpuwatch.yaml"]
        for each in made
        if each["kind"] == "ConfigMap" and each["metadata"]["name"].endswith("controller")
    ]
    file = tmp_path / "gpuwatch.yaml"
    file.write_text(text, encoding="utf-8")
    clusters = load(file, {}).named_clusters

    assert {name: each.in_cluster for name, each in clusters.items()} == {"prod": True, "research": False}


@pytest.mark.parametrize("part", ["agent", "controller"])
def test_prometheus_finds_the_pods_under_the_jobs_of_the_rules(part: str) -> None:
    """Monitor, service and pod have the same labels and port names."""
    monitor, service = one("everything", "ServiceMonitor", part), one("everything", "Service", part)
    workload = one("everything", "DaemonSet" if part == "agent" else "Deployment", part)
    (endpoint,) = monitor["spec"]["endpoints"]
    (port,) = service["spec"]["ports"]
    container = workload["spec"]["template"]["spec"]["containers"][0]
    labels = workload["spec"]["template"]["metadata"]["labels"]

    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert service["spec"]["selector"].items() <= labels.items()
    assert workload["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert endpoint["port"] == port["name"]
    assert port["targetPort"] in {each["name"] for each in container["ports"]}
    assert endpoint["relabelings"] == [
        {
            "targetLabel": "job",
            "replacement": "gpuwatch" if part == "agent" else "gpuwatch-controller",
            "action": "replace",
        }
    ]


def test_a_page_overwrites_no_label_of_its_target() -> None:
    """Root of one host could else pose as another's job or instance; the GPU users' labels keep their names."""
    for name, kind in (("everything", "ServiceMonitor"), ("kubernetes", "PodMonitor")):
        for each in (each for each in manifests(name) if each["kind"] == kind):
            (endpoint,) = each["spec"].get("endpoints") or each["spec"]["podMetricsEndpoints"]
            named = {rule["targetLabel"] for rule in endpoint["metricRelabelings"] if "targetLabel" in rule}

            assert endpoint["honorLabels"] is False
            assert named == {"node", "namespace", "pod", "container"}


def test_images_are_named_by_digest_where_one_is_given(tmp_path: Path) -> None:
    """A tag can be moved, a digest cannot."""
    digest = f"sha256:{'a' * 64}"
    if HELM is not None:
        done = made_with({"agent": {"insecure": True, "image": {"digest": digest}}}, tmp_path)
        assert f"image: gpuwatch-agent@{digest}" in done.stdout
    for wrong in ("latest", "sha256:1"):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.Draft7Validator(SCHEMA).validate({"agent": {"image": {"repository": "a", "digest": wrong}}})


def test_the_default_values_are_what_the_schema_allows() -> None:
    """Every value is in the schema, and the schema has no other."""

    def paths(values: Mapping[str, Any], schema: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
        schema = SCHEMA["definitions"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
        known = schema.get("properties", {})
        if schema.get("additionalProperties") is False and "tcpSocket" not in known:
            yield from (f"{prefix}{each}" for each in set(known) ^ set(values))
            for key in set(known) & set(values):
                if isinstance(values[key], Mapping):
                    yield from paths(values[key], known[key], f"{prefix}{key}.")

    jsonschema.Draft7Validator(SCHEMA).validate(VALUES)
    assert list(paths(VALUES, SCHEMA)) == []


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("agent", {"prot": 9460}, "prot"),
        ("agent", {"port": 0}, "0 is less than"),
        ("controller", {"settings": {"mode": "force"}}, "'force' is not one of"),
        ("controller", {"settings": {"agent": {}}}, "should not be valid"),
        ("serviceMonitor", {"interval": "15"}, "'15' does not match"),
    ],
    ids=str,
)
def test_values_that_cannot_work_are_refused(key: str, value: Mapping[str, Any], words: str) -> None:
    """By `helm install`, which reads the same schema."""
    with pytest.raises(jsonschema.ValidationError, match=words):
        jsonschema.Draft7Validator(SCHEMA).validate({key: value})


def test_the_exported_chart_has_this_version() -> None:
    """Of the chart and of the images; the repository's own has none that could be forgotten at a release."""
    exported = yaml.safe_load(chart()["Chart.yaml"])

    assert exported["version"] == semantic(__version__)
    assert exported["appVersion"] == __version__
    assert yaml.safe_load((SOURCE / "Chart.yaml").read_text(encoding="utf-8"))["version"] == "0.0.0"


def test_the_charts_icon_is_the_pages() -> None:
    """It is in the chart itself, so no viewer of charts asks another host for it."""
    kind, _, data = yaml.safe_load(chart()["Chart.yaml"])["icon"].partition(",")

    assert kind == "data:image/svg+xml;base64"
    assert base64.b64decode(data) == (ROOT / "gpuwatch/controller/web/icon.svg").read_bytes()


@pytest.mark.parametrize(
    ("python", "helms"),
    [("1.0.0rc1", "1.0.0-rc.1"), ("0.1.0", "0.1.0"), ("2.0.0.dev3", "2.0.0-dev.3"), ("1.2.3b2", "1.2.3-b.2")],
)
def test_a_release_candidate_has_a_semantic_version(python: str, helms: str) -> None:
    """Helm refuses Python's form."""
    assert semantic(python) == helms
