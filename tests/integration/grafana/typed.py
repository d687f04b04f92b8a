"""`python -m tests.integration.grafana.typed FOLDER`: dashboards/*.json as TypeScript, for `tsc` to judge.

In FOLDER are `npm install`'s @grafana/schema and typescript. Each dashboard, each panel's options and its fields'
options become constants of Grafana's own types, so that a wrong enum, a missing key or a misspelt one is an error.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.dashboards import NAMES, load, panels

_RAW = "../node_modules/@grafana/schema/dist/types/raw"
_MODULES = {
    "dashboard": "dashboard",
    **{name: f"composable/{name}/panelcfg" for name in ("stat", "table", "bargauge", "statetimeline", "timeseries")},
}
_HEAD = """
import type { GraphFieldConfig, TableFieldOptions } from '@grafana/schema';
// What JSON has in the place of an enum: its values.
type Json<T> =
  T extends string ? `${T}`
  : T extends number ? (number extends T ? number : `${T}` extends `${infer N extends number}` ? N : never)
  : T extends boolean | null | undefined ? T
  : T extends Array<infer U> ? Array<Json<U>>
  : T extends object ? { [K in keyof T]: Json<T[K]> }
  : T;
"""
# By panel type: what its options are, and the `custom` of its fields.
_TYPES = {
    "stat": ("stat.Options", "{}"),
    "table": ("Omit<table.Options, 'frameIndex'>", "Partial<TableFieldOptions>"),
    "bargauge": ("bargauge.Options", "{}"),
    "state-timeline": ("statetimeline.Options", "statetimeline.FieldConfig"),
    "timeseries": ("timeseries.Options", "GraphFieldConfig"),
}


def typed(name: str) -> str:
    """A dashboard's constants."""
    board = load(name)
    imports = [f"import type * as {name} from '{_RAW}/{where}/x/types.gen';" for name, where in _MODULES.items()]
    lines = [*imports, _HEAD, _constant("board", "dashboard.Dashboard", board)]
    for panel in panels(board):
        options, custom = _TYPES[panel["type"]]
        lines.append(f"// {panel['title']}")
        lines.append(_constant(f"options{panel['id']}", options, panel["options"]))
        made = dict(panel["fieldConfig"]["defaults"].get("custom", {}))
        for override in panel["fieldConfig"]["overrides"]:
            for each in override["properties"]:
                if each["id"].startswith("custom."):
                    made[each["id"].removeprefix("custom.")] = each["value"]
        lines.append(_constant(f"custom{panel['id']}", custom, made))
    return "\n".join(lines) + "\n"


def _constant(name: str, kind: str, value: Any) -> str:  # noqa: ANN401  JSON
    return f"export const {name}: Json<{kind}> = {json.dumps(value)};"


def main(folder: Path) -> int:
    """0 where all types hold."""
    (folder / "typed").mkdir(exist_ok=True)
    for name in NAMES:
        (folder / "typed" / f"{name}.ts").write_text(typed(name), encoding="utf-8")
    files = [str(folder / "typed" / f"{name}.ts") for name in NAMES]
    flags = ["--noEmit", "--strict", "--skipLibCheck", "--module", "esnext", "--moduleResolution", "bundler"]
    return subprocess.run(["npx", "tsc", *flags, *files], cwd=folder, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
