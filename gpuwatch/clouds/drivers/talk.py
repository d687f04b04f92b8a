"""What the shipped drivers share: a request in and an answer out, HTTP to the cloud, tags for clouds without any."""

import contextlib
import fcntl
import http.client
import json
import os
import sys
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Never

from gpuwatch.runtime.json_document import read_json

Asked = dict[str, Any]
Call = Callable[[Asked], dict[str, Any]]
_MOST_KEPT = 5000  # machines with tags in the file; the oldest are forgotten first
_HERE = {"localhost", "127.0.0.1", "::1"}
_SECONDS = 30.0  # without a word of the cloud; gpuwatch kills at the deadline
# What an API refuses by itself. Whatever else is not 2xx may have happened: the driver fails, which is a doubt.
KINDS = {400: "refused", 401: "auth", 402: "quota", 403: "auth", 404: "not_found", 409: "busy", 422: "refused"}
_DONE, _THROTTLED = (200, 201, 202, 204), 429


class RefusedError(Exception):
    """The cloud said no, or nothing was sent."""

    def __init__(self, kind: str, code: str, message: str) -> None:
        """As the protocol has it."""
        super().__init__(message)
        self.error = {"kind": kind, "code": code[:200] or kind, "message": message[:1000] or code}


def refuse(kind: str, code: str, message: str) -> Never:
    """Say no.

    Raises:
        RefusedError: always.

    """
    raise RefusedError(kind, code, message)


def check_encryption(asked: Asked) -> None:
    """Refuse an address to which secrets would go without encryption; this machine itself may have it.

    Raises:
        RefusedError: it is such an address.

    """
    options = {f"cloud.driver.options.{name}": text for name, text in asked["options"].items()}
    addresses = {name: text for name, text in options.items() if _scheme(text) == "http"}
    addresses |= {"cloud.endpoint_url": asked["endpoint"]} if asked["endpoint"] else {}
    for key, url in addresses.items():
        parts = urllib.parse.urlsplit(url)
        if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _HERE):
            refuse(
                "refused", "NotEncrypted", f"{key}: secrets go only to addresses that begin with https://, not to {url}"
            )


def _scheme(text: str) -> str:
    """As those who use the address read it: without spaces before it, and without tabs anywhere."""
    with contextlib.suppress(ValueError):
        return urllib.parse.urlsplit(text).scheme
    return ""


def send(url: str, method: str, token: str, body: object = None) -> tuple[int, Any]:
    """Send one request, once: status and JSON of what the cloud did, or of an error in `KINDS`; else it is a doubt.

    Raises:
        RefusedError: there was no connection, so nothing was sent; or there are too many requests.
        OSError, ValueError: nobody knows whether it was done.

    """
    parts = urllib.parse.urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    host = parts.hostname or ""
    direct = parts.scheme == "http" or urllib.request.proxy_bypass(host)  # `check_encryption`: HTTP is this machine
    proxy = None if direct else urllib.request.getproxies().get(parts.scheme)
    first = parts if proxy is None else urllib.parse.urlsplit(proxy)
    connection = kind(first.hostname or "", first.port, timeout=_SECONDS)
    if proxy is not None:
        connection.set_tunnel(host, parts.port)
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/json", "Content-Type": "application/json"}
    with contextlib.closing(connection):
        try:
            connection.connect()
        except OSError as error:
            refuse("not_sent", "NoConnection", f"no connection to {first.hostname}: {error}")
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        with connection.getresponse() as answer:
            said = answer.read()
            if answer.status == _THROTTLED:
                again = answer.headers.get("Retry-After", "some")
                refuse("throttled", str(_THROTTLED), f"too many requests; again after {again} s")
            if answer.status not in {*_DONE, *KINDS}:
                raise ValueError(f"{method} {parts.path}: status {answer.status}")
            return answer.status, read_json(said) if said else None


def tags_kept(asked: Asked, machines: list[dict[str, Any]]) -> None:
    """Add to the machines of a whole list the tags in the file `options.tags`."""
    kept = _read_tags(asked)
    for each in machines:
        each["tags"] = each.get("tags", {}) | kept.get(each["id"], {})


def tag_in_file(asked: Asked) -> dict[str, Any]:
    """Answer a request for new tags of a machine, where the file keeps them for the cloud."""
    keep_tags(asked)
    return {"id": asked["id"]}


def keep_tags(asked: Asked) -> None:
    """Keep the tags of one machine, whole or not at all; several drivers may do so at once."""
    path = Path(asked["options"]["tags"])
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = _read_tags(asked)
        kept[asked["id"]] = kept.pop(asked["id"], {}) | asked["tags"]
        kept = dict(list(kept.items())[-_MOST_KEPT:])
        new = path.with_suffix(".new")
        with new.open("w", encoding="utf-8") as file:
            json.dump(kept, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)


def _read_tags(asked: Asked) -> dict[str, dict[str, str]]:
    """The tags by machine; a file that cannot be read is an error: without its tags a machine looks unprotected."""
    path = asked["options"].get("tags")
    if path is None or not Path(path).exists():
        return {}
    found: dict[str, dict[str, str]] = read_json(Path(path).read_bytes())
    return found


def serve(name: str, calls: Mapping[str, Call], offers: Callable[[Asked], list[str]]) -> None:
    """Answer the one request on standard input."""
    asked: Asked = read_json(sys.stdin.read())
    call, said = asked["call"], dict[str, Any]()
    try:
        check_encryption(asked)
        if asked["gpuwatch"] != 1 or call not in {"describe", *offers(asked)}:
            refuse("refused", "Unknown", "this driver speaks version 1 of the protocol, and has no such call")
        if call == "describe":
            said = {"name": f"{name} (not yet seen on the real cloud)", "calls": offers(asked)}
        else:
            said = calls[call](asked)
    except RefusedError as refused:
        said = {"error": refused.error}
    json.dump({"gpuwatch": 1, "call": call, **said}, sys.stdout)
