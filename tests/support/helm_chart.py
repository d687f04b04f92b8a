"""The Helm chart as real Helm rendered it, and Helm itself where it was built."""

import hashlib
import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.support.kubernetes_programs import built
from tests.support.paths import GOLDEN, ROOT

SOURCE = ROOT / "deploy/helm/gpuwatch"
EXPECTED = GOLDEN / "helm"
VALUES: Mapping[str, Any] = yaml.safe_load((SOURCE / "values.yaml").read_text(encoding="utf-8"))
SCHEMA: Mapping[str, Any] = json.loads((SOURCE / "values.schema.json").read_text(encoding="utf-8"))
RENDERED = ("defaults", "everything", "kubernetes", "kustomize")
# Values as people of such places have them, with most of what can be set.
SITES = ("airgapped", "eks", "gitops", "k3s", "kube-prometheus", "openshift")
HELM = str(built("helm")) if built("helm").exists() else shutil.which("helm")
KUBERNETES = ("--kube-version", "1.31.0", "--namespace", "gpuwatch")


def values_of(name: str) -> list[str]:
    """The options of Helm that choose the values of a rendering."""
    file = EXPECTED / f"{name}.values.yaml"
    return ["--values", str(file)] if file.exists() else []


def helm(*arguments: str | Path) -> str:
    """What real Helm prints."""
    assert HELM is not None
    done = subprocess.run([HELM, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def checksum() -> str:
    """Of all that the renderings are made of."""
    digest = hashlib.sha256()
    for path in sorted([*SOURCE.rglob("*"), *EXPECTED.glob("*.values.yaml")]):
        if path.is_file():
            digest.update(f"{path.name}\0{path.read_text(encoding='utf-8')}\0".encode())
    return digest.hexdigest()


def manifests(name: str) -> list[dict[str, Any]]:
    """The objects of a rendering."""
    text = (EXPECTED / f"{name}.yaml").read_text(encoding="utf-8")
    return [each for each in yaml.safe_load_all(text) if each is not None]


def one(name: str, kind: str, part: str) -> dict[str, Any]:
    """The one object of that kind that belongs to agent or controller."""
    (found,) = (
        each
        for each in manifests(name)
        if each["kind"] == kind and each["metadata"]["labels"]["app.kubernetes.io/component"] == part
    )
    return found


def pods(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Kind and pod of each workload."""
    for each in manifests(name):
        if each["kind"] in {"DaemonSet", "Deployment"}:
            yield each["kind"], each["spec"]["template"]["spec"]


def made_with(values: Mapping[str, Any], tmp_path: Path) -> "subprocess.CompletedProcess[str]":
    """What Helm says to these values."""
    assert HELM is not None
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    command: list[str | Path] = [
        HELM,
        "template",
        "gpuwatch",
        SOURCE,
        *KUBERNETES,
        "--values",
        tmp_path / "values.yaml",
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def annotations(each: Mapping[str, Any]) -> Mapping[str, str]:
    """Of an object."""
    found: Mapping[str, str] = each["metadata"].get("annotations") or {}
    return found
