"""Pieces of rounds that an older gpuwatch wrote, read as they were meant."""

from collections.abc import Callable
from typing import Any

import msgspec

from gpuwatch.guard.settings import Rulebook
from gpuwatch.model.decision import Observation, Proposal
from gpuwatch.model.fleet import DEFAULT_POOL

# Former names of fields, by what holds them, and former values of actions.
_FORMER_NAMES: dict[str, dict[str, str]] = {
    "ledger": {"keeps": "snoozes"},
    "limits": {"require_told": "require_notification"},
    "idle": {
        "after": "timeout",
        "then": "action",
        "notice": "grace_period",
        "requires": "required_evidence",
        "snooze_max": "max_snooze",
        "parked_after": "parked_timeout",
        "stalled_after": "stalled_timeout",
    },
    "window": {"at_least": "min_nodes", "at_most": "max_nodes", "after": "idle_timeout"},
    "proposal": {
        "want": "desired_nodes",
        "wish": "raw_desired_nodes",
        "at_least": "min_nodes",
        "at_most": "max_nodes",
    },
}
_FORMER_ACTIONS = {"tell": "report"}
PROFILES = "profiles"  # in rules that were written since pools have profiles
# What was in force before that where nothing else is written; idle nodes of the pool `default` were always stopped.
_FORMER_IDLE = {
    "timeout": 1800.0,
    "grace_period": 600.0,
    "occupied": "report",
    "parked": "report",
    "parked_timeout": 14400.0,
    "stalled": "report",
    "stalled_timeout": 14400.0,
}


def decode_observation(piece: bytes, *, former_names: bool) -> Observation:
    """What a round saw, without its machines; raises msgspec.MsgspecError."""
    return msgspec.msgpack.decode(
        _rename_fields(piece, _rename_in_observation) if former_names else piece, type=Observation
    )


def decode_rulebook(piece: bytes, *, former_names: bool) -> Rulebook | None:
    """The rules of a round, None where it had none; raises msgspec.MsgspecError."""
    kind: Any = Rulebook | None  # a union is no type to the type checker
    content = msgspec.msgpack.decode(_rename_fields(piece, _rename_in_rulebook) if former_names else piece)
    if content is not None and PROFILES not in content:
        _before_profiles(content)
    _before_fresh_pools(content)
    rulebook: Rulebook | None = msgspec.msgpack.decode(msgspec.msgpack.encode(content), type=kind)
    return rulebook


def _before_profiles(rulebook: dict[str, Any]) -> None:
    """The rules as they were meant: somebody's nodes were reported, and had no grace of their own."""
    pools = rulebook.setdefault("pools", {})
    pools.setdefault(DEFAULT_POOL, {})
    for rules in pools.values():
        rules["profile"] = "cautious"
        idle = rules["idle"] = _FORMER_IDLE | rules.get("idle", {})
        idle["owner_grace_period"] = idle["grace_period"]


def _before_fresh_pools(rulebook: dict[str, Any] | None) -> None:
    """The rules as they were meant: waits did not depend on what the pool had shown, nor graces on the wait."""
    for rules in ({} if rulebook is None else rulebook.get("pools", {})).values():
        idle = rules.get("idle", {})
        idle.setdefault("fresh_timeout", None)
        idle.setdefault("timeout", 1800.0)
        idle.setdefault("unattended_grace_period", idle.get("grace_period", 600.0))
        rules["idle"] = idle


def decode_proposals(piece: bytes, *, former_names: bool) -> tuple[Proposal, ...]:
    """The proposals of a round; raises msgspec.MsgspecError."""
    return msgspec.msgpack.decode(
        _rename_fields(piece, _rename_in_proposals) if former_names else piece, type=tuple[Proposal, ...]
    )


def _rename_fields(piece: bytes, rename: Callable[[Any], None]) -> bytes:
    """The piece with the present names of its fields."""
    content = msgspec.msgpack.decode(piece)
    rename(content)
    return msgspec.msgpack.encode(content)


def _rename_in_observation(observation: dict[str, Any]) -> None:
    _rename(observation.get("ledger"), "ledger")


def _rename_in_rulebook(rulebook: dict[str, Any] | None) -> None:
    if rulebook is None:
        return
    _rename(rulebook.get("limits"), "limits")
    for rules in rulebook.get("pools", {}).values():
        idle = rules.get("idle", {})
        _rename(idle, "idle")
        for key in {"action", "parked", "stalled"} & idle.keys():
            idle[key] = _FORMER_ACTIONS.get(idle[key], idle[key])
        for window in rules.get("schedule", {}).values():
            _rename(window, "window")


def _rename_in_proposals(proposals: list[dict[str, Any]]) -> None:
    for proposal in proposals:
        _rename(proposal, "proposal")


def _rename(fields: dict[str, Any] | None, kind: str) -> None:
    """Former names become the present ones."""
    for old, new in _FORMER_NAMES[kind].items():
        if fields is not None and old in fields:
            fields[new] = fields.pop(old)
