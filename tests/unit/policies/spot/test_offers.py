"""Which spot offer is asked next: what took nodes back, or had none, comes later."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.policies.spot.offers import OfferRecord, rank_offers, refusals_after, rest_in_outage_seconds, rest_seconds

RECORDS = st.builds(
    OfferRecord,
    name=st.sampled_from("abcdef"),
    usd_per_hour=st.floats(0.5, 3.0),
    preemptions=st.integers(0, 20),
    hours_up=st.floats(0.0, 500.0),
    own=st.integers(0, 8),
    resting_seconds=st.sampled_from([-5.0, 0.0, 30.0]),
)
OFFERS = st.lists(RECORDS, unique_by=lambda each: each.name, max_size=6)


def an_offer(name: str, usd: float = 1.0, *, preemptions: int = 0, hours_up: float = 0.0, own: int = 0) -> OfferRecord:
    """An offer at one dollar an hour."""
    return OfferRecord(name=name, usd_per_hour=usd, preemptions=preemptions, hours_up=hours_up, own=own)


def names(*records: OfferRecord, **rules: float | str) -> list[str]:
    """In the order in which they are asked."""
    return [each.name for each in rank_offers(records, **rules)]  # type: ignore[arg-type]


@given(offers=OFFERS, most=st.floats(0.5, 3.0))
def test_what_rests_or_is_too_dear_is_never_asked(offers: list[OfferRecord], most: float) -> None:
    """All others are, each once."""
    found = rank_offers(offers, most_usd_per_hour=most)

    assert all(each.resting_seconds <= 0 and each.usd_per_hour <= most for each in found)
    assert {each.name for each in offers} - {each.name for each in found} == {
        each.name for each in offers if each.resting_seconds > 0 or each.usd_per_hour > most
    }


@given(offers=OFFERS, more=st.integers(1, 10))
def test_a_loss_never_makes_an_offer_better(offers: list[OfferRecord], more: int) -> None:
    """Nor does another own node there."""
    for index, each in enumerate(offers):
        for worse in (replace(each, preemptions=each.preemptions + more), replace(each, own=each.own + more)):
            others = [*offers[:index], worse, *offers[index + 1 :]]
            before, after = names(*offers), names(*others)
            assert each.name not in before or after.index(each.name) >= before.index(each.name)


def test_of_one_price_the_calmest_comes_first_and_a_cheaper_step_before_that() -> None:
    """Five per cent are one price."""
    calm, wild = an_offer("calm", hours_up=100.0), an_offer("wild", preemptions=9, hours_up=100.0)

    assert names(wild, calm) == ["calm", "wild"]
    assert names(replace(wild, usd_per_hour=0.97), calm) == ["calm", "wild"]
    assert names(replace(wild, usd_per_hour=0.90), calm) == ["wild", "calm"]


@pytest.mark.parametrize(
    ("spread", "first"), [("capacity", "calm"), ("zones", "empty"), ("lowest_price", "cheap")], ids=str
)
def test_the_setting_says_what_decides(spread: str, first: str) -> None:
    """Losses, own nodes, or the price alone."""
    offers = (
        an_offer("calm", hours_up=500.0, own=2),
        an_offer("empty", preemptions=30, hours_up=500.0),
        an_offer("cheap", 0.99, preemptions=90, hours_up=500.0, own=1),
    )

    assert names(*offers, spread=spread)[0] == first


def test_refusals_rest_an_offer_twice_as_long_each_time_up_to_forty_minutes() -> None:
    """Eight times as long where it has given nodes: it is probably at its end."""
    assert [rest_seconds(count, 0) / 60 for count in range(8)] == [0, 3, 4, 8, 16, 32, 40, 40]
    assert [rest_seconds(count, 3) / 60 for count in (0, 1, 2, 3, 4, 5, 6)] == [0, 16, 32, 64, 128, 240, 240]


@given(outage=st.floats(0, 3 * 86_400), refusals=st.integers(1, 6))
def test_work_that_waits_is_late_by_a_quarter_of_an_outage_at_most(outage: float, refusals: int) -> None:
    """Never asked sooner than after three minutes, nor later than elsewhere."""
    rest = rest_in_outage_seconds(refusals, outage)

    assert 180 <= rest <= max(180, outage / 4)
    assert rest <= rest_seconds(refusals, 0)


def test_a_day_of_outage_is_asked_no_more_than_fifty_times() -> None:
    """Often in its first hours, and then every forty minutes as elsewhere."""
    tries, at = 1, 0.0
    while at < 86_400:
        at += rest_in_outage_seconds(min(6, tries), at)
        tries += 1

    assert tries <= 50


@given(tries=st.lists(st.booleans(), max_size=40))
def test_what_was_refused_for_long_is_soon_asked_again_once_it_gives(tries: list[bool]) -> None:
    """Two successes in a row forget all refusals, however many there were; one does not forget the most."""
    count = 0
    for refused in tries:
        count = refusals_after(count, refused=refused)

    assert 0 <= count <= 6
    assert refusals_after(refusals_after(count, refused=False), refused=False) == 0
    assert refusals_after(6, refused=False) == 2
