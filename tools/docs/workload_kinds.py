"""The table of workloads on docs/kubernetes-workloads.md, from the kinds that gpuwatch knows."""

import re
from collections.abc import Callable
from itertools import groupby

from gpuwatch.model.workload_kinds import KINDS, WorkloadKind

_PLACE = re.compile(r"(<!-- kinds -->)\n.*?(<!-- end of kinds -->)", re.DOTALL)
_HEAD = (
    "| kind | of | `idle-action` | how it comes back | judged | an evicted pod is made again |",
    "| --- | --- | --- | --- | --- | --- |",
)


def with_kinds(page: str) -> str:
    """The page with its table; what people wrote stays.

    Raises:
        ValueError: the page has no place for the table, or several.

    """
    rows = [_row(list(alike)) for _, alike in groupby(KINDS, _facts)]
    made, times = _PLACE.subn(lambda found: "\n".join([found[1], *_HEAD, *rows, found[2]]), page)
    if times != 1:
        raise ValueError(f"the page has {times} places <!-- kinds -->, expected 1")
    return made


def _facts(kind: WorkloadKind) -> tuple[str, ...]:
    """Everything in the row of a kind besides its name."""
    return (
        kind.by,
        _ended_by(kind),
        "<br>".join(way(kind) for action, way in _BACK.items() if action in kind.actions),
        "each by itself" if kind.apart else "together",
        "yes" if kind.again else "no",
    )


def _row(alike: list[WorkloadKind]) -> str:
    return f"| {', '.join(each.label for each in alike)} | {' | '.join(_facts(alike[0]))} |"


def _ended_by(kind: WorkloadKind) -> str:
    if kind.actions:
        return " or ".join(f"`{action}`" for action in kind.actions)
    parts = (
        f"its {' and '.join(f'{part}s' for part in kind.parts)}, by their own annotations"
        if kind.parts
        else "only its people end it"
    )
    return f"{parts}: {kind.left}"


_BACK: dict[str, Callable[[WorkloadKind], str]] = {
    "scale-to-zero": lambda _: "`kubectl scale --replicas=N`",
    "stop": lambda kind: (
        f"`spec.{kind.suspend}: false`" if kind.suspend else f"remove the annotation `{kind.stopped_by}`"
    ),
    "delete": lambda _: "after `delete` it makes new pods",
}
