"""The kustomize base: the chart's own objects, without what is Helm's, and without a decision that people must take."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from gpuwatch.cli.main import commands
from gpuwatch.config import load
from gpuwatch.config.yaml_file import ConfigError
from tests.support.paths import GOLDEN, ROOT
from tools.kustomize import FOLDER, NAMES, files

BASE = ROOT / FOLDER
_KUBECTL = shutil.which("kubectl")


def objects(text: str) -> list[dict[str, Any]]:
    """The objects of a stream."""
    return [each for each in yaml.safe_load_all(text) if each]


def built(folder: Path) -> list[dict[str, Any]]:
    """What kubectl makes of a kustomization."""
    assert _KUBECTL is not None
    done = subprocess.run([_KUBECTL, "kustomize", folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return objects(done.stdout)


def test_the_base_is_what_the_chart_renders() -> None:
    """File by file, and there is no other: `make docs` writes them."""
    there = {path.relative_to(BASE).as_posix() for path in BASE.rglob("*") if path.is_file()}

    assert there == set(NAMES) == set(files())
    for name, text in files().items():
        assert (BASE / name).read_text(encoding="utf-8") == text, f"{name}: run `make docs`"


def test_the_base_has_every_object_of_the_rendering() -> None:
    """But for the ConfigMaps, which are generated, and Helm's test."""
    rendered = objects((GOLDEN / "helm/kustomize.yaml").read_text(encoding="utf-8"))
    wanted = sorted((each["kind"], each["metadata"]["name"]) for each in rendered)
    found = sorted(
        (each["kind"], each["metadata"]["name"])
        for name in NAMES
        if "/" not in name
        for each in objects(files()[name])
        if each["kind"] not in {"Kustomization", "Namespace"}
    )

    assert [each for each in wanted if each[0] not in {"ConfigMap", "Pod"}] == found


def test_nothing_of_helm_is_left() -> None:
    """Neither its labels and hooks, nor tags of images: a kustomization of the reader's own names those."""
    text = "".join(files().values())

    assert "helm.sh" not in text
    assert "managed-by" not in text
    assert "0.0.0\n" not in text.replace("0.0.0.0\n", "")


def test_it_is_exported_as_it_is(tmp_path: Path) -> None:
    """`gpuwatch export kustomize` writes the same files, from whatever gpuwatch was installed of."""
    done = CliRunner().invoke(commands, ["export", "kustomize", str(tmp_path)])
    written = {
        path.relative_to(tmp_path / "gpuwatch").as_posix(): path.read_text(encoding="utf-8")
        for path in tmp_path.rglob("*")
        if path.is_file()
    }

    assert done.exit_code == 0, done.output
    assert written == files()
    assert f"resources: [{tmp_path}/gpuwatch]" in done.output


@pytest.mark.parametrize("part", ["agent", "controller"])
def test_who_may_read_is_not_decided(part: str, tmp_path: Path) -> None:
    """The settings as they are say what is missing; with a decision they are whole."""
    text = files()[f"{part}/gpuwatch.yaml"]
    file = tmp_path / "gpuwatch.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=f"{part}.insecure"):
        load(file, {})
    file.write_text(text.replace("insecure: false", "insecure: true"), encoding="utf-8")

    assert load(file, {}).mode == "observe"


@pytest.mark.skipif(_KUBECTL is None, reason="kubectl is in no Debian package")
def test_kubectl_builds_the_base_and_a_kustomization_on_it(tmp_path: Path) -> None:
    """With a namespace, images and settings of one's own: every reference goes with them."""
    own = tmp_path / "own"
    shutil.copytree(BASE, tmp_path / "base")
    own.mkdir()
    (own / "agent.yaml").write_text("agent: {host: 0.0.0.0, insecure: true}\n", encoding="utf-8")
    (own / "kustomization.yaml").write_text(
        yaml.safe_dump(
            {
                "resources": ["../base"],
                "namespace": "monitoring",
                "images": [{"name": "gpuwatch-agent", "newName": "registry.example.com/agent", "newTag": "1"}],
                "configMapGenerator": [
                    {"name": "gpuwatch-agent", "behavior": "merge", "files": ["gpuwatch.yaml=agent.yaml"]}
                ],
            }
        ),
        encoding="utf-8",
    )
    found = {
        (each["kind"], each["metadata"]["name"].rpartition("-")[0] or each["metadata"]["name"]): each
        for each in built(own)
    }
    pod = found["DaemonSet", "gpuwatch"]["spec"]["template"]["spec"]
    settings = found["ConfigMap", "gpuwatch-agent"]
    (subject,) = found["ClusterRoleBinding", "gpuwatch-controller"]["subjects"]

    assert pod["containers"][0]["image"] == "registry.example.com/agent:1"
    assert {"name": "settings", "configMap": {"name": settings["metadata"]["name"]}} in pod["volumes"]
    assert yaml.safe_load(settings["data"]["gpuwatch.yaml"]) == {"agent": {"host": "0.0.0.0", "insecure": True}}  # noqa: S104
    assert subject["namespace"] == "monitoring"
    assert [each["kind"] for each in built(tmp_path / "base")] == [each["kind"] for each in built(own)]
