"""agent/attribution: which pods hold GPUs, by their uids: from the kubelet's list, folders of logs, and processes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.builders.gpu import a_process, a_reading
from tests.support.fakes.gpu_users import Host
from tests.support.fakes.kubelet import UIDS, Kubelet, a_kubelet


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[Kubelet]:
    """One that has given GPU-0 to one pod."""
    with a_kubelet(tmp_path) as running:
        yield running


def in_pod(uid: str) -> str:
    """The control group of a process of that pod."""
    return f"0::/kubepods.slice/kubepods-pod{uid.replace('-', '_')}.slice/cri-containerd-{'ab' * 32}.scope\n"


def test_a_pod_that_was_given_a_gpu_and_has_no_process_on_it_is_known_by_its_folder(
    tmp_path: Path, kubelet: Kubelet
) -> None:
    """A notebook without a kernel is what most often rests. Another pod's folder is no pod with a GPU."""
    host = Host(tmp_path)
    for name in (f"team-a_train-0_{UIDS[0]}", f"team-a_web-1_{UIDS[1]}"):
        (host.pod_logs / name).mkdir(parents=True)
    host.cycle(a_reading())

    assert kubelet.asked
    assert host.attribution.gpu_pods() == {UIDS[0]: "team-a/train-0"}


def test_a_pod_made_again_under_its_name_is_found_within_seconds(tmp_path: Path, kubelet: Kubelet) -> None:
    """The folders are listed again now and then, though the kubelet's list has not changed."""
    host = Host(tmp_path)
    (host.pod_logs / f"team-a_train-0_{UIDS[0]}").mkdir(parents=True)
    host.cycle(a_reading())
    (host.pod_logs / f"team-a_train-0_{UIDS[0]}").rename(host.pod_logs / f"team-a_train-0_{UIDS[2]}")
    for _ in range(6):
        host.cycle(a_reading())

    assert kubelet.asked
    assert host.attribution.gpu_pods() == {UIDS[2]: "team-a/train-0"}


def test_a_pod_whose_process_holds_a_gpu_is_known_without_kubelet_and_folder(tmp_path: Path) -> None:
    """Then it has no name here; the API server knows the uid."""
    host = Host(tmp_path)
    host.process(7, cgroup=in_pod(UIDS[0]))
    host.holding(7)

    assert host.attribution.gpu_pods() == {UIDS[0]: None}


def test_a_view_that_is_not_renewed_is_no_answer(tmp_path: Path) -> None:
    """Before the first look, and once the last one is old."""
    host = Host(tmp_path)
    assert host.attribution.gpu_pods() is None
    host.cycle(a_reading())
    host.clock.advance(60.0)

    assert host.attribution.gpu_pods() is None


def test_without_the_kubelet_a_gpu_names_the_pods_with_a_process_on_it(tmp_path: Path) -> None:
    """And the host's other pods, which may have been given one, are looked at as well; no more than 64 in all."""
    host = Host(tmp_path)
    names = {UIDS[0]: "train-0", UIDS[1]: "notebook-0", **{f"uid-{number}": f"web-{number}" for number in range(70)}}
    for uid, name in names.items():
        (host.pod_logs / f"team-a_{name}_{uid}").mkdir(parents=True)
    host.process(7, cgroup=in_pod(UIDS[0]))
    host.cycle(a_reading(0, processes=(a_process(7),)), a_reading(1))

    assert host.attribution.pods() == {"GPU-0": ("team-a/train-0",)}
    assert host.attribution.gpu_pods() == {UIDS[0]: "team-a/train-0"}
    others, watched = host.attribution.others(), host.attribution.watched_pods()
    assert others is not None
    assert watched is not None
    assert UIDS[1] in others
    assert len(watched) == 64
    assert watched.keys() == others | {UIDS[0]}


def test_the_kubelets_list_leaves_no_pod_open(tmp_path: Path, kubelet: Kubelet) -> None:
    """What it does not name was given no GPU."""
    host = Host(tmp_path)
    for uid, name in zip(UIDS[:2], ("train-0", "web-1"), strict=True):
        (host.pod_logs / f"team-a_{name}_{uid}").mkdir(parents=True)
    host.cycle(a_reading())

    assert kubelet.asked
    assert host.attribution.others() is None
    assert host.attribution.pods() == {"GPU-0": ("team-a/train-0",)}
