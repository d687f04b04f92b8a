"""The values of the Helm chart: each is told and taken, and six sites as people have them get what they ask for."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

from gpuwatch.config import load
from tests.support.helm_chart import (
    EXPECTED,
    HELM,
    KUBERNETES,
    SCHEMA,
    SITES,
    SOURCE,
    VALUES,
    helm,
    made_with,
    manifests,
    one,
)
from tools.docs import chart

# What charts of exporters, autoscalers and Prometheus let people set, and where this one has it.
WISHES: tuple[Mapping[str, Any], ...] = (
    {"nameOverride": "a", "fullnameOverride": "b", "namespaceOverride": "c"},
    {"commonLabels": {"a": "b"}, "commonAnnotations": {"a": "b"}, "imagePullSecrets": [{"name": "a"}, "b"]},
    {"global": {"imageRegistry": "registry.example.com", "imagePullSecrets": ["a"], "of": "another chart"}},
    {"rbac": {"create": False}, "extraObjects": [{"kind": "A"}, "kind: B"]},
    *(
        {part: wish}
        for part in ("agent", "controller")
        for wish in (
            {"image": {"registry": "r", "repository": "a", "digest": f"sha256:{'a' * 64}", "pullPolicy": "Always"}},
            {"serviceAccount": {"create": False, "name": "a", "annotations": {"a": "b"}}},
            {"env": [{"name": "A", "value": "b"}], "envFrom": [{"secretRef": {"name": "a"}}], "extraArgs": ["-v"]},
            {"labels": {"a": "b"}, "annotations": {"a": "b"}, "podLabels": {"a": "b"}, "podAnnotations": {"a": "b"}},
            {"podSecurityContext": {"runAsUser": 1000730000}, "securityContext": {"privileged": False}},
            {"extraVolumes": [{"name": "a"}], "extraVolumeMounts": [{"name": "a", "mountPath": "/a"}]},
            {"initContainers": [{"name": "a"}], "extraContainers": [{"name": "b"}]},
            {"livenessProbe": {"enabled": False}, "readinessProbe": {"exec": {"command": ["true"]}}},
            {"startupProbe": {"enabled": True}, "terminationGracePeriodSeconds": 5, "revisionHistoryLimit": 3},
            {"nodeSelector": {"a": "b"}, "affinity": {"nodeAffinity": {}}, "tolerations": [], "priorityClassName": "a"},
            {"runtimeClassName": "a", "dnsPolicy": "None", "dnsConfig": {"nameservers": ["1.1.1.1"]}},
            {"networkPolicy": {"enabled": False, "extraFrom": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}},
            {"service": {"labels": {"a": "b"}, "annotations": {"a": "b"}}, "resources": {}},
        )
    ),
    {"agent": {"updateStrategy": {"type": "OnDelete"}, "minReadySeconds": 10}},
    {"controller": {"persistence": {"existingClaim": "a", "storageClassName": "b", "annotations": {"a": "b"}}}},
    {"controller": {"strategy": {"type": "Recreate"}, "topologySpreadConstraints": [{"maxSkew": 1}]}},
    {"controller": {"service": {"type": "LoadBalancer", "loadBalancerSourceRanges": ["10.0.0.0/8"]}}},
    {"controller": {"ingress": {"enabled": True, "className": "a", "hosts": [{"host": "a"}], "tls": [{}]}}},
    {"controller": {"podDisruptionBudget": {"enabled": False, "minAvailable": "50%"}}},
    *(
        {monitor: {"namespace": "a", "labels": {}, "annotations": {}, "relabelings": [{}], "metricRelabelings": [{}]}}
        for monitor in ("serviceMonitor", "podMonitor")
    ),
    {"prometheusRule": {"namespace": "a", "annotations": {}}, "dashboards": {"namespace": "a"}},
)


@pytest.mark.parametrize("wish", WISHES, ids=lambda wish: ",".join(next(iter(_leaves(wish)), ())))
def test_what_people_set_elsewhere_they_can_set_here(wish: Mapping[str, Any]) -> None:
    """And a slip of the pen in it is still refused."""
    check = jsonschema.Draft7Validator(SCHEMA)
    check.validate(wish)

    for path in _leaves(wish):
        if path[0] in {"global", "commonLabels", "commonAnnotations"} or {
            "nodeSelector",
            "affinity",
            "resources",
        } & set(path):
            continue  # of other charts, or Kubernetes' own
        with pytest.raises(jsonschema.ValidationError):
            check.validate(_with_slip(wish, path))


def _leaves(values: Mapping[str, Any], *above: str) -> list[tuple[str, ...]]:
    """The paths of maps of ours, by their first key."""
    found = []
    for key, value in values.items():
        inner = _leaves(value, *above, key) if isinstance(value, dict) and len(above) < 1 else []
        found += inner or [(*above, key)]
    return found


def _with_slip(values: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    """The same with the last key of the path misspelled."""
    key, *below = path
    if below:
        return {**values, key: _with_slip(values[key], tuple(below))}
    return {f"{name}x" if name == key else name: value for name, value in values.items()}


def test_each_value_has_a_comment_and_is_in_the_readme() -> None:
    """In a sentence above it; what only holds others may go without."""
    mute = [".".join(each.path) for each in chart.values() if each.default is not None and not each.comment]
    page = (SOURCE / "README.md").read_text(encoding="utf-8")

    assert mute == []
    assert page == chart.render(), "run `make docs`"
    for each in chart.values():
        assert each.default is None or f"| `{'.'.join(each.path)}` |" in page


@pytest.mark.parametrize("name", SITES)
def test_a_site_has_settings_that_gpuwatch_takes(name: str, tmp_path: Path) -> None:
    """Of the agent, and of the controller where there is one."""
    for each in manifests(name):
        if each["kind"] == "ConfigMap" and "gpuwatch.yaml" in each["data"]:
            file = tmp_path / f"{each['metadata']['name']}.yaml"
            file.write_text(each["data"]["gpuwatch.yaml"], encoding="utf-8")
            assert load(file, {}).mode in {"observe", "enforce"}


@pytest.mark.parametrize("name", SITES)
def test_every_mount_of_a_site_has_its_volume_and_every_account_is_one(name: str) -> None:
    """Whatever was added."""
    for each in manifests(name):
        if each["kind"] not in {"DaemonSet", "Deployment"}:
            continue
        pod = each["spec"]["template"]["spec"]
        mounted = {mount["name"] for container in pod["containers"] for mount in container.get("volumeMounts", ())}
        assert mounted <= {volume["name"] for volume in pod["volumes"]}
        made = {one_["metadata"]["name"] for one_ in manifests(name) if one_["kind"] == "ServiceAccount"}
        assert pod["serviceAccountName"] in made | {"gpu-agent", "gpu-controller"}
        assert each["spec"]["selector"]["matchLabels"].items() <= each["spec"]["template"]["metadata"]["labels"].items()


@pytest.mark.parametrize(
    ("site", "part", "handler"),
    [
        ("k3s", "agent", {"httpGet": {"path": "/livez", "port": "metrics"}}),
        ("kube-prometheus", "agent", {"httpGet": {"path": "/livez", "port": "metrics", "scheme": "HTTPS"}}),
        ("airgapped", "agent", {"tcpSocket": {"port": "metrics"}}),
        ("eks", "controller", {"httpGet": {"path": "/livez", "port": "http"}}),
        ("openshift", "controller", {"httpGet": {"path": "/livez", "port": "http", "scheme": "HTTPS"}}),
        ("k3s", "controller", {"exec": {"command": ["gpuwatch", "doctor", "controller", "--alive"]}}),
    ],
)
def test_a_probe_starts_no_program_unless_people_say_so(site: str, part: str, handler: Mapping[str, Any]) -> None:
    """The kubelet asks by itself: over TLS where there is a certificate; where it needs one, only for the port."""
    container = _container(site, part)

    assert {key: value for key, value in container["livenessProbe"].items() if key in handler} == handler
    assert ("exec" in container["livenessProbe"]) == ("exec" in handler)
    assert "exec" not in container["readinessProbe"]


def _container(site: str, part: str) -> dict[str, Any]:
    kind = "DaemonSet" if part == "agent" else "Deployment"
    found: dict[str, Any] = one(site, kind, part)["spec"]["template"]["spec"]["containers"][0]
    return found


def test_on_openshift_the_namespace_gives_the_user() -> None:
    """No number is in the pods, and nothing else is let go of."""
    for kind, part in (("DaemonSet", "agent"), ("Deployment", "controller")):
        pod = one("openshift", kind, part)["spec"]["template"]["spec"]
        assert not {"runAsUser", "runAsGroup", "fsGroup"} & set(pod["securityContext"])
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    agent = one("openshift", "DaemonSet", "agent")["spec"]["template"]
    assert agent["metadata"]["annotations"]["prometheus.io/scrape"] == "false"
    (own,) = (each for each in manifests("openshift") if each["kind"] == "RoleBinding")
    assert own["subjects"][0]["name"] == agent["spec"]["serviceAccountName"]


def test_a_host_of_the_ingress_is_known_to_the_page() -> None:
    """Else its answer would be 421; the backend is the chart's own Service."""
    ingress, service = (one("k3s", kind, "controller") for kind in ("Ingress", "Service"))
    settings = yaml.safe_load(one("k3s", "ConfigMap", "controller")["data"]["gpuwatch.yaml"])
    (rule,) = ingress["spec"]["rules"]

    assert settings["controller"]["allowed_hosts"] == [rule["host"]]
    assert rule["http"]["paths"][0]["backend"]["service"]["name"] == service["metadata"]["name"]


def test_gitops_finds_its_own_claim_account_and_names() -> None:
    """The chart makes none of what is there, in the namespace that is said, and no role."""
    kinds = {each["kind"] for each in manifests("gitops")}
    deployment = one("gitops", "Deployment", "controller")
    pod = deployment["spec"]["template"]["spec"]
    ledger = next(each for each in pod["volumes"] if each["name"] == "ledger")

    assert not kinds & {"ServiceAccount", "PersistentVolumeClaim", "ClusterRole", "ClusterRoleBinding"}
    assert ledger["persistentVolumeClaim"] == {"claimName": "gpu-ledger"}
    assert pod["serviceAccountName"] == "gpu-controller"
    assert {each["metadata"].get("namespace") for each in manifests("gitops")} == {"platform-gpu"}
    assert all(each["metadata"]["name"].startswith("gpu-watch") for each in manifests("gitops"))
    assert all(
        each["metadata"]["annotations"]["argocd.argoproj.io/sync-wave"] == "2"
        for each in manifests("gitops")
        if each["metadata"]["name"] != "gpu-watch-about"
    )


def test_an_airgapped_site_pulls_by_digest_from_its_registry() -> None:
    """Every image of the chart's, `helm test` included, with both secrets."""
    pods = [one("airgapped", kind, part)["spec"]["template"]["spec"] for kind, part in _WORKLOADS]
    pods += [each["spec"] for each in manifests("airgapped") if each["kind"] == "Pod"]

    for pod in pods:
        assert pod["imagePullSecrets"] == [{"name": "mirror"}, {"name": "team"}]
        for container in pod["containers"]:
            assert container["image"].startswith("registry.corp.example/")
            assert "@sha256:" in container["image"]
    assert one("airgapped", "PodDisruptionBudget", "controller")["spec"]["minAvailable"] == 1


_WORKLOADS = (("DaemonSet", "agent"), ("Deployment", "controller"))


def test_monitors_go_where_prometheus_looks() -> None:
    """With its labels and rules; the chart's own rules come first, and pods are sought in the release's namespace."""
    monitor = one("kube-prometheus", "ServiceMonitor", "agent")
    (endpoint,) = monitor["spec"]["endpoints"]

    assert monitor["metadata"]["namespace"] == "monitoring"
    assert monitor["metadata"]["labels"]["release"] == "kube-prometheus-stack"
    assert monitor["spec"]["namespaceSelector"] == {"matchNames": ["gpuwatch"]}
    assert monitor["spec"]["targetLabels"] == ["scrape"]
    assert endpoint["relabelings"][0]["targetLabel"] == "job"
    assert endpoint["relabelings"][-1]["targetLabel"] == "instance"
    assert endpoint["metricRelabelings"][-1]["action"] == "drop"
    assert one("kube-prometheus", "Service", "agent")["metadata"]["labels"]["scrape"] == "gpu"


def test_an_agent_is_on_every_node_that_is_chosen() -> None:
    """Whatever taint a team has put on it; on EKS by Karpenter's labels alone."""
    pod = one("eks", "DaemonSet", "agent")["spec"]["template"]["spec"]
    (term,) = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]

    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert "nodeSelector" not in pod
    assert term["matchExpressions"][0]["values"] == ["nvidia"]


@pytest.mark.skipif(HELM is None, reason="Helm is in no Debian package")
def test_labels_that_select_pods_and_an_agent_on_one_address(tmp_path: Path) -> None:
    """People's labels never replace those of selectors; a kubelet asks where the agent listens."""
    wished = {
        "commonLabels": {"app.kubernetes.io/name": "mine"},
        "agent": {
            "insecure": True,
            "podLabels": {"app.kubernetes.io/component": "mine", "a": "b"},
            "settings": {"host": "10.0.0.7"},
        },
    }
    done = made_with(wished, tmp_path)
    made = [each for each in yaml.safe_load_all(done.stdout) if each and each["kind"] == "DaemonSet"]
    labels = made[0]["spec"]["template"]["metadata"]["labels"]

    assert made[0]["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert labels["a"] == "b"
    assert made[0]["spec"]["template"]["spec"]["containers"][0]["livenessProbe"]["httpGet"]["host"] == "10.0.0.7"


@pytest.mark.skipif(HELM is None, reason="Helm is in no Debian package")
def test_values_of_the_release_before_still_render(tmp_path: Path) -> None:
    """`helm upgrade --reuse-values` knows none of the new ones: they are what a new install has."""
    old = {
        "commonLabels": {},
        "imagePullSecrets": [],
        "agent": {
            "enabled": True,
            "image": {"repository": "mine", "tag": "", "pullPolicy": "Always"},
            "insecure": True,
            "port": 9460,
            "nodeSelector": {"mine": "yes"},
            "tolerations": [],
            "settings": {},
        },
        "controller": {"enabled": True, "insecure": True, "settings": {"mode": "observe"}},
    }
    folder = tmp_path / "chart"
    shutil.copytree(SOURCE, folder)
    (folder / "values.yaml").write_text(yaml.safe_dump(old), encoding="utf-8")
    (folder / "values.schema.json").unlink()
    made = [each for each in yaml.safe_load_all(helm("template", "gpuwatch", folder, *KUBERNETES)) if each]
    (agent,) = (each["spec"]["template"]["spec"] for each in made if each["kind"] == "DaemonSet")

    assert agent["nodeSelector"] == {"mine": "yes"}
    assert "tolerations" not in agent
    assert agent["securityContext"] == VALUES["agent"]["podSecurityContext"]
    assert agent["containers"][0]["image"] == "mine:0.0.0"
    assert agent["containers"][0]["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert {each["kind"] for each in made} >= {"NetworkPolicy", "Deployment", "PersistentVolumeClaim"}


@pytest.mark.skipif(HELM is None, reason="Helm is in no Debian package")
def test_null_and_an_empty_list_are_answers(tmp_path: Path) -> None:
    """No default comes back for what people take away."""
    taken: dict[str, Any] = {
        "insecure": True,
        "nodeSelector": None,
        "tolerations": [],
        "livenessProbe": None,
        "securityContext": None,
    }
    done = made_with({"agent": taken}, tmp_path)
    (agent,) = (each for each in yaml.safe_load_all(done.stdout) if each and each["kind"] == "DaemonSet")
    pod = agent["spec"]["template"]["spec"]

    assert not {"nodeSelector", "tolerations"} & set(pod)
    assert not {"livenessProbe", "securityContext"} & set(pod["containers"][0])


@pytest.mark.skipif(HELM is None, reason="Helm is in no Debian package")
def test_two_renderings_are_the_same_and_two_releases_share_nothing(tmp_path: Path) -> None:
    """As Argo CD compares them; also where two names begin alike for fifty characters."""
    everything = {"agent": {"insecure": True}, "controller": {"enabled": True, "insecure": True}}
    everything["controller"]["kubernetes"] = {"enabled": True, "act": True}  # type: ignore[assignment]
    names = []
    for ending in ("a", "b"):
        values = {**everything, "fullnameOverride": f"gpuwatch-{'x' * 53}{ending}"}
        first, second = (made_with(values, tmp_path).stdout for _ in range(2))
        assert first == second
        names.append(
            {(each["kind"], each["metadata"]["name"]) for each in yaml.safe_load_all(first) if each is not None}
        )

    assert names[0]
    assert not names[0] & names[1]


@pytest.mark.parametrize("site", SITES)
def test_the_pod_of_helm_test_is_as_the_others(site: str) -> None:
    """A policy that asks for digests, limits, labels or a user lets it in like them."""
    (test,) = (each for each in manifests(site) if each["kind"] == "Pod")
    kinds = {each["kind"] for each in manifests(site)}
    like = one(site, *(("Deployment", "controller") if "Deployment" in kinds else ("DaemonSet", "agent")))
    pod, container = like["spec"]["template"]["spec"], like["spec"]["template"]["spec"]["containers"][0]

    for key in ("imagePullSecrets", "securityContext", "tolerations", "nodeSelector"):
        assert test["spec"].get(key) == pod.get(key), key
    for key in ("image", "imagePullPolicy", "securityContext", "resources"):
        assert test["spec"]["containers"][0].get(key) == container.get(key), key


def test_each_site_says_what_it_is() -> None:
    """In the first line of its values."""
    for name in SITES:
        assert (EXPECTED / f"{name}.values.yaml").read_text(encoding="utf-8").startswith("# ")
