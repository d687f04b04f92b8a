"""Cases of the guard's rules on Slurm nodes: a drain, or the end of one, with one thing spoiled."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gpuwatch.guard import Case
from gpuwatch.model.decision import Verb
from gpuwatch.model.fleet import NodeReport
from gpuwatch.model.health import Health
from gpuwatch.model.orders import Pause
from gpuwatch.model.slurm import LEAVES, SlurmNode, SlurmView, reason_of
from gpuwatch.model.verbs import THEN
from gpuwatch.policies.health_settings import HealthRules
from gpuwatch.policies.slurm_sick import CAUSE, NODE, UNDOES
from tests.support.builders.fleet import NOW
from tests.support.builders.guard_cases import a_launch, a_start, asleep, with_ledger, with_node
from tests.support.builders.past_steps import a_done
from tests.support.builders.slurm import KEY, a_report

GPU_1 = SlurmNode(name="gpu-1", host="gpu-1", states=("MIXED",))
_OURS = replace(GPU_1, states=("IDLE", "DRAIN"), reason=reason_of("Its GPU 0 is failing.", KEY))


def draining(case: Case, ratio: float = 0.3, **known: object) -> Case:
    """The case as the drain of a working node with a failing GPU."""
    node = replace(GPU_1, **known)  # type: ignore[arg-type]
    case = with_node(case, slurm=node, signal=a_report(Health.FAILING))
    rules = replace(case.pool_rules, health=HealthRules(action="drain", max_cordoned_ratio=ratio))
    step = replace(case.step, verb=Verb.SLURM_DRAIN, arguments={NODE: "gpu-1"})
    return replace(case, step=step, pool_rules=rules)


def resuming(case: Case, health: Health | None = Health.HEALTHY, **known: object) -> Case:
    """The case as the end of gpuwatch's own drain of a node that is well."""
    case = with_node(case, slurm=replace(_OURS, **known), signal=a_report(health))  # type: ignore[arg-type]
    return replace(case, step=replace(case.step, verb=Verb.SLURM_RESUME, arguments={NODE: "gpu-1", UNDOES: KEY}))


def _among(case: Case, *others: SlurmNode) -> Case:
    """The case beside others of its pool."""
    first, *rest = case.observation.fleet.nodes
    more = tuple(replace(node, slurm=known) for node, known in zip(rest, others, strict=False))
    fleet = replace(case.observation.fleet, nodes=(first, *more))
    return replace(case, observation=replace(case.observation, fleet=fleet))


def _paused(case: Case) -> Case:
    return with_ledger(case, pauses=(Pause(pool=None, at=NOW, who="ann", reason="demo"),))


def _just_resumed(case: Case) -> Case:
    return with_ledger(case, recent=(replace(a_done(), verb=Verb.SLURM_DRAIN, node_id="i-1"),))


def _of_another(case: Case) -> Case:
    return replace(case, step=replace(case.step, arguments={NODE: "gpu-7"}))


def removing(
    case: Case,
    *,
    power: str | None = None,
    doubt: str | None = None,
    queue_doubt: str | None = None,
    **known: object,
) -> Case:
    """The case of a stop of an idle node, in a pool of a cluster that shows this."""
    if case.node is not None:
        case = with_node(case, slurm=replace(GPU_1, **{"states": ("IDLE",), **known}))  # type: ignore[arg-type]
    view = SlurmView(pools=("default",), power=power, doubt=doubt, queue_doubt=queue_doubt)
    return replace(case, observation=replace(case.observation, fleet=replace(case.observation.fleet, slurm=view)))


def leaving(case: Case, **known: object) -> Case:
    """The case of the drain that comes before that stop."""
    case = removing(case, **known)  # type: ignore[arg-type]
    arguments = {NODE: "gpu-1", CAUSE: LEAVES, THEN: case.step.verb.value}
    return replace(case, step=replace(case.step, verb=Verb.CORDON, arguments=arguments))


def giving_back(case: Case, undoes: str = KEY, **known: object) -> Case:
    """The case of the end of that drain."""
    drained: dict[str, Any] = {"states": ("IDLE", "DRAIN"), "reason": reason_of(LEAVES, KEY), **known}
    case = with_node(case, slurm=replace(GPU_1, **drained))
    return replace(case, step=replace(case.step, verb=Verb.UNCORDON, arguments={NODE: "gpu-1", UNDOES: undoes}))


def _elsewhere(case: Case) -> Case:
    """Slurm powers the nodes of another pool."""
    view = SlurmView(pools=("other",), power=_SUSPENDS)
    return replace(case, observation=replace(case.observation, fleet=replace(case.observation.fleet, slurm=view)))


_OTHER = replace(GPU_1, name="gpu-2")
_SUSPENDS = "SuspendProgram=/opt/suspend"
_OURS_IDLE: dict[str, Any] = {"states": ("IDLE", "DRAIN"), "reason": _OURS.reason}

SPOILED_SLURM: list[tuple[str, str, Callable[[Case], Case], str]] = [
    ("no GPU is failing", "slurm_drain", lambda c: with_node(draining(c), signal=a_report()), "health.action"),
    ("only told", "slurm_drain", lambda c: replace(draining(c), pool_rules=c.pool_rules), "health.action"),
    ("no node of Slurm", "slurm_drain", lambda c: with_node(draining(c), slurm=None), "no Slurm cluster"),
    ("in doubt", "slurm_drain", lambda c: draining(c, doubt="Slurm gives no answer."), "no answer"),
    ("somebody's drain", "slurm_drain", lambda c: draining(c, states=("IDLE", "DRAIN"), reason="fan"), "'fan'"),
    ("down", "slurm_drain", lambda c: draining(c, states=("DOWN",)), "DOWN"),
    ("powering up", "slurm_drain", lambda c: draining(c, states=("IDLE", "CLOUD", "POWERING_UP")), "POWERING_UP"),
    ("somebody resumed it", "slurm_drain", lambda c: _just_resumed(draining(c)), "Somebody has resumed it"),
    ("another name by now", "slurm_drain", lambda c: _of_another(draining(c)), "another node"),
    ("too many drained", "slurm_drain", lambda c: draining(c, 0.0), "max_cordoned_ratio"),
    (
        "a share drained by others",
        "slurm_drain",
        lambda c: _among(draining(c), replace(_OTHER, states=("IDLE", "DRAIN"))),
        "max_cordoned_ratio",
    ),
    (
        "others that nobody knows",
        "slurm_drain",
        lambda c: _among(draining(c), SlurmNode(doubt="It is not among them.")),
        "max_cordoned_ratio",
    ),
    ("powered by Slurm", "slurm_power", lambda c: removing(c, power=_SUSPENDS), _SUSPENDS),
    ("power that nobody knows", "slurm_power", lambda c: removing(c, doubt="Slurm is silent."), "silent"),
    ("a start beside Slurm", "slurm_power", lambda c: removing(a_start(c), power=_SUSPENDS), _SUSPENDS),
    ("a launch beside Slurm", "slurm_power", lambda c: removing(a_launch(c), power=_SUSPENDS), _SUSPENDS),
    ("a node in doubt", "slurm_node", lambda c: with_node(removing(c), slurm=SlurmNode(doubt="Twice.")), "Twice."),
    ("drained by a person", "slurm_node", lambda c: removing(c, states=("IDLE", "DRAIN"), reason="fan"), "'fan'"),
    ("drained without a word", "slurm_node", lambda c: removing(c, states=("IDLE", "DRAIN")), "Somebody has"),
    (
        "drained by another ledger",
        "slurm_node",
        lambda c: with_ledger(removing(c, **_OURS_IDLE), foreign=(KEY,)),
        "Som",
    ),
    ("a job on it", "slurm_node", lambda c: removing(c, states=("MIXED",)), "MIXED"),
    ("a job planned for it", "slurm_node", lambda c: removing(c, states=("IDLE", "PLANNED")), "IDLE+PLANNED"),
    ("a job waits for it", "slurm_node", lambda c: removing(c, wanted_by="The job 7 of ann waits."), "job 7 of ann"),
    ("a queue that nobody knows", "slurm_node", lambda c: removing(c, queue_doubt="squeue is silent."), "silent"),
    ("down in Slurm", "slurm_node", lambda c: removing(c, states=("DOWN",)), "DOWN"),
    ("nothing to resume", "slurm_resume", lambda c: with_node(resuming(c), slurm=None), "nothing to resume"),
    ("resumed in doubt", "slurm_resume", lambda c: resuming(c, doubt="Slurm gives no answer."), "no answer"),
    ("a person's drain", "slurm_resume", lambda c: resuming(c, reason="fan"), "not gpuwatch's own"),
    ("a drain with more to say", "slurm_resume", lambda c: resuming(c, reason=f"{_OURS.reason}, ann"), "own"),
    ("another ledger's drain", "slurm_resume", lambda c: with_ledger(resuming(c), foreign=(KEY,)), "own"),
    (
        "down and silent, too",
        "slurm_resume",
        lambda c: resuming(c, states=("DOWN", "DRAIN", "NOT_RESPONDING")),
        "DOWN+DRAIN+NOT_RESPONDING",
    ),
    ("not drained", "not_drained", removing, "not drained in Slurm"),
    (
        "drained by a person, to be ended",
        "not_drained",
        lambda c: removing(c, **{**_OURS_IDLE, "reason": "fan"}),
        "Slurm",
    ),
    ("another drain to undo", "not_ours", lambda c: giving_back(c, reason="fan"), "not gpuwatch's own"),
    ("a drain of another ledger", "not_ours", lambda c: with_ledger(giving_back(c), foreign=(KEY,)), "own"),
    ("a later drain to undo", "not_ours", lambda c: giving_back(c, undoes="gpuwatch-0a1b2c-8-89abcdef"), "own"),
    ("a job came before the drain", "slurm_node", lambda c: leaving(c, states=("MIXED",)), "MIXED"),
    ("still sick", "slurm_resume", lambda c: resuming(c, Health.FAILING), "failing"),
    ("health not known", "slurm_resume", lambda c: resuming(c, None), "Nobody knows"),
    ("health in doubt", "slurm_resume", lambda c: resuming(c, Health.UNKNOWN), "Nobody knows"),
    ("a GPU is missing", "slurm_resume", lambda c: with_node(resuming(c), gpu_count=8), "1 of 8"),
    ("silent agent", "slurm_resume", lambda c: with_node(resuming(c), signal=NodeReport(failure="no")), "says nothing"),
    ("protected, draining", "protected", lambda c: with_node(draining(c), protected="a tag"), "a tag"),
    ("paused drain", "paused", lambda c: _paused(draining(c)), "ann"),
    ("paused resume", "paused", lambda c: _paused(resuming(c)), "ann"),
    ("draining what nobody enrolled", "not_enrolled", lambda c: with_node(draining(c), enrolled=False), "enrol"),
]
FAIR_SLURM: list[tuple[str, Callable[[Case], Case]]] = [
    ("drain a sick node", draining),
    ("drain a sick node beside sound ones", lambda c: _among(draining(c), _OTHER, replace(_OTHER, name="gpu-3"))),
    ("drain a node that does not answer Slurm", lambda c: draining(c, states=("IDLE", "NOT_RESPONDING"))),
    ("drain a node that is about to be stopped", leaving),
    ("drain a node of the cloud that is about to be stopped", lambda c: leaving(c, states=("IDLE", "CLOUD"))),
    ("give back a node that is not stopped after all", giving_back),
    ("give back a node in a paused pool", lambda c: _paused(giving_back(c))),
    ("give back a node that is no longer enrolled", lambda c: with_node(giving_back(c), enrolled=False)),
    ("stop a node that gpuwatch has drained", lambda c: removing(c, **_OURS_IDLE)),
    ("stop a machine of a pool that is not Slurm's", _elsewhere),
    ("end a stopped machine that Slurm shows down", lambda c: removing(asleep(c), states=("DOWN",))),
    ("resume a node that is well", resuming),
    ("resume a node that its stop has left down", lambda c: resuming(c, states=("DOWN", "DRAIN"))),
    ("resume a degraded node", lambda c: resuming(c, Health.DEGRADED)),
    ("resume while jobs run", lambda c: resuming(c, states=("MIXED", "DRAIN"))),
]
