"""The Slurm cluster of the settings: scontrol answers, each machine is a node of it, and one system powers them."""

from collections.abc import Iterator

from gpuwatch.cli.doctor.cloud import list_fleet, skipped_finding
from gpuwatch.cli.doctor.context import ControllerCase
from gpuwatch.cli.doctor.report import Finding, fine, first_names, make_finding
from gpuwatch.clouds import CloudError
from gpuwatch.controller.slurm import join
from gpuwatch.controller.slurm.scontrol import Scontrol
from gpuwatch.model.fleet import Fleet, Node, NodeState
from gpuwatch.model.readable import how_many

_ENDS = frozenset({"stop", "terminate"})


def cluster(case: ControllerCase) -> Iterator[Finding]:
    """What one look at Slurm shows, and what of the settings it refuses."""
    settings = case.settings.slurm
    if not settings.configured:
        return
    where = "the Slurm cluster"
    seen = join.show_cluster(Scontrol(settings))
    if seen is None or seen.view.doubt is not None:
        yield make_finding("slurm.unusable", where, "" if seen is None else seen.view.doubt or "")
        return
    yield fine("slurm", where, f"{settings.scontrol} shows {how_many(len(seen.nodes), 'node')}")
    yield from _power(case, seen)
    yield from _rights(Scontrol(settings), seen)
    yield from _unjoined_machines(case, seen)


def _power(case: ControllerCase, seen: join.Shown) -> Iterator[Finding]:
    """Two systems that power the same nodes."""
    where = "the power of Slurm's nodes"
    if seen.view.power is None:
        yield fine("slurm", where, "slurm.conf has no program for it: Slurm leaves it to others")
        return
    rules = case.settings.rulebook
    both = [
        name for name in seen.view.pools if rules.pool(name).idle.action in _ENDS or rules.pool(name).launch.template
    ]
    if both and case.settings.mode == "enforce":
        pools = first_names([f"pools.{name}" for name in both])
        yield make_finding(
            "slurm.power", where, f"Slurm's ({seen.view.power}), and {pools} would stop or start machines"
        )
    else:
        yield fine("slurm", where, f"Slurm's ({seen.view.power})")


def _rights(cluster: Scontrol, seen: join.Shown) -> Iterator[Finding]:
    """Whether gpuwatch may drain a node before its stop and resume it after its start, and knows which jobs wait."""
    where = "the drain of Slurm's nodes"
    try:
        (service, timeout), denied = cluster.returns(), cluster.may_drain()
    except CloudError as error:
        yield make_finding("slurm.unusable", where, str(error))
        return
    down = "after a start a node stays DOWN until it is resumed" if service == "0" else "Slurm takes nodes back"
    about = f"ReturnToService={service}: {down}; SlurmdTimeout={timeout}"
    if denied is not None:
        yield make_finding("slurm.may_not_drain", where, f"{denied} ({about})")
    else:
        yield fine("slurm", where, f"gpuwatch may drain and resume ({about})")
    if seen.view.queue_doubt is not None:
        yield make_finding("slurm.queue", "the jobs that wait in Slurm", seen.view.queue_doubt)
    else:
        yield fine("slurm", "the jobs that wait in Slurm", f"squeue lists {how_many(len(seen.queue.jobs), 'job')}")


def _unjoined_machines(case: ControllerCase, seen: join.Shown) -> Iterator[Finding]:
    """Machines that are not certainly one node."""
    where = "which machine is which node of Slurm"
    nodes = list_fleet(case)
    if nodes is None:
        yield skipped_finding(where)
        return
    fleet = join.with_slurm(Fleet(observed_at=case.clock.now(), nodes=nodes), seen)
    ours = [each for each in fleet.nodes if each.slurm is not None and each.state is not NodeState.TERMINATED]
    doubts = [f"{each.id}: {each.slurm.doubt}" for each in ours if each.slurm is not None and each.slurm.doubt]
    if doubts:
        yield make_finding("slurm.unjoined", where, first_names(doubts))
    else:
        yield fine("slurm", where, f"each of {len(ours)} machines is one node")
    down = [f"{each.id}: {why}" for each in ours if (why := _left_down(each)) is not None]
    if down:
        yield make_finding("slurm.left_down", "machines that run, and get no jobs", first_names(down))
    paid = [
        f"{each.id}: {each.slurm.name} ({each.slurm.state})" for each in ours if each.slurm and _is_held_for_off(each)
    ]
    if paid:
        yield make_finding("slurm.runs_on", "machines that Slurm has powered down", first_names(paid))
    known = [(each.id, each.slurm) for each in ours if each.state is NodeState.STOPPED and each.slurm is not None]
    missed = [f"{name}: {node.wanted_by}" for name, node in known if node.wanted_by is not None]
    if missed:
        yield make_finding("slurm.stopped", "jobs that wait, and stopped machines", first_names(missed))


def _is_held_for_off(node: Node) -> bool:
    """Whether Slurm believes that it has powered a machine down, and its cloud shows it running."""
    off = node.slurm is not None and {"POWERED_DOWN", "POWER_DOWN"} & {*node.slurm.states}
    return bool(off) and node.state is NodeState.RUNNING


def _left_down(node: Node) -> str | None:
    """Say of a running machine that Slurm keeps its node DOWN, although its slurmd answers, and nobody has said why."""
    known = node.slurm
    if known is None or node.state is not NodeState.RUNNING or known.states[:1] != ("DOWN",) or not known.answers:
        return None
    by_slurm = (known.reason or "").startswith(("Not responding", "Node unexpectedly rebooted"))
    return f"{known.name} ({known.reason})" if by_slurm else None
