"""What people read when a guard rule refuses: every sentence with its remedy, word for word."""

import os
import re

from gpuwatch.guard import RULES, judge
from tests.support import paths
from tests.support.builders.guard_cases import SPOILED, a_case
from tests.support.builders.guard_cases_gpus import SPOILED_GPUS
from tests.support.builders.guard_cases_groups import SPOILED_GROUPS
from tests.support.builders.guard_cases_growth import SPOILED_GROWTH
from tests.support.builders.guard_cases_kubernetes import SPOILED_KUBERNETES
from tests.support.builders.guard_cases_launches import SPOILED_LAUNCHES
from tests.support.builders.guard_cases_notices import SPOILED_NOTICES
from tests.support.builders.guard_cases_slurm import SPOILED_SLURM
from tests.support.builders.guard_cases_undone import SPOILED_UNDONE
from tests.support.builders.guard_cases_workloads import SPOILED_WORKLOADS

GOLDEN = paths.GOLDEN / "guard_sentences.txt"


def said() -> str:
    """Each spoiled case with the answer of the rule that it is about."""
    lines = [
        f"{rule} ({name}): {answer.sentence} {answer.remedy}"
        for name, rule, spoil, _ in [
            *SPOILED,
            *SPOILED_GROWTH,
            *SPOILED_GROUPS,
            *SPOILED_NOTICES,
            *SPOILED_KUBERNETES,
            *SPOILED_SLURM,
            *SPOILED_GPUS,
            *SPOILED_LAUNCHES,
            *SPOILED_UNDONE,
        ]
        for answer in judge(spoil(a_case())).refusals
        if answer.rule == rule
    ]
    lines += [
        f"{rule} (workload: {name}): {answer.sentence} {answer.remedy}"
        for name, (rule, spoiled) in SPOILED_WORKLOADS.items()
        for answer in judge(spoiled()).refusals
        if answer.rule == rule
    ]
    return "\n".join(lines) + "\n"


def test_every_refusal_reads_as_recorded() -> None:
    """GPUWATCH_UPDATE_GOLDEN=1 writes it again; the diff is the review."""
    if os.environ.get("GPUWATCH_UPDATE_GOLDEN") == "1":
        GOLDEN.write_text(said(), encoding="utf-8")

    assert said() == GOLDEN.read_text(encoding="utf-8")


def test_every_answer_is_made_of_whole_sentences() -> None:
    """Each ends where another begins; one thing is no plural, and nothing happened in minus five minutes."""
    lines = [line.partition("): ")[2] for line in said().splitlines()]
    runs_on = re.compile(r"[a-z0-9] (?:The next|See in|Wait|Set|Run|It is|Its|Remove|Lower|Raise|Add) ")
    one_of_many = re.compile(r"\b1 (?:\w+ing )?(?:nodes|pods|GPUs|stops|additions|machines)\b")

    assert [line for line in lines if not line.endswith(".")] == []
    assert [line for line in lines if runs_on.search(line)] == []
    assert [line for line in lines if one_of_many.search(line) or re.search(r"(?<![-\w])-\d", line)] == []


def test_every_rule_has_a_recorded_refusal() -> None:
    """A rule without one could say anything."""
    recorded = {line.split(" (", 1)[0] for line in GOLDEN.read_text(encoding="utf-8").splitlines()}

    assert recorded == set(RULES)
