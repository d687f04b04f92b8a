"""agent/attribution: whose the processes are. GPUs, MIG instances and folders of logs name pods; a guess never does."""

from collections.abc import Sequence
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st

from gpuwatch.agent.attribution.attribution import PodFolders
from gpuwatch.agent.attribution.devices import Node, Part
from gpuwatch.agent.attribution.pod_resources import parse_list
from gpuwatch.agent.attribution.pods import Grant, PodName, Workload, granted_gpus, holders, name_pods
from gpuwatch.model.mig import MigDevice, MigInstance
from tests.support.builders.gpu import a_gpu, a_reading
from tests.support.fakes.kubelet import UIDS, Pods, a_claimed_device, a_list

NODE = Node.from_cycle(
    [a_gpu(0), a_gpu(1)],
    [
        a_reading(
            1,
            mig_instances=(
                MigInstance(id=2, devices=(MigDevice(uuid="MIG-dddd", compute_instance=0, profile="3g.40gb"),)),
                MigInstance(
                    id=3,
                    devices=(
                        MigDevice(uuid="MIG-aaaa", compute_instance=0, profile="1g.10gb"),
                        MigDevice(uuid="MIG-cccc", compute_instance=1, profile="1c.1g.10gb"),
                    ),
                ),
                MigInstance(id=4, devices=(MigDevice(uuid="MIG-bbbb", compute_instance=0, profile="1g.10gb"),)),
            ),
        )
    ],
    {":01:00.0": 0, ":02:00.0": 1},
)


def workload(pod: str, container: str | None = "main") -> Workload:
    """A container of a pod in the namespace ns."""
    return Workload(namespace="ns", pod=pod, container=container)


def allocated(**devices: Sequence[str]) -> tuple[Grant, ...]:
    """What pods with one container were given."""
    return granted_gpus(parse_list(a_list({("ns", pod): {"main": names} for pod, names in devices.items()})), NODE)


def whole(*gpus: int) -> frozenset[Part]:
    """What a process holds that runs outside of MIG."""
    return frozenset(Part(gpu=f"GPU-{gpu}") for gpu in gpus)


def within(instance: int, compute: int | None = 0) -> frozenset[Part]:
    """What a process holds that runs in a MIG instance of GPU 1."""
    return frozenset({Part(gpu="GPU-1", gpu_instance=instance, compute_instance=compute)})


NOBODY: dict[str, PodName] = {}  # the kubelet's folders tell no names


def test_processes_of_a_pod_with_its_own_gpu_are_its() -> None:
    """The uid of the control group and the name of the list meet in the GPU."""
    uses = {7: whole(0), 8: whole(1)}
    held = allocated(a=["GPU-0"], b=["GPU-1"])

    assert name_pods(uses, {7: UIDS[0], 8: UIDS[1]}, held, NOBODY) == {7: workload("a"), 8: workload("b")}


def test_sharers_of_one_gpu_are_not_named() -> None:
    """Time slicing: both pods fit both uids, and a guess would charge the wrong one."""
    uses = {7: whole(0), 8: whole(0)}
    held = allocated(a=["GPU-0::0"], b=["GPU-0::1"])

    assert holders(held) == {"GPU-0": (workload("a"), workload("b"))}
    assert name_pods(uses, {7: UIDS[0], 8: UIDS[1]}, held, NOBODY) == {}


def test_a_second_gpu_can_tell_sharers_apart() -> None:
    """Only one of them was given both."""
    uses = {7: whole(0), 9: whole(1), 8: whole(0)}
    held = allocated(a=["GPU-0::0", "GPU-1"], b=["GPU-0::1"])

    assert name_pods(uses, {7: UIDS[0], 9: UIDS[0], 8: UIDS[1]}, held, NOBODY) == {7: workload("a"), 9: workload("a")}


def test_a_pod_that_holds_what_it_was_not_given_names_nobody() -> None:
    """A privileged pod sees all GPUs: of two uids on one pod's GPU, either may be the intruder."""
    uses = {7: whole(0), 8: whole(0)}

    assert name_pods(uses, {7: UIDS[0], 8: UIDS[1]}, allocated(a=["GPU-0"]), NOBODY) == {}


def test_a_gpu_that_nobody_was_given_names_nobody() -> None:
    """As with a claim whose device cannot be told from another."""
    assert name_pods({7: whole(0)}, {7: UIDS[0]}, (), NOBODY) == {}


def test_a_native_sidecar_with_a_gpu_of_its_own_is_told_apart() -> None:
    """Containers of a pod are found by their own GPU; with the same one, the pod is certain and the container not."""
    apart = granted_gpus(parse_list(a_list({("ns", "a"): {"main": ["GPU-0"], "sidecar": ["GPU-1"]}})), NODE)
    same = granted_gpus(parse_list(a_list({("ns", "a"): {"main": ["GPU-0"], "sidecar": ["GPU-0"]}})), NODE)
    uses = {7: whole(0), 8: whole(1)}

    assert name_pods(uses, dict.fromkeys(uses, UIDS[0]), apart, NOBODY) == {
        7: workload("a"),
        8: workload("a", "sidecar"),
    }
    assert name_pods({7: uses[7]}, {7: UIDS[0]}, same, NOBODY) == {7: workload("a", None)}


# MIG.


def test_pods_with_mig_instances_of_one_gpu_are_told_apart() -> None:
    """Each process runs in the instance that its pod was given, whichever way that is named."""
    held = allocated(a=["MIG-aaaa"], b=["nvidia1/gi4"])
    uses = {7: within(3), 8: within(4)}

    assert holders(held) == {"GPU-1": (workload("a"), workload("b"))}
    assert name_pods(uses, {7: UIDS[0], 8: UIDS[1]}, held, NOBODY) == {7: workload("a"), 8: workload("b")}


def test_pods_that_share_a_mig_instance_are_not_named() -> None:
    """Time slicing of an instance is like that of a GPU; another instance's pod is still told apart."""
    held = allocated(a=["MIG-aaaa::0"], b=["MIG-aaaa::1"], c=["MIG-bbbb"])
    uses = {7: within(3), 8: within(3), 9: within(4)}

    assert name_pods(uses, {7: UIDS[0], 8: UIDS[1], 9: UIDS[2]}, held, NOBODY) == {9: workload("c")}


def test_compute_instances_of_one_gpu_instance_are_told_apart() -> None:
    """Where a GPU instance has several; GKE's plugin gives it whole, so that fits each of them."""
    held = allocated(a=["MIG-aaaa"], b=["MIG-cccc"])
    both = allocated(a=["MIG-aaaa"], b=["nvidia1/gi3"])
    uses = {7: within(3, 0), 8: within(3, 1)}

    assert name_pods(uses, {7: UIDS[0], 8: UIDS[1]}, held, NOBODY) == {7: workload("a"), 8: workload("b")}
    assert name_pods(uses, {7: UIDS[0], 8: UIDS[1]}, both, NOBODY) == {8: workload("b")}


def test_a_process_whose_instance_is_not_told_may_be_in_any() -> None:
    """An older capture, or a process in several instances: with two pods on that GPU nobody is named."""
    uses = {7: whole(1)}

    assert name_pods(uses, {7: UIDS[0]}, allocated(a=["MIG-aaaa"], b=["MIG-bbbb"]), NOBODY) == {}
    assert name_pods(uses, {7: UIDS[0]}, allocated(a=["MIG-aaaa"]), NOBODY) == {7: workload("a")}


def test_a_process_in_an_instance_that_nobody_was_given_has_no_pod() -> None:
    """It is not its neighbour's."""
    assert name_pods({7: within(4)}, {7: UIDS[0]}, allocated(a=["MIG-aaaa"]), NOBODY) == {}


def test_claimed_mig_devices_of_one_size_name_nobody() -> None:
    """A claim's name tells size and place, not the instance: two of a size may be either, one of a size is it."""
    claims: Pods = {
        ("ns", "a"): {"main": [a_claimed_device("gpu-1-mig-1g10gb-19-0")]},
        ("ns", "b"): {"main": [a_claimed_device("gpu-1-mig-1g10gb-19-1")]},
        ("ns", "c"): {"main": [a_claimed_device("gpu-1-mig-3g40gb-9-4")]},
    }
    uses = {7: within(3), 8: within(4), 9: within(2)}
    uids = {7: UIDS[0], 8: UIDS[1], 9: UIDS[2]}

    assert name_pods(uses, uids, granted_gpus(parse_list(a_list(claims)), NODE), NOBODY) == {9: workload("c")}


def test_a_claim_that_may_be_one_of_two_gpus_names_its_pod_where_no_other_could_be_meant() -> None:
    """Index and minor number disagree: whichever GPU it is, with nobody else on both it is the pod's."""
    crossed = Node.from_cycle([a_gpu(0), a_gpu(1)], [], {":01:00.0": 1, ":02:00.0": 0})
    claims: Pods = {("ns", "a"): {"main": [a_claimed_device("gpu-0")]}, ("ns", "b"): {"main": ["GPU-1"]}}
    grants = granted_gpus(parse_list(a_list(claims)), crossed)
    uses = {7: whole(0), 8: whole(1)}

    assert holders(grants) == {"GPU-1": (workload("b"),)}
    assert name_pods(uses, {7: UIDS[0], 8: UIDS[1]}, grants, NOBODY) == {7: workload("a")}


# Names that the kubelet's folders tell.


def test_time_sliced_pods_are_told_apart_by_their_uids() -> None:
    """The control group has the uid, the folder the name that goes with it: no GPU is needed for that."""
    held = allocated(a=["GPU-0::0"], b=["GPU-0::1"])
    known = {UIDS[0]: PodName("ns", "a"), UIDS[1]: PodName("ns", "b")}

    assert name_pods({7: whole(0), 8: whole(0)}, {7: UIDS[0], 8: UIDS[1]}, held, known) == {
        7: workload("a"),
        8: workload("b"),
    }


def test_a_pod_that_was_given_nothing_has_its_name_and_no_container() -> None:
    """A privileged pod is what its uid says, and leaves the pod whose GPU it uses its own name."""
    known = {UIDS[0]: PodName("ns", "a"), UIDS[1]: PodName("spy", "eye")}
    uses = {7: whole(0), 8: whole(0)}

    assert name_pods(uses, {7: UIDS[0], 8: UIDS[1]}, allocated(a=["GPU-0"]), known) == {
        7: workload("a"),
        8: Workload(namespace="spy", pod="eye", container=None),
    }


def test_a_name_that_belongs_to_another_uid_is_not_guessed() -> None:
    """A process in a pod that no folder tells is not the pod whose GPU it uses, if that one's uid is known."""
    known = {UIDS[0]: PodName("ns", "a")}
    uses = {7: whole(0), 8: whole(0)}

    assert name_pods(uses, {7: UIDS[0], 8: UIDS[1]}, allocated(a=["GPU-0"]), known) == {7: workload("a")}


def test_folders_name_pods(tmp_path: Path) -> None:
    """Those of the uids asked for; a new one is looked for when it appears."""
    folders = PodFolders(tmp_path)
    (tmp_path / f"team-a_train-0_{UIDS[0]}").mkdir()
    (tmp_path / f"team-b_serve-1_{UIDS[1]}").mkdir()
    first = dict(folders.names(frozenset({UIDS[0], UIDS[2]})))
    (tmp_path / f"team-c_late-2_{UIDS[2]}").mkdir()

    assert first == {UIDS[0]: PodName("team-a", "train-0")}
    assert folders.names(frozenset({UIDS[2]})) == {UIDS[2]: PodName("team-c", "late-2")}
    assert folders.names(frozenset()) == {}


@pytest.mark.parametrize(
    "entries",
    [
        (),
        (UIDS[0],),
        (f"ns_{UIDS[0]}",),
        (f"ns_Pod_{UIDS[0]}",),
        (f"ns_pod_extra_{UIDS[0]}",),
        (f"ns_pod_{UIDS[0]}_",),
        (f"one_pod_{UIDS[0]}", f"two_pod_{UIDS[0]}"),
    ],
)
def test_other_folders_name_nobody(tmp_path: Path, entries: tuple[str, ...]) -> None:
    """Nor two of one uid, nor a folder that is not there."""
    for entry in entries:
        (tmp_path / entry).mkdir()

    assert PodFolders(tmp_path).names(frozenset(UIDS[:1])) == {}
    assert PodFolders(tmp_path / "none").names(frozenset(UIDS[:1])) == {}


# Whatever is shared.


PLACES = {
    "GPU-0": whole(0),
    "GPU-0::1": whole(0),
    "MIG-aaaa": within(3),
    "MIG-bbbb": within(4),
    "MIG-cccc": within(3, 1),
    "nvidia1/gi4": within(4),
}
GIVEN = st.frozensets(st.sampled_from(sorted(PLACES)), min_size=1)


@hypothesis.given(truth=st.lists(GIVEN, min_size=1, max_size=4), told=st.sets(st.integers(0, 3)), data=st.data())
def test_who_is_named_is_named_right(truth: list[frozenset[str]], told: set[int], data: st.DataObject) -> None:
    """Whatever pods share which GPUs and instances: if each uses only what it was given, no name is another one's."""
    held = allocated(**{f"pod{number}": sorted(devices) for number, devices in enumerate(truth)})
    using: dict[int, frozenset[Part]] = {}
    for number, devices in enumerate(truth):
        used = data.draw(st.frozensets(st.sampled_from(sorted(devices)), min_size=1))
        using[number] = frozenset().union(*(PLACES[device] for device in used))
    known = {UIDS[number]: PodName("ns", f"pod{number}") for number in told if number in using}
    named = name_pods(using, {number: UIDS[number] for number in using}, held, known)

    assert {number: found.pod for number, found in named.items()} == {number: f"pod{number}" for number in named}
    assert set(named) >= told & set(using)
