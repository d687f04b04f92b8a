"""`python -m tools.docs`: write every page that is generated from the code; with names, print those pages.

With `--check` it writes nothing, and names the pages that are not what the code says.
"""

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from gpuwatch.controller import metrics as controller_metrics
from gpuwatch.controller.web import openapi
from tools import kustomize, recording_rules
from tools.docs import (
    blocked,
    chart,
    cloud_evidence,
    clouds,
    commands,
    compatibility,
    configuration,
    decision,
    decisions,
    doctor,
    driver_schema,
    guard,
    health,
    json_documents,
    kubernetes_rights,
    metrics,
    policies,
    rooms,
    runbooks,
    signals,
    sizing,
    slurm_rules,
    workload_kinds,
)

_ROOT = Path(__file__).parent.parent.parent

PAGES: dict[str, Callable[[], str]] = {
    "docs/METRICS.md": metrics.render_metrics_md,
    "docs/sizing.md": sizing.render_sizing_md,
    "docs/CONTROLLER_METRICS.md": controller_metrics.render_md,
    "docs/health.md": health.render_health_md,
    "docs/doctor.md": doctor.render_doctor_md,
    "docs/adr/README.md": decisions.render,
    "docs/blocked.md": blocked.render,
    f"{chart.FOLDER}/README.md": chart.render,
    f"{chart.FOLDER}/files/defaults.json": chart.render_defaults,
    "docs/clouds/README.md": cloud_evidence.render,
    "docs/clouds/evidence.md": cloud_evidence.render_evidence,
    "docs/clouds/driver.schema.json": driver_schema.render,
    "docs/guard.md": guard.render_guard_md,
    "docs/policies/README.md": policies.render_policies_md,
    "docs/api.md": openapi.render_md,
    "docs/commands.md": commands.render_commands_md,
    **{name: partial(json_documents.render_page, name) for name in json_documents.PAGES},
    "docs/compatibility.md": compatibility.render,
    **{name: partial(configuration.render_page, name) for name in configuration.PAGES},
    "docs/pictures/decision.svg": partial(decision.render_picture, "en"),
    "docs/pictures/decision.zh-CN.svg": partial(decision.render_picture, "zh"),
    "docs/pictures/rooms.svg": rooms.render_picture,
    "alerts/recording.yml": recording_rules.render,
    **{f"{kustomize.FOLDER}/{name}": partial(kustomize.render, name) for name in kustomize.NAMES},
    **{f"docs/runbooks/{page}.md": partial(runbooks.render_runbooks_md, page) for page in runbooks.TITLES},
}

# Pages that people write, with a part that is generated: what makes the new page of the old one.
PARTS: dict[str, Callable[[str], str]] = {
    "docs/alerts.md": runbooks.with_alerts,
    **{f"docs/clouds/{cloud}.md": partial(clouds.with_unseen, cloud) for cloud in clouds.CLOUDS},
    "docs/decision.md": partial(decision.with_stages, "en"),
    "docs/decision.zh-CN.md": partial(decision.with_stages, "zh"),
    "docs/clouds/driver.md": lambda page: driver_schema.with_tables(clouds.with_unseen("driver", page)),
    "docs/idle-detection.md": signals.with_signals,
    "docs/kubernetes.md": kubernetes_rights.with_rights,
    "docs/kubernetes-workloads.md": workload_kinds.with_kinds,
    "docs/slurm.md": slurm_rules.with_rules,
}


def main(names: list[str]) -> int:
    """The exit status: 1 if `--check` finds an old page, 2 for a page that is not generated."""
    if names == ["--check"]:
        old = sorted(name for name, text in _pages() if not _same(_ROOT / name, text))
        sys.stderr.writelines(f"{name} is not what the code says: run `make docs`\n" for name in old)
        return 1 if old else 0
    unknown = [name for name in names if name not in PAGES]
    if unknown:
        sys.stderr.write(f"{unknown[0]} is not a generated page; generated pages are {', '.join(PAGES)}\n")
        return 2
    for name in names:
        sys.stdout.write(PAGES[name]())
    for name, text in () if names else _pages():
        (_ROOT / name).parent.mkdir(parents=True, exist_ok=True)
        (_ROOT / name).write_text(text, encoding="utf-8")
    return 0


def _pages() -> Iterator[tuple[str, str]]:
    for name, fill in PARTS.items():
        yield name, fill((_ROOT / name).read_text(encoding="utf-8"))
    for name, render in PAGES.items():
        yield name, render()


def _same(page: Path, text: str) -> bool:
    return page.exists() and page.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
