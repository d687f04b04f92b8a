"""health.py: what makes a GPU degraded or failing, and what to do about it."""

from dataclasses import replace

import pytest

from gpuwatch.agent.health.causes import DOWN, LEVELS
from gpuwatch.model.gpu import RECOVERY_ACTIONS, DownCause, GpuReading
from gpuwatch.model.health import NVLINK_5, XIDS, Health, Remedy, Severity
from tests.support.builders.gpu import START, a_busy_reading, a_down, a_gpu, a_reading
from tests.support.builders.sick_gpus import SEEN, Patient, well

MINUTE = 60.0


# Well, and not known


def test_a_gpu_without_a_cause_is_healthy(patient: Patient) -> None:
    """Idle or busy, with its power limit reached or not."""
    assert patient.look(a_reading()).state is Health.HEALTHY
    assert patient.look(a_busy_reading(clock_events=("sw_power_cap",)), times=1000).state is Health.HEALTHY
    assert patient.verdict.remedy is Remedy.NOTHING


@pytest.mark.parametrize("cause", [cause for cause in DownCause if cause not in DOWN])
def test_a_gpu_that_is_not_read_is_unknown_not_healthy(patient: Patient, cause: DownCause) -> None:
    """No driver, an error, a release: nothing is said about the GPU, and why is told."""
    patient.look(a_reading())
    verdict = patient.look(a_down(cause=cause, detail="the words"), times=1000)

    assert (verdict.state, verdict.doubt) == (Health.UNKNOWN, f"{cause.value}: the words")


def test_a_gpu_that_tells_nothing_is_unknown_not_healthy(patient: Patient) -> None:
    """Where nothing that it could be judged by is supported, its answers are no sign of health, and why is told."""
    healthy = patient.look(a_reading())
    mute = patient.look(a_reading(clock_events=None, utilization_ratio=None, energy_joules_total=5.0))

    assert (healthy.state, mute.state) == (Health.HEALTHY, Health.UNKNOWN)
    assert mute.doubt == "no value that shows its health is supported or could be read"


# Causes that can be seen


@pytest.mark.parametrize("code", SEEN)
def test_what_is_seen_is_found(patient: Patient, code: str) -> None:
    """Six minutes of it are enough for each."""
    measured, state, remedy = SEEN[code]
    patient.look(a_reading())
    verdict = patient.look(a_reading(**measured), times=360)

    assert patient.codes == [code]
    assert (verdict.state, verdict.remedy) == (state, remedy)


def test_no_row_of_the_table_is_left_untested() -> None:
    """Each level has its case here."""
    assert {level.finding.code for level in LEVELS} == {
        *SEEN,
        *("ecc_uncorrected", "ecc_corrected_rate", "nvlink_errors"),
    }


@pytest.mark.parametrize("code", SEEN)
def test_a_gpu_that_shows_a_single_cause_tells_something(patient: Patient, code: str) -> None:
    """What each cause is seen by is enough by itself to call a GPU healthy while it shows nothing wrong."""
    assert patient.look(a_reading(**{"clock_events": None, **well(code)})).state is Health.HEALTHY


def test_an_uncorrected_error_is_found_when_the_count_rises(patient: Patient) -> None:
    """What was counted before the first look, and a counter that starts again, are no news."""
    patient.look(a_reading(ecc_uncorrected_volatile_errors_total=7), times=3)
    patient.look(a_reading(ecc_uncorrected_volatile_errors_total=0), times=3)
    before = patient.codes
    patient.look(a_reading(ecc_uncorrected_volatile_errors_total=1), times=3)

    assert (before, patient.codes) == ([], ["ecc_uncorrected"])


def test_corrected_errors_matter_by_their_rate() -> None:
    """Five hundred in an hour are borne, two thousand are not."""
    slow, fast = Patient(), Patient()
    for minute in range(60):
        slow.look(a_reading(ecc_corrected_volatile_errors_total=minute * 500 // 60), every=MINUTE)
        fast.look(a_reading(ecc_corrected_volatile_errors_total=minute * 2000 // 60), every=MINUTE)

    assert (slow.codes, fast.codes) == ([], ["ecc_corrected_rate"])


def test_short_throttling_is_borne(patient: Patient) -> None:
    """Half a minute of heat in ten is no cause, by flags and by counters."""
    patient.look(a_reading())
    patient.look(a_reading(clock_events=("hw_thermal_slowdown",)), times=30)

    assert patient.codes == []


def test_throttling_is_taken_from_the_drivers_counters_where_it_has_them(patient: Patient) -> None:
    """They see what happens between two looks: a quarter of the time too hot, and never at the moment of a look."""
    for minute in range(15):
        counters = {"sw_thermal_slowdown": 15.0 * minute, "sw_power_cap": 60.0 * minute}
        patient.look(a_reading(clock_events=(), clock_event_seconds_total=counters), every=MINUTE)

    assert patient.codes == ["thermal_throttling"]
    assert patient.record.figures.thermal_ratio == pytest.approx(0.19, abs=0.03)


@pytest.mark.parametrize(
    ("event", "code"), [("hw_thermal_slowdown", "thermal_throttling"), ("hw_power_brake_slowdown", "power_brake")]
)
def test_a_counter_that_stands_still_hides_no_slowdown(patient: Patient, event: str, code: str) -> None:
    """Some drivers hold the clocks down for minutes and never count it."""
    still = {"hw_thermal_slowdown": 3.0, "sw_thermal_slowdown": 0.0, "hw_power_brake_slowdown": 0.0}
    patient.look(a_reading(clock_events=(event,), clock_event_seconds_total=still), times=120)

    assert patient.codes == [code]


def test_a_moment_of_heat_between_looks_is_not_taken_for_a_still_counter(patient: Patient) -> None:
    """The counter that moves is believed, also where each look happens to see the event."""
    for second in range(300):
        counters = {"hw_thermal_slowdown": 0.05 * second}
        patient.look(a_reading(clock_events=("hw_thermal_slowdown",), clock_event_seconds_total=counters))

    assert patient.codes == []


def test_a_slowdown_without_a_named_reason_is_found_once(patient: Patient) -> None:
    """The driver's word for heat or the brake says more; without one the slowdown itself is the cause."""
    named = Patient()
    named.look(a_reading(clock_events=("hw_slowdown", "hw_thermal_slowdown")), times=120)
    patient.look(a_reading(clock_events=("hw_slowdown",)), times=120)

    assert (named.codes, patient.codes) == (["thermal_throttling"], ["hardware_slowdown"])


def test_a_narrow_link_matters_under_load_and_after_a_while(patient: Patient) -> None:
    """An idle link may fall back, and a moment says nothing."""
    narrow = {"pcie_link_width": 8, "pcie_link_width_max": 16}
    patient.look(a_reading(**narrow), times=1000)
    patient.look(a_busy_reading(**narrow), times=30)
    patient.look(a_reading(**narrow), times=5)
    patient.look(a_busy_reading(**narrow), times=59)
    before = patient.codes
    patient.look(a_busy_reading(**narrow), times=5)

    assert (before, patient.codes) == ([], ["pcie_narrow"])


SLOW = {"pcie_link_generation": 2, "pcie_link_generation_max": 5}


@pytest.mark.parametrize(
    "measured",
    [
        {"performance_state": 0, "utilization_ratio": 0.0},
        {"performance_state": 8},
        {"performance_state": None},
        {"performance_state": 0, "pcie_link_generation": 4},
        {"performance_state": 0, "pcie_link_generation": 5},
    ],
    ids=["without load", "at low clocks", "at unknown clocks", "held one generation lower by a riser", "at full speed"],
)
def test_a_link_that_saves_power_is_no_cause(patient: Patient, measured: dict[str, int]) -> None:
    """An idle link falls back to its first generation, and a riser or the firmware may hold it one lower."""
    patient.look(a_busy_reading(**{**SLOW, **measured}), times=1000)

    assert patient.codes == []


@pytest.mark.parametrize("bus", ["00000000:00:1E.0", "00000001:00:00.0"])
@pytest.mark.parametrize("code", ["pcie_narrow", "pcie_slow"])
def test_a_guest_does_not_see_what_its_slot_could_do(patient: Patient, bus: str, code: str) -> None:
    """On bus 0 nothing stands above a GPU that was passed to a guest: the maximum is of the GPU alone."""
    guest = replace(a_reading(**SEEN[code][0]), info=replace(a_gpu(), pci_bus_id=bus))
    patient.look(guest, times=1000)

    assert patient.verdict.state is Health.HEALTHY


def test_what_a_fabric_does_by_itself_is_borne_for_minutes(patient: Patient) -> None:
    """Joining after a boot, a route or a time-out that recovers: only what lasts is a cause."""
    for measured in ({"fabric_state": 2}, {"fabric_faults": ("route_recovery", "access_timeout"), "fabric_state": 3}):
        patient.look(a_reading(**measured), times=250)
        patient.look(a_reading(fabric_state=3, fabric_faults=()), times=60)

    assert patient.verdict.state is Health.HEALTHY


def test_links_that_recover_again_and_again_are_found(patient: Patient) -> None:
    """Once for each link, as when a switch starts again, is borne; every twenty seconds for an hour is not."""
    for minute in range(60):
        patient.look(a_reading(nvlink_errors_total={"recovery": 18.0 if minute > 9 else 0.0}), every=MINUTE)
    once = patient.codes
    for minute in range(60):
        patient.look(a_reading(nvlink_errors_total={"recovery": 18.0 + 3 * minute}), every=MINUTE)

    assert (once, patient.codes) == ([], ["nvlink_errors"])


def test_a_link_whose_count_comes_and_goes_is_no_error(patient: Patient) -> None:
    """The sum over the links falls while one is down, and has its old value again when it is back."""
    for minute in range(60):
        total = 400.0 if minute % 2 else 9000.0
        patient.look(a_reading(nvlink_errors_total={"recovery": total, "replay": total * 1000}), every=MINUTE)

    assert patient.codes == []


def test_what_is_not_known_is_no_cause(patient: Patient) -> None:
    """A reading that tells nothing accuses of nothing."""
    assert patient.look(GpuReading(info=a_reading().info, at=START), times=200).state is Health.UNKNOWN


# Gone, hung


@pytest.mark.parametrize(
    ("cause", "code", "remedy"),
    [
        (DownCause.LOST, "gpu_lost", Remedy.REBOOT),
        (DownCause.MISSING, "gpu_missing", Remedy.REBOOT),
        (DownCause.HANG, "gpu_hung", Remedy.RESET),
        (DownCause.RESET, "gpu_needs_reset", Remedy.RESET),
    ],
)
def test_a_gpu_that_is_gone_is_failing(patient: Patient, cause: DownCause, code: str, remedy: Remedy) -> None:
    """With the remedy of its cause."""
    verdict = patient.look(a_down(cause=cause), times=12)

    assert (patient.codes, verdict.state, verdict.remedy) == ([code], Health.FAILING, remedy)


def test_a_hang_elsewhere_says_nothing(patient: Patient) -> None:
    """A GPU that a broken cycle did not reach is down for a moment, and well."""
    patient.look(a_reading())
    patient.look(a_down(cause=DownCause.HANG), times=3)

    assert patient.look(a_reading()).state is Health.HEALTHY


# XIDs


@pytest.mark.parametrize("xid", [48, 54, 62, 64, 74, 79, 95, 119, 120, 156, 158])
def test_critical_xids_fail_a_gpu(patient: Patient, xid: int) -> None:
    """One is enough, and an hour of good readings does not forgive it."""
    patient.look(a_reading(), xid)
    verdict = patient.rest(60)

    assert (patient.codes, verdict.state) == ([f"xid_{xid}"], Health.FAILING)
    assert verdict.remedy in {Remedy.RESET, Remedy.REBOOT}


@pytest.mark.parametrize("xid", [11, 13, 31, 39, 43, 44, 63, 68, 92, 99, 135, 139, 154, 157, 172, 999])
def test_xids_of_programs_and_information_leave_it_healthy(patient: Patient, xid: int) -> None:
    """So do numbers that nobody has heard of: they are counted elsewhere."""
    assert patient.look(a_reading(), xid).state is Health.HEALTHY


def test_a_contained_error_degrades_for_a_while(patient: Patient) -> None:
    """XID 94 hits a program and asks for nothing; after ten quiet minutes it is over."""
    assert patient.look(a_reading(), 94).state is Health.DEGRADED
    assert patient.rest(9).state is Health.DEGRADED
    assert patient.rest(2).state is Health.HEALTHY


@pytest.mark.parametrize("xid", NVLINK_5)
def test_an_nvlink_5_error_matters_if_the_kernel_calls_it_fatal(xid: int) -> None:
    """NVML does not say, so its word alone is no cause."""
    states = {fatal: Patient().look(a_reading(), xid, fatal=fatal).state for fatal in (None, False, True)}

    assert states == {None: Health.HEALTHY, False: Health.HEALTHY, True: Health.FAILING}


# NVIDIA's catalogue by its column "Resolution Bucket (Immediate Action)".
RESTART_APP = {8, 11, 13, 25, 31, 32, *range(39, 42), 60, 68, 69, *range(70, 73), *range(75, 78), 80}
RESTART_APP |= {*range(82, 87), 88, 89, *range(96, 106), *range(126, 136), 139}
IGNORE = {37, 38, 44, 63, 66, 67, 92, 93, 106, 107, 121, 141, 152, 153, 157, 160, 161}
RESET_GPU = {46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 156, 158}


@pytest.mark.parametrize(
    ("numbers", "severity"),
    [
        (RESTART_APP, Severity.APPLICATION),
        (IGNORE, Severity.INFORMATION),
        (RESET_GPU, Severity.CRITICAL),
    ],
    ids=["restart the application", "ignore", "reset the GPU"],
)
def test_the_catalogue_says_what_nvidias_says(numbers: set[int], severity: Severity) -> None:
    """Each number with such an action is a row of ours: none is called unknown, and a reset is asked for by name."""
    ours = {number: XIDS.get(number) for number in numbers}

    assert {number for number, row in ours.items() if row is None or row.severity is not severity} == set()
    assert severity is not Severity.CRITICAL or {XIDS[number].remedy for number in numbers} == {Remedy.RESET}


def test_every_row_of_the_catalogue_that_accuses_has_a_remedy() -> None:
    """A critical XID asks for a reset or more; what accuses nobody asks for nothing; sentences are sentences."""
    for xid, row in XIDS.items():
        strong = row.remedy in {Remedy.RESET, Remedy.REBOOT, Remedy.REPLACE_HARDWARE}
        assert (row.severity is Severity.CRITICAL) == strong, xid
        assert row.sentence.endswith("."), xid


# What the driver asks for


@pytest.mark.parametrize("number", range(1, len(RECOVERY_ACTIONS)))
def test_what_the_driver_asks_for_is_found(patient: Patient, number: int) -> None:
    """Each recovery action by its name, from the field or from XID 154 in the kernel log."""
    code = f"driver_asks_{RECOVERY_ACTIONS[number]}"
    result = Patient()
    result.look(a_reading(), 154, recovery_action=number)
    patient.look(a_reading(recovery_action=number))

    assert patient.codes == result.codes == [code]


def test_what_the_driver_asks_for_outranks_guesses(patient: Patient) -> None:
    """XID 79 guesses a reboot; the driver says that a reset will do."""
    verdict = patient.look(a_reading(recovery_action=1), 79)

    assert patient.codes == ["driver_asks_reset", "xid_79"]
    assert (verdict.state, verdict.remedy) == (Health.FAILING, Remedy.RESET)


def test_a_driver_that_asks_for_nothing_lets_an_xid_pass(patient: Patient) -> None:
    """Where the field is known and none, a critical XID is over after ten quiet minutes."""
    patient.look(a_reading(recovery_action=0), 48)

    assert patient.rest(9, recovery_action=0).state is Health.FAILING
    assert patient.rest(2, recovery_action=0).state is Health.HEALTHY


def test_the_field_is_believed_before_the_log(patient: Patient) -> None:
    """A recovery action that the kernel log told of is over when the field says so."""
    patient.look(a_reading(), 154, recovery_action=2)
    patient.rest(12, recovery_action=0)

    assert patient.codes == []
