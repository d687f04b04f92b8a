"""PURE: one decision of all proposals for a pool.

Rules: the largest wish, then minimums, then maximums; every limit that took effect is a sentence. Where policies differ
over one node, the safest step wins. A wish keeps as many nodes as it wants, whatever else would remove them. A hold
does the same and is no wish: nothing is bought for it.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Protocol

from gpuwatch.model.decision import REMOVAL_STEPS, Decision, Observation, Proposal, Step, Verb
from gpuwatch.model.proposal import Steps, changing
from gpuwatch.policies import (
    batch,
    capacity,
    floors,
    lasting,
    machines,
    next_offer,
    notices,
    replacement,
    slurm_removal,
    slurm_sick,
    stuck_actions,
    uncounted,
    wakes,
)
from gpuwatch.policies.kubernetes import nodes as kubernetes
from gpuwatch.policies.kubernetes import steps as kubernetes_steps
from gpuwatch.policies.launches import doubtful_size
from gpuwatch.policies.sizes import Sizes
from gpuwatch.policies.spot import back
from gpuwatch.policies.spot.records import OFFER


class Rules(back.Rules, kubernetes_steps.Rules, wakes.Rules, Protocol):
    """What of a pool's rules matters here."""


# Where policies differ over one node, the safest verb wins; a start wins over what was meant for a stopped node.
# UNPROTECT stands right before TERMINATE: it is the first half of one, and nothing else gives way to it.
_SAFEST_FIRST = (
    Verb.UNCORDON,
    Verb.WITHDRAW,
    Verb.PROTECT,
    Verb.START,
    Verb.HOLD,
    Verb.NOTICE,
    Verb.MARK,
    Verb.UNMARK,
    Verb.QUARANTINE,
    Verb.EVACUATE,
    Verb.EVICT,
    Verb.CORDON,
    Verb.DRAIN,
    Verb.STOP,
    Verb.UNPROTECT,
    Verb.TERMINATE,
    Verb.SHRINK,
    Verb.GROW,
    Verb.LAUNCH,
)


def resolve(observation: Observation, pool: str, proposals: Sequence[Proposal], rules: Rules) -> Decision:
    """One decision of all proposals: what must stay, what must come, and a step for each node."""
    proposed = [proposal.steps for proposal in proposals if proposal.steps]
    steps = proposed[0] if len(proposed) == 1 else tuple(chain.from_iterable(proposed))
    wanted = max((proposal.desired_nodes for proposal in proposals if proposal.desired_nodes is not None), default=0)
    least = max((proposal.min_nodes for proposal in proposals if proposal.min_nodes is not None), default=0)
    stays = max((proposal.kept_nodes for proposal in proposals if proposal.kept_nodes is not None), default=0)
    most = min((proposal.max_nodes for proposal in proposals if proposal.max_nodes is not None), default=None)
    clamps = [proposal.reason.sentence for proposal in proposals if proposal.policy == batch.NAME]
    clamps += [*uncounted.missing_sentences(observation, pool), *next_offer.faults(observation, pool)]
    clamps += lasting.rest_sentences(observation, pool)
    if going := len(machines.pool_machines(observation, pool).taken) if observation.fleet.with_notice else 0:
        said = "1 node, which no longer counts" if going == 1 else f"{going} nodes, which no longer count"
        clamps.append(f"The cloud is about to take {said}.")
    sizes = rules.sizes(observation.fleet)
    added: Sequence[Step] = ()
    target, grows = None, any(proposal.grows for proposal in proposals)
    owed, short = (0, "") if grows else replacement.owed_replacements(observation, pool, rules.health, sizes)
    clamps += [short] if short else []
    if grows or owed:
        has = machines.now(observation, pool, sizes)
        target = max(wanted, least, has + owed if owed else 0)
        if wanted < least:
            asked = f"{sizes.words(wanted)} {'are' if wanted != 1 else 'is'} wanted, the floor is {least}."
            clamps.append(asked if wanted else f"The floor is {sizes.words(least)}.")
        if most is not None and target > most:
            clamps.append(f"{target} {sizes.unit} are wanted, the ceiling is {most}.")
            target = most
        several = None if sizes.gpus is None else rules.max_nodes
        added = capacity.additions(
            observation, pool, target, rules.sources, rules.start, sizes=sizes, most=most, machines=several
        )
        counted = has + sizes.total(observation.fleet, added)
        counted += doubtful_size(observation, pool, rules.sources, sizes)
        steps = (*steps, *uncounted.taken_back(observation, pool, target, counted, sizes), *added)
        steps = (*steps, *back.ahead(observation, pool, target, rules, steps))
        clamps += _needed_words(observation, target - has, added, sizes)
        missing = target - counted
        if missing > 0:
            unsized = machines.unsized_machines(observation, pool, sizes)
            groups = [each for each in observation.fleet.roster(pool).groups if each.enrolled]
            unsized += [f"the group {each.name}" for each in groups if sizes.kind(each.instance_type) is None]
            why = f"nobody knows the GPUs of {', '.join(unsized)}" if unsized else _nothing(pool, rules, sizes)
            clamps.append(f"{missing} more {sizes.unit} are needed and {why}.")
    woken, held_back = wakes.woken(observation, pool, rules, added, sizes, most)
    steps, clamps = (*steps, *woken), clamps + held_back
    steps = _safest(back.back_steps(steps, observation, pool, target, rules))
    changes = {step.node_id: step for step in changing(steps)}

    # A wish keeps as many nodes as it wants, whatever else would remove them.
    kept, clamp = floors.keep_floor(observation, pool, list(changes.values()), max(wanted, least, stays), rules)
    clamps += [clamp] if clamp else []
    now = {node_id: _in_date(kept.get(node_id, step), observation) for node_id, step in changes.items()}
    if any(now[node_id] is not step for node_id, step in changes.items()):
        steps = Steps.one_per_target([now.get(step.node_id, step) for step in steps], changing(list(now.values())))
    return Decision(
        pool=pool,
        steps=replacement.note_sick_ends(
            slurm_sick.all_stepped(
                slurm_removal.removal_steps(
                    kubernetes.node_steps(steps, observation, rules), observation, rules.health
                ),
                observation,
                rules.health,
            ),
            observation,
            rules.health,
        ),
        clamps=tuple(clamps),
        target=None if target is None else max(target, min(stays, machines.now(observation, pool, sizes))),
        unit=sizes.key,
        wanted=target,
        advice=(
            *(each for proposal in proposals for each in proposal.advice),
            *stuck_actions.advice(observation, pool),
        ),
    )


def _safest(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """One step for each node: where policies differ over one, the safest."""
    if isinstance(steps, Steps):  # of one policy
        return steps
    chosen: dict[str, Step] = {}
    for step in steps:
        rival = chosen.setdefault(step.node_id, step)
        if rival is not step:
            chosen[step.node_id] = min(step, rival, key=lambda each: _SAFEST_FIRST.index(each.verb))
    return tuple(chosen.values())


def _needed_words(observation: Observation, missing: int, added: Sequence[Step], sizes: Sizes) -> list[str]:
    """What comes for the GPUs that are missing; where nodes count, their number says it."""
    if sizes.gpus is None or not added:
        return []
    machines: dict[tuple[int, str], int] = {}
    for step in added:
        count, group = capacity.adds(step), observation.fleet.group(step.node_id)
        where = step.arguments.get(OFFER) or (step.node_id if group is None else group.name)
        each = ((sizes.size_of_step(observation.fleet, step) or 0) // count, where)
        machines[each] = machines.get(each, 0) + count
    words = [f"{count} node{'s' * (count > 1)} of {size} from {where}" for (size, where), count in machines.items()]
    return [f"{sizes.words(missing)} more are needed: {', '.join(words)}."]


def _nothing(pool: str, rules: Rules, sizes: Sizes) -> str:
    """Why missing nodes are not asked for."""
    if rules.offers:
        large = "would pass max_gpus or max_nodes, " if sizes.gpus is not None else ""
        return f"no offer may be asked now: each rests after a refusal, costs too much, {large}or is not wanted yet"
    return (
        f"there is nothing to get them from: set pools.{pool}.launch, enrol a group, or let stopped nodes be started "
        f"(pools.{pool}.start)"
    )


def _in_date(step: Step, observation: Observation) -> Step:
    """The step; if it is a removal and its notice is out of date, the withdrawal of the notice. A new one follows."""
    notice = observation.ledger.notice(step.node_id) if step.verb in REMOVAL_STEPS else None
    old = None if notice is None else notices.why_outdated(notice, observation.now)
    if old is None:
        return step
    reason = replace(step.reason, code="notice_over", sentence=f"{old}.")
    return replace(step, verb=Verb.WITHDRAW, reason=reason, change="A new notice follows if it still has no use.")
