"""controller/slurm/join.py: a machine's node in Slurm is found for certain, or not at all."""

from dataclasses import replace

import pytest

from gpuwatch.clouds import CloudUnavailableError
from gpuwatch.controller.slurm.join import Shown, show_cluster, with_slurm
from gpuwatch.model.fleet import Fleet, Node, NodeState
from gpuwatch.model.slurm import NODE_TAG, SlurmJob, SlurmNode, SlurmView
from tests.support.builders.fleet import NOW, a_node
from tests.support.fakes.slurm import FakeSlurm


def a_slurm_node(name: str, host: str = "", address: str = "") -> SlurmNode:
    """As scontrol shows it."""
    return SlurmNode(name=name, host=host or name, address=address or name, states=("IDLE",))


def joined(*machines: Node, nodes: tuple[SlurmNode, ...]) -> list[SlurmNode | None]:
    """What each machine gets."""
    seen = Shown(view=SlurmView(pools=("default",)), nodes=nodes)
    fleet = with_slurm(Fleet(observed_at=NOW, nodes=machines), seen)
    return [node.slurm for node in fleet.nodes]


def tagged(name: str) -> dict[str, str]:
    """The tag that names it."""
    return {NODE_TAG: name}


@pytest.mark.parametrize(
    "machine",
    [
        a_node(tags=tagged("gpu-1")),
        a_node(name="gpu-1"),
        a_node(name="host-1"),
        a_node(address="10.0.0.1"),
        a_node(name="gpu-1", address="10.0.0.1"),
        a_node(name="gpu-2", tags=tagged("gpu-1")),
    ],
)
def test_a_node_is_found_by_tag_name_or_address(machine: Node) -> None:
    """The tag alone counts where there is one."""
    one, two = a_slurm_node("gpu-1", "host-1", "10.0.0.1"), a_slurm_node("gpu-2", "host-2", "10.0.0.2")
    assert joined(machine, nodes=(one, two)) == [one]


@pytest.mark.parametrize(
    ("machines", "words"),
    [
        ((a_node(name="gpu-9"),), "no node under its name"),
        ((a_node(name="gpu-1", tags=tagged("gpu-9")),), "'gpu-9' of its tag"),
        ((a_node(tags=tagged("host-1")),), "'host-1' of its tag"),
        ((a_node(name="gpu-1", address="10.0.0.2"),), "gpu-1, gpu-2"),
        ((a_node("i-1", name="gpu-1"), a_node("i-2", name="gpu-1")), "Several machines"),
        ((a_node("i-1", name="gpu-1"), a_node("i-2", pool="other", tags=tagged("gpu-1"))), "Several machines"),
        ((a_node(name="twice"),), "more than once"),
    ],
)
def test_what_is_not_certain_is_a_doubt(machines: tuple[Node, ...], words: str) -> None:
    """No node, several nodes, or several machines: nothing is done to any of them."""
    nodes = (
        a_slurm_node("gpu-1", "host-1", "10.0.0.1"),
        a_slurm_node("gpu-2", "host-2", "10.0.0.2"),
        a_slurm_node("twice"),
        a_slurm_node("twice"),
    )
    first = joined(*machines, nodes=nodes)[0]
    assert first is not None
    assert words in (first.doubt or "")


def test_a_machine_that_has_ended_claims_no_node() -> None:
    """Its successor has its name."""
    node = a_slurm_node("gpu-1")
    gone = replace(a_node("i-0", name="gpu-1"), state=NodeState.TERMINATED)
    assert joined(gone, a_node("i-1", name="gpu-1"), nodes=(node,))[1] == node


def test_machines_of_other_pools_are_no_nodes() -> None:
    """`slurm.pools` says which are."""
    assert joined(a_node(name="gpu-1", pool="web"), nodes=(a_slurm_node("gpu-1"),)) == [None]


def test_each_node_has_its_own_jobs() -> None:
    """Without squeue in the settings none is known, and without its answer the nodes still are."""
    job = SlurmJob(id="7", user="ann", gpus=2, indexes=(0, 1))
    fleet = Fleet(observed_at=NOW, nodes=(a_node(name="gpu-1"), a_node("i-2", name="gpu-2")))

    def seen(cluster: FakeSlurm) -> Fleet:
        cluster.put("gpu-1")
        cluster.put("gpu-2")
        return with_slurm(fleet, show_cluster(cluster))

    known = seen(FakeSlurm(held={"gpu-1": (job,), "gone": (job,)}))
    assert [node.slurm and node.slurm.jobs for node in known.nodes] == [(job,), ()]
    assert known.slurm == SlurmView(pools=("default",), sees_jobs=True)
    assert seen(FakeSlurm()).slurm == SlurmView(pools=("default",))
    failing = FakeSlurm(fault=lambda call: CloudUnavailableError("no answer") if call == "jobs" else None)
    doubted = seen(failing)
    assert doubted.nodes[0].slurm == SlurmNode(name="gpu-1", host="gpu-1", states=("IDLE",), gpus=1)
    assert doubted.slurm is not None
    assert (doubted.slurm.doubt, doubted.slurm.jobs_doubt) == (None, "Slurm gives no answer about its jobs: no answer")


def test_silence_is_a_doubt_about_every_machine() -> None:
    """And the round goes on."""
    silent = FakeSlurm(fault=lambda _: CloudUnavailableError("no answer"))
    fleet = Fleet(observed_at=NOW, nodes=(a_node(),))
    joined = with_slurm(fleet, show_cluster(silent))
    doubt = "Slurm gives no answer: no answer"
    assert joined.nodes[0].slurm == SlurmNode(doubt=doubt)
    assert joined.slurm == SlurmView(pools=("default",), doubt=doubt)
    assert with_slurm(fleet, show_cluster(None)) == fleet
