"""The settings of the idle policy, as one pool has them."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, MinLen

from gpuwatch.model.duration import DurationOr, Seconds, format_duration
from gpuwatch.model.setting import STRICT, Floor, Setting
from gpuwatch.policies.profiles import DECIDED, OWNED, PROFILES, ProfileName, Removal

TERMINATE_AFTER = "terminate_after"  # the code of the reasons for which stopped nodes are terminated
_BALANCED = PROFILES["balanced"]


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleRules:
    """One pool's idle policy. Every value is plain: what its profile decides has been filled in when it was read."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    timeout: Annotated[
        float | Literal["break_even", "learned"],
        DurationOr(("break_even", "learned")),
        Floor(300),
        Setting(
            "A node idle for this long without a break becomes a candidate; break_even: what a restart costs; "
            "learned: from the pool's own gaps, never much dearer than break_even. From the profile."
        ),
    ] = _BALANCED.timeout
    restart_cost: Annotated[
        float | Literal["measured"],
        DurationOr(("measured",)),
        Floor(300),
        Setting(
            "break_even: the machine time that a restart costs (boot, environment, warm caches); measured: the pool's "
            "median from start to first work, 10 min until five starts were seen."
        ),
    ] = 600.0
    restart_usd: Annotated[
        Decimal,
        Ge(0),
        Setting(
            "break_even: what a restart costs in money besides, such as people who wait; by the price "
            "of the machine's hour that is more waiting."
        ),
    ] = Decimal(0)
    demand: Annotated[
        dict[str, Annotated[str, MinLen(1)]],
        Setting(
            "PromQL of work that waits for the pool, by names of your choice: above 0 lately, idle nodes are kept. "
            "Totals that the pool scales by count by themselves, above what its nodes should have."
        ),
    ] = field(default_factory=dict)
    hints: Annotated[
        dict[str, Annotated[str, MinLen(1)]],
        Setting(
            "learned: PromQL of numbers that tell how soon nodes are needed, such as free GPUs on busy nodes, by names "
            "of your choice; what they mean is learned."
        ),
    ] = field(default_factory=dict)
    grace_period: Annotated[
        Seconds,
        Ge(0),
        Floor(60, or_none=True),
        Setting("Grace between the notice (tag and log) and the removal; the node must stay idle. From the profile."),
    ] = _BALANCED.grace_period
    unattended_grace_period: Annotated[
        Seconds,
        Ge(0),
        Floor(60, or_none=True),
        Setting(
            "The grace of an idle node where nobody is there: its agent saw no session, and it has no "
            "owner. Not written: as `grace_period`."
        ),
    ] = _BALANCED.unattended_grace_period
    action: Annotated[
        Literal["stop", "terminate", "report", "resize-advice"],
        Setting(
            "What happens to an idle node: stop it, terminate it (also members of groups), report, or advise a resize."
        ),
    ] = "stop"
    terminate_after: Annotated[
        Annotated[Seconds, Gt(0)] | None,
        Floor(86400),
        Setting("A node that gpuwatch stopped is terminated this long after, with a new notice. None: never."),
    ] = None
    instance_store: Annotated[
        Literal["ask", "keep", "discard"],
        Setting(
            "Local disks in use lose data at a stop. keep: stop no such node; discard: stop it; ask: keep, and warn."
        ),
    ] = "ask"
    required_evidence: Annotated[
        tuple[Annotated[str, MinLen(1)], ...],
        Setting(
            "Evidence that a verdict must hold to count as idle, by name; * stands for anything, as in `gpu*.power`."
        ),
    ] = ()
    owner_grace_period: Annotated[
        Seconds,
        Ge(0),
        Floor(60, or_none=True),
        Setting("Grace between the notice and the removal of an occupied, parked or stalled node. From the profile."),
    ] = _BALANCED.owner_grace_period
    occupied: Annotated[
        Removal,
        Setting("What happens to a node on which somebody's process is alive and does nothing. From the profile."),
    ] = _BALANCED.occupied
    occupied_timeout: Annotated[
        Seconds,
        Gt(0),
        Floor(3600),
        Setting(
            "A node occupied for this long without a break becomes a candidate, unless occupied is report. From the "
            "profile."
        ),
    ] = _BALANCED.occupied_timeout
    parked: Annotated[
        Removal,
        Setting("What happens to a node that holds GPU memory but computes nothing. From the profile."),
    ] = _BALANCED.parked
    parked_timeout: Annotated[
        Seconds,
        Gt(0),
        Floor(3600),
        Setting(
            "A node parked for this long without a break becomes a candidate, unless parked is report. From the "
            "profile."
        ),
    ] = _BALANCED.parked_timeout
    stalled: Annotated[
        Removal,
        Setting("What happens to a node in a deadlock (full utilization at idle power). From the profile."),
    ] = _BALANCED.stalled
    stalled_timeout: Annotated[
        Seconds,
        Gt(0),
        Floor(3600),
        Setting("A node stalled for this long becomes a candidate, unless stalled is report. From the profile."),
    ] = _BALANCED.stalled_timeout
    max_age: Annotated[
        Annotated[Seconds, Gt(0)] | None,
        Floor(3600),
        Setting(
            "A node up for longer is reported while it works, and waits at most five minutes once idle. None: never."
        ),
    ] = None
    max_snooze: Annotated[
        Seconds,
        Ge(0),
        Floor(3600, or_none=True),
        Setting("A snooze tag holds a node back for this long at most after it turned idle."),
    ] = 604800.0


def wait_words(rules: IdleRules) -> str:
    """After what an idle node is reclaimed, in a sentence."""
    if isinstance(rules.timeout, str):
        return f"a {rules.timeout.replace('_', '-')} wait"
    return f"{format_duration(rules.timeout)} idle"


def resolved(rules: IdleRules, profile: ProfileName, written: Collection[str] = ()) -> IdleRules:
    """The rules with what the profile decides in each of these settings that nobody has written."""
    found = PROFILES[profile]
    decided: dict[str, Any] = {name: getattr(found, name) for name in DECIDED if name not in written}
    bounded = replace(rules, **decided)
    return replace(bounded, **{name: _bounded(name, value, bounded) for name, value in decided.items()})


def _bounded(name: str, value: Any, rules: IdleRules) -> Any:  # noqa: ANN401  of any setting
    """A value of the profile, or what the pool does with idle nodes where that is milder."""
    if name in OWNED:
        if value == "report" or rules.action in {"report", "resize-advice"}:
            return "report"
        return rules.action
    if name == "owner_grace_period":
        return max(value, rules.grace_period)
    if name == "unattended_grace_period":
        return rules.grace_period  # who writes a longer grace means every node
    if name.removesuffix("_timeout") in OWNED and not isinstance(rules.timeout, str):
        return max(value, rules.timeout)
    return value
