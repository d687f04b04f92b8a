"""Which groups of metrics an agent exports, and which it must read for that."""

from collections.abc import Collection
from urllib.parse import parse_qs

from gpuwatch.agent.settings import AgentSettings
from gpuwatch.model.metric import GROUP_NAMES, GroupName, chosen_groups

_COLLECT = "collect[]"  # as node_exporter has it


def exported_groups(settings: AgentSettings) -> frozenset[GroupName]:
    """The groups on the page: none where other exporters' names stand instead of ours."""
    return frozenset() if settings.compat_only else chosen_groups(settings.metrics)


def groups_to_read(settings: AgentSettings) -> frozenset[GroupName]:
    """The groups that the probe reads: those on the page, and those behind other exporters' names."""
    groups = exported_groups(settings)
    if settings.compat:
        from gpuwatch.agent.exporter.compat import load  # noqa: PLC0415  loaded by few agents

        groups = groups.union(*(load(name).groups for name in settings.compat))
    return groups


def groups_in(query: str, served: Collection[str]) -> frozenset[str] | None:
    """The groups that a scrape asks for with `collect[]`; None where it asks for all that there is.

    Raises:
        ValueError: one of them is not served here; the text has those that are.

    """
    given = parse_qs(query, keep_blank_values=True).get(_COLLECT)
    if given is None:
        return None
    for name in given:
        if name not in served:
            what = "not on this agent's page (agent.metrics)" if name in GROUP_NAMES else "no group of metrics"
            there = ", ".join(each for each in GROUP_NAMES if each in served) or "none: agent.compat_only is set"
            raise ValueError(f"{_COLLECT}={name!r} is {what}; groups here are {there}")
    return frozenset(given)
