"""The pretended clouds that `benchmarks.clouds` asks: each with machines in it, its credentials, and its own limits."""

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gpuwatch.clouds import FLEET_TAG
from gpuwatch.runtime.clock import ManualClock, SystemClock
from tests.support.clouds.faults import Asked
from tests.support.clouds.server import CloudServer, Fake, Refused, Request, Response, serving

FLEET = "lab"
_TAGS = {FLEET_TAG: FLEET}
_ACTIONS = ("x-tc-action", "x-tc-region", "x-acs-action", "x-amz-target")  # headers that say what is asked
_AZURE_PAGE = 50  # machines; Azure states no size, people find 50 (apache/libcloud issue 1824)


class Canned:
    """A fake that answers what it has answered before with the same bytes: then its own work is not measured."""

    def __init__(self, fake: Fake) -> None:
        """Nothing was asked yet."""
        self._fake = fake
        self._kept: dict[object, Response] = {}

    def asked(self, request: Request) -> Asked:
        """Nobody looks at it here."""
        return Asked(operation=request.path, region="", change=False)

    def answer(self, request: Request) -> Response:
        """By all that the answer may depend on; not by signatures and tokens."""
        action = tuple(request.headers.get(name) for name in _ACTIONS)
        key = (request.method, request.target, request.body, action)
        if key not in self._kept:
            self._fake.asked(request)
            answer = self._fake.answer(request)
            self._kept[key] = Response(body=answer.content, status=answer.status, headers=answer.headers)
        return self._kept[key]

    def refusal(self, request: Request, kind: Refused) -> Response:
        """In the fake's words."""
        return self._fake.refusal(request, kind)


class Forwarded:
    """A server elsewhere on loopback as a fake."""

    def __init__(self, url: str) -> None:
        """Nothing is sent yet."""
        self._address = urlsplit(url).netloc

    def asked(self, request: Request) -> Asked:
        """Nobody looks at it here."""
        return Asked(operation=request.path, region="", change=False)

    def answer(self, request: Request) -> Response:
        """What the server says."""
        connection = HTTPConnection(self._address, timeout=60)
        connection.request(request.method, request.target, request.body, dict(request.headers))
        answer = connection.getresponse()
        kind = answer.headers.get("Content-Type", "text/xml")
        found = Response(body=answer.read(), status=answer.status, headers={"Content-Type": kind})
        connection.close()
        return found

    def refusal(self, request: Request, kind: Refused) -> Response:
        """No fault is planned in a benchmark, so the fault layer never asks for one."""
        raise AssertionError(f"{kind} of {request.path}: a benchmark plans no faults")


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudSite:
    """A cloud on loopback: what the settings and the environment must say to reach it.

    `limit` is how many reads a second the real cloud allows, by the comment at the provider's own pace.
    """

    server: CloudServer
    settings: Mapping[str, object]
    limit: float
    limit_of: str
    environment: Mapping[str, str] = field(default_factory=dict)
    authority: Path | None = None


@contextmanager
def aws(folder: Path, machines: int) -> Iterator[CloudSite]:
    """EC2 as moto plays it."""
    del folder
    import boto3  # noqa: PLC0415  this process needs moto for one cloud only
    from moto.server import ThreadedMotoServer  # noqa: PLC0415  likewise

    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)  # it tells each request, and each call unknown to moto
    keys = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    client = boto3.client(
        "ec2",
        region_name="us-east-1",
        endpoint_url=f"http://{host}:{port}",
        aws_access_key_id="testing",
        aws_secret_access_key="testing",  # noqa: S106  moto's
    )
    if machines:
        client.run_instances(
            ImageId=client.register_image(Name="gpu")["ImageId"],
            InstanceType="g5.xlarge",
            MinCount=machines,
            MaxCount=machines,
            TagSpecifications=[
                {"ResourceType": "instance", "Tags": [{"Key": k, "Value": v} for k, v in _TAGS.items()]}
            ],
        )
    with serving(Canned(Forwarded(f"http://{host}:{port}"))) as server:
        settings = {"provider": "aws", "regions": ["us-east-1"], "endpoint_url": server.url}
        yield CloudSite(server=server, settings=settings, limit=20, limit_of="EC2's", environment=keys)
    moto.stop()


@contextmanager
def tencent(folder: Path, machines: int) -> Iterator[CloudSite]:
    """CVM and Auto Scaling."""
    del folder
    from tests.support.clouds.tencent.fake import SECRET_ID, SECRET_KEY, FakeTencent  # noqa: PLC0415  as above
    from tests.support.clouds.tencent.world import GPU_TYPE, REGION  # noqa: PLC0415  as above

    fake = FakeTencent(SystemClock())
    for number in range(machines):
        fake.state.add_machine(REGION, GPU_TYPE, tags=dict(_TAGS), name=f"gpu-{number}")
    keys = {"TENCENTCLOUD_SECRET_ID": SECRET_ID, "TENCENTCLOUD_SECRET_KEY": SECRET_KEY}
    with serving(Canned(fake)) as server:
        settings = {"provider": "tencent", "regions": [REGION], "endpoint_url": server.url}
        yield CloudSite(server=server, settings=settings, limit=10, limit_of="a CVM action's", environment=keys)


@contextmanager
def alibaba(folder: Path, machines: int) -> Iterator[CloudSite]:
    """ECS and ESS."""
    del folder
    from tests.support.clouds.alibaba.fake import KEY_ID, SECRET, FakeAlibaba  # noqa: PLC0415  as above
    from tests.support.clouds.alibaba.world import GPU_TYPE, REGION  # noqa: PLC0415  as above

    fake = FakeAlibaba()
    for number in range(machines):
        made = fake.state.add_machine(REGION, GPU_TYPE, dict(_TAGS), SystemClock().now(), name=f"gpu-{number}")
        made.status, made.next = "Running", None
    keys = {"ALIBABA_CLOUD_ACCESS_KEY_ID": KEY_ID, "ALIBABA_CLOUD_ACCESS_KEY_SECRET": SECRET}
    with serving(Canned(fake)) as server:
        settings = {"provider": "alibaba", "regions": [REGION], "endpoint_url": server.url}
        environment = {**keys, "ALIBABA_CLOUD_ECS_METADATA_DISABLED": "true"}
        yield CloudSite(
            server=server, settings=settings, limit=100 / 60, limit_of="the strictest ECS", environment=environment
        )


@contextmanager
def azure(folder: Path, machines: int) -> Iterator[CloudSite]:
    """Resource Manager over TLS."""
    from tests.support.clouds.azure import fake as pages  # noqa: PLC0415  as above
    from tests.support.clouds.azure.tokens import CLIENT, SECRET, TENANT  # noqa: PLC0415  as above
    from tests.support.clouds.azure.world import REGION, SUB, AzureWorld  # noqa: PLC0415  as above
    from tests.support.real.certificates import Authority  # noqa: PLC0415  as above

    fake, usual = pages.FakeAzure(), pages.PAGE
    pages.PAGE = _AZURE_PAGE
    try:
        with serving(Canned(fake), authority=Authority(folder)) as server:
            world = AzureWorld(ManualClock(wall=SystemClock().now()), fake, server, folder)
            for number in range(machines):
                world.add({**_TAGS, "Name": f"gpu-{number}"})
            ca = folder / "ca.pem"
            environment = {
                "AZURE_AUTHORITY_HOST": server.url,
                "AZURE_TENANT_ID": TENANT,
                "AZURE_CLIENT_ID": CLIENT,
                "AZURE_CLIENT_SECRET": SECRET,
                "AZURE_SUBSCRIPTION_ID": SUB,
                "REQUESTS_CA_BUNDLE": str(ca),
            }
            settings = {"provider": "azure", "regions": [REGION], "endpoint_url": server.url}
            yield CloudSite(
                server=server,
                settings=settings,
                limit=25,
                limit_of="Resource Manager's",
                environment=environment,
                authority=ca,
            )
    finally:
        pages.PAGE = usual


@contextmanager
def gcp(folder: Path, machines: int) -> Iterator[CloudSite]:
    """Compute Engine, with a service account's key and a service of tokens."""
    from tests.support.clouds.gcp.service import FakeGcp  # noqa: PLC0415  as above
    from tests.support.clouds.gcp.tokens import a_key, token_service  # noqa: PLC0415  as above
    from tests.support.clouds.gcp.world import PROJECT, REGION, GcpWorld  # noqa: PLC0415  as above

    fake = FakeGcp(SystemClock(), {PROJECT: REGION})
    with ExitStack() as stack:
        server = stack.enter_context(serving(Canned(fake)))
        world = GcpWorld(ManualClock(wall=SystemClock().now()), fake, server)
        for number in range(machines):
            world.launch({**_TAGS, "Name": f"gpu-{number}"})
        key = a_key(folder, stack.enter_context(token_service(world)))
        own: dict[str, Any] = {"projects": [PROJECT], "credentials_file": str(key)}
        settings = {"provider": "gcp", "regions": [REGION], "endpoint_url": server.url, "gcp": own}
        yield CloudSite(server=server, settings=settings, limit=25, limit_of="Compute Engine's")


SITES: Mapping[str, Callable[[Path, int], Any]] = {
    "aws": aws,
    "alibaba": alibaba,
    "azure": azure,
    "gcp": gcp,
    "tencent": tencent,
}


def environment_of(site: CloudSite) -> dict[str, str]:
    """That of a controller there: nothing of this machine's own clouds."""
    return {**os.environ, "AWS_EC2_METADATA_DISABLED": "true", **site.environment}
