"""One account in four regions: each is closed in its own way, and the fourth is served in the same round."""

from collections.abc import Iterator
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders

from gpuwatch.clouds.aws.cloud import AwsCloud
from gpuwatch.clouds.silence import Past
from gpuwatch.model.fleet import NodeState
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import a_permit
from tests.support.fakes.cloud_worlds import MINE
from tests.support.fakes.moto_faults import REGION, MotoFaults

# What EC2 says in a region that is not opted into, in one that an organisation forbids, and to a token that has ended.
CLOSED = {
    "ap-southeast-3": (401, "AuthFailure", "AWS was not able to validate the provided access credentials"),
    "eu-south-1": (403, "UnauthorizedOperation", "with an explicit deny in a service control policy"),
    "eu-west-1": (400, "ExpiredToken", "The security token included in the request is expired"),
}


@pytest.fixture
def ec2() -> Iterator[MotoFaults]:
    """An empty account."""
    with MotoFaults(ManualClock()) as faults:
        yield faults


def test_three_closed_regions_have_three_sentences_and_the_fourth_is_served(ec2: MotoFaults) -> None:
    """Also where the process has never seen the three: nobody's machine waits for somebody else's right."""

    def answer(request: Any, **_: object) -> Any:  # noqa: ANN401  botocore's own
        found: Any = None
        for region, (status, code, message) in CLOSED.items():
            if f".{region}." in request.url:
                found = AWSResponse(request.url, status, HTTPHeaders(), None)
                errors = f"<Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors>"
                found._content = f"<Response>{errors}<RequestID>1</RequestID></Response>".encode()
        return found

    node_id = ec2.launch(MINE)
    events: Any = ec2.session.events
    events.register_first("before-send.ec2", answer)
    cloud = AwsCloud(session=ec2.session, fleet="lab", clock=ManualClock(), regions=[*CLOSED, REGION])
    cloud.recall(Past)

    assert [node.id for node in cloud.nodes()] == [node_id]

    silent = {each.where: each.reason for each in cloud.outlook().silent}
    assert silent.keys() == CLOSED.keys()
    assert all(code in silent[region] for region, (_, code, _) in CLOSED.items())
    cloud.stop(node_id, "key", permit=a_permit())
    (node,) = cloud.nodes()
    assert node.state is NodeState.STOPPED
