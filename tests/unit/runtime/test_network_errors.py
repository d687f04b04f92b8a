"""What went wrong on the way to another program is told in words, whichever library met it, on real sockets."""

import errno
import re
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import botocore.session
import pytest
import urllib3
from botocore.config import Config

from gpuwatch.clouds import CloudUnavailableError
from gpuwatch.clouds.aws.errors import asking
from gpuwatch.runtime.network_errors import network_text


def by_urllib(url: str) -> None:
    """As prices and notifications ask."""
    urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=0.3)


def by_urllib3(url: str) -> None:
    """As API servers and Google Cloud are asked."""
    urllib3.PoolManager(retries=False, timeout=0.3).request("GET", url)


def by_botocore(url: str) -> None:
    """As AWS is asked."""
    config = Config(retries={"total_max_attempts": 1}, connect_timeout=0.3, read_timeout=0.3, proxies={})
    made: Any = botocore.session.Session().create_client(
        "ec2",
        "us-east-1",
        endpoint_url=url,
        aws_access_key_id="key",
        aws_secret_access_key="word-of-mine",  # noqa: S106  of nobody
        config=config,
    )
    made.describe_instances()


LIBRARIES: list[Callable[[str], None]] = [by_urllib, by_urllib3, by_botocore]


@contextmanager
def a_server(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """The port of a server that does this with each connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    line, _ = listening.accept()
                    with suppress(OSError), line:
                        answer(line)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
    thread.join(5)


def closed_port() -> int:
    """A port where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def met(ask: Callable[[str], None], url: str) -> str:
    """What is said of the library's error."""
    with pytest.raises(Exception) as caught:  # noqa: PT011  each library has its own
        ask(url)
    words = network_text(caught.value, url)
    assert words is not None, repr(caught.value)
    assert not re.search(r"Errno|urllib3|Error\b|object at|word-of-mine", words), words
    return words


@pytest.mark.parametrize("ask", LIBRARIES)
class TestEachLibrary:
    """The same sentence, whoever asks."""

    def test_nobody_listens(self, ask: Callable[[str], None]) -> None:
        """The address, and what to check."""
        port = closed_port()

        words = met(ask, f"http://127.0.0.1:{port}")

        assert words == f"127.0.0.1:{port} refuses connections; check the port, and that the service runs"

    def test_silence(self, ask: Callable[[str], None]) -> None:
        """A server that never answers."""
        gone = threading.Event()
        with a_server(lambda _: (gone.wait(5), None)[1]) as port:
            words = met(ask, f"http://127.0.0.1:{port}")
            gone.set()

        assert words.startswith(f"127.0.0.1:{port} did not answer in time; check firewalls")

    def test_no_tls(self, ask: Callable[[str], None]) -> None:
        """A server without TLS that is asked by https."""
        with a_server(lambda line: line.sendall(b"HTTP/1.0 400 Bad\r\n\r\n")) as port:
            words = met(ask, f"https://127.0.0.1:{port}")

        assert words.startswith(f"127.0.0.1:{port} does not speak TLS; check the port")

    def test_hung_up(self, ask: Callable[[str], None]) -> None:
        """A server that closes the connection without a word."""
        with a_server(lambda line: (line.recv(4096), None)[1]) as port:
            words = met(ask, f"http://127.0.0.1:{port}")

        assert words == f"127.0.0.1:{port} closed the connection before its answer was whole"


def test_a_name_that_nobody_has() -> None:
    """The name is said, without the port and the resolver's number."""
    error = urllib.error.URLError(socket.gaierror(-2, "Name or service not known"))

    words = network_text(error, "https://user:secret@ec2.mars-1.example.com/path?key=secret")

    assert words == "the name 'ec2.mars-1.example.com' cannot be resolved; check its spelling and this machine's DNS"


def test_no_route() -> None:
    """The network is the reason."""
    words = network_text(OSError(errno.ENETUNREACH, "Network is unreachable"), "http://10.0.0.1:9460")

    assert words == "there is no route to 10.0.0.1:9460; check this machine's network, VPN and firewall"


def asked_through(proxy: str, monkeypatch: pytest.MonkeyPatch) -> pytest.ExceptionInfo[CloudUnavailableError]:
    """What EC2's client says where the environment names this proxy."""
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    monkeypatch.delenv("NO_PROXY", raising=False)
    config = Config(retries={"total_max_attempts": 1}, connect_timeout=0.3)
    made: Any = botocore.session.Session().create_client(
        "ec2",
        "us-east-1",
        aws_access_key_id="key",
        aws_secret_access_key="word",  # noqa: S106  of nobody
        config=config,
    )
    with pytest.raises(CloudUnavailableError) as caught, asking("DescribeInstances", where="us-east-1"):
        made.describe_instances()
    return caught


@pytest.mark.parametrize("proxy", ["::::", "http://user:secret@[", "http://:3128"])
def test_a_proxy_that_is_no_url_is_named_by_its_variable(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its value may hold a password."""
    said = str(asked_through(proxy, monkeypatch).value)

    assert "HTTPS_PROXY is not a valid URL; write one, such as http://proxy.example.com:3128, or unset it" in said
    assert "secret" not in said


def test_the_proxy_is_named_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever sees only the target looks in the wrong place."""
    port = closed_port()
    caught = asked_through(f"http://user:secret@127.0.0.1:{port}", monkeypatch)

    assert f"the proxy 127.0.0.1:{port} (HTTPS_PROXY, NO_PROXY)" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "Error" not in str(caught.value)


def test_other_errors_are_none_of_the_network() -> None:
    """An answer that lacks its parts has words of its own."""
    assert network_text(KeyError("Reservations")) is None
    assert network_text(ValueError("not JSON")) is None


@pytest.mark.parametrize("url", ["http://[::1", "https://host:70000/", "smtp://::1:25", "//:x"])
def test_an_invalid_url_does_not_hide_the_error(url: str) -> None:
    """The sentence goes without a place then."""
    refused = ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")

    assert network_text(refused, url) == "its address refuses connections; check the port, and that the service runs"
