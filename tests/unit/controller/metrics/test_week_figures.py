"""The series of the first and the last weeks, within their budget; and the fingerprints of pools' rules."""

from dataclasses import replace
from fractions import Fraction

import pytest

from gpuwatch.controller.metrics import ControllerMetrics
from gpuwatch.controller.metrics.money import MOST_OWNERS, OTHERS, week_figures
from gpuwatch.guard import Rulebook
from gpuwatch.policies import PoolRules
from tests.support.builders.fleet import Desk
from tests.support.builders.money import a_billed_row, a_comparison, four_weeks


def test_a_week_is_the_mean_of_its_end() -> None:
    """Hand arithmetic: 200 of 500 hours at ten dollars in four weeks are 500 dollars a week, then 250."""
    found = week_figures(a_comparison())
    usd, hours = dict(found["waste_usd_per_week"]), dict(found["waste_gpu_seconds_per_week"])

    assert (usd["first", "training", "ana"], usd["last", "training", "ana"]) == (500.0, 250.0)
    assert dict(found["waste_billed_usd_per_week"])["first", "training", "ana"] == 1250.0
    assert hours["last", "training", "ana"] == 25 * 3600
    assert (usd["first", "research", ""], usd["last", "research", ""]) == (0.0, 50.0)
    assert found["waste_compared_seconds"] == [((), 28 * 86400.0)]


def test_owners_with_less_waste_are_one_series_of_their_pool_and_no_sum_changes() -> None:
    """However many owners there are, the number of series is bounded by the pools."""
    early = [
        a_billed_row(1, 1 + number % 50, pool=f"p{number % 3}", owner=f"o{number}") for number in range(3 * MOST_OWNERS)
    ]
    compared = four_weeks(early, early[:20])
    series = dict(week_figures(compared)["waste_usd_per_week"])
    folded = {labels for labels in series if labels[2] == OTHERS}
    exact = sum((pair.first.usd_wasted for pair in compared.pairs.values()), Fraction(0)) / 4

    assert len(series) == 2 * (MOST_OWNERS + 3)
    assert folded == {(weeks, f"p{number}", OTHERS) for weeks in ("first", "last") for number in range(3)}
    assert sum(value for labels, value in series.items() if labels[0] == "first") == pytest.approx(float(exact))


def test_a_part_without_a_price_leaves_a_lower_bound_and_all_without_one_nothing() -> None:
    """As everywhere: the time that is not in the sums is told beside them."""
    priced = a_billed_row(0, 40, pool="p", owner="ana")
    unpriced = a_billed_row(0, 8, pool="p", owner="ana", usd=None)
    found = week_figures(four_weeks([priced, unpriced], [unpriced]))

    assert dict(found["waste_usd_per_week"]) == {("first", "p", "ana"): 100.0}
    assert dict(found["waste_unpriced_node_seconds_per_week"])["last", "p", "ana"] == 2 * 3600


def test_other_rules_for_removals_have_another_fingerprint_and_the_same_the_same() -> None:
    """A pool that the settings do not write has the rules of `default`; a floor is no rule for removals."""

    def lines(rules: PoolRules) -> list[str]:
        metrics = ControllerMetrics("observe", "ml", Desk().clock, rules=Rulebook(pools={"training": rules}))
        page = metrics.page().body.decode()
        return [line for line in page.splitlines() if line.startswith("gpuwatch_controller_pool_rules_info{")]

    rules = PoolRules()
    longer = replace(rules, idle=replace(rules.idle, timeout=7200.0))

    assert len(lines(rules)) == 2
    assert lines(rules) == lines(replace(rules))
    assert [line for line in lines(longer) if line not in lines(rules)] == [
        line for line in lines(longer) if 'pool="training"' in line
    ]
