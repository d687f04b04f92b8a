"""An EKS node's last hour on one page, EC2 played by moto: golden texts of what was decided, refused and done."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pytest

from gpuwatch.clouds.aws.cloud import AwsCloud
from gpuwatch.controller.context import LiveParts
from gpuwatch.controller.round import Round, step
from gpuwatch.guard import Limits
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import Fleet, Node, NodeReport, NodeState
from gpuwatch.runtime.clock import ManualClock
from tests.support import paths
from tests.support.builders.clusters import ENDING, ClusterDesk, a_gpu_pod, a_kubernetes_node, a_pod
from tests.support.builders.fleet import NOW, a_verdict
from tests.support.fakes.cloud_worlds import FLEET, MINE, TEMPLATE
from tests.support.fakes.moto_faults import REGION, MotoFaults
from tests.support.stories import Story

GOLDEN = paths.GOLDEN / "stories"
NAMES = ("gpu-1", "gpu-2")
RULES = replace(ENDING, idle=replace(ENDING.idle, instance_store="discard", grace_period=600.0))


class Members(AwsCloud):
    """EC2, with each machine's node object, whose provider id names the machine."""

    cluster: "EksDesk"

    def nodes(self) -> tuple[Node, ...]:
        """All, joined by their provider ids."""
        known = {each.provider_id.rpartition("/")[2]: each for each in self.cluster.cluster.view().nodes}
        return tuple(replace(node, kubernetes=known.get(node.id), launched_at=NOW) for node in AwsCloud.nodes(self))

    def node(self, node_id: str) -> Node:
        """One, likewise, without its node object."""
        return replace(AwsCloud.node(self, node_id), launched_at=NOW)


@dataclass(slots=True)
class EksDesk(ClusterDesk):
    """A controller over a managed node group at EC2 and its cluster."""

    cloud: Members | None = None
    since: dict[str, tuple[State, float]] = field(default_factory=dict)  # by machine: what it does, from when on

    @property
    def parts(self) -> LiveParts:
        """EC2 in the place of the pretended fleet, and agents on its machines."""
        assert self.cloud is not None
        return replace(super(EksDesk, self).parts, cloud=self.cloud, signals=self)

    def round(self, seconds: float = 60.0) -> Round:
        """One round; then time passes."""
        done = step(self.parts)
        self.rest(seconds)
        return done

    def rest(self, seconds: float) -> None:
        """Time passes."""
        self.clock.advance(seconds)

    def observe(self, nodes: Sequence[Node]) -> Fleet:
        """All agents answer."""
        asked = tuple(replace(node, signal=self.confirm(node)) for node in nodes)
        return Fleet(observed_at=self.clock.now(), nodes=asked, cluster=self.cluster.view())

    def measure(self, *_: object) -> tuple[()]:
        """Nobody asks for numbers."""
        return ()

    def confirm(self, node: Node) -> NodeReport:
        """One agent, as long as its machine runs."""
        if node.state is not NodeState.RUNNING:
            return NodeReport(failure=f"it is {node.state}")
        state, since = self.since[node.id]
        held = self.clock.monotonic() - since
        return NodeReport(verdict=a_verdict(node.id, state, held, gpus=node.known_gpus, at=self.clock.now()))


@pytest.fixture
def told() -> Iterator[tuple[Story, EksDesk, MotoFaults, dict[str, str]]]:
    """A group of two machines that are EKS nodes: on gpu-1 an idle GPU pod and a web server, gpu-2 trains."""
    clock = ManualClock(wall=NOW)
    with MotoFaults(clock, lag_describes=1) as ec2:
        ec2.add_template(TEMPLATE)
        ec2.add_group("eks-gpu", {**MINE, "eks:cluster-name": "prod"}, size=2, MinSize=0, MaxSize=4)
        desk = EksDesk(clock=clock, rules=RULES, limits=Limits(max_stops_per_hour_ratio=1.0))
        desk.cloud = Members(fleet=FLEET, clock=clock, regions=[REGION], session=ec2.session)
        desk.cloud.cluster = desk
        ids = sorted(node.id for node in AwsCloud.nodes(desk.cloud))
        for name, node_id in zip(NAMES, ids, strict=True):
            desk.since[node_id] = State.IDLE if name == "gpu-1" else State.BUSY, clock.monotonic()
            desk.cluster.put(a_kubernetes_node(name, provider_id=f"aws:///{REGION}a/{node_id}"))
        desk.cluster.bind("gpu-1", a_pod("web-1"), a_gpu_pod("notebook-1"))
        clock.advance(3600.0)
        yield Story(desk=desk, every_seconds=60.0), desk, ec2, dict(zip(NAMES, ids, strict=True))


def check(name: str, story: Story, ids: dict[str, str]) -> None:
    """Compare with the golden file; GPUWATCH_UPDATE_GOLDEN=1 writes it anew, and the diff is the review."""
    text = story.text + "\n"
    for node, node_id in ids.items():
        text = text.replace(node_id, node)
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("GPUWATCH_UPDATE_GOLDEN") == "1":
        path.write_text(text, encoding="utf-8")

    assert text == path.read_text(encoding="utf-8")


def size(ec2: MotoFaults) -> int:
    """How many machines the group wants."""
    return int(ec2.scaling.describe_auto_scaling_groups()["AutoScalingGroups"][0]["DesiredCapacity"])


def test_an_idle_eks_node_is_drained_and_ended_with_its_place(
    told: tuple[Story, EksDesk, MotoFaults, dict[str, str]],
) -> None:
    """Notice, grace, cordon, a drain that a budget refuses at first, the end with its place, and the settlement."""
    story, desk, ec2, ids = told
    desk.cluster.budgets.add("web-1")
    story.until(1.25)
    story.say("web-1 has a second replica elsewhere: its budget lets it go", desk.cluster.budgets.clear)
    story.until(1.5)

    assert size(ec2) == 1
    assert [call.action for call in ec2.calls if call.done and call.action.startswith("Terminate")] == [
        "TerminateInstanceInAutoScalingGroup"
    ]
    assert ec2.state(ids["gpu-2"]) == "running"
    check("eks-node", story, ids)


def test_a_node_whose_pod_comes_back_is_uncordoned(told: tuple[Story, EksDesk, MotoFaults, dict[str, str]]) -> None:
    """A budget keeps web-1, then a pod comes that nobody lets go: uncordoned, its notice withdrawn, and kept."""
    story, desk, ec2, ids = told
    desk.cluster.budgets.add("web-1")
    story.until(1.2)
    mine = a_gpu_pod("mine-1", interruptible=False)
    story.say("a pod that bears the cordon is bound to gpu-1", lambda: desk.cluster.bind("gpu-1", mine))
    story.until(1.5)
    story.say("it begins to work", lambda: desk.since.update({ids["gpu-1"]: (State.BUSY, desk.clock.monotonic())}))
    story.until(2.0)

    assert not desk.cluster.nodes["gpu-1"].unschedulable
    assert size(ec2) == 2
    check("eks-node-kept", story, ids)
