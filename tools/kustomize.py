"""deploy/kustomize/gpuwatch: the chart's own objects for those without Helm, made of what Helm rendered.

The rendering is tests/golden/helm/kustomize.yaml. What is Helm's own is left out; settings become files of a generator,
so that a changed setting makes new pods; namespace and images are for the kustomization that uses this one.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

_RENDERED = Path(__file__).parent.parent / "tests/golden/helm/kustomize.yaml"
FOLDER = "deploy/kustomize/gpuwatch"
_MADE = (
    "# Made of the Helm chart by `make docs`: change it there, or in a kustomization of your own that uses this one.\n"
)
_HELMS_LABELS = ("helm.sh/chart", "app.kubernetes.io/managed-by", "app.kubernetes.io/version")
_UNDECIDED = """\
# DECIDE: true lets everybody who reaches the port read; else set a certificate and users (docs/tls-and-auth.md).
# As it stands the program ends at its start and says so. docs/kubernetes.md shows a kustomization with its own file.
"""
_PARTS = ("agent", "controller")
NAMES = (
    *("kustomization.yaml", "namespace.yaml", "rbac.yaml"),
    *(f"{part}{kind}" for part in _PARTS for kind in (".yaml", "/gpuwatch.yaml")),
)
_RBAC = ("ClusterRole", "ClusterRoleBinding")

Object = dict[str, Any]


def files() -> dict[str, str]:
    """Every file's text by its path in the folder."""
    objects = [each for each in yaml.safe_load_all(_RENDERED.read_text(encoding="utf-8")) if each]
    kept = [_plain(each) for each in objects if "helm.sh/hook" not in (each["metadata"].get("annotations") or {})]
    made = {"kustomization.yaml": _kustomization(), "namespace.yaml": _text([_namespace()])}
    made["rbac.yaml"] = _text([each for each in kept if each["kind"] in _RBAC])
    for part in _PARTS:
        own = [each for each in kept if each["metadata"]["labels"]["app.kubernetes.io/component"] == part]
        made[f"{part}.yaml"] = _text([each for each in own if each["kind"] not in {"ConfigMap", *_RBAC}])
        (settings,) = (each["data"]["gpuwatch.yaml"] for each in own if each["kind"] == "ConfigMap")
        made[f"{part}/gpuwatch.yaml"] = _UNDECIDED + settings.replace("insecure: true", "insecure: false")
    return made


def render(name: str) -> str:
    """One file's text."""
    return files()[name]


def _kustomization() -> str:
    generated = [{"name": f"gpuwatch-{part}", "files": [f"{part}/gpuwatch.yaml"]} for part in _PARTS]
    return _text(
        [
            {
                "apiVersion": "kustomize.config.k8s.io/v1beta1",
                "kind": "Kustomization",
                "namespace": "gpuwatch",
                "resources": ["namespace.yaml", *(f"{part}.yaml" for part in _PARTS), "rbac.yaml"],
                "configMapGenerator": generated,
            }
        ]
    )


def _namespace() -> Object:
    """The agent sees the host's processes and folders, which only this level allows."""
    labels = {"pod-security.kubernetes.io/enforce": "privileged"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gpuwatch", "labels": labels}}


def _plain(made: Object) -> Object:
    """An object without what is Helm's."""
    template = made.get("spec", {}).get("template")
    if template is not None:
        (container,) = template["spec"]["containers"]
        container["image"] = container["image"].partition(":")[0]
        template["metadata"] = _without_helm(template["metadata"])
    return {**made, "metadata": _without_helm(made["metadata"])}


def _without_helm(metadata: Mapping[str, Any]) -> Object:
    """Metadata without Helm's labels and annotations, and without the checksum that the generator replaces."""
    labels = {key: value for key, value in metadata["labels"].items() if key not in _HELMS_LABELS}
    given = metadata.get("annotations") or {}
    annotations = {key: value for key, value in given.items() if not key.startswith(("helm.sh/", "checksum/"))}
    kept = {key: value for key, value in metadata.items() if key != "annotations"}
    return {**kept, "labels": labels, **({"annotations": annotations} if annotations else {})}


def _text(objects: list[Object]) -> str:
    return _MADE + "---\n".join(yaml.safe_dump(each, sort_keys=False, width=120) for each in objects)
