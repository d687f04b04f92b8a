"""The section `kubernetes`: bad input is named, and without the section nothing is loaded."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from gpuwatch.clouds.errors import AuthFailedError
from gpuwatch.config import ConfigError, load
from gpuwatch.config.reader import schema
from gpuwatch.kubernetes.settings import KubernetesSettings, contradictions
from gpuwatch.runtime.clock import ManualClock


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (KubernetesSettings(in_cluster=True, kubeconfig="k"), "two ways to the API server"),
        (KubernetesSettings(in_cluster=True, context="prod"), "names a context of a kubeconfig"),
        (KubernetesSettings(name="prod"), "does not say where the API server is"),
        (KubernetesSettings(in_cluster=True, timeout=60.0), "is shorter than kubernetes.timeout (1m)"),
    ],
)
def test_what_does_not_fit_together_is_named(settings: KubernetesSettings, says: str) -> None:
    """With the keys, and what would be right."""
    (found,) = contradictions(settings)

    assert says in found.wrong
    assert found.right


@pytest.mark.parametrize("settings", [KubernetesSettings(), KubernetesSettings(kubeconfig="k", context="c")])
def test_what_is_right_is_right(settings: KubernetesSettings) -> None:
    """No section, too: that is a fleet without Kubernetes."""
    assert list(contradictions(settings)) == []
    assert settings.configured == (settings.kubeconfig is not None)


def test_a_kubeconfig_that_is_missing_is_an_error_of_the_start() -> None:
    """Not one of some later round."""
    with pytest.raises(AuthFailedError, match="no-such-file cannot be read"):
        KubernetesSettings(kubeconfig="no-such-file").connect(ManualClock())


def test_without_a_cluster_no_client_is_loaded() -> None:
    """A controller of a fleet without Kubernetes needs neither the extra nor its memory."""
    program = (
        "import sys, gpuwatch.cli.controller\n"
        "loaded = [name for name in sys.modules if name.startswith('gpuwatch.kubernetes.')]\n"
        "print(*sorted(loaded), 'urllib3' in sys.modules)"
    )

    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert printed.split() == [
        "gpuwatch.kubernetes.calls",
        "gpuwatch.kubernetes.join",
        "gpuwatch.kubernetes.settings",
        "gpuwatch.kubernetes.several",
        "False",
    ]


@pytest.mark.parametrize(
    ("clusters", "says"),
    [
        ({"a": {"in_cluster": True}, "b": {"in_cluster": True}}, "are both the cluster that the controller runs in"),
        ({"a": {"in_cluster": True}, "b": {}}, "kubernetes.b does not say where the API server is"),
        ({"a/b": {"kubeconfig": "k"}}, "'a/b' is no name of a cluster"),
        ({"Prod": {"kubeconfig": "k"}}, "'Prod' is no name of a cluster"),
        ({"a": {"kubeconfig": "k", "name": "z"}}, "kubernetes.a.name is 'z': it is called a"),
        (
            {"a": {"kubeconfig": "k", "in_cluster": True}},
            "kubernetes.a.in_cluster and kubernetes.a.kubeconfig are two ways",
        ),
        ({"a": {"kubeconfig": "k", "pools": ["trian"]}}, "kubernetes.a.pools"),
        ({"a": {"kubeconfg": "k"}}, "kubernetes.a.kubeconfg: is not a key of the configuration"),
        ({"a": {"kubeconfig": "k", "timeout": "10"}}, 'kubernetes.a.timeout: "10" has no unit'),
        ({"a": {"kubeconfig": "k"}, "in_cluster": True}, "kubernetes.in_cluster is a key of a single one"),
        ({"a": "k"}, "kubernetes.a"),
        ({"a_b": None}, "'a_b' is no name of a cluster"),
        ({"pools": {"kubeconfig": "k"}}, "kubernetes.pools: a section is not a list of texts"),
    ],
)
def test_what_does_not_fit_in_one_of_several_is_named(
    clusters: Mapping[str, object], says: str, tmp_path: Path
) -> None:
    """With its own keys: `gpuwatch config check` finds it."""
    file = tmp_path / "gpuwatch.yaml"
    file.write_text(yaml.safe_dump({"kubernetes": clusters, "pools": {"train": {}}}), encoding="utf-8")
    with pytest.raises(ConfigError) as found:
        load(file, {})

    assert says in str(found.value)


def test_each_of_several_is_called_by_its_key(tmp_path: Path) -> None:
    """In their order; a single section keeps its own name, and variables reach each of them."""
    file = tmp_path / "gpuwatch.yaml"
    several = "kubernetes:\n  prod: {in_cluster: true}\n  research: {kubeconfig: /k, pools: [default]}\n"
    file.write_text(several, encoding="utf-8")
    known = load(file, {"GPUWATCH_KUBERNETES__RESEARCH__CONTEXT": "lab"}).named_clusters
    file.write_text("kubernetes: {name: old}\n", encoding="utf-8")
    single = load(file, {"GPUWATCH_KUBERNETES__IN_CLUSTER": "true"}).named_clusters
    file.write_text("{}", encoding="utf-8")
    alone = load(file, {"GPUWATCH_KUBERNETES__lab__KUBECONFIG": "/k"}).named_clusters

    assert [(key, each.name) for key, each in known.items()] == [("prod", "prod"), ("research", "research")]
    assert (known["research"].context, known["research"].kubeconfig) == ("lab", "/k")
    assert [(key, each.name, each.in_cluster) for key, each in single.items()] == [("old", "old", True)]
    assert [(key, each.kubeconfig) for key, each in alone.items()] == [("lab", "/k")]


def test_a_section_of_the_readers_own_is_no_key(tmp_path: Path) -> None:
    """Clusters by name stand under `kubernetes` alone, in the file and in its schema."""
    file = tmp_path / "gpuwatch.yaml"
    file.write_text("clusters: {prod: {in_cluster: true}}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="clusters: is not a key of the configuration"):
        load(file, {})
    editors = schema()["properties"]

    assert "clusters" not in editors
    assert editors["kubernetes"]["additionalProperties"]["$ref"] == "#/$defs/KubernetesSettings"
    assert "in_cluster" in editors["kubernetes"]["properties"]
