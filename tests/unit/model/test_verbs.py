"""model/verbs.py: the words are those of today's ledgers, and each group has the verbs that rules rely on."""

import json
import pickle

import pytest

from gpuwatch.model import verbs
from gpuwatch.model.verbs import Action, TargetKind, Verb

GROUPS = {
    "REMOVALS": "stop terminate",
    "PREPARATIONS": "cordon drain",
    "REMOVAL_STEPS": "stop terminate unprotect cordon drain",
    "WORK_ENDINGS": "stop terminate release",
    "ASKED_A_LAST_TIME": "stop terminate unprotect cordon drain release evict",
    "ADDITIONS": "start launch grow",
    "REDUCTIONS": "shrink",
    "ENDS_OF_A_STOP": "stop terminate start",
    "SHIELDINGS": "protect unprotect",
    "SCHEDULER_CHANGES": "cordon uncordon drain quarantine evacuate evict mark unmark slurm_drain slurm_resume",
    "SLURM_CHANGES": "slurm_drain slurm_resume",
    "RECORDS": "interruption lost spared ended left_alone",
    "CLOUD_RECORDS": "interruption lost spared ended",
    "BOUND_TO_ARGUMENTS": "grow shrink release slurm_drain slurm_resume",
}


@pytest.mark.parametrize("group", GROUPS)
def test_each_group_has_these_verbs_and_no_other(group: str) -> None:
    """A verb that gets a new action, or target, changes what limits count: that is seen here first."""
    assert getattr(verbs, group) == {Verb(word) for word in GROUPS[group].split()}


def test_a_verb_is_its_word_wherever_it_is_written() -> None:
    """Ledgers, documents and messages hold the word alone."""
    assert [f"{verb}" for verb in (Verb.STOP, Verb.SLURM_DRAIN)] == ["stop", "slurm_drain"]
    assert json.dumps([Verb.STOP]) == '["stop"]'
    assert pickle.loads(pickle.dumps(Verb.STOP)) is Verb("stop")  # noqa: S301  of our own
    assert {verb.value: verb for verb in Verb} == {word: Verb(word) for word in Verb}


def test_each_verb_has_one_target_and_one_action() -> None:
    """No two verbs are the same pair, but removals, and preparations, undoings and records of several kinds."""
    pairs = [(verb.target, verb.action) for verb in Verb]
    repeated = {pair for pair in pairs if pairs.count(pair) > 1}

    assert repeated == {
        (TargetKind.MACHINE, Action.REMOVE),
        (TargetKind.CLUSTER_NODE, Action.PREPARE),
        (TargetKind.CLUSTER_NODE, Action.UNDO),
        (TargetKind.RECORD, Action.RECORD),
    }
