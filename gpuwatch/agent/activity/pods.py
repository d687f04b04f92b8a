"""PURE: what each pod with GPUs does besides them, folded over time by the rules of the machine's own verdict.

A pod is busy by any busy evidence of its own, or of the machine where that cannot be divided among pods; else unknown
by any doubt; else idle. Time counts as for the machine (rules 4 and 5 of `agent.activity`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuwatch.agent.activity.fold import advance, combine_judgements, elapsed_seconds, host_judgement
from gpuwatch.agent.activity.memory import Judgement, Memory, Sample, Track
from gpuwatch.agent.activity.settings import ActivityRules
from gpuwatch.model.activity import Evidence, State
from gpuwatch.model.verdict import PodVerdict

_QUIET = frozenset({State.IDLE, State.OCCUPIED})  # a program that is alive and at rest keeps no pod


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLook:
    """What was seen of a pod. `divided` are signals of the machine for which this stands, as far as this pod goes."""

    name: str | None = None
    evidence: tuple[Evidence, ...] = ()
    divided: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTracks:
    """What is remembered of pods between samples, by uid."""

    names: Mapping[str, str | None] = field(default_factory=dict)
    by_uid: Mapping[str, Track] = field(default_factory=dict)

    @property
    def verdicts(self) -> tuple[PodVerdict, ...]:
        """What each does, in the order of their uids."""
        return tuple(
            PodVerdict(uid=uid, name=self.names[uid], activity=track.shown)
            for uid, track in sorted(self.by_uid.items())
        )


def fold_pods(
    known: PodTracks, memory: Memory, sample: Sample, looks: Mapping[str, PodLook], rules: ActivityRules
) -> PodTracks:
    """The tracks after one more sample; `memory` is the machine's before it. A pod that is not looked at is dropped."""
    gap, doubt = elapsed_seconds(memory, sample)
    tracks = {
        uid: advance(known.by_uid.get(uid, Track()), _judge_sample(look, sample.host, doubt), sample.at, gap, rules)
        for uid, look in looks.items()
    }
    return PodTracks(names={uid: look.name for uid, look in looks.items()}, by_uid=tracks)


def _judge_sample(look: PodLook, host: tuple[Evidence, ...], doubt: str | None) -> Judgement:
    """What one sample shows of a pod."""
    others = (each for each in host if each.name not in look.divided)
    found = [host_judgement(each) for each in (*look.evidence, *others) if each.says not in _QUIET]
    if doubt is not None:
        found.append(Judgement(state=State.UNKNOWN, doubt=doubt))
    if not found:
        return Judgement(state=State.IDLE)
    return combine_judgements(found, doubt)
