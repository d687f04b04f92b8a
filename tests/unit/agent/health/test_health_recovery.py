"""health.py: when a GPU is well again, and that no cause is ever lost."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.health.verdict import HealthRules
from gpuwatch.model.gpu import RECOVERY_ACTIONS, DownCause, GpuDown, GpuReading
from gpuwatch.model.health import Health
from tests.support.builders.gpu import a_down, a_reading
from tests.support.builders.sick_gpus import SEEN, Patient, well


@pytest.mark.parametrize("code", SEEN)
def test_a_cause_must_be_away_for_a_while(patient: Patient, code: str) -> None:
    """Ten minutes without it, no less; it coming back starts them again."""
    patient = Patient(HealthRules(throttle_window=1.0))
    patient.look(a_reading())
    patient.look(a_reading(**SEEN[code][0]), times=360)
    patient.rest(9, **well(code))
    patient.look(a_reading(**SEEN[code][0]), times=360)
    late = patient.rest(9, **well(code)).state
    over = patient.rest(2, **well(code)).state

    assert late is not Health.HEALTHY
    assert over is Health.HEALTHY


def test_nothing_gets_better_unseen(patient: Patient) -> None:
    """Hours without a driver, without a word from the GPU, or without any look, are no quiet minutes."""
    patient.look(a_reading(remapped_rows_pending=1))
    patient.look(a_down(cause=DownCause.DRIVER), times=60, every=60.0)
    patient.look(a_reading(clock_events=None), times=3600)
    patient.look(a_reading(), every=86400.0)

    assert patient.codes == ["row_remap_pending"]
    assert patient.rest(11, remapped_rows_pending=0).state is Health.HEALTHY


@pytest.mark.parametrize("code", SEEN)
def test_a_cause_that_is_not_shown_any_more_is_not_over(patient: Patient, code: str) -> None:
    """What MIG hides, a right that was taken away, a field that fails: the other figures say nothing of it."""
    patient = Patient(HealthRules(throttle_window=1.0))
    patient.look(a_reading(**SEEN[code][0]), times=360)
    hidden: dict[str, Any] = {**dict.fromkeys(SEEN[code][0]), "ecc_uncorrected_volatile_errors_total": 0}
    patient.look(a_reading(**hidden), times=120, every=60.0)

    assert patient.codes == [code]
    assert patient.rest(11, **well(code)).state is Health.HEALTHY


def test_what_the_driver_asked_for_is_not_over_where_it_does_not_say(patient: Patient) -> None:
    """The field of its recovery action fails for hours."""
    patient.look(a_reading(recovery_action=1))
    patient.look(a_reading(), times=120, every=60.0)

    assert patient.codes == ["driver_asks_reset"]
    assert patient.rest(11, recovery_action=0).state is Health.HEALTHY


def test_the_driver_asks_for_one_thing_at_a_time(patient: Patient) -> None:
    """A reboot that it asked for before is not to be done any more; what it asks for no longer at all ends as ever."""
    patient.look(a_reading(recovery_action=2))
    patient.look(a_reading(recovery_action=1))
    reset = patient.codes
    patient.look(a_reading(recovery_action=0))

    assert (reset, patient.codes) == (["driver_asks_reset"], ["driver_asks_reset"])
    assert patient.rest(11, recovery_action=0).state is Health.HEALTHY


def test_what_gpuwatch_does_not_know_may_be_asked_for(patient: Patient) -> None:
    """The driver is newer: the GPU is not called healthy, and where to look is said."""
    verdict = patient.look(a_reading(recovery_action=len(RECOVERY_ACTIONS)))

    assert (verdict.state, patient.codes) == (Health.DEGRADED, ["driver_asks_unknown"])


@pytest.mark.parametrize("how", ["energy", "kernel log"])
def test_a_reset_mends_what_asked_for_it(patient: Patient, how: str) -> None:
    """At once, whether the energy counter starts again or the kernel log tells of a fresh driver."""
    patient.look(a_reading(energy_joules_total=1e6), 48)
    patient.look(a_down(cause=DownCause.DRIVER), times=10)
    joules = 5.0 if how == "energy" else 1e6
    verdict = patient.look(a_reading(energy_joules_total=joules), reloaded=how == "kernel log")

    assert verdict.state is Health.HEALTHY


def test_an_energy_of_nothing_is_no_reset(patient: Patient) -> None:
    """A driver that answers 0 for a moment has not begun to count again; one that counts from little has."""
    patient.look(a_reading(energy_joules_total=5e9), 48)
    patient.look(a_reading(energy_joules_total=0.0), times=10)
    moment = patient.look(a_reading(energy_joules_total=5e9 + 700))
    reset = patient.look(a_reading(energy_joules_total=700.0))

    assert (moment.state, reset.state) == (Health.FAILING, Health.HEALTHY)


def test_a_reset_does_not_mend_what_is_still_there(patient: Patient) -> None:
    """A remap failure is read again, and a reboot that was asked for has not happened."""
    patient.look(a_reading(remapped_rows_failure=1), 48, 79)
    patient.look(a_reading(remapped_rows_failure=1), reloaded=True)

    assert patient.codes == ["row_remap_failure", "xid_79"]


def test_the_time_of_a_verdict_is_when_its_state_began(patient: Patient) -> None:
    """Another cause of the same state does not start it again."""
    first = patient.look(a_reading(), 48)
    second = patient.look(a_reading(), 62, every=300.0)

    assert second.since == first.since
    assert len(second.findings) == 2


LOOKS = st.lists(
    st.tuples(
        st.sampled_from([a_reading(), a_reading(remapped_rows_pending=1), a_down(), a_down(cause=DownCause.DRIVER)]),
        st.sampled_from([(), (13,), (94,), (48,), (79,)]),
        st.floats(0.1, 900.0),
    ),
    max_size=20,
)


@given(LOOKS)
def test_a_verdict_is_never_better_than_its_causes(
    looks: list[tuple[GpuReading | GpuDown, tuple[int, ...], float]],
) -> None:
    """Healthy means read and nothing found; unknown means nothing found; the state is that of the worst finding."""
    patient = Patient()
    for entry, xids, every in looks:
        verdict = patient.look(entry, *xids, every=every)
        worst = {finding.health for finding in verdict.findings}

        if verdict.state is Health.HEALTHY:
            assert isinstance(entry, GpuReading)
        assert worst <= {Health.DEGRADED, Health.FAILING}
        assert (verdict.state is Health.FAILING) == (Health.FAILING in worst)
        assert (verdict.state in {Health.HEALTHY, Health.UNKNOWN}) == (not worst)


@given(LOOKS, st.integers(0, 19))
def test_more_trouble_never_makes_it_look_better(
    looks: list[tuple[GpuReading | GpuDown, tuple[int, ...], float]], where: int
) -> None:
    """One more critical XID at any time, and the last verdict is failing."""
    patient = Patient()
    for number, (entry, xids, every) in enumerate(looks):
        patient.look(entry, *xids, *((95,) if number == min(where, len(looks) - 1) else ()), every=every)

    assert not looks or patient.verdict.state is Health.FAILING
