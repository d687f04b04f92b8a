"""`gpuwatch explain` of a workload as text: what becomes of its pods and why, what keeps it, and what was done."""

import shlex
from collections.abc import Iterator
from datetime import timedelta

from gpuwatch.cli.explain_text import guard_lines, history_lines
from gpuwatch.controller.workload_rows import WorkloadPage
from gpuwatch.model.decision import Verb
from gpuwatch.model.duration import format_duration, format_time
from gpuwatch.model.money import format_usd
from gpuwatch.policies.kubernetes.workload_words import back, deed_on_kind, keep_command, typed_name, workload_of_id
from gpuwatch.runtime.printable import legible
from gpuwatch.runtime.translation import translate_text

_DAY = timedelta(days=1)


def workload_text(page: WorkloadPage, *, verbose: bool = False) -> str:
    """The workload of the page, for people: answer, pods, commands, the guard's objections and the past."""
    lines = [*_head(page), "", *_answer(page), "", "Its pods that hold GPUs:", *(f"    {each}" for each in page.pods)]
    lines += _commands(page)
    lines += guard_lines(page.if_ended_now, "its pods were ended now", verbose=verbose)
    lines += history_lines(page.history, verbose=verbose)
    if not verbose:
        lines += ["", f"Everything, with each rule: gpuwatch explain -v {shlex.quote(page.row.id)}"]
    return "\n".join(legible(translate_text(line)) for line in lines)


def _head(page: WorkloadPage) -> Iterator[str]:
    row = page.row
    owner = f", owner {row.owner}" if row.owner else ""
    price = "" if row.usd_per_hour is None else f", {format_usd(row.usd_per_hour)}/h"
    held = f"{row.pods} pod{'s' * (row.pods != 1)} with {row.gpus:g} GPU{'s' * (row.gpus != 1)}"
    yield f"{row} ({row.id}): {held}, pool {row.pool}{owner}{price}"


def _answer(page: WorkloadPage) -> Iterator[str]:
    """What will happen and why, and what would change it."""
    row = page.row
    yield f"{_outlook(page)} {row.why}"
    if not row.refused_by:
        yield f"What would change it: {row.change}"
    name = workload_of_id(row.id)
    if row.snooze is not None and name is not None:
        said = f": {row.snooze.reason}" if row.snooze.reason else ""
        yield f"Kept until {format_time(row.snooze.until)} by {row.snooze.who}{said}"
        yield f"Take that back: gpuwatch snooze {shlex.quote(typed_name(name))} --end"


def _outlook(page: WorkloadPage) -> str:
    row = page.row
    use = f"{row.activity.value} for {format_duration(row.held_seconds)}"
    if row.refused_by:
        return f"Nothing is done to it, for the guard refuses ({', '.join(row.refused_by)}); it is {use}."
    if row.ends_at is None:
        return f"{'Its notice is withdrawn' if row.action is Verb.WITHDRAW else 'Nothing is done to it'}; it is {use}."
    when = "now" if row.ends_at <= page.at else f"at {format_time(row.ends_at)}"
    told = " after a notice that it gets now" if row.action is Verb.NOTICE else ""
    return f"To be {deed_on_kind(row.kind, row.how).done} {when}{told}; it is {use}."


def _commands(page: WorkloadPage) -> Iterator[str]:
    """Kubectl's and gpuwatch's, where something is to come."""
    row, name = page.row, workload_of_id(page.row.id)
    if row.ends_at is None or row.how is None or name is None:
        return
    yield from ("", f"Keep it: {keep_command(name, row.ends_at.replace(minute=0, second=0, microsecond=0) + _DAY)}")
    yield f"or, where the controller runs: gpuwatch snooze {shlex.quote(typed_name(name))} 1d --reason WHY"
    command = back(name, row.how, row.pods)
    if command is not None:
        yield f"Back afterwards: {command}"
