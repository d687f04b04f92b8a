"""EC2 on moto that leaves machines out of its lists, falls silent in one region, and knows spot requests."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from moto.ec2.models import ec2_backends

from tests.support.fakes.moto_faults import MotoFaults
from tests.support.fakes.moto_wire import disconnect


class OddFaults(MotoFaults):
    """MotoFaults with oddities that last."""

    _hidden: tuple[str, int] = ("", 0)
    _silent: str | None = None

    def hide(self, node_id: str, *, times: int) -> None:
        """So many answers of DescribeInstances do not have that machine."""
        self._hidden = (node_id, times)

    def silence(self, region: str | None) -> None:
        """Nothing answers in that region from now on; "" is everywhere, None nowhere."""
        self._silent = region

    def launch_spot(self, tags: Mapping[str, str], kind: Any) -> str:  # noqa: ANN401  a word of EC2
        """A spot machine of a request of that type; moto links them one way only."""
        answer = self.client.request_spot_instances(
            Type=kind, InstanceCount=1, LaunchSpecification={"ImageId": "ami-00000000", "InstanceType": "g5.xlarge"}
        )["SpotInstanceRequests"][0]
        node_id = answer["InstanceId"]
        self._instance(node_id).spot_instance_request_id = answer["SpotInstanceRequestId"]
        self.set_tags(node_id, tags)
        self.calls.clear()
        return node_id

    def launch_in_block(self, tags: Mapping[str, str]) -> str:
        """A machine of a Capacity Block, which moto launches on demand."""
        node_id = self.launch(tags)
        self._instance(node_id).lifecycle = "capacity-block"
        return node_id

    def _send(self, event_name: str, request: AWSPreparedRequest, **more: object) -> AWSResponse:
        if self._silent is not None and f".{self._silent}" in str(request.url):
            return disconnect(request)
        node_id, times = self._hidden
        if times == 0 or not event_name.endswith(".DescribeInstances"):
            return super()._send(event_name, request, **more)
        self._hidden = (node_id, times - 1)
        with _without(node_id):
            return super()._send(event_name, request, **more)


@contextmanager
def _without(node_id: str) -> Iterator[None]:
    """The account without one machine."""
    backends = [backend for regions in list(ec2_backends.values()) for backend in list(regions.values())]
    reservations: list[Any] = [each for backend in backends for each in backend.reservations.values()]
    whole = [(each, each.instances) for each in reservations]
    for each, instances in whole:
        each.instances = [instance for instance in instances if instance.id != node_id]
    try:
        yield
    finally:
        for each, instances in whole:
            each.instances = instances
