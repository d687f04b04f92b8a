"""Cases of the guard's bounds in GPUs: of a pool that counts them, with one thing spoiled."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from gpuwatch.guard import Case
from gpuwatch.guard.case import Surge
from gpuwatch.model.cloud_notice import CloudNotice
from gpuwatch.model.decision import Status, Verb
from gpuwatch.model.fleet import NodeReport
from gpuwatch.policies.spot import back
from gpuwatch.policies.spot.mix import MixRules
from tests.support.builders.fleet import NOW
from tests.support.builders.gpu_pools import FIRM, TYPES, gpu_rules
from tests.support.builders.guard_cases import a_growth, a_launch, with_ledger, with_node
from tests.support.builders.pending_capacity import an_intent

TAKEN = CloudNotice(kind="spot_interruption", action="terminate", deadline=NOW + timedelta(minutes=2), seen_at=NOW)
BLIND = NodeReport(failure="its agent did not answer")


def counted(case: Case, **rules: object) -> Case:
    """The case in a pool that counts GPUs, of which three nodes have one each."""
    return replace(case, pool_rules=gpu_rules(**rules))  # type: ignore[arg-type]


def others(case: Case, **changes: object) -> Case:
    """The case with another second node."""
    first, second, *rest = case.observation.fleet.nodes
    nodes = (first, replace(second, **changes), *rest)  # type: ignore[arg-type]
    return replace(case, observation=replace(case.observation, fleet=replace(case.observation.fleet, nodes=nodes)))


def of_type(case: Case, gpus: int) -> Case:
    """The launch of a machine with so many GPUs."""
    arguments = {**case.step.arguments, "instance_type": TYPES[gpus]}
    return replace(case, step=replace(case.step, arguments=arguments))


def unknown(case: Case) -> Case:
    """The launch of a machine of which nobody knows the GPUs."""
    arguments = {**case.step.arguments, "instance_type": "x.large"}
    return replace(case, step=replace(case.step, arguments=arguments))


def coming_back(case: Case, gpus: int, surge: int, **rules: object) -> Case:
    """The launch of spot in the place of a node on demand."""
    case = of_type(counted(a_launch(case), capacity=MixRules(surge=surge), **rules), gpus)
    step = replace(case.step, reason=replace(case.step.reason, code=back.CODE))
    return replace(case, step=step, surge=Surge(left=gpus))


def doubtful(case: Case, *, reached: bool = True) -> Case:
    """The case while a launch of eight GPUs has no answer."""
    entry = an_intent(Verb.LAUNCH, "new:default:7", Status.THROTTLED, FIRM["eight"].arguments("eight", "default"))
    entry = replace(entry, reached=reached, reached_at=NOW - timedelta(minutes=5))
    return with_ledger(case, open_intents=(entry,))


def dark(case: Case) -> Case:
    """The case beside a node of which nobody knows the GPUs."""
    return others(case, gpu_count=None, instance_type="x.large", signal=BLIND)


SPOILED_GPUS: list[tuple[str, str, Callable[[Case], Case], str]] = [
    ("fewer GPUs than the minimum", "min_gpus", lambda c: counted(c, min_gpus=3), "2 GPUs on 2 running nodes"),
    (
        "a larger one than the minimum leaves",
        "min_gpus",
        lambda c: counted(with_node(c, gpu_count=8, instance_type=TYPES[8]), min_gpus=9),
        "2 GPUs",
    ),
    ("GPUs that nobody knows", "min_gpus", lambda c: counted(dark(c), min_gpus=2), "1 GPU on"),
    ("a GPU too many", "max_gpus", lambda c: counted(a_launch(c), max_gpus=3), "would have 4 GPUs"),
    ("a machine too large", "max_gpus", lambda c: of_type(counted(a_launch(c), max_gpus=10), 8), "would have 11 GPUs"),
    (
        "growth by a machine too large",
        "max_gpus",
        lambda c: counted(a_growth(c, instance_type=TYPES[4]), max_gpus=6),
        "would have 7 GPUs",
    ),
    (
        "beside one that may have come",
        "max_gpus",
        lambda c: doubtful(counted(a_launch(c), max_gpus=11)),
        "have 4 GPUs, and 8 that may still come",
    ),
    ("a launch of no known size", "max_gpus", lambda c: unknown(counted(a_launch(c), max_gpus=64)), "would come"),
    ("beside one of no known size", "max_gpus", lambda c: counted(dark(a_launch(c)), max_gpus=64), "i-2 (x.large)"),
    ("more than the surge", "max_gpus", lambda c: coming_back(c, 8, 0, max_gpus=10), "max_gpus with capacity.surge"),
    (
        "more than those that are taken",
        "max_gpus",
        lambda c: of_type(counted(others(a_launch(c), cloud_notice=TAKEN), max_gpus=5), 4),
        "and 1 that its cloud is about to take",
    ),
    (
        "replaced before it is gone",
        "max_gpus",
        lambda c: counted(others(a_launch(c), cloud_notice=TAKEN), max_gpus=3, surge_nodes=0),
        "with those it is 3",
    ),
]

FAIR_GPUS: list[tuple[str, Callable[[Case], Case]]] = [
    ("as many GPUs as the minimum", lambda c: counted(c, min_gpus=2)),
    ("as many GPUs as the maximum", lambda c: counted(a_launch(c), max_gpus=4)),
    ("beside one that certainly did not come", lambda c: doubtful(counted(a_launch(c), max_gpus=11), reached=False)),
    ("a large machine that fits", lambda c: of_type(counted(a_launch(c), max_gpus=11), 8)),
    ("a machine of no known size without a maximum", lambda c: unknown(counted(a_launch(c)))),
    ("spot on top of the maximum, within the surge", lambda c: coming_back(c, 8, 1, max_gpus=3)),
    ("replaced while it is there", lambda c: counted(others(a_launch(c), cloud_notice=TAKEN), max_gpus=3)),
]

assert FIRM["eight"].gpus, "the rows rest on it"
