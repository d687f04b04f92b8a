"""Pages on which every family of the catalogues is: each feature is on, and something is wrong with most of them."""

import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from fractions import Fraction
from zoneinfo import ZoneInfo

from gpuwatch.agent.activity import ActivityRules
from gpuwatch.agent.exporter.exporter import Exporter
from gpuwatch.agent.metadata.watcher import InstanceStatus, Trouble
from gpuwatch.agent.state import Interruption
from gpuwatch.cli.controller import one_round
from gpuwatch.controller.context import Round
from gpuwatch.controller.metrics import ControllerMetrics
from gpuwatch.controller.metrics import interruptions as of_interruptions
from gpuwatch.controller.metrics import kubernetes as of_kubernetes
from gpuwatch.controller.observe.settings import ObserveSettings
from gpuwatch.controller.timings import CONFIRMATION, VERDICT, time_calls
from gpuwatch.controller.web.serve import Discovery, Observers
from gpuwatch.guard import Rulebook
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Done, Intent, Reason, Status, Verb
from gpuwatch.model.fleet import NodeState
from gpuwatch.model.life import Life
from gpuwatch.model.measurement import BatchPast
from gpuwatch.model.sight import Silence
from gpuwatch.model.slurm import SlurmJob, SlurmNode, SlurmView
from gpuwatch.money.accounting.metering import Metering
from gpuwatch.money.accounting.store import Meter
from gpuwatch.money.report.saved import SavedByPool
from gpuwatch.policies.replacement import CLOUD, FAILING_SINCE, KIND
from gpuwatch.policies.spot.batch import BatchRules
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.dashboard_agent import Patient
from tests.support.builders.dashboard_story import two_budgets, with_a_wish
from tests.support.builders.desk import an_intent
from tests.support.builders.fleet import NOW, Desk, a_node
from tests.support.builders.kubernetes_views import Shown, shown_cluster, shown_node, shown_pod
from tests.support.builders.money import a_comparison
from tests.support.builders.past_steps import a_done
from tests.support.builders.served_page import populate
from tests.support.builders.workload_rounds import with_a_workload

_CYCLES = 125  # the patient's last GPU is lost by then
_ROUNDS = 16  # the grace period is over, and machines have been stopped

_LOST = {"offer": "spot-a", "kind": "spot_interruption", "lost_gpu_seconds": "600"}
# A notice of a cloud, and the loss.
INTERRUPTED = [
    Intent(
        key=code,
        verb=verb,
        node_id="i-gone",
        pool="training",
        at=NOW,
        reason=Reason(code=code, sentence="Its cloud takes it."),
        arguments=_LOST,
    )
    for verb, code in ((Verb.INTERRUPTION, "interruption"), (Verb.LOST, "lost"))
]


def agent_pages(accept: str) -> list[str]:
    """A busy machine with one GPU of each misfortune; then its probe hangs, and the cloud does not answer."""
    clock = ManualClock()
    patient = Patient("i-1", clock, ActivityRules(), 1.0)
    for _ in range(_CYCLES):
        clock.advance(1.0)
        patient.sample()
    pages = [patient.exporter.page(accept).body.decode()]
    clock.advance(1.0)
    patient.core.interrupt(Interruption.HANG, "GPU 0 was not read within 5s")
    trouble = Trouble(cause="hop_limit", detail="no answer", remedy="raise it")
    silent = InstanceStatus(provider="aws", up=False, trouble=trouble)
    blind = Exporter(patient.core, clock, node_id="i-1", top_processes=2, instance=lambda: silent)
    return [*pages, blind.page(accept).body.decode()]


def controller_pages(accept: str) -> list[str]:
    """A fleet in every state after some rounds, with budgets, notices, a pause, and an intent that is open."""
    desk = Desk()
    populate(desk, 60)
    desk.fleet.put(replace(a_node("i-protected", State.IDLE), protected="a test"))
    desk.fleet.put(replace(a_node("i-billed"), state=NodeState.STOPPED, still_billed="it is prepaid"))
    desk.fleet.put(replace(a_node("i-0cafe", instance_type="p4d.24xlarge"), address="127.0.0.9"))
    desk.fleet.put(a_node("i-other", instance_type="p4d.24xlarge", enrolled=False))
    parts = replace(
        desk.parts, cluster=a_cluster(), meter=Meter(desk.ledger, Metering(zone=ZoneInfo("UTC"))), budgets=two_budgets
    )
    parts = replace(parts, cloud=time_calls(parts.cloud, "simulated", parts.clock, parts.timings.cloud_calls))
    metrics = ControllerMetrics(
        "enforce",
        "ml",
        desk.clock,
        lambda: [("controller.tls_certificate", desk.clock.now() + timedelta(days=90))],
        timings=parts.timings,
        rules=with_a_deadline(parts.rules),
        own_process=True,
    )
    metrics.watch_logins(lambda: {"wrong": 1})
    metrics.message("mail", "notice", "reached")
    metrics.compare(a_comparison())
    metrics.tell_savings(SavedByPool(usd_per_hour={"default": Fraction(2)}, month_usd={"default": Fraction(9)}))
    parts.timings.agent_answers.observe(0.02, (VERDICT,))
    parts.timings.agent_answers.observe(0.8, (CONFIRMATION,))
    desk.ledger.pause("training", "ana", "a test", desk.clock.now() + timedelta(hours=1))
    seen = Observers(discovery=Discovery(signals=ObserveSettings()), metrics=metrics)
    pages = []
    for number in range(_ROUNDS):
        if number == _ROUNDS - 1:
            an_intent(desk.ledger, node_id="i-protected")
        done = one_round(parts, seen)
        assert done is not None
        told = with_a_slurm_job(with_a_replacement(with_a_silent_region(with_a_wish(with_an_interruption(done)))))
        told = with_a_launch(with_progress(with_gpus_wanted(told)))
        metrics._state.last = with_a_workload(told)
        of_interruptions.count(metrics._state, INTERRUPTED)
        of_kubernetes.count(metrics._state, metrics._state.last)
        pages.append(metrics.page(accept).body.decode())
        desk.rest(60.0)
    return pages


def with_gpus_wanted(done: Round) -> Round:
    """One of its pools counts GPUs."""
    first, *others = done.decisions
    return replace(done, decisions=(first, replace(first, pool="inference", unit="gpus", target=24), *others))


def with_a_launch(done: Round) -> Round:
    """A machine was launched for one of its pools."""
    launched = Life(key="gpuwatch-launch-1", pool="training", at=NOW, node_id="i-launched")
    return replace(done, observation=replace(done.observation, lives=(launched,)))


def with_a_silent_region(done: Round) -> Round:
    """One region gave no answer."""
    silent = (Silence(where="ap-beijing", cloud="bj", reason="no answer", known=True),)
    return replace(done, observation=replace(done.observation, fleet=replace(done.observation.fleet, silent=silent)))


def with_an_interruption(done: Round) -> Round:
    """One notice of a cloud is on record."""
    first, seen = INTERRUPTED[0], done.observation
    known = Done(
        key=first.key,
        verb=first.verb,
        node_id=first.node_id,
        pool=first.pool,
        status=Status.SETTLED,
        at=seen.now,
        arguments=first.arguments,
    )
    ledger = replace(seen.ledger, recent=(*seen.ledger.recent, known))
    return replace(done, observation=replace(seen, ledger=ledger))


def with_a_replacement(done: Round) -> Round:
    """A sick machine was terminated, and another came."""
    now, ledger = done.observation.now, done.observation.ledger
    since = {FAILING_SINCE: (now - timedelta(hours=3)).isoformat(), KIND: "p4d.24xlarge", CLOUD: "aws"}
    recent = (
        replace(a_done("i-sick"), verb=Verb.TERMINATE, at=now - timedelta(hours=1), arguments=since),
        replace(a_done("new:default:1"), verb=Verb.LAUNCH, at=now),
    )
    return replace(
        done, observation=replace(done.observation, ledger=replace(ledger, recent=(*ledger.recent, *recent)))
    )


def with_a_deadline(rules: Rulebook) -> Rulebook:
    """The work of one pool has a deadline."""
    since, by = NOW.isoformat(), (NOW + timedelta(hours=20)).isoformat()
    pool = replace(rules.pool("training"), batch=BatchRules(work=36_000.0, since=since, by=by))
    return replace(rules, pools={**rules.pools, "training": pool})


def with_progress(done: Round) -> Round:
    """A part of that work is done."""
    batches = {"training": BatchPast(done_seconds=7200.0)}
    return replace(done, observation=replace(done.observation, batches=batches))


def with_a_slurm_job(done: Round) -> Round:
    """One machine is a drained node of Slurm, with a job that holds a GPU in vain."""
    seen = done.observation
    job = SlurmJob(id="7", user="ann", gpus=1, indexes=(0,), started_at=seen.now - timedelta(hours=3))
    known = SlurmNode(name="gpu-1", states=("MIXED", "DRAIN"), reason="fan", jobs=(job,), gpus=1)
    nodes = tuple(replace(node, slurm=known) if node.id == "i-0cafe" else node for node in seen.fleet.nodes)
    view = SlurmView(pools=("default",), sees_jobs=True)
    return replace(done, observation=replace(seen, fleet=replace(seen.fleet, nodes=nodes, slurm=view)))


def a_cluster() -> Shown:
    """With a pod that does nothing with its GPU, and one that waits for GPUs."""
    node = shown_node("gpu-1", "i-0cafe", shown_pod("rests", "gpu-1", gpus=1.0))
    return Shown(shown_cluster(node, pending=(shown_pod("waits", gpus=8.0),)))


def families_of(pages: Iterable[str]) -> set[str]:
    """The names that pages in the text format declare."""
    return {name for page in pages for name in re.findall(r"^# TYPE (\S+)", page, re.MULTILINE)}
