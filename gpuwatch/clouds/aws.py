"""EC2 through boto3, whose only importer this is (and `aws_errors` of its exceptions).

Reads are tried up to three times by botocore. Mutations are sent once: the ledger decides about trying again, because
only it knows whether the wish still stands. One instance a call, since one bad id fails the whole call on EC2.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import boto3
from botocore.config import Config

from gpuwatch.clock import Clock
from gpuwatch.clouds import START_IS_DONE, STOP_IS_DONE, CloudError, NotFoundError, refuse_foreign_tags
from gpuwatch.clouds.aws_errors import asking
from gpuwatch.clouds.claims import claims
from gpuwatch.model.fleet import CapacityType, Node, NodeState

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import InstanceTypeDef, InstanceTypeInfoTypeDef

log = logging.getLogger(__name__)

_READING = Config(connect_timeout=5, read_timeout=20, retries={"mode": "standard", "total_max_attempts": 3})
_WRITING = Config(connect_timeout=5, read_timeout=20, retries={"mode": "standard", "total_max_attempts": 1})
_TYPES_A_CALL = 100  # a filter takes up to 200 values

_STATES = {
    "pending": NodeState.PENDING,
    "running": NodeState.RUNNING,
    "stopping": NodeState.STOPPING,
    "stopped": NodeState.STOPPED,
    "shutting-down": NodeState.TERMINATING,
    "terminated": NodeState.TERMINATED,
}
_LISTED_STATES = [name for name, state in _STATES.items() if state is not NodeState.TERMINATED]
_INCORRECT_STATE = "IncorrectInstanceState"

# InstanceLifecycle of DescribeInstances; absent for on demand.
_LIFECYCLES = {
    "spot": CapacityType.SPOT,
    "capacity-block": CapacityType.CAPACITY_BLOCK,
    "scheduled": CapacityType.RESERVED,
}

# Tags by which other systems own a machine: pattern of the key, what owns it. The first match wins.
_OWNERS: tuple[tuple[str, str], ...] = (
    ("aws:eks:cluster-name", "EKS cluster"),
    ("eks:cluster-name", "EKS cluster"),
    ("aws:eks:*", "EKS"),
    ("kubernetes.io/cluster/*", "Kubernetes cluster"),
    ("karpenter.sh/nodepool", "Karpenter node pool"),
    ("AWSBatchServiceTag", "AWS Batch"),
    ("aws:elasticmapreduce:*", "EMR"),
    ("sagemaker:*", "SageMaker"),
    ("aws:sagemaker:*", "SageMaker"),
    ("parallelcluster:*", "ParallelCluster"),
    ("aws:autoscaling:groupName", "Auto Scaling group"),
    ("aws:ec2spot:fleet-request-id", "spot fleet"),
    ("aws:ec2:fleet-id", "EC2 fleet"),
    ("aws:cloudformation:stack-name", "CloudFormation stack"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Type:
    """What a machine type brings. Source: DescribeInstanceTypes, GpuInfo and InstanceStorageSupported."""

    gpu_count: int = 0
    instance_store: bool = False


class AwsCloud:
    """The GPU machines of one account in some regions. Credentials are found by boto3's own rules."""

    def __init__(
        self,
        *,
        fleet: str,
        clock: Clock,
        regions: Sequence[str] = (),
        profile: str | None = None,
        endpoint_url: str | None = None,
        session: boto3.Session | None = None,
        page_size: int = 500,
    ) -> None:
        """Make a reading and a writing client for each region (none given: the SDK's default); nothing is sent yet.

        Raises:
            AuthFailedError: the profile does not exist.
            CloudError: there is no region: every list would be empty, and look like an empty fleet.

        """
        self._fleet = fleet
        self._clock = clock
        self._page_size = page_size
        self._types: dict[str, _Type] = {}
        self._homes: dict[str, str] = {}  # id -> region
        with asking("credentials"):
            session = session or boto3.Session(profile_name=profile)
            regions = regions or tuple(filter(None, [session.region_name]))
            if not regions:
                raise CloudError(
                    "no region is known; set cloud.regions, for example [us-east-1], or AWS_DEFAULT_REGION"
                )
            self._readers: dict[str, EC2Client] = {
                region: session.client("ec2", region_name=region, endpoint_url=endpoint_url, config=_READING)
                for region in regions
            }
            self._writers: dict[str, EC2Client] = {
                region: session.client("ec2", region_name=region, endpoint_url=endpoint_url, config=_WRITING)
                for region in regions
            }

    def nodes(self) -> Sequence[Node]:
        """All GPU machines that are not terminated. Source: DescribeInstances to its last page, in every region."""
        listed: list[Node] = []
        for region in self._readers:
            instances = list(self._pages(region))
            self._learn(region, (instance["InstanceType"] for instance in instances))
            nodes = (self._node(region, instance) for instance in instances)
            listed += (node for node in nodes if node.gpu_count > 0)
        self._homes = {node.id: node.region for node in listed}
        return tuple(sorted(listed, key=lambda node: node.id))

    def node(self, node_id: str) -> Node:
        """One machine as EC2 sees it now. Source: DescribeInstances by id."""
        for region in self._candidates(node_id):
            try:
                instance = self._describe(region, node_id)
            except NotFoundError:
                continue
            self._homes[node_id] = region
            self._learn(region, [instance["InstanceType"]])
            return self._node(region, instance)
        raise NotFoundError(
            f"EC2 knows no instance {node_id} in {', '.join(self._readers)}", code="InvalidInstanceID.NotFound"
        )

    def stop(self, node_id: str, key: str) -> None:
        """Ask for a stop. Source: StopInstances."""
        del key  # EC2 has no token for it; a second stop changes nothing
        client = self._writers[self._home(node_id)]
        with self._unless_already(STOP_IS_DONE, node_id), asking("StopInstances"):
            _ = client.stop_instances(InstanceIds=[node_id])["StoppingInstances"]

    def start(self, node_id: str, key: str) -> None:
        """Ask for a start. Source: StartInstances."""
        del key  # EC2 has no token for it; a second start changes nothing
        client = self._writers[self._home(node_id)]
        with self._unless_already(START_IS_DONE, node_id), asking("StartInstances"):
            _ = client.start_instances(InstanceIds=[node_id])["StartingInstances"]

    def tag(self, node_id: str, tags: Mapping[str, str], key: str) -> None:
        """Set tags of the allow-list. Source: CreateTags."""
        del key  # setting them again changes nothing
        refuse_foreign_tags(tags)
        client = self._writers[self._home(node_id)]
        with asking("CreateTags"):
            client.create_tags(Resources=[node_id], Tags=[{"Key": name, "Value": tags[name]} for name in sorted(tags)])

    @contextmanager
    def _unless_already(self, done: frozenset[NodeState], node_id: str) -> Iterator[None]:
        """Take EC2's "incorrect state" for success where the machine is where it should go, or on its way."""
        try:
            yield
        except CloudError as error:
            if error.code != _INCORRECT_STATE or self.node(node_id).state not in done:
                raise

    def _candidates(self, node_id: str) -> list[str]:
        """The regions in which an id may be found: its own, if that is known."""
        return [self._homes[node_id]] if node_id in self._homes else list(self._readers)

    def _home(self, node_id: str) -> str:
        """The region of an id; costs a call only where there are several and none has shown it yet."""
        candidates = self._candidates(node_id)
        return candidates[0] if len(candidates) == 1 else self.node(node_id).region

    def _pages(self, region: str) -> Iterator["InstanceTypeDef"]:
        """Every instance of the region; the order is undefined."""
        pages = self._readers[region].get_paginator("describe_instances")
        with asking("DescribeInstances"):
            for page in pages.paginate(
                Filters=[{"Name": "instance-state-name", "Values": _LISTED_STATES}],
                PaginationConfig={"PageSize": self._page_size},
            ):
                for reservation in page["Reservations"]:
                    yield from reservation.get("Instances", ())

    def _describe(self, region: str, node_id: str) -> "InstanceTypeDef":
        with asking("DescribeInstances"):
            answer = self._readers[region].describe_instances(InstanceIds=[node_id])
        for reservation in answer["Reservations"]:
            for instance in reservation.get("Instances", ()):
                return instance
        raise NotFoundError(f"EC2 answered nothing about {node_id}", code="InvalidInstanceID.NotFound")

    def _learn(self, region: str, names: Iterable[str]) -> None:
        """Look up machine types that are new, in batches, once in this process.

        By filter and not by name, because one name that EC2 does not describe (a retired type) fails a whole batch.
        """
        unknown = sorted(set(names) - self._types.keys())
        pages = self._readers[region].get_paginator("describe_instance_types")
        for begin in range(0, len(unknown), _TYPES_A_CALL):
            batch = unknown[begin : begin + _TYPES_A_CALL]
            with asking("DescribeInstanceTypes"):
                found: dict[str, _Type] = {
                    facts["InstanceType"]: _type_of(facts)
                    for page in pages.paginate(Filters=[{"Name": "instance-type", "Values": batch}])
                    for facts in page["InstanceTypes"]
                }
            for name in batch:
                if name not in found:
                    log.warning("EC2 does not describe the instance type %s: its machines are left out", name)
                self._types[name] = found.get(name, _Type())

    def _node(self, region: str, instance: "InstanceTypeDef") -> Node:
        """EC2's words in ours."""
        with asking("DescribeInstances"):
            tags = {tag["Key"]: tag["Value"] for tag in instance.get("Tags", ())}
            facts = self._types[instance["InstanceType"]]
            on_demand = CapacityType.RESERVED if instance.get("CapacityReservationId") else CapacityType.ON_DEMAND
            return Node(
                id=instance["InstanceId"],
                name=tags.get("Name") or instance["InstanceId"],
                state=_STATES[instance["State"]["Name"]],
                instance_type=instance["InstanceType"],
                gpu_count=facts.gpu_count,
                region=region,
                zone=instance["Placement"]["AvailabilityZone"],
                capacity_type=_LIFECYCLES.get(instance.get("InstanceLifecycle", ""), on_demand),
                launched_at=instance["LaunchTime"].astimezone(UTC),
                address=instance.get("PrivateIpAddress"),
                managed_by=managed_by(tags),
                instance_store=facts.instance_store,
                tags=tags,
                **claims(tags, fleet=self._fleet, now=self._clock.now()),
            )


def managed_by(tags: Mapping[str, str]) -> str | None:
    """Which other system owns a machine, by the tags such systems leave; None if none does."""
    for pattern, owner in _OWNERS:
        for key in sorted(tags):
            if fnmatchcase(key, pattern):
                name = key.removeprefix("kubernetes.io/cluster/") if pattern == "kubernetes.io/cluster/*" else tags[key]
                return f"{owner} {name}".strip()
    return None


def _type_of(facts: "InstanceTypeInfoTypeDef") -> _Type:
    """A type's GPUs; a slice of one (g6f) counts as one."""
    gpus = facts.get("GpuInfo", {}).get("Gpus", ())
    return _Type(
        gpu_count=sum(max(1, gpu.get("Count", 0), gpu.get("LogicalGpuCount", 0)) for gpu in gpus),
        instance_store=facts.get("InstanceStorageSupported", False),
    )
