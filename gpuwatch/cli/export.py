"""`gpuwatch export`: write what comes with gpuwatch into a folder, from whatever it was installed of."""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import click

from gpuwatch.cli.base import commands, print_text
from gpuwatch.cli.shipped import files_below, shipped_folder, write

PROGRAM = "/usr/local/bin/gpuwatch"  # as in the shipped units
_ODD = set(" \t\n\"'\\%$;#:")  # what systemd, YAML or a shell reads as something else
_PATH = "must be an absolute path without blanks, quotes, backslashes, %, $, ;, # and :"
_GRAFANA_FOLDER = "/var/lib/grafana/dashboards/gpuwatch"

folder_argument = click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
force_option = click.option("--force", is_flag=True, help="Overwrite files that differ from what would be written.")


@commands.group()
def export() -> None:
    """Write dashboards, alerts, units, IAM policies, the Helm chart, a kustomize base, costs or how hosts join.

    A file that differs is not overwritten without --force.
    """


@export.command()
@folder_argument
@click.option("--provisioning", is_flag=True, help="Also write Grafana's provisioning files.")
@click.option(
    "--grafana-folder",
    metavar="PATH",
    default=_GRAFANA_FOLDER,
    show_default=True,
    help="With --provisioning: where Grafana finds the dashboards.",
)
@click.option(
    "--prometheus",
    metavar="URL",
    default="http://127.0.0.1:9090",
    show_default=True,
    help="With --provisioning: where Grafana finds Prometheus.",
)
@click.option("--configmaps", is_flag=True, help="Write ConfigMaps for the sidecar of Grafana's Helm chart instead.")
@force_option
def dashboards(
    *, folder: Path, provisioning: bool, grafana_folder: str, prometheus: str, configmaps: bool, force: bool
) -> None:
    """Write the Grafana dashboards as JSON files."""
    if provisioning and configmaps:
        raise click.UsageError("--provisioning is for Grafana's own files, --configmaps for the sidecar: choose one")
    if not re.fullmatch(r"https?://[^\s'\"#]+", prometheus):
        raise click.BadParameter(f"{prometheus!r} must begin with http:// or https://", param_hint="--prometheus")
    if not grafana_folder.startswith("/") or _ODD & set(grafana_folder):
        raise click.BadParameter(f"{grafana_folder!r} {_PATH}", param_hint="--grafana-folder")
    boards = {each.name: each.read_text(encoding="utf-8") for each in _json_files(shipped_folder("dashboards"))}
    if configmaps:
        write(folder, {f"gpuwatch-{_stem(name)}.yaml": config_map(name, text) for name, text in boards.items()}, force)
        print_text(
            f"Apply them with: kubectl apply --server-side --namespace monitoring --filename {_quote_folder(folder)}"
        )
        return
    files = dict(boards)
    if provisioning:
        words = {"http://127.0.0.1:9090": prometheus, _GRAFANA_FOLDER: grafana_folder}
        tree = shipped_folder("dashboards").joinpath("provisioning")
        files |= {f"provisioning/{name}": _replace_words(text, words) for name, text in files_below(tree)}
    write(folder, files, force)
    if provisioning:
        print_text(f"Copy the JSON files to {grafana_folder}, and provisioning/ to /etc/grafana/provisioning.")


@export.command()
@folder_argument
@click.option(
    "--exec", "program", metavar="PATH", default=PROGRAM, show_default=True, help="The program that the units start."
)
@force_option
def units(*, folder: Path, program: str, force: bool) -> None:
    """Write the systemd units of agent and controller, and the sysusers file of the agent's user."""
    if not program.startswith("/") or _ODD & set(program):
        raise click.BadParameter(f"{program!r} {_PATH}", param_hint="--exec")
    words = {f"ExecStart={PROGRAM} ": f"ExecStart={program} "}
    write(folder, {name: _replace_words(text, words) for name, text in files_below(shipped_folder("systemd"))}, force)
    here = _quote_folder(folder)
    print_text(
        "Install on a GPU host (for the controller, its unit alone):\n"
        f"  sudo install -m 644 {here}/gpuwatch.sysusers.conf /usr/lib/sysusers.d/gpuwatch.conf\n"
        "  sudo systemd-sysusers\n"
        f"  sudo install -m 644 {here}/gpuwatch-agent.service /etc/systemd/system/\n"
        "  sudo systemctl daemon-reload\n"
        "  sudo systemctl enable --now gpuwatch-agent"
    )


@export.command()
@folder_argument
@click.option(
    "--fleet", metavar="NAME", default="default", show_default=True, help="The value of the tag gpuwatch:fleet."
)
@click.option("--region", "regions", metavar="NAME", multiple=True, help="Allow it there only; may be repeated.")
@click.option("--provider", metavar="NAME", default="aws", show_default=True, help="The cloud of the policies.")
@click.option(
    "--partition",
    type=click.Choice(["aws", "aws-cn", "aws-us-gov"]),
    default="aws",
    show_default=True,
    help="The partition in ARNs.",
)
@click.option(
    "--scope",
    "scopes",
    metavar="SCOPE",
    multiple=True,
    help="On Azure: where the roles may be given (/subscriptions/…[/resourceGroups/…]); may be repeated. On Google "
    "Cloud: the project that has the tags of the conditions (projects/ID).",
)
@force_option
def iam(
    *,
    folder: Path,
    fleet: str,
    regions: Sequence[str],
    provider: str,
    partition: str,
    scopes: Sequence[str],
    force: bool,
) -> None:
    """Write a cloud's policies: observe, reclaim, scale, and what may be added to them."""
    from gpuwatch.clouds import FLEET_TAG
    from gpuwatch.clouds.settings import CLOUDS

    if provider not in CLOUDS:
        raise click.BadParameter(f"{provider!r} is not one of {', '.join(sorted(CLOUDS))}", param_hint="--provider")
    if not fleet.strip() or set(fleet) & set('*?$"\\'):
        raise click.BadParameter(
            f"{fleet!r} must be the value of a tag, without *, ?, $, quotes and backslashes", param_hint="--fleet"
        )
    files = CLOUDS[provider].policies(fleet=fleet, regions=regions, partition=partition, scopes=scopes)
    if not files:
        raise click.BadParameter(f"{provider} has no policies to write", param_hint="--provider")
    write(folder, dict(files), force)
    where = f" in {', '.join(regions)}" if regions else ""
    if any(FLEET_TAG in text for text in files.values()):
        print_text(f"They are for machines tagged gpuwatch:fleet={fleet}{where}. Begin with observe.json.")
        return
    text = "They know no tags: they hold for every machine of the place where you give them"
    if any(name.endswith(".condition.json") for name in files):
        text += ", except where you bind them with a condition.json (docs/clouds/gcp.md#from-zero says which)"
    print_text(f"{text}. Begin with observe.json.")


@export.command()
@folder_argument
@force_option
def kustomize(*, folder: Path, force: bool) -> None:
    """Write the kustomize base, the Helm chart's objects for those without Helm, into DIR/gpuwatch."""
    base = shipped_folder("deploy").joinpath("kustomize", "gpuwatch")
    write(folder, {f"gpuwatch/{name}": text for name, text in files_below(base)}, force)
    print_text(
        f"Name it in a kustomization with your images and settings: resources: [{_quote_folder(folder)}/gpuwatch]"
    )


def config_map(name: str, text: str) -> str:
    """The manifest of a dashboard for the sidecar; JSON, which is YAML, too."""
    manifest: Mapping[str, Any] = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": f"gpuwatch-{_stem(name)}",
            "labels": {"app.kubernetes.io/name": "gpuwatch", "grafana_dashboard": "1"},
            "annotations": {"grafana_folder": "gpuwatch"},
        },
        "data": {f"gpuwatch-{name}": text},
    }
    return json.dumps(manifest, indent=2) + "\n"


def _json_files(tree: Traversable) -> list[Traversable]:
    return sorted((each for each in tree.iterdir() if each.name.endswith(".json")), key=lambda each: each.name)


def _quote_folder(folder: Path) -> str:
    return shlex.quote(str(folder))


def _stem(name: str) -> str:
    return name.removesuffix(".json")


def _replace_words(text: str, words: Mapping[str, str]) -> str:
    for old, new in words.items():
        text = text.replace(old, new)
    return text
