"""PURE: what marks on objects say: of people (annotations of gpuwatch and of autoscalers), and of who owns a node."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from gpuwatch.kubernetes.calls import DO_NOT_DISRUPT, SCALE_DOWN_DISABLED
from gpuwatch.kubernetes.facts import MACHINE_OWNERS, NodeFacts, time_of
from gpuwatch.model.duration import LONGEST_SECONDS, duration_with_unit
from gpuwatch.model.kubernetes import IDLE_TIMEOUT, PROTECT, SNOOZE_UNTIL, NodeOwner, slip

_FOREVER = datetime.max.replace(tzinfo=UTC) - timedelta(days=1)
# Labels of nodes by which those say that they have made them, and make others; how they begin.
_MAKERS: Mapping[str, NodeOwner] = {
    "karpenter.sh/": "karpenter",
    "worker.gardener.cloud/": "Gardener",
    "machine-controller/": "Kubermatic's machine-controller",
    "provisioner.cast.ai/": "CAST AI",
    "spotinst.io/": "Spot Ocean",
}
_AUTOSCALER_TAINTS = frozenset({"ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler"})


def protection(annotations: Mapping[str, str], whose: str, now: datetime) -> str | None:
    """Why an object is protected, as a clause: anything but "false" protects, a time until then, and a slip for good.

    Nobody knows what a key means that gpuwatch does not know: it may be a misspelt protection.
    """
    if (key := slip(annotations)) is not None:
        return f"gpuwatch does not know the annotation {key} of {whose}, which may be meant to protect it"
    value = annotations.get(PROTECT)
    if value is None or value.strip().lower() == "false":
        return None
    until = time_of(value.strip())
    if until is None:
        return f"the annotation {PROTECT} of {whose} protects it"
    return f"the annotation {PROTECT} of {whose} protects it until {value.strip()}" if until > now else None


def node_owner(node: NodeFacts) -> NodeOwner | None:
    """Who makes and removes a node, as its marks name them."""
    for key, who in MACHINE_OWNERS.items():
        if key in node.annotations:
            return who
    for begin, who in _MAKERS.items():
        if any(key.startswith(begin) and key != DO_NOT_DISRUPT for key in node.labels):
            return who
    if any(taint.key in _AUTOSCALER_TAINTS for taint in node.taints):
        return "cluster-autoscaler"
    return None


def kept_by(node: NodeFacts, now: datetime) -> str | None:
    """Why a node's own marks keep it, as a clause."""
    if node.annotations.get(SCALE_DOWN_DISABLED) == "true":
        return f"its annotation {SCALE_DOWN_DISABLED} keeps it"
    if node.annotations.get(DO_NOT_DISRUPT, "false") != "false":
        return f"its annotation {DO_NOT_DISRUPT} keeps it"
    snoozed = snoozed_until([node.annotations])
    if snoozed is not None and snoozed > now:
        return f"its annotation {SNOOZE_UNTIL} snoozes it"
    return protection(node.annotations, f"the node {node.name}", now)


def snoozed_until(levels: Iterable[Mapping[str, str]]) -> datetime | None:
    """Until when somebody wants the pods left alone: the latest time; one that cannot be read has no end."""
    told = (each[SNOOZE_UNTIL].strip() for each in levels if SNOOZE_UNTIL in each)
    return max((time_of(text) or _FOREVER for text in told), default=None)


def longest(levels: Iterable[Mapping[str, str]]) -> float | None:
    """The longest wait that somebody asks for, in seconds; one that cannot be read has no end."""
    return max((_seconds(each[IDLE_TIMEOUT].strip()) for each in levels if IDLE_TIMEOUT in each), default=None)


def _seconds(text: str) -> float:
    try:
        found = duration_with_unit(text)
    except ValueError:
        return LONGEST_SECONDS
    return float(found) if isinstance(found, int | float) and 0 <= found <= LONGEST_SECONDS else LONGEST_SECONDS


def nearest(levels: Iterable[Mapping[str, str]], key: str) -> str | None:
    """The annotation where it stands first."""
    return next((value for each in levels if (value := each.get(key))), None)
