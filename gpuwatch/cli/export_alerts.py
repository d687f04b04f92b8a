"""`gpuwatch export alerts` and `helm`: rules for a user's own jobs and links, written again after each upgrade."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from gpuwatch.cli.base import print_text
from gpuwatch.cli.export import export, folder_argument, force_option
from gpuwatch.cli.shipped import shipped_folder, write

GROUPS = ("starter", "waste", "health", "notices", "agents", "controller", "budgets")
_JOB = re.compile(r"[a-zA-Z0-9_./:-]+")
_URL = re.compile(r"https?://[^\s'\"{}]+")
# The alert's own fleet is chosen there, as far as it has such labels.
_OF_THE_ALERT = (
    "?from=now-6h{{ with $labels.cluster }}&var-cluster={{ . | urlquery }}{{ end }}"
    "{{ with $labels.fleet }}&var-fleet={{ . | urlquery }}{{ end }}"
)
# The dashboard that an alert of this runbook's page leads to.
_BOARDS = {"gpu": "node", "agent": "node", "fleet": "fleet", "controller": "controller", "money": "cost"}


def _job(_: click.Context, param: click.Parameter, value: str) -> str:
    """A job's name that needs no quoting in PromQL."""
    if not _JOB.fullmatch(value):
        raise click.BadParameter(f"{value!r} has signs other than letters, digits and _ . / : -", param=param)
    return value


def _url(_: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """An absolute URL without a slash at its end."""
    if value is not None and not _URL.fullmatch(value):
        raise click.BadParameter(f"{value!r} must begin with http:// or https://", param=param)
    return None if value is None else value.rstrip("/")


groups_option = click.option(
    "--groups",
    "chosen",
    multiple=True,
    type=click.Choice([*GROUPS, "all"]),
    default=("starter",),
    show_default=True,
    help="Which alerts; may be repeated. The recorded series are always written.",
)


@export.command()
@folder_argument
@groups_option
@click.option(
    "--format",
    "form",
    type=click.Choice(["prometheus", "operator"]),
    default="prometheus",
    show_default=True,
    help="A rule file, or a PrometheusRule for Prometheus Operator.",
)
@click.option(
    "--job", callback=_job, default="gpuwatch", show_default=True, help="The agents' job in your scrape configuration."
)
@click.option(
    "--controller-job", callback=_job, default="gpuwatch-controller", show_default=True, help="The controllers' job."
)
@click.option("--runbooks", callback=_url, metavar="URL", help="Where you publish docs/runbooks; for `runbook_url`.")
@click.option("--dashboards", callback=_url, metavar="URL", help="Your Grafana, for `dashboard_url`.")
@force_option
def alerts(  # noqa: PLR0913  one for each option
    *,
    folder: Path,
    chosen: tuple[str, ...],
    form: str,
    job: str,
    controller_job: str,
    runbooks: str | None,
    dashboards: str | None,
    force: bool,
) -> None:
    """Write the alert rules with your own jobs and links. Write them again after an upgrade."""
    jobs = {'job="gpuwatch"': f'job="{job}"', 'job="gpuwatch-controller"': f'job="{controller_job}"'}
    pattern = re.compile("|".join(map(re.escape, jobs)))
    groups = [
        {"name": group["name"], "rules": [_rule(each, runbooks, dashboards) for each in group["rules"]]}
        for group in _groups(chosen)
    ]
    document: dict[str, Any] = _map_texts(
        {"groups": groups}, lambda text: pattern.sub(lambda found: jobs[found[0]], text)
    )
    if form == "operator":
        document = {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "PrometheusRule",
            "metadata": {"name": "gpuwatch", "labels": {"app.kubernetes.io/name": "gpuwatch"}},
            "spec": document,
        }
    name = "gpuwatch.yml" if form == "prometheus" else "gpuwatch-prometheusrule.yaml"
    head = "# Written by `gpuwatch export alerts`; do not edit it, but export it again after an upgrade.\n"
    write(folder, {name: head + _dump_yaml(document)}, force)
    if runbooks is None:
        print_text("`runbook_url` is relative without --runbooks, and leads nowhere from Alertmanager.")


def rules_text(chosen: tuple[str, ...]) -> str:
    """The rule file of the shipped alerts, with these groups alone; `all` is the file as it is."""
    if "all" in chosen:
        return shipped_folder("alerts").joinpath("gpuwatch.yml").read_text(encoding="utf-8")
    return _dump_yaml({"groups": _groups(chosen)})


def _groups(chosen: tuple[str, ...]) -> list[dict[str, Any]]:
    """The recorded series, and the groups that are asked for."""
    import yaml

    kept = {"recorded", *(GROUPS if "all" in chosen else chosen)}
    source = yaml.safe_load(shipped_folder("alerts").joinpath("gpuwatch.yml").read_text(encoding="utf-8"))
    return [group for group in source["groups"] if group["name"].removeprefix("gpuwatch-") in kept]


def _dump_yaml(document: object) -> str:
    import yaml

    return yaml.dump(document, Dumper=_dumper(), sort_keys=False, width=120)


def _rule(rule: dict[str, Any], runbooks: str | None, dashboards: str | None) -> dict[str, Any]:
    """The rule with the user's links."""
    if "alert" not in rule:
        return rule
    notes = dict(rule["annotations"])
    page = notes["runbook_url"].removeprefix("docs/runbooks/")
    if runbooks is not None:
        notes["runbook_url"] = f"{runbooks}/{page}"
    if dashboards is not None:
        notes["dashboard_url"] = f"{dashboards}/d/gpuwatch-{_BOARDS[page.partition('.')[0]]}{_OF_THE_ALERT}"
    return {**rule, "annotations": notes}


def _map_texts(value: Any, change: Callable[[str], str]) -> Any:  # noqa: ANN401  a document of YAML
    """The document with each text changed."""
    if isinstance(value, dict):
        return {key: _map_texts(each, change) for key, each in value.items()}
    if isinstance(value, list):
        return [_map_texts(each, change) for each in value]
    return change(value) if isinstance(value, str) else value


def _dumper() -> Any:  # noqa: ANN401  PyYAML is loaded by this command only
    """Texts of several lines as blocks, and no anchors, which nobody reads."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:  # noqa: ANN401  PyYAML's own signature
            del data
            return True

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    Dumper.add_representer(str, text)
    return Dumper


@export.command()
@folder_argument
@groups_option
@force_option
def helm(*, folder: Path, chosen: tuple[str, ...], force: bool) -> None:
    """Write the Helm chart, with the dashboards and alert rules in it, into DIR/gpuwatch."""
    from gpuwatch.cli.shipped import chart

    files = {**chart(), "files/rules/gpuwatch.yml": rules_text(chosen)}
    write(folder, {f"gpuwatch/{name}": text for name, text in files.items()}, force)
    where = f"{shlex.quote(str(folder))}/gpuwatch"
    print_text(
        "Write values.yaml first: your images (none is published), and TLS or `insecure: true` for agent and "
        "controller. docs/kubernetes.md has an example."
    )
    print_text(f"Then: helm install gpuwatch {where} --namespace gpuwatch --create-namespace --values values.yaml")
