"""What `helm test` runs in the cluster: the chart's own script, here against servers on loopback."""

import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from tests.support.paths import GOLDEN
from tests.support.real.agents import free_port
from tests.support.real.certificates import Authority


def script() -> str:
    """As it stands in the pod."""
    text = (GOLDEN / "helm/defaults.yaml").read_text(encoding="utf-8")
    (pod,) = (each for each in yaml.safe_load_all(text) if each and each["kind"] == "Pod")
    (container,) = pod["spec"]["containers"]
    assert container["command"] == ["python3", "-c"]
    found: str = container["args"][0]
    return found


def helm_test(*targets: str) -> subprocess.CompletedProcess[str]:
    """Its outcome for these services."""
    return subprocess.run([sys.executable, "-c", script(), *targets], capture_output=True, text=True, check=False)


@contextmanager
def server(status: int, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """One that gives every page that status; its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        made.socket = tls.wrap_socket(made.socket, server_side=True)
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{made.server_address[1]}"
    finally:
        made.shutdown()
        thread.join()
        made.server_close()


@pytest.mark.parametrize(("status", "good"), [(200, True), (401, True), (503, False)])
def test_a_page_answers_also_where_it_wants_a_password(status: int, good: bool) -> None:
    """The test pod has none."""
    with server(status) as address:
        done = helm_test(address)

    assert (done.returncode == 0) is good
    assert f"{address} answers {status}" in done.stdout


def test_a_page_with_a_certificate_answers(tmp_path: Path) -> None:
    """Whoever issued it: whether the right one is there is for Prometheus to say."""
    issued = Authority(tmp_path).issue("server")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(issued.certificate, issued.key)
    with server(200, tls) as address:
        done = helm_test(address)

    assert done.returncode == 0, done.stdout + done.stderr


def test_one_that_does_not_answer_fails_the_test() -> None:
    """Although another does."""
    with server(200) as address:
        assert helm_test(address, f"127.0.0.1:{free_port()}").returncode == 1


def test_a_service_without_pods_is_named() -> None:
    """A headless one has no address then."""
    done = helm_test("gpuwatch-agent.invalid:9460")

    assert done.returncode == 1
    assert "gpuwatch-agent.invalid has no address: no pod is ready" in done.stderr
