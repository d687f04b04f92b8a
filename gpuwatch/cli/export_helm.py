"""The Helm chart as it is handed out: its own files, the dashboards, the alert rules, and this version."""

import re

from gpuwatch import __version__
from gpuwatch.cli.shipped import files_below, shipped

_UNVERSIONED = "0.0.0"  # in the shipped Chart.yaml
_RULES = ("gpuwatch.yml", "recording.yml")


def chart() -> dict[str, str]:
    """Texts by their path in the chart's folder."""
    files = dict(files_below(shipped("deploy").joinpath("helm", "gpuwatch")))
    files["Chart.yaml"] = (
        files["Chart.yaml"]
        .replace(f"version: {_UNVERSIONED}\n", f"version: {semantic(__version__)}\n")
        .replace(f'appVersion: "{_UNVERSIONED}"', f'appVersion: "{__version__}"')
    )
    boards = shipped("dashboards")
    files |= {
        f"files/dashboards/{name}": text
        for name, text in files_below(boards)
        if "/" not in name and name.endswith(".json")
    }
    alerts = shipped("alerts")
    return files | {f"files/rules/{name}": alerts.joinpath(name).read_text(encoding="utf-8") for name in _RULES}


def semantic(version: str) -> str:
    """A Python version as Helm wants it: 1.0.0rc1 becomes 1.0.0-rc.1."""
    return re.sub(r"^(\d+\.\d+\.\d+)\.?(a|b|rc|dev)(\d+)", r"\1-\2.\3", version)
