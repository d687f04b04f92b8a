"""`gpuwatch explain` as text: first what will happen and why, then what bears on it; all of it with -v."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from gpuwatch.controller.explain import BusyRow, NodePage
from gpuwatch.controller.observe.agent_errors import kind_of
from gpuwatch.ledger import Entry
from gpuwatch.ledger.audit_log import ENTRIES
from gpuwatch.model.activity import Evidence, State
from gpuwatch.model.decision import REMOVALS, Answer, Verb
from gpuwatch.model.duration import format_duration, format_time
from gpuwatch.model.evidence_text import amount_text, nothing_text, owner_text
from gpuwatch.model.fleet import NodeState
from gpuwatch.model.gpu_identity import gpu_name
from gpuwatch.model.health import Health
from gpuwatch.model.money import day_with_age, format_usd
from gpuwatch.policies.slurm_sick import NODE
from gpuwatch.runtime.printable import legible
from gpuwatch.runtime.table import align_rows
from gpuwatch.runtime.translation import translate_text

_FEW_SIGNALS, _FEW_ENTRIES = 4, 3  # that the short text shows

# How far the evidence of a state is above what says idle; the signals that decided come first.
_RANK = {state: rank for rank, state in enumerate(State)}

_DONE: dict[Verb | None, str] = {Verb.STOP: "stopped", Verb.TERMINATE: "terminated"}

# What comes next for a node of Kubernetes or Slurm: "It is …".
_ON_CLUSTER = {
    Verb.CORDON: "cordoned",
    Verb.DRAIN: "drained",
    Verb.UNCORDON: "uncordoned",
    Verb.QUARANTINE: "cordoned for its health",
    Verb.EVACUATE: "evacuated before its cloud takes it",
    Verb.EVICT: "drained for its health",
    Verb.MARK: "marked as in use",
    Verb.UNMARK: "no longer marked as in use",
    Verb.SLURM_DRAIN: "drained in Slurm for its health",
    Verb.SLURM_RESUME: "resumed in Slurm",
}
# The same steps, where the node is one of Slurm.
_IN_SLURM = {Verb.CORDON: "drained in Slurm before its end", Verb.UNCORDON: "resumed in Slurm"}


def explain_text(page: NodePage, *, verbose: bool = False) -> str:
    """The node of the page, for people: answer, evidence, the guard's objections and the past; `verbose`: everything.

    A line may be longer than a terminal is wide: the caller wraps it.
    """
    lines = [*_head(page), "", *_answer(page), ""]
    lines += _evidence(page, verbose=verbose)
    lines += _health(page)
    if verbose:
        lines += [*_last_busy(page), *_blind(page)]
        lines += ["", f"Policy: {page.step.verb.value}. {page.step.reason.sentence}"]
        lines += [f"    What would change it: {page.step.change}"]
    lines += guard_lines(page.if_stopped_now.answers, "it were stopped now", verbose=verbose)
    lines += history_lines(page.history, verbose=verbose)
    if verbose and page.pool_reasons:
        lines += ["", "Pool:", *(f"    {each}" for each in page.pool_reasons)]
    if page.row.price_as_of is not None:
        lines += ["", f"Price: {page.row.price_source}, of {day_with_age(page.row.price_as_of, page.at.date())}"]
    if not verbose:
        lines += ["", f"Everything, with each signal and each rule: gpuwatch explain -v {page.row.name}"]
    return "\n".join(legible(translate_text(line)) for line in lines)


def _head(page: NodePage) -> Iterator[str]:
    row = page.row
    name = row.id if row.name == row.id else f"{row.id} ({row.name})"
    enrolled = "enrolled" if row.enrolled else "not enrolled"
    owner = f", owner {row.owner}" if row.owner else ""
    price = "" if row.usd_per_hour is None else f", {format_usd(row.usd_per_hour)}/h"
    where = row.zone or row.region
    place = where if row.cloud is None else f"{where} of {row.cloud}"
    yield f"{name}: {row.instance_type} in {place}, pool {row.pool}{owner}, {row.state.value}, {enrolled}{price}"


def _answer(page: NodePage) -> Iterator[str]:
    """What will happen and why, and what would change it."""
    kind = kind_of(page.activity.doubt) if page.row.activity is State.UNKNOWN else None
    yield f"{_outlook(page)} {page.step.reason.sentence}"
    if page.row.unreached is not None:
        yield page.row.unreached
    if page.last_reset:
        yield page.last_reset
    if kind is not None:
        yield f"Remedy: {kind.remedy}"
    elif page.cloud_notice is None and (page.row.next is None or not page.row.next.refused_by):
        yield f"What would change it: {page.step.change}"
    for answer in _refusing(page):
        yield f"{answer.rule}: {translate_text(f'{answer.sentence} {answer.remedy}')}"


def _refusing(page: NodePage) -> tuple[Answer, ...]:
    """The answers of the rules that block what comes next."""
    blocked = () if page.row.next is None else page.row.next.refused_by
    return tuple(each for each in page.if_stopped_now.answers if each.refused and each.rule in blocked)


def _outlook(page: NodePage) -> str:
    """What happens next, and when."""
    after = page.row.next
    if page.cloud_notice is not None:
        return f"Its cloud takes it {_when(page.cloud_notice.at, page.at)}, and gpuwatch cannot prevent it."
    if after is None:
        return "It keeps running." if page.row.activity is not None else "Nothing happens to it."
    blocked, later = bool(after.refused_by), after.at > page.at
    rules = f", but {_rules(after.refused_by)} that" if blocked else ""
    when, removal = _when(after.at, page.at), after.removal_at
    unless = f", unless somebody {'starts' if page.row.state is NodeState.STOPPED else 'uses'} it before"
    if after.verb in REMOVALS:
        return (
            f"It {'would be' if blocked else 'will be' if later else 'is'} {_DONE[after.verb]} {when}"
            f"{rules or unless * later}."
        )
    if after.verb is Verb.NOTICE:
        gone = _DONE.get(after.removal, "stopped or terminated")
        then = "" if removal is None else f" and be {gone} {_when(removal, page.at)} at the earliest"
        return f"It {'would' if blocked else 'will'} get its notice {when}{then}{rules or unless}."
    if after.verb is Verb.WITHDRAW:
        return f"Its notice {'would be' if blocked else 'is'} withdrawn {when}{rules}."
    if after.verb in _ON_CLUSTER:
        done = (_IN_SLURM if NODE in page.step.arguments else _ON_CLUSTER).get(after.verb, _ON_CLUSTER[after.verb])
        return f"It {'would be' if blocked else 'is'} {done} {when}{rules}."
    return f"Next: {after.verb.value} {when}{rules}."


def _rules(names: Sequence[str]) -> str:
    """`the rule protected forbids`, `the rules a and b forbid`."""
    if len(names) == 1:
        return f"the rule {names[0]} forbids"
    return f"the rules {', '.join(names[:-1])} and {names[-1]} forbid"


def _when(at: datetime, now: datetime) -> str:
    """`now`, or `at 12:10 UTC (in 4m)`; with the day where it is another one."""
    left = (at - now).total_seconds()
    if left <= 0:
        return "now"
    clock = f"{at:%H:%M} UTC" if at.date() == now.date() else format_time(at)
    return f"at {clock} (in {format_duration(left)})"


def _evidence(page: NodePage, *, verbose: bool) -> Iterator[str]:
    """The verdict with the signals that decided it, or with all."""
    yield f"Verdict: {_verdict(page)}"
    found = sorted(page.activity.evidence, key=lambda each: (_RANK[each.says], -_share(each)))
    shown = page.activity.evidence if verbose else found[:_FEW_SIGNALS]
    rows = [
        (
            each.name,
            translate_text(each.says.value),
            translate_text(amount_text(each) or "-"),
            *_subject_words(each, verbose=verbose),
        )
        for each in shown
    ]
    yield from (f"    {line}" for line in align_rows(rows, left=None))
    left = found[len(shown) :]
    if left:
        says = sorted({each.says.value for each in left})
        yield f"    and {len(left)} more, which say {' or '.join(says)}"


def _share(each: Evidence) -> float:
    """How much of its limit was seen."""
    return 0.0 if each.observed is None or not each.limit else each.observed / each.limit


def _subject_words(each: Evidence, *, verbose: bool) -> tuple[str, ...]:
    """Who or what it was; with -v the source and the setting, too."""
    who = "; ".join(part for part in (each.note, owner_text(each.owner)) if part)
    return (
        (translate_text(who or "-"), translate_text(each.source), each.setting or "-")
        if verbose
        else (translate_text(who),)
    )


def _verdict(page: NodePage) -> str:
    """The activity as a sentence."""
    activity = page.activity
    if activity.state is State.UNKNOWN:
        return f"unknown: {activity.doubt}"
    since = "" if activity.since is None else f" (since {format_time(activity.since, seconds=True)})"
    return f"{activity.state.value} for {format_duration(activity.held_seconds)}{since}"


def guard_lines(answers: Sequence[Answer], had_it: str, *, verbose: bool) -> Iterator[str]:
    """What each rule says to its end at this moment; the short text has the objections."""
    refused = [each for each in answers if each.refused]
    agreed = [each for each in answers if not each.refused]
    yield from ("", f"Guard, if {had_it}:")
    rows = [
        (translate_text("refuses"), each.rule, translate_text(f"{each.sentence} {each.remedy}")) for each in refused
    ]
    if verbose:
        rows += [(translate_text("agrees"), each.rule, translate_text(each.sentence)) for each in agreed]
    yield from (f"    {line}" for line in align_rows(rows, left=None))
    if not verbose:
        yield f"    {'the other ' if refused else 'all '}{len(agreed)} rules agree"


def history_lines(history: Sequence[Entry], *, verbose: bool) -> Iterator[str]:
    """What was done to it; the short text has the newest."""
    if not history:
        yield from ("", "Ledger: gpuwatch has never acted on it.")
        return
    shown = history if verbose else history[:_FEW_ENTRIES]
    if len(history) >= ENTRIES:  # there may be more of them
        head = f"Ledger, the newest {len(shown)}:"
    else:
        head = "Ledger:" if len(shown) == len(history) else f"Ledger, the newest {len(shown)} of {len(history)}:"
    yield from ("", head)
    for entry in shown:
        ends = ", ".join(
            f"{translate_text(o.status.value)} {format_time(o.at, seconds=True)} ({translate_text(o.detail)})"
            for o in entry.outcomes
        ) or translate_text("open")
        done = f"{format_time(entry.intent.at, seconds=True)} {translate_text(entry.intent.verb.value)}"
        yield f"    {done}: {translate_text(entry.intent.reason.sentence)} -> {ends}"


def _last_busy(page: NodePage) -> Iterator[str]:
    """What set the idle time to zero last, by signal."""
    began = page.agent_started_at
    if not page.last_busy:
        if began is not None:  # an older agent, or Prometheus, does not say
            yield from ("", "What was busy last:", f"    {nothing_text(began)}")
        return
    since = "" if began is None else f" since the agent started at {format_time(began, seconds=True)}"
    yield from ("", f"What was busy last{since}:")
    head = ("WHEN", "AT", "SIGNAL", "SAID", "SEEN", "WHO", "SETTING TO CHANGE")
    yield from (
        f"    {line}" for line in align_rows([tuple(map(translate_text, head)), *map(_busy, page.last_busy)], left=None)
    )


def _busy(row: BusyRow) -> tuple[str, ...]:
    return (
        translate_text("now" if row.ago_seconds == 0 else f"{format_duration(row.ago_seconds)} ago"),
        format_time(row.at, seconds=True),
        row.evidence.name,
        translate_text(row.evidence.says.value),
        translate_text(row.amount or "-"),
        translate_text(row.who or "-"),
        row.evidence.setting or "-",
    )


def _blind(page: NodePage) -> Iterator[str]:
    """What its agent cannot see."""
    if page.blind:
        yield from ("", "What its agent cannot see:", *(f"    {each}" for each in page.blind))


def _health(page: NodePage) -> Iterator[str]:
    """Each GPU that is not well, with what is wrong and what to do."""
    for gpu in page.gpus:
        if gpu.health is None or gpu.health.state is Health.HEALTHY:
            continue
        since = "" if gpu.health.since is None else f" since {format_time(gpu.health.since, seconds=True)}"
        doubt = f": {gpu.health.doubt}" if gpu.health.doubt else ""
        yield f"    {gpu_name(gpu.uuid, gpu.index)} is {gpu.health.state.value}{since}{doubt}"
        for each in gpu.health.findings:
            yield f"        {each.code}: {each.sentence} Remedy: {each.remedy.value}; source: {each.source}"
