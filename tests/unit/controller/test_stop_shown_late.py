"""A cloud whose list is a quarter of an hour old: our stop is given up before it is shown, and not forgotten."""

from tests.support.builders.desk import a_desk
from tests.support.builders.fleet import a_node


def test_a_stop_that_was_shown_too_late_is_told_as_what_gpuwatch_asked_for() -> None:
    """That no stop is on record would be false; that it was gpuwatch's is not proved."""
    desk = a_desk(a_node("i-1"))
    desk.fleet.stale = lambda _now: 900.0
    rounds = [desk.round() for _ in range(40)]

    reasons = [step.reason.sentence for done in rounds for each in done.decisions for step in each.steps]
    told = {each for each in reasons if each.startswith("It is stopped.")}
    assert [call for call, _, _ in desk.fleet.calls].count("stop") == 1
    asked = "gpuwatch asked for its stop at 2026-03-02 12:10 UTC, and its cloud did not show it done in time."
    assert told == {f"It is stopped. {asked}"}
