"""Profiles: how bold a pool is, in one word, what that decides, and that it is never bolder than with idle nodes."""

from dataclasses import asdict, replace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.policies import PoolRules
from gpuwatch.policies.idle_settings import IdleRules, resolve_rules
from gpuwatch.policies.profiles import DECIDED, OWNED, PROFILES, ProfileName
from tests.support.builders.fleet import HOUR

MINUTE = 60.0


def decided(name: ProfileName) -> dict[str, Any]:
    """What a word decides for a pool of which nothing else is written."""
    rules = asdict(resolve_rules(IdleRules(), name))
    return {each: rules[each] for each in DECIDED}


def test_cautious_removes_idle_nodes_alone_after_two_hours() -> None:
    """It reports what is somebody's, and gives half an hour of notice for the rest."""
    found = resolve_rules(IdleRules(), "cautious")

    assert (found.timeout, found.grace_period, found.action) == (2 * HOUR, 30 * MINUTE, "stop")
    assert (found.occupied, found.parked, found.stalled) == ("report", "report", "report")


def test_balanced_leaves_somebodys_machine_alone_for_twenty_hours() -> None:
    """Left at 18:00 it is untouched the next morning; the notice comes at 10:00, the stop at 14:00, within a day."""
    found = resolve_rules(IdleRules(), "balanced")

    assert (found.timeout, found.fresh_timeout) == ("learned", 15 * MINUTE)
    assert (found.grace_period, found.unattended_grace_period) == (10 * MINUTE, MINUTE)
    for state in OWNED:
        assert (getattr(found, state), getattr(found, f"{state}_timeout")) == ("stop", 16 * HOUR)
    assert found.owner_grace_period == 4 * HOUR


def test_eager_finds_what_was_left_behind_in_two_and_a_half_hours() -> None:
    """For batch pools, where nobody comes back."""
    found = resolve_rules(IdleRules(), "eager")

    assert (found.timeout, found.fresh_timeout) == ("learned", 15 * MINUTE)
    assert (found.grace_period, found.unattended_grace_period) == (10 * MINUTE, MINUTE)
    for state in OWNED:
        assert (getattr(found, state), getattr(found, f"{state}_timeout")) == ("stop", 2 * HOUR)
    assert found.owner_grace_period == 30 * MINUTE


def test_every_word_has_its_values_and_rules_without_one_are_balanced() -> None:
    """Rules that are made in code have plain values, the same as an empty configuration."""
    assert set(PROFILES) == set(get_args(ProfileName))
    assert resolve_rules(IdleRules(), "balanced") == IdleRules()
    assert PoolRules().profile == "balanced"


def test_what_is_written_wins() -> None:
    """Each setting by itself; the others stay the profile's."""
    rules = IdleRules(parked="stop", occupied_timeout=HOUR)
    found = resolve_rules(rules, "cautious", {"parked", "occupied_timeout"})

    assert (found.parked, found.occupied_timeout) == ("stop", HOUR)
    assert (found.occupied, found.stalled, found.timeout) == ("report", "report", 2 * HOUR)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("action", ["report", "resize-advice"])
def test_a_pool_that_only_tells_about_idle_nodes_only_tells_about_others(profile: ProfileName, action: Any) -> None:  # noqa: ANN401  a choice
    """What is nobody's goes before what is somebody's."""
    found = resolve_rules(IdleRules(action=action), profile, {"action"})

    assert {getattr(found, state) for state in OWNED} == {"report"}


def test_members_of_groups_are_terminated_only_where_the_pool_says_terminate() -> None:
    """A group replaces what is stopped; a profile by itself terminates nothing."""
    ending = resolve_rules(IdleRules(action="terminate"), "balanced", {"action"})
    telling = resolve_rules(IdleRules(action="terminate"), "cautious", {"action"})

    assert {getattr(ending, state) for state in OWNED} == {"terminate"}
    assert {getattr(telling, state) for state in OWNED} == {"report"}
    assert not any("terminate" in decided(name).values() for name in PROFILES)


_BOLDNESS = {"report": 0, "resize-advice": 0, "stop": 1, "terminate": 2}


@given(
    profile=st.sampled_from(sorted(PROFILES)),
    timeout=st.floats(300, 1e6) | st.sampled_from(["break_even", "learned"]),
    grace=st.floats(0, 1e6),
    action=st.sampled_from(["stop", "terminate", "report", "resize-advice"]),
    written=st.sets(st.sampled_from(["timeout", "grace_period", "action"])),
)
def test_a_profile_is_never_bolder_with_somebodys_nodes_than_with_idle_ones(
    profile: ProfileName, timeout: float | str, grace: float, action: str, written: set[str]
) -> None:
    """No sharper action, no shorter wait, no shorter grace, whatever is written about idle nodes."""
    rules = IdleRules(timeout=timeout, grace_period=grace, action=action)  # type: ignore[arg-type]  # of its choices
    found = resolve_rules(rules, profile, written)

    assert found.owner_grace_period >= found.grace_period
    for state in OWNED:
        assert _BOLDNESS[getattr(found, state)] <= _BOLDNESS[found.action]
        if not isinstance(found.timeout, str):
            assert getattr(found, f"{state}_timeout") >= found.timeout


@given(profile=st.sampled_from(sorted(PROFILES)), written=st.sets(st.sampled_from(DECIDED)))
def test_resolving_once_more_changes_nothing(profile: ProfileName, written: set[str]) -> None:
    """Rules that went through the ledger are the same rules."""
    once = resolve_rules(replace(IdleRules(), timeout=7 * HOUR, grace_period=5 * HOUR), profile, written)

    assert resolve_rules(once, profile, written) == once


def test_the_profiles_short_grace_goes_with_its_own_wait_and_grace_only() -> None:
    """Who writes a time, a rule or a grace gets that for every node, and no fixed wait before it."""
    for timeout in (900.0, "break_even", "learned"):
        found = resolve_rules(IdleRules(timeout=timeout), "balanced", {"timeout"})
        assert (found.timeout, found.fresh_timeout) == (timeout, None)
        assert found.unattended_grace_period == found.grace_period == 10 * MINUTE

    longer = resolve_rules(IdleRules(grace_period=HOUR), "balanced", {"grace_period"})
    assert (longer.timeout, longer.unattended_grace_period) == ("learned", HOUR)
    slower = resolve_rules(IdleRules(fresh_timeout=HOUR), "eager", {"fresh_timeout"})
    assert (slower.timeout, slower.fresh_timeout, slower.unattended_grace_period) == ("learned", HOUR, MINUTE)
    both = resolve_rules(IdleRules(timeout="learned", fresh_timeout=HOUR), "balanced", {"timeout", "fresh_timeout"})
    assert both.fresh_timeout == HOUR
