"""docs/policies/scaling.md: a cloud's rule and its counterpart say the same."""

import json
from pathlib import Path

import yaml

from gpuwatch.config import load
from gpuwatch.policies.scaling.settings import adjustments
from tests.support.markdown import blocks

PAGE = Path("docs/policies/scaling.md")


def test_the_counterpart_of_a_clouds_rule(tmp_path: Path) -> None:
    """Thresholds, changes and cooldowns of the JSON are those of the YAML, and the settings accept it."""
    (rule,) = map(json.loads, blocks(PAGE, "json"))
    (block,) = [block for block in blocks(PAGE, "yaml") if "cpu_utilization" in block]
    path = tmp_path / "gpuwatch.yaml"
    path.write_text(yaml.safe_dump({"fleet": "f", "cloud": {"regions": ["us-east-1"]}} | yaml.safe_load(block)))
    rules = load(path, {}).pools["inference"].scaling
    steps = {step.side: step for step in adjustments(rules.metrics["cpu"])}

    assert rules.metrics["cpu"].signal == rule["metric"]
    for side, key, sign in (("above", "scale_out", 1), ("below", "scale_in", -1)):
        assert steps[side].bound == rule[key]["threshold"] / 100
        assert steps[side].amount == sign * rule[key]["adjustment"]
    assert (rules.cooldown_out, rules.cooldown_in) == (rule["scale_out"]["cooldown"], rule["scale_in"]["cooldown"])
