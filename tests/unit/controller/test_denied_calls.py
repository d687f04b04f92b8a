"""Calls that the cloud does not allow: one machine's policy, or credentials that nobody accepts."""

from gpuwatch.clouds import AuthFailedError, BusyError, ClockSkewError, CloudError
from tests.support.builders.desk import a_desk, ledger_statuses
from tests.support.builders.fleet import a_node


def test_one_machine_that_the_cloud_denies_us_holds_up_no_other() -> None:
    """A policy that forbids one machine ends neither the round's calls nor anybody else's turn."""
    desk = a_desk(a_node("i-1"), a_node("i-2"), a_node("i-3"))
    desk.fleet.fault = lambda call, node: (
        AuthFailedError("UnauthorizedOperation") if call == "stop" and node == "i-1" else None
    )
    for _ in range(14):
        desk.round()

    assert desk.fleet.stops() == ["i-2", "i-3"]
    assert ledger_statuses(desk, "i-1")[1] == ["stop", "denied"]


def test_a_denied_stop_is_asked_for_a_few_times_a_day() -> None:
    """Somebody has to change a tag or a policy: asking every minute helps nobody."""
    desk = a_desk(a_node("i-1"))
    asked: list[str] = []

    def deny(call: str, _node: str) -> CloudError | None:
        if call != "stop":
            return None
        asked.append(call)
        return AuthFailedError("UnauthorizedOperation")

    desk.fleet.fault = deny
    for _ in range(24 * 20):
        desk.round(180.0)

    assert 2 <= len(asked) <= 16


def test_credentials_that_nobody_accepts_end_the_rounds_calls() -> None:
    """Three denied calls in a row are about us, not about one machine."""
    desk = a_desk(*(a_node(f"i-{n}") for n in range(9)))
    asked: list[str] = []

    def deny(call: str, node: str) -> CloudError | None:
        if call != "tag":
            return None
        asked.append(node)
        return AuthFailedError("AuthFailure") if node != "i-1" else None

    desk.fleet.fault = deny
    desk.round()

    assert asked == ["i-0", "i-1", "i-2", "i-3", "i-4"]


def test_a_wrong_clock_ends_the_rounds_calls_and_is_asked_again_soon() -> None:
    """Every call would be refused alike. Once the clock is set, nobody waits for hours as for missing permissions."""
    desk = a_desk(a_node("i-1"), a_node("i-2"))
    asked: list[str] = []
    wrong = [True]

    def refuse(call: str, node: str) -> CloudError | None:
        if call != "stop":
            return None
        asked.append(node)
        return ClockSkewError("the request was made at another time") if wrong[0] else None

    desk.fleet.fault = refuse
    while not asked:
        desk.round()
    assert asked == ["i-1"]
    assert ledger_statuses(desk, "i-1")[1] == ["stop", "skewed"]

    wrong[0] = False
    for _ in range(5):
        desk.round()
    assert sorted(desk.fleet.stops()) == ["i-1", "i-2"]


def test_a_machine_that_is_busy_with_another_operation_holds_up_no_other() -> None:
    """The cloud says so of that machine alone: those beside it have their turns in the same round."""
    desk = a_desk(a_node("i-1"), a_node("i-2"), a_node("i-3"))
    asked: list[str] = []

    def fault(call: str, node: str) -> CloudError | None:
        if call != "stop":
            return None
        asked.append(node)
        said = "another operation on it is in progress"
        return BusyError(said, code="OperationDenied.InstanceOperationInProgress") if node == "i-1" else None

    desk.fleet.fault = fault
    while not asked:
        desk.round()

    assert asked[:2] == ["i-1", "i-2"]
    assert ledger_statuses(desk, "i-1")[1][:2] == ["stop", "busy"]


def test_a_machine_that_was_busy_is_stopped_once_it_is_not() -> None:
    """Its stop is neither failed nor refused: the same intent is tried again, and only after a bound given up."""
    desk = a_desk(a_node("i-1"))
    busy = [3]

    def fault(call: str, _node: str) -> CloudError | None:
        if call != "stop" or not busy[0]:
            return None
        busy[0] -= 1
        return BusyError("it is still pending", code="IncorrectInstanceState")

    desk.fleet.fault = fault
    for _ in range(25):
        desk.round()

    assert desk.fleet.stops() == ["i-1"]
    assert ledger_statuses(desk, "i-1")[1][:4] == ["stop", "busy", "asked", "busy"]
