"""Pure: the facts of a message about workloads. All text that comes from outside is made printable here."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from gpuwatch.ledger.sent_messages import Event
from gpuwatch.model.activity import Evidence
from gpuwatch.model.decision import Verb
from gpuwatch.model.fleet import Fleet
from gpuwatch.model.kubernetes import Pod, workload_id
from gpuwatch.notify.wording import LONGEST, printable
from gpuwatch.policies.kubernetes.idle_pods import GPUS, HOW, PODS
from gpuwatch.policies.kubernetes.workload_words import back, keep, named

_NAMED = 3  # pods of a workload
_KEPT_FOR = timedelta(days=1)  # beyond the announced time, by the command that a notice shows


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadLine:
    """The facts of one workload.

    `how` is what becomes of it, as its annotation said; None: its notice is withdrawn. `due` is the earliest time of
    that. `pods` and `gpus` are those that it holds, or held; None: not known. `on` names some of its pods with their
    nodes. `back` is the command that brings it back, `keep` the one that keeps it: both are kubectl's.
    """

    key: str
    node_id: str
    workload: str
    cluster: str
    namespace: str
    kind: str
    name: str
    pool: str
    owner: str | None
    usd_per_hour: Decimal | None
    at: datetime
    how: str | None
    due: datetime | None
    code: str
    why: str
    evidence: tuple[Evidence, ...]
    pods: int | None
    gpus: float | None
    on: tuple[str, ...]
    local_data: tuple[str, ...]
    back: str | None
    keep: str | None
    approval: bool = False


def workload_line(event: Event, fleet: Fleet, *, due: datetime | None, approval: bool) -> WorkloadLine:
    """One event; `due` is the time that its notice promises, None where it is no notice.

    Raises:
        ValueError: it is about no workload.

    """
    name = named(printable(event.node_id, 5 * LONGEST))
    if name is None:
        raise ValueError(f"{event.node_id} is no workload")
    found = tuple(_its_pods(event.node_id, fleet))
    how = _how(event)
    return WorkloadLine(
        key=event.key,
        node_id=printable(event.node_id),
        workload=str(name),
        cluster=name.cluster,
        namespace=name.namespace,
        kind=name.kind,
        name=name.name,
        pool=printable(event.pool),
        owner=printable(event.owner) if event.owner else None,
        usd_per_hour=event.usd_per_hour,
        at=event.at,
        how=how,
        due=due,
        code=event.reason.code,
        why=printable(event.reason.sentence, 5 * LONGEST),
        evidence=event.reason.evidence,
        pods=_count(event, PODS, len(found)),
        gpus=_number(event, GPUS, sum(pod.gpus for pod, _ in found)),
        on=tuple(printable(f"{pod} on {node}") for pod, node in found[:_NAMED]),
        local_data=tuple(printable(f"{pod} ({pod.local_data})") for pod, _ in found if pod.local_data is not None),
        back=None if how is None else back(name, how, _count(event, PODS, len(found))),
        keep=None if due is None else keep(name, due.astimezone(UTC) + _KEPT_FOR),
        approval=approval,
    )


def _how(event: Event) -> str | None:
    """What is to become of it, or has become of it."""
    if event.verb is Verb.WITHDRAW:
        return None
    return event.arguments.get(HOW) or (None if event.promise is None else event.promise.action)


def _its_pods(workload: str, fleet: Fleet) -> Iterator[tuple[Pod, str]]:
    """Its pods that hold GPUs as the last round saw them, with the names of their nodes."""
    for known in (node.kubernetes for node in fleet.nodes if node.kubernetes is not None):
        for pod in known.gpu_pods:
            if workload_id(known.cluster, pod.workload) == workload:
                yield pod, known.name


def _number(event: Event, key: str, seen: float) -> float | None:
    """What the intent counted; else what the last round saw, where it saw any."""
    try:
        return float(event.arguments[key])
    except (KeyError, ValueError):
        return seen or None


def _count(event: Event, key: str, seen: int) -> int | None:
    found = _number(event, key, seen)
    return None if found is None else int(found)
