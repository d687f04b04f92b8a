"""Google's service of tokens on loopback, and the key of a service account that asks it."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import parse_qs

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.support.clouds.gcp.world import PROJECT, GcpWorld

ACCOUNT = f"gpuwatch@{PROJECT}.iam.gserviceaccount.com"


class TokenService(HTTPServer):
    """Google's service of tokens: each signed assertion gives a new token, which the fake of Compute Engine takes."""

    def __init__(self, world: GcpWorld) -> None:
        """No token is given yet."""
        super().__init__(("127.0.0.1", 0), _Handler)
        self.world, self.given, self.broken = world, 0, False
        self.says = "secret-of-the-token-service"  # where it is broken
        self.takes_seconds = 0.0
        self.taken = True  # whether Compute Engine takes what it gives
        world.fake.tokens = set()


class _Handler(BaseHTTPRequestHandler):
    server: TokenService

    def do_POST(self) -> None:
        """One token for an assertion."""
        self.server.world.clock.advance(self.server.takes_seconds)
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        assert form["grant_type"] == ["urn:ietf:params:oauth:grant-type:jwt-bearer"]
        assert form["assertion"][0].count(".") == 2
        body: dict[str, object] = {"error": "invalid_grant", "error_description": self.server.says}
        if not self.server.broken:
            self.server.given += 1
            token = f"token-{self.server.given}"
            assert self.server.world.fake.tokens is not None
            if self.server.taken:
                self.server.world.fake.tokens = {token}
            body = {"access_token": token, "expires_in": 3600, "token_type": "Bearer"}
        content = json.dumps(body).encode()
        self.send_response(400 if self.server.broken else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def token_service(world: GcpWorld) -> Iterator[TokenService]:
    """The service of tokens, on loopback."""
    with TokenService(world) as service:
        thread = threading.Thread(target=service.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield service
        service.shutdown()
        thread.join()


def a_key(folder: Path, tokens: TokenService) -> Path:
    """A service account's key, in a file."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    told = {
        "type": "service_account",
        "project_id": PROJECT,
        "private_key_id": "1",
        "private_key": pem,
        "client_email": ACCOUNT,
        "token_uri": f"http://127.0.0.1:{tokens.server_address[1]}/token",
    }
    path = folder / "key.json"
    path.write_text(json.dumps(told))
    return path
