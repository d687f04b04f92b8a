"""Under which terms each node is billed: what is asked once for machines that are alike holds for each of them."""

from dataclasses import replace
from datetime import date
from decimal import Decimal
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.money import Price
from gpuwatch.model.offers import key_of_node
from gpuwatch.model.usage import Terms
from gpuwatch.money.accounting.metering import Metering, meter
from gpuwatch.money.accounting.slices import Calendar
from tests.support.builders.fleet import a_node, an_observation

RULES = Metering(zone=ZoneInfo("UTC"), tags=("team",))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b"]),
            st.sampled_from([None, "ann"]),
            st.sampled_from([{}, {"team": "x"}, {"team": "x", "other": "1"}]),
            st.sampled_from([None, "1.5", "2"]),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_each_node_is_billed_under_its_own_terms(
    nodes: list[tuple[str, str | None, dict[str, str], str | None]],
) -> None:
    """Machines that differ in nothing are asked for once: what they are billed under is what each would be alone."""
    made = [a_node(f"i-{n}", pool=pool, owner=owner, tags=tags) for n, (pool, owner, tags, _) in enumerate(nodes)]
    prices = {
        key_of_node(f"i-{number}"): Price(usd_per_hour=Decimal(usd), as_of=date(2026, 1, 1), source="a list")
        for number, (_, _, _, usd) in enumerate(nodes)
        if usd is not None
    }
    together, terms = replace(an_observation(*made), prices=prices), dict[Terms, int]()
    numbers = lambda each: terms.setdefault(each, len(terms) + 1)  # noqa: E731  one book for all
    marks, _ = meter(None, together, RULES, numbers, Calendar(RULES.zone))
    for node in made:
        alone, _ = meter(None, replace(an_observation(node), prices=prices), RULES, numbers, Calendar(RULES.zone))

        assert marks.nodes[node.id].terms == alone.nodes[node.id].terms
