"""docs/policies/spot.md: its settings load, its recording plays, and its arithmetic is right."""

import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from gpuwatch.cli.main import commands
from gpuwatch.config import load
from gpuwatch.policies.spot.mix import MixRules
from gpuwatch.policies.spot.offers import MEMORY_SECONDS, OfferRecord, _order
from gpuwatch.simulate.spot.advice import advise
from gpuwatch.simulate.spot.fleet import Terms
from gpuwatch.simulate.spot.recording import Recording
from tests.support.markdown import blocks
from tests.support.paths import ROOT

PAGE = Path("docs/policies/spot.md")
TEXT = " ".join((ROOT / PAGE).read_text(encoding="utf-8").split())
_BATCH = 2  # the number of its block
TERMS = Terms(boot_minutes=4, lost_minutes=10.0)


def cost_of_an_hour_of_work(part: float, losses_a_day: float, hours_lost: float) -> float:
    """The page's formula, of on demand."""
    return part / (1 - losses_a_day * hours_lost / 24)


def found(pattern: str) -> list[float]:
    """The numbers of one sentence of the page."""
    match = re.search(pattern, TEXT)
    assert match is not None, pattern
    return [float(each) for each in match.groups()]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_the_settings_on_the_page_load(number: int, tmp_path: Path) -> None:
    """A pool with offers, one of different sizes, and one with a deadline, which has the offers of the first."""
    shown = [next(iter(yaml.safe_load(block)["pools"].values())) for block in blocks(PAGE, "yaml")]
    pool = {**shown[0], **shown[_BATCH]} if number == _BATCH else shown[number]
    if number == _BATCH:
        pool.pop("capacity")  # refused with `batch`, as the page says
        pool.pop("schedule")
    path = tmp_path / "gpuwatch.yaml"
    settings = {"fleet": "f", "cloud": {"regions": ["us-east-1"]}, "pools": {"training": pool}}
    path.write_text(yaml.safe_dump(settings))

    assert len(load(path, {}).pools["training"].offers) == 3


def test_the_recording_on_the_page_plays(tmp_path: Path) -> None:
    """As it stands, with the command's own defaults."""
    (block,) = blocks(PAGE, "csv")
    path = tmp_path / "spot.csv"
    path.write_text(block)
    ran = CliRunner().invoke(commands, ["recommend", "spot", "--csv", str(path), "--nodes", "8", "--price", "12.24"])

    assert ran.exit_code == 0, ran.output
    assert "2 offers" in ran.output


def test_the_formula_is_right_in_both_examples() -> None:
    """To the last digit that the page shows."""
    part, losses, minutes, hours, says = found(
        r"At p = ([\d.]+), (\d+) losses a day and (\d+) minutes each \(([\d.]+) h\) that is ([\d.]+\d)"
    )
    assert hours == round(minutes / 60, 2)
    assert says == round(cost_of_an_hour_of_work(part, losses, minutes / 60), 2)
    assert "Spot at 0.8 with two hours lost six times a day costs 1.6: stay on demand" in TEXT
    assert cost_of_an_hour_of_work(0.8, 6, 2) == pytest.approx(1.6)


def test_a_play_costs_what_the_formula_says() -> None:
    """A zone that takes its node ten times a day and gives another at once: spot alone, within 2 %."""
    day = ([1] * 143 + [0]) * 10
    recording = Recording(minutes=30 * 1440, nodes={"a": day * 30})
    rows = advise(recording, 1, MixRules(), TERMS).policies
    (row,) = [each for each in rows if each.name == "spot only"]

    assert row.useful_cost_ratio == pytest.approx(cost_of_an_hour_of_work(0.4, 10, 14 / 60), rel=0.02)


def test_the_order_of_offers_is_the_one_on_the_page() -> None:
    """Its numbers are those of the code."""
    add, hours, worse = found(
        r"\(losses \+ ([\d.]+)\) ÷ \(node-hours \+ (\d+)\) of the last three days, . \(1 \+ (\d+) for each own"
    )
    record = OfferRecord(name="a", usd_per_hour=1.0, preemptions=2, hours_up=4.0)

    assert record.preemptions_per_hour == (2 + add) / (4.0 + hours)
    assert timedelta(seconds=MEMORY_SECONDS) == timedelta(days=3)
    best = _order(record, 1.0, "capacity")[-1]
    assert _order(replace(record, own=2), 1.0, "capacity")[-1] == pytest.approx(best * (1 + 2 * worse))
