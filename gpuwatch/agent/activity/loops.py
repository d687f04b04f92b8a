"""PURE: what begins again and again and does nothing: a container that crashes, a poller, a check by SSH each minute.

1. A program is in the node's state only while it lives. Between two of its lives nobody's program is alive, so neither
   occupied nor idle would ever last, and such a machine would never be found.
2. What has come back three times, each time within 40 minutes, counts as there all the time, until it has stayed away
   for 40 minutes. The node then has the strongest state that it had within these.
3. So a state can become stronger, and never weaker. Work and a deadlock end it; doubt stays doubt.
4. What comes seldomer, stays for at most 40 minutes and does nothing is a visit. The weaker state that it interrupts
   goes on afterwards, without the time of the visit; the visitor's own state counts from zero.
"""

from dataclasses import replace

from gpuwatch.agent.activity.memory import Judgement, Loop, Paused, Track
from gpuwatch.model.activity import State

_AWAY_SECONDS = 2400.0  # as long as an idle machine of an unknown pool waits: what comes seldomer is found in between
_RETURNS = 3
_STRENGTH = {State.IDLE: 0, State.OCCUPIED: 1, State.PARKED: 2}


def hold_loop(loop: Loop, judgement: Judgement, gap: float) -> tuple[Loop, Judgement]:
    """What is remembered after one more sample, and the state that the node has in it."""
    state = judgement.state
    if state is State.UNKNOWN:
        passed = replace(loop, unseen_seconds=loop.unseen_seconds + gap, away_seconds=loop.away_seconds + gap)
        return passed, judgement
    if state not in _STRENGTH:
        return Loop(), judgement
    after = _loop_after(loop, judgement, gap)
    strongest = after.strongest
    if strongest is None or after.returns < _RETURNS or _STRENGTH[strongest.state] <= _STRENGTH[state]:
        return after, judgement
    return after, strongest


def _loop_after(loop: Loop, judgement: Judgement, gap: float) -> Loop:
    """The loop after a sample at rest."""
    away, unseen = loop.away_seconds + gap, loop.unseen_seconds + gap
    known = loop.strongest if away <= _AWAY_SECONDS else None
    if judgement.state is State.IDLE:
        return Loop() if known is None else replace(loop, unseen_seconds=unseen, away_seconds=away, gone=True)
    if known is None:
        return Loop(strongest=_said_to_return(judgement))
    returns = loop.returns + 1 if loop.gone else loop.returns
    if unseen > _AWAY_SECONDS or _STRENGTH[judgement.state] >= _STRENGTH[known.state]:
        return Loop(strongest=_said_to_return(judgement), returns=returns)
    return Loop(strongest=known, unseen_seconds=unseen, returns=returns)


def pause(track: Track, state: State, gap: float) -> tuple[Paused, ...]:
    """Keep what waits for the end of a visit after one more sample with this state at rest (rule 4)."""
    if state not in _STRENGTH:
        return ()
    kept = tuple(
        replace(each, away_seconds=each.away_seconds + gap)
        for each in track.paused
        if each.away_seconds + gap <= _AWAY_SECONDS and each.state is not state
    )
    before = track.state
    if before is state or before not in _STRENGTH or _STRENGTH[before] > _STRENGTH[state] or track.since is None:
        return kept
    left = Paused(state=before, since=track.since, held_seconds=track.held_seconds, away_seconds=gap)
    return (*(each for each in kept if each.state is not before), left)


def paused_of(track: Track, state: State, gap: float) -> Paused | None:
    """The time that goes on in a state after a visit; None: it begins now."""
    return next(
        (each for each in track.paused if each.state is state and each.away_seconds + gap <= _AWAY_SECONDS), None
    )


def _said_to_return(judgement: Judgement) -> Judgement:
    """The same in the words for the time between two of its lives."""
    said = [(each, f"begins again and again: {each.note or each.name}") for each in judgement.evidence]
    kept = (replace(each, note=note) if each.says is judgement.state else each for each, note in said)
    return replace(judgement, evidence=tuple(kept))
