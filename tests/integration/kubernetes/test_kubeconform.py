"""kubeconform is content with the chart and with the kustomize base, offline: the schemas are the API server's own.

They are made of what a real API server says of itself (`/openapi/v2`); a field that it does not name is an error.
Objects of Prometheus Operator are left out, for it knows no such kinds.
"""

import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.helm_chart import RENDERED, SITES
from tests.support.kubernetes_programs import built
from tests.support.paths import GOLDEN
from tests.support.real.kubernetes import ControlPlane
from tools.kustomize import NAMES, files

KUBECONFORM = built("kubeconform")
pytestmark = [
    pytest.mark.component("kube-apiserver"),
    pytest.mark.skipif(not KUBECONFORM.exists(), reason="`kubernetes_programs.py kubeconform` builds it with Go"),
]
# Of the wire both are texts or numbers, which OpenAPI's second version cannot say.
EITHER = ("io.k8s.apimachinery.pkg.util.intstr.IntOrString", "io.k8s.apimachinery.pkg.api.resource.Quantity")
Schema = dict[str, Any]


def strict(name: str, definition: Schema) -> Schema:
    """A definition that refuses what it does not name; null is as good as absent, as for the API server."""
    if name in EITHER:
        return {"type": ["string", "number"]}
    if "properties" not in definition:
        return definition
    return {**definition, "additionalProperties": False}


def reached(schema: object, definitions: Mapping[str, Schema], found: set[str]) -> set[str]:
    """The definitions that a schema refers to, and those that these refer to."""
    for reference in references(schema):
        if reference not in found:
            found.add(reference)
            reached(definitions[reference], definitions, found)
    return found


def references(schema: object) -> Iterator[str]:
    """The names of definitions within a schema."""
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"].rpartition("/")[2]
        for each in schema.values():
            yield from references(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from references(each)


@pytest.fixture
def schemas(plane: ControlPlane, tmp_path: Path) -> Path:
    """A folder with a file for each kind, as kubeconform looks for them."""
    told = plane.admin.ask("GET", "/openapi/v2")["definitions"]
    definitions = {name: strict(name, each) for name, each in told.items()}
    folder = tmp_path / "schemas"
    folder.mkdir()
    for name, definition in definitions.items():
        for kind in definition.get("x-kubernetes-group-version-kind", ()):
            group = kind["group"].partition(".")[0]
            parts = [kind["kind"].lower(), *([group] if group else []), kind["version"]]
            needed = {each: definitions[each] for each in reached(definition, definitions, {name})}
            schema = {"$ref": f"#/definitions/{name}", "definitions": needed}
            (folder / f"{'-'.join(parts)}.json").write_text(json.dumps(schema), encoding="utf-8")
    return folder


def kubeconform(schemas: Path, text: str) -> tuple[int, dict[str, int], str]:
    """Its exit status, its summary, and all that it says."""
    location = f"{schemas}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"
    skipped = "PodMonitor,ServiceMonitor,PrometheusRule,monitoring.coreos.com/v1/PodMonitor,Kustomization"
    command: list[str | Path] = [
        KUBECONFORM,
        "-strict",
        "-summary",
        "-output",
        "json",
        "-schema-location",
        location,
        "-skip",
        skipped,
        "-",
    ]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout)["summary"], done.stdout + done.stderr


@pytest.mark.parametrize("name", RENDERED + SITES)
def test_the_chart_is_clean(schemas: Path, name: str) -> None:
    """Each object of each rendering, and none for want of a schema."""
    status, summary, said = kubeconform(schemas, (GOLDEN / "helm" / f"{name}.yaml").read_text(encoding="utf-8"))

    assert status == 0, said
    assert (summary["invalid"], summary["errors"]) == (0, 0)
    assert summary["valid"] > 3


def test_the_kustomize_base_is_clean(schemas: Path) -> None:
    """But for the Kustomization itself, which no API server has."""
    text = "---\n".join(files()[name] for name in NAMES if "/" not in name)
    status, summary, said = kubeconform(schemas, text)

    assert status == 0, said
    assert summary["valid"] > 6


@pytest.mark.parametrize(
    ("wrong", "said"), [({"volumeMount": []}, "volumeMount"), ({"ports": "9461"}, "ports"), ({"image": 7}, "image")]
)
def test_a_wrong_field_is_found(schemas: Path, wrong: Mapping[str, object], said: str) -> None:
    """An unknown one, and those of another type: so the tests above would see them."""
    objects = yaml.safe_load_all((GOLDEN / "helm/kubernetes.yaml").read_text(encoding="utf-8"))
    (made,) = (each for each in objects if each and each["kind"] == "Deployment")
    made["spec"]["template"]["spec"]["containers"][0].update(wrong)
    status, summary, words = kubeconform(schemas, yaml.safe_dump(made))

    assert (status, summary["invalid"]) == (1, 1)
    assert said in words
