"""PURE: what happens to a workload, in words for its people, and the commands with which they keep it or bring it back.

The commands are kubectl's and need nothing of gpuwatch. An id comes from outside: who prints it makes it printable.
"""

import json
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from gpuwatch.model.kubernetes import SNOOZE_UNTIL, Target
from gpuwatch.model.workload_kinds import BY_LABEL, DEACTIVATE, KUBEFLOW_STOPPED, SUSPENDED, suspension

_PREFIX = "kube:"
_PARTS = 4
_WORKLOADS = "workloads.kueue.x-k8s.io"
_NOTE_AT = "%Y-%m-%d %H:%M UTC"
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadName:
    """What an id of the ledger names."""

    cluster: str
    namespace: str
    kind: str
    name: str

    def __str__(self) -> str:
        """Return its kind and name, such as `Notebook team-a/alice`."""
        return f"{self.kind} {self.namespace}/{self.name}"


def workload_of_id(node_id: str) -> WorkloadName | None:
    """Which workload an id of the ledger names (`kube:prod/team-a/Notebook/alice`); None: it is of a machine."""
    parts = node_id.removeprefix(_PREFIX).rsplit("/", _PARTS - 1)
    if not node_id.startswith(_PREFIX) or len(parts) != _PARTS:
        return None
    cluster, namespace, kind, name = parts
    return WorkloadName(cluster=cluster, namespace=namespace, kind=kind, name=name)


def typed_name(name: WorkloadName) -> str:
    """`team-a/notebook/alice`: what people type to name it."""
    return f"{name.namespace}/{name.kind.lower()}/{name.name}"


def id_of(text: str, node_ids: Iterable[str]) -> str | None:
    """Which of these ids a person means: by the id, by namespace/kind/name, or by a name that only one of them has.

    None: none of them, or nobody knows which.
    """
    found = ids_of(text, node_ids)
    return found[0] if len(found) == 1 else None


def ids_of(text: str, node_ids: Iterable[str]) -> list[str]:
    """Every id that a person may mean; of several clusters, `prod/team-a/notebook/alice` means that of one of them."""
    names = {each: name for each in node_ids if (name := workload_of_id(each)) is not None}
    if text in names:
        return [text]
    found = [each for each, name in names.items() if text in _spellings(name)]
    return found or [each for each, name in names.items() if name.name == text]


def _spellings(name: WorkloadName) -> set[str]:
    """How people write it."""
    plain = {typed_name(name), _exact(name)}
    return {*plain, *(f"{name.cluster}/{each}" for each in plain), str(name)}


def _exact(name: WorkloadName) -> str:
    """With its kind as Kubernetes spells it."""
    return f"{name.namespace}/{name.kind}/{name.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """One kind of end: `will` and `did` have a place {} for the workload, `done` follows "to be"."""

    will: str
    did: str
    done: str


_SCALE = Deed(will="scale {} to zero", did="scaled {} to zero", done="scaled to zero")
_STOP = Deed(will="stop {}", did="stopped {}", done="stopped")
_SUSPEND = Deed(will="suspend {}", did="suspended {}", done="suspended")
_END = Deed(will="end the pods of {}", did="ended the pods of {}", done="without pods")
_QUEUED = Deed(
    will="stop {} by its Workload of Kueue", did="stopped {} by its Workload of Kueue", done="stopped in Kueue"
)
_DEEDS: Mapping[str, Deed] = {"scale-to-zero": _SCALE, "stop": _STOP, "delete": _END, DEACTIVATE: _QUEUED}


def deed_on_kind(kind: str, how: str | None) -> Deed:
    """What becomes of a workload of that kind; where it is not known, in words that fit all."""
    return _SUSPEND if kind in SUSPENDED and how == "stop" else _DEEDS.get(how or "", _END)


def back(target: Target | WorkloadName, how: str, wanted: int | None) -> str | None:
    """How people bring it back, for kubectl; None: its own controller does, or nothing does."""
    space, thing = _typed_parts(target)
    kind = BY_LABEL.get(target.kind)
    if how == "stop" and kind is not None and kind.suspend:
        body = json.dumps({"spec": suspension(kind, suspended=False)}, separators=(",", ":"))
        return f"kubectl -n {space} patch {thing} --type=merge -p '{body}'"
    if how == DEACTIVATE:
        its = f'{{.items[?(@.metadata.ownerReferences[0].name=="{target.name}")].metadata.name}}'
        named = f"$(kubectl -n {space} get {_WORKLOADS} -o jsonpath={shlex.quote(its)})"
        return f'kubectl -n {space} patch {_WORKLOADS} {named} --type=merge -p \'{{"spec":{{"active":true}}}}\''
    commands = {
        "scale-to-zero": f"kubectl -n {space} scale {thing} --replicas={wanted}",
        "stop": f"kubectl -n {space} annotate {thing} {KUBEFLOW_STOPPED if kind is None else kind.stopped_by}-",
    }
    return commands.get(how)


def why_not_ended(kind: str) -> str:
    """Why gpuwatch ends nothing of a kind."""
    known = BY_LABEL.get(kind)
    return f"gpuwatch ends no pods of the kind {kind}" + (f": {known.left}" if known is not None and known.left else "")


def how_it_returns(kind: str, command: str | None) -> str:
    """What brings its pods back, as a sentence without its full stop; `command` is that of `back`."""
    if command is not None:
        return f"`{command}`"
    return "nothing makes this pod again" if kind == "Pod" else f"its {kind} makes new pods by itself"


def keep_command(target: Target | WorkloadName, until: datetime) -> str:
    """The command that keeps it until a time."""
    space, thing = _typed_parts(target)
    return f"kubectl -n {space} annotate {thing} --overwrite {SNOOZE_UNTIL}={until.astimezone(UTC):%Y-%m-%dT%H:00:00Z}"


def _typed_parts(target: Target | WorkloadName) -> tuple[str, str]:
    """Its namespace and its kind with its name, as a shell takes them."""
    return shlex.quote(target.namespace), shlex.quote(f"{target.kind.lower()}/{target.name}")


def notice_note(target: Target, how: str, due: datetime, why: str, wanted: int | None) -> str:
    """The Event of a notice, for `kubectl describe`: what, when, why, how to keep it, and how it comes back."""
    day = due.replace(minute=0, second=0, microsecond=0) + _DAY
    done = deed_on_kind(target.kind, how).done
    return (
        f"gpuwatch: to be {done} at {due.astimezone(UTC):{_NOTE_AT}} unless it is used. {why} "
        f"Keep it: {keep_command(target, day)}. Back afterwards: {_back_words(target, how, wanted)}."
    )


def kept_note(why: str) -> str:
    """The Event of a notice that is withdrawn."""
    return f"gpuwatch: it stays, the notice is withdrawn. {why}"


def ended_note(target: Target, how: str, wanted: int | None) -> str:
    """The Event of the end of its pods."""
    done = deed_on_kind(target.kind, how).done
    return f"gpuwatch: {done}, as its notice said: its GPUs had no use. Back: {_back_words(target, how, wanted)}."


def _back_words(target: Target, how: str, wanted: int | None) -> str:
    return how_it_returns(target.kind, back(target, how, wanted)).strip("`")
