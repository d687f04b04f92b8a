"""The pages on Kubernetes: what they show is what the chart, the settings and the role take."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

from gpuwatch.config import load
from gpuwatch.kubernetes.calls import RIGHTS, Use
from gpuwatch.model import kubernetes as nouns
from gpuwatch.model.workload_kinds import KINDS
from tests.support.paths import ROOT
from tools.docs.kubernetes_rights import with_rights
from tools.docs.workload_kinds import with_kinds
from tools.kustomize import FOLDER

NAMES = ("kubernetes", "kubernetes-nodes", "kubernetes-workloads")
PAGE = "\n".join((ROOT / f"docs/{name}.md").read_text(encoding="utf-8") for name in NAMES)
BLOCKS = [
    yaml.safe_load(re.sub(r"^   ", "", block, flags=re.MULTILINE) if block.startswith("   ") else block)
    for block in re.findall(r"^ *```yaml\n(.*?)^ *```", PAGE, re.MULTILINE | re.DOTALL)
]
SCHEMA = json.loads((ROOT / "deploy/helm/gpuwatch/values.schema.json").read_text(encoding="utf-8"))


def with_key(key: str) -> list[Mapping[str, Any]]:
    """The blocks that have it at their top."""
    return [block for block in BLOCKS if key in block]


def test_its_values_are_the_charts() -> None:
    """Every key of them; an unknown one would be refused by `helm install`."""
    found = [*with_key("agent"), *with_key("controller")]

    assert len(found) > 1
    for values in found:
        jsonschema.Draft7Validator(SCHEMA).validate(values)


@pytest.mark.parametrize("number", range(3))
def test_its_settings_are_gpuwatchs(number: int, tmp_path: Path) -> None:
    """Those that the chart writes, and those of pools."""
    written = [
        with_key("agent")[0]["controller"]["settings"],
        *(each for each in with_key("pools") if "kubernetes" in each),
    ][number]
    file = tmp_path / "gpuwatch.yaml"
    file.write_text(yaml.safe_dump(written), encoding="utf-8")

    assert load(file, {}).mode == "observe"


def test_its_kustomization_merges_what_the_base_generates() -> None:
    """By the same names; the base's own images are the names that it changes."""
    (own,) = with_key("configMapGenerator")
    base = yaml.safe_load((ROOT / FOLDER / "kustomization.yaml").read_text(encoding="utf-8"))

    names = [{each["name"] for each in made["configMapGenerator"]} for made in (own, base)]
    assert names[0] == names[1] == {each["name"] for each in own["images"]}


def test_it_names_every_annotation_that_people_write() -> None:
    """And no other of gpuwatch's."""
    people = {nouns.IDLE_ACTION, nouns.INTERRUPTIBLE, nouns.LOSES_LOCAL_DATA, nouns.OWNER, nouns.PROTECT}
    people |= {nouns.SNOOZE_UNTIL, nouns.IDLE_TIMEOUT}
    ours = {
        nouns.CORDONED_BY,
        nouns.MARKED_BY,
        nouns.UNHEALTHY,
        nouns.STOP_AT,
        nouns.RELEASED_BY,
        nouns.RELEASED_GENERATION,
        nouns.REPLICAS_BEFORE,
    }
    table = set(re.findall(r"^\| `(gpuwatch\.io/[a-z-]+):", PAGE, re.MULTILINE))

    assert table == people
    assert set(re.findall(r"`(gpuwatch\.io/[a-z-]+)", PAGE)) == people | ours


def test_it_names_every_right() -> None:
    """What it changes is an own row of the table for each switch of the chart."""
    page = (ROOT / "docs/kubernetes.md").read_text(encoding="utf-8")
    rights = {
        use: {
            (right.subresource or right.resource, verb) for right in RIGHTS if right.use == use for verb in right.verbs
        }
        for use in get_args(Use)
    }

    assert with_rights(page) == page, "run `make docs`"
    assert "| `act: true` as well | patch: nodes; create: pods/eviction |" in page
    assert "| `podActions.barePods: true` as well, there | get, patch: pods |" in page
    assert rights["nodes"] == {("nodes", "patch"), ("eviction", "create")}
    assert rights["workloads"] == {
        *((each.resource, "patch") for each in KINDS if each.actions),
        ("scale", "patch"),
        *((each, "create") for each in ("events", "eviction")),
    }
    assert rights["bare-pods"] == {("pods", "get"), ("pods", "patch")}
    assert {verb for _, verb in rights["observe"]} == {"get", "list", "watch"}
    with pytest.raises(ValueError, match="0 places"):
        with_rights("# A page")


def test_it_has_every_kind_of_workload_with_what_may_end_it() -> None:
    """One row for each, from the code's own table, and no other."""
    page = (ROOT / "docs/kubernetes-workloads.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.count(" | ") == 5]
    told = {label: row for row in rows for label in row[0].split(", ")}

    assert with_kinds(page) == page, "run `make docs`"
    assert told.keys() - {"kind", "---"} == {each.label for each in KINDS}
    assert {each.label: set(re.findall("`([a-z-]+)`", told[each.label][2])) for each in KINDS} == {
        each.label: set(each.actions) for each in KINDS
    }
    with pytest.raises(ValueError, match="0 places"):
        with_kinds("# A page")


def test_the_chart_reads_every_kind_of_the_table() -> None:
    """By default; kinds of Kubernetes itself are in the role already."""
    values = yaml.safe_load((ROOT / "deploy/helm/gpuwatch/values.yaml").read_text(encoding="utf-8"))
    told = {(each["apiGroup"], each["resource"]) for each in values["controller"]["kubernetes"]["workloads"]}

    assert told == {(each.group, each.resource) for each in KINDS if each.by != "Kubernetes"}
