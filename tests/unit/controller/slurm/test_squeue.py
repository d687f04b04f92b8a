"""controller/slurm/squeue.py: the GPUs of each job, as each release of Slurm writes them."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.clouds import CloudUnavailableError
from gpuwatch.controller.slurm.squeue import expand_names, gpus_of, parse_jobs
from gpuwatch.model.slurm import SlurmJob

BEGUN = 1_795_473_245


def a_job(**fields: Any) -> dict[str, Any]:  # noqa: ANN401  of squeue's JSON
    """As Slurm 22.05 writes it, shortened."""
    return {
        "job_id": 7,
        "name": "train",
        "job_state": "RUNNING",
        "start_time": BEGUN,
        "nodes": "gpu-1",
        "gres_detail": ["gpu:2(IDX:0-1)"],
        "user_name": "ann",
        **fields,
    }


def listed(*jobs: dict[str, Any]) -> dict[str, tuple[SlurmJob, ...]]:
    """What is read of them."""
    return dict(parse_jobs(json.dumps({"meta": {}, "errors": [], "jobs": jobs})))


SEVEN = SlurmJob(id="7", user="ann", gpus=2, indexes=(0, 1), started_at=datetime.fromtimestamp(BEGUN, UTC))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"job_state": ["RUNNING"], "start_time": {"set": True, "infinite": False, "number": BEGUN}},
        {"name": 'x"\n   UserId=root(0)\n\nJobId=8 JobName=y', "comment": "GRES=gpu:8(IDX:0-7)"},
    ],
    ids=["22.05", "since 23.02", "a name that looks like fields"],
)
def test_a_job_is_read_with_its_gpus(fields: dict[str, Any]) -> None:
    """Whatever its user calls it."""
    assert listed(a_job(**fields)) == {"gpu-1": (SEVEN,)}


def test_a_job_on_several_nodes_has_on_each_its_own_gpus() -> None:
    """In the order of the nodes."""
    found = listed(a_job(nodes="gpu-[1-2]", gres_detail=["gpu:1(IDX:2)", "gpu:1(IDX:0)"]))
    assert {name: [job.indexes for job in jobs] for name, jobs in found.items()} == {"gpu-1": [(2,)], "gpu-2": [(0,)]}


@pytest.mark.parametrize(
    "fields",
    [
        {"job_state": "PENDING", "nodes": "", "gres_detail": []},
        {"job_state": ["COMPLETING"]},
        {"gres_detail": []},
        {"gres_detail": [""]},
        {"gres_detail": ["nic:1(IDX:0),shard:3(0/4,3/4)"]},
        {"gres_detail": None},
    ],
)
def test_jobs_that_hold_no_whole_gpus_are_left_out(fields: dict[str, Any]) -> None:
    """Those that wait, those that end, and those with other resources."""
    assert listed(a_job(**fields)) == {}


@pytest.mark.parametrize(
    ("detail", "gpus"),
    [
        ("gpu:2(IDX:0-1)", (2, (0, 1))),
        ("gpu:h200:3(IDX:0,2-3)", (3, (0, 2, 3))),
        ("gpu:a:1(IDX:0),gpu:b:1(IDX:4),nic:2(IDX:0-1)", (2, (0, 4))),
        ("gpu(IDX:1)", (1, (1,))),
        ("gpu:2", (2, None)),
        ("gpu:2(CNT:2)", (2, None)),
        ("gpu:h200:7(S:0-1),gpu:nvidia_h200_1g.18gb:7(S:0)", (7, None)),
        ("gpu:1g.18gb:1(IDX:3)", (0, None)),
        ("(null)", (0, None)),
        ("gpu:2(IDX:0)", (2, None)),
        ("gpu:2(IDX:N/A)", (2, None)),
        ("gpu:1(IDX:0),gpu:1(IDX:0)", (2, None)),
        ("", (0, None)),
    ],
)
def test_the_numbers_of_gpus_are_known_only_if_they_fit_their_count(
    detail: str, gpus: tuple[int, tuple[int, ...] | None]
) -> None:
    """Else Slurm does not say which they are."""
    count, indexes = gpus_of(detail)
    assert (count, indexes or None) == gpus


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu-1", ["gpu-1"]),
        ("gpu-[1-2],login", ["gpu-1", "gpu-2", "login"]),
        ("n[08-11,3].x,m7", ["n08.x", "n09.x", "n10.x", "n11.x", "n3.x", "m7"]),
        ("", []),
    ],
)
def test_lists_of_nodes_are_written_out(text: str, names: list[str]) -> None:
    """As `scontrol show hostnames` does, with the zeros before numbers."""
    assert expand_names(text) == names


@pytest.mark.parametrize("text", ["gpu-[1-2", "rack[0-1]node[0-3]", "a]b", "gpu-[1-99999999]", "gpu-[a]"])
def test_lists_in_other_words_are_no_answer(text: str) -> None:
    """Several dimensions of brackets, and what nobody has that many of."""
    with pytest.raises(CloudUnavailableError, match="list of nodes"):
        expand_names(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"jobs": 1}',
        json.dumps({"jobs": [a_job(nodes="gpu-[1-")]}),
        json.dumps({"jobs": [a_job(nodes="")]}),
    ],
)
def test_what_is_no_list_of_jobs_is_no_answer(text: str) -> None:
    """Nor one in which a job may be on any node."""
    with pytest.raises(CloudUnavailableError, match="squeue"):
        parse_jobs(text)


@pytest.mark.parametrize(
    "fields",
    [
        {"nodes": "gpu-[1-3]"},
        {"nodes": "gpu-[1-3]", "job_id": 2**70},
        {"nodes": "gpu-[1-3]", "user_name": "x" * 20_000},
        {"nodes": "gpu-[1-3]", "gres_detail": {"gpu": 2}},
        {"nodes": "gpu-[1-3]", "start_time": "soon"},
    ],
)
def test_a_job_that_makes_no_sense_holds_some_gpu_of_its_own_nodes_alone(fields: dict[str, Any]) -> None:
    """Those of all others are known."""
    found = listed(a_job(**fields), a_job(nodes="gpu-9"))

    assert found["gpu-9"] == (SEVEN,)
    assert all([each.indexes for each in found[f"gpu-{number}"]] == [None] for number in (1, 2, 3))


@pytest.mark.parametrize(
    "detail", ["gpu:" + "9" * 5000, "gpu:2(IDX:" + "9" * 5000 + ")", "gpu:1(IDX:0-" + "9" * 400 + ")"]
)
def test_a_number_that_no_node_has_is_no_count_of_gpus(detail: str) -> None:
    """Python reads no number of so many digits, and the round would end there."""
    assert gpus_of(detail)[0] in {1, 2}


@given(st.text(alphabet="gpu-[]0123456789,.(:IDX)", max_size=30))
def test_any_words_are_read_or_refused(text: str) -> None:
    """Never anything else."""
    gpus_of(text)
    try:
        expand_names(text)
    except CloudUnavailableError:
        return
