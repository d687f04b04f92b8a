"""What an agent knows: probe messages in, one consistent snapshot out. No process, no thread, no JSON.

Rules, all of them:

1. Only a whole cycle is published. What a broken cycle did not read is down, with the cause. Before the first is whole,
   each GPU is shown as soon as it is read, and the verdict is unknown.
2. A GPU once seen stays expected: missing from a later cycle, it is down.
3. Absent, never stale: past `stale_after_seconds` no value is shown, every GPU is down and the verdict is unknown.

One thread feeds it; any number may read, because what they read is replaced whole and never changed.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from enum import StrEnum

from gpuwatch import __version__
from gpuwatch.agent.activity import ActivityRules, Sample, fold
from gpuwatch.agent.activity.pods import PodLook, fold_pods
from gpuwatch.agent.devices.messages import Cycle, Down, End, Event, Message, Reading, Step, Unavailable
from gpuwatch.agent.health.watch import HealthWatch
from gpuwatch.agent.last_busy import as_of_verdict, name_holders, named_pods, remember, with_owners, with_settings
from gpuwatch.agent.published import OutOfOrderError, Published, Snapshot, Trouble, implausible_values, readings_in
from gpuwatch.agent.usage import RecentUtilization, UsageCounters
from gpuwatch.model.activity import Activity, Evidence, LocalDisks, State, WorkOwner
from gpuwatch.model.cloud_notice import CloudNotice
from gpuwatch.model.duration import format_duration
from gpuwatch.model.gpu import DownCause, GpuDown, GpuInfo, GpuProcess, GpuReading
from gpuwatch.model.gpu_identity import fuller, replaced_by
from gpuwatch.model.health import GpuHealth, Health
from gpuwatch.model.verdict import VERDICT_SCHEMA, NodeVerdict
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.metrics.family import Histogram

_CYCLE_BOUNDS = (0.05, 0.25, 1.0)  # seconds


class Interruption(StrEnum):
    """Why a probe was replaced."""

    HANG = "hang"  # a line did not come within its deadline
    EXIT = "exit"  # it ended by itself
    GARBAGE = "garbage"  # it wrote something that is not a message
    RENEW = "renew"  # replaced on purpose: to map a new driver library, or because a GPU that hung answers again


class AgentCore:
    """Folds one node's probe messages; `ingest` costs O(GPUs) per cycle."""

    def __init__(  # noqa: PLR0913  each one is another part of the agent
        self,
        *,
        node_id: str,
        clock: Clock,
        rules: ActivityRules,
        interval_seconds: float,
        stale_after_seconds: float,
        host: Callable[[float], tuple[Evidence, ...]] = lambda _: (),
        health: HealthWatch | None = None,
        service_pids: Callable[[frozenset[GpuProcess]], frozenset[int]] = lambda _: frozenset(),
        owner: Callable[[int], WorkOwner | None] = lambda _: None,
        blind: Callable[[], tuple[str, ...]] = tuple,
        login_free: Callable[[float], float | None] = lambda _: None,
        local_disks: Callable[[float], LocalDisks | None] = lambda _: None,
        cpu_utilization: Callable[[float], float | None] = lambda _: None,
        pods: Callable[[], tuple[Mapping[str, tuple[str, ...]], frozenset[str] | None]] = lambda: ({}, None),
        pod_looks: Callable[[float], Mapping[str, PodLook]] = lambda _: {},
    ) -> None:
        """Begin without readings: the verdict is unknown until a cycle is complete.

        `host` returns the host's evidence at a moment of the monotonic clock, `local_disks`, `cpu_utilization` and
        `login_free` what is known of these, `blind` what this agent cannot see. `service_pids` returns the processes on
        GPUs that are the machine's own, `owner` the owner of a pid, `pods` those of each GPU and others. None may wait.
        """
        self.node_id = node_id
        self.on_publish: Callable[[], None] = lambda: None  # called by the feeding thread; must not wait
        self.cloud_notices: Callable[[], tuple[CloudNotice, ...] | None] = lambda: None  # must not wait
        self._clock = clock
        self._rules = rules
        self._interval_seconds = interval_seconds
        self._stale_after_seconds = stale_after_seconds
        self._host, self._service_pids = host, service_pids
        self._owner, self._blind, self._login_free = owner, blind, login_free
        self._local_disks, self._cpu_utilization = local_disks, cpu_utilization
        self._pods, self._pod_looks = pods, pod_looks
        self._health = health or HealthWatch(clock, interval_seconds=interval_seconds)
        self._cycle: Cycle | None = None
        self._read: dict[str, GpuReading | GpuDown] = {}
        self._expected: dict[str, GpuInfo] = {}
        self._sampled_at: dict[str, float] = {}
        self._used = RecentUtilization()
        self._tallies = UsageCounters(clock.now(), rules.max_gap)
        self._published = Published(at=clock.now(), monotonic_seconds=clock.monotonic())
        self.cycle_durations = Histogram(_CYCLE_BOUNDS)

    def ingest_messages(self, messages: Iterable[Message]) -> None:
        """Take a cycle's messages as `agent.probe.sample` makes them, in process.

        Raises:
            OutOfOrderError: they are not a cycle.

        """
        for message in messages:
            self.ingest(message)

    def ingest(self, message: Message) -> None:
        """Take one message; a cycle is published with its last one.

        Raises:
            OutOfOrderError: it cannot follow the messages before it.

        """
        match message:
            case Step():
                pass  # the supervisor's affair
            case Cycle():
                if self._cycle is not None:
                    raise OutOfOrderError(f"cycle {message.seq} began before cycle {self._cycle.seq} ended")
                self._cycle = message
                self._expect(message.gpus)
                self._health.xids.know(message.gpus)
            case Event():
                self._check_listed(message.seq, message.uuid)
                self._health.xids.from_nvml(message.uuid, message.xid)
            case Reading():
                self._take(message.seq, message.reading)
            case Down():
                down = message.down  # a probe that leaves a GPU alone knows less of it than was known before
                info = self._expected.get(down.info.uuid, down.info)
                self._take(message.seq, replace(down, info=info))
            case End():
                self._end(message)
            case Unavailable():
                trouble = Trouble(cause=message.cause, detail=message.detail, remedy=message.remedy)
                self._give_up(trouble, DownCause.DRIVER, message.monotonic_seconds)

    def interrupt(self, why: Interruption, detail: str) -> None:
        """The probe is gone: what its cycle has read is kept, the rest is down."""
        if why is Interruption.RENEW:
            self.replace_probe(why)
            return
        self._count(why)
        cause = DownCause.HANG if why is Interruption.HANG else DownCause.ERROR
        # What was read before a hang is as old as its cycle.
        at = self._cycle.monotonic_seconds if self._cycle is not None and self._read else self._clock.monotonic()
        self._give_up(Trouble(cause=why.value, detail=detail), cause, at)

    def replace_probe(self, why: Interruption) -> None:
        """Another probe has taken over with a whole cycle, which follows: the broken one counts for nothing."""
        self._count(why)
        self._read, self._cycle = {}, None

    def cannot_open(self, trouble: Trouble, why: Interruption | None = None) -> None:
        """The driver cannot be opened: all GPUs are down. With `why`, the probe is replaced for that."""
        if why is not None:
            self._count(why)
        self._give_up(trouble, DownCause.DRIVER, self._clock.monotonic())

    def note_abandoned(self, count: int) -> None:
        """So many probes could not be ended; for the feeding thread."""
        if count != self._published.statistics.abandoned:
            statistics = replace(self._published.statistics, abandoned=count)
            self._published = replace(self._published, statistics=statistics)

    def _count(self, why: Interruption) -> None:
        statistics = self._published.statistics
        counts = {**statistics.interruptions, why.value: statistics.interruptions.get(why.value, 0) + 1}
        self._published = replace(self._published, statistics=replace(statistics, interruptions=counts))

    def withhold(self, detail: str) -> None:
        """The GPUs were released on purpose: all are down, also those that the broken cycle has read."""
        self._read, self._cycle = {}, None
        trouble = Trouble(cause=DownCause.RELEASED.value, detail=detail, remedy="gpuwatch agent acquire")
        self._give_up(trouble, DownCause.RELEASED, self._clock.monotonic())

    @property
    def expected(self) -> Mapping[str, GpuInfo]:
        """Each GPU that was ever listed, by uuid; for the feeding thread."""
        return self._expected

    @property
    def awaited(self) -> GpuInfo | None:
        """The GPU that the cycle in progress is reading; for the feeding thread."""
        listed = self._cycle.gpus if self._cycle is not None else ()
        return next((info for info in listed if info.uuid not in self._read), None)

    def verdict(self, now_monotonic: float) -> NodeVerdict:
        """The node's verdict at that moment of the monotonic clock."""
        return self._verdict(self._published, now_monotonic)

    def verdict_of(self, *, began_after: float, judged_after: float) -> tuple[NodeVerdict, float] | None:
        """The verdict with the beginning of its cycle; None until a whole cycle began and was judged after these."""
        published = self._published
        began, judged = published.began_seconds, published.judged_seconds
        if began is None or judged is None or not (began >= began_after and judged >= judged_after):
            return None
        return self._verdict(published, self._clock.monotonic()), began

    def snapshot(self, now_monotonic: float) -> Snapshot:
        """What may be shown at that moment of the monotonic clock."""
        published = self._published
        staleness = self._staleness(published, now_monotonic)
        downs = published.downs
        readings = published.readings if published.version else readings_in(self._read.copy().values())
        if staleness is not None:
            down = {entry.info.uuid for entry in downs}
            cause = DownCause.ERROR if published.trouble is None else published.down_cause
            downs += tuple(
                GpuDown(info=entry.info, at=published.at, cause=cause, detail=staleness)
                for entry in published.readings
                if entry.info.uuid not in down
            )
        return Snapshot(
            version=published.version,
            stale=staleness is not None,
            readings=readings if staleness is None else (),
            downs=downs,
            active_seconds=published.active_seconds,
            judge=lambda: self._verdict(published, now_monotonic),
            trouble=published.trouble,
            statistics=published.statistics,
            host=published.host if staleness is None else (),
            xids=self._health.xids.counts,
            kernel_log_up=self._health.xids.kernel_log_up,
        )

    def _take(self, seq: int, entry: GpuReading | GpuDown) -> None:
        """Take one GPU's result in the cycle."""
        self._check_listed(seq, entry.info.uuid)
        self._read[entry.info.uuid] = entry

    def _expect(self, gpus: tuple[GpuInfo, ...]) -> None:
        """Rule 2; but an index is that of the GPU that is listed with it, and a stand-in is nobody once it is gone."""
        before = self._expected
        listed = {info.uuid: fuller(info, before.get(info.uuid)) for info in gpus}
        taken = {info.index for info in gpus}
        self._expected = listed | {
            uuid: replace(info, index=None) if info.index in taken else info
            for uuid, info in before.items()
            if uuid not in listed and not replaced_by(info, gpus)
        }

    def _check_listed(self, seq: int, uuid: str) -> None:
        """Refuse a message about a GPU that the cycle in progress does not list."""
        listed = () if self._cycle is None or self._cycle.seq != seq else self._cycle.gpus
        if all(info.uuid != uuid for info in listed):
            raise OutOfOrderError(f"a message about {uuid} came outside of a cycle that lists it")

    def _end(self, end: End) -> None:
        """Publish the cycle that ended."""
        if self._cycle is None or self._cycle.seq != end.seq:
            raise OutOfOrderError(f"cycle {end.seq} ended before it began")
        listed = {info.uuid for info in self._cycle.gpus}
        words = {uuid: "the driver no longer lists it" for uuid in self._expected if uuid not in listed}
        self._publish(end.monotonic_seconds, DownCause.MISSING, words, "the probe did not report it", end=end)

    def _give_up(self, trouble: Trouble, cause: DownCause, monotonic_seconds: float) -> None:
        """Publish what a broken cycle has read, perhaps nothing. It broke at the first GPU that was not read."""
        first = self.awaited
        words = {} if first is None else {first.uuid: trouble.detail}
        rest = trouble.detail if first is None else f"not reached: {trouble.detail}"
        self._publish(monotonic_seconds, cause, words, rest, trouble=trouble)

    def _publish(
        self,
        monotonic_seconds: float,
        cause: DownCause,
        words: Mapping[str, str],
        otherwise: str,
        *,
        end: End | None = None,
        trouble: Trouble | None = None,
    ) -> None:
        """Replace what readers see. A cycle no later than the last one changes nothing."""
        began = None if end is None or self._cycle is None else self._cycle.monotonic_seconds
        if end is not None and not end.whole:  # what is not of this cycle is of the last whole one, or newer
            began = self._published.began_seconds
        read, self._read, self._cycle = self._read, {}, None
        now = self._clock.monotonic()
        # A cycle cannot end in the future, and not before the cycle published last.
        ended = min(max(monotonic_seconds, self._published.monotonic_seconds), now)
        at = self._clock.now() - timedelta(seconds=now - ended)
        readings = readings_in(read.values())
        downs = tuple(entry for entry in read.values() if isinstance(entry, GpuDown)) + tuple(
            GpuDown(info=info, at=at, cause=cause, detail=words.get(uuid, otherwise))
            for uuid, info in self._expected.items()
            if uuid not in read
        )
        before = self._published
        doubt = trouble.detail if trouble is not None and not readings else None
        judged = self._clock.monotonic()
        host = self._host(judged)
        holders = frozenset(process for reading in readings for process in reading.processes or ())
        sample = Sample(
            at=at,
            monotonic_seconds=ended,
            readings=readings,
            downs=downs,
            doubt=doubt,
            host=host,
            service_pids=self._service_pids(holders) if holders else frozenset(),
        )
        memory = fold(before.memory, sample, self._rules)
        if memory is before.memory:
            self._published = replace(before, trouble=trouble or before.trouble)
            return
        statistics = replace(before.statistics, implausible=implausible_values(before.statistics, readings))
        if end is not None:
            self.cycle_durations.observe(end.duration_seconds)
            statistics = replace(
                statistics,
                cycles=statistics.cycles + 1,
                cycle_duration_seconds=end.duration_seconds,
                complete_at=at,
                complete_monotonic_seconds=ended,
            )
        health = self._health.judge_cycle(at, ended, readings, downs)
        self._published = Published(
            version=before.version + 1,
            began_seconds=began,
            judged_seconds=judged,
            at=at,
            monotonic_seconds=ended,
            readings=readings,
            downs=downs,
            active_seconds=self._integrate(before, readings, ended),
            memory=memory,
            pods=fold_pods(before.pods, before.memory, sample, self._pod_looks(judged), self._rules),
            trouble=trouble,
            down_cause=cause,
            statistics=statistics,
            host=host,
            health=health,
            use=self._used.add_cycle(ended, readings),
            tally=self._tallies.add_cycle(ended, memory, readings, health),
            last_busy=remember(before.last_busy, before.memory, memory, self._rules),
            local_disks=self._local_disks(judged),
            cpu_utilization_ratio=self._cpu_utilization(judged),
        )
        self.on_publish()

    def _integrate(self, before: Published, readings: tuple[GpuReading, ...], ended: float) -> dict[str, float]:
        """Each GPU's utilization summed over the time since its last good sample; a gap adds nothing."""
        active = dict(before.active_seconds)
        sampled, self._sampled_at = self._sampled_at, {}
        for reading in readings:
            if reading.utilization_ratio is None:
                continue
            uuid = reading.info.uuid
            self._sampled_at[uuid] = ended
            covered = elapsed if (elapsed := ended - sampled.get(uuid, ended)) <= self._rules.max_gap else 0.0
            active[uuid] = active.get(uuid, 0.0) + reading.utilization_ratio * covered
        return active

    def _staleness(self, published: Published, now_monotonic: float) -> str | None:
        """Why the last cycle may no longer be shown; None while it may."""
        age = now_monotonic - published.monotonic_seconds
        if age <= self._stale_after_seconds:
            return None
        because = "" if published.trouble is None else f": {published.trouble.detail}"
        return f"no reading for {format_duration(age)}{because}"

    def _verdict(self, published: Published, now_monotonic: float) -> NodeVerdict:
        """The folded verdict, or unknown where nothing was read yet or not for too long."""
        activity = with_owners(with_settings(published.memory.activity), self._owner)
        health, use, (pods, others) = published.health, published.use, self._pods()
        gpus = tuple(
            replace(name_holders(gpu), health=health.get(gpu.uuid), use=use.get(gpu.uuid), pods=pods.get(gpu.uuid, ()))
            for gpu in published.memory.gpus
        )
        doubt = self._staleness(published, now_monotonic)
        doubt = "no cycle is complete yet" if doubt is None and published.version == 0 else doubt
        if doubt is not None:
            activity = Activity(state=State.UNKNOWN, since=published.at, held_seconds=0.0, doubt=doubt)
            unknown = GpuHealth(state=Health.UNKNOWN, since=published.at, doubt=doubt)
            gpus = tuple(replace(gpu, activity=activity, health=unknown, use=None) for gpu in gpus)
        current = published.monotonic_seconds if doubt is None else None
        its, rest = named_pods(published.pods.verdicts, None if doubt is None else activity, others)
        return NodeVerdict(
            schema=VERDICT_SCHEMA,
            node_id=self.node_id,
            agent_version=__version__,
            at=published.at,
            age_seconds=max(0.0, now_monotonic - published.monotonic_seconds),
            interval_seconds=self._interval_seconds,
            activity=activity,
            gpus=gpus,
            tally=published.tally,
            last_busy=as_of_verdict(published.last_busy, now_monotonic, current),
            blind=self._blind(),
            local_disks=published.local_disks if doubt is None else None,
            cpu_utilization_ratio=published.cpu_utilization_ratio if doubt is None else None,
            driver_version=published.driver_version,
            cloud_notices=self.cloud_notices(),
            pods=its,
            other_pods=rest,
            login_free_seconds=self._login_free(now_monotonic) if doubt is None else None,
            without_lost=published.memory.without_lost if doubt is None else None,
        )
