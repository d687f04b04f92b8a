"""`gpuwatch export alerts`: rules for a user's own jobs and links, which promtool accepts."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from gpuwatch.cli.export_alerts import GROUPS
from gpuwatch.cli.main import commands
from tests.support.components import require
from tests.support.paths import ROOT

SHIPPED = yaml.load((ROOT / "alerts/gpuwatch.yml").read_text(encoding="utf-8"), yaml.CSafeLoader)["groups"]


def export(folder: Path, *arguments: str) -> Result:
    """The command's outcome."""
    return CliRunner().invoke(commands, ["export", "alerts", str(folder), *arguments])


def groups(folder: Path, *arguments: str) -> list[dict[str, Any]]:
    """The groups that it writes."""
    done = export(folder, *arguments)
    assert done.exit_code == 0, done.output
    (path,) = folder.iterdir()
    written = yaml.safe_load(path.read_text(encoding="utf-8"))
    return list(written["groups"] if "groups" in written else written["spec"]["groups"])


def test_the_groups_are_those_of_the_shipped_file() -> None:
    """A new group would never be written."""
    assert [group["name"] for group in SHIPPED] == ["gpuwatch-recorded", *(f"gpuwatch-{name}" for name in GROUPS)]


def test_all_groups_as_they_are_say_what_the_shipped_file_says(tmp_path: Path) -> None:
    """Without any option that changes it."""
    assert groups(tmp_path, "--groups", "all") == SHIPPED


def test_a_beginner_gets_the_starter_group(tmp_path: Path) -> None:
    """Ten alerts, and the recorded series that they need."""
    recorded, starter = groups(tmp_path)

    assert (recorded["name"], starter["name"]) == ("gpuwatch-recorded", "gpuwatch-starter")
    assert len({rule["alert"] for rule in starter["rules"]}) == 10


def test_jobs_and_links_are_the_users(tmp_path: Path) -> None:
    """In expressions and in texts; each alert has both links."""
    links = ("--runbooks", "https://runbooks.example.com/gpu/", "--dashboards", "https://grafana.example.com")
    found = groups(tmp_path, "--groups", "all", "--job", "gpu-agents", "--controller-job", "ops/gpuwatch", *links)
    text = "".join(path.read_text(encoding="utf-8") for path in tmp_path.iterdir())
    notes = [rule["annotations"] for group in found for rule in group["rules"] if "alert" in rule]

    assert 'job="gpu-agents"' in text
    assert 'job="ops/gpuwatch"' in text
    assert 'job="gpuwatch"' not in text
    assert all(each["runbook_url"].startswith("https://runbooks.example.com/gpu/") for each in notes)
    chosen = (
        "?from=now-6h{{ with $labels.cluster }}&var-cluster={{ . | urlquery }}{{ end }}"
        "{{ with $labels.fleet }}&var-fleet={{ . | urlquery }}{{ end }}"
    )
    assert all(each["dashboard_url"].endswith(chosen) for each in notes), "the alert's own fleet is chosen"
    begin = "https://grafana.example.com/d/gpuwatch-"
    boards = {each["dashboard_url"].removeprefix(begin).removesuffix(chosen) for each in notes}
    assert boards == {"node", "fleet", "controller", "cost"}
    assert all((ROOT / "dashboards" / f"{board}.json").is_file() for board in boards)


@pytest.mark.component("promtool")
def test_promtool_accepts_whatever_is_written(tmp_path: Path) -> None:
    """The starter group alone refers to no series that it does not record."""
    for number, arguments in enumerate(([], ["--groups", "all"], ["--groups", "budgets", "--job", "a/b:c-d"])):
        assert export(tmp_path / str(number), *arguments).exit_code == 0
        command = [str(require("promtool")), "check", "rules", "--lint=all", "--lint-fatal", "gpuwatch.yml"]
        done = subprocess.run(command, cwd=tmp_path / str(number), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_operator_gets_an_object(tmp_path: Path) -> None:
    """The same groups, in a PrometheusRule."""
    assert groups(tmp_path, "--format", "operator", "--groups", "all") == SHIPPED
    written = yaml.safe_load((tmp_path / "gpuwatch-prometheusrule.yaml").read_text(encoding="utf-8"))

    assert (written["apiVersion"], written["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    assert set(written) == {"apiVersion", "kind", "metadata", "spec"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--runbooks", "docs/runbooks"), "'docs/runbooks' must begin with http:// or https://"),
        (("--dashboards", "ftp://x"), "'ftp://x' must begin with http:// or https://"),
        (("--job", 'a"b'), "has signs other than letters"),
        (("--groups", "everything"), "'everything' is not one of"),
        (("--format", "mixin"), "'mixin' is not one of"),
    ],
)
def test_nonsense_is_refused(arguments: tuple[str, ...], words: str, tmp_path: Path) -> None:
    """And no file is written."""
    done = export(tmp_path, *arguments)

    assert done.exit_code == 2
    assert words in " ".join(done.output.split())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("arguments", "kept"), [((), ["starter"]), (("--groups", "all"), list(GROUPS))])
def test_the_chart_has_the_groups_that_are_asked_for(
    tmp_path: Path, arguments: tuple[str, ...], kept: list[str]
) -> None:
    """The starter group unless told otherwise, as in a rule file."""
    done = CliRunner().invoke(commands, ["export", "helm", str(tmp_path), *arguments])
    written = yaml.safe_load((tmp_path / "gpuwatch/files/rules/gpuwatch.yml").read_text(encoding="utf-8"))["groups"]

    assert done.exit_code == 0, done.output
    assert [group["name"] for group in written] == ["gpuwatch-recorded", *(f"gpuwatch-{name}" for name in kept)]
    assert all(group in SHIPPED for group in written)
    assert "your images (none is published), and TLS or `insecure: true`" in done.output  # the defaults do not install
    assert "--create-namespace --values values.yaml\n" in done.output
