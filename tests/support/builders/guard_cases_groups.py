"""More rows for `guard_cases.py`: taking back what a group wants and its cloud does not give it."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from gpuwatch.guard import Case
from gpuwatch.model.decision import Verb
from tests.support.builders.fleet import NOW, a_node
from tests.support.builders.guard_cases import a_growth


def taking_back(case: Case, size: int = 3, **changes: object) -> Case:
    """The case as taking back what a group lacks that its cloud gives no more members."""
    lacking: dict[str, object] = {"desired": 5, "short_since": NOW - timedelta(hours=1)}
    case = a_growth(case, **{**lacking, **changes})  # type: ignore[arg-type]
    step = replace(case.step, verb=Verb.SHRINK, arguments={"size": str(size), "takes": str(5 - size)})
    return replace(case, step=step)


def all_spared(case: Case) -> Case:
    """The same, where every member has scale-in protection."""
    case = taking_back(case)
    fleet = case.observation.fleet
    nodes = tuple(replace(node, scale_in_protected=True) for node in fleet.nodes)
    members = tuple(a_node(each, group="g-1", scale_in_protected=True) for each in ("i-1", "i-2", "i-3"))
    known = {node.id: node for node in (*members, *nodes)}
    return replace(case, observation=replace(case.observation, fleet=replace(fleet, nodes=tuple(known.values()))))


SPOILED_GROUPS: list[tuple[str, str, Callable[[Case], Case], str]] = [
    ("taken back, a member unprotected", "group_takes_back", taking_back, "have no scale-in protection"),
    ("taken back, waited for", "group_takes_back", lambda c: taking_back(c, short_since=NOW), "has 3 of 5"),
    ("taken back below its members", "group_takes_back", lambda c: taking_back(c, 2), "has 3 of 5"),
    ("taken back to what it wants", "group_takes_back", lambda c: taking_back(c, 5), "has 3 of 5"),
    (
        "taken back below its minimum",
        "group_takes_back",
        lambda c: taking_back(c, min_size=4, gives_back_places=True),
        "MinSize",
    ),
    ("taken back, protected", "protected", lambda c: taking_back(c, protected="tag"), "tag"),
]

FAIR_GROUPS: list[tuple[str, Callable[[Case], Case]]] = [
    ("take back what a group lacks", all_spared),
    ("take back empty places", lambda c: taking_back(c, gives_back_places=True)),
]
