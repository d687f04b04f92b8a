"""What a pool that counts GPUs cannot be asked for: each mistake names key and value, and what would be right."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gpuwatch.cli.main import commands
from gpuwatch.policies import PoolRules, validation
from gpuwatch.policies.launches import LaunchRules
from gpuwatch.policies.scaling import Metric, ScalingRules
from gpuwatch.policies.schedule import Window
from gpuwatch.policies.spot.batch import BatchRules
from gpuwatch.policies.spot.settings import OfferRules
from tests.support.builders.gpu_pools import FIRM, an_offer, gpu_rules
from tests.support.paths import ROOT

PENDING = ScalingRules(metrics={"pods": Metric(signal="kubernetes_pending")})
EXAMPLE = ROOT / "docs/examples/spot-sizes.yaml"
ANY_DAY = {"GPUWATCH_PRICES__WARN_OLDER_THAN": "36500d"}


def wrong(rules: PoolRules) -> list[tuple[str, str, str]]:
    """The key that is named first, what is wrong and what would be right."""
    found = validation.contradictions({"training": rules}, {})
    return [(".".join(each.keys[0][2:]), each.wrong, each.right) for each in found]


TWO = an_offer(4, gpus=2, zone="us-east-1b")
MISTAKES: dict[str, tuple[PoolRules, str, str]] = {
    "min_nodes": (gpu_rules(min_nodes=2), "min_nodes is 2", "min_gpus, or unit: nodes"),
    "schedule.day.max_nodes": (
        replace(gpu_rules(), schedule={"day": Window(max_nodes=3)}),
        "max_nodes is 3",
        "max_gpus, or unit: nodes",
    ),
    "max_gpus": (gpu_rules(min_gpus=9, max_gpus=8), "max_gpus (8) is below", "a max_gpus of 9 or more"),
    "offers.eight.gpus": (gpu_rules(max_gpus=6), "brings 8 GPUs", "a max_gpus of 8 or more, or no such offer"),
    "offers.four.gpus": (
        gpu_rules(offers={"four": an_offer(4, gpus=None)}),
        "four does not say",
        "gpus, the number in",
    ),
    "offers.two.gpus": (gpu_rules(offers={"four": FIRM["four"], "two": TWO}), "gpus: 2", "the same number"),
    "launch.template": (gpu_rules(launch=LaunchRules(template="lt-1")), "launch does not say", "an offer with that"),
    "scaling.metrics.pods.signal": (gpu_rules(scaling=PENDING), "kubernetes_pending", "unit: nodes with offers of one"),
}


@pytest.mark.parametrize("key", MISTAKES)
def test_what_does_not_go_with_gpus_is_named(key: str) -> None:
    """The key with its value, and the way out."""
    rules, value, right = MISTAKES[key]
    (found,) = wrong(rules)
    assert found[0] == key
    assert value in found[1]
    assert found[2].startswith(right)


def test_work_with_a_deadline_counts_nodes() -> None:
    """Its work is that of nodes of one size."""
    job = BatchRules(work=3600.0, since="2026-11-01T08:00:00Z", by="2026-11-04T08:00:00Z")
    assert "batch" in {key for key, _, _ in wrong(replace(gpu_rules(), interruptible="batch", batch=job))}


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"min_gpus": 2}, "min_gpus"),
        ({"max_gpus": 8}, "max_gpus"),
        ({"schedule": {"day": Window(min_gpus=3)}}, "schedule.day.min_gpus"),
    ],
)
def test_bounds_in_gpus_need_a_pool_that_counts_them(changes: dict[str, Any], key: str) -> None:
    """Nothing would ever look at them."""
    ((named, _, right),) = wrong(PoolRules(**changes))
    assert (named, "unit: gpus" in right) == (key, True)


def test_a_pool_that_counts_gpus_may_have_a_maximum_of_machines_and_groups_alone() -> None:
    """`max_nodes` holds in every pool, and no offer is needed where groups grow."""
    assert wrong(gpu_rules(16, max_gpus=24, max_nodes=4)) == []
    assert wrong(gpu_rules(16, offers={})) == []


def test_the_sizes_of_offers_are_compared_with_the_table_of_types(tmp_path: Path) -> None:
    """A wrong number is a warning: clouds have types that the table lacks."""
    path = tmp_path / "gpuwatch.yaml"
    path.write_text(EXAMPLE.read_text(encoding="utf-8").replace("gpus: 8", "gpus: 4"), encoding="utf-8")
    said = CliRunner().invoke(commands, ["config", "check", "--config", str(path)], env=ANY_DAY).output
    assert "pools.inference.offers.spot-8.gpus is 4, and g6.48xlarge has 8" in said
    assert (
        "Warning" not in CliRunner().invoke(commands, ["config", "check", "--config", str(EXAMPLE)], env=ANY_DAY).output
    )


def test_an_offer_without_a_number_is_compared_by_the_machine() -> None:
    """Pools that count nodes need none."""
    assert OfferRules(template="lt", instance_type="g6.xlarge").gpus is None
