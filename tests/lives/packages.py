"""The database of packages of a made host: small, of what the life has below /usr and in /etc.

A package has each unit in /usr/lib/systemd, each program and script below /usr that runs on the host itself, and the
crontabs that distributions ship. Which of them other vendors brought is a list here; a life's `packages` says more.
"""

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tests.lives.actors import Actor
from tests.lives.rates import LifeError
from tests.lives.story import Life
from tests.support.fakes.package_databases import COMPANY, ROCKY, UBUNTU, APackage, base_files, put_dpkg, put_rpm

_VENDORS = (
    *("*/nvidia-*", "*/nv-*", "*/nvsm*", "*/dcgm*", "*/dockerd", "*/docker*", "*/containerd*"),
    *("*/datacenter-gpu-manager*", "*/telegraf*", "*/otelcol*", "*/newrelic-infra*", "*/netbird*", "*/twingate*"),
    *("*/tailscale*", "*/google_*", "*/cmk-agent-ctl", "*/MetricsExtension", "*/code-server*", "*/jenkins*"),
    *("*/teleport*", "*/kubelet*", "*/amazon-ssm-agent*", "*/ssm-*", "*/mount-s3", "*/fluent-bit*", "*/falcon*"),
    *("*/code-tunnel", "*/gpu-feature-discovery", "*/gpuwatch*", "*/datadog*", "*/grafana*", "*/filebeat*"),
    *("*/vector*", "*/ollama*", "*/google-*", "*/splunk*"),
)
_CRONTABS = frozenset(
    {"e2scrub_all", "sysstat", "anacron", "0hourly", "raid-check", "mdadm", "php", "popularity-contest"}
)
_PERIODIC = re.compile(r"/etc/cron\.(?:hourly|daily|weekly|monthly)/[^/]+")
_INSIDE = ("docker ", "podman ", "pod ")
_KEYS = {"by", "company", "nobody"}


def put_packages(life: Life, root: Path) -> None:
    """Write it: `by` dpkg (the default), rpm or none; `company` and `nobody` are patterns of paths."""
    told = life.packages
    if unknown := told.keys() - _KEYS:
        raise LifeError(f"packages know no {', '.join(sorted(unknown))}")
    by = told.get("by", "dpkg")
    if by == "none":
        return
    texts = {path: _text(about) for path, about in life.files.items() if _is_shipped(path)}
    texts = {path: text for path, text in texts.items() if not _matches(path, told.get("nobody", ()))}
    paths = {path for path in (*_units(life), *_programs(life.cast)) if not _matches(path, told.get("nobody", ()))}
    theirs = {path for path in paths if _matches(path, told.get("company", ()))}
    vendors = {path for path in paths - theirs if _matches(path, _VENDORS)}
    ours = UBUNTU if by == "dpkg" else ROCKY
    put = put_dpkg if by == "dpkg" else put_rpm
    put(
        root,
        base_files(ours),
        APackage(name="of-the-distribution", files=sorted(paths - theirs - vendors), by=ours, configuration=texts),
        APackage(name="of-vendors", files=sorted(vendors), by="A vendor <support@vendor.example>"),
        APackage(name="of-the-company", files=sorted(theirs), by=COMPANY),
    )


def _units(life: Life) -> Iterable[str]:
    for name, about in life.units.items():
        told = about if isinstance(about, Mapping) else {"from": about}
        if told.get("from") == "shipped":
            yield f"/usr/lib/systemd/system/{name}"


def _programs(cast: Iterable[Actor]) -> Iterable[str]:
    """What runs on the host itself, and what a package's name is given to interpret."""
    for actor in cast:
        if not actor.place.startswith(_INSIDE) and not actor.place.startswith(("slurm ", "kernel")):
            for word in (actor.exe, *actor.cmdline.split()):
                if word.startswith("/usr/") and not word.startswith("/usr/local/"):
                    yield word


def _is_shipped(path: str) -> bool:
    folder, _, name = path.rpartition("/")
    return path == "/etc/crontab" or (folder == "/etc/cron.d" and name in _CRONTABS) or bool(_PERIODIC.fullmatch(path))


def _matches(path: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(path, each) for each in patterns)


def _text(about: Any) -> str:  # noqa: ANN401  as the life tells it
    return str(about.get("text", "") if isinstance(about, Mapping) else about)
