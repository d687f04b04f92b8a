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
    fresh_timeout: Annotated[
        Annotated[Seconds, Gt(0)] | None,
        Floor(300),
        Setting(
            "learned: the wait, its notice included, until enough history exists (20 pauses that ended in work, 3 "
            "days), and for each node's first pause; never below a restart's cost. From the profile; None where "
            "`timeout` is written."
        ),
    ] = _BALANCED.fresh_timeout
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
    waiting_usd_per_hour: Annotated[
        Decimal,
        Ge(0),
        Setting(
            "What an hour costs in which somebody waits for a machine that was stopped too soon: a quarter of an "
            "engineer's hour of $120, as the rest is spent on other work. The dearer, the longer is a learned wait. "
            "0: nobody waits, as in batch pools."
        ),
    ] = Decimal(30)
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
            "The grace of an idle node where nobody is there: its agent saw no session, and it has no owner. During "
            "`fresh_timeout`: as `grace_period`. From the profile; as `grace_period` where that or `timeout` is "
            "written."
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
    terminate_grace_period: Annotated[
        Seconds,
        Ge(0),
        Floor(60, or_none=True),
        Setting(
            "Grace between the notice and the termination of a node that gpuwatch stopped: nobody sees a notice on a "
            "machine that is off, and its disks are lost. No profile shortens it."
        ),
    ] = 259200.0
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
        Setting(
            "Grace between the notice and the removal of an occupied, parked or stalled node, and of any node the "
            "notice of which is a question (docs/policies/idle.md#the-first-notice-is-a-question). From the profile."
        ),
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

    @property
    def fresh_seconds(self) -> float | None:
        """The wait that comes before a learned one; None: no such wait."""
        return self.fresh_timeout if self.timeout == "learned" else None


def wait_words(rules: IdleRules) -> str:
    """After what an idle node is reclaimed, in a sentence."""
    if isinstance(rules.timeout, str):
        first = "" if rules.fresh_seconds is None else f"{format_duration(rules.fresh_seconds)} idle, later "
        return f"{first}a {rules.timeout.replace('_', '-')} wait"
    return f"{format_duration(rules.timeout)} idle"


def resolve_rules(rules: IdleRules, profile: ProfileName, written: Collection[str] = ()) -> IdleRules:
    """The rules with what the profile decides in each of these settings that nobody has written."""
    found = PROFILES[profile]
    decided: dict[str, Any] = {name: getattr(found, name) for name in DECIDED if name not in written}
    if "timeout" in written and "fresh_timeout" in decided:
        decided["fresh_timeout"] = None
    bounded = replace(rules, **decided)
    if not {"timeout", "grace_period"}.isdisjoint(written) and "unattended_grace_period" in decided:
        decided["unattended_grace_period"] = bounded.grace_period  # who writes a wait or a grace means every node
    return replace(bounded, **{name: _bound_value(name, value, bounded) for name, value in decided.items()})


def _bound_value(name: str, value: Any, rules: IdleRules) -> Any:  # noqa: ANN401  of any setting
    """A value of the profile, or what the pool does with idle nodes where that is milder."""
    fixed = rules.fresh_seconds if isinstance(rules.timeout, str) else rules.timeout
    if name in OWNED:
        if value == "report" or rules.action in {"report", "resize-advice"}:
            return "report"
        return rules.action
    if name == "owner_grace_period":
        return max(value, rules.grace_period)
    if name.removesuffix("_timeout") in OWNED and fixed is not None:
        return max(value, fixed)
    return value
