"""The clouds' metadata services on loopback: they insist on what the real ones insist on, and say what a test sets."""

import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypeVar

TOKEN_PATH = "/latest/api/token"  # noqa: S105  where one is had, not one

EC2_DOCUMENT = """{
  "accountId" : "123456789012",
  "architecture" : "x86_64",
  "availabilityZone" : "us-east-1c",
  "billingProducts" : null,
  "imageId" : "ami-0123456789abcdef0",
  "instanceId" : "i-0123456789abcdef0",
  "instanceType" : "p4d.24xlarge",
  "pendingTime" : "2026-01-04T08:00:00Z",
  "privateIp" : "10.0.1.17",
  "region" : "us-east-1",
  "version" : "2017-09-30"
}"""
AZURE_COMPUTE = """{"azEnvironment": "AzurePublicCloud", "location": "westeurope", "name": "trainer_3",
"priority": "Spot",
"evictionPolicy": "Deallocate", "tagsList": [], "vmId": "13f56399-bd52-4150-9748-7190aae1ff21",
"vmSize": "Standard_ND96isr_H100_v5", "zone": "2"}"""
NO_WINDOW = '{ "error": "no notifications have been received yet, try again later" }'
ALIBABA_DOCUMENT = """{"zone-id":"cn-hangzhou-i","serial-number":"4acd2b47-b328-4762-852f-99",
"instance-id":"i-bp13znx0m0me8cquu0aa","region-id":"cn-hangzhou","private-ipv4":"192.168.1.4",
"owner-account-id":"1609000000000000","mac":"00:16:3e:0f:00:01","image-id":"aliyun_3_x64_20G.vhd",
"instance-type":"ecs.gn7i-c16g1.4xlarge"}"""


class MetadataService(ThreadingHTTPServer):
    """One machine's service; `documents` by path, and 404 for all else."""

    daemon_threads = True

    def __init__(self, documents: dict[str, str]) -> None:
        """Any free port of loopback."""
        super().__init__(("127.0.0.1", 0), _Handler)
        self.documents = dict(documents)
        self.statuses: dict[str, int] = {}  # other than 200 or 404, by path
        self.silent: set[str] = set()  # paths not answered as long as they are here, as where answers lose a hop
        self.asked: list[tuple[str, str]] = []
        self.closed = threading.Event()
        self.served = False

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def refuse(self, request: BaseHTTPRequestHandler) -> int:
        """The status for a request that lacks what this cloud wants; 0 for a good one."""
        del request
        return 0

    def put(self, request: BaseHTTPRequestHandler) -> tuple[int, str]:
        """The answer to a PUT."""
        del request
        return 405, ""


class _Handler(BaseHTTPRequestHandler):
    """One request."""

    server: MetadataService
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        """A token."""
        if self._heard():
            self._answer(*self.server.put(self))

    def do_GET(self) -> None:
        """A document."""
        if not self._heard():
            return
        refused = self.server.refuse(self)
        body = self.server.documents.get(self.path)
        status = self.server.statuses.get(self.path, 404 if body is None else 200)
        self._answer(refused or status, "<html>no</html>" if refused or body is None else body)

    def _heard(self) -> bool:
        self.server.asked.append((self.command, self.path))
        while self.path in self.server.silent:
            if self.server.closed.wait(0.02):
                self.close_connection = True
                return False
        return True

    def _answer(self, status: int, body: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body.encode())))
        if status in {301, 302}:
            self.send_header("Location", "http://203.0.113.1/")
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class' signature
        """Quietly."""


class Ec2(MetadataService):
    """IMDSv2 only, as HttpTokens=required makes it."""

    def __init__(self, lifecycle: str = "spot") -> None:
        """A p4d.24xlarge without notices."""
        super().__init__(
            {
                "/latest/dynamic/instance-identity/document": EC2_DOCUMENT,
                "/latest/meta-data/instance-life-cycle": lifecycle,
            }
        )
        self.enabled = True  # HttpEndpoint
        self.tokens: set[str] = set()

    def put(self, request: BaseHTTPRequestHandler) -> tuple[int, str]:
        """A token for whoever says for how long."""
        if not self.enabled:
            return 403, ""
        if (
            request.path != TOKEN_PATH
            or not 1 <= int(request.headers.get("X-aws-ec2-metadata-token-ttl-seconds", 0)) <= 21600
        ):
            return 400, ""
        token = secrets.token_urlsafe(40)
        self.tokens.add(token)
        return 200, token

    def refuse(self, request: BaseHTTPRequestHandler) -> int:
        """Without a token of its own: 401."""
        if not self.enabled:
            return 403
        return 0 if request.headers.get("X-aws-ec2-metadata-token") in self.tokens else 401

    def interrupt(self, time: str = "2026-01-05T00:02:00Z", action: str = "terminate") -> None:
        """The notice of a spot interruption."""
        self.documents["/latest/meta-data/spot/instance-action"] = f'{{"action": "{action}", "time": "{time}"}}'


class Azure(MetadataService):
    """Wants `Metadata: true`."""

    def __init__(self) -> None:
        """A spot machine of a scale set."""
        super().__init__(
            {
                "/metadata/instance/compute?api-version=2021-02-01": AZURE_COMPUTE,
                "/metadata/scheduledevents?api-version=2020-07-01": '{"DocumentIncarnation": 1, "Events": []}',
            }
        )

    def refuse(self, request: BaseHTTPRequestHandler) -> int:
        """Without the header: 400."""
        return 0 if request.headers.get("Metadata") == "true" else 400


class Gcp(MetadataService):
    """Wants `Metadata-Flavor: Google`."""

    def __init__(self) -> None:
        """A spot machine in us-central1."""
        base = "/computeMetadata/v1/instance"
        super().__init__(
            {
                f"{base}/id": "4567890123456789012",
                f"{base}/machine-type": "projects/123456789/machineTypes/a2-highgpu-8g",
                f"{base}/zone": "projects/123456789/zones/us-central1-a",
                f"{base}/scheduling/preemptible": "TRUE",
                f"{base}/preempted": "FALSE",
                f"{base}/maintenance-event": "NONE",
                f"{base}/upcoming-maintenance?alt=json": NO_WINDOW,
            }
        )
        self.statuses[f"{base}/upcoming-maintenance?alt=json"] = 503

    def refuse(self, request: BaseHTTPRequestHandler) -> int:
        """Without the header: 403."""
        return 0 if request.headers.get("Metadata-Flavor") == "Google" else 403


class Alibaba(MetadataService):
    """With `hardened`, wants a token; without, hands none out."""

    def __init__(self, *, hardened: bool = True) -> None:
        """A gn7i without notices."""
        super().__init__({"/latest/dynamic/instance-identity/document": ALIBABA_DOCUMENT})
        self.hardened = hardened

    def put(self, request: BaseHTTPRequestHandler) -> tuple[int, str]:
        """A token, in hardened mode."""
        known = request.headers.get("X-aliyun-ecs-metadata-token-ttl-seconds") is not None
        return (200, "tok-hangzhou") if self.hardened and known else (404, "")

    def refuse(self, request: BaseHTTPRequestHandler) -> int:
        """Without the token: 403."""
        given = request.headers.get("X-aliyun-ecs-metadata-token")
        return 403 if self.hardened and given != "tok-hangzhou" else 0


class Tencent(MetadataService):
    """Is known by its name."""

    def __init__(self) -> None:
        """A spot GT4."""
        base = "/latest/meta-data"
        super().__init__(
            {
                f"{base}/instance-id": "ins-5c7k2m1a",
                f"{base}/instance/instance-type": "GT4.41XLARGE948",
                f"{base}/placement/region": "ap-guangzhou",
                f"{base}/placement/zone": "ap-guangzhou-3",
                f"{base}/payment/charge-type": "SPOTPAID",
            }
        )

    def refuse(self, request: BaseHTTPRequestHandler) -> int:
        """Under another name: 404."""
        return 0 if request.headers.get("Host") == "metadata.tencentyun.com" else 404


S = TypeVar("S", bound=MetadataService)


@contextmanager
def serving(service: S) -> Iterator[S]:
    """The service answers for as long as the `with` lasts; another one around it is the one that counts."""
    if service.served:  # two threads of one server do not both end
        yield service
        return
    service.served = True
    thread = threading.Thread(target=service.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield service
    finally:
        service.closed.set()
        service.shutdown()
        service.server_close()
        thread.join()
