"""Behind a proxy: the tunnel and its handshake are no part of the request, and an old permit sends nothing through."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpuwatch.clouds import PermitExpiredError
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import a_permit
from tests.support.fakes.slow_aws import Sink, cloud_at
from tests.support.real.certificates import Authority


def _pump(source: socket.socket, target: socket.socket) -> None:
    try:
        while piece := source.recv(65536):
            target.sendall(piece)
    except OSError:
        pass
    finally:
        target.close()


@contextmanager
def a_proxy(meanwhile: Callable[[], object]) -> Iterator[str]:
    """An HTTP proxy that takes CONNECT; `meanwhile` happens before it says that the way is open."""
    listening = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            line = client.recv(65536).split(b"\r\n")[0]
            host, port = line.split(b" ")[1].decode().split(":")
            meanwhile()
            target = socket.create_connection((host, int(port)), timeout=10)
            client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            for pair in ((client, target), (target, client)):
                threading.Thread(target=_pump, args=pair, daemon=True).start()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(10)


@pytest.mark.parametrize("slow", [True, False])
def test_a_proxy_that_opens_the_way_slowly_carries_no_old_permit(
    slow: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CONNECT was said while the permit was young: of the request itself nothing left, so nothing may have happened."""
    clock = ManualClock()
    authority = Authority(tmp_path)
    issued = authority.issue("ec2", "127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued.certificate, issued.key)
    for name, value in {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CA_BUNDLE": str(authority.ca),
        "NO_PROXY": "",
        "no_proxy": "",
    }.items():
        monkeypatch.setenv(name, value)

    with Sink(tls=context) as sink, a_proxy(lambda: clock.advance(18.0) if slow else None) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy)
        cloud = cloud_at(sink.url, clock)
        if slow:
            with pytest.raises(PermitExpiredError, match="was 18s old"):
                cloud.stop("i-1", "key", permit=a_permit(clock))
        else:
            cloud.stop("i-1", "key", permit=a_permit(clock))

    assert len(sink.requests) == (0 if slow else 1)
    assert sink.connections == 1
