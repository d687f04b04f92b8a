"""Sums of what was billed: exact however it is sliced, and rounded so that what is shown adds up as well."""

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.model.usage import AMOUNTS, GPU, JOULES, MEASURED, Terms
from gpuwatch.money.accounting.settings import EnergySettings
from gpuwatch.money.accounting.slices import Calendar
from gpuwatch.money.accounting.totals import Row, Total, energy, grouping, money_parts, round_parts, totals, whole
from tests.support.nightly import examples

UTC = Calendar(ZoneInfo("UTC"))
TERMS = Terms(
    pool="training",
    owner="ann",
    account=None,
    region="us-east-1",
    instance_type="p5.48xlarge",
    capacity_type="spot",
    gpus=8,
    usd_per_hour=Decimal("55.04"),
    price_as_of=None,
    price_source="a list",
    tags=(("team", "nlp"),),
)
CENT = Fraction(1, 100)


def a_row(terms: Terms = TERMS, *, useful: int = 0, idle: int = 0, unknown: int = 0, **other: object) -> Row:
    """So many milliseconds of a node all of whose GPUs do the same."""
    amounts = [0] * len(AMOUNTS)
    for place, ms in ((0, useful), (1, idle), (5, unknown)):
        amounts[place], amounts[GPU + place] = ms, ms * terms.gpus
    return replace(Row(terms=terms, amounts=amounts), **other)  # type: ignore[arg-type]  # any field of a row


MS = st.integers(0, 10**9)
ROWS = st.lists(
    st.builds(
        lambda pool, owner, usd, gpus, useful, idle, unknown, begin, node: a_row(
            replace(TERMS, pool=pool, owner=owner, usd_per_hour=usd, gpus=gpus),
            useful=useful,
            idle=idle,
            unknown=unknown,
            begin=begin,
            node_id=node,
        ),
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from([None, "ann", "bob"]),
        st.none() | st.decimals("0", "200", places=6),
        st.sampled_from([0, 1, 3, 7, 8]),
        MS,
        MS,
        MS,
        st.integers(0, 10**9),
        st.sampled_from(["i-1", "i-2"]),
    ),
    max_size=20,
)


@settings(deadline=None)
@given(ROWS, st.permutations(["pool", "owner", "account", "node", "type", "region", "capacity", "day", "tag:team"]))
def test_the_parts_of_every_slicing_add_up_to_the_same_whole(rows: list[Row], slicings: list[str]) -> None:
    """To the cent, in money and in waste, in whatever order the rows come."""
    first, second = (totals(rows, grouping(by, UTC)) for by in slicings[:2])
    reordered = totals(reversed(rows), grouping(slicings[0], UTC))
    cents = round_parts({name: each.usd for name, each in first.items()}, CENT)

    assert whole(first.values()) == whole(second.values())
    assert first == reordered
    assert sum(cents[1].values()) == cents[0] == round_parts({"": whole(second.values()).usd}, CENT)[0]
    assert all(abs(cents[1][name] * CENT - each.usd) < CENT for name, each in first.items())
    assert all(each.usd == sum(each.usd_by_use) for each in first.values())


@settings(deadline=None)
@given(ROWS)
def test_money_and_time_are_useful_wasted_or_not_proven_and_nothing_else(rows: list[Row]) -> None:
    """The three parts are the whole, exactly, in dollars and in GPU time; what has no price is in no dollars."""
    found = whole(totals(rows, grouping("pool", UTC)).values())

    assert found.usd == found.usd_useful + found.usd_wasted + found.usd_unproven
    assert found.gpu_ms == found.useful_ms + found.wasted_ms + found.unproven_ms
    assert found.usd == whole(totals([row for row in rows if row.terms.usd_per_hour is not None], str).values()).usd


@settings(deadline=None)
@given(ROWS)
def test_an_agent_that_falls_silent_is_never_a_proof_of_waste(rows: list[Row]) -> None:
    """If nobody had looked, the same machines would cost the same, and none of it would be proven waste."""
    seen = whole(totals(rows, grouping("pool", UTC)).values())
    for row in rows:
        for first in (0, GPU):
            spent = sum(row.amounts[first : first + GPU])
            row.amounts[first : first + GPU] = [0] * 5 + [spent, 0]  # type: ignore[index]  # a list in these tests
    blind = whole(totals(rows, grouping("pool", UTC)).values())

    assert (blind.usd, blind.gpu_ms) == (seen.usd, seen.gpu_ms)
    assert (blind.usd_wasted, blind.wasted_ms) == (Fraction(0), 0)
    assert (blind.usd_unproven, blind.unproven_ms) == (seen.usd, seen.gpu_ms)


def test_money_follows_what_the_gpus_did() -> None:
    """Half an hour useful and a quarter each idle and unknown: $13.76 are wasted, and of as much nobody knows."""
    total = Total()
    total.add(a_row(useful=1_800_000, idle=900_000, unknown=900_000))

    parts = (total.usd_useful, total.usd_wasted, total.usd_unproven)
    assert parts == (Fraction("27.52"), Fraction("13.76"), Fraction("13.76"))
    assert (total.usd_waste_ratio, total.waste_ratio, total.unproven_ratio) == (0.25, 0.25, 0.25)
    assert total.gpu_ms == 8 * 3_600_000


def test_an_unknown_price_is_no_price_of_zero() -> None:
    """Its time is counted apart, and is in no sum of money."""
    total = Total()
    total.add(a_row(replace(TERMS, usd_per_hour=None), idle=3_600_000))
    total.add(a_row(idle=3_600_000))

    assert (total.unpriced_ms, total.node_ms, total.usd) == (3_600_000, 7_200_000, Fraction("55.04"))


def test_there_is_no_other_slicing() -> None:
    """The error names those that there are; what has no owner or tag is a group of its own."""
    with pytest.raises(
        ValueError, match="'colour' is no way to slice; there are pool, cloud, provider, owner, account, node"
    ):
        grouping("colour", UTC)
    assert grouping("tag:site", UTC)(a_row()) == grouping("account", UTC)(a_row()) == "(none)"
    assert grouping("tag:team", UTC)(a_row()) == "nlp"


def test_a_cloud_without_a_name_is_called_by_its_provider() -> None:
    """As where the settings have one cloud; what was billed before the ledger knew clouds is not known."""
    found = [
        [grouping(by, UTC)(a_row(replace(TERMS, cloud=cloud, provider=provider))) for by in ("cloud", "provider")]
        for cloud, provider in [("bj", "tencent"), ("", "aws"), (None, None)]
    ]

    assert found == [["bj", "tencent"], ["aws", "aws"], ["(not known)", "(not known)"]]


def test_energy_is_what_was_measured_and_each_factor_is_apart() -> None:
    """3 kWh measured over half of the GPUs' time; hosts, building and CO2e only by the factors that somebody states."""
    total = Total()
    total.add(a_row(useful=3_600_000))
    total.amounts[JOULES], total.amounts[MEASURED] = 10_800_000, 4 * 3_600_000
    bare = energy(total, EnergySettings())
    result = energy(total, EnergySettings(host_watts=1000, pue=1.5, co2e_grams_per_kwh=400))

    assert (bare.gpu_kwh, bare.measured_ratio, bare.unmeasured_gpu_hours) == (3.0, 0.5, 4.0)
    assert (bare.host_kwh, bare.facility_kwh, bare.co2e_kg) == (None, None, None)
    assert (result.gpu_kwh, result.host_kwh, result.facility_kwh, result.co2e_kg) == (3.0, 1.0, 6.0, 2.4)
    assert energy(Total(), EnergySettings()).measured_ratio is None


_SPLIT = st.tuples(st.fractions(0, 3, max_denominator=300), st.fractions(0, 1, max_denominator=50))


@given(st.lists(_SPLIT, min_size=1, max_size=12))
@settings(max_examples=examples(200))
def test_waste_is_never_a_cent_above_its_cost(groups: list[tuple[Fraction, Fraction]]) -> None:
    """Of each group, however both are rounded; and the parts add up to the sum as before."""
    cost = {str(place): usd for place, (usd, _) in enumerate(groups)}
    wasted = {str(place): usd * share for place, (usd, share) in enumerate(groups)}
    _, cents = round_parts(cost, Fraction(1, 100))
    total, parts = round_parts(wasted, Fraction(1, 100), cents)

    assert all(parts[name] <= cents[name] for name in cost)
    assert total == sum(parts.values()) == round(sum(wasted.values(), Fraction(0)) * 100)


@given(ROWS)
@settings(max_examples=examples(200), deadline=None)
def test_wasted_and_unproven_are_together_never_a_cent_above_their_cost(rows: list[Row]) -> None:
    """Of each group and of all, and of the sum alone as of its groups; all of the cost where nothing was useful."""
    made = totals(rows, grouping("pool", UTC))
    cost, wasted, unproven = money_parts(made, CENT)
    alone = whole(made.values())

    assert [part for part, _ in money_parts({"": alone}, CENT)] == [cost[0], wasted[0], unproven[0]]
    assert all(total == sum(parts.values()) for total, parts in (cost, wasted, unproven))
    assert all(wasted[1][name] + unproven[1][name] <= cost[1][name] for name in made)
    assert alone.usd_useful or wasted[0] + unproven[0] == cost[0]


def test_an_empty_tag_is_no_tag() -> None:
    """A row without a name says nothing: what has the tag with an empty value is with what lacks it."""
    rows = [a_row(replace(TERMS, tags=tags), useful=1) for tags in ((("team", ""),), (), (("team", "nlp"),))]

    assert list(totals(rows, grouping("tag:team", UTC))) == ["(none)", "nlp"]


def test_halves_of_a_cent_are_not_both_rounded_up() -> None:
    """$1.03, half of it idle and half not known: $0.52 and $0.51, and neither $0.52 twice nor $0.50 twice of $1.01."""
    for usd, cents in (("1.03", (103, 52, 51)), ("1.01", (101, 50, 51))):
        terms = replace(TERMS, usd_per_hour=Decimal(usd))
        made = totals([a_row(terms, idle=1_800_000, unknown=1_800_000)], grouping("pool", UTC))
        assert tuple(total for total, _ in money_parts(made, CENT)) == cents
