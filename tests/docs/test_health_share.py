"""The dashboard's share of GPU-hours in health, asked of made series around an upgrade of the driver."""

import json
import subprocess
from pathlib import Path

import pytest

from dashboards.source.__main__ import BOARDS
from tests.support.components import require

HOUR = 60  # samples, one a minute
OLD, NEW = "570.1", "580.2"


def queries() -> dict[str, str]:
    """The panel's queries by letter, over four hours of all agents."""
    panel = next(
        panel
        for row in BOARDS["fleet"]()["panels"]
        for panel in (row, *row.get("panels", []))
        if panel["title"] == "Health by GPU and driver"
    )
    chosen = {"$__range": "4h", "$agents": ".*", "$cluster": ".*"}
    found = {}
    for target in panel["targets"]:
        expression = target["expr"]
        for name, value in chosen.items():
            expression = expression.replace(name, value)
        found[target["refId"]] = expression
    return found


def series(uuid: str, well: str) -> list[dict[str, str]]:
    """Two hours on the old driver, then two on the new one; `well` has each hour: h, d, f or u."""
    target = f'job="gpuwatch", cluster="", instance="{uuid}:9100", uuid="{uuid}"'
    made = []
    for letter, state in {"h": "healthy", "d": "degraded", "f": "failing", "u": "unknown"}.items():
        values = " ".join(f"{int(hour == letter)}x{HOUR - 1}" for hour in well)
        made.append({"series": f'gpuwatch_gpu_health{{{target}, state="{state}"}}', "values": values})
    for driver, values in ((OLD, f"1x{2 * HOUR - 1} stale"), (NEW, f"_x{2 * HOUR} 1x{2 * HOUR}")):
        labels = f'{target}, name="H100", driver_version="{driver}"'
        made.append({"series": f"gpuwatch_gpu_info{{{labels}}}", "values": values})
    return made


@pytest.mark.component("promtool")
def test_the_share_before_and_after_an_upgrade(tmp_path: Path) -> None:
    """Two GPUs: well on the old driver but for an hour of one; on the new one half of the hours are not."""
    expected = {
        "A": {OLD: 4.0, NEW: 4.0},
        "B": {OLD: 0.75, NEW: 0.5},
        "C": {OLD: 0.25, NEW: 0.0},
        "D": {OLD: 0.0, NEW: 0.25},
        "E": {OLD: 0.0, NEW: 0.25},
    }
    asked = [
        {
            "expr": f"round({queries()[letter]}, 0.01)",
            "eval_time": "239m",
            "exp_samples": [
                {"labels": f'{{name="H100", driver_version="{driver}"}}', "value": value}
                for driver, value in shares.items()
            ],
        }
        for letter, shares in expected.items()
    ]
    tests = [
        {"interval": "1m", "input_series": [*series("a", "hhhf"), *series("b", "hduh")], "promql_expr_test": asked}
    ]
    file = tmp_path / "share.json"
    file.write_text(json.dumps({"rule_files": [], "evaluation_interval": "1m", "tests": tests}), encoding="utf-8")
    checked = subprocess.run(
        [require("promtool"), "test", "rules", str(file)], capture_output=True, text=True, check=False, timeout=60
    )

    assert checked.returncode == 0, checked.stdout + checked.stderr
