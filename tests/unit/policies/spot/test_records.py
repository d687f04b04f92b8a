"""What the ledger's records say of offers: the same after a restart, and never more than three days of it."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.decision import Done, Status, Verb
from gpuwatch.model.fleet import NodeState
from gpuwatch.model.measurement import OfferPast, OffersPast
from gpuwatch.model.sight import Silence
from gpuwatch.policies.lives import ENDED, SHOWN, offers_past
from gpuwatch.policies.next_offer import faults
from gpuwatch.policies.spot.choice import resting_seconds
from tests.support.builders.fleet import NOW, a_node
from tests.support.builders.pending_capacity import seen

NAMES = ("east-a", "east-b")


def a_try(name: str, status: Status, *, minutes: float, detail: str = "", spot: bool = True) -> Done:
    """A launch from an offer that ended some minutes ago."""
    return Done(
        key=f"k-{name}-{minutes}",
        verb=Verb.LAUNCH,
        node_id="new:default:1",
        pool="default",
        status=status,
        at=NOW - timedelta(minutes=minutes),
        arguments={"offer": name, "capacity": "spot" if spot else "on_demand"},
        detail=detail,
    )


def refusal(name: str = "east-a", *, minutes: float = 2.0, spot: bool = True) -> Done:
    """No stock."""
    return a_try(name, Status.FAILED, minutes=minutes, detail="there is none now", spot=spot)


def fault(name: str = "east-a", *, minutes: float = 2.0, kind: Status = Status.DENIED) -> Done:
    """A launch that the cloud did not even look for stock for."""
    found = a_try(name, Status.FAILED, minutes=minutes, detail="given up: UnauthorizedOperation")
    return replace(found, fault=kind)


def success(node_id: str, name: str = "east-a", *, minutes: float = 60.0, spot: bool = True) -> Done:
    """A machine that became a node."""
    return a_try(name, Status.SETTLED, minutes=minutes, detail=f"{SHOWN}{node_id}", spot=spot)


def past(*recent: Done, nodes: tuple[str, ...] = (), now: datetime = NOW) -> OffersPast:
    """What follows from it; these nodes run."""
    return offers_past(recent, seen(*map(a_node, nodes)).fleet, "default", now)


def test_each_failed_launch_is_a_refusal_and_a_success_takes_four_away() -> None:
    """The newest refusal is known with its time; a cancelled launch says nothing."""
    cancelled = a_try("east-a", Status.CANCELLED, minutes=1.0)
    refusals = [refusal(minutes=minutes) for minutes in (90.0, 60.0, 30.0, 9.0, 6.0)]
    found = past(*refusals, success("i-1", minutes=3.0), cancelled, nodes=("i-1",))

    assert found.offers["east-a"].refusals == 1
    assert found.offers["east-a"].refused_at == NOW - timedelta(minutes=6)


def test_a_machine_that_its_cloud_had_no_place_for_after_all_is_a_refusal() -> None:
    """Azure shows it as coming for minutes, and leaves it there stopped. A start that fails later is none of it."""
    shell = replace(a_node("i-1"), state=NodeState.STOPPED, failed_start="No capacity. (ZonalAllocationFailed)")
    fleet = seen(shell).fleet

    found = offers_past([success("i-1", minutes=5.0)], fleet, "default", NOW).offers["east-a"]
    assert (found.refusals, found.refused_at, found.losses) == (1, NOW, 0)
    assert offers_past([success("i-1", minutes=90.0)], fleet, "default", NOW).offers["east-a"].refusals == 0


def test_spot_is_refused_since_the_first_refusal_after_a_spot_node_came() -> None:
    """Refusals on demand, and nodes that came on demand, change nothing of it."""
    on_demand = (refusal("sure", minutes=50.0, spot=False), success("i-2", "sure", minutes=5.0, spot=False))

    assert past(refusal(minutes=9.0), refusal("east-b", minutes=6.0), *on_demand).spot_refused_since == (
        NOW - timedelta(minutes=9)
    )
    assert past(refusal(minutes=9.0), success("i-1", "east-b", minutes=6.0)).spot_refused_since is None
    assert past(*on_demand).spot_refused_since is None


def test_an_outage_begins_with_the_first_refusal_since_a_node_came_from_there() -> None:
    """A notice of the cloud is one as well; another offer's success ends nothing."""
    other = success("i-2", "east-b", minutes=5.0)
    lost = (success("i-1", minutes=50.0), threat("i-1", minutes=12.0), refusal(minutes=9.0))

    assert past(refusal(minutes=90.0), refusal(minutes=9.0), other).offers["east-a"].refused_since == (
        NOW - timedelta(minutes=90)
    )
    assert past(refusal(minutes=90.0), *lost).offers["east-a"].refused_since == NOW - timedelta(minutes=12)
    assert past(refusal(minutes=90.0), success("i-1", minutes=5.0)).offers["east-a"].refused_since is None


def test_hours_count_while_a_machine_runs_and_to_its_removal() -> None:
    """A machine of whose end nobody knows counts for nothing."""
    removal = Done(
        key="r",
        verb=Verb.TERMINATE,
        node_id="i-2",
        pool="default",
        status=Status.SETTLED,
        at=NOW - timedelta(minutes=30),
    )
    found = past(success("i-1"), success("i-2", minutes=90.0), removal, nodes=("i-1",))

    assert found.offers["east-a"] == OfferPast(hours_up=2.0)


def test_a_spot_node_that_is_gone_without_us_is_a_loss() -> None:
    """One on demand is not; nor is one of a cloud that does not answer, nor one that somebody stopped."""
    stopped = seen(replace(a_node("i-1"), state=NodeState.STOPPED)).fleet
    silent = replace(seen().fleet, silent=(Silence(where="us-east-1", reason="no answer", known=True),))

    assert past(success("i-1")).offers["east-a"].losses == 1
    assert past(success("i-1", spot=False)).offers["east-a"].losses == 0
    assert offers_past([success("i-1")], stopped, "default", NOW).offers["east-a"].losses == 0
    assert offers_past([success("i-1")], silent, "default", NOW).offers["east-a"].losses == 0


def test_a_machine_that_ended_before_it_was_a_node_is_a_refusal_and_a_loss() -> None:
    """It was launched and taken back at once."""
    found = past(a_try("east-a", Status.FAILED, minutes=2.0, detail=f"i-1 {ENDED}"))

    assert (found.offers["east-a"].refusals, found.offers["east-a"].losses) == (1, 1)


TRIES = st.lists(
    st.builds(
        a_try,
        st.sampled_from(NAMES),
        st.sampled_from([Status.FAILED, Status.SETTLED, Status.CANCELLED]),
        minutes=st.floats(0.0, 6000.0),
        detail=st.sampled_from(["", f"{SHOWN}i-1", f"i-2 {ENDED}"]),
    ),
    max_size=30,
    unique_by=lambda each: each.key,
)


@given(tries=TRIES)
def test_the_order_of_records_does_not_matter_and_old_ones_are_forgotten(tries: list[Done]) -> None:
    """What is kept has one entry for each offer, however much happened."""
    found = past(*tries)

    assert found == past(*reversed(tries))
    assert set(found.offers) <= set(NAMES)
    assert found == past(*(each for each in tries if NOW - each.at < timedelta(days=3)))


def threat(node_id: str, name: str = "east-a", *, minutes: float, verb: Verb = Verb.INTERRUPTION) -> Done:
    """What the ledger has of a cloud's notice."""
    done = a_try(name, Status.SETTLED, minutes=minutes)
    return replace(done, key=f"{verb}-{node_id}-{minutes}", verb=verb, node_id=node_id)


def test_a_notice_is_a_loss_at_once_and_once() -> None:
    """Whether the node goes or not, and however often its deadline moves; until then its hours count."""
    came = success("i-1", minutes=180.0)
    moved = [threat("i-1", minutes=minutes) for minutes in (60.0, 59.0, 58.0)]
    for nodes in (("i-1",), ()):
        found = past(came, *moved, nodes=nodes).offers["east-a"]
        assert (found.losses, found.hours_up, found.refusals) == (1, 2.0, 1)


def test_a_second_notice_after_the_first_was_over_is_another_loss() -> None:
    """The node was spared in between, and its hours count again."""
    spared = threat("i-1", minutes=50.0, verb=Verb.SPARED)
    found = past(success("i-1", minutes=180.0), threat("i-1", minutes=60.0), spared, nodes=("i-1",)).offers["east-a"]
    assert (found.losses, found.hours_up) == (1, 3.0)
    again = (threat("i-1", minutes=60.0), spared, threat("i-1", minutes=10.0))
    assert past(success("i-1", minutes=180.0), *again, nodes=("i-1",)).offers["east-a"].losses == 2


def test_a_node_that_is_taken_is_a_refusal() -> None:
    """What takes nodes back has none to give; how long the node was up says nothing of that."""
    found = past(success("i-1", minutes=600.0), threat("i-1", minutes=2.0)).offers["east-a"]
    assert (found.losses, found.refusals, found.refused_at) == (1, 1, NOW - timedelta(minutes=2))


def test_notices_of_one_minute_are_one_refusal() -> None:
    """Sixteen nodes taken at once rest an offer as one does. It says nothing of how long spot has been refused."""
    came = [success(f"i-{number}", minutes=600.0 + number) for number in range(3)]
    at_once = past(*came, *(threat(f"i-{number}", minutes=50.0 - 0.3 * number) for number in range(3)))
    assert (at_once.offers["east-a"].refusals, at_once.offers["east-a"].losses) == (1, 3)
    assert at_once.spot_refused_since is None
    apart = past(*came, *(threat(f"i-{number}", minutes=50.0 - 2.0 * number) for number in range(3)))
    assert apart.offers["east-a"].refusals == 3


def test_what_is_taken_on_demand_is_no_loss_of_spot() -> None:
    """A host that is retired says nothing of the offer's stock."""
    on_demand = replace(threat("i-1", "sure", minutes=2.0), arguments={"offer": "sure", "capacity": "on_demand"})
    found = past(success("i-1", "sure", minutes=30.0, spot=False), on_demand).offers["sure"]
    assert (found.losses, found.refusals) == (0, 0)


@pytest.mark.parametrize(
    "kind", [Status.DENIED, Status.REFUSED, Status.THROTTLED, Status.SKEWED, Status.UNSENT, Status.UNAVAILABLE]
)
def test_a_day_of_faults_teaches_nothing_of_stock(kind: Status) -> None:
    """The offer rests 40 minutes at most, the sentence names the cause, and one success ends it."""
    day = [fault(minutes=float(minutes), kind=kind) for minutes in range(10, 1440, 20)]
    found = past(*day)
    known = found.offers["east-a"]
    assert (known.refusals, known.refused_at, known.losses) == (0, None, 0)
    assert resting_seconds(replace(seen(), offers={"default": found}), known, own=2) == 1800.0
    (said,) = faults(replace(seen(), offers={"default": found}), "default")
    assert (
        said == f"The offer east-a failed {len(day)} times in a row, and not for lack of stock: UnauthorizedOperation."
    )

    again = past(*day, success("i-1", minutes=5.0), nodes=("i-1",))
    assert again.offers["east-a"].faults == 0
    assert not list(faults(replace(seen(), offers={"default": again}), "default"))


def test_faults_are_beside_refusals_and_not_in_their_place() -> None:
    """A word on stock ends the count of faults, and is one refusal; spot was not to be had all the while."""
    found = past(fault(minutes=9.0), fault(minutes=6.0), refusal(minutes=3.0))
    assert (found.offers["east-a"].refusals, found.offers["east-a"].faults) == (1, 0)
    assert found.spot_refused_since == NOW - timedelta(minutes=9)
