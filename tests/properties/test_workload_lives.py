"""Generated lives of workloads that hold GPUs: pods work and rest, people protect and snooze, answers do not come.

Whatever happens in whatever order, also between a decision and the last question, and wherever the power is cut: no
workload is ended of which one pod is busy, unknown, young, protected or without the consent of its people; none before
the end of its grace; none without an earlier record.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gpuwatch.clouds import AuthFailedError, CloudError, CloudUnavailableError, ThrottledError
from gpuwatch.controller.context import Memory
from gpuwatch.guard import Limits
from gpuwatch.guard.settings import WorkloadLimits
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import NodeReport
from gpuwatch.model.kubernetes import Pod, PodPhase, Workload, WorkloadNow, workload_id
from gpuwatch.policies.kubernetes.idle_pods_settings import IdlePodRules
from gpuwatch.policies.kubernetes.settings import KubernetesRules
from tests.support.builders.clusters import ClusterDesk, a_kubernetes_node
from tests.support.builders.fleet import LIVES, NOW, RULES, a_node, lived

WAIT, LONG, GRACE = 900.0, 3600.0, 600.0
PODS = IdlePodRules(action="as-annotated", timeout=WAIT, unused_timeout=LONG, grace_period=GRACE, rest=1800.0)
POOL = replace(RULES, idle=replace(RULES.idle, action="report"), kubernetes=KubernetesRules(pods=PODS))
LIMITS = Limits(workloads=WorkloadLimits(max_pods_per_round=2, max_pods_per_hour=4), mass_idleness_nodes=99)
# Kind, what its people let be done, and its machines.
KINDS = {
    "serve": ("Deployment", "scale-to-zero", (1, 2)),
    "alice": ("Notebook", "stop", (3,)),
    "train": ("Job", "delete", (4,)),
}
NAMES = st.sampled_from(sorted(KINDS))
STATES = st.sampled_from([State.BUSY, State.IDLE, State.IDLE, State.PARKED, State.UNKNOWN])
CALLS = ["workload", "announce", "release"]
ERRORS = [CloudUnavailableError("no answer"), ThrottledError("429"), AuthFailedError("forbidden")]


class PowerCutError(BaseException):
    """The controller ends at once, wherever it is."""


class WorkloadLife(RuleBasedStateMachine):
    """Three workloads on four machines, and the rounds of a controller over them."""

    @initialize()
    def begin(self) -> None:
        """All idle for a day."""
        self.desk = ClusterDesk(rules=POOL, limits=LIMITS)
        self.cluster, self.fleet = self.desk.cluster, self.desk.fleet
        self.its = self.cluster.workloads
        self.its.watch, self.its.fault, self.its.lose = self.watched, self.before, self.after
        self.owners: dict[str, Workload] = {}
        self.ended: list[tuple[datetime, int]] = []
        self.keys: list[str] = []
        self.deaf: set[str] = set()
        self.befalls: Callable[[], None] | None = None
        self.error: tuple[str, CloudError | None, bool] = ("", None, False)
        self.cut: tuple[str, bool] = ("", False)
        self.number = 0
        self.fleet.answer = lambda node: (
            NodeReport(failure="silence") if node.id in self.deaf else self.says_now(node.id)
        )
        for name, (kind, how, hosts) in KINDS.items():
            self.owners[name] = Workload(
                namespace="team-a", kind=kind, name=name, uid=f"uid-{name}", idle_action=how, owner="ann"
            )
            for host in hosts:
                self.fleet.put(a_node(f"i-{host}", held=86400.0))
                self.cluster.put(a_kubernetes_node(f"node-{host}"))
            self.start(name, NOW - timedelta(days=1))

    def says_now(self, node_id: str) -> NodeReport:
        """What an agent that answers says."""
        verdict = self.fleet.nodes_[node_id].signal.verdict
        assert verdict is not None
        return NodeReport(verdict=replace(verdict, at=self.desk.clock.now(), age_seconds=0.5))

    def start(self, name: str, at: datetime, phase: PodPhase = PodPhase.RUNNING) -> None:
        """Its pods run from then on, and have done nothing."""
        hosts = KINDS[name][2]
        for host in hosts:
            self.number += 1
            pod = Pod(
                namespace="team-a",
                name=f"{name}-{self.number}",
                uid=f"uid-{name}-{self.number}",
                phase=phase,
                workload=self.owners[name],
                gpus=1.0,
                created_at=at,
            )
            self.cluster.bind(f"node-{host}", pod)
        known = self.its.shown.get(self.owners[name].uid)
        if known is not None:
            self.its.put(replace(known, wants=len(hosts)))

    def change_pods(self, name: str, change: Callable[[Pod], Pod | None]) -> None:
        """Of one workload: each is otherwise, or gone."""
        for node in list(self.cluster.nodes.values()):
            pods = [change(pod) if pod.workload.name == name else pod for pod in node.pods]
            self.cluster.put(replace(node, pods=tuple(pod for pod in pods if pod is not None)))

    def before(self, call: str, _about: str) -> CloudError | None:
        """What happens before a call: things change, the power is cut, or it does not get through."""
        assert call != "release" or self.befalls is None, "P15: nobody was asked before the end"
        if call == "workload" and self.befalls is not None:
            happens, self.befalls = self.befalls, None
            happens()
        return self.struck(call, late=False)

    def after(self, call: str, _about: str) -> CloudError | None:
        """The answer is lost, or nobody is left to read it."""
        return self.struck(call, late=True)

    def struck(self, call: str, *, late: bool) -> CloudError | None:
        """By what a rule has set."""
        if self.cut == (call, late):
            self.cut = ("", False)
            raise PowerCutError
        where, error, is_late = self.error
        return error if where == call and late is is_late else None

    def watched(self, call: str, now: WorkloadNow) -> None:
        """Look over the shoulder of every change."""
        moment, name = self.desk.clock.now(), now.target.name
        view, owner = self.desk.ledger.view(moment), self.owners[name]
        assert view.open_intents, f"P12: {call} without an earlier record"
        if call == "announce":
            return
        assert self.desk.enforce, "ended while only observing"
        assert not view.pauses, "ended while it was paused"
        assert self.cluster.trouble is None, "P1: ended while the cluster was not known"
        pods = [pod for pod in now.pods if pod.ends_at is None]
        states = []
        for pod in pods:
            node = self.fleet.nodes_[(pod.node or "").replace("node-", "i-")]
            states.append(node.activity.state)
            assert node.id not in self.deaf, "P1: ended while an agent was silent"
            assert node.enrolled, "P3: ended on a machine that is not enrolled"
            assert pod.protected is None, "P3: ended with a protected pod"
            assert pod.phase is PodPhase.RUNNING, "P1: ended with a pod that does not run"
            wait = WAIT if states[-1] is State.IDLE else LONG
            assert states[-1] in {State.IDLE, State.PARKED}, f"P2: ended while {pod} is {states[-1]}"
            assert node.activity.held_seconds >= wait
            assert (moment - (pod.created_at or moment)).total_seconds() >= wait, "P10: ended with a young pod"
        assert owner.uid == now.target.uid
        assert owner.protected is None, "P3: ended what is protected"
        assert owner.snoozed_until is None or owner.snoozed_until <= moment, "P3: ended what is snoozed"
        notice = view.notice(workload_id("prod", owner))
        assert notice is not None, "ended without a notice"
        assert notice.promise is not None
        assert notice.promise.action == owner.idle_action, "P14: ended otherwise than was promised"
        assert (moment - notice.at).total_seconds() >= GRACE, "P14: ended before the grace was over"
        hour = moment - timedelta(hours=1)
        self.ended.append((moment, len(pods)))
        assert sum(count for at, count in self.ended if at > hour) <= 4, "P4: more pods than an hour allows"
        in_round = sum(count for at, count in self.ended if at == moment)
        assert in_round <= 2, "P4: more pods than a round allows"

    def happens(self, change: Callable[[], None], *, late: bool) -> None:
        """Now, or between the next decision and the last question."""
        if late:
            self.befalls = change
        else:
            change()

    @rule(count=st.sampled_from([1, 5, 20]))
    def rounds(self, count: int) -> None:
        """Time passes; a power cut ends a round, and all that its process knew."""
        for _ in range(count):
            try:
                self.desk.round()
            except PowerCutError:
                self.desk.memory = Memory()
                self.desk.rest(60.0)

    @rule()
    def grace_passes(self) -> None:
        """Long enough for a notice, and for what follows."""
        self.rounds(12)

    @rule()
    def everybody_answers(self) -> None:
        """Whatever was silent; so that something is ended in most lives."""
        self.deaf.clear()
        self.cluster.trouble, self.error = None, ("", None, False)

    @rule(name=NAMES, state=STATES, late=st.booleans())
    def does(self, name: str, state: State, *, late: bool) -> None:
        """One pod begins to do something else, also after the decision."""
        self.happens(lambda: self.fleet.show(f"i-{KINDS[name][2][-1]}", state), late=late)

    @rule(name=NAMES, hours=st.sampled_from([-1, 1]), late=st.booleans())
    def snoozes(self, name: str, hours: int, *, late: bool) -> None:
        """Its people write a time on it."""
        self.happens(lambda: self.writes(name, snoozed_until=self.desk.clock.now() + timedelta(hours=hours)), late=late)

    @rule(name=NAMES, value=st.sampled_from([None, None, "an annotation"]), late=st.booleans())
    def protects(self, name: str, value: str | None, *, late: bool) -> None:
        """Its people protect it, or do so no more."""
        self.happens(lambda: self.writes(name, protected=value), late=late)

    @rule(
        name=NAMES, value=st.sampled_from([None, "notify", "delete", "", "stop", "scale-to-zero"]), late=st.booleans()
    )
    def says(self, name: str, value: str | None, *, late: bool) -> None:
        """Its people change their mind; "" is what its kind can do."""
        action = KINDS[name][1] if value == "" else value
        self.happens(lambda: self.writes(name, idle_action=action), late=late)

    def writes(self, name: str, **annotations: object) -> None:
        """On the object, and so on each of its pods."""
        owner = self.owners[name] = replace(self.owners[name], **annotations)  # type: ignore[arg-type]  # its fields
        self.change_pods(name, lambda pod: replace(pod, workload=owner, protected=owner.protected))

    @rule(name=NAMES, phase=st.sampled_from([PodPhase.RUNNING, PodPhase.RUNNING, PodPhase.PENDING]), late=st.booleans())
    def restarts(self, name: str, phase: PodPhase, *, late: bool) -> None:
        """Its pods are made anew, or come back after their end."""

        def change() -> None:
            self.change_pods(name, lambda _: None)
            self.start(name, self.desk.clock.now(), phase)

        self.happens(change, late=late)

    @rule(name=NAMES)
    def made_again(self, name: str) -> None:
        """It is deleted, and another one has its name."""
        self.number += 1
        self.change_pods(name, lambda _: None)
        self.its.shown.pop(self.owners[name].uid, None)
        self.owners[name] = replace(self.owners[name], uid=f"uid-{name}-again-{self.number}")
        self.start(name, self.desk.clock.now())

    @rule(host=st.sampled_from([1, 2, 3, 4]), late=st.booleans())
    def falls_silent(self, host: int, *, late: bool) -> None:
        """An agent answers no more, or again."""
        self.happens(lambda: self.deaf.symmetric_difference_update({f"i-{host}"}), late=late)

    @rule(host=st.sampled_from([1, 2, 3, 4]), enrolled=st.sampled_from([True, True, False]))
    def a_tag(self, host: int, *, enrolled: bool) -> None:
        """Its owner enrols a machine or takes it back."""
        self.fleet.put(replace(self.fleet.nodes_[f"i-{host}"], enrolled=enrolled))

    @rule(trouble=st.sampled_from([None, None, "No answer."]))
    def cluster_falls_silent(self, trouble: str | None) -> None:
        """The API server does, or answers again."""
        self.cluster.trouble = trouble

    @rule(call=st.sampled_from(["", *CALLS]), error=st.sampled_from(ERRORS), late=st.booleans())
    def fails(self, call: str, error: CloudError, *, late: bool) -> None:
        """From now on a call does not get through, or its answer."""
        self.error = (call, error, late)

    @rule(call=st.sampled_from(CALLS), late=st.booleans())
    def power_is_cut(self, call: str, *, late: bool) -> None:
        """At the next such call: before it has its effect, or before its answer is written down."""
        self.cut = (call, late)

    @rule(seconds=st.sampled_from([120.0, 900.0]))
    def a_pause(self, seconds: float) -> None:
        """Everything, for a time."""
        now = self.desk.clock.now()
        self.desk.ledger.pause(None, "ann", "", now, now + timedelta(seconds=seconds))

    @rule(enforce=st.sampled_from([True, True, False]))
    def the_mode(self, *, enforce: bool) -> None:
        """Observe or enforce."""
        self.desk.enforce = enforce

    @invariant()
    def each_key_was_used_for_one_end(self) -> None:
        """P6 and P12: asking again is asking for the same."""
        if hasattr(self, "desk"):
            keys = [key for call, _, key in self.its.calls if call == "release"]
            assert self.desk.ledger.identity.foreign(keys) == ()

    def teardown(self) -> None:
        """When all is well and everybody works again, no notice and no open step is left."""
        if not hasattr(self, "desk"):
            return
        self.everybody_answers()
        self.befalls, self.cut, self.desk.enforce = None, ("", False), True
        for node in list(self.fleet.nodes_.values()):
            self.fleet.show(node.id, State.BUSY)
        for name in KINDS:
            self.change_pods(name, lambda pod: replace(pod, phase=PodPhase.RUNNING))
        self.rounds(45)
        view = self.desk.ledger.view(self.desk.clock.now())
        assert (view.notices, view.open_intents) == ((), ())
        lived(self.desk)


TestWorkloadLife = WorkloadLife.TestCase
TestWorkloadLife.settings = settings(max_examples=max(6, LIVES // 3), stateful_step_count=30, deadline=None)


def test_idle_workloads_are_ended_after_their_wait_and_their_grace() -> None:
    """The other half of the promise; within the limits of a round."""
    life = WorkloadLife()
    life.begin()
    life.rounds(30)

    assert {target for call, target, _ in life.its.calls if call == "release"} == {
        "Deployment team-a/serve",
        "Job team-a/train",
        "Notebook team-a/alice",
    }
