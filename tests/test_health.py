"""health.py: what makes a GPU degraded or failing, what to do about it, and when it is well again."""

import itertools
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.activity import ActivityRules
from gpuwatch.agent.core import AgentCore
from gpuwatch.agent.health_manual import render_health_md
from gpuwatch.agent.health_watch import HealthFile, HealthWatch
from gpuwatch.agent.kmsg import KernelXid
from gpuwatch.clock import ManualClock
from gpuwatch.health import HealthRules, Look, Record, fold
from gpuwatch.health.causes import DOWN, LEVELS, RECOVERY, xid_finding
from gpuwatch.model.fleet import GpuVerdict
from gpuwatch.model.gpu import RECOVERY_ACTIONS, DownCause, GpuDown, GpuReading
from gpuwatch.model.health import GpuHealth, Health, Remedy
from gpuwatch.model.xid import NVLINK_5, XIDS, Severity, Witness, XidEvent
from tests.builders import START, a_busy_reading, a_cycle, a_down, a_reading

ROOT = Path(__file__).parent.parent
RULES = HealthRules()
MINUTE = 60.0


class Patient:
    """GPU 0, looked at once a second unless told otherwise."""

    def __init__(self, rules: HealthRules = RULES) -> None:
        """Nothing is known of it."""
        self.rules = rules
        self.seconds = 1000.0
        self.record = Record()

    def look(
        self,
        entry: GpuReading | GpuDown,
        *xids: int,
        times: int = 1,
        every: float = 1.0,
        reloaded: bool = False,
        **told: Any,  # noqa: ANN401  fields of XidEvent
    ) -> GpuHealth:
        """So many looks that see the same; the XIDs came just before the first."""
        for number in range(times):
            self.seconds += every
            at = START + timedelta(seconds=self.seconds)
            events = tuple(
                XidEvent(uuid="GPU-0", xid=xid, at=at, monotonic_seconds=self.seconds, witness=Witness.KERNEL, **told)
                for xid in xids
            )
            look = Look(
                at=at,
                monotonic_seconds=self.seconds,
                entry=entry,
                xids=events if number == 0 else (),
                reloaded=reloaded and number == 0,
            )
            self.record = fold(self.record, look, self.rules)
        return self.verdict

    def rest(self, minutes: float, **measured: Any) -> GpuHealth:  # noqa: ANN401  fields of GpuReading
        """Readings without anything wrong for so long, one every ten seconds."""
        return self.look(a_reading(**measured), times=round(minutes * 6), every=10.0)

    @property
    def verdict(self) -> GpuHealth:
        """What is thought of it now."""
        return self.record.verdict

    @property
    def codes(self) -> list[str]:
        """What was found, the first to act on first."""
        return [finding.code for finding in self.verdict.findings]


@pytest.fixture
def patient() -> Patient:
    """A GPU of which nothing is known."""
    return Patient()


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


# Causes that can be seen

SEEN: dict[str, tuple[dict[str, Any], Health, Remedy]] = {
    "row_remap_failure": ({"remapped_rows_failure": 1}, Health.FAILING, Remedy.REPLACE_HARDWARE),
    "row_remap_pending": ({"remapped_rows_pending": 1}, Health.DEGRADED, Remedy.RESET),
    "page_retirement_pending": ({"retired_pages_pending": 1}, Health.DEGRADED, Remedy.RESET),
    "thermal_throttling": ({"clock_events": ("sw_thermal_slowdown",)}, Health.DEGRADED, Remedy.DRAIN),
    "power_brake": ({"clock_events": ("hw_power_brake_slowdown",)}, Health.DEGRADED, Remedy.DRAIN),
    "pcie_narrow": (
        {"pcie_link_width": 8, "pcie_link_width_max": 16, "utilization_ratio": 0.8},
        Health.DEGRADED,
        Remedy.DRAIN,
    ),
}


@pytest.mark.parametrize("code", SEEN)
def test_what_is_seen_is_found(patient: Patient, code: str) -> None:
    """Two minutes of it are enough for each."""
    measured, state, remedy = SEEN[code]
    patient.look(a_reading())
    verdict = patient.look(a_reading(**measured), times=120)

    assert patient.codes == [code]
    assert (verdict.state, verdict.remedy) == (state, remedy)


def test_no_row_of_the_table_is_left_untested() -> None:
    """Each level has its case here."""
    assert {level.finding.code for level in LEVELS} == {*SEEN, "ecc_uncorrected", "ecc_corrected_rate"}


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


def test_what_is_not_known_is_no_cause(patient: Patient) -> None:
    """A reading that tells nothing accuses of nothing."""
    assert patient.look(GpuReading(info=a_reading().info, at=START), times=200).state is Health.HEALTHY


# Gone, hung


@pytest.mark.parametrize(
    ("cause", "code", "remedy"),
    [
        (DownCause.LOST, "gpu_lost", Remedy.REBOOT),
        (DownCause.MISSING, "gpu_missing", Remedy.REBOOT),
        (DownCause.HANG, "gpu_hung", Remedy.RESET),
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


@pytest.mark.parametrize("xid", [48, 62, 64, 74, 79, 95, 119, 120])
def test_critical_xids_fail_a_gpu(patient: Patient, xid: int) -> None:
    """One is enough, and an hour of good readings does not forgive it."""
    patient.look(a_reading(), xid)
    verdict = patient.rest(60)

    assert (patient.codes, verdict.state) == ([f"xid_{xid}"], Health.FAILING)
    assert verdict.remedy in {Remedy.RESET, Remedy.REBOOT}


@pytest.mark.parametrize("xid", [13, 31, 43, 63, 92, 154, 999])
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
    told = Patient()
    told.look(a_reading(), 154, recovery_action=number)
    patient.look(a_reading(recovery_action=number))

    assert patient.codes == told.codes == [code]


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


# Getting better


@pytest.mark.parametrize("code", SEEN)
def test_a_cause_must_be_away_for_a_while(patient: Patient, code: str) -> None:
    """Ten minutes without it, no less; it coming back starts them again."""
    patient = Patient(HealthRules(throttle_window=1.0))
    patient.look(a_reading())
    patient.look(a_reading(**SEEN[code][0]), times=120)
    patient.rest(9)
    patient.look(a_reading(**SEEN[code][0]), times=120)
    late = patient.rest(9).state
    over = patient.rest(2).state

    assert late is not Health.HEALTHY
    assert over is Health.HEALTHY


def test_nothing_gets_better_unseen(patient: Patient) -> None:
    """Hours without a driver, or without any look, are no quiet minutes."""
    patient.look(a_reading(remapped_rows_pending=1))
    patient.look(a_down(cause=DownCause.DRIVER), times=60, every=MINUTE)
    patient.look(a_reading(), every=86400.0)

    assert patient.codes == ["row_remap_pending"]
    assert patient.rest(11).state is Health.HEALTHY


@pytest.mark.parametrize("how", ["energy", "kernel log"])
def test_a_reset_mends_what_asked_for_it(patient: Patient, how: str) -> None:
    """At once, whether the energy counter starts again or the kernel log tells of a fresh driver."""
    patient.look(a_reading(energy_joules_total=1e6), 48)
    patient.look(a_down(cause=DownCause.DRIVER), times=10)
    joules = 5.0 if how == "energy" else 1e6
    verdict = patient.look(a_reading(energy_joules_total=joules), reloaded=how == "kernel log")

    assert verdict.state is Health.HEALTHY


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


# Over restarts of the agent


def a_watch(clock: ManualClock, folder: Path, boot: str = "boot-1") -> HealthWatch:
    """What an agent that starts now knows."""
    return HealthWatch(clock, file=HealthFile(folder / "health.json", boot))


def looked(watch: HealthWatch, clock: ManualClock, reading: GpuReading | None = None) -> GpuHealth:
    """The verdict on GPU 0 a second later."""
    clock.advance(1.0)
    return watch.look(clock.now(), clock.monotonic(), (reading or a_reading(),), ())["GPU-0"]


def test_a_restart_of_the_agent_heals_no_gpu(tmp_path: Path) -> None:
    """The next agent of the same boot knows what the last one found, and since when."""
    clock = ManualClock(elapsed_seconds=1000.0)
    first = a_watch(clock, tmp_path)
    first.xids.tell("GPU-0", 48)
    before = looked(first, clock)
    clock.advance(3600.0)
    after = looked(a_watch(clock, tmp_path), clock)

    assert (before.state, after) == (Health.FAILING, before)


def test_a_reboot_heals_what_it_was_asked_for(tmp_path: Path) -> None:
    """A file of another boot is not believed; what still holds is read again."""
    clock = ManualClock(elapsed_seconds=1000.0)
    first = a_watch(clock, tmp_path)
    first.xids.tell("GPU-0", 79)
    looked(first, clock, a_reading(remapped_rows_failure=1))
    rebooted = ManualClock(elapsed_seconds=20.0)
    after = looked(a_watch(rebooted, tmp_path, "boot-2"), rebooted, a_reading(remapped_rows_failure=1))

    assert [finding.code for finding in after.findings] == ["row_remap_failure"]


def test_a_host_that_does_not_name_its_boots_remembers_nothing(tmp_path: Path) -> None:
    """Where a reboot cannot be told from a restart, health begins anew."""
    clock = ManualClock(elapsed_seconds=1000.0)
    first = a_watch(clock, tmp_path, "")
    first.xids.tell("GPU-0", 48)
    looked(first, clock)

    assert looked(a_watch(clock, tmp_path, ""), clock).state is Health.HEALTHY


def test_what_the_last_agent_judged_is_not_judged_again(tmp_path: Path) -> None:
    """The kernel log is read from its beginning by each agent; what a reset has mended since stays mended."""
    clock = ManualClock(elapsed_seconds=1000.0)
    first = a_watch(clock, tmp_path)
    first.xids.tell("GPU-0", 48)
    looked(first, clock, a_reading(energy_joules_total=1e6))
    looked(first, clock, a_reading(energy_joules_total=1.0))
    second = a_watch(clock, tmp_path)
    second.xids.know([a_reading().info])
    second.xids.hear(KernelXid(address=(0, 1, 0), xid=48), 1000.0)

    assert looked(second, clock, a_reading(energy_joules_total=2.0)).state is Health.HEALTHY
    assert second.xids.counts["GPU-0", 48].total == 1


@pytest.mark.parametrize("content", [b"", b"{", b'{"schema":1}', b'{"schema":2,"boot_id":"boot-1"}', b"\xff"])
def test_a_broken_file_is_no_obstacle(tmp_path: Path, content: bytes) -> None:
    """Health begins anew and the file is written anew."""
    (tmp_path / "health.json").write_bytes(content)
    clock = ManualClock()
    watch = a_watch(clock, tmp_path)
    watch.xids.tell("GPU-0", 48)
    looked(watch, clock)

    assert looked(a_watch(clock, tmp_path), clock).state is Health.FAILING


def test_a_file_that_cannot_be_written_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Verdicts go on."""
    clock = ManualClock()
    (tmp_path / "file").touch()
    watch = a_watch(clock, tmp_path / "file")
    states = [looked(watch, clock, a_reading(remapped_rows_pending=pending)).state for pending in (1, 0, 1)]
    for _ in range(20):
        clock.advance(60.0)
        looked(watch, clock)

    assert states == [Health.DEGRADED] * 3
    assert caplog.text.count("cannot be written") == 1


def test_a_steady_node_writes_once_a_minute(tmp_path: Path) -> None:
    """Not at each cycle."""
    clock = ManualClock()
    watch, path = a_watch(clock, tmp_path), tmp_path / "health.json"
    writes = []
    for _ in range(600):
        looked(watch, clock)
        writes.append(path.stat().st_ino if path.exists() else 0)

    assert len(list(itertools.groupby(writes))) <= 11


# In the verdict and on paper


def test_a_stale_verdict_knows_nothing_of_health() -> None:
    """Health is unknown, with the reason, once the readings are too old to be shown."""
    clock = ManualClock()
    core = AgentCore(node_id="n", clock=clock, rules=ActivityRules(), interval_seconds=1.0, stale_after_seconds=8.0)
    clock.advance(1.0)
    core.ingest_messages(a_cycle(1, clock.monotonic(), a_reading(remapped_rows_failure=1)))
    fresh = core.verdict(clock.monotonic()).gpus[0].health
    clock.advance(60.0)
    stale = core.verdict(clock.monotonic()).gpus[0].health

    assert fresh is not None
    assert stale is not None
    assert (fresh.state, fresh.remedy) == (Health.FAILING, Remedy.REPLACE_HARDWARE)
    assert (stale.state, stale.findings, stale.doubt) == (Health.UNKNOWN, (), "no reading for 1m")


def test_a_verdict_of_an_older_agent_has_no_health() -> None:
    """It is read as ever; one with health survives the way over the wire, and its GPUs keep theirs."""
    activity = {"state": "idle", "since": None, "held_seconds": 0.0}
    old = msgspec.json.decode(msgspec.json.encode({"uuid": "GPU-0", "index": 0, "activity": activity}), type=GpuVerdict)
    finding = xid_finding(48)
    assert finding is not None
    health = GpuHealth(state=Health.FAILING, since=START, findings=(finding,))
    new = replace(old, health=health)

    assert old.health is None
    assert msgspec.json.decode(msgspec.json.encode(new), type=GpuVerdict) == new


def test_the_page_is_the_tables() -> None:
    """docs/health.md is what the code judges by."""
    page = (ROOT / "docs/health.md").read_text(encoding="utf-8")

    assert page == render_health_md(), "run `gpuwatch docs health > docs/health.md`"


def test_the_page_has_every_code() -> None:
    """Whatever code a verdict may carry can be looked up."""
    page = render_health_md()
    codes = {level.finding.code for level in LEVELS} | {finding.code for finding, _ in DOWN.values()}
    codes |= {finding.code for finding in RECOVERY.values()} | {f"xid_{xid}" for xid in XIDS if xid_finding(xid)}

    assert [code for code in sorted(codes) if f"`{code}`" not in page] == []
