"""What is proposed, decided and refused, each with its reason.

A Step is one thing for one target: a node, a group that grows, or a node yet to be launched. A Proposal is a policy's
view of a pool and never a command; it is returned also when it holds. A Decision is what `resolve` makes of all
proposals. The guard answers each of its steps.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from gpuwatch.model.activity import Evidence
from gpuwatch.model.duration import format_duration
from gpuwatch.model.verbs import Verb

_IDLE = "It has been "
_NOTICE = ". The notice of "  # what follows it says the notice's times


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why: a stable code for counting, a sentence for people, the evidence for both."""

    code: str
    sentence: str
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One target's part in a proposal. `change` says what would make it come out otherwise.

    `node_id` is the node; of GROW the group's id; of LAUNCH `new:<pool>:<number>`. `arguments` go to the cloud as they
    are and stay with the intent, so that a second attempt asks for the very same. GROW has `size` (absolute, so that
    asking twice is asking once), LAUNCH what its pool's template says, NOTICE what is to be promised.
    """

    node_id: str
    verb: Verb
    reason: Reason
    change: str
    arguments: Mapping[str, str] = field(default_factory=dict)


class Steps(tuple[Step, ...]):  # noqa: SLOT001  a tuple with a field of its own cannot have them
    """Steps of which those that do not hold are known: of thousands few do, and each rule asks for those."""

    changing: tuple[Step, ...]

    @classmethod
    def one_per_target(cls, steps: Iterable[Step], changing: Iterable[Step]) -> "Steps":
        """One step for each target, and of them those that do not hold, in the same order."""
        made = cls(steps)
        made.changing = tuple(changing)
        return made


def changing(steps: Sequence[Step]) -> Sequence[Step]:
    """Those that do not hold."""
    if isinstance(steps, Steps):
        return steps.changing
    hold = Verb.HOLD
    return [step for step in steps if step.verb is not hold]


def step_for(target: str, steps: Sequence[Step]) -> Step | None:
    """The step for this target."""
    likely = next((step for step in changing(steps) if step.node_id == target), None)
    return likely or next((step for step in steps if step.node_id == target), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What people might do about a node or a pool and gpuwatch never does by itself."""

    target: str
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What one policy wants of one pool: bounds on its running nodes, and steps. In a pool that counts GPUs, of these.

    `desired_nodes` is also a floor for removals. `kept_nodes` is such a floor and nothing else: so many stay that are
    there, and none is bought for it. `grows` says whether this policy's `desired_nodes` and `min_nodes` may add nodes.
    `raw_desired_nodes` is the number before smoothing, kept in the ledger for the stabilisation window.
    """

    policy: str
    pool: str
    reason: Reason
    desired_nodes: int | None = None
    min_nodes: int | None = None
    max_nodes: int | None = None
    kept_nodes: int | None = None
    grows: bool = False
    raw_desired_nodes: int | None = None
    steps: tuple[Step, ...] = ()
    advice: tuple[Advice, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One pool's resolved steps; `clamps` says in sentences what the bounds changed.

    `target` is how large the pool should be where a policy wants a number, None where none does; `unit` is what that is
    counted in, nodes or gpus. `wanted` is the target without what only stays.
    """

    pool: str
    steps: tuple[Step, ...]
    clamps: tuple[str, ...] = ()
    target: int | None = None
    advice: tuple[Advice, ...] = ()
    unit: Literal["nodes", "gpus"] = "nodes"
    wanted: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One guard rule's answer on one step; `refused` is an objection, otherwise the sentence says why it agrees."""

    rule: str
    refused: bool
    sentence: str
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """All rules' answers on one step: every rule runs, every objection is listed."""

    pool: str
    step: Step
    answers: tuple[Answer, ...]

    @property
    def refusals(self) -> tuple[Answer, ...]:
        """The objections; any of them stops the step."""
        return tuple(answer for answer in self.answers if answer.refused)

    @property
    def allowed(self) -> bool:
        """Whether no rule objects."""
        return not self.refusals


def reason_with_refusals(step: Step, refusals: Sequence[Answer]) -> str:
    """Why a step is taken, and why the guard refuses it."""
    if step.verb is Verb.WITHDRAW and {answer.rule for answer in refusals} == {"in_flight"}:
        # Nobody waits for that: the machine is on its way down, and its notice goes once that is known.
        return f"{step.reason.sentence} Its notice ends once the last action on it has settled."
    return " ".join([step.reason.sentence, *(f"But: {answer.sentence}" for answer in refusals)])


def stop_words(reason: Reason, grace_seconds: float | None) -> str:
    """Why gpuwatch stopped a machine, such as `idle for 16m27s, notice of 5m had run out`; no period at the end.

    Args:
        reason: of the stop's intent.
        grace_seconds: what its notice promised; None: not known.

    """
    head, notice, _ = reason.sentence.partition(_NOTICE)
    if reason.code != "expired" or not notice or not head.startswith(_IDLE):
        return reason.sentence.rstrip(".")
    grace = "its notice" if grace_seconds is None else f"notice of {format_duration(grace_seconds)}"
    return f"{head.removeprefix(_IDLE)}, {grace} had run out"
