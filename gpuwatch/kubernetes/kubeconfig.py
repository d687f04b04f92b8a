"""Where the API server is and who we are there: from a kubeconfig, or as a pod of the cluster.

The format: https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/. No secret is part of an error or a repr.
"""

import base64
import binascii
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from gpuwatch.clouds.errors import AuthFailedError
from gpuwatch.runtime.http.address import is_web_address, shown_address

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """A program that prints a credential: client.authentication.k8s.io."""

    api_version: str
    command: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    hint: str = ""
    cluster_info: Json | None = None  # what it is told of the cluster where it asks for that


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """An API server and our credentials there. `ca`, `certificate` and `key` are PEM; None: not given."""

    server: str
    ca: bytes | None = None
    insecure: bool = False
    server_name: str | None = None
    certificate: bytes | None = field(default=None, repr=False)
    key: bytes | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    token_path: Path | None = None
    basic: tuple[str, str] | None = field(default=None, repr=False)
    plugin: Plugin | None = None
    proxy: str | None = None
    files: tuple[Path, ...] = ()  # a change of one of them makes this login outdated


def in_cluster(folder: Path = SERVICE_ACCOUNT, environment: Mapping[str, str] | None = None) -> Login:
    """The login of the pod's own service account.

    Raises:
        AuthFailedError: this process is in no pod, or the pod has no service account.

    """
    environment = os.environ if environment is None else environment
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise AuthFailedError(
            "kubernetes.in_cluster: this process runs in no pod ($KUBERNETES_SERVICE_HOST is not set); "
            "outside of the cluster set kubernetes.kubeconfig",
            code="NotInCluster",
        )
    ca, token = folder / "ca.crt", folder / "token"
    if not token.is_file():
        raise AuthFailedError(
            f"kubernetes.in_cluster: {token} is missing; give the pod a service account "
            "(automountServiceAccountToken: true)",
            code="NoToken",
        )
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return Login(server=server, ca=_read_bytes("kubernetes.in_cluster", ca), token_path=token, files=(ca,))


def from_kubeconfig(path: Path, context: str | None = None) -> Login:
    """The login that a kubeconfig describes.

    Raises:
        AuthFailedError: it cannot be read, or does not describe one; the sentence names file, entry and remedy.

    """
    try:
        return _File(path).login(context)
    except (KeyError, TypeError, ValueError, RuntimeError):  # their texts may repeat a secret
        wrong = "has an entry that no kubeconfig has: a value is missing, of another kind, or ~ leads to no home"
        raise AuthFailedError(f"kubernetes.kubeconfig: {path} {wrong}", code="BadKubeconfig") from None


def expand_home(path: Path) -> Path | None:
    """The path with the home that ~ stands for; None: this machine has no such home."""
    try:
        return path.expanduser()
    except RuntimeError:
        return None


class _File:
    """One kubeconfig; relative paths in it are relative to it."""

    def __init__(self, path: Path) -> None:
        found = expand_home(path)
        self.path = found or path
        if found is None:
            raise self._wrong(
                f"leads nowhere: this machine has no home {path.parts[0]}; expected is a path such as /etc/kubeconfig"
            )
        self.files: list[Path] = [self.path]
        try:
            content = yaml.safe_load(_read_bytes("kubernetes.kubeconfig", self.path))
        except yaml.YAMLError as error:
            # The error's text would repeat what stands in the file.
            mark = getattr(error, "problem_mark", None)
            where = "" if mark is None else f", line {mark.line + 1}"
            raise self._wrong(f"is no YAML{where}") from None
        if not isinstance(content, dict):
            raise self._wrong("is no kubeconfig; expected are clusters, users and contexts")
        self.content: Json = content

    def login(self, wanted: str | None) -> Login:
        name = wanted or str(self.content.get("current-context") or "")
        if not name:
            raise self._wrong("has no current-context; set kubernetes.context")
        context = self._entry("contexts", "context", name)
        cluster = self._entry("clusters", "cluster", str(context.get("cluster") or ""))
        user = self._entry("users", "user", str(context["user"])) if context.get("user") else {}
        server = str(cluster.get("server") or "")
        if not is_web_address(server):
            right = "a URL such as https://10.0.0.1:6443, without user"
            raise self._wrong(f"has the server {shown_address(server)!r}; expected is {right}")
        proxy = str(cluster.get("proxy-url") or "") or None
        if proxy is not None and not is_web_address(proxy):
            right = "a URL such as http://10.0.0.1:3128, without user and password"
            raise self._wrong(f"has the proxy-url {shown_address(proxy)!r}; expected is {right}")
        for unsupported in ("auth-provider",):
            if user.get(unsupported):
                raise self._wrong(f"has a user with {unsupported}, which kubectl has dropped; use exec")
        basic = None
        if user.get("username") and user.get("password") is not None:
            basic = (str(user["username"]), str(user["password"]))
        token_file = user.get("tokenFile")
        return Login(
            server=server.rstrip("/"),
            ca=self._pem(cluster, "certificate-authority"),
            insecure=cluster.get("insecure-skip-tls-verify") is True,
            server_name=cluster.get("tls-server-name") or None,
            certificate=self._pem(user, "client-certificate"),
            key=self._pem(user, "client-key"),
            token=None if token_file or not user.get("token") else str(user["token"]),
            token_path=self._path(token_file) if token_file else None,
            basic=basic,
            plugin=self._plugin(user.get("exec"), cluster),
            proxy=proxy,
            files=tuple(self.files),
        )

    def _entry(self, section: str, key: str, name: str) -> Json:
        """The entry of that name."""
        entries = self.content.get(section) or ()
        for each in entries if isinstance(entries, list) else ():
            if isinstance(each, dict) and each.get("name") == name and isinstance(each.get(key), dict):
                found: Json = each[key]
                return found
        known = sorted(str(each.get("name")) for each in entries if isinstance(each, dict))
        raise self._wrong(f"has no {key} {name!r}; {section} are: {', '.join(known) or 'none'}")

    def _pem(self, entry: Json, name: str) -> bytes | None:
        """What `NAME-data` holds, or the file that `NAME` names."""
        data = entry.get(f"{name}-data")
        if data:
            try:
                return base64.b64decode(str(data), validate=True)
            except (binascii.Error, ValueError):
                raise self._wrong(f"has {name}-data that is no base64") from None
        if not entry.get(name):
            return None
        path = self._path(entry[name])
        self.files.append(path)
        return _read_bytes(f"kubernetes.kubeconfig {self.path}: {name}", path)

    def _path(self, named: object) -> Path:
        return self.path.parent / Path(str(named)).expanduser()

    def _plugin(self, exec_: object, cluster: Json) -> Plugin | None:
        if exec_ is None:
            return None
        if not isinstance(exec_, dict) or not exec_.get("command"):
            raise self._wrong("has a user with an exec that names no command")
        command = str(exec_["command"])
        if "/" in command:
            command = str(self._path(command))
        info = {
            key: cluster[key]
            for key in ("server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data")
            if key in cluster
        }
        return Plugin(
            api_version=str(exec_.get("apiVersion") or ""),
            command=command,
            arguments=tuple(str(each) for each in exec_.get("args") or ()),
            environment={str(each["name"]): str(each["value"]) for each in exec_.get("env") or ()},
            hint=str(exec_.get("installHint") or ""),
            cluster_info=info if exec_.get("provideClusterInfo") else None,
        )

    def _wrong(self, what: str) -> AuthFailedError:
        return AuthFailedError(f"kubernetes.kubeconfig: {self.path} {what}", code="BadKubeconfig")


def _read_bytes(key: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise AuthFailedError(f"{key}: {path} cannot be read: {error.strerror}", code="Unreadable") from None
