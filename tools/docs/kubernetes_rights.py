"""The table of rights on docs/kubernetes.md, from what the controller asks of the API server."""

import re
from collections.abc import Iterator, Mapping

from gpuwatch.kubernetes.calls import RIGHTS, Right, Use
from gpuwatch.model.workload_kinds import KINDS

_PLACE = re.compile(r"(<!-- rights -->)\n.*?(<!-- end of rights -->)", re.DOTALL)
_KINDS = frozenset((each.group, each.resource) for each in KINDS)
# Which switch of the chart gives what.
_CHART: Mapping[Use, str] = {
    "observe": "`controller.kubernetes.enabled: true`",
    "nodes": "`act: true` as well",
    "workloads": "`podActions.enabled: true` as well, in `podActions.namespaces` alone",
    "bare-pods": "`podActions.barePods: true` as well, there",
}


def with_rights(page: str) -> str:
    """The page with its table; what people wrote stays.

    Raises:
        ValueError: the page has no place for the table, or several.

    """
    rows = ["| chart | rights |", "| --- | --- |", "| default | no right, and no token |"]
    rows += [f"| {chart} | {'; '.join(_allowed(use))} |" for use, chart in _CHART.items()]
    made, times = _PLACE.subn(lambda found: "\n".join([found[1], *rows, found[2]]), page)
    if times != 1:
        raise ValueError(f"the page has {times} places <!-- rights -->, expected 1")
    return made


def _allowed(use: Use) -> Iterator[str]:
    """The verbs, each with its resources; rights of the same verbs stand together."""
    found: dict[tuple[str, ...], dict[str, None]] = {}
    for right in RIGHTS:
        if right.use == use:
            found.setdefault(right.verbs, {})[_thing(right)] = None
    for verbs, things in found.items():
        yield f"{', '.join(verbs)}: {', '.join(things)}"


def _thing(right: Right) -> str:
    if (right.group, right.resource) in _KINDS and not right.subresource:
        ended = "" if right.use == "observe" else " that may be ended"
        return f"each [kind of workloads](kubernetes-workloads.md#kinds-of-workloads){ended}"
    return f"{right.resource}/{right.subresource}" if right.subresource else right.resource
