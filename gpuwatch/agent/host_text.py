"""PURE: in a sentence, why a GPU or a whole node is busy, parked, stalled, occupied, idle or unknown.

Who works comes first: people at a terminal look for a name. Names come from the host and are made legible here.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from gpuwatch.model.activity import Activity, Evidence, State
from gpuwatch.model.evidence_text import amount_text, evidence_text, newest_reset, nothing_text, who_text
from gpuwatch.model.gpu_identity import DownCause
from gpuwatch.model.health import GpuHealth, Health, Remedy
from gpuwatch.model.host_page import HostProcess, HostTrouble
from gpuwatch.model.readable import legible
from gpuwatch.model.verdict import GpuVerdict, NodeVerdict

_LONGEST_NAME = 32
_MOST_PARTIES = 3
_OF_GPU = re.compile(r"gpu([^.]*)\.(.+)")
# What a signal of a GPU measures, in one word; a name that is not here is shown as it is.
_WORDS = {
    "utilization_max": "utilization",
    "engines": "video engines",
    "sm_activity": "SM activity",
    "graphics_activity": "graphics activity",
    "dram_activity": "memory traffic",
    "pcie": "PCIe traffic",
    "nvlink": "NVLink traffic",
    "memory_used": "memory",
    "compute_processes": "processes",
}
_DOES = {State.BUSY: "uses", State.PARKED: "holds", State.STALLED: "is stuck on"}
_BESIDES = {State.PARKED: ", nothing is computed", State.STALLED: ": full utilization at idle power, a deadlock?"}
_REMEDIES = {
    Remedy.DRAIN: "let its work end",
    Remedy.RESET: "reset it",
    Remedy.REBOOT: "reboot",
    Remedy.REPLACE_HARDWARE: "replace it",
}
# What to do about a GPU that gives no reading.
DOWN_REMEDIES = {
    DownCause.LOST: "reboot the host",
    DownCause.HANG: "reset the GPU once nothing uses it, or reboot the host",
    DownCause.RESET: "reset the GPU, or reboot the host",
    DownCause.MISSING: "reboot the host",
    DownCause.ERROR: "`dmesg | grep NVRM` may say more",
    DownCause.RELEASED: "gpuwatch agent acquire",
}


def who(process: HostProcess) -> str:
    """`python3 (alice)`, as far as known; of a pod or a job, which is known better than its user, that one's name."""
    owner = process.pod or (process.slurm_job and f"job {process.slurm_job}") or process.user
    name = legible(process.program or f"pid {process.pid}", _LONGEST_NAME)
    return f"{name} ({legible(owner, _LONGEST_NAME)})" if owner else name


def gpu_why(verdict: GpuVerdict, processes: Sequence[HostProcess]) -> str:
    """Why that GPU is what it is, an illness of its first. `processes` are those that hold it."""
    words = (_illness(verdict.health), _activity_words(verdict.activity, processes))
    return "; ".join(word for word in words if word)


def node_why(verdict: NodeVerdict, processes: Iterable[HostProcess]) -> str:
    """Why the node is what it is: who does what on which GPU, what its idle time began after, or what is in doubt."""
    activity = verdict.activity
    match activity.state:
        case State.UNKNOWN:
            return legible(activity.doubt or "")
        case State.IDLE:
            newest = newest_reset(verdict.last_busy)
            if newest is not None:
                return f"before that, {evidence_text(newest.evidence)}"
            return "" if verdict.tally is None else nothing_text(verdict.tally.since)
    shown = [each for each in activity.evidence if each.says is activity.state]
    on_gpus = [each for each in shown if _OF_GPU.fullmatch(each.name)]
    words = _on_gpus(activity.state, on_gpus, verdict.gpus, processes) if on_gpus else _on_host(shown)
    return words or ("full utilization at idle power, a deadlock?" if activity.state is State.STALLED else "")


def down_why(down: HostTrouble, health: GpuHealth | None) -> str:
    """Why that GPU gives no reading and what to do: as its health knows it, which knows more than one cycle."""
    ill = health is not None and health.state is Health.FAILING and health.remedy in _REMEDIES
    remedy = _REMEDIES[health.remedy] if ill and health is not None else down.remedy
    return trouble_text(replace(down, remedy=remedy))


def trouble_text(trouble: HostTrouble) -> str:
    """`hang: GPU 3 was not read within 5s; reset it`; a detail that begins with the cause needs it no second time."""
    cause, detail = legible(trouble.cause), legible(trouble.detail)
    words = detail if detail.startswith(cause) else f"{cause}: {detail}"
    return f"{words}; {legible(trouble.remedy)}" if trouble.remedy else words


def _illness(health: GpuHealth | None) -> str:
    """`failing: The driver has lost the GPU (reboot)`; empty for a GPU that is well or not known to be ill."""
    if health is None or health.state not in {Health.DEGRADED, Health.FAILING}:
        return ""
    first = health.findings[0] if health.findings else None
    if first is None:
        return health.state.value
    remedy = _REMEDIES.get(first.remedy)
    sentence = legible(first.sentence).rstrip(".")
    return f"{health.state.value}: {sentence}" + (f" ({remedy})" if remedy else "")


def _activity_words(activity: Activity, processes: Sequence[HostProcess]) -> str:
    """Return the words for one GPU's activity."""
    match activity.state:
        case State.UNKNOWN:
            return legible(re.sub(r"^GPU \S+: ", "", activity.doubt or ""))
        case State.STALLED:
            return "full utilization at idle power: a deadlock?"
        case State.PARKED:
            return f"held by {_parties([who(each) for each in processes])}" if processes else "memory held"
        case State.BUSY:
            worst = max((each for each in activity.evidence if each.says is State.BUSY), key=_rank, default=None)
            return "" if worst is None else _measurement_text(worst)
    noted = next((each.note for each in activity.evidence if each.note is not None), None)
    return "" if noted is None else legible(noted)


def _measurement_text(evidence: Evidence) -> str:
    """`utilization 97 %, limit 5 %`."""
    found = _OF_GPU.fullmatch(evidence.name)
    part = evidence.name if found is None else found[2]
    return f"{_WORDS.get(part.rpartition('.')[2], part)} {amount_text(evidence) or ''}".rstrip()


def _on_gpus(
    state: State, evidence: Sequence[Evidence], gpus: Iterable[GpuVerdict], processes: Iterable[HostProcess]
) -> str:
    """`python3 (alice) uses GPUs 0-3; train (bob) uses GPU 4`."""
    indices = {found[1] for each in evidence if (found := _OF_GPU.fullmatch(each.name))}
    concerned = [gpu.index for gpu in gpus if str(gpu.index) in indices and gpu.index is not None]
    by_party: dict[str, list[int]] = {}
    holders = _largest_holders(processes)
    for index in concerned:
        by_party.setdefault(holders.get(index, ""), []).append(index)
    sentences = []
    for party, held in list(by_party.items())[:_MOST_PARTIES]:
        which = f"GPU{'s' if len(held) > 1 else ''} {ranges(held)}"
        sentences.append(f"{party or 'something'} {_DOES.get(state, 'uses')} {which}")
    left = len(by_party) - _MOST_PARTIES
    more = [f"{left} more"] if left > 0 else []
    return "; ".join([*sentences, *more]) + _BESIDES.get(state, "")


def _largest_holders(processes: Iterable[HostProcess]) -> Mapping[int, str]:
    """By a GPU's index the process of people that holds most of it; the machine's own only where there is no other."""
    best: dict[int, tuple[bool, int, str]] = {}
    for process in processes:
        for use in process.gpus:
            if use.index is not None:
                rank = (process.kind != "service", use.memory_bytes or 0, who(process))
                best[use.index] = max(best.get(use.index, rank), rank)
    return {index: rank[2] for index, rank in best.items()}


def _on_host(evidence: Sequence[Evidence]) -> str:
    """The first signals of the host, with who is behind each."""
    named = (each for each in evidence if each.owner is not None)
    ordered = [*named, *(each for each in evidence if each.owner is None)]
    return _parties([_signal(each) for each in ordered])


def _signal(evidence: Evidence) -> str:
    """`cpu: 1.4 of 0.8 cores, root's fluent-bit, pid 812`."""
    about = ", ".join(each for each in (amount_text(evidence), who_text(evidence)) if each)
    return f"{legible(evidence.name)}: {about}" if about else legible(evidence.name)


def _parties(words: Sequence[str]) -> str:
    """The first of them, and how many more there are."""
    several = list(dict.fromkeys(words))
    more = [f"{len(several) - _MOST_PARTIES} more"] if len(several) > _MOST_PARTIES else []
    return "; ".join(several[:_MOST_PARTIES] + more)


def ranges(numbers: Iterable[int]) -> str:
    """Return numbers as ranges, such as `0-3,7`."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _rank(evidence: Evidence) -> tuple[bool, bool, float]:
    """What is said of several: utilization, which everybody knows, then shares of time, then the furthest above."""
    excess = 0.0 if evidence.observed is None or not evidence.limit else evidence.observed / evidence.limit
    return evidence.name.endswith(".utilization_max"), evidence.unit == "ratio", excess
