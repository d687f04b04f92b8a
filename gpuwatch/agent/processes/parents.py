"""What a process is by the one that began it: a look that `watch` takes, an agent's own wait, a job of root's cron."""

import os
from collections.abc import Mapping
from dataclasses import replace

from gpuwatch.agent.processes import kinds
from gpuwatch.agent.processes.process import Kind, Process, from_cron

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_CRON_JOB_SECONDS = 600.0  # a job of root's cron that runs for longer is somebody's work
_WATCHED_SECONDS = 10.0  # what `watch` runs is a look at something; what goes on for longer is somebody's work


def looking_on(found: Mapping[int, Process], uptime: float | None) -> dict[int, Process]:
    """Young processes that `watch` runs to look, directly or through a shell: they are viewers, too.

    `watch` is also a scheduler: what copies or computes is somebody's work, however short.
    """
    watches = {each.pid for each in found.values() if each.rule == kinds.VIEWER and each.name == "watch"}
    if not watches or uptime is None:
        return {}
    latest = (uptime - _WATCHED_SECONDS) * _TICKS_PER_SECOND
    young = [each for each in found.values() if each.kind is Kind.PEOPLE and each.started_ticks > latest]
    theirs = {}
    for process in young:
        parents, at = set[int](), process.parent
        while at in found and at not in watches and at not in parents:
            parents.add(at)
            at = found[at].parent
        if at in watches and kinds.only_looks((process.name, process.executable or process.name)):
            theirs[process.pid] = replace(process, kind=Kind.SESSION, rule=kinds.VIEWER)
    return theirs


def of_agents(found: Mapping[int, Process]) -> dict[int, Process]:
    """What an agent of a cloud or a vendor runs to look or to wait: the `sleep` of its script."""
    agents = {each.pid for each in found.values() if each.rule == kinds.AGENT}
    return {
        each.pid: replace(each, kind=Kind.SERVICE, rule=kinds.AGENT)
        for each in found.values()
        if each.parent in agents
        and each.kind is Kind.PEOPLE
        and not each.rule.startswith(kinds.PATTERN)
        and kinds.only_looks((each.name, each.executable or each.name))
        and not kinds.is_shell((each.name, each.executable or each.name))
    }


def of_cron_job(age: float | None) -> Kind:
    """A job of root's cron is the machine's own at first; of what age it is must be known."""
    return Kind.SERVICE if age is not None and age < _CRON_JOB_SECONDS else Kind.PEOPLE


def of_roots_cron(found: Mapping[int, Process], uptime: float | None) -> dict[int, Process]:
    """The jobs of root's cron that run in a session of root's, as pam_systemd makes one for each on Red Hat."""
    theirs = {}
    for process in found.values():
        own = process.kind in {Kind.PEOPLE, Kind.SESSION} and process.placement.own_names and process.uid == 0
        if own and not process.rule.startswith(kinds.PATTERN) and from_cron(process, found):
            age = None if uptime is None else uptime - process.started_ticks / _TICKS_PER_SECOND
            theirs[process.pid] = replace(process, kind=of_cron_job(age), rule=kinds.CRON_JOB)
    return theirs
